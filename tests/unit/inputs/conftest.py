"""Run playbooks with inventories that are written for them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from documented import SMALLEST

PROJECT = Path(__file__).resolve().parents[3]
SHOW = """
- hosts: %s
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: >-
          {%% set out = {} %%}
          {%%- for name in %s %%}{%% set _ = out.update({name: lookup('vars', name)}) %%}{%% endfor %%}
          {{ out | to_json }}
        dest: %s/{{ inventory_hostname }}.json
      delegate_to: localhost
"""


class Run:
    """How ansible-playbook ended and what it printed, on one line as well."""

    def __init__(self, done):
        self.rc = done.returncode
        self.output = done.stdout + done.stderr
        self.text = " ".join(self.output.split())


@pytest.fixture
def playbook(tmp_path):
    """Run a playbook with an inventory: its text, the path of one, or None for no option -i."""

    def run(book, *arguments, inventory=SMALLEST, cwd=PROJECT, **env):
        options = []
        if isinstance(inventory, str):
            path = tmp_path / ("hosts.yml" if inventory.startswith("compute") else "hosts.ini")
            path.write_text(inventory)
            options = ["-i", str(path)]
        elif inventory:
            options = ["-i", str(inventory)]
        env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **env}
        argv = ["ansible-playbook", *options, book, *arguments]
        done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)
        return Run(done)

    return run


@pytest.fixture
def show(playbook, tmp_path):
    """Return what hosts see of variables, as JSON."""

    def run(names, *arguments, hosts="localhost", **how):
        book = tmp_path / "show.yml"
        book.write_text(SHOW % (hosts, names, tmp_path))
        done = playbook(str(book), *arguments, **how)
        assert done.rc == 0, done.output
        return {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}

    return run
