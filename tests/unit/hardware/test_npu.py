"""What npu-smi and hccn_tool say of Ascend devices: addresses, links, numbers that must not be taken for each other.

Outputs are those of the vendor's guides and of published logs (hccn_tool's messages: of its source); no device here.
"""

from __future__ import annotations

import json
import re

import npu_info
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.hardware import npu
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.hardware.npu_discovery import hccn_tool, read_npu
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold
from hypothesis import given
from hypothesis import strategies as st

UNSET = npu.Answer(0, "ipaddr:-.-.-.-\nnetmask:-.-.-.-\n")
NOT_PRESET = npu.Answer(13, "Get ipconf failed, because no ip was preset there!\n")
UP, DOWN = npu.Answer(0, "link status: UP\n"), npu.Answer(0, "link status: DOWN\n")
SUCCESS = npu.Answer(0, "net health status: Success\n")
# `npu-smi info -t spod-info -i 0 -c 0` of an A3, as a published sample shows it, in the columns of the tool's source.
SPOD = """\
	SDID                           : 16777216
	Super Pod Size                 : 384
	Super Pod ID                   : 0
	Server Index                   : 4
"""
NO_SPOD = npu.Answer(1, "This device does not support querying spod-info.\n")


def device(index, model="Ascend 910B3", *, physical=None, card=None, chip=0, health="OK"):
    physical, card = index if physical is None else physical, index if card is None else card
    return {
        **{"index": index, "uuid": None, "model": model, "memory_mib": 65536, "pci": f"0000:{index + 1:02x}:00.0"},
        **{"mig": False, "physical_id": physical, "health": health, "card": card, "chip": chip},
    }


EIGHT = [device(index) for index in range(8)]


