"""Real training over two nodes and over all, with both launchers; two jobs at the same time; a run that goes on."""

import re

import pytest
from lab_jobs import PROJECT

DIGITS = PROJECT / "jobs/digits-cluster.yml"
RESNET = PROJECT / "jobs/resnet18-generated.yml"
EPOCHS = 2


@pytest.fixture(scope="module")
def two(play, nodes):
    """Two jobs from two job files at the same time, one on all nodes, the other one on two of them."""
    for node in nodes.values():
        node.host.check_output("rm -rf /var/lib/trainyard/checkpoints/resnet18-generated")
    first = play.launch(DIGITS)
    second = play.launch(RESNET, job_nodes=2, resnet18_epochs=1)
    return first.wait(), second.wait()


@pytest.fixture(scope="module")
def all_agents(two):
    return two[0]


@pytest.fixture(scope="module")
def documented(play, two, tmp_path_factory):
    """The script and the job file of docs/first-job.md, as a user saves them."""
    text = (PROJECT / "docs/first-job.md").read_text()
    folder = tmp_path_factory.mktemp("mine")
    for name, language in (("train.py", "python"), ("job.yml", "yaml")):
        (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (folder / name).write_text(block)
    return play.launch(folder / "job.yml")


@pytest.fixture(scope="module")
def all_direct(play, two, documented):
    """The second launch of the ResNet: it finds the checkpoint of the first one, which had fewer ranks."""
    return play.launch(RESNET, resnet18_epochs=EPOCHS).wait()


def test_two_jobs_train_at_the_same_time_on_ports_of_their_own(two, left):
    first, second = two
    assert (first.rc, second.rc) == (0, 0), first.output + second.output
    # They were on the same nodes at the same time.
    assert max(run.summary["started"] for run in two) < min(run.summary["finished"] for run in two)
    plans = [run.file("plan.json") for run in (first, second)]
    ports = [port for plan in plans for port in (plan["head"]["port"], plan["monitor_port"])]
    assert len(set(ports)) == 4, ports
    assert [plan["launcher"] for plan in plans] == ["torchrun", "direct"]
    for run, plan in zip((first, second), plans):
        assert len(run.checksums(plan["world_size"])) == 1
        assert run.summary["state"] == "succeeded"
        assert left(run.job_id) == {}
    assert first.checksums(2) != second.checksums(2)


def test_all_nodes_end_with_equal_parameters(all_agents, all_direct, node_names, left):
    for run in (all_agents, all_direct):
        assert run.rc == 0, run.output
        assert len(run.checksums(len(node_names))) == 1
        assert left(run.job_id) == {}
    assert all_agents.accuracy > 90


def test_the_first_own_job_of_the_docs_trains_and_shows_its_curve(documented, node_names):
    documented.expect(0)
    assert documented.summary["world_size"] == 2 * len(node_names)
    metrics = documented.summary["metrics"]
    assert metrics["epoch"] == 19 and metrics["loss"] < 1
    assert '<svg class="curve' in (documented.folder / "report.html").read_text()


def test_ranks_follow_the_inventory(all_agents, all_direct, nodes, node_vars):
    for run in (all_agents, all_direct):
        plan = run.file("plan.json")
        assert plan["world_size"] == len(nodes)
        assert plan["head"]["host"] == "n1"
        assert plan["head"]["address"] == node_vars["n1"]["ansible_host"]
        placed = [(node["host"], node["node_rank"], node["address"]) for node in plan["nodes"]]
        assert placed == [(name, rank, node_vars[name]["ansible_host"]) for rank, name in enumerate(nodes)]
        assert [process["ranks"] for node in plan["nodes"] for process in node["processes"]] == [
            [rank] for rank in range(len(nodes))
        ]
        # As planned, so it was: each rank wrote its log on its own node, and nowhere else.
        for rank, node in enumerate(nodes.values()):
            assert node.host.check_output(f"cd {run.job_dir}/hosts/*/logs && ls rank_*") == f"rank_{rank}.log"


def test_a_healthy_launch_prints_less_than_a_page(all_agents, node_names):
    size = len(node_names)
    run, folder = all_agents, all_agents.folder
    assert len(run.lines) < 60
    assert re.fullmatch(
        rf"Job {run.job_id}: {size} ranks on {size} nodes \(torchrun\), rendezvous on n1 [\d.]+:\d+", run.first_line
    )
    progress = [line for line in run.lines if "ranks running" in line]
    assert re.search(
        rf"\d:\d\d:\d\d   \d/{size} ranks running   step \d+/\d+   epoch \d+   loss [\d.]+   rate \d", run.output
    )
    assert all(re.match(rf"  \d:\d\d:\d\d   \d/{size} ranks running", line) for line in progress)
    ended = run.lines.index(next(line for line in run.lines if line.startswith(f"Job {run.job_id} succeeded in 0:")))
    assert run.lines[ended].endswith(f": {size} ranks on {size} nodes.")
    report, words, command = run.lines[-3:]
    assert (report, words) == (f"  report      {folder}/report.html", "  next        all jobs, with their pages")
    assert command.startswith("              ansible-playbook playbooks/jobs.yml -i ")


def test_the_run_leaves_its_record(all_agents, node_names):
    run, size = all_agents, len(node_names)
    summary = run.summary
    assert (summary["job_id"], summary["state"], summary["world_size"]) == (run.job_id, "succeeded", size)
    assert [node["state"] for node in summary["nodes"]] == ["ended"] * size
    assert [process["exit_code"] for node in summary["nodes"] for process in node["processes"]] == [0] * size
    assert summary["metrics"]["step"] == summary["metrics"]["steps"] > 0
    assert 0 < summary["finished"] - summary["started"] == pytest.approx(summary["elapsed_s"], abs=0.01)
    assert '<svg class="curve' in (run.folder / "report.html").read_text()
    assert {f"rank_{rank}.log" for rank in range(size)} <= {path.name for path in (run.folder / "logs").iterdir()}


def test_a_run_goes_on_from_the_newest_checkpoint(two, all_direct):
    _, first = two
    assert "training starts at epoch 1" in first.log(0)
    resumed = re.search(r"^resumed from (\S+) after epoch (\d+)$", all_direct.log(0), re.MULTILINE)
    assert resumed[1].startswith("/var/lib/trainyard/checkpoints/resnet18-generated/")
    assert resumed[2] == "1"
    assert "epoch 1 loss" not in all_direct.log(0)
    assert "epoch 2 loss" in all_direct.log(0)


def test_check_mode_shows_the_plan_and_touches_no_node(play, nodes, left):
    before = {name: node.host.check_output("ls /var/lib/trainyard/jobs") for name, node in nodes.items()}
    run = play.launch(DIGITS, "--check").expect(0)
    assert run.first_line == f"Plan of {run.job_id}: {len(nodes)} ranks on {len(nodes)} nodes, launcher torchrun"
    for rank, host in enumerate(nodes):
        argv = " ".join(run.file("plan.json", host)["nodes"][rank]["processes"][0]["argv"])
        assert f"    agent (rank {rank})  {argv}" in run.lines
    assert left(run.job_id) == {}
    assert {name: node.host.check_output("ls /var/lib/trainyard/jobs") for name, node in nodes.items()} == before
