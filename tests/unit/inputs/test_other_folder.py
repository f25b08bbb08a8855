"""Calls of a playbook from another folder, where Ansible does not find the project's configuration."""

import os
import subprocess
import sys

import pytest
from ansible_run import PROJECT, run_ansible


@pytest.fixture
def call(tmp_path, monkeypatch):
    (tmp_path / "hosts.yml").write_text("compute: {hosts: {n1: {ansible_connection: local}}}\n")
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)

    def run(book, *arguments, config=None):
        argv = ["ansible-playbook", str(PROJECT / book), "-i", "hosts.yml", *arguments]
        return run_ansible(*argv, cwd=tmp_path, ANSIBLE_CONFIG=config)

    return run


@pytest.mark.parametrize("book", ["launch.yml", "playbooks/status.yml"])
def test_a_call_from_another_folder_is_a_finding(call, book):
    """Playbooks lie in two folders, each of which has the plugin that says so."""
    run = call(book)
    run.expect(2, f"do cd {PROJECT}, or export ANSIBLE_CONFIG={PROJECT}/ansible.cfg")
    assert "ERROR" not in run.text and "PLAY" not in run.text


def test_another_configuration_is_named(call, tmp_path):
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = 2\n")
    run = call("launch.yml", config=str(tmp_path / "ansible.cfg"))
    run.expect(2, f"found {tmp_path}/ansible.cfg expected {PROJECT}/ansible.cfg")


def test_facts_never_replace_variables_of_the_inventory(call, monkeypatch):
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "True")
    run = call("playbooks/status.yml", config=str(PROJECT / "ansible.cfg"))
    run.expect(2, "found inject_facts_as_vars is on expected it off", "or unset ANSIBLE_INJECT_FACT_VARS")
    assert "PLAY" not in run.text


# What ansible-playbook does for each host, often; the folder of the playbook brings its plugins.
READ_VARIABLES = """
import sys
from ansible.inventory.host import Host
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, vars_loader
from ansible.vars.plugins import get_vars_from_path

init_plugin_loader()
vars_loader.add_directory(sys.argv[1])
for host in ("n1", "n2"):
    get_vars_from_path(DataLoader(), ".", [Host(host)], "task")
    (file,) = [module for name, module in sys.modules.items() if name.endswith("trainyard_folder")]
    file.VarsModule.get_vars = None
print("loaded, and", "asked" if "trainyard_folder" in vars_loader._plugin_instance_cache else "not asked")
"""


def test_the_plugin_is_loaded_but_never_asked_for_variables(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", READ_VARIABLES, str(PROJECT / "playbooks/vars_plugins")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "loaded, and not asked\n"), done.stderr