def a3(pairs=8):
    return [device(index, "Ascend910", card=index // 2, chip=index % 2) for index in range(2 * pairs)]


def port(address, link=UP, health=SUCCESS):
    return npu.Port(npu.Answer(0, f"ipaddr:{address}\nnetmask:255.255.255.0\n"), link, health)


def ports(number=8):
    return {index: port(f"192.1.0.{index + 6}") for index in range(number)}


CHIPS = {
    **{"Ascend 910B3": "910b", "Ascend 910B2C": "910b", "Ascend 910B4-1": "910b", "Ascend910A": "910"},
    **{"Ascend 910ProB": "910", "Ascend 910PremiumA": "910", "Ascend 910B": "910", "Ascend 910": "910"},
    **{"Ascend910_9382": "a3", "Ascend 310P3": "", "Ascend 910_95": ""},
}


@pytest.mark.parametrize("model", CHIPS)
def test_the_generation_is_read_from_the_name(model):
    assert npu.chip_of([device(0, model), device(1, model)]) == CHIPS[model]


def test_the_generation_of_several_devices():
    assert npu.chip_of(a3()) == "a3", "a bare 910 with two chips on a card"
    assert npu.chip_of([device(0, "Ascend 910B3"), device(1, "Ascend 910A")]) == npu.chip_of([]) == ""


def test_a_healthy_node():
    found = npu.assemble(EIGHT, ports=ports())
    assert (found["chip"], found["super_pod_id"], found["problems"], found["notes"]) == ("910b", "", [], [])
    assert found["devices"][7] == {
        **{"index": 7, "physical_id": 7, "device_ip": "192.1.0.13", "health": "OK", "link": "up"},
        **{"net_health": "Success", "super_device_id": "", "visible": True},
    }


@pytest.mark.parametrize("answer", [UNSET, NOT_PRESET, npu.Answer(0, ""), npu.Answer(0, "ipaddr:0.0.0.0\n")])
def test_an_address_that_is_not_set_is_a_problem(answer):
    given = {**ports(), 3: npu.Port(answer, UP, SUCCESS)}
    found = npu.assemble(EIGHT, ports=given)
    assert found["devices"][3]["device_ip"] == ""
    output = f"`{' '.join(answer.output.split())}`" if answer.output else "nothing"
    (problem,) = found["problems"]
    assert problem.startswith(f"device 3 (physical id) has no network address: hccn_tool printed {output}, and")
    # /etc/hccn.conf has it.
    found = npu.assemble(EIGHT, ports=given, conf={3: "192.1.0.99"})
    assert (found["devices"][3]["device_ip"], found["problems"]) == ("192.1.0.99", [])


def test_without_hccn_tool_links_are_unknown_which_is_said():
    found = npu.assemble(EIGHT, conf={index: f"192.1.0.{index + 6}" for index in range(8)})
    assert {one["link"] for one in found["devices"]} == {"unknown"}
    assert found["problems"] == []
    assert found["notes"][0].endswith("is unknown: hccn_tool is not installed or was not called")


CONF = """\
send_arp_status_0=1
address_0=192.1.0.6
netmask_0=255.255.255.0
netdetect_0=192.1.0.1
 address_1 = 192.1.0.7
address_2=
address_3=-.-.-.-
#address_4=192.1.0.10
address_10=192.1.0.16
IPv6address_5=fdf8::5
IPv6address_0=fdf8::1
"""


def test_hccn_conf_has_numbers_of_two_digits_and_addresses_of_two_families():
    assert npu.parse_hccn_conf(CONF) == {0: "192.1.0.6", 1: "192.1.0.7", 5: "fdf8::5", 10: "192.1.0.16"}
    devices, conf = [device(index) for index in range(16)], {index: f"192.1.0.{index}" for index in range(1, 17)}
    found = npu.assemble(devices, conf=conf)
    assert [one["device_ip"] for one in found["devices"]][9:12] == ["192.1.0.9", "192.1.0.10", "192.1.0.11"]


def test_physical_ids_are_asked_for_and_not_logic_ids():
    """In a container with devices 4 to 7 programs count from 0, hccn_tool and rank tables from 4."""
    devices = [device(index, physical=index + 4) for index in range(4)]
    found = npu.assemble(devices, ports={index: port(f"192.1.0.{index}") for index in range(1, 8)})
    numbers = [(one["index"], one["physical_id"], one["device_ip"]) for one in found["devices"]]
    assert numbers == [(index, index + 4, f"192.1.0.{index + 4}") for index in range(4)]


@pytest.mark.parametrize(("nodes", "first"), [([4, 5, 6, 7], 4), ([7, 4, 6, 5], 4), ([*range(8)], 0), ([], 0)])
def test_physical_ids_come_from_the_driver_or_the_device_files(nodes, first):
    assert npu.physical_ids(EIGHT[:4], nodes) == list(range(first, first + 4))
    devices = [device(index, physical=index + 8) for index in range(4)]
    assert npu.physical_ids(devices, nodes) == [8, 9, 10, 11]


def test_hidden_devices_keep_their_numbers():
    found = npu.assemble(EIGHT, ports=ports(), visible="4,5,6,7")
    assert [one["physical_id"] for one in found["devices"] if one["visible"]] == [4, 5, 6, 7]
    assert [one["device_ip"] for one in found["devices"]][4] == "192.1.0.10"
    assert found["notes"][0].startswith("ASCEND_RT_VISIBLE_DEVICES hides devices 0, 1, 2, 3 (logic id) from programs")


@pytest.mark.parametrize(
    ("value", "shown"), [(None, None), ("", []), ("0", [0]), ("4, 10", [4, 10]), ("1,x,2", [1]), ("-1,0", [])]
)
def test_the_variable_ends_at_the_first_other_word(value, shown):
    assert npu.visible_devices(value) == shown


def test_links_networks_and_addresses_that_are_problems():
    given = {**ports(), 1: port("192.1.0.6"), 2: port("192.1.0.8", DOWN), 5: port("192.1.0.11", DOWN)}
    given[6] = port("192.1.0.12", UP, npu.Answer(0, "net health status: Socket fail\n"))
    given[7] = port("192.1.0.13", UP, npu.Answer(0, "net health status: Init\n"))
    found = npu.assemble(EIGHT, ports=given)
    assert [one["index"] for one in found["devices"] if one["link"] == "down"] == [2, 5]
    link, health, same = sorted(found["problems"], key=lambda text: not text.startswith("the "))
    assert same.startswith("devices 0, 1 (physical id) have the same address 192.1.0.6")
    assert link.startswith("the link of devices 2, 5 (physical id) is down")
    assert health.startswith("the network health of device 6 (physical id) is `Socket fail`")


def test_the_devices_of_an_a3_have_numbers_in_their_super_pod():
    texts = [SPOD.replace("16777216", str(16777216 + index)) for index in range(16)]
    spods = {(index // 2, index % 2): npu.Answer(0, text) for index, text in enumerate(texts)}
    found = npu.assemble(a3(), spods=spods)
    assert (found["chip"], found["super_pod_id"], found["problems"]) == ("a3", "0", [])
    assert [one["super_device_id"] for one in found["devices"]][:3] == ["16777216", "16777217", "16777218"]
    assert "have no network address: collectives stay inside the super pod" in found["notes"][0]
    # A device without a super pod.
    found = npu.assemble(a3(1), ports=ports(), spods={(0, 0): npu.Answer(0, SPOD), (0, 1): NO_SPOD})
    assert "device 1 (physical id) has no super device id" in found["problems"][0]
    assert "expected one" in found["problems"][1]
    none = npu.Answer(0, SPOD.replace("16777216", "4294967295").replace(": 0\n", ": 4294967295\n"))
    assert npu.spod(none.output) == ("", "")


@given(st.text() | st.text(alphabet="ipadr:-.0123456789\n link status UP"))
def test_any_text_is_read_or_unknown(text):
    assert npu.link_state(text) in ("up", "down", "unknown")
    assert npu.device_ip(text) == "" or "." in npu.device_ip(text) or ":" in npu.device_ip(text)
    assert all(isinstance(number, int) for number in npu.parse_hccn_conf(text))
    npu.spod(text)
    npu.net_health(text)


@pytest.fixture
def machine(tmp_path):
    return Tree(str(unfold("ascend8", tmp_path)))


def read(tree):
    return read_npu(tree, read_accelerators(tree))


def test_the_fact_of_a_node(machine, tmp_path):
    plain = Tree(str(unfold("plain", tmp_path / "plain")))
    assert read_node(plain, packages=[], venv=None, user=None)["npu"] == {}
    facts = read_node(machine, packages=[], venv=None, user=None)["npu"]
    assert (facts["chip"], facts["problems"], facts["notes"]) == ("910b", [], [])
    assert [one["device_ip"] for one in facts["devices"]][2:6] == ["192.3.0.6", "192.4.0.6", "192.1.0.7", "192.2.0.7"]


def test_a_machine_without_hccn_tool(machine):
    for file in machine.path("commands").glob("hccn_tool.*"):
        file.unlink()
    machine.path("etc").mkdir()
    machine.path("etc/hccn.conf").write_text(CONF)
    found = read(machine)
    assert [one["device_ip"] for one in found["devices"]][:3] == ["192.1.0.6", "192.1.0.7", ""]
    assert "have no network address: hccn_tool is not installed" in found["problems"][0]


def test_a_busy_hccn_tool_is_called_again(monkeypatch):
    answer = npu.Answer(0, "ipaddr:192.1.0.6")
    answers = [*[npu.Answer(1, "hccn_tool is busy, please try again.")] * 2, answer]
    monkeypatch.setattr(Tree, "command", lambda *_: answers.pop(0))
    assert hccn_tool(Tree(), 0, "ip") == answer and answers == []


def test_a_hidden_device_of_a_machine(machine):
    machine.path("proc/self").mkdir()
    machine.path("proc/self/environ").write_bytes(b"PATH=/bin\0ASCEND_RT_VISIBLE_DEVICES=4,5\0")
    assert [one["index"] for one in read(machine)["devices"] if one["visible"]] == [4, 5]


def test_a_broken_driver_is_a_problem_of_the_fact(machine):
    machine.path("commands/npu-smi.info.out").write_text("dcmi model initialized failed. ret is -8020\n")
    machine.path("commands/npu-smi.info.rc").write_text("255\n")
    found = read(machine)
    assert found["devices"] == []
    assert "npu-smi exited with status 255" in found["problems"][0]
    # A node's facts have the accelerators, too, and say it there.
    node = read_node(machine, packages=[], venv=None, user=None)
    assert "npu-smi exited with status 255" in node["accelerators"]["problems"][0]
    assert not set(node["npu"]["problems"]) & set(node["accelerators"]["problems"])


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_module(machine, capsys, check_mode):
    root = str(machine.path("/"))
    with patch_module_args({"root": root, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit) as ended:
        npu_info.main()
    result = json.loads(capsys.readouterr().out)
    assert (ended.value.code, result["changed"]) == (0, False)
    found = result["npu"]
    assert (found["chip"], len(found["devices"])) == ("910b", 8)
    fields = set(re.findall(r"C\((\w+)\)", yaml.safe_load(npu_info.RETURN)["npu"]["description"]))
    assert {*found, *found["devices"][0]} <= fields


def test_devices_on_the_bus_without_a_driver_are_a_problem(machine):
    for file in machine.path("commands").glob("npu-smi.*"):
        file.unlink()
    found = read(machine)
    assert (found["chip"], found["devices"]) == ("", [])
    assert "the PCI bus shows 8 Ascend NPU(s)" in found["problems"][0]
    assert "npu-smi is not installed" in found["problems"][0]
