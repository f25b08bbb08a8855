"""CUDA toolkits: versions, host compilers, the plan, the judgement of all nodes, and what a proof showed."""

from __future__ import annotations

import json
import os
import pwd

import cuda_toolkit_state
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.nvidia import cuda, cuda_plan, cuda_proof, cuda_verdict
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.cuda import read_cuda
from ansible.module_utils.trainyard_node.nvidia.cuda_proof import prove
from filters import FILTERS
from hypothesis import given
from hypothesis import strategies as st

ROOT = "/opt/trainyard"
SHA256 = "ab" * 32
# As nvcc of these releases prints them.
NVCC_13 = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
HOST_CONFIG = """#if defined(__GNUC__) && !defined(__INTEL_LLVM_COMPILER)
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif /* __GNUC__ > 15 */
"""
WANTED = {
    "pins": {"13.0": ["nvidia-cuda-nvcc==13.0.88"]},
    "min_free_mib": {"distro": 6000, "network_repo": 8000, "runfile": 16000, "wheel": 700},
    "host_compiler": "",
    "manage_system": True,
}
RUNFILE = {"provider": "runfile", "version": "11.4.4", "url": "https://x.example/cuda.run", "sha256": SHA256}


def toolkit(nvcc="", **changes):
    return {"nvcc": nvcc, "cuda": "", "newest_gcc": "", "kind": "foreign", "named": "", "record": {}, **changes}


def state(host="n1", **changes):
    return {
        "host": host,
        "os": "debian 12",
        "family": "debian",
        "arch": "x86_64",
        "root": ROOT,
        "toolkits": {},
        "default": "",
        "default_kind": "none",
        "compiler": {"name": "g++", "version": "12.2.0", "installed": True},
        "compilers": ["g++-11", "g++-12"],
        "free_mib": {"/usr": 50000, "/usr/local": 50000, ROOT: 50000},
        "gpus": 0,
        "mpi": None,
        "session": None,
        "nccl": "",
        **changes,
    }


def plan(records, default="", absent=(), wanted=None, **changes):
    node = {"state": state(**changes), "records": records, "default": default, "absent": list(absent)}
    nodes, findings = cuda_plan.plan_toolkits([node], {**WANTED, **(wanted or {})})
    return nodes.get("n1", {}), findings


def texts(findings):
    return [(finding.check, finding.found) for finding in findings]


def test_versions_are_read_from_what_nvcc_and_the_toolkit_say():
    assert cuda.nvcc_version(NVCC_13) == "13.0.88"
    assert cuda.nvcc_version("nvcc fatal : error") == ""
    assert cuda.toolkit_version('{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}') == "12.4.1"
    assert [
        cuda.toolkit_version(text) for text in (None, "", "{", "[]", '{"cuda": 1}', '{"cuda": {"version": 1}}')
    ] == [""] * 6
    assert cuda.newest_gcc_of(HOST_CONFIG) == "15"
    assert cuda.newest_gcc_of(None) == ""


@pytest.mark.parametrize(
    ("version", "newest"),
    [
        ("10.2", "8"),
        ("11.0", "9"),
        ("11.1", "10"),
        ("11.4.0", "10"),
        ("11.4", "11.1"),
        ("11.4.4", "11.1"),
        ("11.6", "11"),
        ("11.8.0", "11"),
        ("12.0", "12"),
        ("12.3.2", "12"),
        ("12.4.1", "13"),
        ("12.6", "13"),
        ("12.8", "14"),
        ("13.0", "15"),
        ("13.2.1", "15"),
        ("14.0", ""),
    ],
)
def test_the_newest_host_compiler_of_a_release(version, newest):
    assert cuda.newest_gcc(version) == newest


@pytest.mark.parametrize(
    ("gcc", "newest", "fits"),
    [
        ("11.1.0", "11.1", True),
        ("11.3.0", "11.1", False),
        ("11.4.0", "11", True),
        ("12.2.0", "11", False),
        ("9", "11.1", True),
    ],
)
def test_a_limit_names_a_whole_series(gcc, newest, fits):
    assert cuda.gcc_fits(gcc, newest) is fits


