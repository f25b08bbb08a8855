"""The commented inventory of a GPU cluster names only variables that something reads."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from ansible_run import PROJECT, run_ansible

GROUP_VARS = PROJECT / "inventories/example-gpu/group_vars"


def named_in(path):
    """Return the variables of a file, with those that are commented out."""
    return set(re.findall(r"^(?:# )?([a-z]+(?:_[a-z]+)+):", path.read_text(), re.MULTILINE))


def test_every_role_variable_of_the_example_is_a_default_of_a_role():
    defaults = set()
    for path in PROJECT.glob("roles/*/defaults/main.yml"):
        defaults |= set(yaml.safe_load(path.read_text()))
    named = named_in(GROUP_VARS / "compute.yml")
    assert len(named) > 15
    assert named - defaults == set()


def test_every_global_variable_of_the_example_is_read_somewhere():
    paths = [*PROJECT.glob("roles/*/defaults/main.yml"), *PROJECT.glob("playbooks/*.yml")]
    read = "".join(path.read_text() for path in paths)
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
        msg: "{{ (__pytorch_plan.pins + (['--index-url', pytorch_index_url] if pytorch_index_url else [])
                  + pytorch_extra_index_urls | map('regex_replace', '^', '--extra-index-url=')) | join(' ') }}"
"""


@pytest.mark.mirrors
@pytest.mark.long
def test_pip_finds_the_pytorch_of_the_example(tmp_path):
    """pip has this machine's own configuration, as the inventory names no index."""
    playbook = tmp_path / "pinned.yml"
    playbook.write_text(PINNED)
    run = run_ansible("ansible-playbook", "-i", str(PROJECT / "inventories/example-gpu"), str(playbook))
    # A busy machine shows lines of progress, too.
    options = " ".join(line for line in run.stdout.splitlines() if not line.startswith("  0:")).split()
    assert run.rc == 0 and options[0].startswith("torch=="), run.output
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", *options]
    found = subprocess.run(pip, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr


# Checks that only this machine fails, which takes the place of a host and does not reach NVIDIA.
OF_THIS_MACHINE = {"host name", "GPUs", "operating system", "kernel headers", "container", "packages", "space"}
OF_THIS_MACHINE |= {"package repository"}
# Nobody becomes root here, and the tests' own user need not be root.
OF_THIS_MACHINE |= {"folder", "trainyard_manage_system", "trainyard_user"}


def found_by_site(folder, host):
    """Return the checks of all findings of site.yml, with this machine in the place of a host; its group is alike."""
    given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "trainyard_become": False}
    given |= {
        "trainyard_manage_system": True,
        "trainyard_free_gib": 0,
        "ansible_user": None,
        "trainyard_root": f"{folder}/root",
    }
    # The test above asks PyTorch's index, and no test asks CIFAR-10's vendor.
    limit = f"{host},localhost"
    options = ["-i", str(folder), "--limit", limit, "--skip-tags=pytorch,dataset", "-e", json.dumps(given)]
    text = run_ansible("ansible-playbook", "playbooks/validate.yml", *options).output
    stack = re.search(r"^pytorch-cuda13: driver 580\.95\.05 open.*pytorch 2\.13\.0\+cu130$", text, re.MULTILINE)
    assert stack and host in text, text
    stops = text.partition("These hosts cannot become nodes yet")[2]
    return {check.partition(" on ")[0] for check in re.findall(r"^  \d+\. (.+)$", stops, re.MULTILINE)}, text


def test_the_example_inventory_has_only_findings_of_this_machine(tmp_path):
    shutil.copytree(PROJECT / "inventories/example-gpu", tmp_path, dirs_exist_ok=True)
    found, text = found_by_site(tmp_path, "gpu4")
    assert found - OF_THIS_MACHINE == set(), text


@pytest.mark.long
def test_the_example_of_the_nvidia_page_has_only_findings_of_this_machine(tmp_path):
    page = (PROJECT / "docs/nvidia.md").read_text()
    [inventory] = re.findall(r"```yaml\n# inventories/mine.yml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.yml").write_text(inventory)
    found, text = found_by_site(tmp_path, "gpu2")
    assert found - OF_THIS_MACHINE == set(), text
