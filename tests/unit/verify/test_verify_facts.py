"""Facts that verify_facts reads of a machine, of nvidia-smi's XML and of the kernel log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import verify_facts
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.hardware.gpu_health import parse_query, parse_xids
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify.facts import hardware
from captured_tree import NODES, unfold
from hypothesis import given
from hypothesis import strategies as st
from machine_samples import read

VERIFY = NODES.parent / "verify"
VOLTA = (VERIFY / "volta.xml").read_text()


@pytest.fixture
def folder(tmp_path):
    return unfold("gpu2", tmp_path, VERIFY)


def test_a_gpu_node(folder):
    found = read(folder)
    assert {name: fact for name, fact in found["facts"].items() if fact} == {
        "kernel": "5.15.0-113-generic",
        "os": "ubuntu 22.04",
        "cpu": "INTEL(R) XEON(R) PLATINUM 8480C",
        "cpus": 2,
        "memory_mib": 2063993,
        "governor": "performance",
        "product": "DGXH100",
        "bios": "American Megatrends International, LLC. 1.5.1 03/26/2024",
        "driver": "570.86.15",
        "gpus": "2 x NVIDIA H100 80GB HBM3",
        "vbios": "96.00.89.00.01",
        "cuda": "12.8",
        "nccl": "2.25.1",
        "torch": "2.6.0+cu124",
        "numpy": "2.2.6",
        "nic_speed": 100000,
        "mtu": 9000,
        "nic_firmware": "ens6f0np0 mlx5_core 22.36.1010 (MT_0000000359)",
        "hca_firmware": "mlx5_0 28.39.2048 MT_0000000838; mlx5_3 28.39.2048 MT_0000000838",
        "memlock": "unlimited",
        "nofile": "1048576",
    }
    assert found["environments"] == {"pytorch": {"python": "3.10.12", "torch": "2.6.0+cu124", "numpy": "2.2.6"}}
    assert found["hardware"] == ["10de:2330", "15b3:101d", "15b3:1021"]
    network = found["network"]
    assert (network["interface"], network["address"]) == ("ens6f0np0", "10.20.0.1")
    assert network["addresses"] == ["10.20.0.1"]


def counters_of(devices):
    return {port["device"]: port["counters"] for port in devices["rdma"]}


def test_the_devices_of_a_gpu_node(folder):
    devices = read(folder)["devices"]
    keys = ("index", "pci", "ecc", "uncorrected", "remap_pending")
    assert [tuple(gpu[key] for key in keys) for gpu in devices["gpus"]] == [
        (0, "0000:1b:00.0", "Enabled", 0, False),
        (1, "0000:43:00.0", "Enabled", 0, False),
    ]
    assert devices["gpus"][0]["throttle"] == ["gpu_idle"]
    assert devices["problems"] == []
    assert [(xid["code"], xid["pci"], xid["count"]) for xid in devices["xids"]] == [(31, "0000:1b:00.0", 1)]
    counters = counters_of(devices)
    assert (counters["mlx5_0"]["link_downed"], counters["mlx5_0"]["out_of_sequence"]) == (1, 0)
    assert "out_of_sequence" not in counters["mlx5_3"]
    well = {"rx_errors": 0, "rx_crc_errors": 0, "tx_errors": 0, "carrier_down_count": 1}
    assert devices["interfaces"]["ens6f0np0"] == well


def test_a_counter_that_cannot_be_read_is_none_and_not_zero(folder, tmp_path):
    counters = counters_of(read(unfold("gpu2_reset", tmp_path, VERIFY))["devices"])["mlx5_3"]
    assert (counters["symbol_error"], counters["link_downed"], counters["port_rcv_errors"]) == (None, None, 0)


def test_the_second_reading_brings_the_devices_alone(folder):
    assert set(read(folder, devices_only=True)) == {"host", "devices"}


def test_a_log_that_nobody_may_read_is_unknown(folder):
    (folder / "commands/journalctl.dmesg.rc").write_text("1\n")
    assert read(folder)["devices"]["xids"] is None


def test_a_journal_that_is_empty_gives_way_to_the_ring_buffer(folder):
    (folder / "commands/journalctl.dmesg.out").rename(folder / "commands/dmesg.out")
    assert len(read(folder)["devices"]["xids"]) == 1


def test_a_driver_that_does_not_answer_leaves_facts_unknown_rather_than_absent(folder):
    error = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    (folder / "commands/nvidia-smi.query-gpu.out").write_text(f"{error}\n")
    (folder / "commands/nvidia-smi.query-gpu.rc").write_text("9\n")
    (folder / "sys/module/nvidia/version").unlink()
    found = read(folder)
    assert (found["facts"]["driver"], found["facts"]["gpus"]) == (None, None)
    assert found["devices"]["gpus"] == []
    assert error in found["devices"]["problems"][0]


@pytest.mark.parametrize(("library", "version"), [("libnccl.so.2.22.3", "2.22.3"), ("libnccl.so.2", None)])
def test_a_library_without_a_header_has_its_version_in_its_name_or_is_unknown(folder, library, version):
    (folder / "usr/include/nccl.h").unlink()
    (folder / "usr/lib64").mkdir(parents=True)
    (folder / "usr/lib64" / library).write_text("simulated\n")
    if version:
        (folder / "usr/lib64/libnccl.so.2").symlink_to(library)
    assert read(folder)["facts"]["nccl"] == version


def test_a_node_without_a_job_address_has_an_action(folder):
    network = read(folder, network="192.168.7.0/24")["network"]
    assert network["address"] == ""
    assert "expected an address in 192.168.7.0/24" in network["problem"]
    assert network["action"] == "set job_network to a network that every node is on"


def test_virtual_functions_do_not_make_another_kind_of_hardware(folder):
    virtual = folder / "sys/bus/pci/devices/0000:18:00.2"
    virtual.mkdir()
    for name, text in (("vendor", "0x15b3"), ("device", "0x101e"), ("class", "0x020700")):
        (virtual / name).write_text(text + "\n")
    (virtual / "physfn").symlink_to("../0000:18:00.0")
    assert read(folder)["hardware"] == ["10de:2330", "15b3:101d", "15b3:1021"]


@pytest.mark.parametrize("name", sorted(path.stem for path in NODES.glob("*.tree")))
def test_every_captured_machine_can_be_read(tmp_path, name):
    found = read(unfold(name, tmp_path), host_address="localhost")
    assert found["facts"]["kernel"]
    assert found["hardware"] == hardware(Tree(str(tmp_path)))


def test_this_machine_can_be_read():
    facts = read(host_address="localhost", user="nobody")["facts"]
    assert facts["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert re.fullmatch(r"3\.\d+\.\d+.*", facts["python"])
    assert facts["cpus"] >= 1


def test_loopback_is_network_enough_for_one_node_alone():
    alone = read(host_address="localhost", alone=True)["network"]
    assert (alone["interface"], alone["address"], alone["problem"]) == ("lo", "127.0.0.1", "")
    among_others = read(host_address="localhost")["network"]
    assert among_others["address"] == "" and "loopback" in among_others["problem"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_module(folder, capsys, check_mode):
    params = {"host": "n1", "root": str(folder), "address": "10.20.0.1", "_ansible_check_mode": check_mode}
    with patch_module_args(params), pytest.raises(SystemExit):
        verify_facts.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["changed"], result["host"], result["facts"]["driver"]) == (False, "n1", "570.86.15")


def test_an_older_gpu_counts_bits_and_retires_pages():
    (gpu,), wrong = parse_query(VOLTA)
    assert wrong == ""
    assert (gpu["corrected"], gpu["uncorrected"], gpu["uncorrected_ever"]) == (4, 1, 1)
    assert (gpu["remap_pending"], gpu["remap_failed"], gpu["remapped"]) == (True, None, None)
    assert gpu["throttle"] == ["gpu_idle", "hw_slowdown", "hw_power_brake_slowdown"]
    assert (gpu["recovery"], gpu["fabric"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "printed no complete document: nothing"),
        ("<nvidia_smi_log><gpu id='0'>", "printed no complete document"),
        ("<nvidia_smi_log><gpu></nvidia_smi_log>", "printed no XML: mismatched tag"),
    ],
)
def test_a_query_that_breaks_off_is_reported(text, problem):
    gpus, wrong = parse_query(text)
    assert gpus == [] and problem in wrong


def test_a_warning_before_the_document_does_not_hide_it():
    text = f"WARNING: infoROM is corrupted at gpu 0000:06:00.0\n{VOLTA}\nWARNING: again\n"
    assert len(parse_query(text)[0]) == 1


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("performance_state", "pstate"),
        ("vbios_version", "vbios"),
        ("replay_counter", "replays"),
        ("current_ecc", "ecc"),
        ("current_link_width", "link_width"),
    ],
)
@pytest.mark.parametrize(
    "word",
    ["N/A", "[N/A]", "Unknown Error", "[Unknown Error]", "ERR!", "", "Insufficient Permissions", "GPU requires reset"],
)
def test_a_field_without_a_value_is_none(field, key, word):
    assert parse_query(re.sub(rf"<{field}>[^<]*<", f"<{field}>{word}<", VOLTA))[0][0][key] is None


@pytest.mark.parametrize(
    ("state", "status", "found"),
    [
        ("Completed", "Success", "Completed"),
        ("Completed", "N/A", "Completed"),
        ("Completed", "Insufficient Resources", "Completed, status Insufficient Resources"),
        ("In Progress", "N/A", "In Progress"),
        ("N/A", "N/A", None),
    ],
)
def test_a_fabric_that_is_completed_without_success_is_not_well(state, status, found):
    fabric = f"<fabric><state>{state}</state><status>{status}</status>"
    (gpu,) = parse_query(VOLTA.replace("<fabric><state>N/A</state>", fabric))[0]
    assert gpu["fabric"] == found


def test_a_gpu_that_has_to_be_reset_reports_it_in_another_field():
    text = re.sub(r"<replay_counter>[^<]*<", "<replay_counter>[GPU requires reset]<", VOLTA)
    (gpu,) = parse_query(text)[0]
    assert (gpu["replays"], gpu["recovery"]) == (None, "Reset")


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_exception(text):
    gpus, wrong = parse_query(text)
    assert gpus or wrong
    parse_xids(text.splitlines())


def test_xids_are_counted_by_gpu_and_code():
    lines = [
        "[12.3] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:5e:00): 13, pid=1, Graphics Exception",
        "NVRM: GPU at PCI:0000:3b:00: GPU-1",
        "something that quotes Xid 79",
    ]
    found = parse_xids(lines)
    counts = [(xid["pci"], xid["code"], xid["count"]) for xid in found]
    assert counts == [("0000:3b:00.0", 79, 2), ("0000:5e:00.0", 13, 1)]
    assert found[0]["last"] == "GPU has fallen off the bus."
