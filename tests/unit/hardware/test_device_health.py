"""Devices at one time."""

from __future__ import annotations

import re

import pytest
from ansible.module_utils.trainyard.hardware.device_health import check_devices
from ansible.module_utils.trainyard.hardware.gpu_health import parse_query
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.hardware.health_readings import read_devices
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold
from device_readings import VERIFY, by_name, only

PASSED = [
    *("GPUs", "GPU ECC errors", "GPU remapped rows", "GPU throttling", "GPU PCIe width", "GPU PCIe generation"),
    *("GPU recovery action", "GPU persistence mode", "GPU NVLink", "NVSwitch fabric", "GPU Xid"),
    *("RDMA ports", "RDMA rate"),
]


def test_healthy_devices_pass(reading):
    checks = check_devices({"n1": reading(), "n2": reading()})
    assert {check.name: check.state for check in checks} == {**dict.fromkeys(PASSED, "pass"), "NPUs": "skipped"}
    assert only(checks, "GPU Xid").found == "Xid 31 of programs"
    assert only(checks, "RDMA ports").found == "4 are ACTIVE"


def test_every_fault_of_a_gpu_is_said_with_its_number(reading):
    checks = check_devices({"n1": reading(), "n2": reading("gpu2_errors")}, inventory="-i hosts")
    failed = {check.name: check for check in checks if check.state == "fail"}
    assert {name: check.found for name, check in failed.items()} == {
        "GPU ECC errors": "n2: GPU 1: 2 uncorrected",
        "GPU remapped rows": "n2: GPU 1: remapping pending",
        "GPU throttling": "n2: GPU 1: hw_slowdown, hw_thermal_slowdown",
        "GPU PCIe width": "n2: GPU 1: x8 of x16",
        "GPU PCIe generation": "n2: GPU 1: generation 4 of 5",
        "GPU recovery action": "n2: GPU 1: recovery action: Reset",
        "GPU Xid": "n2: Xid 48 of 0000:43:00.0 2 times",
    }
    assert all(check.hosts == ("n2",) for check in failed.values())
    ecc = failed["GPU ECC errors"]
    assert ecc.command == "ansible n2 -i hosts -b -m ansible.builtin.shell -a 'nvidia-smi -q -d ECC'"
    assert not [check for check in checks if check.state == "pass" and check.name in failed]


def test_an_idle_gpu_lowers_its_link_and_is_not_at_fault(reading):
    machine = reading()
    assert [(gpu["link_gen"], gpu["link_gen_max"], gpu["pstate"]) for gpu in machine["gpus"]] == [(1, 5, "P8")] * 2
    assert only(check_devices({"n1": machine}), "GPU PCIe generation").state == "pass"


CHECKS = {
    **{"uncorrected": "GPU ECC errors", "ecc": "GPU ECC errors", "remap_pending": "GPU remapped rows"},
    **{"throttle": "GPU throttling", "link_width": "GPU PCIe width", "link_gen": "GPU PCIe generation"},
    **{"persistence": "GPU persistence mode"},
}


@pytest.mark.parametrize("key", CHECKS)
def test_missing_values_of_a_gpu_are_unknown(reading, key):
    machine = reading()
    machine["gpus"][1][key] = None
    check = only(check_devices({"n1": reading(), "n2": machine}), CHECKS[key])
    assert (check.state, check.hosts, check.found) == ("unknown", ("n2",), "n2: GPU 1: no answer")


def test_one_fault_and_one_silent_gpu_are_two_records(reading):
    machine, silent = reading("gpu2_errors"), reading()
    silent["gpus"][0]["uncorrected"] = None
    found = by_name(check_devices({"n1": machine, "n2": silent}))["GPU ECC errors"]
    assert [(check.state, check.hosts) for check in found] == [("fail", ("n1",)), ("unknown", ("n2",))]


def test_the_same_fault_on_many_nodes_is_one_record(reading):
    checks = check_devices({f"n{number}": reading("gpu2_errors") for number in range(1, 101)})
    assert only(checks, "GPU ECC errors").found == "n1 to n100: GPU 1: 2 uncorrected"


def test_an_older_gpu_is_judged_by_the_same_rules(reading):
    machine = reading()
    machine["gpus"] = parse_query((VERIFY / "volta.xml").read_text())[0]
    failed = {check.name: check.found for check in check_devices({"n1": machine}) if check.state == "fail"}
    assert failed.keys() == {"GPU ECC errors", "GPU remapped rows", "GPU throttling", "GPU persistence mode"}
    assert failed["GPU throttling"] == "n1: GPU 0: hw_slowdown, hw_power_brake_slowdown"


def test_a_real_gpu_without_nvlinks_and_kernel_log_passes(reading, tmp_path):
    tree = Tree(str(unfold("h200_vm", tmp_path, VERIFY.parent / "nvidia_hosts")))
    accelerators = read_accelerators(tree)
    networks = {"interfaces": [], "rdma": [], "roce_gids": []}
    machine = reading() | read_devices(tree, accelerators, None, networks, "")
    states = {check.name: check.state for check in check_devices({"n1": machine})}
    of_gpus = {name: state for name, state in states.items() if "GPU" in name}
    passed = dict.fromkeys((name for name in PASSED if name.startswith("GPU")), "pass")
    assert of_gpus == passed | {"GPU NVLink": "skipped", "GPU Xid": "unknown"}


