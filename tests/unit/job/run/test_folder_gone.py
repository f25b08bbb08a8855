"""The job's folder is removed or renamed on a node while the job runs: that is named, and nothing starts there."""

import os
import shutil
import signal

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.logs import failure_kinds
from ansible.module_utils.trainyard.job.run.logs import failures as failure
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.ranks import disk_space
from simulated_job import SimulatedJob, failed

GONE = {"kind": "folder_gone", "host": "n2", "folder": "/jobs/x"}
REPORTED = {"folder_gone": GONE, "excluded": {"reason": failure.failure_text(GONE), "temporary": False}}


def lost(**settings):
    """A job whose second node has lost its folder, of which a rank failed, as one on another node did."""
    job = SimulatedJob(nodes=3, **settings)
    job.step()
    job.changes["n2"] = {**REPORTED, "failures": [failed("n2", 1, 0.0)]}
    job.changes["n3"] = {"failures": [failed("n3", 2, 0.0)]}
    job.step()
    return job


@pytest.mark.parametrize("settings", [{}, {"max_restarts": 3}, {"max_restarts": 3, "restart_on": "always"}])
def test_the_job_ends_with_that_cause_even_if_restarts_are_left(settings):
    job = lost(**settings)
    assert (job.state.end["state"], job.state.end["failure"]["kind"]) == ("failed", "folder_gone")
    assert job.state.restarts.history == []


@pytest.mark.parametrize("settings", [{"spares": 1}, {"min_nodes": 2}])
def test_another_node_takes_the_place_or_the_others_go_on(settings):
    job = lost(max_restarts=3, **settings)
    (restart,) = job.state.restarts.history
    assert restart["failure"]["kind"] == "folder_gone" and "n2" not in job.state.restarts.members
    assert restart["reason"] == "the job's folder /jobs/x is gone on n2"
    job.changes["n3"] = {}
    # A node that was replaced ends what runs there, and leaves.
    job.connected.discard("n2")
    job.run(20)
    assert job.starts == [1] and job.state.end == {}


def test_the_text_names_the_node_and_what_to_do():
    text = cause({"failure": GONE, "nodes": []}, "")
    assert text[0] == "the job's folder /jobs/x is gone on n2: something removed or renamed it while the job ran"
    assert "start the job again" in text[1] and not misfit(GONE, failure_kinds.FAILURE)


@pytest.mark.parametrize(
    ("error", "found"),
    [(FileNotFoundError, True), (NotADirectoryError, True), (PermissionError, False), (OSError, False)],
)
def test_a_file_system_that_does_not_answer_has_not_lost_the_folder(tmp_path, monkeypatch, error, found):
    def stat(_):
        raise error

    monkeypatch.setattr(disk_space.os, "stat", stat)
    assert bool(disk_space.gone(tmp_path, "n1")) == found


# ---- real monitors


def remove(folder):
    """Remove a folder at once, although a monitor writes there."""
    gone = folder.rename(folder.with_name(f"{folder.name}-removed"))
    shutil.rmtree(gone, ignore_errors=True)


@pytest.mark.parametrize(("host", "how"), [("n1", "renamed"), ("n2", "emptied")])
def test_a_removed_folder_is_named_and_nothing_starts_in_it(cluster, host, how):
    # Nobody waits for a save there.
    job = cluster(["wait"], ["wait"], max_restarts=2, stop={"signal": "TERM", "grace_s": 600}).start()
    node = next(each for each in job.nodes if each.spec["host"] == host)
    rank = node.pid("rank0" if host == "n1" else "rank1")
    if how == "renamed":
        node.dir.rename(node.dir.with_name("elsewhere"))
    else:
        remove(node.dir)
    if how == "emptied":
        node.dir.mkdir(exist_ok=True)
    # A rank that needs a file there fails.
    os.kill(rank, signal.SIGKILL)
    end = job.over()
    failure = {"kind": "folder_gone", "host": host, "folder": str(node.dir)}
    assert end["state"] == "failed" and failure.items() <= end["failure"].items()
    job.all_ended()
    assert [failure.items() <= each.end()["failure"].items() for each in job.nodes] == [True, True]
    # The node answers with that, and its folder has no secrets.
    found = job_life.status(node.dir, node.job_id)
    assert found["known"] and found["monitor"]["end"]["failure"] == end["failure"] and not misfit(found, answers.STATUS)
    assert node.read("node_plan.json")["token"] == "" and not (node.dir / "source").exists()


def test_a_stop_after_the_folder_was_removed_names_it(cluster):
    job = cluster(["wait"]).start()
    remove(job.head.dir)
    job.head.signal(signal.SIGTERM)
    assert job.over()["failure"]["kind"] == "folder_gone"
    job.all_ended()
