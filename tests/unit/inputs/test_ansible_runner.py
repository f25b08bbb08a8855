"""Playbooks under ansible-runner, as ansible-navigator and AWX start them: it overrides settings of ansible.cfg."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard.verify import report as verify_report
from ansible_run import PROJECT, Run

LOCAL = PROJECT / "inventories/localhost"


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Run a playbook under ansible-runner; its record of the run is returned as well."""
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)

    def run(book, inventory, extra, **env):
        (tmp_path / "env").mkdir(exist_ok=True)
        (tmp_path / "env/extravars").write_text(extra)
        (tmp_path / "env/envvars").write_text(json.dumps({"ANSIBLE_NOCOLOR": "1", **env}))
        argv = ["ansible-runner", "run", tmp_path, "--project-dir", PROJECT, "--inventory", inventory, "-p", book]
        done = subprocess.run([*argv, "-i", "1"], capture_output=True, text=True, timeout=240, check=False)
        record = {name: (tmp_path / "artifacts/1" / name).read_text() for name in ("status", "rc")}
        return Run(done), record

    return run


def test_the_input_is_checked_though_runner_names_its_own_callback_plugins_alone(runner):
    # AWX marks what a survey or a user gives.
    run, record = runner("playbooks/verify.yml", LOCAL, "!unsafe 'verify_phase': !unsafe 'reach'\n")
    assert "unknown variable verify_phase" in run.text and "TASK" not in run.text
    assert record == {"status": "failed", "rc": "2"}


def test_unknown_is_status_3_of_runner_with_the_projects_own_output(runner, tmp_path):
    composed = runpy.run_path(str(PROJECT / "tests/fixtures/reports/composed.py"))["composed"]
    report = verify_report.build(**composed(4, bad=False))
    (tmp_path / "before.json").write_text(json.dumps(report))
    report["benchmarks"].pop(0)
    (tmp_path / "after.json").write_text(json.dumps(report))
    given = f"compare_before: {tmp_path}/before.json\ncompare_after: {tmp_path}/after.json\n"
    run, record = runner("playbooks/compare.yml", LOCAL, given)
    assert record == {"status": "failed", "rc": "3"} and run.rc == 3
    assert "not measured any more" in run.text and "PLAY RECAP" not in run.text
    events = [json.loads(path.read_text())["event"] for path in (tmp_path / "artifacts/1/job_events").glob("*.json")]
    # AWX makes its summary of the hosts from this event.
    assert events.count("playbook_on_stats") == 1


def test_host_keys_are_checked_though_runner_or_awx_turns_that_off(runner, tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\necho "ssh: no such host" >&2\nexit 255\n')
    ssh.chmod(0o755)
    host = {"ansible_ssh_executable": str(ssh), "ansible_python_interpreter": sys.executable}
    # The inventory alone may turn it off: its owner decides for each host (docs/execution-environment.md), AWX for all.
    hosts = {"n1": host, "n2": {**host, "ansible_host_key_checking": False}}
    (tmp_path / "hosts.json").write_text(json.dumps({"compute": {"hosts": hosts}}))
    off = {"ANSIBLE_HOST_KEY_CHECKING": "False"}
    run, record = runner("playbooks/validate.yml", tmp_path / "hosts.json", "awx_job_id: 7\n", **off)
    assert record["rc"] == "2" and "ssh: no such host" in run.text
    calls = (tmp_path / "calls").read_text().splitlines()
    assert {("n2" in call, "StrictHostKeyChecking=no" in call) for call in calls} == {(False, False), (True, True)}
