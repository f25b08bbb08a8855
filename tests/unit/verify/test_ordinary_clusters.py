"""Healthy clusters without special hardware pass their verification: 1 to 3 virtual machines or containers."""

from __future__ import annotations

import copy

import pytest
from ansible.module_utils.trainyard.verify import devices, drift
from ansible.module_utils.trainyard.verify.drift_clocks import check_clocks
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, straggler_checks
from ansible.module_utils.trainyard.verify.pairing import first_rounds
from ansible.module_utils.trainyard.verify.stragglers import verify
from benchmark_samples import checked, nic, two
from captured_tree import NODES, unfold
from machine_samples import read
from report_samples import phase, reported


@pytest.fixture(scope="module")
def virtual_machine(tmp_path_factory):
    """Return the facts of a captured virtual machine, whose network card says -1 for its speed."""
    folder = tmp_path_factory.mktemp("machine")
    unfold("plain", folder, NODES)
    (folder / "commands").mkdir(exist_ok=True)
    (folder / "commands/ulimit.out").write_text("unlimited\n1048576\n")
    found = read(folder, host_address="192.0.2.2")
    assert found["network"]["interface"] == "eth0" and found["facts"]["nic_speed"] is None
    return found


def bandwidth(count, kind):
    """Check a benchmark over all nodes; one node alone has none."""
    if count == 1:
        return []
    record = checked("trainyard-all_reduce-gloo.txt", nodes=two(interfaces=[nic(kind=kind, speed=None)]))
    return benchmark_checks(record, "again")


def pairs(hosts):
    measured = [
        {"hosts": list(pair), "round": number, "busbw": 1.0, "wrong": 0, "error": ""}
        for number, each in enumerate(first_rounds(hosts))
        for pair in each
    ]
    return straggler_checks(verify(hosts, measured), "again") if measured else []


@pytest.mark.parametrize("kind", ["physical", "virtual"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_healthy_cluster_without_special_hardware_is_green(virtual_machine, count, kind):
    hosts = [f"n{number}" for number in range(1, count + 1)]
    machines = {host: {**copy.deepcopy(virtual_machine), "host": host, "hostname": host} for host in hosts}
    results = {host: {"devices": machine["devices"]} for host, machine in machines.items()}
    compared = drift.check_nodes([{**machine, "group": ""} for machine in machines.values()])
    compared += check_clocks({host: {"offset_s": 0.0, "margin_s": 0.01} for host in hosts}, 1.0)
    found = {
        "drift": compared,
        "devices": devices.verify(results, groups={}, allowed={}),
        "bandwidth": bandwidth(count, kind),
        "stragglers": pairs(hosts),
        "counters": devices.verify(results, results, groups={}, allowed={}),
    }
    phases = [phase(name, *(check.as_dict() for check in checks)) for name, checks in found.items()]
    report = reported([phase("software", ("pytorch", "pass")), *phases], hosts)
    checks = [check for each in report["phases"] for check in each["checks"]]
    assert [(each["name"], each["found"]) for each in checks if each["state"] in ("unknown", "fail")] == []
    assert report["exit_code"] == 0
    # The text does not count a check as done that was not checked.
    left_out = set(report["coverage"]["not_applicable"])
    assert left_out >= {"devices", "bandwidth"} and ("stragglers" in left_out) == (count < 3)