@given(st.text())
def test_any_text_can_be_read(text):
    assert isinstance(cuda.nvcc_version(text), str)
    assert isinstance(cuda.toolkit_version(text), str)
    assert isinstance(cuda.newest_gcc_of(text), str)
    assert isinstance(cuda.gcc_version(text), str)
    assert cuda_proof.read_run(0, text, 5)["state"] in ("fail", "pass", "no device")


def test_packages_of_compilers():
    assert cuda.gcc_version("4:12.2.0-3\n") == cuda.gcc_version("12.2.0") == "12.2.0"
    packages = {
        name: cuda.compiler_package(name) for name in ("", "g++-11", "/usr/bin/g++-11", "/opt/gcc/bin/g++", "icc")
    }
    assert packages == {"": "g++", "g++-11": "g++-11", "/usr/bin/g++-11": "g++-11", "/opt/gcc/bin/g++": "", "icc": ""}


def test_several_toolkits_side_by_side():
    nodes, findings = plan(
        [
            {"provider": "network_repo", "version": "12.4.1"},
            {"provider": "network_repo", "version": "12.6"},
            {"provider": "wheel", "version": "13.0"},
            RUNFILE,
        ],
        default="13.0",
        wanted={"host_compiler": "g++-11"},
        compiler={"name": "g++-11", "version": "11.1.0", "installed": False},
    )
    assert findings == []
    assert [(one["home"], one["install"]) for one in nodes["toolkits"]] == [
        ("/usr/local/cuda-12.4", True),
        ("/usr/local/cuda-12.6", True),
        (f"{ROOT}/cuda-13.0", True),
        (f"{ROOT}/cuda-11.4.4", True),
    ]
    assert nodes["packages"] == [
        {"name": "cuda-toolkit-12-4", "version": "12.4.1"},
        {"name": "cuda-nvcc-12-4", "version": "12.4.131"},
        {"name": "cuda-toolkit-12-6", "version": ""},
    ]
    assert nodes["default"] == f"{ROOT}/cuda-13.0"


def test_the_first_is_the_default_and_none_is_possible():
    records = [{"provider": "wheel", "version": "13.0"}, {"provider": "none", "path": "/usr/local/cuda-12.4"}]
    there = {"/usr/local/cuda-12.4": toolkit("12.4.131")}
    assert plan(records, toolkits=there)[0]["default"] == f"{ROOT}/cuda-13.0"
    assert plan(records, toolkits=there, default="none")[0]["default"] == ""
    assert plan([])[0]["default"] == ""


@pytest.mark.parametrize(
    ("found", "install"),
    [
        (toolkit("11.4.152", cuda="11.4.4", record={"sha256": SHA256}), False),
        (toolkit("11.4.152", cuda="11.4.4", record={"sha256": "cd" * 32}), True),
        (toolkit("11.4.48", record={"sha256": SHA256}), True),
        (toolkit("", record={"sha256": SHA256}), True),
    ],
)
def test_a_runfile_is_installed_again_when_it_is_another_one(found, install):
    changes = {"toolkits": {f"{ROOT}/cuda-11.4.4": {**found, "kind": "runfile"}}}
    nodes, findings = plan([RUNFILE], compiler={"name": "g++", "version": "10.2.1", "installed": True}, **changes)
    assert findings == []
    assert nodes["toolkits"][0]["install"] is install


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([{"provider": "apt", "version": "12.4"}], "provider 'apt' of CUDA 12.4"),
        ([{"provider": "network_repo", "version": "12"}], "version '12' of the provider network_repo"),
        ([{"provider": "wheel", "version": ""}], "version '' of the provider wheel"),
        ([{**RUNFILE, "version": "11.4"}], "version '11.4' of the provider runfile"),
        ([{**RUNFILE, "sha256": "no"}], "sha256 'no' of CUDA 11.4.4"),
        ([{**RUNFILE, "url": "cuda.run"}], "url 'cuda.run' of CUDA 11.4.4"),
        ([{"provider": "wheel", "version": "12.4"}], "no wheels known of CUDA 12.4"),
        (
            [{"provider": "wheel", "version": "13.0"}, {"provider": "network_repo", "version": "13.0.1"}],
            "2 toolkits of CUDA 13.0",
        ),
        *(
            (
                [{"provider": "network_repo", "version": "12.4", "packages": [name]}],
                f"the package {name}, which brings a driver of its own",
            )
            for name in ("cuda", "cuda-12-4", "cuda-runtime-12-4", "cuda-drivers", "cuda-drivers-550", "nvidia-open")
        ),
        (
            [{"provider": "network_repo", "version": "12.4", "packages": ["cuda-toolkit"]}],
            "the package cuda-toolkit, which moves on to each new release",
        ),
    ],
)
def test_bad_input_is_found(records, found):
    nodes, findings = plan(records)
    assert nodes == {}
    assert [finding.found for finding in findings] == [found]


