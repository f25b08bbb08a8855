"""The output of plugins/callback/trainyard.py under real ansible-playbook runs on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import PATIENCE_S, wait_for
from job_samples import make_job, make_plan, member
from plays import PROJECT, command, patched
from plays import play as run_play


@pytest.fixture
def play(tmp_path):
    """Play a text over three hosts; return the status, and the lines of the output and the errors."""

    def run(text, **variables):
        done = run_play(tmp_path, text, dict.fromkeys(("n1", "n2", "n3"), variables))
        lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line]
        # A slow machine shows progress, too.
        return done.returncode, [line for line in lines if not re.match(r"  \d+:\d\d:\d\d   ", line)]

    return run


QUIET = """
- name: Prepare
  hosts: compute
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - name: Change something
      ansible.builtin.raw: "true"
    - name: Note a number
      ansible.builtin.set_stats: {data: {other: 3}}
    - name: Tell
      ansible.builtin.debug: {msg: "4 ranks on 2 nodes"}
      run_once: true
    - name: Leave out
      ansible.builtin.raw: "true"
      when: false
"""


def test_a_quiet_play_prints_only_its_messages(play):
    assert play(QUIET) == (0, ["4 ranks on 2 nodes"])


def test_a_message_names_its_host_once(play):
    message = QUIET[: QUIET.index("    - name: Leave out")].replace("quiet: true", "quiet: false")
    for text in ("built", "{{ inventory_hostname }}: built"):
        _, lines = play(message.replace("4 ranks on 2 nodes", text).replace("      run_once: true\n", ""))
        assert sorted(line for line in lines if "built" in line) == [f"n{number}: built" for number in (1, 2, 3)]


def test_a_quiet_play_ends_with_the_failure_once_for_all_hosts(play):
    status, lines = play(
        QUIET
        + """
    - name: Check
      ansible.builtin.fail: {msg: "{{ lookup('pipe', how_long) }}The job failed.\\n  rank 3 failed first"}
      vars: {how_long: "{{ 'sleep 1' if inventory_hostname == 'n1' else 'true' }}"}  # n1's result comes last
      when: inventory_hostname != 'n3'
"""
    )
    assert status != 0
    assert lines == ["4 ranks on 2 nodes", "Failed on n1, n2: Check", "The job failed.", "  rank 3 failed first"]


CHANGES = """
- name: Provision
  hosts: compute
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.raw: "true"
      changed_when: false
    - name: Change something
      ansible.builtin.raw: "true"
      when: inventory_hostname == 'n1'
"""


def test_other_plays_list_changes_and_repeat_failures_at_the_end(play):
    check = """
    - name: Check
      ansible.builtin.assert: {that: false, fail_msg: "found x, expected y", quiet: true}
      when: inventory_hostname != 'n1'
"""
    status, lines = play(CHANGES + check)
    text = "\n".join(lines)
    assert status == 2
    assert "PLAY [Provision]" in text and "changed: [n1]" in text and "PLAY RECAP" in text
    assert "fatal: [n2]: FAILED!" in text and "ok: [" not in text and "skipping" not in text
    assert lines[-2:] == ["FAILED on n2, n3: Check", "found x, expected y"]


FINDINGS = """
    - findings:
        headline: "{count} {findings}: stop."
        findings: "{{ [{'host': 'n1'}, {'host': 'n2'}] | map('combine', fault) }}"
      vars: {fault: {check: disk, found: 1 MiB, expected: more, action: make room}}
      delegate_to: localhost
      run_once: true
"""


@pytest.mark.parametrize("changes", [False, True])
def test_findings_are_printed_once_after_changes_and_without_ansibles_message_for_each_host(play, changes):
    status, lines = play((CHANGES if changes else CHANGES[: CHANGES.index("    - name: Look")]) + FINDINGS)
    text = "\n".join(lines)
    assert (status, text.count("1 finding")) == (2, 1)
    # A slow machine announces the task before.
    assert "fatal" not in text and ("PLAY RECAP" in text) == changes
    shown = " ".join(text[text.index("1 finding") :].split())
    assert shown == "1 finding: stop. 1. disk on n1, n2 found 1 MiB expected more do make room"


WATCH = """
- name: Watch
  hosts: n1
  gather_facts: false
  vars: {{trainyard_quiet: true}}
  tasks:
    - name: Find
      job_runs: {{step: find, runs_dir: {folder}/runs, job_id: digits-1}}
    - name: Watch
      job: {{step: watch, run_dir: {folder}/runs/digits-1}}
