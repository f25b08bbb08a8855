"""The role nccl_tests: who builds from what, for which GPUs, what stops it, and what the built programs say."""

from __future__ import annotations

import json
import re
import subprocess

import nccl_tests
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.nvidia import gencode, nvidia_answers, nvidia_hardware
from ansible.module_utils.trainyard.nvidia.nccl_tests import header_version, input_findings, plan_builds
from ansible.module_utils.trainyard.nvidia.nccl_tests_verify import check as check_nodes
from ansible.module_utils.trainyard.nvidia.nccl_tests_verify import missing_libraries, needs_mpi, parse_flags
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.nccl_tests_probe import read_part
from filters import declared, of_hosts

PREFIX = "/opt/trainyard/nccl-tests"
DEBIAN, UBUNTU = "debian 12 x86_64", "ubuntu 22.04 aarch64"
COMMIT = "ab" * 20
H100 = {"pci": "0000:1b:00.0", "device_id": "0x2330", "name": "H100 SXM5 80GB", "generation": "hopper"}
A100 = {**H100, "device_id": "0x20b2", "name": "A100 SXM4 80GB", "generation": "ampere"}
V100 = {**H100, "device_id": "0x1db5", "name": "V100 SXM2 32GB", "generation": "volta"}
B200 = {**H100, "device_id": "0x2901", "name": "B200", "generation": "blackwell"}
NEW = {**H100, "device_id": "0x9999", "name": "", "generation": "unknown"}
WANTED = {
    **{"source": f"commit {COMMIT}", "prefix": PREFIX, "suffix": "_mpi", "options": [], "gencode": "auto"},
    **{"min_free_mb": 1000, "installs": True},
}
HOMES = {"MPI_HOME": "openmpi", "CUDA_HOME": "cuda", "NCCL_HOME": "nccl"}
RECORD = {"source": f"commit {COMMIT}", "platform": DEBIAN, "CUDA": "12.4.131", "NCCL": "2.21.5", "Open MPI": "4.1.4"}
NVCC_12 = "Cuda compilation tools, release 12.4, V12.4.131\nBuild cuda_12.4.r12.4/compiler.34097967_0\n"
# The lines of the headers that tell the versions.
NCCL_H = '#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n#define NCCL_SUFFIX ""\n'
MPI_H = "#define OMPI_MAJOR_VERSION 4\n#define OMPI_MINOR_VERSION 1\n#define OMPI_RELEASE_VERSION 4\n"
LDD = """\tlinux-vdso.so.1 (0x00007ffd1a5d2000)
\tlibcudart.so.13 => /opt/trainyard/cuda/lib64/libcudart.so.13 (0x00007f52c2a00000)
\tlibnccl.so.2 => not found
\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f52c28d0000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f52c26ee000)
"""
# In the format of the programs.
HELP = "USAGE: a_perf_mpi \n\t[-t,--nthreads <number>] \n\t[-b,--minbytes <size>] \n\t[-h,--help]\n"


def part(home, version, **changes):
    return {
        "home": home, "version": version, "library": True, "folders": [f"{home}/lib"], "marker": "bin/x",
        "library_name": "libx.so", "searched": [home], **changes,
    }  # fmt: skip


def state(host, *gpus, cuda="12.4.131", nccl="2.21.5", mpi="4.1.4", **changes):
    parts = {"cuda": cuda, "nccl": nccl, "openmpi": mpi}
    homes = [part(f"/opt/trainyard/{name}", version) for name, version in parts.items()]
    found = {
        "host": host, "platform": DEBIAN, "cpus": 8, "free_mb": 9000, "record": None, "prefix_kind": "none",
        **dict(zip(("cuda", "nccl", "mpi"), homes)), "missing": [], "gpus": list(gpus), **changes,
    }  # fmt: skip
    return declared(found, nvidia_answers.NCCL_TESTS)


def built(node):
    """Return the node after the build of its plan."""
    plan, _ = plan_builds([node], WANTED)
    return {**node, "record": plan[node["host"]]["record"], "prefix_kind": "built"}


def flags(*numbers):
    return " ".join(f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers)


def actions(plan):
    return {host: (node["action"], node["source"]) for host, node in plan.items()}


def texts(findings):
    return [(finding.host, finding.check, finding.found) for finding in findings]


