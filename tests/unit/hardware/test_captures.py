"""Outputs of tools that users paste: each form is read, and a cut output is never taken for a complete one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import accelerator_info
import network_info
import npu_info
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.hardware import captures, nvidia_smi, rdma_tools
from hypothesis import given
from hypothesis import strategies as st

PASTED = Path(__file__).resolve().parents[2] / "fixtures" / "pasted"


def read(name):
    return (PASTED / f"{name}.txt").read_text()


def part(name, tool):
    return "".join(section.text for section in captures.sections(read(name)) if section.tool == tool)


def test_table_list_and_bus_of_eight_gpus_are_one_record():
    found = captures.accelerators(read("a100_8"))
    assert (found["vendor"], found["driver"], found["problems"], found["notes"]) == ("nvidia", "470.103.01", [], [])
    assert [device["pci"] for device in found["devices"]][:2] == ["0000:07:00.0", "0000:0b:00.0"]
    assert {device["model"] for device in found["devices"]} == {"NVIDIA A100-SXM4-40GB"}
    assert {device["memory_mib"] for device in found["devices"]} == {40536}
    assert found["devices"][7]["uuid"] == "GPU-00000007-1111-2222-3333-444444444444"

    # The table alone.
    found = captures.accelerators(part("a100_8", "nvidia-smi"))
    assert found["problems"] == [] and found["devices"][0]["uuid"] is None
    assert found["notes"][0] == "GPU 0: nvidia-smi's table cuts the name `NVIDIA A100-SXM...`"


def test_a_silent_gpu_and_a_gpu_with_mig():
    found = captures.accelerators(read("h100_2"))
    assert [device["mig"] for device in found["devices"]] == [True, False]
    assert found["problems"][0].startswith("GPU 1 does not answer: nvidia-smi printed |   1  NVIDIA H100 80GB HBM3")


MIG = """\
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:17:00.0 Off |                   On |
| N/A   34C    P0             56W /  400W |      37MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|==================+==================================+===========+=======================|
|  0    1   0   0  |              19MiB / 19968MiB    | 42      0 |  3   0    2    0    0 |
|                  |                 0MiB / 32767MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
| Processes:                                                                              |
"""


def test_memory_of_a_mig_slice_is_not_that_of_its_gpu():
    [device] = captures.accelerators(MIG)["devices"]
    assert (device["memory_mib"], device["mig"]) == (40960, True)
    lines = MIG.splitlines(keepends=True)
    # The row with the GPU's own memory is lost, or says nothing; and the heads of both tables with it.
    for own in ("", lines[1].replace("37MiB /  40960MiB", "             N/A  ")):
        for rest in (lines[2:], lines[9:]):
            found = captures.accelerators("".join([lines[0], own, *rest]))
            assert [(each["memory_mib"], each["mig"]) for each in found["devices"]] == [(None, True)]
            assert "GPU 0: nvidia-smi's table has no memory of it" in found["problems"]


def test_a_lost_gpu_before_the_first_one_is_a_problem():
    lost = "Unable to determine the device handle for gpu 0000:47:00.0: Unknown Error\n"
    listed = "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n"
    for text in (lost + listed, read("rdma") + lost + listed, f"{lost}\n{part('a100_8', 'nvidia-smi')}"):
        problems = "\n".join(captures.accelerators(text)["problems"])
        assert re.search("does not answer.*Unable to determine the device handle for gpu 0000:47", problems)
    alone = captures.accelerators(lost)
    assert (alone["vendor"], alone["devices"]) == ("nvidia", []) and "0000:47:00.0" in alone["problems"][0]


TABLE = (
    "| npu-smi 23.0.0  Version: 23.0.0 |\n| NPU Name | Health | Power |\n| Chip | Bus-Id | AICore |\n"
    "| 0 910B3 | OK | 92.0 |\n| 0 | 0000:C1:00.0 | 0 3314 / 65536 |\n| NPU Chip | Process id | Process name |\n"
)


@pytest.mark.parametrize("text", [TABLE, *(read(name) for name in ("a100_8", "h100_2", "ascend_2"))])
def test_indented_outputs_are_read(text):
    found = captures.accelerators(text)
    assert found["devices"]
    for indent in ("    ", *(("\t", "> ") if text == TABLE else ())):
        indented = "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
        assert captures.accelerators(indented) == found


def test_gpus_that_only_one_of_the_outputs_has():
    text = read("a100_8")
    fewer = re.sub(r"GPU 3: .*\n", "", text)
    missing, single = captures.accelerators(fewer)["problems"]
    assert missing == "nvidia-smi -L has no GPU 3, but later ones" and single.startswith("GPU 3: in one of")
    fewer = re.sub(r"cb:00.0 3D.*\n", "", text)
    assert captures.accelerators(fewer)["problems"] == ["lspci shows 7 devices of nvidia, the vendor's tool 8"]
    lost = "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-1)\nUnable to determine the device handle for gpu 0000:8A:00.0\n"
    [problem] = captures.accelerators(lost)["problems"]
    assert problem.startswith("a GPU does not answer: nvidia-smi -L printed Unable to determine")


def test_lspci_alone_shows_devices_without_a_driver():
    named = "af:00.0 Processing accelerators [1200]: Huawei Technologies Co., Ltd. Device [19e5:d802]\n"
    numbers = "17:00.0 0302: 10de:20b0 (rev a1)\n0000:c1:00.0 Class 1200: 19e5:d802\n75:00.0 1200: 19e5:a250\n"
    for text, vendor, shown in (
        (named, "ascend", "1 Ascend NPU(s) (0000:af:00.0) but npu-smi is not"),
        (numbers, "nvidia", "1 NVIDIA GPU(s) (0000:17:00.0) but nvidia-smi is not"),
    ):
        found = captures.accelerators(text)
        assert (found["vendor"], found["devices"]) == (vendor, [])
        assert found["problems"][0].startswith(f"the PCI bus shows {shown}")
    assert captures.accelerators(numbers.partition("\n")[2])["vendor"] == "ascend"
    assert captures.accelerators("1a:00.0 0680: 10de:22a3 (rev a1)\n")["vendor"] == "none"
    engine = "75:00.0 Processing accelerators: Huawei Technologies Co., Ltd. HiSilicon ZIP Engine (rev 21)\n"
    assert captures.accelerators(engine)["vendor"] == "none"


def test_ports_of_ibstat_and_the_interfaces_of_ibdev2netdev():
    found = captures.networks(read("rdma"))
    assert found["problems"] == []
    names = ("device", "state", "physical_state", "rate_gbps", "link_layer", "netdev", "active")
    assert [tuple(port[name] for name in names) for port in found["rdma"]] == [
        ("mlx5_0", "ACTIVE", "LinkUp", 400.0, "InfiniBand", "ibp26s0", True),
        ("mlx5_1", "ACTIVE", "LinkUp", 200.0, "Ethernet", "enp27s0f0np0", True),
        ("mlx5_10", "DOWN", "Disabled", 40.0, "Ethernet", "ens9", False),
    ]


def test_ibstatus_and_ibdev2netdev_alone():
    found = captures.networks(read("rdma_ibstatus"))
    ports = [(port["state"], port["rate_gbps"], port["active"]) for port in found["rdma"]]
    assert ports == [("ACTIVE", 100.0, True), ("INIT", 400.0, False)]
    found = captures.networks(part("rdma", "ibdev2netdev"))
    assert not any(port["active"] for port in found["rdma"])
    assert found["problems"][0].startswith("nothing says the state of mlx5_0:1, mlx5_1:1, mlx5_10:1")
    verbose = "0000:1a:00.0 mlx5_0 (MT4123 - MCX653105A-HDAT) ConnectX-6 fw 20.31.1014 port 1 (ACTIVE) ==> ib0 (Up)\n"
    [port] = captures.networks(verbose)["rdma"]
    assert (port["device"], port["netdev"], port["state"], port["active"]) == ("mlx5_0", "ib0", "ACTIVE", True)


def test_an_adapter_that_ibstat_cannot_open_is_a_problem():
    panic = "ibpanic: [1323906] main: stat of IB device 'mlx5_8' failed: No"
    text = read("rdma").replace("$ ibdev2netdev", f"{panic}\n$ x")
    assert captures.networks(text)["problems"] == [f"ibstat: {panic}"]


def test_npus_from_list_map_memory_and_hccn_tool():
    found, queries = captures.npus(read("ascend_2"))
    assert found["chip"] == "910b"
    assert [device["device_ip"] for device in found["devices"]] == ["29.1.112.210", "29.1.112.211"]
    assert {(device["link"], device["net_health"]) for device in found["devices"]} == {("up", "Success")}
    assert found["problems"] == ["device 1 (physical id) has no optical module: hccn_tool says `not present`"]
    assert queries["0"] == {"gateway": {"default gateway": "29.1.0.1, Iface:eth0"}}
    assert queries["1"]["optical"]["present"] == "not present"
    assert queries["1"]["link_stat"]["link up count"] == "2"
    devices = captures.accelerators(read("ascend_2"))["devices"]
    assert [device["card"] for device in devices] == [0, 1]
    assert {(device["model"], device["memory_mib"]) for device in devices} == {("Ascend 910B3", 65536)}


NPUS = (
    "| npu-smi 24.1.0  Version: 24.1.0 |\n| NPU Name | Health | Power |\n| Chip | Bus-Id | AICore |\n"
    "| 0 910B2 | OK | 92.0 |\n| 0 | 0000:C1:00.0 | 0 3314 / 65536 |\n"
    "| 1 910B2 | OK | 92.0 |\n| 0 | 0000:01:00.0 | 0 3314 / 65536 |\n| NPU Chip | Process id | Process name |\n"
)
IPS = "ipaddr:10.0.0.1\nnetmask:255.255.255.0\nipaddr:10.0.0.2\nnetmask:255.255.255.0\n"
LINKS = "link status: UP\nlink status: DOWN\n"


def loop(query, values="{0..1}", form="root@n1:~# for i in %s; do hccn_tool -i $i -%s -g; done\n"):
    return form % (values, query)


@pytest.mark.parametrize(
    "loops",
    [
        loop("ip") + IPS + loop("link") + LINKS,
        loop("ip", "0 1", "for i in %s;do hccn_tool -i ${i} -%s -g ;done\n") + IPS + loop("link", "$(seq 0 1)") + LINKS,
        loop("ip", "`seq 0 1`", "$ for i in %s\n> do\n> /usr/bin/hccn_tool -i \"$i\" -%s -g\n> done\n") + IPS
        + loop("link", form="for i in %s; do\n  hccn_tool -i $i -%s -g\ndone\n") + LINKS,
    ],
)  # fmt: skip
def test_a_loop_over_devices_is_as_many_commands(loops):
    found, _ = captures.npus(NPUS + loops)
    assert [(each["device_ip"], each["link"]) for each in found["devices"]] == [
        ("10.0.0.1", "up"),
        ("10.0.0.2", "down"),
    ]
    assert [problem[:50] for problem in found["problems"]] == [
        "the link of device 1 (physical id) is down, expected up"[:50]
    ]


@pytest.mark.parametrize(
    "text",
    [
        loop("link", "{0..7}") + LINKS,
        "$ seq 0 1 | xargs -I{} hccn_tool -i {} -link -g\n" + LINKS,
        loop("link", "\\\\1 \\\\g") + LINKS,
        "$ hccn_tool -link -g\n" + LINKS,
        LINKS,
    ],
)
def test_an_answer_of_unknown_devices_is_named_and_never_taken_as_absent(text):
    found, _ = captures.npus(NPUS + text)
    assert {each["link"] for each in found["devices"]} == {"unknown"}
    assert found["problems"] == ["`link status: DOWN` of a device that the output does not name"]
    assert "was not read, as it does not say which device" in found["notes"][-1] and "LINK" not in str(found["notes"])
    assert any("address of device" in note and "was not given" in note for note in found["notes"])


def test_what_was_not_pasted_is_unknown_and_no_problem():
    text = NPUS.replace("910B2", "Ascend910")
    two = text.replace("| 1 Ascend910 ", "| 0 Ascend910 ").replace("| 0 | 0000:01", "| 1 | 0000:01")
    found, _ = captures.npus(two)
    assert (found["chip"], found["problems"]) == ("a3", [])
    assert found["notes"][-1].startswith(
        "the super device id of devices 0, 1 (physical id) is unknown: spod-info was not"
    )
    memory = "$ for i in 0 1; do npu-smi info -t memory -i $i; done\nHBM Capacity(MB) : 65536\n"
    assert "was not read" in captures.accelerators(NPUS + memory)["notes"][-1]


@pytest.mark.parametrize("prompt", ["", "root@n1:~# nvidia-smi\n"])
def test_a_failed_nvidia_smi_has_its_remedy(prompt):
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107\n"
    found = captures.accelerators(prompt + text)
    assert found["vendor"] == "nvidia" and found["problems"][0].endswith("kernel module: restart the node")


def test_ports_of_rdma_link():
    text = (
        "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n"
        "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1\n"
        "link ib0/1 subnet_prefix fe80:0000:0000:0000 lid 1 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP \n"
    )
    for capture in (text, f"[root@n1 ~]# rdma link show\n{text}"):
        found = captures.networks(capture)
        names = ("device", "state", "physical_state", "netdev", "active")
        assert found["problems"] == [] and [tuple(port[name] for name in names) for port in found["rdma"]] == [
            ("mlx5_0", "ACTIVE", "LinkUp", "ens1f0np0", True),
            ("mlx5_1", "DOWN", "Disabled", "ens1f1np1", False),
            ("ib0", "ACTIVE", "LinkUp", None, True),
        ]
    both = captures.networks(text.replace("ib0/1", "mlx5_10/1") + "$ ibstat\n" + part("rdma", "ibstat"))
    assert [(port["device"], port["netdev"]) for port in both["rdma"]][:2] == [
        ("mlx5_0", "ens1f0np0"),
        ("mlx5_1", "ens1f1np1"),
    ]


def test_contradictions_of_the_list_of_npus_are_problems():
    listing = part("ascend_2", "npu-smi info -l")
    assert captures.accelerators(listing)["problems"] == []
    assert "counts 8 NPUs and lists 2" in captures.accelerators(listing.replace(": 2", ": 8"))["problems"][0]
    head = "| npu-smi 21.0.4  Version: 21.0.4 |\n| Chip | Bus-Id | AICore |\n| 0 910A | OK | 70 |\n"
    table = head + "| 0 | 0000:C1:00.0 | 0 839 / 15170 1 / 32768 |\n"
    assert captures.accelerators(table + listing)["problems"][0].startswith("npu-smi info -l has NPU 1, which")


@pytest.mark.parametrize("name", ["a100_8", "h100_2", "rdma", "rdma_ibstatus", "ascend_2"])
def test_colours_and_line_ends_change_nothing(name):
    read_all = {"r": captures.networks, "a": captures.accelerators, "h": captures.accelerators}[name[0]]
    text = read(name)
    coloured = "".join(f"\x1b[0;32m{line}\x1b[0m\r\n" for line in text.splitlines())
    assert read_all("\ufeff" + coloured) == read_all(text)


def ports_of(parse):
    return lambda text: dict(zip(("devices", "problems"), parse(text)))


FORMS = {
    "table": (nvidia_smi.parse_table, part("a100_8", "nvidia-smi")),
    "list": (nvidia_smi.parse_list, part("a100_8", "nvidia-smi -L")),
    "ibstat": (ports_of(rdma_tools.parse_ibstat), part("rdma", "ibstat")),
    "ibstatus": (ports_of(rdma_tools.parse_ibstatus), read("rdma_ibstatus")),
}


@pytest.mark.parametrize("form", ["table", "ibstat"])
@given(data=st.data())
def test_a_cut_output_is_a_problem(form, data):
    """`nvidia-smi -L` and ibstatus do not say how many there are."""
    parse, text = FORMS[form]
    count = len(parse(text)["devices"])
    lines = text.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    # The last lines of ibstat's adapters are where a cut leaves nothing to see.
    seen = form != "ibstat" or (0 < at < len(lines) and not lines[at].startswith("CA "))
    for cut in ("".join(lines[:at]), "".join(lines[at:])):
        found = parse(cut)
        if seen and cut.strip():
            assert len(found["devices"]) in (0, count) or found["problems"]


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_missing_line_invents_no_value(form, data):
    parse, text = FORMS[form]
    lines = text.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    found = parse("".join(lines[:at] + lines[at + 1 :]))
    for device, other in zip(found["devices"], parse(text)["devices"]):
        if device.get("index") == other.get("index") and device.get("device") == other.get("device"):
            assert all(device[name] in (other[name], None, False) for name in device) or found["problems"]


@pytest.mark.parametrize(
    ("module", "name", "key"),
    [(accelerator_info, "a100_8", "accelerators"), (network_info, "rdma", "networks"), (npu_info, "ascend_2", "npu")],
)
def test_the_modules_read_a_capture(module, name, key, capsys, tmp_path):
    def call(path):
        with patch_module_args({"capture": str(path)}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    right = call(PASTED / f"{name}.txt")
    assert not right["changed"] and right[key]
    # As PowerShell redirects.
    wide = tmp_path / "wide.txt"
    wide.write_bytes(read(name).encode("utf-16"))
    assert call(wide)[key] == right[key]
    (tmp_path / "other.txt").write_text("hello\n")
    assert "other.txt: no output of a tool that names" in call(tmp_path / "other.txt")["msg"]
    assert "cannot be read: No such file" in call(tmp_path / "gone.txt")["msg"]