"""


@pytest.fixture
def watched(tmp_path):
    """Return the command that watches a job, and its options; the job must go on."""
    job_dir, run_dir = tmp_path / "job", tmp_path / "runs" / "digits-1"
    plan = {**make_plan(make_job(), [member(0)]).as_dict(), "job_id": "digits-1", "job_name": "digits"}
    run_dir.mkdir(parents=True)
    write_json(run_dir / "plan.json", {**plan, "job_dir": str(job_dir)})
    (job_dir / "exits").mkdir(parents=True)
    write_json(job_dir / "node_plan.json", {"job_id": "digits-1", "processes": []})
    failure = {"kind": "exit", "host": "n4", "process": "agent", "ranks": [3], "result": "exit-code", "exit_code": 7}
    restart = {"elapsed_s": 31.0, "reason": "rank 3 on n4: exit code 7", "restarted": "agent", "failure": failure}
    cluster = {"end": None, "started": 1, "ranks_running": 4, "world_size": 4, "elapsed_s": 62}
    cluster |= {"metrics": {"step": 7.0}, "restarts": {"history": [restart]}}
    write_json(job_dir / "cluster.json", cluster)
    argv, options = command(tmp_path, WATCH.format(folder=tmp_path), {"n1": {}})
    # Its name chooses what an interrupt does.
    (tmp_path / "play.yml").rename(tmp_path / "watch.yml")
    argv = [str(tmp_path / "watch.yml") if word.endswith("play.yml") else word for word in argv]
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as monitor:
        running = {"pid": monitor.pid, "start_time": process_table.start_time(monitor.pid), "started": 1.0, "end": None}
        write_json(job_dir / "monitor.json", running)
        try:
            yield argv, {**options, "stdin": subprocess.DEVNULL, "start_new_session": True}
            assert monitor.poll() is None
        finally:
            monitor.kill()


def names_the_next_commands(text):
    return text.count("No longer watching. Job digits-1 goes on.") == 1 and all(
        f"ansible-playbook playbooks/{name}.yml -i hosts.json -e job_id=digits-1" in text
        for name in ("watch", "status", "logs", "stop")
    )


def test_ctrl_c_ends_the_watching_and_names_the_next_commands(watched, tmp_path):
    argv, options = watched
    screen = tmp_path / "screen"
    with screen.open("w") as output:
        watcher = subprocess.Popen(argv, **options, stdout=output, stderr=subprocess.STDOUT)
        try:
            line = "  0:01:02   4/4 ranks running   step 7"
            wait_for(lambda: line in screen.read_text().splitlines(), "a line of progress")
            again = "  0:00:31   rank 3 on n4: exit code 7, so agent starts again"
            assert screen.read_text().splitlines().count(again) == 1
            # A terminal sends it to all processes of the command.
            os.killpg(watcher.pid, signal.SIGINT)
            assert watcher.wait(PATIENCE_S) == 130
            assert names_the_next_commands(screen.read_text())
        finally:
            watcher.kill()
            watcher.wait()


@pytest.mark.parametrize("to", ['"$@" | head -n 1; exit ${PIPESTATUS[0]}', '"$@" > /dev/full'])
def test_a_watch_whose_output_is_gone_leaves_and_the_job_goes_on(watched, to):
    """`| head -1` ends after a line; a log on a full disk takes none."""
    argv, options = watched
    done = subprocess.run(
        ["bash", "-c", to, "-", *argv], **options, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 128 + signal.SIGPIPE, done.stderr
    assert names_the_next_commands(done.stderr) and "Traceback" not in done.stderr, done.stderr


SHOUT = """
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        for line in range(3):
            self._display.display(f"line {line} of a task")
        return {"changed": False}
"""


def test_other_plays_whose_output_is_gone_run_to_their_end(tmp_path):
    """As with Ansible's own callback. The lines of a task come from a process of its own."""
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins/shout.py").write_text(SHOUT)
    text = (
        CHANGES
        + f"""
    - shout:
    - ansible.builtin.file: {{path: {tmp_path}/end, state: touch}}
"""
    )
    argv, options = command(tmp_path, text, {"n1": {}})
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, **options, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (done.returncode, (tmp_path / "end").exists()) == (0, True), done.stderr
    assert done.stderr.count("No space left on device") == 1, done.stderr


