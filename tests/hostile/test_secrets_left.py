"""Secrets of a job leave the nodes also where its monitor did not get to remove them."""

import base64
import errno
import json
import os

import pytest
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.record import secrets as log_secrets
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.ranks import process_table, units

SPEC = {"job_id": "test-1", "token": "t0ken", "secret_env": {"KEY": "hunter2"}, "secret_files": ["tls/key"],
        "processes": []}  # fmt: skip
GONE = {"pid": 1, "start_time": -1}


@pytest.fixture
def left(place):
    """The folder of a job with its secrets; what its monitor wrote last is up to the test."""
    folder = place.folder("test-1")
    place.writes(folder / "node_plan.json", json.dumps(SPEC))
    place.does(os.mkdir, folder / "tls")
    place.writes(folder / "tls" / "key", "hunter2")

    def has(monitor):
        if monitor:
            place.writes(folder / "monitor.json", json.dumps(monitor))
        return folder

    return has


def secrets(folder):
    text = (folder / "node_plan.json").read_text()
    return [word for word in ("t0ken", "hunter2") if word in text] + [path.name for path in folder.glob("tls/*")]


def collect(folder, **more):
    given = {"stop": False, "log_limit": 1, **more}
    return agent.answer("collect", {"job_id": "test-1", "job_dir": str(folder), **given}, 20)


@pytest.mark.parametrize("stop", [False, True])
def test_a_killed_monitor_leaves_no_secrets_behind(left, stop):
    folder = left(GONE)
    assert collect(folder, stop=stop)["known"] is True
    assert secrets(folder) == []
    assert json.loads((folder / "node_plan.json").read_text()) == {**SPEC, "token": "", "secret_env": {}}


def test_stop_removes_secrets_also_where_no_monitor_ever_reported(left):
    folder = left(None)
    assert secrets(folder) and collect(folder, stop=True)["known"] is True
    assert secrets(folder) == []


@pytest.mark.parametrize("monitor", ["not yet", "runs", "comes back"])
def test_who_still_needs_them_keeps_them(left, monitor, monkeypatch, tmp_path):
    alive = {"pid": os.getpid(), "start_time": process_table.start_time(os.getpid())}
    folder = left({"not yet": None, "runs": alive, "comes back": GONE}[monitor])
    if monitor == "comes back":
        monkeypatch.setattr(job_life, "has_systemd", lambda: True)
        monkeypatch.setattr(units, "LASTING", tmp_path)
        (tmp_path / "trainyard-test-1.service").touch()
    collect(folder)
    assert secrets(folder) == ["t0ken", "hunter2", "key"]


def test_looking_only_changes_nothing(left):
    folder = left(GONE)
    collect(folder, check=True)
    assert secrets(folder) == ["t0ken", "hunter2", "key"]


def test_a_killed_monitor_leaves_no_secrets_in_the_logs(left, place):
    folder = left(GONE)
    place.writes(folder / "logs" / "rank_0.log", "KEY=hunter2\nno secret\n")
    answer = collect(folder, log_limit=100)
    assert base64.b64decode(answer["logs"]["rank_0.log"]) == b"KEY=*******\nno secret\n"
    assert (folder / "logs" / "rank_0.log").read_text() == "KEY=*******\nno secret\n"


def test_only_logs_of_the_job_are_masked(left, place):
    folder = left(GONE)
    elsewhere = folder / "data"
    place.writes(elsewhere, "hunter2")
    place.does(os.symlink, elsewhere, folder / "logs" / "rank_0.log")
    place.does(os.symlink, place.secret, folder / "logs" / "rank_1.log")
    place.does(os.mkfifo, folder / "logs" / "rank_2.log")
    collect(folder, stop=True)
    assert secrets(folder) == []
    assert (elsewhere.read_text(), place.secret.read_text()) == ("hunter2", "hunter2")


def test_a_full_file_system_keeps_no_secrets(left, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = left(GONE)
    monkeypatch.setattr(log_secrets, "write_json", full)
    log_secrets.forget_secrets(folder)
    assert secrets(folder) == []
    assert json.loads((folder / "node_plan.json").read_text())["secret_env"] == {}
