"""Jobs through the launcher oneflow: real training in both styles on one node and on two, and ranks that fail."""

import re

import pytest
from lab_jobs import PROJECT, wait_until

LAUNCH = PROJECT / "jobs/oneflow-digits.yml"
ADDRESS_LIST = PROJECT / "jobs/oneflow-address-list.yml"
# Of OneFlow's C++ part, on standard error: W20261121 13:10:48.101563   995 rpc_client.cpp:190] ...
OF_GLOG = re.compile(r"libibverbs not available, .*|[IW]\d{8} .*")


def checksums(run):
    """The checksums of all ranks that the first rank prints."""
    return re.findall(r"^rank (\d) parameters sha256 ([0-9a-f]{64})$", run.log(0), re.MULTILINE)


def environment(node, pid):
    return node.host.run(f"runuser -u train -- cat /proc/{pid}/environ").stdout.split("\0")


@pytest.fixture(scope="module")
def two(play):
    """OneFlow's launch module on two nodes, a rank on each."""
    return play.launch(LAUNCH).wait()


def test_two_nodes_train_to_equal_parameters(two, left):
    assert two.rc == 0, two.output
    assert two.summary["state"] == "succeeded"
    assert [rank for rank, _ in checksums(two)] == ["0", "1"]
    assert len({checksum for _, checksum in checksums(two)}) == 1
    assert two.accuracy > 90
    assert re.search(r"2/2 ranks running   step \d+/660   epoch \d+   loss \d", two.output), two.output
    assert left(two.job_id) == {}


def test_only_the_first_node_prints_and_saves(two, nodes):
    assert [line for line in two.log(1).splitlines() if not OF_GLOG.fullmatch(line)] == []
    saved = {name: node.host.file(f"{two.job_dir}/parameters").is_directory for name, node in nodes.items()}
    assert saved == {"n1": True, "n2": False}


def test_all_nodes_have_the_same_scripts(two, nodes):
    digests = {node.host.check_output(f"cd {two.job_dir}/source/oneflow && sha256sum *.py") for node in nodes.values()}
    assert len(digests) == 1
    assert {line.split()[1] for line in digests.pop().splitlines()} >= {"train.py", "place.py", "pictures.py"}


def test_every_rank_and_every_launch_module_has_a_log(two):
    collected = {path.name for path in (two.folder / "logs").iterdir()}
    assert {"agent_0.log", "agent_1.log", "rank_0.log", "rank_1.log"} <= collected


def test_scripts_that_configure_themselves_train_the_same(two, play, nodes, left):
    run = play.launch(ADDRESS_LIST).expect(0)
    assert checksums(run) == checksums(two)
    names = [[process["name"] for process in node["processes"]] for node in run.file("plan.json")["nodes"]]
    assert names == [["rank0"], ["rank1"]]
    assert [line for line in run.log(1).splitlines() if not OF_GLOG.fullmatch(line)] == []
    assert not nodes["n2"].host.file(f"{run.job_dir}/parameters").exists
    assert left(run.job_id) == {}


@pytest.mark.parametrize("given", [{"job_nodes": 1, "job_ranks_per_node": 2}, {"job_launcher": "direct"}])
def test_two_ranks_on_one_node_and_ranks_that_start_one_by_one_train_the_same(two, play, left, given):
    run = play.launch(LAUNCH, **given).expect(0)
    assert checksums(run) == checksums(two)
    assert left(run.job_id) == {}


def test_one_node_trains_alone_in_either_style(play):
    runs = [play.launch(file, job_nodes=1) for file in (LAUNCH, ADDRESS_LIST)]
    for run in runs:
        run.expect(0)
        assert [rank for rank, _ in checksums(run)] == ["0"]
    assert checksums(runs[0]) == checksums(runs[1])


# Two ranks on each node; rank 3 fails when all are there. The launch module then kills its whole process group.
FAILING = """
touch $TRAINYARD_JOB_DIR/up-$RANK
[ $RANK = 3 ] || exec sleep 600
until [ -e $TRAINYARD_JOB_DIR/up-2 ]; do sleep 0.1; done
echo no device answers
exit 7
"""


def test_a_rank_that_fails_is_named_and_ends_the_job_everywhere(play, left):
    run = play.launch(LAUNCH, job_ranks_per_node=2, job_command=["sh", "-c", FAILING], job_source="")
    first = "  rank 3 on n2 failed first: exit code 7; its log ends with: no device answers"
    run.shows(2, first, f"  last lines of {run.job_dir}/hosts/n2/logs/rank_3.log on n2:", "    | no device answers")
    assert left(run.job_id) == {}