def test_rescued_failures_are_not_shown_and_repeated_ones_once(play):
    status, lines = play(
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
    assert (status, lines) == (2, ["Failed on n1: Say why", "no compiler, and all is as before"])


def test_a_launch_names_nodes_whose_python_prints_nothing(play, tmp_path):
    status, lines = play(
        f"""
- name: Launch on two nodes whose Python prints nothing
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
    text = "\n".join(lines)
    assert status == 2
    assert "1 finding: the job cannot be planned, and nothing was started." in text
    assert "1. answer on n1, n2\n" in text and "found     no output (exit status 0)\n" in text
    assert not (tmp_path / "runs").exists()


SLOW = """
- name: Provision
  hosts: n1, n2
  gather_facts: false
  tasks:
    - name: Download the archive of {{ part }}
      download: {url: "file://{{ here }}/archive.tar", dest: "{{ here }}/{{ inventory_hostname }}"}
      vars: {part: MPI}
    - name: Build it
      ansible.builtin.command: sleep 2
      async: 600
      poll: 1
    - name: Wait for it
      ansible.builtin.shell: "[ -e {{ here }}/ready ] || { touch {{ here }}/ready; exit 1; }"
      register: __tried
      until: __tried is success
      retries: 2
      delay: 0
      when: inventory_hostname == 'n1'
    - name: Link it
      ansible.builtin.shell: "for i in $(seq 900); do [ ! -e {{ here }}/seen ] || exit 0; sleep 0.1; done; exit 1"
"""
# ansible-playbook, where half a second counts as long.
IMPATIENT = """
from ansible.module_utils.trainyard_controller.ansible import running_task
running_task.CHECK_S, running_task.SILENT_S, running_task.ANNOUNCE_AFTER_S = 0.1, 0.5, 0.2
"""


def test_a_long_task_is_shown_while_it_runs_and_what_it_did_once_for_all_hosts(tmp_path):
    (tmp_path / "archive.tar").write_bytes(bytes(3 << 20))
    argv, options = command(tmp_path, SLOW, {name: {"here": str(tmp_path)} for name in ("n1", "n2")})
    argv = patched(argv, IMPATIENT)
    # As for a user, whose output to a pipe is not written line by line.
    options["env"].pop("PYTHONUNBUFFERED", None)
    lines = []
    with subprocess.Popen(argv, **options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as played:
        for line in played.stdout:
            lines.append(line.rstrip())
            # Its line comes while the task runs, not when a buffer is full: the task waits for that.
            if lines[-1].endswith("   Link it on n1, n2"):
                (tmp_path / "seen").touch()
    text = "\n".join(lines)
    assert played.returncode == 0, text
    assert re.search(
        r"TASK \[Download the archive of MPI\].*\n(?s:.*)\nn1, n2: downloaded archive.tar \(3 MiB\) in", text
    )
    assert re.search(r"^n1, n2: done in \d+ s", text, re.MULTILINE) and "ASYNC" not in text
    assert "RETRYING" not in text and "Wait for it" in text


STATUS = """
- hosts: localhost
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - ansible.builtin.set_stats: {data: {%s}}
    - ansible.builtin.fail: {msg: "{{ item }}"}
      loop: [what is not known, nor this, what is not known]
"""


def test_a_playbook_chooses_its_exit_status(play):
    # The failure is still the last thing on the screen.
    assert play(STATUS % "trainyard_exit: unknown") == (3, ["what is not known", "nor this"])


OLD = """
import runpy, sys
import ansible.release
ansible.release.__version__ = "2.16.19"
runpy.run_path(sys.argv[1])
"""


def test_an_ansible_that_is_too_old_has_an_action():
    """Otherwise the only message would be about the first filter that cannot be loaded."""
    argv = [sys.executable, "-c", OLD, str(PROJECT / "plugins/callback/trainyard.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert re.search(r"is ansible-core 2\.16\.19 .* expected ansible-core 2\.19 .*controller\.txt", done.stderr)
