"""The role openmpi: which node builds, findings on nodes, its verification, and the state of a machine."""

import json

import openmpi
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.software.openmpi import check_program, compare_versions, input_findings, plan_builds
from filters import of_hosts
from job_samples import briefly

PREFIX = "/opt/trainyard/openmpi-4.1.8"
DEBIAN, UBUNTU = "debian 12 x86_64", "ubuntu 22.04 aarch64"
SHA256 = "ab" * 32
WANTED = {
    **{"version": "4.1.8", "sha256": SHA256, "prefix": PREFIX, "options": ["--disable-mpi-fortran"]},
    **{"cuda": "auto", "ucx": "auto", "min_free_mb": 2000},
}
CONFIGURE = [f"--prefix={PREFIX}", "--without-cuda", "--without-ucx", "--disable-mpi-fortran"]
RECORD = {"version": "4.1.8", "sha256": SHA256, "platform": DEBIAN, "configure": CONFIGURE}
STATE = {
    **{"platform": DEBIAN, "free_mb": 9000, "mpi": {"version": "4.1.4", "path": "/usr/bin/mpirun"}, "record": None},
    **{"prefix_kind": "none", "in_prefix": None, "link": "/opt/trainyard/openmpi", "link_kind": "none"},
    **{"cuda": "", "ucx": ""},
}


def state(host, **changes):
    return {**STATE, "host": host, "hostname": host, **changes}


def actions(plan):
    return {host: (node["action"], node["source"]) for host, node in plan.items()}


def test_the_first_node_of_each_platform_builds_for_the_others():
    nodes = [state("n1"), state("n2"), state("u1", platform=UBUNTU), state("n3"), state("u2", platform=UBUNTU)]
    plan, findings = plan_builds(nodes, WANTED)
    assert findings == []
    assert {host for host, node in plan.items() if node["action"] == "build"} == {"n1", "u1"}
    assert actions(plan).items() >= {"n2": ("copy", "n1"), "n3": ("copy", "n1"), "u2": ("copy", "u1")}.items()
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
    assert briefly(plan_builds(nodes, WANTED)[1]) == [
        ("n3", "openmpi_prefix", f"{PREFIX}, which this role did not make"),
        ("n4", "link", "/opt/trainyard/openmpi, which is no link"),
        ("n5", "disk", f"100 MB free for {PREFIX}"),
        ("n2", "CUDA and UCX", "CUDA in no folder, UCX in /usr"),
    ]
    _, findings = plan_builds([state("n1")], {**WANTED, "cuda": "/opt/cuda"})
    assert briefly(findings) == [("n1", "openmpi_cuda", "no CUDA headers in /opt/cuda")]


def test_nodes_with_another_version_are_findings():
    other = {"version": "5.0.7", "path": "/usr/bin/mpirun"}
    nodes = [state("n1"), state("n2"), state("n3", mpi=other), state("n4", mpi=None)]
    findings = compare_versions(nodes, "")
    assert briefly(findings) == [
        ("n3", "Open MPI", "Open MPI 5.0.7 (/usr/bin/mpirun)"),
        ("n4", "Open MPI", "no mpirun that answers as Open MPI"),
    ]
    assert {finding.expected for finding in findings} == {"Open MPI 4.1.4, as on n1, n2"}
    assert [finding.host for finding in compare_versions(nodes[:2], "4.1.8")] == ["n1", "n2"]
    assert compare_versions(nodes[:2], "") == compare_versions(nodes[:2], "4.1.4") == []
    assert [finding.host for finding in compare_versions([state("n1", mpi=None)], "")] == ["n1"]


def answers(*hosts, total=None):
    size = len(hosts)
    total = size * (size - 1) // 2 if total is None else total
    lines = [f"trainyard-mpi rank {rank} of {size} on {host} sum {total}\n" for rank, host in enumerate(hosts)]
    return "".join(reversed(lines))


SLOTS = {"gpu1": 2, "gpu2": 2}
NAMES = {"gpu1": "a", "gpu2": "b"}
RULE = "-" * 74 + "\n"
UNABLE = "ORTE was unable\n" * 6
# A shell's message may come after mpirun's, or in the midst of it and after many lines of Open MPI's own.
SHELL_LAST = f"{RULE}{UNABLE}{RULE}bash: orted: No such file\n"
SHELL_WITHIN = "[n1:7] ORTE_ERROR_LOG\n" * 4 + f"{RULE}{UNABLE}ssh: not found\n{RULE}lost\n"


def test_a_process_for_each_slot_on_the_right_hosts_is_right():
    assert check_program(SLOTS, NAMES, 0, "a warning of Open MPI\n" + answers("a", "a", "b", "b")) == []


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (answers("a", "a", "a", "b"), [("gpu1", "mpirun", "3 processes"), ("gpu2", "mpirun", "1 process")]),
        (answers("a", "a", "b", "b", "c"), [("", "mpirun", "1 process on c")]),
        (answers("a", "a", "b", "b", total=5), [("", "MPI_Allreduce", "sum 5 of the ranks 0, 1, 2, 3")]),
    ],
)
def test_a_wrong_answer_is_described(output, found):
    assert briefly(check_program(SLOTS, NAMES, 0, output)) == found