def test_packages_of_a_release_are_no_metapackages():
    names = ["cuda-toolkit-12-4", "cuda-nvcc-12-4", "cuda-cudart-dev-12-4", "libcublas-dev-12-4"]
    assert plan([{"provider": "network_repo", "version": "12.4", "packages": names}])[1] == []


def test_packages_of_a_record_are_taken_as_they_are_given():
    given = ["cuda-nvcc-12-4", {"name": "cuda-cudart-dev-12-4", "version": "12.4.127-1"}]
    assert plan([{"provider": "network_repo", "version": "12.4.1", "packages": given}])[0]["packages"] == [
        {"name": "cuda-nvcc-12-4", "version": ""},
        {"name": "cuda-cudart-dev-12-4", "version": "12.4.127-1"},
    ]


def test_a_compiler_that_is_too_new_is_found_before_with_the_way_out():
    _, (finding,) = plan([{"provider": "network_repo", "version": "11.8.0"}])
    assert (finding.check, finding.found) == ("host compiler", "g++ 12.2.0")
    assert finding.expected == "gcc 11 or older for CUDA 11.8.0"
    assert finding.action == "set cuda_toolkit_host_compiler: g++-11, which the node's repositories have"
    later = {"name": "g++", "version": "14.2.0", "installed": False}
    _, (finding,) = plan([{"provider": "network_repo", "version": "12.4"}], compiler=later, compilers=["g++-14"])
    assert finding.found == "g++ 14.2.0, to be installed"
    assert finding.action.startswith("install a gcc 13 and name it as cuda_toolkit_host_compiler")


def test_debians_package_brings_its_own_compiler():
    nodes, findings = plan([{"provider": "distro"}])
    assert findings == []
    assert nodes["toolkits"][0]["packages"] == [{"name": "nvidia-cuda-toolkit", "version": ""}]
    assert nodes["default"] == f"{ROOT}/cuda-distro"


def test_a_toolkits_own_headers_count_more_than_the_table():
    """Debian's 12.4 is patched for gcc 14, say."""
    there = {"/usr/local/cuda-12.4": toolkit("12.4.131", newest_gcc="14")}
    later = {"name": "g++", "version": "14.2.0", "installed": True}
    assert plan([{"provider": "none", "path": "/usr/local/cuda-12.4"}], toolkits=there, compiler=later)[1] == []