def test_one_node_of_each_system_and_cuda_builds():
    ubuntu = [state("u1", H100, platform=UBUNTU), state("u2", platform=UBUNTU)]
    newer = [state(host, H100, cuda="13.0.88") for host in ("n3", "n4")]
    plan, findings = plan_builds([state("n1", H100), state("n2", H100), *ubuntu, *newer], WANTED)
    assert findings == []
    assert {host: node["source"] for host, node in plan.items() if node["action"] == "build"} == {
        host: host for host in ("n1", "u1", "n3")
    }
    assert [actions(plan)[host] for host in ("n2", "u2", "n4")] == [("copy", "n1"), ("copy", "u1"), ("copy", "n3")]
    assert plan["n1"]["library_path"] == "/opt/trainyard/cuda/lib:/opt/trainyard/nccl/lib:/opt/trainyard/openmpi/lib"
    make = [f"{name}=/opt/trainyard/{home}" for name, home in HOMES.items()]
    options = ["MPI=1", *make, "NAME_SUFFIX=_mpi", f"NVCC_GENCODE={flags(90)}"]
    assert plan["n1"]["record"] == {**RECORD, "make": options}


@pytest.mark.parametrize(
    ("node", "wanted", "reason"),
    [
        ({}, {"source": "commit " + "cd" * 20}, f"source commit {'cd' * 20} instead of commit {COMMIT}"),
        ({"cuda": "12.6.20"}, {}, "CUDA 12.6.20 instead of 12.4.131"),
        ({"nccl": "2.22.3"}, {}, "NCCL 2.22.3 instead of 2.21.5"),
        ({"mpi": "5.0.8"}, {}, "Open MPI 5.0.8 instead of 4.1.4"),
        ({"gpus": [A100, H100]}, {}, f"NVCC_GENCODE={flags(80, 90)}"),
        ({}, {"options": ["DEBUG=1"]}, "DEBUG=1"),
        ({}, {"suffix": ""}, "without options that it was built with"),
    ],
)
def test_each_thing_that_goes_into_a_build_is_a_reason_to_build(node, wanted, reason):
    old = built(state("n1", H100))
    assert actions(plan_builds([old], WANTED)[0]) == {"n1": ("none", "n1")}
    gpus = node.pop("gpus", [H100])
    plan, findings = plan_builds([{**state("n1", *gpus, **node), "record": old["record"]}], {**WANTED, **wanted})
    assert findings == []
    assert (plan["n1"]["action"], plan["n1"]["reason"]) == ("build", reason)


def test_a_build_is_for_the_gpus_of_all_nodes_that_it_serves():
    plan, findings = plan_builds([state("n1", A100), state("n2", V100, V100), state("n3")], WANTED)
    assert findings == []
    assert {node["record"]["make"][-1] for node in plan.values()} == {f"NVCC_GENCODE={flags(70, 80)}"}


def test_a_run_on_some_nodes_keeps_what_was_built_for_all():
    new = plan_builds([state("new", H100), built(state("n2", H100))], WANTED)[0]
    assert actions(new) == {"new": ("copy", "n2"), "n2": ("none", "n2")}
    mixed = [state("n1", A100), state("n2", H100)]
    plan, _ = plan_builds(mixed, WANTED)
    n2 = {**mixed[1], "record": plan["n2"]["record"], "prefix_kind": "built"}
    assert actions(plan_builds([n2], WANTED)[0]) == {"n2": ("none", "n2")}
    assert actions(plan_builds([{**n2, "gpus": [V100]}], WANTED)[0]) == {"n2": ("build", "n2")}
    assert actions(plan_builds([n2], {**WANTED, "source": "commit x"})[0]) == {"n2": ("build", "n2")}


@pytest.mark.parametrize(
    ("gpus", "cuda", "host", "text"),
    [
        ([[A100], [V100]], "13.0.88", "n2", "CUDA 13 compiles for sm_75 and newer"),
        ([[A100], [H100]], "11.4.152", "n2", "sm_90 needs CUDA 11.8 or newer"),
        ([[A100], [B200]], "12.6.20", "n2", "sm_100 needs CUDA 12.8 or newer; sm_120 needs CUDA 12.8 or newer"),
        ([[NEW, NEW], [H100]], "12.4.131", "n1", "2x unknown GPU 0x9999"),
        ([[]], "12.4.131", "n1", "none on any node that this build is for"),
    ],
)
def test_gpus_without_flags_that_cuda_compiles_for(gpus, cuda, host, text):
    _, (finding,) = plan_builds([state(f"n{n}", *each, cuda=cuda) for n, each in enumerate(gpus, start=1)], WANTED)
    assert (finding.host, finding.check) == (host, "GPUs")
    assert text in (finding.found, finding.expected)


