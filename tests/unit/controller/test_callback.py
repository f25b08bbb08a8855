"""The exit status that a playbook asks for, which ansible-playbook itself does not know."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
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
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAY % (stats, fails))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", str(playbook)],
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    # What failed is still the last thing on the screen.
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


def play(tmp_path, text, *options):
    playbook = tmp_path / "play.yml"
    playbook.write_text(text)
    done = subprocess.run(
        ["ansible-playbook", *options, str(playbook)],
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def hosts_of(tmp_path, *names):
    inventory = tmp_path / "hosts.yml"
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(json.dumps({"compute": {"hosts": dict.fromkeys(names, here)}}))
    return "-i", str(inventory)


def test_findings_are_printed_once_without_what_ansible_says_of_each_host(tmp_path):
    status, said = play(tmp_path, FOUND, *hosts_of(tmp_path, "a", "b", "c", "d"))
    assert (status, said.count("1 finding")) == (2, 1)
    # A slow machine announces the task before.
    assert "fatal" not in said and "RECAP" not in said
    assert said[said.index("1 finding") :].strip().splitlines() == [
        "1 finding: stop.",
        "",
        "  1. disk on a, b, c, d",
        "     found     1 MiB",
        "     expected  more",
        "     do        make room",
    ]


def test_changes_before_findings_are_shown(tmp_path):
    changes = FOUND.replace("  tasks:", "  tasks:\n    - ansible.builtin.command: 'true'")
    status, said = play(tmp_path, changes, *hosts_of(tmp_path, "a", "b"))
    assert status == 2
    assert "PLAY RECAP" in said and said.count("1 finding: stop.") == 1 and "fatal" not in said


def test_other_failures_are_shown_as_ansible_does(tmp_path):
    text = "- hosts: compute\n  gather_facts: false\n  tasks:\n    - ansible.builtin.fail: {msg: no luck}\n"
    status, said = play(tmp_path, text, *hosts_of(tmp_path, "n1", "n2", "n3", "n4"))
    assert status == 2
    assert "fatal: [n1]: FAILED!" in said and "PLAY RECAP" in said
    assert said.rstrip().endswith("FAILED on n1 to n4: ansible.builtin.fail\nno luck"), said


OLD = """
import runpy, sys
import ansible.release
ansible.release.__version__ = "2.16.19"
runpy.run_path(sys.argv[1])
"""


def test_an_ansible_that_is_too_old_says_what_to_do():
    """Otherwise the only message would be about the first filter that cannot be loaded."""
    command = [sys.executable, "-c", OLD, str(PROJECT / "plugins/callback/trainyard.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(
        r"is ansible-core 2\.16\.19 .* expected ansible-core 2\.19 .*-r requirements/controller\.txt", done.stderr
    )
