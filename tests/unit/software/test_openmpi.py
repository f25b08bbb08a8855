"""The role openmpi: who builds, which nodes are odd, the judgement of its proof, the documentation of its modules."""

from __future__ import annotations

import json

import openmpi_state
import openmpi_verify
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.software import openmpi
from ansible.module_utils.trainyard.software.openmpi import compare_versions, judge_program, plan_builds
from filters import FILTERS

PREFIX = "/opt/trainyard/openmpi-4.1.8"
DEBIAN, UBUNTU = "debian 12 x86_64", "ubuntu 22.04 aarch64"
WANTED = {
    "version": "4.1.8",
    "sha256": "ab" * 32,
    "prefix": PREFIX,
    "options": ["--disable-mpi-fortran"],
    "cuda": "auto",
    "ucx": "auto",
    "min_free_mb": 2000,
}
RECORD = {
    "version": "4.1.8",
    "sha256": "ab" * 32,
    "platform": DEBIAN,
    "configure": [f"--prefix={PREFIX}", "--without-cuda", "--without-ucx", "--disable-mpi-fortran"],
}


def state(host, **changes):
    return {
        "host": host,
        "hostname": host,
        "platform": DEBIAN,
        "free_mb": 9000,
        "mpi": {"version": "4.1.4", "path": "/usr/bin/mpirun"},
        "record": None,
        "prefix_kind": "none",
        "in_prefix": None,
        "link": "/opt/trainyard/openmpi",
        "link_kind": "none",
        "cuda": "",
        "ucx": "",
        **changes,
    }


def actions(plan):
    return {host: (node["action"], node["source"]) for host, node in plan.items()}


def texts(findings):
    return [(finding.host, finding.check, finding.found) for finding in findings]


def test_the_first_node_of_each_platform_builds_for_the_others():
    nodes = [state("n1"), state("n2"), state("u1", platform=UBUNTU), state("n3"), state("u2", platform=UBUNTU)]
    plan, findings = plan_builds(nodes, WANTED)
    assert findings == []
    assert actions(plan) == {
        "n1": ("build", "n1"),
        "n2": ("copy", "n1"),
        "u1": ("build", "u1"),
        "n3": ("copy", "n1"),
        "u2": ("copy", "u1"),
    }
    assert plan["n1"]["record"] == RECORD


def test_a_build_is_copied_to_a_new_node():
    nodes = [state("new"), state("n2", record=RECORD, prefix_kind="built"), state("n3", record=RECORD)]
    plan, findings = plan_builds(nodes, WANTED)
    assert findings == []
    assert actions(plan) == {"new": ("copy", "n2"), "n2": ("none", "n2"), "n3": ("none", "n2")}


@pytest.mark.parametrize(
    "changes", [{"options": []}, {"sha256": "cd" * 32}, {"version": "4.1.9"}, {"cuda": "none", "ucx": "/opt/ucx"}]
)
def test_another_source_or_configuration_is_built_anew(changes):
    nodes = [state("n1", record=RECORD, ucx=changes.get("ucx", ""))]
    assert actions(plan_builds(nodes, {**WANTED, **changes})[0]) == {"n1": ("build", "n1")}


def test_cuda_and_ucx_are_used_where_they_are():
    plan, findings = plan_builds([state("n1", cuda="/usr/local/cuda", ucx="/usr")], WANTED)
    assert findings == []
    assert plan["n1"]["record"]["configure"][1:3] == ["--with-cuda=/usr/local/cuda", "--with-ucx"]


def test_findings_on_a_build_come_at_once():
    nodes = [
        state("n1"),
        state("n2", ucx="/usr"),
        state("n3", prefix_kind="foreign"),
        state("n4", link_kind="foreign"),
        state("n5", free_mb=100),
        state("n6", free_mb=100, record=RECORD, prefix_kind="built"),
    ]
    assert texts(plan_builds(nodes, WANTED)[1]) == [
        ("n3", "openmpi_prefix", f"{PREFIX}, which this role did not make"),
        ("n4", "link", "/opt/trainyard/openmpi, which is no link"),
        ("n5", "disk", f"100 MB free for {PREFIX}"),
        ("n2", "CUDA and UCX", "CUDA in no folder, UCX in /usr"),
    ]
    _, findings = plan_builds([state("n1")], {**WANTED, "cuda": "/opt/cuda"})
    assert texts(findings) == [("n1", "openmpi_cuda", "no CUDA headers in /opt/cuda")]