def test_given_flags_are_checked_by_the_same_rules():
    wanted = {**WANTED, "gencode": flags(60, 90)}
    plan, findings = plan_builds([state("n1")], wanted)
    assert findings == [] and plan["n1"]["record"]["make"][-1] == f"NVCC_GENCODE={flags(60, 90)}"
    _, findings = plan_builds([state("n1", cuda="13.0.88")], wanted)
    assert texts(findings) == [("n1", "NVCC_GENCODE", f"{flags(60, 90)} with CUDA 13.0.88")]


def test_every_generation_has_flags_that_some_cuda_takes():
    assert set(gencode.ARCHITECTURES) == set(nvidia_hardware.GENERATIONS)
    releases = ["11.4.152", "11.8.89", "12.4.131", "12.8.61", "13.0.88"]
    for numbers in gencode.ARCHITECTURES.values():
        assert any(not gencode.refusal(number, cuda) for number in numbers for cuda in releases)
    numbers = sorted(number for each in gencode.ARCHITECTURES.values() for number in each)
    assert gencode.architectures(gencode.flags(gencode.ARCHITECTURES)) == numbers


def test_everything_that_stops_a_build_is_found_at_once():
    changes = [{"missing": ["make", "g++"]}, {"nccl": "2.18.3"}, {"mpi": "5.0.8"}, {"prefix_kind": "foreign"}]
    nodes = [state(f"n{n}", H100, **each) for n, each in enumerate([*changes, {"free_mb": 20}], start=1)]
    plan, findings = plan_builds(nodes, {**WANTED, "installs": False})
    assert texts(findings) == [
        ("n2", "NCCL", "2.18.3 in /opt/trainyard/nccl"),
        ("n3", "Open MPI", "5.0.8 in /opt/trainyard/openmpi"),
        ("n4", "nccl_tests_prefix", f"{PREFIX}, which this role did not make"),
        ("n5", "disk", f"20 MB free for {PREFIX}"),
        ("n1", "tools of the build", "no make, g++"),
    ]
    assert findings[0].expected.startswith("2.21.5 in /opt/trainyard/nccl, as on n1")
    assert plan["n1"]["action"] == "build"


def test_nodes_without_what_it_is_built_with_are_named():
    nodes = [state("n1"), state("n2"), state("n3")]
    nodes[0]["cuda"] = part("", "", marker="bin/nvcc", searched=["/opt/trainyard/cuda", "/usr"])
    nodes[1]["mpi"] = part("/usr/lib/openmpi", "4.1.4", library=False, folders=[], library_name="libmpi.so")
    nodes[2]["nccl"] = part("/opt/nccl", "", marker="include/nccl.h")
    plan, findings = plan_builds(nodes, WANTED)
    assert (plan, [finding.check for finding in findings]) == ({}, ["CUDA", "Open MPI", "NCCL"])
    parts = (
        "no bin/nvcc in /opt/trainyard/cuda, /usr",
        "no libmpi.so in /usr/lib/openmpi",
        "/opt/nccl/include/nccl.h, ",
    )
    assert all(finding.found.startswith(text) for finding, text in zip(findings, parts))
    assert findings[0].action == "run the role cuda_toolkit, or set nccl_tests_cuda_home"


def test_output_of_programs_is_read():
    assert header_version(NCCL_H, ("NCCL_MAJOR", "NCCL_NEWEST")) == ""
    assert parse_flags(HELP) == {"nthreads": "t", "minbytes": "b", "help": "h"}
    assert missing_libraries(LDD) == ["libnccl.so.2"]
    assert needs_mpi(LDD) and not needs_mpi("\tlibnccl.so.2 => /x/libmpi.so/libnccl.so.2\n")


FILES = {
    "opt/trainyard/cuda/bin/nvcc": "",
    "opt/trainyard/cuda/lib64/libcudart.so": "",
    "usr/include/nccl.h": NCCL_H,
    "usr/lib/x86_64-linux-gnu/libnccl.so": "",
    "usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h": MPI_H,
    "usr/lib/x86_64-linux-gnu/openmpi/lib/libmpi.so": "",
    "commands/nvcc.version.out": NVCC_12,
}


