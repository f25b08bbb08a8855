"""The units of a job under systemd, as they are asked for; that systemd does so is shown on the lab (molecule/jobs)."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run import job, units

STOPS = "systemctl --no-block stop trainyard-digits_1.slice"


@pytest.fixture
def called(monkeypatch, tmp_path):
    """The commands that were run; unit files go to a folder of their own."""
    commands = []

    class Process:
        returncode = 0

        def communicate(self):
            return "", ""

    def run(argv, **_):
        commands.append(argv)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(units.subprocess, "run", run)
    monkeypatch.setattr(units.subprocess, "Popen", lambda argv, **_: commands.append(argv) or Process())
    monkeypatch.setattr(units, "LASTING", tmp_path)
    return commands


ABOUT = ("digits-1", Path("/jobs/digits-1"), "train", "/usr/bin/python3", ["rank0"], 60, 30)


def test_a_shutdown_stops_the_monitor_before_all_that_ranks_need_to_save(called, tmp_path):
    """systemd stops units in the reverse order in which it would start them."""
    assert units.start(*ABOUT) == units.start_lasting(*ABOUT) == ""
    files = [
        (tmp_path / f"trainyard-digits-1-{name}.service").read_text().splitlines() for name in ("monitor", "rank0")
    ]
    monitor = "trainyard-digits-1-monitor.service"
    for monitors, ranks in (called[:2], files):
        assert f"Before={monitor}" in ranks and f"BindsTo={monitor}" in ranks
        assert not [line for line in ranks if line.startswith("After=") and monitor in line]
        (needed,) = [line for line in monitors if line.startswith("After=")]
        assert needed in ranks
        assert {"network.target", "remote-fs.target", "dbus.service"} <= set(needed.removeprefix("After=").split())
        assert "TimeoutStopSec=40" in monitors and "TimeoutStopSec=5" in ranks
    assert "TimeoutStopSec=5" in units._monitor_properties("digits-1", "train", [], 0.0)


def test_a_rank_that_the_oom_killer_ends_does_not_end_the_monitor_whose_child_it_is(called, tmp_path):
    for job_id, names in (("digits-1", ["rank0"]), ("digits-2", [])):
        assert units.start_lasting(job_id, *ABOUT[1:4], names, *ABOUT[5:]) == ""
        monitor = (tmp_path / f"trainyard-{job_id}-monitor.service").read_text().splitlines()
        assert ("OOMPolicy=continue" in monitor) == (not names)


def test_systemd_starts_nothing_again_and_again_from_a_folder_that_is_gone(called, tmp_path):
    """It did so 46 times. A monitor without its folder ends, and its unit removes all files of units."""
    assert units.start_lasting(*ABOUT) == ""
    condition = "ConditionPathExists=/jobs/digits-1/trainyard.pyz"
    rank = (tmp_path / "trainyard-digits-1-rank0.service").read_text()
    assert condition in rank.partition("[Service]")[0].splitlines()
    assert condition not in (tmp_path / "trainyard-digits-1-monitor.service").read_text()


def test_a_monitor_that_hangs_keeps_no_rank(called, tmp_path, monkeypatch):
    """systemd would wait for it, for as long as ranks may save, before it stops the ranks."""
    alive = iter([True, False])
    monkeypatch.setattr(job, "supervision", lambda: "systemd")
    monkeypatch.setattr(job, "running", lambda *_: [])
    monkeypatch.setattr(job, "_identity", lambda *_: ("digits-1", "", None))
    monkeypatch.setattr(job.processes, "left_of_job", lambda *_: [])
    answers = {job.processes.monitor_alive: lambda: next(alive)}
    monkeypatch.setattr(job, "_in_folder", lambda folder, without, function, *_, **__: answers.get(function, int)())
    for kills in (1, 0):
        called.clear()
        monkeypatch.setattr(units, "stop", lambda job_id, _: called.append(["stop", job_id]) or "")
        job.stop(tmp_path, "digits-1", grace_s=30)
        kill = ("systemctl", "kill", "--signal=SIGKILL", "trainyard-digits-1-monitor.service")
        assert called == [kill] * kills + [["stop", "digits-1"]]


def test_the_monitors_unit_takes_the_slice_with_it(called, tmp_path):
    """Nobody stops the slice of a job that ends unwatched, and systemd keeps an empty one."""
    assert units.start(*ABOUT) == ""
    monitor, rank = called
    assert f"ExecStopPost=+/bin/sh -c '{STOPS}'" in monitor
    assert not [word for word in rank if STOPS in word]
    # So does one that comes back after a reboot, unless its node goes down.
    assert units.start_lasting(*ABOUT) == ""
    unit = (tmp_path / "trainyard-digits-1-monitor.service").read_text()
    (stops,) = [line for line in unit.splitlines() if STOPS in line]
    assert stops.startswith('ExecStopPost=+/bin/sh -c \'[ "$$(systemctl is-system-running)" = stopping ] || { rm -f ')
    assert stops.endswith(f"; {STOPS}; }}'")
    assert STOPS not in (tmp_path / "trainyard-digits-1-rank0.service").read_text()


@pytest.mark.parametrize(
    ("ended", "result", "exit_code", "by_signal"),
    [
        ("code=killed, status=9/KILL", "signal", None, 9),
        ("code=killed, status=9/KILL", "oom-kill", None, 9),
        ("code=exited, status=1/FAILURE", "exit-code", 1, None),
    ],
)
def test_the_exit_of_a_unit_in_its_journal(ended, result, exit_code, by_signal):
    """As systemd 252 wrote it on the lab."""
    name = "trainyard-digits-1-monitor.service"
    started = f"Started {name} - trainyard job digits-1, monitor.\n"
    failed = f"{name}: Failed with result '{result}'.\n"
    found = units.journal_exit(f"{started}{name}: Main process exited, {ended}\n{failed}Stopped {name}.")
    assert (found["exit_code"], found["signal"], found["result"]) == (exit_code, by_signal, result)
    assert units.journal_exit(f"{started}{failed}Stopped {name}.") is None