def test_odd_nodes_are_named():
    nodes = [
        state("n1"),
        state("n2"),
        state("n3", mpi={"version": "5.0.7", "path": "/usr/bin/mpirun"}),
        state("n4", mpi=None),
    ]
    findings = compare_versions(nodes, "")
    assert texts(findings) == [
        ("n3", "Open MPI", "Open MPI 5.0.7 (/usr/bin/mpirun)"),
        ("n4", "Open MPI", "no mpirun that answers as Open MPI"),
    ]
    assert {finding.expected for finding in findings} == {"Open MPI 4.1.4, as on n1, n2"}
    assert [finding.host for finding in compare_versions(nodes[:2], "4.1.8")] == ["n1", "n2"]
    assert compare_versions(nodes[:2], "") == compare_versions(nodes[:2], "4.1.4") == []
    assert texts(compare_versions([state("n1", mpi=None)], "")) == [
        ("n1", "Open MPI", "no mpirun that answers as Open MPI")
    ]


def answers(*hosts, total=None):
    size = len(hosts)
    total = size * (size - 1) // 2 if total is None else total
    lines = [f"trainyard-mpi rank {rank} of {size} on {host} sum {total}\n" for rank, host in enumerate(hosts)]
    return "".join(reversed(lines))


SLOTS = {"gpu1": 2, "gpu2": 2}
NAMES = {"gpu1": "a", "gpu2": "b"}


def test_a_process_for_each_slot_on_the_right_hosts_is_right():
    assert judge_program(SLOTS, NAMES, 0, "a warning of Open MPI\n" + answers("a", "a", "b", "b")) == []


@pytest.mark.parametrize(
    ("status", "output", "found"),
    [
        (0, answers("a", "a", "a", "b"), [("gpu1", "mpirun", "3 processes"), ("gpu2", "mpirun", "1 process")]),
        (0, answers("a", "a", "b", "b", "c"), [("", "mpirun", "1 process on c")]),
        (0, answers("a", "a", "b", "b", total=5), [("", "MPI_Allreduce", "sum 5 of the ranks 0, 1, 2, 3")]),
        (1, "----\n b: no route\n", [("", "mpirun", "it ended with status 1 and printed: b: no route")]),
        # A shell's message may come after mpirun's.
        (
            1,
            "".join(("-" * 74 + "\n", "ORTE was unable\n" * 6, "-" * 74 + "\n", "bash: orted: No such file\n")),
            [
                (
                    "",
                    "mpirun",
                    "it ended with status 1 and printed: bash: orted: No such file" + " / ORTE was unable" * 5,
                )
            ],
        ),
        # It may come in the midst of it, and after much that Open MPI says of itself.
        (
            1,
            "".join(
                (
                    "[n1:7] ORTE_ERROR_LOG\n" * 4,
                    "-" * 74 + "\n",
                    "ORTE was unable\n" * 6,
                    "ssh: not found\n",
                    "-" * 74 + "\nlost\n",
                )
            ),
            [
                (
                    "",
                    "mpirun",
                    "it ended with status 1 and printed: ssh: not found / lost" + " / [n1:7] ORTE_ERROR_LOG" * 4,
                )
            ],
        ),
        (124, "", [("", "mpirun", "it did not end in time and printed: nothing")]),
        (0, "", [("", "mpirun", "it ended with status 0 and printed: nothing")]),
        # All answered, and then it failed.
        (1, answers("a", "a", "b", "b"), [("", "mpirun", "it ended with status 1 and printed: nothing")]),
    ],
)
def test_a_failed_verification_is_described(status, output, found):
    assert texts(judge_program(SLOTS, NAMES, status, output)) == found


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def test_this_machine_has_a_state(capsys, tmp_path):
    (tmp_path / "cuda/include").mkdir(parents=True)
    (tmp_path / "cuda/include/cuda.h").touch()
    (tmp_path / "built").mkdir()
    (tmp_path / "built/.trainyard.json").write_text(json.dumps(RECORD))
    (tmp_path / "link").symlink_to("built")
    given = {"host": "n1", "link": str(tmp_path / "link"), "cuda": str(tmp_path / "cuda"), "ucx": "none"}
    found = run(openmpi_state, capsys, prefix=str(tmp_path / "built"), **given)["state"]
    described = yaml.safe_load(openmpi_state.RETURN)["state"]["description"]
    assert [name for name in found if f"C({name})" not in described] == []
    assert (found["record"], found["prefix_kind"], found["link_kind"]) == (RECORD, "built", "link")
    assert (found["cuda"], found["ucx"]) == (str(tmp_path / "cuda"), "")
    found = run(openmpi_state, capsys, prefix=str(tmp_path / "cuda"), **{**given, "link": str(tmp_path)})["state"]
    assert (found["record"], found["prefix_kind"], found["link_kind"]) == (None, "foreign", "foreign")
    found = run(openmpi_state, capsys, prefix=str(tmp_path / "not/there"), **given)["state"]
    assert found["prefix_kind"] == "none" and found["free_mb"] > 0


