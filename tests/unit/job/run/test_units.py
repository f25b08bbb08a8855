"""The unit of a job under systemd, as it is asked for; that systemd does so is shown on the lab (molecule/jobs)."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.ranks import units

NAME = "trainyard-digits-1.service"
ABOUT = ("digits-1", "train", "/usr/bin/python3", Path("/jobs/digits-1"))
LASTING = units.Limits(60, 30, True)


@pytest.fixture
def called(monkeypatch, tmp_path):
    """The commands that were run; unit files go to folders of their own."""
    commands = []

    def run(argv, **_):
        commands.append(argv)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(units.subprocess, "run", run)
    for name in ("LASTING", "TRANSIENT"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(units, name, tmp_path / name)
    return commands


def lines_of(tmp_path, folder="LASTING"):
    return (tmp_path / folder / NAME).read_text().splitlines()


def test_a_job_with_restarts_comes_back_after_a_reboot_and_no_other_does(called, tmp_path):
    assert units.start(*ABOUT, units.Limits(60, 30)) == ""
    assert not units.come_back("digits-1") and not list((tmp_path / "LASTING").iterdir())
    assert not [line for line in lines_of(tmp_path, "TRANSIENT") if line.startswith("WantedBy=")]
    assert units.start(*ABOUT, LASTING) == ""
    assert units.come_back("digits-1")
    link = tmp_path / "LASTING/multi-user.target.wants" / NAME
    assert link.resolve() == tmp_path / "LASTING" / NAME and "WantedBy=multi-user.target" in lines_of(tmp_path)
    assert called == [("systemctl", "start", NAME)] * 2


def test_a_shutdown_stops_the_monitor_before_all_that_ranks_need_to_save(called, tmp_path):
    """systemd stops units in the reverse order in which it would start them."""
    assert units.start(*ABOUT, LASTING) == ""
    (needed,) = [line for line in lines_of(tmp_path) if line.startswith("After=")]
    assert {"network.target", "remote-fs.target", "dbus.service"} <= set(needed.removeprefix("After=").split())
    assert {"TimeoutStopSec=40", "KillMode=mixed"} <= set(lines_of(tmp_path))


def test_neither_memory_nor_threads_of_one_rank_end_the_others(called, tmp_path):
    """All ranks of a node are in one unit: systemd stops one whose process was killed, and counts its threads."""
    assert units.start(*ABOUT, LASTING) == ""
    assert {"OOMPolicy=continue", "TasksMax=infinity", "RuntimeMaxSec=60"} <= set(lines_of(tmp_path))


def test_a_monitor_that_hangs_keeps_no_rank(called, tmp_path, monkeypatch):
    """systemd would wait for it, for as long as ranks may save, before it kills the ranks."""
    alive = iter([True, False])
    monkeypatch.setattr(job_life, "has_systemd", lambda: True)
    monkeypatch.setattr(job_life, "running", lambda *_: [])
    monkeypatch.setattr(job_life, "_identity", lambda *_: ("digits-1", "", None))
    monkeypatch.setattr(job_life.process_table, "left_of_job", lambda *_: [])
    answers = {job_life.process_table.monitor_alive: lambda: next(alive)}
    monkeypatch.setattr(
        job_life, "_in_folder", lambda folder, without, function, *_, **__: answers.get(function, int)()
    )
    for kills in (1, 0):
        called.clear()
        monkeypatch.setattr(units, "stop", lambda job_id, _: called.append(["stop", job_id]) or "")
        job_life.stop(tmp_path, "digits-1", grace_s=30)
        assert called == [("systemctl", "kill", "--signal=SIGKILL", NAME)] * kills + [["stop", "digits-1"]]


def test_a_unit_takes_its_file_and_containers_with_it_unless_its_node_goes_down(called, tmp_path):
    """Nobody stops the unit of a job that ends unwatched."""
    assert units.start(*ABOUT, LASTING, in_image=True) == ""
    containers, files = [line for line in lines_of(tmp_path) if line.startswith("ExecStopPost=")]
    assert containers.endswith('"/jobs/digits-1/trainyard.pyz" "remove-containers" "/jobs/digits-1"')
    assert files.startswith('ExecStopPost=+/bin/sh -c \'[ "$$(systemctl is-system-running)" = stopping ] || rm -f ')
    there = (tmp_path / "LASTING" / NAME, tmp_path / "LASTING/multi-user.target.wants" / NAME)
    assert all(f"{path}" in files for path in (*there, tmp_path / "TRANSIENT" / NAME))


@pytest.mark.parametrize(
    ("ended", "result", "exit_code", "by_signal"),
    [
        ("code=killed, status=9/KILL", "signal", None, 9),
        ("code=killed, status=9/KILL", "oom-kill", None, 9),
        ("code=exited, status=1/FAILURE", "exit-code", 1, None),
        ("code=dumped, status=11/SEGV", "core-dump", None, 11),
        ("code=killed, status=15/TERM", "timeout", None, 15),
    ],
)
def test_the_exit_of_a_unit_in_its_journal(ended, result, exit_code, by_signal):
    """As systemd 252 wrote it on the lab."""
    started = f"Started {NAME} - trainyard job digits-1.\n"
    failed = f"{NAME}: Failed with result '{result}'.\n"
    found = units.journal_exit(f"{started}{NAME}: Main process exited, {ended}\n{failed}Stopped {NAME}.")
    assert (found["exit_code"], found["signal"], found["result"]) == (exit_code, by_signal, result)
    assert units.journal_exit(f"{started}{failed}Stopped {NAME}.") is None
