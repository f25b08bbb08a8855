"""Lost nodes, and nodes that fail the health check, are replaced by spares."""

import re

import pytest
from lab_jobs import WORKER, wait_until

STEPS = ["python3", "worker.py", "--resume", "--steps"]
SPARE = {"job_nodes": 2, "job_spares": 1, "job_max_restarts": 1}
# A file system of the node's own that a test can fill.
SMALL = "/dev/shm"  # noqa: S108


@pytest.fixture(scope="module")
def refused(play, nodes):
    """A job on n1 and n2 whose spare n3 has no room for its folder, and what status.yml says after it."""
    here = {"trainyard_state": f"{SMALL}/trainyard"}
    nodes["n3"].host.check_output(f"head -c 1G /dev/zero >{SMALL}/full || true")
    try:
        run = play.launch(WORKER, job_command=[*STEPS, "2"], job_name="refused", **SPARE, **here).wait()
    finally:
        for name in ("n1", "n2", "n3"):
            nodes[name].host.check_output(f"rm -rf {SMALL}/full {SMALL}/trainyard")
    return run, play("playbooks/status.yml", job_id=run.job_id, **here).wait()


@pytest.fixture(scope="module")
def moved(play, nodes, scheduler):
    """A job on n1 and n2 with the spare n3, of which n2 freezes until n3 runs its rank; nobody watches meanwhile."""
    command = [*STEPS, "80", "--restarts", "1", "--gate"]
    run = play.launch(WORKER, job_command=command, job_name="moved", job_wait=False, **SPARE, **scheduler)
    assert run.rc == 0, run.output
    head = nodes["n1"]
    wait_until(lambda: (head.cluster(run).get("metrics") or {}).get("step"), "a first step")
    assert nodes["n3"].ranks(run.job_id) == []
    # Unlike one that is killed, a frozen node closes no connection.
    nodes["n2"].podman("pause")
    try:
        held = wait_until(lambda: head.cluster(run)["held"], "the word of a silent node")
        wait_until(lambda: head.cluster(run)["restarts"]["replaced"] == {"n2": "n3"}, "n3 in the place of n2")
        wait_until(lambda: nodes["n3"].ranks(run.job_id), "the rank on n3")
    finally:
        nodes["n2"].podman("unpause")
    assert re.fullmatch(r"no report from n2 for \d+ s", held)
    # After the job's end nobody would tell n2 why its part is over.
    wait_until(lambda: nodes["n2"].end(run), "the end of n2")
    for name in ("n1", "n3"):
        nodes[name].host.check_output(f"touch /var/lib/trainyard/jobs/{run.job_id}/source/go")
    watched = play("playbooks/watch.yml", job_id=run.job_id)
    watched.wait()
    return run, watched


def test_a_spare_that_does_not_pass_the_gate_is_refused_with_its_reason_and_stays_known(refused):
    run, status = refused
    run.expect(0, "the job starts without such hosts, as it has spares", "1. disk on n3")
    assert [node["host"] for node in run.summary["nodes"]] == ["n1", "n2"]
    assert re.search(rf"n3 since 20\S+ \S+ by {run.job_id}: disk: \d+ MiB free in {SMALL}", status.text)


@pytest.mark.long
@pytest.mark.ssh
def test_who_passes_is_taken_back_and_who_was_lost_is_known(play, refused, moved):
    run, _ = moved
    assert "n3 passes the health check and takes part again; it was excluded since 20" in run.text
    status = play("playbooks/status.yml", job_id=run.job_id).wait()
    assert re.search(rf"n2 since 20\S+ \S+ by {run.job_id}: node n2: no report for \d\d s", status.text)
    assert "n3 since" not in status.text


@pytest.mark.long
def test_the_job_ends_well_with_its_rank_elsewhere(moved, left):
    run, watched = moved
    assert watched.rc == 0, watched.output
    assert re.search(
        r"node n2: no report for \d\d s, so the whole job starts again.*; n3 takes the place of n2", watched.text
    )
    summary = run.summary
    assert summary["state"] == "succeeded" and len(summary["restarts"]) == 1
    assert {node["host"]: node["ranks"] for node in summary["nodes"]} == {"n1": [0], "n3": [1], "n2": []}
    assert all("step 80/80" in run.log(rank) for rank in range(2))
    assert left(run.job_id) == {}


@pytest.mark.long
def test_the_node_that_came_back_ran_nothing_of_it(play, moved, nodes):
    run, _ = moved
    end = nodes["n2"].end(run)
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", "n3")
    play("playbooks/logs.yml", job_id=run.job_id).expect(0)
    assert "step" in (run.folder / "logs" / "n2_rank_1.log").read_text() != run.log(1)
    for name in ("n1", "n2", "n3"):
        found = nodes[name].host.run("find /etc/systemd/system -name 'trainyard-*'")
        assert (found.rc, found.stdout) == (0, "")
