"""Stacks of NVIDIA's software judged on captured hosts: each rule finds its fault, and nothing else."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import filters
import pytest
import yaml
from ansible.module_utils.trainyard.nvidia import nvidia_answers
from ansible.module_utils.trainyard.nvidia import stack as nvidia_stack
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver_state import read_driver
from ansible.module_utils.trainyard_node.nvidia.host import read_host
from captured_tree import unfold
from filters import FILTERS, of_hosts
from hypothesis import given
from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parents[3]
TREES = PROJECT / "tests/fixtures/nvidia_hosts"
VARS = PROJECT / "roles/nvidia_stack/vars/main"
RULES = yaml.safe_load((VARS / "rules.yml").read_text())["__nvidia_stack_rules"]
CATALOG = yaml.safe_load((VARS / "stacks.yml").read_text())["__nvidia_stack_catalog"]
ROCKY = {"id": "rocky", "version": "9.4", "family": "redhat"}
NO_HEADERS = {"kernel": {"headers": [], "headers_available": False}}
UNKNOWN_HEADERS = {"kernel": {"headers": [], "headers_available": None}}
HOSTS = ("v100", "a100", "h100_nvswitch", "b200", "gh200", "mixed", "none")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    """Facts and driver of every captured host."""
    found = {}
    for name in HOSTS:
        tree = Tree(str(unfold(name, tmp_path_factory.mktemp(name), TREES)))
        found[name] = {
            part: {"host": name, **read}
            for part, read in (("facts", read_host(tree)), ("driver", read_driver(tree, [])))
        }
    return found


@pytest.fixture
def node(hosts):
    """Return a function that makes a node; keywords alter its facts (`apt`, `kernel`) or what is `settings`."""

    def make(name, stack, overrides=None, settings=None, driver=None, **facts):
        one = copy.deepcopy(hosts[name])
        for key, value in facts.items():
            one["facts"][key] = {**one["facts"][key], **value} if isinstance(value, dict) else value
        one["driver"].update(driver or {})
        gpus = "0" if name == "none" else "auto"
        given = {"stack": stack, "overrides": overrides or {}, "settings": {"gpus": gpus, **(settings or {})}}
        return filters.declared({**one, **given}, nvidia_answers.STACK_NODE)

    return make


def part(name, **fields):
    """Return the change that overrides fields of one part of a stack."""
    return {"overrides": {name: fields}}


def judge(*nodes, accept=(), rules=RULES, catalog=CATALOG):
    return nvidia_stack.choose_all(nodes, catalog, rules, accept)


def checks(findings):
    return sorted({finding.check for finding in findings})


def found_by(findings, check, text=""):
    return [one.found for one in findings if one.check == check and text in one.found]


def fitting(node):
    """Return the stacks of the catalog that fit a host."""
    return [name for name in CATALOG if not found_by(judge({**node, "stack": name}).findings, "nvidia_stack")]


@pytest.mark.parametrize(
    ("name", "stacks"),
    [
        ("v100", ["v100-runfile", "mindspore-cuda11.1", "mindspore-cuda11.6", "pytorch-cuda12"]),
        ("a100", ["mindspore-cuda11.1", "mindspore-cuda11.6", "pytorch-cuda12", "pytorch-cuda13"]),
        ("h100_nvswitch", ["pytorch-cuda12", "pytorch-cuda13"]),
        ("b200", ["pytorch-cuda13"]),
        ("gh200", ["pytorch-cuda12", "pytorch-cuda13"]),
        ("mixed", ["mindspore-cuda11.1", "mindspore-cuda11.6", "pytorch-cuda12", "debian12", "debian12-tesla470"]),
    ],
)
def test_which_stacks_fit_which_host(node, name, stacks):
    assert fitting(node(name, "")) == stacks
    wrong = next(stack for stack in CATALOG if stack not in stacks and stack != "wheels-cuda13")
    said = [one.expected for one in judge(node(name, wrong)).findings if one.check == "nvidia_stack"]
    assert said == [f"a stack that fits this host: {', '.join(stacks)}"]


def test_a_k80_takes_what_has_driver_470(node):
    k80 = {"pci": "0000:05:00.0", "device_id": "0x102d", "name": "K80", "generation": "kepler"}
    host = node("v100", "pytorch-cuda12", gpus=[k80], os={"id": "debian", "version": "12", "family": "debian"})
    assert fitting(host) == ["v100-runfile", "debian12-tesla470"]
    assert {"GPU and driver", "GPU and CUDA", "framework"} <= set(checks(judge(host).findings))


def test_debian_13_on_its_own(node):
    trixie = {"os": {"id": "debian", "version": "13", "family": "debian"}, "kernel": {"running": "6.12.57+deb13-amd64"}}
    host = node("a100", "debian13", settings={"replace": True}, nvswitches=0, **trixie)
    assert judge(host).findings == []
    opened = judge({**host, **part("driver", flavour="open")})
    assert len(found_by(opened.findings, "kernel", "driver 550.x on kernel 6.12.57")) == 1


@pytest.mark.parametrize(
    ("name", "stack", "changes", "check", "found"),
    [
        # generation x flavour
        ("v100", "pytorch-cuda12", part("driver", flavour="open"), "GPU and module flavour", "open modules for V100"),
        ("gh200", "pytorch-cuda12", part("driver", flavour="proprietary"), "GPU and module flavour",
         "proprietary modules for GH200"),
        ("b200", "pytorch-cuda13", part("driver", flavour="proprietary"), "GPU and module flavour",
         "proprietary modules for B200"),
        # generation x driver
        ("v100", "pytorch-cuda12", part("driver", version="590.48.01"), "GPU and driver", "driver 590.48.01 for V100"),
        ("h100_nvswitch", "pytorch-cuda12", part("driver", branch=470), "GPU and driver", "driver 470.x for H100"),
        ("b200", "pytorch-cuda13", part("driver", branch="550"), "GPU and driver", "driver 550.x for B200"),
        # generation x CUDA
        ("v100", "pytorch-cuda13", part("driver", flavour="proprietary"), "GPU and CUDA", "CUDA 13.0 for V100"),
        ("h100_nvswitch", "mindspore-cuda11.6", {}, "GPU and CUDA", "CUDA 11.6.2 for H100"),
        # CUDA x driver
        ("a100", "pytorch-cuda13", part("driver", version="575.57.08"), "CUDA and driver",
         "driver 575.57.08 for CUDA 13.0"),
        ("v100", "v100-runfile", part("cuda", provider="network_repo", version="12.4"),
         "CUDA and driver", "driver 470.103.01 for CUDA 12.4"),
        # NCCL x CUDA, NCCL x driver
        ("a100", "pytorch-cuda12", part("nccl", cuda="13.0"), "NCCL and CUDA", "built for CUDA 13.0 beside CUDA 12.6"),
        ("v100", "v100-runfile", part("nccl", cuda="12.4"), "NCCL and driver", "driver 470.103.01 for NCCL"),
        # cuDNN x framework, cuDNN x CUDA
        ("v100", "mindspore-cuda11.6", part("cudnn", version="8.4.1.50"), "cuDNN", "cuDNN 8.4.1.50 for mindspore"),
        ("v100", "mindspore-cuda11.1", part("cudnn", cuda="10.2"), "cuDNN and CUDA",
         "for CUDA 10.2 beside CUDA 11.1.1"),
        # frameworks
        ("b200", "pytorch-cuda13", part("framework", build="cu126"), "framework", "cu126 for blackwell"),
        ("a100", "pytorch-cuda12", part("framework", build="cu127"), "framework", "pytorch 2.13.0+cu127"),
        ("gh200", "mindspore-cuda11.6", {}, "framework", "mindspore 2.2.14 for GPUs on aarch64"),
        ("v100", "mindspore-cuda11.6", part("driver", branch="470"), "framework", "driver 470.x for mindspore"),
        ("a100", "mindspore-cuda11.1", part("framework", cuda="11.6"), "framework", "mindspore 1.10.0 for CUDA 11.6"),
        ("gh200", "v100-runfile", part("framework", version="2.5.1", build="cu126"), "framework",
         "pytorch 2.5.1+cu126"),
        # operating system
        ("v100", "debian12", {}, "operating system", "driver by distro on ubuntu 20.04"),
        ("mixed", "debian13", {}, "operating system", "driver 550 from debian 12 itself"),
        ("mixed", "debian13", {}, "operating system", "CUDA 12.4 from debian 12 itself"),
        ("mixed", "debian13", {}, "operating system", "NCCL 2.22.3 from debian 12 itself"),
        ("v100", "pytorch-cuda12", {"os": ROCKY}, "operating system", "driver by network_repo on rocky 9"),
        # kernel and headers
        ("v100", "v100-runfile", {"kernel": {"running": "5.17.0-1-generic"}}, "kernel", "on kernel 5.17.0-1-generic"),
        ("a100", "pytorch-cuda12", {**part("driver", version="580.119.02"),
                                    "kernel": {"running": "7.0.9-1-generic"}}, "kernel", "on kernel 7.0.9-1-generic"),
        ("v100", "v100-runfile", NO_HEADERS, "kernel headers", "apt offers none"),
        # The machine; tests of plans for drivers have more of its checks.
        ("h100_nvswitch", "pytorch-cuda12", {}, "Secure Boot", "enabled, without a key"),
        ("mixed", "pytorch-cuda12", {}, "packages", "half installed: linux-image-6.1.0-41-amd64"),
        ("mixed", "pytorch-cuda12", {}, "space", "900 MiB free in /usr, /var"),
        ("a100", "pytorch-cuda12", {"apt": {"kept": ["nvidia-utils-550"]}}, "packages",
         "libnvidia-compute-550, nvidia-dkms-550-open"),
        ("none", "debian12", {"settings": {"gpus": "two"}}, "nvidia_gpus", "'two'"),
        ("v100", "pytorch-cuda12", {"virtual": "podman"}, "container", "the host is a podman container"),
        ("v100", "wheels-cuda13", {}, "driver", "none, for 8x V100 SXM2 32GB"),
    ],
)  # fmt: skip
def test_a_fault_is_found(node, name, stack, changes, check, found):
    judged = judge(node(name, stack, **changes))
    assert len(found_by(judged.findings, check, found)) == 1
    assert all(one.expected and one.action for one in judged.findings)


@pytest.mark.parametrize(
    ("name", "stack", "changes", "check", "found"),
    [
        ("v100", "pytorch-cuda12", {}, "nouveau", "nouveau is loaded"),
        ("v100", "v100-runfile", {}, "driver's faults", "driver 470.103.01"),
        ("v100", "v100-runfile", {"gcc": "13.3.0"}, "gcc", "gcc 13.3.0 is the host's default"),
        ("a100", "pytorch-cuda12", part("driver", version="550.127.08"), "CUDA and driver",
         "for CUDA 12.6: minor version"),
        ("a100", "pytorch-cuda12", part("nccl", cuda="12.4"), "NCCL and CUDA", "CUDA 12.4 beside CUDA 12.6"),
        ("a100", "pytorch-cuda13", part("nccl", cuda="13.1"), "NCCL and CUDA", "cuda13.1, an unknown build"),
        ("mixed", "pytorch-cuda12", {}, "GPUs", "1x V100 PCIe 32GB + 1x A40"),
        ("mixed", "pytorch-cuda12", {}, "NCCL", "2.24.3+cuda12.6 from NVIDIA's repository"),
        ("h100_nvswitch", "pytorch-cuda12", {"secure_boot": "unknown"}, "Secure Boot",
         "neither mokutil nor the EFI variable"),
        ("mixed", "pytorch-cuda12", {}, "packages", "linux-headers-amd64 on hold"),
        ("v100", "v100-runfile", UNKNOWN_HEADERS, "kernel headers", "none for kernel 5.4"),
        ("a100", "pytorch-cuda12", {"settings": {"gpus": "0"}}, "GPUs", "declared as 0"),
        ("a100", "pytorch-cuda12", part("cuda", version="12.7"), "CUDA and driver", "CUDA 12.7"),
        ("v100", "mindspore-cuda11.6", part("cudnn", provider="none"), "cuDNN", "and no cuDNN"),
        ("v100", "mindspore-cuda11.6", part("cudnn", version="8.6.0.163"), "cuDNN", "cuDNN 8.6.0.163"),
        ("mixed", "mindspore-cuda11.6", part("cudnn", provider="network_repo"), "cuDNN", "cuDNN 8.5.0.96 from NVIDIA"),
    ],
)  # fmt: skip
def test_a_warning(node, name, stack, changes, check, found):
    judged = judge(node(name, stack, **changes))
    assert len(found_by(judged.warnings, check, found)) == 1
    assert not found_by(judged.findings, check, found)


@pytest.mark.parametrize(
    ("name", "stack", "changes", "check"),
    [
        # At the limit; a case above is beyond it.
        ("v100", "pytorch-cuda12", part("driver", version="580.159.04"), "GPU and driver"),
        ("b200", "pytorch-cuda13", part("driver", version="580.65.06"), "CUDA and driver"),
        ("v100", "v100-runfile", {"kernel": {"running": "5.16.20-1-generic"}}, "kernel"),
        ("v100", "v100-runfile", {"kernel": {"headers": [], "headers_available": True}}, "kernel headers"),
        ("v100", "v100-runfile", {"gcc": "11.1.0"}, "gcc"),
        ("v100", "v100-runfile", {"gcc": ""}, "gcc"),
        ("a100", "pytorch-cuda12", {**part("driver", version="580.159.04"),
                                    "kernel": {"running": "7.1.0-1-generic"}}, "kernel"),
        ("v100", "v100-runfile", {"kernel": {"running": "5.14.0-611.el9"},
                                  "os": {"id": "rhel", "version": "9.7", "family": "redhat"}}, "kernel"),
        ("h100_nvswitch", "pytorch-cuda12", {"secure_boot": "disabled"}, "Secure Boot"),
        ("v100", "pytorch-cuda12", {"free_mib": {"/usr": 9800, "/var": 9800, "/": 9800}}, "space"),
    ],
)  # fmt: skip
def test_what_is_no_fault(node, name, stack, changes, check):
    judged = judge(node(name, stack, **changes))
    assert check not in checks(judged.findings) + checks(judged.warnings)


def test_space_of_one_file_system_is_needed_together(node):
    host = node("v100", "pytorch-cuda12", free_mib={"/usr": 9799, "/var": 9799, "/": 9799})
    assert [one.expected.partition(" MiB")[0] for one in judge(host).findings] == ["9800"]
    apart = node("v100", "pytorch-cuda12", free_mib={"/usr": 9200, "/var": 600, "/": 0})
    assert judge(apart).findings == []


def test_installed_software_needs_no_space_headers_or_key(node):
    installed = {"driver": {"version": "550.54.15"}, "cuda": {"version": "12.4"}, "nccl": {"cuda": "12.4"}}
    facts = {"free_mib": dict.fromkeys(("/usr", "/var", "/"), 10), "kernel": {"headers": []}, "secure_boot": "enabled"}
    full = node("a100", "pytorch-cuda12", overrides=installed, **facts)
    assert judge(full).findings == []
    full["overrides"]["driver"] = {"version": "550.127.08"}
    assert checks(judge(full).findings) == ["Secure Boot", "space"]


def test_a_host_without_gpus_on_purpose_is_no_finding(node):
    for stack in ("pytorch-cuda13", "v100-runfile", "debian12"):
        assert judge(node("none", stack)).findings == []
    # A driver that is requested all the same is checked.
    judged = judge(node("none", "debian12", settings={"without_gpu": True}, **NO_HEADERS))
    assert checks(judged.findings) == ["kernel headers"]


def test_a_driver_from_elsewhere_is_checked_by_its_version(node):
    judged = judge(node("a100", "wheels-cuda13"))
    cuda, pytorch = found_by(judged.findings, "CUDA and driver", "driver 550.54.15 for ")
    assert cuda.endswith("CUDA 13.0") and pytorch.endswith("cu130")
    newer = node("a100", "wheels-cuda13", driver={"version": "580.95.05", "loaded": "580.95.05"})
    assert judge(newer).findings == []


def test_another_runfile_needs_its_own_file_and_sum(node):
    host = node("v100", "v100-runfile", overrides={"driver": {"version": "470.256.02"}})
    assert {"nvidia_driver_url", "nvidia_driver_sha256"} <= set(checks(judge(host).findings))
    host["settings"].update(file="/srv/NVIDIA-Linux-x86_64-470.256.02.run", sha256="ab" * 32)
    assert judge(host).findings == []


def test_accepted_checks_and_unverified_rules_do_not_stop(node):
    host = node("v100", "v100-runfile", kernel={"running": "5.17.0-1-generic"})
    assert checks(judge(host).findings) == ["kernel", "nvidia_stack"]
    accepted = judge(host, accept=["kernel"])
    assert accepted.findings == [] and "kernel" in checks(accepted.warnings)
    # A rule that is not verified only warns.
    rules = copy.deepcopy(RULES)
    next(row for row in rules["generations"] if row["name"] == "volta")["verified"] = False
    judged = judge(node("v100", "pytorch-cuda12", **part("driver", version="590.48.01")), rules=rules)
    assert "GPU and driver" in checks(judged.warnings) and "GPU and driver" not in checks(judged.findings)


@pytest.mark.parametrize(
    ("stack", "overrides", "found", "expected"),
    [
        ("v100", {}, "'v100'", f"one of {', '.join(CATALOG)}"),
        ("", {}, "''", f"one of {', '.join(CATALOG)}"),
        ("debian12", {"drivers": {}}, "drivers: {}", "parts of a stack, each with its fields: driver, cuda, nccl"),
        ("debian12", {"driver": "535"}, "driver: 535", "parts of a stack"),
        ("debian12", {"driver": {"flavor": "open"}}, "driver.flavor", "a field of driver: provider, version, branch"),
        ("debian12", {"cuda": {"provider": "conda"}}, "'conda'", "one of distro, network_repo, runfile, wheel, none"),
        ("debian12", {"cuda": {"version": "latest"}}, "'latest'", "an exact version such as"),
        ("debian12", {"nccl": {"version": "2.21"}}, "'2.21'", "an exact version such as"),
        ("debian12", {"driver": {"flavour": "closed"}}, "'closed'", "open, proprietary, or nothing"),
        ("debian12", {"driver": {"branch": "x"}}, "'x'", "the branch of a driver such as 550"),
        ("debian12", {"framework": {"name": "jax"}}, "'jax'", "one of pytorch, mindspore, none"),
    ],
)
def test_a_wrong_choice_is_a_finding(node, stack, overrides, found, expected):
    judged = judge(node("mixed", stack, overrides=overrides), node("none", stack, overrides=overrides))
    assert [(one.host, one.found) for one in judged.findings] == [("mixed", found), ("none", found)]
    assert judged.findings[0].expected.startswith(expected) and judged.warnings == []


def test_a_host_without_a_gpu_does_not_belong_to_the_group(node):
    [finding] = judge(node("none", "", settings={"gpus": "auto"})).findings
    assert (finding.found, finding.action[:31]) == ("no NVIDIA GPU found", "leave it out of the group nvidi")


def test_a_driver_of_somebody_else_needs_no_stack(node):
    """The default without sudo: nvidia_driver_provider is none, and no stack is chosen."""
    theirs, installed = {"provider": "none"}, {"version": "580.95.05", "loaded": "580.95.05", "flavour": "open"}
    judged = judge(node("h100_nvswitch", "", settings=theirs, driver=installed))
    assert (judged.findings, judged.parts) == ([], {"h100_nvswitch": {"driver": theirs}})
    assert judged.table.startswith("hosts ")
    assert "driver" in checks(judge(node("h100_nvswitch", "", settings=theirs)).findings)
    assert checks(judge(node("h100_nvswitch", "", driver=installed)).findings) == ["nvidia_stack"]


def test_parts_of_a_stack_with_overrides():
    """Address and sum belong to one version."""
    parts, wrong = nvidia_stack.choose("h", CATALOG, "v100-runfile", {"driver": {"version": "470.256.02"}})
    assert wrong == []
    assert "url" not in parts["driver"] and "sha256" not in parts["driver"]
    kept, _ = nvidia_stack.choose("h", CATALOG, "v100-runfile", {"driver": {"url": "https://mirror/x.run"}})
    assert (kept["driver"]["url"], len(kept["driver"]["sha256"])) == ("https://mirror/x.run", 64)
    # YAML reads versions as numbers.
    numbers = {"driver": {"branch": 570}, "cuda": {"version": 12.8}, "nccl": {"cuda": 12.8}}
    parts, wrong = nvidia_stack.choose("h", CATALOG, "pytorch-cuda12", numbers)
    assert (wrong, parts["driver"]["branch"], parts["driver"]["version"]) == ([], "570", "")
    assert parts["cuda"]["version"] == parts["nccl"]["cuda"] == "12.8"


def test_a_choice_without_a_name_is_checked_like_a_stack(node):
    own = {"driver": {"provider": "network_repo", "version": "590.48.01"}, "cuda": {"provider": "none"}}
    judged = judge(node("v100", "", overrides=own))
    driver = {**own["driver"], "branch": "590", "flavour": "proprietary"}
    assert judged.parts["v100"] == {**own, "driver": driver}
    assert judged.table.startswith("nvidia_stack_overrides: driver 590.48.01 proprietary (network_repo)\n")
    assert checks(judged.findings) == ["GPU and driver", "nvidia_stack"]


def test_the_gpus_decide_on_the_flavour(node):
    for name, flavour in {"v100": "proprietary", "mixed": "proprietary", "a100": "open", "none": "open"}.items():
        assert judge(node(name, "pytorch-cuda12")).parts[name]["driver"]["flavour"] == flavour
    assert judge(node("none", "debian12")).parts["none"]["driver"]["flavour"] == "proprietary"


def test_the_table_has_a_line_for_each_kind_of_host(node):
    nodes = []
    for number in range(1000):
        one = node("a100" if number % 2 else "v100", "pytorch-cuda12")
        one["facts"]["host"] = one["driver"]["host"] = f"n{number}"
        nodes.append(one)
    lines = judge(*nodes).table.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("pytorch-cuda12: driver 580.95.05 proprietary (network_repo), CUDA 12.6 (network_repo)")
    assert lines[0].endswith("pytorch 2.13.0+cu126, on n0, n2, n4, n6, n8, n10, ... (494 more)")
    cells = re.split(r"  +", lines[3])
    assert cells[:3] == ["n0, n2, n4, ... (497 more) (500)", "8x V100 SXM2 32GB", "ubuntu 20.04 x86_64"]
    assert cells[4:] == ["none -> 580.95.05 proprietary", "12.6", "2.24.3+cuda12.6", "fits, 1 warning"]
    assert "550.54.15 -> 580.95.05 open" in lines[4]


def test_each_host_is_checked_with_its_own_stack(node):
    judged = judge(node("v100", "v100-runfile"), node("b200", "pytorch-cuda13"))
    assert judged.findings == []
    assert [judged.parts[host]["cuda"]["version"] for host in ("v100", "b200")] == ["11.4.4", "13.0"]


PARTS = st.sampled_from(("driver", "cuda", "nccl", "openmpi", "framework", "other"))
FIELDS = st.sampled_from(("provider", "version", "branch", "cuda", "name", "build", "x"))
VALUES = st.text(max_size=8) | st.integers() | st.none() | st.sampled_from(("none", "runfile", "12.4"))


@given(st.dictionaries(PARTS, st.none() | st.text(max_size=5) | st.dictionaries(FIELDS, VALUES)))
def test_any_overrides_are_checked_or_rejected(hosts, overrides):
    one = {**hosts["a100"], "stack": "pytorch-cuda12", "overrides": overrides, "settings": {"gpus": "auto"}}
    judged = judge(one)
    assert set(judged.parts) == {"a100"}
    assert all(isinstance(value, str) for part in judged.parts["a100"].values() for value in part.values())


def test_the_filter_returns_findings_and_a_summary(node):
    nodes = {name: node(name, "pytorch-cuda12") for name in ("v100", "b200")}
    result = of_hosts("nvidia_stack_plan", nodes, CATALOG, RULES)
    assert {one["host"] for one in result["findings"]} == {"b200"}
    assert result["nodes"]["v100"]["driver"]["flavour"] == "proprietary"
    assert "Warnings that do not stop (1 finding):\n\n  1. nouveau on v100" in result["summary"]


def test_every_role_takes_a_complete_record_from_a_stack():
    parts = {"nccl": {"provider": "wheel", "version": "2.28.9"}, "framework": {"name": "pytorch", "build": "cu126"}}
    defaults = FILTERS["nvidia_stack_defaults"]
    nccl = {"provider": "wheel", "version": "2.28.9", "cuda": "", "url": "", "sha256": ""}
    assert defaults(parts, "nccl") == nccl
    assert defaults(parts, "pytorch") == {"version": "", "build": "cu126"}
    assert defaults(parts, "mindspore") == {"version": "", "cuda": ""}
    assert defaults({}, "nvidia_driver")["provider"] == "none"
    assert defaults({}, "openmpi")["provider"] == "distro"
