"""What stands on the screen: plugins/callback/trainyard.py under real ansible-playbook runs on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run import processes
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import PATIENCE_S, wait_for
from job_samples import make_job, make_plan, member

PROJECT = Path(__file__).resolve().parents[3]
INVENTORY = """
compute:
  hosts: {{n1: , n2: , n3: }}
  vars: {{ansible_connection: local, ansible_python_interpreter: {ansible_python_interpreter}}}
"""


@pytest.fixture
def command(tmp_path):
    """The command and the environment that play a text."""

    def make(text, ansible_python_interpreter=sys.executable):
        inventory = INVENTORY.format(ansible_python_interpreter=ansible_python_interpreter)
        (tmp_path / "inventory.yml").write_text(inventory)
        (tmp_path / "play.yml").write_text(text)
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        env.update(ANSIBLE_CONFIG=str(PROJECT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", ANSIBLE_HOME=str(tmp_path))
        argv = [program, "-i", str(tmp_path / "inventory.yml"), str(tmp_path / "play.yml")]
        return argv, {"env": env, "cwd": tmp_path, "text": True}

    return make


@pytest.fixture
def play(command):
    def run(text, **changes):
        argv, options = command(text, **changes)
        done = subprocess.run(argv, **options, capture_output=True, check=False, timeout=PATIENCE_S)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


QUIET = """
- name: Prepare
  hosts: compute
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - name: Change something
      ansible.builtin.command: "true"
    - name: Tell
      ansible.builtin.debug: {msg: "4 ranks on 2 nodes"}
      run_once: true
    - name: Leave out
      ansible.builtin.command: "true"
      when: false
"""


def test_a_quiet_play_prints_only_what_is_meant_for_reading(play):
    assert play(QUIET)[:2] == (0, ["4 ranks on 2 nodes"])


def test_a_quiet_play_ends_with_the_failure_once_for_all_hosts(play):
    status, lines, errors = play(
        QUIET
        + """
    - name: Check
      ansible.builtin.fail: {msg: "{{ lookup('pipe', how_long) }}The job failed.\\n  rank 3 failed first"}
      vars: {how_long: "{{ 'sleep 1' if inventory_hostname == 'n1' else 'true' }}"}  # n1's result comes last
      when: inventory_hostname != 'n3'
"""
    )
    assert status != 0
    assert lines[0] == "4 ranks on 2 nodes"
    assert [line for line in (*lines[1:], *errors.splitlines()) if line] == [
        "Failed on n1, n2: Check",
        "The job failed.",
        "  rank 3 failed first",
    ]


def test_other_plays_list_changes_and_repeat_failures_at_the_end(play):
    status, lines, errors = play(
        """
- name: Provision
  hosts: compute
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.stat: {path: /}
    - name: Change something
      ansible.builtin.command: "true"
      when: inventory_hostname == 'n1'
    - name: Check
      ansible.builtin.assert: {that: false, fail_msg: "found x, expected y", quiet: true}
      when: inventory_hostname == 'n2'
"""
    )
    text = "\n".join(lines)
    assert status != 0
    assert "PLAY [Provision]" in text and "changed: [n1]" in text and "PLAY RECAP" in text
    assert "ok: [" not in text and "skipping" not in text
    said = [line for line in [*lines, *errors.splitlines()] if line]
    assert said[-2:] == ["FAILED on n2: Check", "found x, expected y"]


def test_ctrl_c_ends_the_watching_and_says_how_to_come_back(command, tmp_path):
    job_dir = tmp_path / "job"
    plan = {**make_plan(make_job(), [member(0)]).as_dict(), "job_id": "digits-1", "job_name": "digits"}
    (tmp_path / "runs" / "digits-1").mkdir(parents=True)
    write_json(tmp_path / "runs" / "digits-1" / "plan.json", {**plan, "job_dir": str(job_dir)})
    (job_dir / "exits").mkdir(parents=True)
    write_json(job_dir / "node_plan.json", {"job_id": "digits-1", "supervision": "children", "processes": []})
    cluster = {
        "end": None,
        "ranks_running": 4,
        "world_size": 4,
        "elapsed_s": 62,
        "metrics": {"step": 7.0},
        "started": 1,
    }
    failure = {"kind": "exit", "host": "n4", "process": "agent", "ranks": [3], "result": "exit-code", "exit_code": 7}
    restart = {"elapsed_s": 31.0, "reason": "rank 3 on n4: exit code 7", "restarted": "agent", "failure": failure}
    cluster["restarts"] = {"history": [restart]}
    write_json(job_dir / "cluster.json", cluster)
    argv, options = command(
        f"""
- name: Watch
  hosts: n1
  gather_facts: false
  vars: {{trainyard_quiet: true}}
  tasks:
    - name: Find
      job_run_info: {{runs_dir: {tmp_path}/runs, job_id: digits-1}}
    - name: Watch
      job_watch: {{run_dir: {tmp_path}/runs/digits-1}}
"""
    )
    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as monitor,
        (tmp_path / "screen").open("w") as screen,
    ):
        known = {"pid": monitor.pid, "start_time": processes.start_time(monitor.pid), "started": 1.0, "end": None}
        write_json(job_dir / "monitor.json", known)
        watcher = subprocess.Popen(
            argv, **options, stdin=subprocess.DEVNULL, stdout=screen, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            line = "  0:01:02   4/4 ranks running   step 7"
            wait_for(lambda: line in (tmp_path / "screen").read_text().splitlines(), "a line of progress")
            again = "  0:00:31   rank 3 on n4: exit code 7, so agent starts again"
            assert (tmp_path / "screen").read_text().splitlines().count(again) == 1
            # A terminal sends it to all processes of the command.
            os.killpg(watcher.pid, signal.SIGINT)
            assert watcher.wait(PATIENCE_S) != 0
            text = (tmp_path / "screen").read_text()
            assert text.count("No longer watching. Job digits-1 goes on.") == 1
            for book in ("watch", "status", "logs", "stop"):
                assert f"ansible-playbook playbooks/{book}.yml -i inventory.yml -e job_id=digits-1" in text
            assert monitor.poll() is None
        finally:
            monitor.kill()
            watcher.kill()
            watcher.wait()


def test_rescued_failures_are_not_shown_and_repeated_ones_once(play):
    status, lines, _ = play(
        """
- name: Build
  hosts: n1, n2
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - name: Try
      block: [{name: Build, ansible.builtin.fail: {msg: "no compiler"}}]
      rescue:
        - name: Say why
          ansible.builtin.fail: {msg: "no compiler, and all is as before"}
          when: inventory_hostname == 'n1'
"""
    )
    assert status == 2
    assert [line for line in lines if line] == ["Failed on n1: Say why", "no compiler, and all is as before"]


def test_a_launch_says_so_where_no_node_tells_what_it_is(play, tmp_path):
    status, lines, errors = play(
        f"""
- name: Launch on two whose Python says nothing
  ansible.builtin.import_playbook: {PROJECT}/launch.yml
  vars:
    job_name: digits
    job_command: ["/usr/bin/true"]
    job_hosts: n1:n2
    trainyard_runs: {tmp_path}/runs
    trainyard_become: false
""",
        ansible_python_interpreter="/bin/true",
    )
    text = "\n".join([*lines, *errors.splitlines()])
    assert status == 2
    assert "1 finding: the job cannot be planned, and nothing was started." in text
    assert "1. answer on n1, n2\n" in text and "found     no output (exit status 0)\n" in text
    assert not (tmp_path / "runs").exists()
