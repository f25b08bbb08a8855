"""The commented inventory of a GPU cluster names only variables that something reads."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[3]
GROUP_VARS = PROJECT / "inventories/example-gpu/group_vars"


def named_in(path):
    """Variables of a file, also those that are commented out."""
    return set(re.findall(r"^(?:# )?([a-z]+(?:_[a-z]+)+):", path.read_text(), re.MULTILINE))


def test_every_role_variable_of_the_example_is_a_default_of_a_role():
    defaults = set()
    for path in PROJECT.glob("roles/*/defaults/main.yml"):
        defaults |= set(yaml.safe_load(path.read_text()))
    named = named_in(GROUP_VARS / "compute.yml")
    assert len(named) > 15
    assert named - defaults == set()


def test_every_global_variable_of_the_example_is_read_somewhere():
    read = "".join(
        path.read_text()
        for pattern in ("roles/*/defaults/main.yml", "playbooks/*.yml")
        for path in PROJECT.glob(pattern)
    )
    named = named_in(GROUP_VARS / "all.yml")
    assert len(named) > 5
    assert {name for name in named if name not in read} == set()


PINNED = """
- hosts: gpu1
  gather_facts: false
  vars: {trainyard_quiet: true}
  roles:
    - {role: pytorch, when: false}
  tasks:
    - ansible.builtin.debug:
        msg: "{{ ([__pytorch_pin] + (['--index-url', pytorch_index_url] if pytorch_index_url else [])
                  + pytorch_extra_index_urls | map('regex_replace', '^', '--extra-index-url=')) | join(' ') }}"
"""


def test_pip_finds_the_pytorch_of_the_example_where_it_looks_by_itself(tmp_path):
    """With the machine's own configuration of pip, as nothing else is named in the inventory either."""
    playbook = tmp_path / "pinned.yml"
    playbook.write_text(PINNED)
    said = subprocess.run(
        ["ansible-playbook", "-i", str(PROJECT / "inventories/example-gpu"), str(playbook)],
        env={**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.split()
    assert said[0].startswith("torch==")
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", *said]
    found = subprocess.run(pip, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
