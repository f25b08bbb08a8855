"""A node that is lost, freezes or is cut off: the job ends on the others, says which, and nothing comes back."""

import re

import pytest
from lab_jobs import WORKER, Run, wait_until


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Groups of nodes, so that one loss of nodes shows several jobs how it looks."""
    inventory = tmp_path_factory.mktemp("groups") / "groups.yml"
    inventory.write_text(
        "node_killed: {hosts: {n1: , n2: }}\n"
        "node_frozen: {hosts: {n1: , n2: , n3: }}\n"
        "head_frozen: {hosts: {n3: , n1: , n2: }}\n"
    )
    return ["-i", str(inventory)]


@pytest.fixture(scope="module")
def silenced(play, nodes, node_vars, groups):
    """Freeze n3 under two jobs, then kill n2 under a third; then another launch wants all nodes. Bring them back."""
    runs = {
        group: play.launch(WORKER, *groups, job_hosts=group, job_name=group.replace("_", "-"))
        for group in ("node_killed", "node_frozen", "head_frozen")
    }
    for run in runs.values():
        run.trains()
    nodes["n3"].podman("pause")
    try:
        frozen = [runs["node_frozen"].wait(), runs["head_frozen"].wait()]
        alive = [pid for run in frozen for name in ("n1", "n2") for pid in nodes[name].processes(run.job_id)]
        nodes["n2"].podman("kill")
        late = play.launch(WORKER, job_nodes=3).wait()
        alive += nodes["n1"].processes(runs["node_killed"].wait().job_id)
    finally:
        nodes["n3"].podman("unpause")
        nodes["n2"].boot(node_vars["n2"]["ansible_host"])
    return runs, late, alive


def test_all_other_nodes_end(silenced):
    """How fast they do is measured in benchmarks/ (failure)."""
    runs, _, alive = silenced
    assert alive == []
    for group, others in (("node_killed", ["n1"]), ("node_frozen", ["n1", "n2"]), ("head_frozen", ["n1", "n2"])):
        run = runs[group]
        assert run.rc == 2, run.output
        ended = [
            process["time"] for node in run.summary["nodes"] if node["host"] in others for process in node["processes"]
        ]
        assert len(ended) == len(others)


@pytest.mark.parametrize(
    ("group", "others", "where", "rank"), [("node_killed", ["n1"], "n2", 1), ("node_frozen", ["n1", "n2"], "n3", 2)]
)
def test_a_silent_node_is_named(silenced, group, others, where, rank):
    run: Run = silenced[0][group]
    assert re.search(
        rf"^  node {where} with rank {rank} went silent: no report for \d\d s, so it is frozen, cut off or down$",
        run.output,
        re.MULTILINE,
    )
    assert f"its own monitor ends rank {rank} as soon as it runs again; check the node" in run.text
    assert f"  no process of the job is left on {', '.join(others)}" in run.lines
    assert re.search(rf"^  {where} could not be asked: ", run.output, re.MULTILINE)
    failure = run.summary["failure"]
    assert (failure["kind"], failure["host"]) == ("silent", where)
    assert {node["host"]: node["state"] for node in run.summary["nodes"]} == {
        **dict.fromkeys(others, "ended"),
        where: "unreachable",
    }


def test_a_silent_head_is_named(silenced):
    run: Run = silenced[0]["head_frozen"]
    assert re.search(
        r"^  head node n3 went silent: n[12] received no report from it for \d\d s$", run.output, re.MULTILINE
    )
    assert "every other node has ended its ranks; check the head node" in run.text
    assert "  no process of the job is left on n1, n2" in run.lines
    assert (run.summary["failure"]["kind"], run.summary["failure"]["host"]) == ("head_silent", "n3")


def test_nothing_is_left_on_nodes_that_come_back(silenced, nodes, left):
    runs, *_ = silenced
    for run in runs.values():
        wait_until(lambda run=run: left(run.job_id) == {}, f"nothing of {run.job_id} is left: {left(run.job_id)}")


def test_nodes_that_do_not_answer_are_found_before_anything_starts(silenced, left):
    run = silenced[1]
    run.expect(2, "1 finding: the job cannot be planned, and nothing was started.", "1. reach on n2, n3")
    reasons = r"found n2: ssh: connect to port 22: .* n3: Connection timed out \S"
    assert re.search(reasons, run.text), run.output
    expected = r"expected a node that answers over ssh, at \S+, \S+ do repair it, or leave it out; to see more: "
    assert re.search(expected, run.text), run.output


@pytest.fixture(scope="module")
def cut(play, nodes, silenced):
    """Take n2's link down; n2 itself is seen through podman meanwhile."""
    run = play.launch(WORKER, job_nodes=3).trains()
    # A link that goes down loses its routes, and only those of its own network come back with it.
    route = nodes["n2"].host.check_output("ip route show default")
    nodes["n2"].host.check_output("ip link set eth0 down")
    try:
        wait_until(lambda: not nodes["n2"].processes(run.job_id), "n2 ends its own rank")
        run.wait()
    finally:
        nodes["n2"].host.check_output(f"ip link set eth0 up && ip route replace {route}")
    return run


@pytest.mark.long
def test_a_node_that_is_cut_off_ends_its_own_ranks(cut, left):
    assert cut.rc == 2, cut.output
    assert re.search(r"^  node n2 with rank 1 went silent: no report for \d\d s", cut.output, re.MULTILINE)
    assert left(cut.job_id) == {}


@pytest.mark.long
def test_status_knows_of_a_node_that_is_back(cut, play):
    status = play("playbooks/status.yml", job_id=cut.job_id).expect(0)
    assert "  no process of the job is left on n1, n2, n3" in status.lines
    assert "could not be asked" not in status.output
