"""The variables of hosts as the input checks read them: those that Ansible gives in the play, at the cost of a few."""

from __future__ import annotations

import json

import pytest
from plays import PROJECT, play

# Reads all hosts in both ways, and notes which variables differ and how often Ansible was asked for those of a play.
COMPARE = """
import json
from pathlib import Path
from ansible.plugins.callback import CallbackBase
from ansible.vars.manager import VariableManager
from ansible.module_utils.trainyard_controller.inputs.input_run import InputRun
class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "compare"
    def v2_playbook_on_play_start(self, play):
        run = InputRun(play, Path("{folder}/play.yml"), Path("{project}"))
        get_vars, asked, differing = VariableManager.get_vars, [], []
        def counted(self, play=None, **given):
            asked.append(play is not None)
            return get_vars(self, play=play, **given)
        VariableManager.get_vars = counted
        found = {{host.name: run.variables(host) for host in run.inventory.get_hosts()}}
        VariableManager.get_vars = get_vars
        for name, variables in found.items():
            expected = get_vars(run.manager, play=play, host=run.inventory.get_host(name))
            for each in (variables, expected):
                each["vars"] = {{name: value for name, value in each["vars"].items() if name != "vars"}}
            differing += [each for each in {{*variables, *expected}} if variables.get(each, 0) != expected.get(each, 0)]
        Path("{folder}/noted.json").write_text(json.dumps([differing, asked.count(True), found["n2"]["of_play"]]))
"""
PLAY = """
- name: Compare
  hosts: all
  gather_facts: false
  vars: {{of_play: the play's, of_file: the play's, of_extra: the play's}}
  {files}
  roles: [exporting]
"""


@pytest.fixture
def compare(tmp_path):
    """Play with hosts of which one overrides what the play and its role have; return what was noted."""

    def run(files):
        for name, text in {
            "compare/compare.py": COMPARE.format(folder=tmp_path, project=PROJECT),
            "roles/exporting/defaults/main.yml": "{of_role: a default, only_of_role: a default}",
            "roles/exporting/vars/main.yml": "{exported: the role's}",
            "host_vars/n2.yml": "{of_play: n2's, of_role: n2's, exported: n2's, of_host: '{{ of_play }}'}",
            "group_vars/compute.yml": "{of_group: the group's, of_file: the group's}",
            "own.n2.yml": "{of_file: n2's file}",
        }.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        settings = {"ANSIBLE_CALLBACK_PLUGINS": f"{PROJECT}/plugins/callback:{tmp_path}/compare",
                    "ANSIBLE_CALLBACKS_ENABLED": "compare"}  # fmt: skip
        hosts = {name: {"of_inventory": name} for name in ("n1", "n2", "n3")}
        done = play(tmp_path, PLAY.format(files=files), hosts, "-e", '{"of_extra": "extra"}', **settings)
        assert (tmp_path / "noted.json").exists(), done.stdout + done.stderr
        return json.loads((tmp_path / "noted.json").read_text())

    return run


def test_hosts_have_the_variables_that_a_play_gives_them(compare):
    # Once for the play, whatever the number of hosts: it lists all of them.
    assert compare("") == [[], 1, "the play's"]


def test_files_of_a_play_may_depend_on_the_host(compare):
    assert compare('vars_files: [["own.{{ inventory_hostname }}.yml"]]') == [[], 3, "the play's"]
