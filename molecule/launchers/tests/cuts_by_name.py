"""A network that falls apart under a job; by name only, `pytest tests/cuts_by_name.py`, on a lab of five nodes."""

import pytest
from lab_jobs import WORKER, Cut, wait_until

STEPS = ["python3", "worker.py", "--resume", "--steps", "400", "--restarts", "1"]


def launched(play, nodes, **more):
    settings = {"job_command": STEPS, "job_max_restarts": 2, "job_wait": False, **more}
    run = play.launch(WORKER, **settings).expect(0)
    wait_until(lambda: (nodes["n1"].cluster(run).get("metrics") or {}).get("step"), "a first step")
    return run


def test_a_head_that_is_alone_ends_its_ranks_and_does_nothing_when_it_is_back(play, nodes, node_vars, left):
    run = launched(play, nodes, job_name="cut-alone", job_nodes=4, job_spares=1)
    with Cut(nodes, node_vars, ["n1"], ["n2", "n3", "n4", "n5"]):
        wait_until(lambda: nodes["n2"].cluster(run).get("ranks_running") == 4, "the others to go on")
        assert nodes["n1"].ranks(run.job_id) == []
        assert [nodes[name].ranks(run.job_id) != [] for name in ("n2", "n3", "n4", "n5")] == [True] * 4
        # Playbooks find the new head, with the old one there and cut off.
        play("playbooks/status.yml", job_id=run.job_id).expect(0, "4/4 ranks running")
        play("playbooks/logs.yml", job_id=run.job_id).expect(0)
        assert "step" in run.log(0)
    end = wait_until(lambda: nodes["n1"].end(run), "the end of n1")
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", "n5")
    assert nodes["n1"].cluster(run)["term"] == 0 and nodes["n2"].cluster(run)["ranks_running"] == 4
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    assert left(run.job_id) == {}


@pytest.mark.parametrize("spares", [0, 1])
def test_of_two_halves_at_most_one_trains(play, nodes, node_vars, left, spares):
    """With a spare on its side, the half of n3 and n4 has a majority; but it lacks ranks, and waits for the others."""
    run = launched(play, nodes, job_name=f"cut-halves-{spares}", job_nodes=4, job_spares=spares)
    far = ["n3", "n4", "n5"][: 2 + spares]
    with Cut(nodes, node_vars, ["n1", "n2"], far):
        wait_until(lambda: not any(nodes[name].ranks(run.job_id) for name in ("n1", "n2", *far)), "all ranks to end")
        if spares:
            wait_until(lambda: nodes["n3"].cluster(run).get("term"), "n3 to lead")

    def leader():
        states = {name: nodes[name].cluster(run) for name in ("n1", "n2", "n3", "n4")}
        return [name for name, found in states.items() if found.get("term") and found["ranks_running"] == 4]

    (led,) = wait_until(leader, "all to go on together")
    running = [name for name in ("n1", "n2", "n3", "n4", "n5") if nodes[name].ranks(run.job_id)]
    assert len(running) == 4 and (led == "n3" or not spares)
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    assert left(run.job_id) == {}


def test_without_a_majority_for_too_long_the_job_has_ended(play, nodes, node_vars, left):
    run = launched(play, nodes, job_name="cut-for-good", job_nodes=4, job_rejoin_timeout=20)
    with Cut(nodes, node_vars, ["n1", "n2"], ["n3", "n4"]):
        watched = play("playbooks/watch.yml", job_id=run.job_id)
        wait_until(lambda: left(run.job_id) == {}, "all monitors to end")
        watched.expect(2, "cut off from most nodes of the job for")
    assert run.summary["failure"]["kind"] == "no_majority"


def test_with_a_witness_one_of_two_nodes_goes_on_alone_and_takes_the_other_back(play, nodes, node_vars, left):
    settings = {"job_nodes": 2, "job_witness": "n5", "job_min_nodes": 1, "job_rejoin_timeout": 5}
    run = launched(play, nodes, job_name="cut-witness", **settings)
    with Cut(nodes, node_vars, ["n1"], ["n2", "n3", "n4", "n5"]):
        wait_until(lambda: nodes["n2"].cluster(run).get("ranks_running") == 1, "n2 to go on")
        assert nodes["n1"].ranks(run.job_id) == nodes["n5"].ranks(run.job_id) == []
    attempts = f"{run.job_dir}/hosts/*/attempts.json"
    wait_until(lambda: nodes["n1"].table.read_json(attempts) == {"": 1}, "n1 to follow")
    nodes["n2"].table.kill(nodes["n2"].ranks(run.job_id)[0])
    wait_until(lambda: nodes["n2"].cluster(run).get("ranks_running") == 2, "both nodes to train")
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    assert left(run.job_id) == {}
