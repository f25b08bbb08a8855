"""The files of a small cluster of Slurm: what they are made of, and whether they may be changed."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.slurm.change import judge_change
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, gres_of, hardware, nodes_of
from ansible.module_utils.trainyard.slurm.confinement import judge_confinement, missing
from ansible.module_utils.trainyard.slurm.health import read_node
from ansible.module_utils.trainyard_controller.slurm_files import slurm_files

OUTPUTS = Path(__file__).resolve().parents[2] / "fixtures/slurm"
DESCRIBED = (
    "NodeName=n1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=257000\nUpTime=0-1\n"
)


def cluster_node(host, **changed):
    return {"host": host, "hostname": host, "address": "10.0.0.1", "slurmd": DESCRIBED, "accelerators": {}, **changed}


def test_the_files_of_a_cluster(golden):
    gpus = {"vendor": "nvidia", "devices": [{"index": index} for index in (0, 1, 2, 5)]}
    files, findings = slurm_files(
        ClusterSettings("lab", "n1", "10.0.0.1"), [cluster_node("n1"), cluster_node("n2", accelerators=gpus)]
    )
    assert findings == []
    for name, text in files.items():
        golden(text, f"slurm/{name}")
    bare, _ = slurm_files(ClusterSettings("lab", "n1", "10.0.0.1", confinement="none"), [cluster_node("n1")])
    assert "proctrack/linuxproc" in bare["slurm.conf"] and "cgroup.conf" not in bare


def test_jobs_are_held_to_memory_that_slurm_hands_out():
    def sharing(*nodes, **settings):
        files, _ = slurm_files(ClusterSettings("lab", "n1", "10.0.0.1", **settings), nodes)
        return [line for line in files["slurm.conf"].splitlines() if "CR_Core" in line or "DefMem" in line]

    n1 = cluster_node("n1")
    # Of 64 CPUs each; what the system keeps is nobody's.
    assert sharing(n1) == ["SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=3999"]
    smaller = cluster_node("n2", slurmd=DESCRIBED.replace("257000", "129024"))
    assert sharing(n1, smaller)[1] == "DefMemPerCPU=2000"
    assert sharing(n1, confinement="none") == ["SelectTypeParameters=CR_Core"]


# Captured on a container to which cgroup v1 was mounted once more, writable; without that it is one like all others.
WRITABLE = (OUTPUTS / "cgroups_v1_writable.txt").read_text()


READ_ONLY = "".join(line for line in WRITABLE.splitlines(keepends=True) if " cgroup rw," not in line)


V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\ncpuset cpu io memory pids\n"


ALL = "CapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("cgroups", "found"),
    [
        (WRITABLE, ""),
        (V2 + ALL, ""),
        (READ_ONLY, "cgroup v1, where cpuset, devices, freezer, memory cannot be written"),
        (WRITABLE.replace("/sys/fs/cgroup/freezer", "/mnt"), "cgroup v1, where freezer cannot be written"),
        # A mount lies on top of those before it.
        (f"{WRITABLE}cgroup /sys/fs/cgroup/memory cgroup ro 0 0\n", "cgroup v1, where memory cannot be written"),
        (V2.replace(" rw,", " ro,") + ALL, "cgroup v2, where cpuset, memory cannot be written"),
        (V2.replace("cpuset ", "") + ALL, "cgroup v2, where cpuset cannot be written"),
        # As containers have it by default: no job starts, or none on a node with GPUs.
        (V2 + "CapEff:\t00000000a80425fb\n", "root without CAP_SYS_ADMIN, CAP_SYS_NICE"),
        (V2 + "CapEff:\t00000000a88435fb\n", "root without CAP_SYS_ADMIN"),
        (ALL, "no cgroups at /sys/fs/cgroup"),
        ("", "no cgroups at /sys/fs/cgroup"),
    ],
)
def test_what_a_node_lacks_to_confine_jobs(cgroups, found):
    assert missing(cgroups) == found
    findings = judge_confinement([{"host": "n1", "cgroups": cgroups}])
    assert [(finding.host, finding.check, finding.found) for finding in findings] == (
        [("n1", "slurm_confinement", found)] if found else []
    )
    assert all("slurm_confinement: none" in finding.action for finding in findings)


def test_a_node_that_says_too_little():
    _, findings = slurm_files(ClusterSettings("lab", "n1", "a"), [cluster_node("n1", slurmd="error")])
    assert [finding.host for finding in findings] == ["n1"]
    with pytest.raises(ValueError, match="does not say CPUs"):
        hardware("")


def test_ascend_devices_are_a_resource_of_their_own():
    assert gres_of({"vendor": "ascend", "devices": [{"index": 1}, {"index": 0}]}) == ("npu", [0, 1])
    assert gres_of({"vendor": "none", "devices": []}) == ("", [])


def change(*nodes, states="", name="lab", controller="n1"):
    """Return what speaks against a cluster of these nodes, before and after their packages are installed."""
    settings = ClusterSettings(name, controller, "10.0.0.1")
    findings = judge_change(name, controller, nodes, states) + slurm_files(settings, nodes)[1]
    return [(finding.host, finding.check, finding.found) for finding in findings]


def conf(*nodes):
    return slurm_files(ClusterSettings("lab", "n1", "10.0.0.1"), nodes)[0]["slurm.conf"]


def test_the_same_cluster_and_one_node_more_or_less_change_without_a_word():
    n1, n2, n3 = (cluster_node(host) for host in ("n1", "n2", "n3"))
    has = [{**node, "conf": conf(n1, n2)} for node in (n1, n2)]
    busy = "n1 mixed\nn2 allocated\n"
    assert change(*has, states=busy) == []
    assert change(*has, n3, states=busy) == []
    assert change(has[0], states="n1 mixed\nn2 idle\n") == []


def test_a_node_that_leaves_has_no_jobs():
    n1 = cluster_node("n1")
    states = "n1 mixed\nn2 draining\nn3 drained\nn4 allocated\nn4 allocated\n"
    assert change(n1, states=states) == [("", "slurm_hosts", "n2, n4 have jobs and would leave")]


def test_a_cluster_keeps_its_name_and_its_controller():
    n1, n2 = cluster_node("n1"), cluster_node("n2")
    old = conf(n1, n2)
    has = [cluster_node("n0"), {**n1, "conf": old}, {**n2, "conf": old}]
    # A host that was put first in the group would be the controller.
    assert change(*has, controller="n0") == [(host, "slurm_controller", "slurmctld on n1") for host in ("n1", "n2")]
    assert change(*has, name="other") == [(host, "slurm_cluster", "the cluster lab") for host in ("n1", "n2")]
    assert change(*has) == []


def test_a_configuration_of_somebody_else_is_not_replaced():
    theirs = {**cluster_node("n1"), "conf": "ClusterName=site\nSlurmctldHost=head\n"}
    found = "/etc/slurm/slurm.conf, which trainyard has not written"
    assert change(theirs) == [("n1", "slurm.conf", found)]


def test_a_device_that_is_lost_does_not_become_the_configuration():
    def gpus(number):
        return {"vendor": "nvidia", "devices": [{"index": index} for index in range(number)]}

    n1, n2 = cluster_node("n1"), cluster_node("n2", accelerators=gpus(8))
    has = [{**node, "conf": conf(n1, n2)} for node in (n1, n2)]
    assert change(*has) == []
    has[1]["accelerators"] = gpus(7)
    assert change(*has) == [("n2", "devices", "7 of 8 devices of the configuration that is there")]
    has[1]["accelerators"] = {"vendor": "none", "devices": []}
    assert change(*has) == [("n2", "devices", "0 of 8 devices of the configuration that is there")]
    # What the message advises.
    has[0]["conf"] = has[0]["conf"].replace(" Gres=gpu:8", "")
    assert change(*has) == []


@pytest.mark.parametrize(
    ("controller", "version", "refused"),
    [
        ("22.05.8", "slurm-wlm 22.05.8", False),
        ("22.05.8", "slurm-wlm 22.05.9", False),
        ("22.05.8", "slurm 20.11.4", False),
        ("22.05.8", "slurm 20.02.7", True),
        ("22.05.8", "slurm 23.02.0", True),
        ("22.05.8", "", False),
        ("24.11.5", "slurm-wlm 23.02.1", False),
        ("24.11.5", "slurm-wlm 22.05.8", True),
    ],
)
def test_slurmd_is_not_newer_than_slurmctld_nor_too_old(controller, version, refused):
    n1 = cluster_node("n1", version=f"slurm-wlm {controller}")
    found = change(n1, cluster_node("n2", version=version))
    assert found == ([("n2", "slurmd", version)] if refused else [])


def test_nodes_are_what_the_role_has_registered_of_them():
    bare = {"name": "n1", "ansible_facts": {"hostname": "host-1"}, "__slurm_conf": {"failed": True},
            "__slurm_cgroups": {"skipped": True}}  # fmt: skip
    registered = {"stdout": "CPUs=2"}, {"stdout": "slurm 22.05.8"}, {"accelerators": {"vendor": "none", "devices": []}}
    whole = {
        **bare,
        **dict(zip(("__slurm_described", "__slurm_version", "__slurm_accelerators"), registered)),
        "ansible_host": "10.0.0.1",
        "__slurm_conf": {"content": base64.b64encode(b"ClusterName=lab\n").decode()},
        "__slurm_cgroups": {"stdout": "cpuset"},
    }
    first, second = nodes_of([bare, whole])
    assert first == {
        "host": "n1", "address": "n1", "hostname": "host-1", "conf": "", "cgroups": None, "slurmd": None,
        "version": None, "accelerators": None,
    }  # fmt: skip
    assert second == {
        "host": "n1", "address": "10.0.0.1", "hostname": "host-1", "conf": "ClusterName=lab\n", "cgroups": "cpuset",
        "slurmd": "CPUs=2", "version": "slurm 22.05.8", "accelerators": {"vendor": "none", "devices": []},
    }  # fmt: skip


def test_an_answer_that_is_no_node_is_refused():
    with pytest.raises(ValueError, match="no state of the node: 'Node n9 not found'"):
        read_node("Node n9 not found")