@pytest.mark.parametrize(
    ("records", "changes", "wanted", "found"),
    [
        (
            [{"provider": "network_repo", "version": "13.0"}],
            {"family": "rhel", "os": "rhel 9.4"},
            {},
            [("cuda_toolkit_provider", "network_repo on rhel 9.4")],
        ),
        (
            [{"provider": "distro"}],
            {},
            {"manage_system": False},
            [("cuda_toolkit_provider", "distro, whose packages only root may install")],
        ),
        (
            [{"provider": "wheel", "version": "13.0"}],
            {"toolkits": {f"{ROOT}/cuda-13.0": toolkit("13.0.88")}},
            {},
            [("CUDA toolkit", f"{ROOT}/cuda-13.0, which this role did not make")],
        ),
        (
            [{"provider": "none", "version": "12.4"}],
            {"toolkits": {"/usr/local/cuda": toolkit("12.6.85")}},
            {},
            [("CUDA toolkit", "CUDA 12.6 (nvcc 12.6.85) in /usr/local/cuda")],
        ),
        (
            [{"provider": "wheel", "version": "13.0"}],
            {"default_kind": "foreign"},
            {},
            [("default CUDA toolkit", f"{ROOT}/cuda, which is no link")],
        ),
        ([{"provider": "none"}], {}, {}, [("CUDA toolkit", "no nvcc that answers in /usr/local/cuda/bin")]),
        (
            [{"provider": "wheel", "version": "13.0"}],
            {},
            {"host_compiler": "g++-99"},
            [("cuda_toolkit_host_compiler", "no g++-99, neither on the node nor in its repositories")],
        ),
        (
            [RUNFILE, {"provider": "wheel", "version": "13.0"}],
            {
                "free_mib": {"/usr": 100, ROOT: 16500},
                "compiler": {"name": "g++", "version": "9.4.0", "installed": True},
            },
            {},
            [("disk", f"16500 MiB free in {ROOT}")],
        ),
    ],
)
def test_what_a_node_cannot_have_is_found(records, changes, wanted, found):
    if "host_compiler" in wanted:
        changes = {**changes, "compiler": {"name": "g++-99", "version": "", "installed": False}}
    assert texts(plan(records, wanted=wanted, **changes)[1]) == found


VENDOR = {"/usr/local/cuda-12.4": toolkit("12.4.131", kind="network_repo", named="12.4")}


def test_removal():
    wheel = {"provider": "wheel", "version": "13.0"}
    there = {**VENDOR, f"{ROOT}/cuda-12.4": toolkit("12.4.131"), "/usr/local/cuda-12.6": toolkit("12.6.85")}
    nodes, findings = plan([wheel], absent=["12.4.1", "12.6"], toolkits=there, default="")
    assert findings == []
    # The others are somebody else's.
    assert nodes["remove"] == [
        {"action": "remove", "provider": "network_repo", "version": "12.4", "home": "/usr/local/cuda-12.4"}
    ]


def test_the_default_is_not_removed_without_another_one():
    changes = {"toolkits": VENDOR, "state_default": None}
    changes.pop("state_default")
    node = {"state": state(**changes), "records": [], "default": "", "absent": ["12.4"]}
    node["state"]["default"] = "/usr/local/cuda-12.4"
    _, findings = cuda_plan.plan_toolkits([node], WANTED)
    assert texts(findings) == [("cuda_toolkit_absent", "12.4 in /usr/local/cuda-12.4, which is the default")]
    assert "set cuda_toolkit_default: none" in findings[0].action
    nodes, findings = cuda_plan.plan_toolkits([{**node, "default": "none"}], WANTED)
    assert findings == []
    assert [one["home"] for one in nodes["n1"]["remove"]] == ["/usr/local/cuda-12.4"]


def test_a_wanted_version_is_not_removed_and_an_unknown_one_no_default():
    record = {"provider": "network_repo", "version": "12.4.1"}
    _, findings = plan([record], absent=["12.4"], default="12.6")
    assert texts(findings) == [
        ("cuda_toolkit_default", "12.6"),
        ("cuda_toolkit_absent", "12.4, which cuda_toolkit_versions wants"),
    ]


def planned(*states, records=({"provider": "network_repo", "version": "12.4.1"},)):
    nodes = [{"state": one, "records": records, "default": "", "absent": []} for one in states]
    return cuda_plan.plan_toolkits(nodes, WANTED)[0]


HOME = "/usr/local/cuda-12.4"


