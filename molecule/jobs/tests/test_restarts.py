"""Restarts: a rank that fails, a node that is lost and comes back, a budget that is used up; always all together."""

from __future__ import annotations

import re

import pytest
from lab_jobs import WORKER, wait_until

STEPS = ["python3", "worker.py", "--resume", "--steps"]


def test_a_killed_rank_restarts_the_whole_job_which_goes_on(play, nodes, left):
    run = play.launch(WORKER, job_name="again", job_nodes=3, job_max_restarts=2, job_command=[*STEPS, "200"]).trains()
    before = {name: nodes[name].processes(run.job_id) for name in ("n1", "n2", "n3")}
    nodes["n2"].kill_rank(run.job_id, 1)
    run.wait_for(r"0:\d\d:\d\d   rank 1 on n2: killed by SIGKILL, so the whole job starts again")
    assert run.rc == 0, run.output
    assert "  started again 1 of at most 2 times" in run.lines
    assert [entry["failure"]["rank"] for entry in run.summary["restarts"]] == [1]
    for rank in range(3):
        first, again, second = run.log(rank).partition("--- started again, attempt 2 ---\n")
        assert again, run.log(rank)
        # Each goes on where it was, and all of them were ended.
        steps = [int(step) for step in re.findall(r"^step (\d+)/200", first + second, re.MULTILINE)]
        assert steps[-1] == 200 and len(steps) <= 201
        pids = re.findall(r"pid (\d+)", first + second)
        assert len(pids) == 2 and int(pids[0]) in before[f"n{rank + 1}"]
    assert left(run.job_id) == {}


def test_a_budget_that_is_used_up_ends_the_job_with_the_last_traceback(play, left):
    command = ["python3", "worker.py", "--raise-on", "1"]
    run = play.launch(WORKER, job_name="again", job_nodes=2, job_max_restarts=2, job_command=command)
    assert run.rc == 2, run.output
    assert "  rank 1 on n2 failed first: exit code 7" in run.lines
    assert "  started again 2 of at most 2 times" in run.lines
    told = [line for line in run.lines if "rank 1 on n2: exit code 7, so the whole job starts again" in line]
    assert len([line for line in told if line.startswith("    ")]) == 2
    assert run.log(1).count("ValueError: no picture for step 5") == 3
    # The last one is told as if it had been the only one, with its traceback.
    shown = [line.removeprefix("    | ") for line in run.lines if line.startswith("    | ")]
    assert "Traceback (most recent call last):" in shown
    assert shown[-1] == "ValueError: no picture for step 5"
    assert run.summary["failure"]["exit_code"] == 7
    assert left(run.job_id) == {}


@pytest.fixture(scope="module")
def lost(play, nodes, node_vars):
    """A job of which n3 is killed and comes back, and n2 is cut off and comes back."""
    run = play.launch(WORKER, job_name="lost", job_nodes=3, job_max_restarts=3, job_command=[*STEPS, "700"]).trains()
    nodes["n3"].podman("kill")
    try:
        run.wait_for(r"node n3: no word for \d\d s, so the whole job starts again")
        # Nothing runs on the others until it is back.
        wait_until(lambda: not nodes["n2"].ranks(run.job_id), "n2 ends its rank")
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    state = f"/var/lib/trainyard/jobs/{run.job_id}/cluster.json"

    def all_again():
        cluster = nodes["n1"].table.read_json(state)
        restarts = cluster["restarts"]
        return restarts["whole"] == 1 and not restarts["gathering"] and cluster["ranks_running"] == 3

    wait_until(all_again, "all ranks run again")
    route = nodes["n2"].host.check_output("ip route show default")
    nodes["n2"].host.check_output("ip link set eth0 down")
    try:
        run.wait_for(r"node n2: no word for \d\d s, so the whole job starts again")
        wait_until(lambda: not nodes["n2"].ranks(run.job_id), "n2 ends its own rank")
    finally:
        nodes["n2"].host.check_output(f"ip link set eth0 up && ip route replace {route}")
    return run.wait()


def test_lost_nodes_take_part_again(lost, left):
    assert lost.rc == 0, lost.output
    assert "  started again 2 of at most 3 times" in lost.lines
    assert [entry["failure"]["host"] for entry in lost.summary["restarts"]] == ["n3", "n2"]
    assert all("step 700/700" in lost.log(rank) for rank in range(3))
    assert left(lost.job_id) == {}


def test_a_head_that_was_killed_takes_part_again(play, nodes, node_vars, tmp_path, left):
    inventory = tmp_path / "head.yml"
    inventory.write_text("head_lost: {hosts: {n3: , n1: }}\n")
    run = play.launch(
        WORKER,
        "-i",
        str(inventory),
        job_hosts="head_lost",
        job_name="headless",
        job_max_restarts=1,
        job_command=[*STEPS, "300"],
    ).trains()
    nodes["n3"].podman("kill")
    try:
        wait_until(lambda: not nodes["n1"].ranks(run.job_id), "n1 ends its rank")
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    run.wait_for("head node n3: started again, so the whole job starts again")
    assert run.rc == 0, run.output
    assert all("step 300/300" in run.log(rank) for rank in range(2))
    assert left(run.job_id) == {}


def test_units_that_outlive_a_boot_go_with_the_job(lost, nodes):
    for name in ("n1", "n2", "n3"):
        found = nodes[name].host.run("find /etc/systemd/system -name 'trainyard-*'")
        assert (found.rc, found.stdout) == (0, "")
