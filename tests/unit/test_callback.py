"""The exit status that a playbook asks for, which ansible-playbook itself does not know."""

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PLAY = """
- hosts: localhost
  gather_facts: false
  vars: {trainyard_quiet: true}
  tasks:
    - ansible.builtin.set_stats: {data: {%s}}
    - ansible.builtin.fail: {msg: what is not known}
      when: %s
"""


@pytest.mark.parametrize(
    ("stats", "fails", "status"),
    [("trainyard_exit: 3", "true", 3), ("other: 3", "true", 2), ("other: 3", "false", 0)],
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
    assert done.stdout.strip() == ("what is not known" if fails == "true" else "")
