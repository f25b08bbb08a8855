"""The role nccl_tests: built on one node, copied to the others, verified on each, rebuilt after a change.

CUDA, NCCL and the source of nccl-tests are fakes; make, gcc, git, Open MPI, the role and the nodes are real.
"""

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

PREFIX = "/opt/trainyard/nccl-tests"
LAB = "/var/lib/nccl-tests-lab"
NOT_READY = "nccl-tests are not ready on all nodes: 1 finding."
PROJECT = Path(__file__).resolve().parents[3]
# Every program, and what a node says of itself to one who asks.
STATE = f"cat {PREFIX}/.trainyard.json; cd {PREFIX}/bin && sha256sum *"


@pytest.fixture(scope="module")
def commits(last):
    return last.check_output(f"sudo git --git-dir={LAB}/git/nccl-tests.git rev-parse first second broken").split()


@pytest.fixture(scope="module")
def role(run_playbook, commits):
    """Run the role with the commit of the converge, unless another one is given."""

    def run(*arguments, **given):
        return run_playbook("changed.yml", *arguments, **{"nccl_tests_commit": commits[0], **given})

    return run


@pytest.fixture(scope="module", autouse=True)
def leave_the_nodes_as_they_were(node, node_names, last, run_playbook):
    yield
    run_playbook("changed.yml", step="absent").expect(0)
    for name in node_names:
        assert not node(name).file(PREFIX).exists
    last.check_output("sudo systemctl stop nccl-tests-git")
    unit = "/etc/systemd/system/nccl-tests-git.service"
    run_playbook("molecule/purge.yml", purge_since=f"{LAB}/packages", purge_paths=[LAB, unit]).expect(0)
    last.check_output("sudo systemctl daemon-reload")


def record(host):
    return json.loads(host.check_output(f"cat {PREFIX}/.trainyard.json"))


def test_one_node_built_for_all(host, first, commits, node_names):
    assert host.check_output(STATE) == first.check_output(STATE)
    assert record(host)["source"] == f"commit {commits[0]}"
    assert (record(host)["CUDA"], record(host)["NCCL"]) == ("13.0.88", "2.28.9")
    assert host.exists("make") == (host.backend.get_hostname() == node_names[0]), "only the first node has the tools"


def test_the_programs_run_to_the_missing_device(host):
    """With as little environment as mpirun passes on."""
    run = host.run(f"env -i PATH=/usr/bin:/bin {PREFIX}/bin/all_reduce_perf_mpi -b 8 -e 8")
    assert run.rc == 2
    assert "no CUDA-capable device is detected" in run.stderr


def test_nothing_is_left_of_the_build(host):
    assert host.run("ls -d /opt/trainyard/.nccl-tests-*").rc != 0


def test_mpirun_starts_them_on_all_nodes(first, node_names):
    """One rank on the node itself is enough to see that mpirun passes no environment that they need."""
    run = first.run(f"timeout 60 mpirun -n 2 --oversubscribe {PREFIX}/bin/all_gather_perf_mpi")
    assert "no CUDA-capable device is detected" in run.stderr


def test_a_new_node_gets_a_copy_and_the_others_nothing(role, last, node_names):
    before = last.check_output(STATE)
    last.check_output(f"sudo rm -r {PREFIX}")
    done = role().expect(0)
    assert {name for name, number in done.changes.items() if number} == {node_names[-1]}
    assert f"{node_names[-1]}: nccl-tests are copied from {node_names[0]} (new): make MPI=1 MPI_HOME=" in done.text
    assert last.check_output(STATE) == before


@pytest.mark.long
def test_another_commit_is_built_once_and_a_preview_says_so(role, node, node_names, commits):
    before = node(node_names[0]).check_output(STATE)
    said = f"(source commit {commits[1]} instead of commit {commits[0]})"
    role("--check", nccl_tests_commit=commits[1]).expect(0, f"{node_names[0]}: nccl-tests are built {said}")
    assert node(node_names[0]).check_output(STATE) == before
    done = role(nccl_tests_commit=commits[1]).expect(0)
    for name in node_names[1:]:
        assert f"{name}: nccl-tests are copied from {node_names[0]} {said}" in done.text
    assert len({node(name).check_output(STATE) for name in node_names}) == 1
    assert record(node(node_names[-1]))["source"] == f"commit {commits[1]}"


@pytest.mark.long
def test_another_cuda_is_a_reason_to_build(role, node, node_names, commits):
    nvcc = f"{LAB}/cuda/bin/nvcc"
    changed = node_names[:-1]
    for name in changed:
        node(name).check_output(f"sudo sed -i 's/13\\.0/13.1/g' {nvcc}")
    try:
        done = role("--check", nccl_tests_commit=commits[1])
        assert f"{node_names[0]}: nccl-tests are built (CUDA 13.1.88 instead of 13.0.88)" in done.text
        assert done.changes[node_names[-1]] == 0, "what it has is for its CUDA"
    finally:
        for name in changed:
            node(name).check_output(f"sudo sed -i 's/13\\.1/13.0/g' {nvcc}")