def test_nodes_are_judged_together():
    right = {"toolkits": {HOME: toolkit("12.4.131", newest_gcc="13")}, "default": HOME}
    nodes = [
        state("n1", **right),
        state("n2", **right),
        state("n3", **{**right, "toolkits": {HOME: toolkit("12.4.99", newest_gcc="13")}}),
        state("n4", **{**right, "default": "/usr/local/cuda-12.6"}),
        state("n5", **{**right, "toolkits": {}}),
    ]
    found = [(finding.host, finding.check, finding.found) for finding in cuda_verdict.judge(nodes, planned(*nodes))]
    assert found == [
        ("n3", "CUDA toolkit", f"CUDA 12.4 (nvcc 12.4.99) in {HOME}"),
        ("n4", "default CUDA toolkit", "/usr/local/cuda-12.6"),
        ("n5", "CUDA toolkit", f"no nvcc that answers in {HOME}/bin"),
        ("n3", "CUDA toolkits", "nvcc 12.4.99"),
        ("n5", "CUDA toolkits", "nvcc missing"),
    ]
    assert cuda_verdict.judge(nodes[:2], planned(*nodes[:2])) == []


def test_another_setenv_that_comes_first_is_found():
    right = {"toolkits": {HOME: toolkit("12.4.131")}, "default": HOME}
    nodes = [
        state("n1", **right, session={"PATH": f"{ROOT}/cuda/bin:/usr/bin"}),
        state("n2", **right, session={"PATH": "/opt/site/bin:/usr/bin"}),
        state("n3", **right, session=None),
    ]
    found = [(finding.host, finding.found) for finding in cuda_verdict.judge(nodes, planned(*nodes), told=True)]
    assert found == [("n2", "PATH=/opt/site/bin:/usr/bin"), ("n3", "sshd does not say")]
    assert cuda_verdict.judge(nodes, planned(*nodes)) == []


def test_the_headers_of_an_installed_toolkit_judge_the_compiler():
    node = state("n1", toolkits={HOME: toolkit("12.4.131", newest_gcc="11")}, default=HOME)
    plans = planned(state("n1"))
    assert texts(cuda_verdict.judge([node], plans)) == [("host compiler", "g++ 12.2.0")]


def test_odd_nodes_are_named_where_any_version_is_right():
    records = [{"provider": "none"}]
    nodes = [
        state(f"n{number}", toolkits={"/usr/local/cuda": toolkit(nvcc)}, default="/usr/local/cuda")
        for number, nvcc in enumerate(["12.4.131", "12.4.131", "12.6.85"], start=1)
    ]
    (finding,) = cuda_verdict.judge(nodes, planned(*nodes, records=records))
    assert (finding.host, finding.found) == ("n3", "nvcc 12.6.85")
    assert finding.expected == "nvcc 12.4.131, as on n1, n2"


RIGHT = "".join(
    f"trainyard-cuda rank {rank} of 2 on n1 device {rank} NVIDIA A100-SXM4-80GB: sum 3 expected 3\n" for rank in (0, 1)
)
NO_DEVICE = "".join(
    f"trainyard-cuda rank {rank} of 2 on n1: no device: no CUDA-capable device is detected\n" for rank in (0, 1)
)


@pytest.mark.parametrize(
    ("status", "output", "found"),
    [
        (0, "a warning\n" + RIGHT, "pass"),
        (0, RIGHT.replace("rank 1 of 2", "rank 1 of 3"), "pass"),
        (0, RIGHT.splitlines()[0] + "\n", "fail"),
        (1, RIGHT, "fail"),
        (6, RIGHT.replace("sum 3", "sum 2", 1), "fail"),
        (2, NO_DEVICE, "no device"),
        (2, NO_DEVICE.splitlines()[0], "fail"),
        (4, RIGHT.splitlines()[0] + "\ntrainyard-cuda failed: ncclCommInitRank: unhandled system error\n", "fail"),
        (124, RIGHT, "unknown"),
        (127, "./proof: error while loading shared libraries: libcudart.so.13: cannot open shared object", "fail"),
        (0, "", "fail"),
    ],
)
def test_what_a_program_showed(status, output, found):
    assert cuda_proof.read_run(status, output, 60)["state"] == found


def ran(status, output):
    return {"build": "pass", "detail": "", "with": ["mpi"], "run": cuda_proof.read_run(status, output, 60)}