def test_a_driver_that_does_not_answer_fails_and_nothing_about_gpus_passes(reading):
    machine = reading()
    machine.update(gpus=[], problems=["nvidia-smi exited with status 9"], xids=None)
    checks = check_devices({"n1": machine})
    assert only(checks, "GPUs").state == "fail"
    assert only(checks, "GPU Xid").state == "unknown"
    assert not [check for check in checks if check.name.startswith("GPU ") and check.state == "pass"]


DOWN = {"state": "DOWN", "physical_state": "Polling", "active": False}
INIT = {"state": "INIT", "physical_state": "LinkUp", "active": False}


HOSTS = ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("hosts", "ports", "state", "found"),
    [
        (("n2",), {1: DOWN}, "fail", "n2: mlx5_3:1 DOWN (Polling)"),
        # A port that no node uses has no cable.
        (HOSTS, {1: DOWN}, "pass", "3 are ACTIVE"),
        (HOSTS, {0: INIT, 1: INIT}, "fail", "n1, n2, n3: no port that carries traffic"),
        (("n2",), {0: {"state": None, "active": False}}, "unknown", "n2: mlx5_0:1 has no readable state"),
    ],
)
def test_ports_have_to_carry_traffic(reading, hosts, ports, state, found):
    machines = {host: reading() for host in HOSTS}
    for host in hosts:
        for number, changes in ports.items():
            machines[host]["rdma"][number].update(changes)
    check = only(check_devices(machines), "RDMA ports")
    assert (check.state, check.hosts, check.found) == (state, () if state == "pass" else hosts, found)


def test_a_port_that_is_missing_where_others_have_it_fails(reading):
    bare, lost = reading(), reading()
    bare["rdma"] = []
    del lost["rdma"][1]
    machines = {"n1": reading(), "n2": reading(), "n3": reading(), "n4": bare, "n5": lost}
    check = only(check_devices(machines), "RDMA ports")
    assert (check.state, check.hosts) == ("fail", ("n4", "n5"))
    assert check.found == "n4: mlx5_0:1 is missing, mlx5_3:1 is missing; n5: mlx5_3:1 is missing"
    # Another kind of node has no such ports and need not.
    groups = {"n1": "gpu", "n2": "gpu", "n3": "gpu", "n4": "cpu", "n5": "gpu"}
    assert only(check_devices(machines, groups=groups), "RDMA ports").hosts == ("n5",)


def test_a_link_at_a_lower_rate_than_others_of_its_group_fails(reading):
    machines = {host: reading() for host in ("n1", "n2", "n3")}
    machines["n3"]["rdma"][0]["rate_gbps"] = 200.0
    check = only(check_devices(machines), "RDMA rate")
    assert (check.state, check.hosts, check.found) == ("fail", ("n3",), "n3: mlx5_0:1 200 Gb/s of 400")
    groups = {"n1": "new", "n2": "new", "n3": "old"}
    assert only(check_devices(machines, groups=groups), "RDMA rate").state == "pass"


NPU = {"index": 0, "physical_id": 4, "health": "OK", "link": "up"}


@pytest.mark.parametrize(
    ("npu", "name", "state", "found"),
    [
        (NPU, "NPU health", "pass", "1 are OK"),
        ({**NPU, "health": "Alarm"}, "NPU health", "fail", "n1: NPU 4: Alarm"),
        ({**NPU, "health": ""}, "NPU health", "unknown", "n1: NPU 4: no answer"),
        ({**NPU, "link": "down"}, "NPU links", "fail", "n1: NPU 4: down"),
        ({**NPU, "link": "unknown"}, "NPU links", "unknown", "n1: NPU 4: no answer"),
    ],
)
def test_npus(reading, npu, name, state, found):
    machine = reading()
    machine.update(vendor="ascend", gpus=[], npus=[npu], npu_problems=[], rdma=[])
    check = only(check_devices({"n1": machine}), name)
    assert (check.state, check.found) == (state, found)


def test_nodes_without_devices_are_skipped_and_no_node_is_unknown(reading):
    machine = reading()
    machine.update(vendor="none", gpus=[], rdma=[])
    states = {check.name: check.state for check in check_devices({"n1": machine})}
    assert states == dict.fromkeys(("GPUs", "NPUs", "RDMA ports"), "skipped")
    assert [check.state for check in check_devices({})] == ["unknown"]


def test_a_gpu_that_the_driver_counts_and_does_not_describe_is_said():
    text = (VERIFY / "volta.xml").read_text()
    uncounted = re.sub(r"<attached_gpus>\d+</attached_gpus>", "", text)
    gpus, wrong = parse_query(uncounted.replace("<gpu ", "<attached_gpus>8</attached_gpus><gpu ", 1))
    assert gpus == parse_query(text)[0]
    assert f"counts 8 GPUs and describes {len(gpus)}" in wrong
