"""Verifications by a timer or cron: units and lines that keep every word, files that others change, the playbook."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.verify import schedule
from ansible.module_utils.trainyard_controller.verify.scheduling import changeable
from ansible_run import PROJECT
from hypothesis import given
from hypothesis import strategies as st
from plays import patched

WORDS = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" "), min_size=1)
# It keeps in a file whether the timer is enabled, and notes what else is asked of it.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> {folder}/asked
on={folder}/on
case "$1" in
    show) echo LoadState=loaded; [ -e $on ] && echo ActiveState=active || echo ActiveState=inactive ;;
    is-enabled) [ -e $on ] && echo enabled || {{ echo disabled; exit 1; }} ;;
    enable | start) touch $on ;;
    disable | stop) rm -f $on ;;
esac
"""


@given(st.lists(WORDS, min_size=1), WORDS)
def test_cron_runs_the_same_words_in_the_same_folder(command, folder):
    line = schedule.cron_line(folder, command, "daily")
    assert shlex.split(line.replace("\\%", "%")) == ["@daily", "cd", folder, "&&", *command, ">/dev/null"]


def test_what_prevents_a_schedule_is_found_at_once():
    assert schedule.findings("ops", "", systemd=True) == []
    weak, systemd = schedule.findings("ops", "/srv (drwxrwxrwx, of root)", systemd=False)
    assert weak.found == "/srv (drwxrwxrwx, of root) can be changed by others" and "ops and root" in weak.expected
    assert systemd.action.endswith("-e trainyard_become=false")
    assert schedule.unit_name("my lab/1") == "trainyard-verify-my-lab-1"


def test_a_file_that_others_can_change_is_named(tmp_path):
    inside, uid = tmp_path / "group_vars" / "all.yml", os.geteuid()
    inside.parent.mkdir(mode=0o755)
    inside.touch(mode=0o644)
    (tmp_path / "link.yml").symlink_to(inside)
    assert changeable([tmp_path], uid) is None
    inside.chmod(0o666)
    assert changeable([tmp_path], uid).path == inside == changeable([inside], uid).path
    inside.parent.chmod(0o777)
    assert changeable([inside], uid).path == inside.parent


@pytest.fixture
def play(tmp_path):
    """Run the playbook with a systemd that only notes, on files that others may change where the tests run."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(folder=tmp_path))
    program.chmod(0o755)
    (tmp_path / "units").mkdir()
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("compute: {hosts: {n1: {ansible_connection: local}}}\n")

    def run(weak="", **variables):
        given_ = {"__schedule_folder": str(tmp_path / "units"), "__schedule_systemd": str(tmp_path)}
        given_ |= {"ansible_become": False, "trainyard_runs": str(tmp_path / "runs"), **variables}
        scheduling = "ansible.module_utils.trainyard_controller.verify.scheduling"
        patch = f"import importlib; importlib.import_module('{scheduling}').changeable = lambda *_: {weak!r}"
        argv = [str(Path(sys.executable).with_name("ansible-playbook")), "playbooks/schedule.yml", "-i", str(inventory)]
        env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        env["PATH"] = f"{program.parent}:{env['PATH']}"
        command = patched([*argv, "-e", json.dumps(given_)], patch)
        done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


def test_the_timer_is_installed_once_and_removed(tmp_path, play):
    names = [f"trainyard-verify-trainyard.{ending}" for ending in ("service", "timer")]
    status, text = play()
    assert status == 0 and "trainyard-verify-trainyard.timer runs as " in text
    assert sorted(path.name for path in (tmp_path / "units").iterdir()) == names
    service, timer = ((tmp_path / "units" / name).read_text() for name in names)
    assert "OnCalendar=daily\n" in timer and f"WorkingDirectory={PROJECT}\n" in service
    assert f' "playbooks/verify.yml" "-i" "{tmp_path}/hosts.yml" "-e" ' in service and "compute" not in service
    assert (tmp_path / "on").exists()
    (tmp_path / "asked").unlink()
    assert play()[0] == 0
    assert not {"enable", "start"} & {line.split()[0] for line in (tmp_path / "asked").open()}
    status, text = play(schedule_state="absent")
    assert status == 0 and "trainyard-verify-trainyard.timer is gone" in text
    assert not (tmp_path / "on").exists() and not any((tmp_path / "units").iterdir())


def test_without_root_the_line_for_cron_is_printed(tmp_path, play):
    status, text = play(trainyard_become=False, schedule_every="hourly")
    assert status == 0 and f"Add this line with crontab -e: @hourly cd {PROJECT} && " in text
    assert not any((tmp_path / "units").iterdir())


def test_nothing_is_installed_where_others_could_change_what_runs(tmp_path, play):
    status, text = play(weak="/srv/checkout (drwxrwxrwx, of root)")
    assert status == 2 and "1 finding about the schedule. Nothing was changed." in text
    assert not any((tmp_path / "units").iterdir()) and not (tmp_path / "asked").exists()