def test_a_launch_module_has_a_session_of_its_own_and_a_killed_rank_is_named(play, nodes, left):
    run = play.launch(LAUNCH, job_command=["sleep", "600"], job_source="")
    run.wait_for("2/2 ranks running")
    node, pids = nodes["n2"], f"{run.job_dir}/hosts/*/pids.json"
    wait_until(lambda: node.host.file(pids).exists, "the launch module of n2")
    pid = node.table.read_json(pids)["agent"]["pid"]
    rank = wait_until(
        lambda: [each for each in node.ranks(run.job_id) if "RANK=1" in environment(node, each)], "rank 1 on n2"
    )
    sessions = {int(node.host.check_output(f"ps -o sid= -p {each}")) for each in (pid, *rank)}
    assert sessions == {pid}
    sleeping = wait_until(
        lambda: [each for each in rank if node.host.run(f"cat /proc/{each}/comm").stdout.strip() == "sleep"],
        "the program of rank 1",
    )
    node.table.kill(sleeping[0])
    run.shows(2, "  rank 1 on n2 failed first: killed by SIGKILL")
    assert left(run.job_id) == {}


@pytest.mark.parametrize(("file", "place"), [(LAUNCH, "RANK=1"), (ADDRESS_LIST, "ONEFLOW_MACHINE_ID=1")])
def test_a_killed_rank_brings_all_back_and_they_go_on_from_their_checkpoints(two, play, nodes, left, file, place):
    command = ["python", "oneflow/train.py", "--dataset=digits", "--data=/var/lib/trainyard/data/digits", "--epochs=30"]
    run = play.launch(file, job_max_restarts=1, job_command=[*command, "--checkpoints=checkpoints"])
    node, saved = nodes["n2"], f"{run.job_dir}/source/checkpoints/rank_1"
    # Each drops its third but newest; with two of one rank, the other has the first of them.
    wait_until(lambda: node.host.run(f"ls {saved}").stdout.count("epoch-") == 2, "two checkpoints of rank 1")
    killed = [
        each
        for each in node.ranks(run.job_id)
        if place in environment(node, each) and node.host.run(f"cat /proc/{each}/comm").stdout.startswith("python")
        if "launch" not in node.host.run(f"cat /proc/{each}/cmdline").stdout
    ]
    node.table.kill(killed[0])
    assert run.rc == 0, run.output
    assert [(each["failure"]["rank"], each["restarted"]) for each in run.summary["restarts"]] == [(1, "the whole job")]
    assert "rank 1 on n2: killed by SIGKILL, so the whole job starts again" in run.text
    resumed = re.search(r"^resumed after epoch (\d+) from checkpoints/rank_0, as all ranks$", run.log(0), re.MULTILINE)
    assert int(resumed[1]) >= 1
    # The same result as that of an undisturbed run.
    assert checksums(run) == checksums(two)
    assert left(run.job_id) == {}


def test_the_first_guides_program_says_that_this_release_is_too_new(play, left):
    run = play.launch(PROJECT / "jobs/oneflow-global-function.yml", job_venv="oneflow", job_packages=["oneflow"])
    run.expect(2, "OneFlow 0.9.0 has no global functions, which ended with 0.4: use train.py, or an older one")
    assert left(run.job_id) == {}


def test_more_devices_than_a_script_that_configures_itself_can_use(play, left):
    run = play.launch(ADDRESS_LIST, job_nodes=1, job_ranks_per_node=2)
    run.expect(2, "ONEFLOW_DEVICE_NUM is 2: a process of OneFlow 0.5 and newer uses one device")
    assert left(run.job_id) == {}


def test_the_known_styles_are_named(play):
    play.launch(LAUNCH, job_oneflow_style="ssh").expect(2, "launch, address_list")


@pytest.mark.parametrize("style", ["launch", "address_list"])
def test_the_collective_check_is_right_in_both_styles(play, left, style):
    run = play("playbooks/collective_check.yml", check_framework="oneflow", job_oneflow_style=style)
    run.expect(0, "All-gather over 2 ranks on 2 nodes: every rank has the numbers 0 to 1.")
    for rank, host in enumerate(("n1", "n2")):
        assert f"all-gather rank {rank} of 2 on {host}: 0 1 right" in run.log(rank)
    assert left(run.job_id) == {}
