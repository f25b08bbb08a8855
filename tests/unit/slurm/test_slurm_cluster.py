"""The files of a small Slurm cluster: their content, and obstacles to a change."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.cluster.switches import topology
from ansible.module_utils.trainyard.slurm.change import change_findings
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, gres_of, hardware, nodes_of
from ansible.module_utils.trainyard.slurm.confinement import confinement_findings, missing
from ansible.module_utils.trainyard.slurm.health import read_node
from ansible.module_utils.trainyard_controller.cluster.slurm_files import slurm_files

OUTPUTS = Path(__file__).resolve().parents[2] / "fixtures/slurm"
DESCRIBED = (
    "NodeName=n1 CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=257000\nUpTime=0-1\n"
)


def cluster_node(host, **changed):
    node = {"host": host, "hostname": host, "address": "10.0.0.1", "slurmd": DESCRIBED, "accelerators": {}}
    return {**node, "version": "slurm-wlm 22.05.8", **changed}


def test_the_files_of_a_cluster_are_rendered():
    gpus = {"vendor": "nvidia", "devices": [{"index": index} for index in (0, 1, 2, 5)]}
    nodes = [cluster_node("n1"), cluster_node("n2", accelerators=gpus)]
    programs = {"health_program": "/usr/local/sbin/health", "epilog": "/usr/local/sbin/epilog"}
    files, findings = slurm_files(ClusterSettings("lab", "n1", **programs), nodes)
    assert findings == []
    limits = ["ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=yes"]
    assert files["cgroup.conf"].splitlines()[1:] == limits
    assert files["gres.conf"].splitlines()[1:] == ["NodeName=n2 Name=gpu File=/dev/nvidia[0-2,5]"]
    first, second, partition = files["slurm.conf"].splitlines()[-3:]
    assert first.startswith("NodeName=n1 NodeHostname=n1 NodeAddr=10.0.0.1 CPUs=64 ") and " Gres=gpu:4 " in second
    assert partition == "PartitionName=train Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP"
    said = {"ClusterName=lab", "SlurmctldHost=n1(10.0.0.1)", "DisableRootJobs=YES", "ProctrackType=proctrack/cgroup"}
    said |= {"HealthCheckProgram=/usr/local/sbin/health", "Epilog=/usr/local/sbin/epilog", "GresTypes=gpu"}
    assert said - {*files["slurm.conf"].splitlines()} == set()
    bare, _ = slurm_files(ClusterSettings("lab", "n1", confinement="none"), [cluster_node("n1")])
    assert "proctrack/linuxproc" in bare["slurm.conf"] and "cgroup.conf" not in bare


def test_switches_of_the_nodes_become_a_tree():
    nodes = [cluster_node(f"n{number}", address=f"10.0.0.{number}") for number in (1, 2, 3)]
    found = topology("lldp", {"n1": ["leaf a"], "n3": ["leaf a"], "n2": ["leaf b"]}, ["n1", "n2", "n3"])
    files, _ = slurm_files(ClusterSettings("lab", "n1"), nodes, found)
    assert files["topology.conf"].splitlines()[1:] == [
        "SwitchName=leaf-a Nodes=n1,n3",
        "SwitchName=leaf-b Nodes=n2",
        "SwitchName=trainyard-top Switches=leaf-a,leaf-b",
    ]
    assert "TopologyPlugin=topology/tree" in files["slurm.conf"].splitlines()
    for nothing in (None, topology("pairs", {}, ["n1"], "flat")):
        files, _ = slurm_files(ClusterSettings("lab", "n1"), nodes, nothing)
        assert "topology.conf" not in files and "TopologyPlugin" not in files["slurm.conf"]


def test_memory_is_shared_by_cpus():
    def sharing(*nodes, **settings):
        files, _ = slurm_files(ClusterSettings("lab", "n1", **settings), nodes)
        return [line for line in files["slurm.conf"].splitlines() if "CR_Core" in line or "DefMem" in line]

    n1 = cluster_node("n1")
    # Each of the 64 CPUs gets a share, without the memory reserved for the system.
    assert sharing(n1) == ["SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=3999"]
    smaller = cluster_node("n2", slurmd=DESCRIBED.replace("257000", "129024"))
    assert sharing(n1, smaller)[1] == "DefMemPerCPU=2000"
    assert sharing(n1, confinement="none") == ["SelectTypeParameters=CR_Core"]


# Captured in a container with a second, writable mount of cgroup v1; without that mount it is an ordinary one.
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
        # The last mount hides earlier ones.
        (f"{WRITABLE}cgroup /sys/fs/cgroup/memory cgroup ro 0 0\n", "cgroup v1, where memory cannot be written"),
        (V2.replace(" rw,", " ro,") + ALL, "cgroup v2, where cpuset, memory cannot be written"),
        (V2.replace("cpuset ", "") + ALL, "cgroup v2, where cpuset cannot be written"),
        # The defaults of containers: no job starts, or none on a node with GPUs.
        (V2 + "CapEff:\t00000000a80425fb\n", "root without CAP_SYS_ADMIN, CAP_SYS_NICE"),
        (V2 + "CapEff:\t00000000a88435fb\n", "root without CAP_SYS_ADMIN"),
        (ALL, "no cgroups at /sys/fs/cgroup"),
        ("", "no cgroups at /sys/fs/cgroup"),
    ],
)
def test_a_node_that_cannot_confine_jobs_is_a_finding(cgroups, found):
    assert missing(cgroups) == found
    findings = confinement_findings([{"host": "n1", "cgroups": cgroups}])
    expected = [("n1", "slurm_confinement", found)] if found else []
    assert [(finding.host, finding.check, finding.found) for finding in findings] == expected
    assert all("slurm_confinement: none" in finding.action for finding in findings)


def test_an_incomplete_slurmd_output_is_a_finding():
    _, findings = slurm_files(ClusterSettings("lab", "n1"), [cluster_node("n1", slurmd="error")])
    assert [finding.host for finding in findings] == ["n1"]
    with pytest.raises(ValueError, match="does not print CPUs"):
        hardware("")


def test_numbers_of_ansible_are_numbers():
    class Tagged(int):
        """As Ansible marks where a number of a variable was written."""

    settings = ClusterSettings("lab", "n1", node_timeout_s=Tagged(60))
    gpus = {"vendor": "nvidia", "devices": [{"index": Tagged(0)}]}
    files, findings = slurm_files(settings, [cluster_node("n1", accelerators=gpus)])
    assert findings == [] and "SlurmdTimeout=60" in files["slurm.conf"] and "File=/dev/nvidia[0]" in files["gres.conf"]


def test_ascend_devices_have_their_own_resource():
    assert gres_of({"vendor": "ascend", "devices": [{"index": 1}, {"index": 0}]}) == ("npu", [0, 1])
    assert gres_of({"vendor": "none", "devices": []}) == ("", [])


def change(*nodes, states="", name="lab", controller="n1"):
    """Return the obstacles to a cluster of these nodes, before and after their packages are installed."""
    settings = ClusterSettings(name, controller)
    findings = change_findings(name, controller, nodes, states) + slurm_files(settings, nodes)[1]
    return [(finding.host, finding.check, finding.found) for finding in findings]


def conf(*nodes):
    return slurm_files(ClusterSettings("lab", "n1"), nodes)[0]["slurm.conf"]


def test_one_node_more_or_less_is_allowed():
    n1, n2, n3 = (cluster_node(host) for host in ("n1", "n2", "n3"))
    has = [{**node, "conf": conf(n1, n2)} for node in (n1, n2)]
    busy = "n1 mixed\nn2 allocated\n"
    assert change(*has, states=busy) == []
    assert change(*has, n3, states=busy) == []
    assert change(has[0], states="n1 mixed\nn2 idle\n") == []


def test_a_node_with_jobs_may_not_leave():
    n1 = cluster_node("n1")
    states = "n1 mixed\nn2 draining\nn3 drained\nn4 allocated\nn4 allocated\n"
    assert change(n1, states=states) == [("n1", "slurm_hosts", "n2, n4 have jobs and would leave")]


def test_another_name_or_controller_is_a_finding():
    n1, n2 = cluster_node("n1"), cluster_node("n2")
    old = conf(n1, n2)
    has = [cluster_node("n0"), {**n1, "conf": old}, {**n2, "conf": old}]
    # The first host of the group becomes the controller.
    assert change(*has, controller="n0") == [(host, "slurm_controller", "slurmctld on n1") for host in ("n1", "n2")]
    assert change(*has, name="other") == [(host, "slurm_cluster", "the cluster lab") for host in ("n1", "n2")]
    assert change(*has) == []


def test_a_foreign_configuration_is_not_replaced():
    theirs = {**cluster_node("n1"), "conf": "ClusterName=site\nSlurmctldHost=head\n"}
    found = "/etc/slurm/slurm.conf, which trainyard has not written"
    assert change(theirs) == [("n1", "slurm.conf", found)]


def test_a_lost_device_stays_in_the_configuration():
    def gpus(number):
        return {"vendor": "nvidia", "devices": [{"index": index} for index in range(number)]}

    n1, n2 = cluster_node("n1"), cluster_node("n2", accelerators=gpus(8))
    has = [{**node, "conf": conf(n1, n2)} for node in (n1, n2)]
    assert change(*has) == []
    for count, accelerators in ((7, gpus(7)), (0, {"vendor": "none", "devices": []})):
        has[1]["accelerators"] = accelerators
        assert change(*has) == [("n1", "devices", f"{count} of 8 devices of n2 in its slurm.conf")]
    # Follow the advice of the message.
    has[0]["conf"] = has[0]["conf"].replace(" Gres=gpu:8", "")
    assert change(*has) == []


@pytest.mark.parametrize(
    ("controller", "accepted", "rejected"),
    [
        ("22.05.8", ["slurm-wlm 22.05.8", "slurm-wlm 22.05.9", "slurm 20.11.4"], ["slurm 20.02.7", "slurm 23.02.0"]),
        ("24.11.5", ["slurm-wlm 23.02.1"], ["slurm-wlm 22.05.8"]),
    ],
)
def test_slurmd_is_neither_newer_nor_too_old(controller, accepted, rejected):
    n1 = cluster_node("n1", version=f"slurm-wlm {controller}")
    for version in (*accepted, *rejected):
        expected = [("n2", "slurmd", version)] if version in rejected else []
        assert change(n1, cluster_node("n2", version=version)) == expected


def test_nodes_are_built_from_registered_results():
    bare = {"name": "n1", "__slurm_conf": {"failed": True}, "__slurm_cgroups": {"skipped": True}}
    conf = base64.b64encode(b"ClusterName=lab\n").decode()
    version = {"stdout": "slurm 22.05.8"}
    complete = {**bare, "ansible_host": "10.0.0.1", "__slurm_conf": {"content": conf}, "__slurm_version": version}
    first, second = nodes_of([bare, complete])
    assert (first["address"], first["conf"], first["cgroups"], first["version"]) == ("n1", "", None, None)
    assert (second["address"], second["conf"], second["version"]) == ("10.0.0.1", "ClusterName=lab\n", "slurm 22.05.8")


def test_an_unknown_node_is_an_error():
    with pytest.raises(ValueError, match="no state of the node: 'Node n9 not found'"):
        read_node("Node n9 not found")


def test_settings_of_the_files_are_those_that_are_documented(act, tmp_path):
    nodes = [{"name": "n1", "ansible_facts": {"hostname": "n1"}, "__slurm_described": {"stdout": DESCRIBED}}]
    nodes[0]["__slurm_version"] = {"stdout": "slurm-wlm 22.05.8"}
    settings = {"name": "lab", "controller": "n1", "node_timeout_s": "30"}
    given = {"settings": settings, "nodes": nodes, "runs": str(tmp_path)}
    assert "SlurmdTimeout=30" in act("site_nodes", step="slurm", **given)["files"]["slurm.conf"]
    for odd, message in (({"prolog": "/x"}, "prolog"), ({"confinement": "some"}, "cgroup, none")):
        assert message in act("site_nodes", step="slurm", **{**given, "settings": {**settings, **odd}})["msg"]