@pytest.mark.parametrize(
    ("proof", "declared", "on_the_bus", "run", "action"),
    [
        (ran(2, NO_DEVICE), "0", 0, "skipped", None),
        (ran(0, RIGHT), "auto", 2, "pass", None),
        (ran(0, RIGHT), "2", 2, "pass", None),
        (ran(0, RIGHT), "8", 2, "fail", "correct nvidia_gpus"),
        (ran(0, RIGHT), "0", 2, "fail", "correct nvidia_gpus"),
        (ran(2, NO_DEVICE), "auto", 0, "unknown", "set nvidia_gpus: 0 for a node that has none on purpose"),
        (ran(2, NO_DEVICE), "auto", 2, "fail", "look at the driver"),
        (ran(2, NO_DEVICE), "8", 0, "fail", "look at the driver"),
        (ran(124, ""), "auto", 2, "unknown", "look at the driver"),
        ({"build": "fail", "detail": "nvcc: cannot find -lnccl", "with": [], "run": {}}, "0", 0, "unknown", "repair"),
    ],
)
def test_a_missing_device_is_a_state_only_where_none_is_declared(proof, declared, on_the_bus, run, action):
    found = cuda_proof.outcome(proof, declared, on_the_bus)
    assert found["run"] == run
    findings = cuda_proof.judge_proof("n1", found, declared, on_the_bus)
    assert [finding.action.startswith(action) for finding in findings] == ([] if action is None else [True])


def test_errors_of_a_compiler_are_told_from_its_remarks():
    output = "proof.cu(3): error: identifier x\n1 error detected in the compilation\nremark\n"
    assert cuda_proof.compiler_error(output) == "proof.cu(3): error: identifier x / 1 error detected in the compilation"
    assert cuda_proof.compiler_error("/usr/bin/ld: cannot find -lnccl\n") == "/usr/bin/ld: cannot find -lnccl"
    assert cuda_proof.compiler_error("killed\n\n") == "killed"


CAPTURED = {
    "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n',
    "usr/local/cuda-12.4/bin/nvcc": "",
    "usr/local/cuda-12.4/version.json": '{"cuda": {"version": "12.4.1"}}',
    "usr/local/cuda-12.4/include/crt/host_config.h": "#if __GNUC__ > 13\n",
    "var/lib/dpkg/info/cuda-toolkit-12-4.list": "",
    "opt/trainyard/cuda-11.4.4/.trainyard.json": '{"provider": "runfile", "sha256": "ab"}',
    "opt/trainyard/cuda-11.4.4/bin/nvcc": "",
    "opt/trainyard/nccl/include/nccl.h": "",
    "sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:1b:00.0/class": "0x030200",
    "sys/bus/pci/devices/0000:1c:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:1c:00.0/class": "0x068000",
    "commands/nvcc.cuda-12.4.out": "Cuda compilation tools, release 12.4, V12.4.131\n",
    "commands/host-compiler.out": "/bin/sh: g++: not found\n",
    "commands/host-compiler.rc": "127",
    "commands/apt-cache.policy.out": "g++:\n  Installed: (none)\n  Candidate: 4:11.2.0-1ubuntu1\n  Version table:\n",
    "commands/sshd.config.out": "port 22\nsetenv PATH=/opt/trainyard/cuda/bin:/usr/bin\n",
    "commands/apt-cache.pkgnames.out": "g++-10\ng++-9\ng++-11-aarch64-linux-gnu\ng++-11\n",
}


@pytest.fixture
def captured(tmp_path):
    for name, content in CAPTURED.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (tmp_path / "opt/trainyard/cuda").symlink_to("/usr/local/cuda-12.4")
    return tmp_path


