"""The units of a job under systemd, as they are asked for; that systemd does so is shown on the lab (molecule/jobs)."""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run import units

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


ABOUT = ("digits-1", Path("/jobs/digits-1"), "train", "/usr/bin/python3", ["rank0"], 60)


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
