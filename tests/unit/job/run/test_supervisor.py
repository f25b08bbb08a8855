"""The processes of a node as children of its monitor: one that cannot start, and what one leaves behind."""

import os
import subprocess
import sys
import uuid

from ansible.module_utils.trainyard_node.job.run.ranks import process_table, supervisor
from job_cluster import wait_for


def test_a_process_for_which_the_node_has_no_room_has_failed_and_ends_no_monitor(tmp_path, monkeypatch, capsys):
    (tmp_path / "exits").mkdir()

    def no_room(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", no_room)
    held = supervisor.Supervisor(tmp_path, {"job_id": "x", "processes": [{"name": "rank0", "ranks": [0]}]})
    held.restart(["rank0"], {"": 2})
    ended = held.exits()["rank0"]
    assert (ended["result"], ended["exit_code"], ended["signal"], ended["attempt"]) == ("resources", None, None, 2)
    assert "rank0 cannot be started: [Errno 11] Resource temporarily unavailable" in capsys.readouterr().out


def test_what_an_ended_process_has_left_in_its_session_ends_before_it_starts_again():
    job_id = f"test-{uuid.uuid4().hex[:12]}"
    script = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={"TRAINYARD_JOB_ID": job_id, "PATH": os.defpath},
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    left = [int(each.communicate()[0]) for each in started]
    try:
        process_table.end_sessions(job_id, [started[0].pid])
        wait_for(lambda: process_table.start_time(left[0]) is None, "the first one to end")
        assert process_table.start_time(left[1]) is not None, "it is of another process"
    finally:
        process_table.end(job_id, grace_s=0.0)
