"""The commented inventory of a GPU cluster names only variables that something reads."""

import json
import os
import re
import shutil
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
        msg: "{{ (__pytorch_plan.pins + (['--index-url', pytorch_index_url] if pytorch_index_url else [])
                  + pytorch_extra_index_urls | map('regex_replace', '^', '--extra-index-url=')) | join(' ') }}"
"""


def test_pip_finds_the_pytorch_of_the_example(tmp_path):
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


# What this machine may be that the example's hosts are not, as all of them are this machine here, and no way to NVIDIA.
OF_THIS_MACHINE = {"host name", "GPUs", "operating system", "kernel headers", "container", "packages", "space"}
OF_THIS_MACHINE |= {"package repository"}


def found_by_site(folder, *hosts):
    """The checks of all findings of site.yml's first look, with this machine in the place of all hosts."""
    given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "trainyard_become": False}
    given |= {"trainyard_free_gib": 0, "ansible_user": None, "trainyard_root": f"{folder}/root"}
    # PyTorch's index is asked by the test above, and CIFAR-10's vendor by nobody here.
    skipped = "--skip-tags=pytorch,dataset"
    done = subprocess.run(
        ["ansible-playbook", "playbooks/validate.yml", "-i", str(folder), skipped, "-e", json.dumps(given)],
        cwd=PROJECT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    text = done.stdout + done.stderr
    stack = re.search(r"^pytorch-cuda13: driver 580\.95\.05 open.*pytorch 2\.13\.0\+cu130$", text, re.MULTILINE)
    assert stack and all(host in text for host in hosts), text
    stops = text.partition("These hosts cannot become nodes yet")[2]
    return {check.partition(" on ")[0] for check in re.findall(r"^  \d+\. (.+)$", stops, re.MULTILINE)}, text


def test_the_example_inventory_has_only_findings_of_this_machine(tmp_path):
    shutil.copytree(PROJECT / "inventories/example-gpu", tmp_path, dirs_exist_ok=True)
    found, text = found_by_site(tmp_path, "gpu1", "gpu4")
    assert found - OF_THIS_MACHINE == set(), text


def test_the_example_of_the_nvidia_page_has_only_findings_of_this_machine(tmp_path):
    blocks = re.findall(
        r"```yaml\n# inventories/mine/(\S+)\n(.*?)```", (PROJECT / "docs/nvidia.md").read_text(), re.DOTALL
    )
    assert [name for name, _ in blocks] == ["hosts.yml", "group_vars/all.yml"]
    for name, text in blocks:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found, text = found_by_site(tmp_path, "gpu1", "gpu2")
    assert found - OF_THIS_MACHINE == set(), text
