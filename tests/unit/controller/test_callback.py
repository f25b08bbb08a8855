"""The exit status that a playbook asks for, which ansible-playbook itself does not know."""

import re
import subprocess
import sys

import pytest
from plays import PROJECT, play

PLAY = """
- hosts: localhost
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - ansible.builtin.set_stats: {data: {%s}}
    - ansible.builtin.fail: {msg: "{{ item }}"}
      loop: [what is not known, nor this, what is not known]
      when: %s
"""


@pytest.mark.parametrize(
    ("stats", "fails", "status"), [("trainyard_exit: 3", "true", 3), ("other: 3", "true", 2), ("other: 3", "false", 0)]
)
def test_a_playbook_chooses_its_exit_status(tmp_path, stats, fails, status):
    done = play(tmp_path, PLAY % (stats, fails), {})
    assert done.returncode == status, done.stdout + done.stderr
    # The failure is still the last thing on the screen.
    assert done.stdout.strip() == ("what is not known\nnor this" if fails == "true" else "")


FOUND = """
- hosts: compute
  gather_facts: false
  tasks:
    - findings:
        headline: "{count} {findings}: stop."
        findings: "{{ [{'host': 'a'}, {'host': 'b'}, {'host': 'c'}, {'host': 'd'}] | map('combine', fault) }}"
      vars: {fault: {check: disk, found: 1 MiB, expected: more, action: make room}}
      delegate_to: localhost
      run_once: true
"""


def played(folder, text, hosts):
    done = play(folder, text, {host: {} for host in hosts})
    return done.returncode, done.stdout


def test_findings_are_printed_once_without_ansibles_message_for_each_host(tmp_path):
    status, text = played(tmp_path, FOUND, "abcd")
    assert (status, text.count("1 finding")) == (2, 1)
    # A slow machine announces the task before.
    assert "fatal" not in text and "RECAP" not in text
    shown = " ".join(text[text.index("1 finding") :].split())
    assert shown == "1 finding: stop. 1. disk on a, b, c, d found 1 MiB expected more do make room"


def test_changes_before_findings_are_shown(tmp_path):
    changes = FOUND.replace("  tasks:", "  tasks:\n    - ansible.builtin.command: 'true'")
    status, text = played(tmp_path, changes, "ab")
    assert status == 2
    assert "PLAY RECAP" in text and text.count("1 finding: stop.") == 1 and "fatal" not in text


def test_other_failures_are_shown_as_ansible_does(tmp_path):
    failing = "- hosts: compute\n  gather_facts: false\n  tasks:\n    - ansible.builtin.fail: {msg: no luck}\n"
    status, text = played(tmp_path, failing, ("n1", "n2", "n3", "n4"))
    assert status == 2
    assert "fatal: [n1]: FAILED!" in text and "PLAY RECAP" in text
    assert text.rstrip().endswith("FAILED on n1 to n4: ansible.builtin.fail\nno luck"), text


OLD = """
import runpy, sys
import ansible.release
ansible.release.__version__ = "2.16.19"
runpy.run_path(sys.argv[1])
"""


def test_an_ansible_that_is_too_old_has_an_action():
    """Otherwise the only message would be about the first filter that cannot be loaded."""
    argv = [sys.executable, "-c", OLD, str(PROJECT / "plugins/callback/trainyard.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(r"is ansible-core 2\.16\.19 .* expected ansible-core 2\.19 .*controller\.txt", done.stderr)