def test_a_captured_node(captured):
    found = read_cuda(Tree(str(captured)), "n1", ROOT, ["/usr/local/cuda"], "", "train")
    assert (found["os"], found["family"], found["default"], found["gpus"]) == (
        "ubuntu 22.04",
        "debian",
        "/usr/local/cuda-12.4",
        1,
    )
    assert found["toolkits"] == {
        "/usr/local/cuda-12.4": toolkit("12.4.131", cuda="12.4.1", newest_gcc="13", kind="network_repo", named="12.4"),
        f"{ROOT}/cuda-11.4.4": toolkit(kind="runfile", named="11.4.4", record={"provider": "runfile", "sha256": "ab"}),
    }
    assert found["compiler"] == {"name": "g++", "version": "11.2.0", "installed": False}
    assert found["compilers"] == ["g++-9", "g++-10", "g++-11"]
    assert found["session"] == {"PATH": "/opt/trainyard/cuda/bin:/usr/bin"}
    assert found["nccl"] == f"{ROOT}/nccl"


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def test_what_a_node_has_is_planned_and_judged(captured, capsys):
    found = run(cuda_toolkit_state, capsys, host="n1", cuda_root=ROOT, root=str(captured))["state"]
    assert set(found) == set(yaml.safe_load(cuda_toolkit_state.RETURN)["state"]["contains"])
    node = {"state": found, "records": [{"provider": "network_repo", "version": "12.4.1"}], "default": "", "absent": []}
    wanted = {"pins": {}, "min_free_mib": {}, "host_compiler": "", "manage_system": True}
    made = FILTERS["cuda_toolkit_plan"]([node], wanted)
    assert made["findings"] == []
    assert made["nodes"]["n1"]["toolkits"][0]["install"] is False
    assert FILTERS["cuda_toolkit_findings"]([found], made["nodes"]) == []


@pytest.fixture
def stand_ins(tmp_path):
    """Stand-ins of nvcc and mpirun: nvcc makes the program that the test wants, mpirun runs it once."""

    def make(program, nvcc="cp given proof"):
        for name, content in {"cuda/bin/nvcc": nvcc, "bin/mpirun": 'shift 6; exec "$@"', "bin/mpicxx": MPICXX}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"#!/bin/sh\nFOLDER={tmp_path}\n{content.replace('given', str(tmp_path / 'given'))}\n")
            file.chmod(0o755)
        (tmp_path / "mpi.h").touch()
        (tmp_path / "given").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "given").chmod(0o755)
        return tmp_path

    return make


MPICXX = (
    """case $1 in --showme:incdirs) echo $FOLDER ;; --showme:libdirs) echo /mpi/lib ;; *) echo mpi_cxx mpi ;; esac"""
)


def proved(folder, **changes):
    node = state(mpi={"version": "4.1.4", "path": f"{folder}/bin/mpirun"}, nccl="/opt/nccl")
    asked = {
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "home": f"{folder}/cuda",
        "root": str(folder),
        "compiler": "g++-11",
        "mpi": True,
        "nccl": True,
        "gpus": 0,
        "rpath": False,
        "build_seconds": 20,
        "run_seconds": 20,
        **changes,
    }
    found = prove("int main() {}", node, asked)
    assert not list(folder.glob(".cuda-proof-*"))
    return found


def test_a_program_is_linked_with_what_is_there(stand_ins):
    folder = stand_ins("cat arguments", nvcc="cp given proof; echo $* >arguments")
    found = proved(folder)
    assert (found["build"], found["with"]) == ("pass", ["mpi", "nccl"])
    said = found["run"]["detail"]
    for flags in (
        "-ccbin=g++-11",
        f"-DWITH_MPI -I{folder} -L/mpi/lib -Xlinker -rpath,/mpi/lib -lmpi_cxx -lmpi",
        "-DWITH_NCCL -I/opt/nccl/include -L/opt/nccl/lib -Xlinker -rpath,/opt/nccl/lib -lnccl",
    ):
        assert flags in said
    assert proved(folder, mpi=False, nccl=False)["with"] == []


def test_a_program_that_does_not_end_is_ended(stand_ins):
    found = proved(stand_ins("sleep 600"), run_seconds=1)
    assert found["run"]["state"] == "unknown"
    assert proved(stand_ins("true", nvcc="exec sleep 600"), build_seconds=1)["build"] == "unknown"
    found = proved(stand_ins("true", nvcc="echo 'proof.cu(1): error: no'; exit 1"))
    assert (found["build"], found["detail"]) == ("fail", "nvcc: proof.cu(1): error: no")