@pytest.mark.parametrize(
    ("status", "output", "printed"),
    [
        (1, "----\n b: no route\n", "b: no route"),
        (1, SHELL_LAST, "bash: orted: No such file" + " / ORTE was unable" * 5),
        (1, SHELL_WITHIN, "ssh: not found / lost" + " / [n1:7] ORTE_ERROR_LOG" * 4),
        (124, "", "nothing"),
        (0, "", "nothing"),
        # All answered, and then it failed.
        (1, answers("a", "a", "b", "b"), "nothing"),
    ],
)
def test_a_failed_verification_is_described(status, output, printed):
    end = "it did not end in time" if status == 124 else f"it ended with status {status}"
    assert briefly(check_program(SLOTS, NAMES, status, output)) == [("", "mpirun", f"{end} and printed: {printed}")]


def run(step, capsys, **params):
    with patch_module_args({"step": step, **params}), pytest.raises(SystemExit):
        openmpi.main()
    return json.loads(capsys.readouterr().out)


def test_this_machine_has_a_state(capsys, tmp_path):
    (tmp_path / "cuda/include").mkdir(parents=True)
    (tmp_path / "cuda/include/cuda.h").touch()
    (tmp_path / "built").mkdir()
    (tmp_path / "built/.trainyard.json").write_text(json.dumps(RECORD))
    (tmp_path / "link").symlink_to("built")
    given = {"host": "n1", "link": str(tmp_path / "link"), "cuda": str(tmp_path / "cuda"), "ucx": "none"}
    found = run("read", capsys, prefix=str(tmp_path / "built"), **given)["state"]
    described = yaml.safe_load(openmpi.RETURN)["state"]["description"]
    assert [name for name in found if f"C({name})" not in described] == []
    assert (found["record"], found["prefix_kind"], found["link_kind"]) == (RECORD, "built", "link")
    assert (found["cuda"], found["ucx"]) == (str(tmp_path / "cuda"), "")
    found = run("read", capsys, prefix=str(tmp_path / "cuda"), **{**given, "link": str(tmp_path)})["state"]
    assert (found["record"], found["prefix_kind"], found["link_kind"]) == (None, "foreign", "foreign")
    found = run("read", capsys, prefix=str(tmp_path / "not/there"), **given)["state"]
    assert found["prefix_kind"] == "none" and found["free_mb"] > 0


def test_odd_versions_are_found():
    found = of_hosts("openmpi_version_findings", [state("n1"), state("n2", mpi=None)], "")
    assert [finding["host"] for finding in found] == ["n2"]


def test_nothing_is_started_as_a_user_who_is_not_there(capsys):
    result = run("verify", capsys, user="nobody-here", hosts=["n1"], mpirun="/usr/bin/mpirun")
    assert result["msg"].startswith("mpirun could not be started as nobody-here: ")


def test_of_other_nodes_the_first_one_says_what_ran():
    ran = {"status": 0, "output": answers("a", "a", "a", "b")}
    nodes = {
        name: {"__openmpi_state": {"state": {"hostname": host}}, "__openmpi_ran": ran} for name, host in NAMES.items()
    }
    found = of_hosts("openmpi_ranks_findings", nodes, 2)
    assert [(each["host"], each["found"]) for each in found] == [
        ("gpu1", "3 processes"), ("gpu2", "1 process, as mpirun on gpu1 printed"),
    ]  # fmt: skip


OFED_PREFIX = "/usr/mpi/gcc/openmpi-4.1.7a1"
OFED = {"version": "4.1.7a1", "path": f"{OFED_PREFIX}/bin/mpirun", "lib": f"{OFED_PREFIX}/lib64"}
THERE = {**WANTED, "existing": True, "version": "", "prefix": OFED_PREFIX}


def test_an_existing_open_mpi_must_be_the_same_on_all_nodes():
    plan, findings = plan_builds([state("n1", in_prefix=OFED), state("n2", in_prefix=OFED)], THERE)
    assert findings == [] and {node["action"] for node in plan.values()} == {"none"}
    older = {**OFED, "version": "4.1.5a1"}
    nodes = [state("n1", in_prefix=OFED), state("n2", in_prefix=OFED), state("n3"), state("n4", in_prefix=older)]
    assert briefly(plan_builds(nodes, THERE)[1]) == [
        ("n3", "openmpi_prefix", f"no {OFED_PREFIX}/bin/mpirun that answers as Open MPI"),
        ("n4", "Open MPI", f"Open MPI 4.1.5a1 ({OFED['path']})"),
    ]
    _, findings = plan_builds([state("n1", in_prefix=OFED, link_kind="foreign")], {**THERE, "version": "4.1.4"})
    assert [finding.check for finding in findings] == ["link", "Open MPI"]


def test_plan_as_a_filter():
    result = of_hosts("openmpi_plan", [state("n1")], WANTED)
    assert result["findings"] == [] and result["nodes"]["n1"]["action"] == "build"


SETTINGS = {
    **{"provider": "source", "version": "4.1.8", "manage_system": True, "sha256": 64 * "0", "local_file": ""},
    **{"url": "https://x/y", "prefix": PREFIX, "configure_options": ["--with-slurm"]},
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
    findings = input_findings({**SETTINGS, **changes}, "/link", {"4.1.8": "x"})
    assert [finding.found for finding in findings] == found
