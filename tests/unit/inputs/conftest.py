"""Run playbooks with inventories that are written for them."""

import json

import pytest
from ansible.module_utils.trainyard.base.adhoc import from_here
from ansible_run import PROJECT, run_ansible
from documented import SMALLEST

SHOW = """
- hosts: %s
  gather_facts: false
  tasks:
    # No module: those take longer than all the rest.
    - ansible.builtin.set_fact:
        written: >-
          {%% set out = {} %%}
          {%%- for name in %s %%}{%% set _ = out.update({name: lookup('vars', name)}) %%}{%% endfor %%}
          {{ lookup('pipe', 'printf %%s ' ~ (out | to_json | quote) ~ ' >%s/' ~ inventory_hostname ~ '.json') }}
"""


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
        return run_ansible("ansible-playbook", *options, book, *arguments, cwd=cwd, **env)

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


@pytest.fixture
def write(tmp_path):
    """Write files of these texts by path."""

    def run(texts):
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / name).write_text(text)

    return run


@pytest.fixture
def here(tmp_path):
    """Return the test's folder as playbooks name it, which are called in the project's folder."""
    return from_here(str(tmp_path), str(PROJECT))