def test_parts_are_found_where_the_roles_or_the_system_install_them(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    def read(name, given=""):
        found = read_part(Tree(str(tmp_path)), name, "/opt/trainyard", given, "x86_64")
        return found["home"], found["version"], found["library"], found["folders"]

    assert read("cuda") == ("/opt/trainyard/cuda", "12.4.131", True, ["/opt/trainyard/cuda/lib64"])
    assert read("nccl") == ("/usr", "2.28.9", True, [])
    openmpi = "/usr/lib/x86_64-linux-gnu/openmpi"
    assert read("mpi") == (openmpi, "4.1.4", True, [f"{openmpi}/lib"])
    assert read("nccl", "/opt/nccl") == ("", "", False, [])
    (tmp_path / "commands/nvcc.version.rc").write_text("1\n")
    assert read("cuda")[1] == ""


def program(**changes):
    return {"exists": True, "missing": [], "mpi": True, "status": 0, "said": "x", "flags": {"minbytes": "b"}, **changes}


RUN = {"name": "a_perf", "status": 2, "said": "x", "output": "x"}
NO_DEVICE = {**RUN, "output": "n1: Test CUDA failure common.cu:1000 'no CUDA-capable device is detected'"}


def probe(host, **changes):
    found = {
        "host": host, "prefix": "/p", "bin": "/p/bin", "record": RECORD, "prefix_kind": "built", "gpus": 0,
        "programs": {"a_perf": program(), "b_perf": program()}, "run": NO_DEVICE, **changes,
    }  # fmt: skip
    return declared(found, nvidia_answers.NCCL_TESTS_PROBE)


def test_good_programs_have_no_findings():
    assert check_nodes([probe("n1"), probe("n2", gpus=8, run={**RUN, "status": 0})]) == []
    other = {**RECORD, "platform": UBUNTU, "NCCL": "2.22.3"}
    assert check_nodes([probe("n1"), probe("u1", record=other)]) == [], "another system has a build of its own"


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"record": None, "prefix_kind": "none", "programs": {}, "run": None}, "nccl-tests", "none in /p"),
        ({"record": {**RECORD, "source": "sha256 1"}}, "source of nccl-tests", "sha256 1"),
        ({"record": {**RECORD, "NCCL": "2.22.3"}}, "build of nccl-tests", "NCCL 2.22.3"),
        ({"programs": {"b_perf": program(exists=False)}}, "nccl-tests", "no b_perf in /p/bin"),
        ({"programs": {"a_perf": program(missing=["libnccl.so.2"], status=127, mpi=False)}, "run": None},
         "libraries", "no libnccl.so.2, which a_perf need"),
        ({"programs": {"a_perf": program(mpi=False)}}, "MPI", "a_perf without libmpi.so"),
        ({"programs": {"a_perf": program(status=127, said="Illegal instruction")}}, "nccl-tests", "status 127"),
        ({"run": RUN}, "nccl-tests", "a_perf ended with status 2 and said: x"),
        ({"run": NO_DEVICE, "gpus": 1}, "nccl-tests", "a_perf ended with status 2 and said: x"),
        ({"run": {**RUN, "status": 124}}, "nccl-tests", "a_perf did not end in time and said: x"),
    ],
)  # fmt: skip
def test_faults_of_a_node_are_findings(changes, check, found):
    (finding,) = check_nodes([probe("n1"), probe("n2", **changes), probe("n3")])
    assert (finding.host, finding.check) == ("n2", check) and found in finding.found


def run(step, capsys, **params):
    with patch_module_args({"step": step, **params}), pytest.raises(SystemExit):
        nccl_tests.main()
    return json.loads(capsys.readouterr().out)


def test_this_machine_has_a_state(capsys, tmp_path):
    given = {"prefix": str(tmp_path / "none"), "tools": ["sh", "no-such-tool"]}
    found = run("read", capsys, **given)["state"]
    assert set(found) <= set(re.findall(r"C\((\w+)\)", yaml.safe_load(nccl_tests.RETURN)["state"]["description"]))
    assert (found["missing"], found["prefix_kind"]) == (["no-such-tool"], "none")