def test_odd_versions_are_found_before_anything_is_started(capsys):
    result = run(openmpi_verify, capsys, user="nobody-here", states=[state("n1"), state("n2", mpi=None)])
    assert [finding["host"] for finding in result["findings"]] == ["n2"]


OFED = {
    "version": "4.1.7a1",
    "path": "/usr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun",
    "lib": "/usr/mpi/gcc/openmpi-4.1.7a1/lib64",
}
THERE = {**WANTED, "existing": True, "version": "", "prefix": "/usr/mpi/gcc/openmpi-4.1.7a1"}


def test_an_existing_open_mpi_must_be_the_same_on_all_nodes():
    plan, findings = plan_builds([state("n1", in_prefix=OFED), state("n2", in_prefix=OFED)], THERE)
    assert findings == [] and {node["action"] for node in plan.values()} == {"none"}


def test_nodes_without_the_open_mpi_of_the_prefix_are_findings():
    older = {**OFED, "version": "4.1.5a1"}
    nodes = [state("n1", in_prefix=OFED), state("n2", in_prefix=OFED), state("n3"), state("n4", in_prefix=older)]
    _, findings = plan_builds(nodes, THERE)
    assert texts(findings) == [
        ("n3", "openmpi_prefix", "no /usr/mpi/gcc/openmpi-4.1.7a1/bin/mpirun that answers as Open MPI"),
        ("n4", "Open MPI", f"Open MPI 4.1.5a1 ({OFED['path']})"),
    ]
    _, findings = plan_builds([state("n1", in_prefix=OFED, link_kind="foreign")], {**THERE, "version": "4.1.4"})
    assert [finding.check for finding in findings] == ["link", "Open MPI"]


def test_plan_as_a_filter():
    result = FILTERS["openmpi_plan"]([state("n1")], WANTED)
    assert result["findings"] == [] and result["nodes"]["n1"]["action"] == "build"


SETTINGS = {
    **{"provider": "source", "version": "4.1.8", "manage_system": True, "sha256": 64 * "0", "local_file": ""},
    **{"url": "https://x/y", "prefix": "/opt/trainyard/openmpi-4.1.8", "configure_options": ["--with-slurm"]},
    **{"cuda": "auto", "ucx": "/opt/ucx", "verify_slots": 1},
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"provider": "distro", "version": "", "prefix": "", "sha256": ""}, []),
        ({"version": ""}, ["openmpi_version is ''"]),
        (
            {"provider": "distro", "manage_system": False},
            ["openmpi_provider is 'distro', and trainyard_manage_system is false"],
        ),
        ({"sha256": "x", "url": "y"}, ["openmpi_sha256 is 'x'", "openmpi_url is 'y'"]),
        ({"prefix": "/usr/local"}, ["openmpi_prefix is '/usr/local'"]),
        ({"provider": "existing", "prefix": "/link"}, ["openmpi_prefix is '/link'"]),
        ({"configure_options": ["--prefix=/x", "y"]}, ["openmpi_configure_options has --prefix=/x, y"]),
        ({"cuda": "yes", "verify_slots": 0}, ["openmpi_cuda is 'yes'", "openmpi_verify_slots is 0"]),
    ],
)
def test_findings_on_the_input(changes, found):
    findings = openmpi.input_findings({**SETTINGS, **changes}, "/link", {"4.1.8": "x"})
    assert [finding.found for finding in findings] == found