@pytest.mark.long
def test_an_archive_is_built_and_a_wrong_one_is_refused(role, first):
    folder = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY") or PROJECT / ".cache") / "nccl-tests-lab"
    archive = folder / "nccl-tests.tar.gz"
    given = {"nccl_tests_provider": "archive", "nccl_tests_local_file": str(archive)}
    before = first.check_output(STATE)
    done = role("--limit", "n1", **given, nccl_tests_sha256="1" * 64).fails()
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert f"on the controller has sha256 {sha256}, expected {'1' * 64}. Correct nccl_tests_local_file" in done.text
    assert set(done.changes.values()) == {0}
    assert first.check_output(STATE) == before
    done = role("--limit", "n1", **given, nccl_tests_sha256=sha256).expect(0)
    assert record(first)["source"] == f"sha256 {sha256}"


@pytest.mark.long
def test_a_commit_of_a_bundle_is_built_without_its_repository(role, first, last, commits, tmp_path):
    archive = last.check_output(f"sudo git --git-dir={LAB}/git/nccl-tests.git archive {commits[1]} | base64")
    (tmp_path / "commit.tar").write_bytes(content := base64.b64decode(archive))
    # The bundle's files have their sums and their commits as names.
    bundled = dict.fromkeys((hashlib.sha256(content).hexdigest(), commits[1]), str(tmp_path / "commit.tar"))
    given = {"nccl_tests_commit": commits[1], "nccl_tests_repository": "git://127.0.0.1:1/nccl-tests.git"}
    role("--limit", "n1", **given, bundled=bundled).expect(0)
    assert record(first)["source"] == f"commit {commits[1]}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"nccl_tests_repository": "git://127.0.0.1:1/nccl-tests.git", "nccl_tests_commit": "1" * 40},
            "could not be built: Fetch a commit that a branch or tag reaches in git://127.0.0.1:1/nccl-tests.git: "
            "fatal: unable to connect to 127.0.0.1: 127.0.0.1[0: 127.0.0.1]: errno=Connection refused. The earlier "
            "build is still in place.",
        ),
        (
            {"nccl_tests_commit": "1" * 40},
            f"nccl-tests.git: fatal: reference is not a tree: {'1' * 40}. The earlier build",
        ),
        ({"nccl_tests_commit": "broken"}, "non-zero return code. make said:"),
    ],
)
def test_a_build_that_cannot_be_leaves_what_was_there(role, first, commits, given, said):
    before = first.check_output(STATE)
    if given.get("nccl_tests_commit") == "broken":
        given = {"nccl_tests_commit": commits[2]}
    done = role("--limit", "n1", **given).fails(said)
    assert ("#error this commit does not compile" in done.text) == ("make said" in said)
    assert first.check_output(STATE) == before
    assert first.run("ls -d /opt/trainyard/.nccl-tests-building*").rc != 0


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (
            {"nccl_tests_manage_system": False, "nccl_tests_prefix": "/var/lib/dpkg", "nccl_tests_min_free_mb": 10**9},
            ["3 findings. Nothing was changed. 1. nccl_tests_prefix on n2 found /var/lib/dpkg", "2. disk on n2 found"],
        ),
        ({"nccl_tests_commit": "main"}, ["nccl_tests_commit is 'main' expected a full commit"]),
    ],
)
def test_what_cannot_be_built_is_found_before_anything_is_changed(role, given, texts):
    role("--limit", "n2", **given).fails(*texts).changes_nothing()


@pytest.mark.long
def test_a_preview_of_a_bare_node_says_what_it_waits_for(role):
    done = role("--check", "--limit", "n2", nccl_tests_nccl_home="/opt/no-nccl")
    done.expect(0, "once the other roles have installed what is not there yet: n2: no include/nccl.h in /opt/no")


def test_a_node_that_lost_a_library_is_named(role, last, node_names):
    library = f"{LAB}/nccl/lib/libnccl.so.2"
    last.check_output(f"sudo mv {library} {library}.away")
    try:
        done = role(step="verify")
    finally:
        last.check_output(f"sudo mv {library}.away {library}")
    done.fails(f"libraries on {node_names[-1]} found no libnccl.so.2, which all_reduce_perf_mpi, all_gather")


@pytest.mark.long
def test_what_somebody_else_made_is_not_removed(role, last, node_names):
    last.check_output("sudo mkdir -p /opt/trainyard/by-hand")
    try:
        done = role("--limit", node_names[-1], step="absent", nccl_tests_prefix="/opt/trainyard/by-hand")
        done.fails("/opt/trainyard/by-hand was not made by the role nccl_tests, so it is not removed.")
        assert last.file("/opt/trainyard/by-hand").is_directory
    finally:
        last.check_output("sudo rmdir /opt/trainyard/by-hand")