def test_programs_of_this_machine_are_asked(capsys, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / ".trainyard.json").write_text(json.dumps(RECORD))
    program = tmp_path / "bin/a_perf"
    program.write_text("#!/bin/sh\necho '[-b,--minbytes <size>]'\ntest -z \"$LD_LIBRARY_PATH\"\n")
    program.chmod(0o755)
    me = {"prefix": str(tmp_path), "user": subprocess.check_output(["id", "-un"], text=True).strip()}
    found = run("probe", capsys, host="n1", programs=["a_perf", "b_perf"], **me)["probe"]
    assert set(found) <= set(re.findall(r"C\((\w+)\)", yaml.safe_load(nccl_tests.RETURN)["probe"]["description"]))
    assert found["programs"]["a_perf"]["flags"] == {"minbytes": "b"} and not found["programs"]["b_perf"]["exists"]
    assert found["run"]["status"] == 0
    refused = run("probe", capsys, host="n1", programs=["a_perf"], prefix=str(tmp_path), user="no-such-user")
    assert refused["msg"].startswith("n1: the programs cannot be run as no-such-user:")


def test_plan_and_findings_as_filters():
    assert of_hosts("nccl_tests_plan", [state("n1", H100)], WANTED)["nodes"]["n1"]["action"] == "build"
    (finding,) = of_hosts("nccl_tests_findings", [probe("n1", run=RUN)])
    assert finding["action"] == "run it there: /p/bin/a_perf -b 8 -e 8 -n 1 -w 0"


SETTINGS = {
    **{"commit": 40 * "a", "repository": "https://git.example.org/x.git", "url": "", "sha256": "", "local_file": ""},
    **{"gencode": "auto", "make_options": ["DEBUG=1"], "programs": ["all_reduce"]},
    **{"prefix": "/opt/trainyard/nccl-tests", "software": "/opt/trainyard"},
}


@pytest.mark.parametrize(
    ("changes", "from_git", "found"),
    [
        ({}, True, []),
        ({"commit": "main"}, True, ["nccl_tests_commit is 'main'"]),
        ({"repository": "https://me:secret@x/y"}, True, ["nccl_tests_repository or nccl_tests_url has a password"]),
        ({}, False, ["nccl_tests_sha256 is ''", "nccl_tests_url is ''"]),
        ({"make_options": ["MPI=0", "x"]}, True, ["nccl_tests_make_options has MPI=0, x"]),
        ({"gencode": "sm_90", "programs": []}, True, ["nccl_tests_gencode is 'sm_90'", "nccl_tests_programs is []"]),
        ({"prefix": "/opt/trainyard"}, True, ["nccl_tests_prefix is '/opt/trainyard'"]),
    ],
)
def test_findings_on_the_input(changes, from_git, found):
    findings = list(input_findings({**SETTINGS, **changes}, from_git))
    assert [finding.found for finding in findings] == found
    assert "secret" not in str(findings)


@pytest.mark.parametrize("evil", [
    f"{flags(70, 90)} -ccbin=/home/train/evil", f"{flags(70, 90)}$(shell touch /owned)", f"{flags(70, 90)}\nall:",
    "-gencode=arch=compute_70,code=sm_90,code=$(id) compute_90", f"{flags(70, 90)} ",
    "-gencode=arch=compute_70,code=[sm_90",
])  # fmt: skip
def test_the_record_of_one_node_gives_no_word_to_the_build_of_another(evil):
    """It names more GPUs than there are, as a build that serves them all would."""
    nodes = [state("n1", H100), state("n3", H100)]
    nodes[1]["record"] = plan_builds(nodes, {**WANTED, "gencode": evil})[0]["n3"]["record"]
    plan, findings = plan_builds(nodes, WANTED)
    assert findings == [] and plan["n1"]["record"]["make"][-1] == f"NVCC_GENCODE={flags(90)}"


def test_root_compiles_with_no_cuda_that_others_can_exchange():
    nodes = [state(host, H100) for host in ("n1", "n2")]
    for node in nodes:
        node["cuda"]["exchangeable"] = "/home/joe/cuda (drwxr-xr-x, of joe)"
    # Only the node that builds runs it.
    (found,) = of_hosts("nccl_tests_plan", nodes, WANTED)["findings"]
    assert (found["host"], found["check"]) == ("n1", "CUDA") and "of joe" in found["found"]
    assert (
        plan_builds([{**node, "record": plan_builds(nodes, WANTED)[0]["n1"]["record"]} for node in nodes], WANTED)[1]
        == []
    )
