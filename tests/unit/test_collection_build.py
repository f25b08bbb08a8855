"""The collection that `make collection` builds, installed into an empty project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
HOSTS = {
    "compute": {
        "hosts": {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}},
        "vars": {
            "trainyard_cluster": "local", "trainyard_manage_system": False, "trainyard_become": False,
            "trainyard_user": "{{ lookup('ansible.builtin.pipe', 'id -un') }}",
            "trainyard_uid": "{{ lookup('ansible.builtin.pipe', 'id -u') | int }}",
        },
    }
}  # fmt: skip
JOB = {
    "job_name": "hello", "job_launcher": "direct", "job_nodes": 1, "job_ranks_per_node": 2, "job_devices": "none",
    "job_packages": [], "job_command": ["sh", "-c", "echo hello from $RANK"],
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """An empty project with the collection and its docs/collection.cfg, as docs/collection.md sets it up."""
    folder = tmp_path_factory.mktemp("project")
    build = [PROJECT / ".ci/collection.py", folder / "built"]
    archive = subprocess.run(build, check=True, capture_output=True, text=True).stdout.strip()
    root = {"trainyard_root": str(folder / "root"), "trainyard_state": str(folder / "state"),
            "trainyard_records": str(folder / "records")}  # fmt: skip
    hosts = {"compute": {**HOSTS["compute"], "vars": {**HOSTS["compute"]["vars"], **root}}}
    (folder / "hosts.json").write_text(json.dumps(hosts))
    (folder / "job.json").write_text(json.dumps(JOB))
    run(folder, 0, "ansible-galaxy", "collection", "install", archive, "-p", "collections")
    installed = folder / "collections/ansible_collections/trainyard/cluster"
    shutil.copy(installed / "docs/collection.cfg", folder / "ansible.cfg")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "root/venvs/pytorch"], check=True)
    return folder


def run(folder, status, *argv):
    """Run a command in the project, without anything of this checkout; return its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    env |= {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_job_runs_by_the_playbook_of_the_collection(project):
    output = run(project, 0, "ansible-playbook", "trainyard.cluster.launch", "-i", "hosts.json", "-e", "@job.json")
    assert "succeeded" in output and "hello from 0" in output
    (summary,) = project.glob("runs/hello-*/summary.json")
    assert json.loads(summary.read_text())["state"] == "succeeded"
    listed = run(project, 0, "ansible-playbook", "trainyard.cluster.jobs", "-i", "hosts.json")
    assert summary.parent.name in listed


def test_a_job_file_of_the_collection_finds_its_program(project):
    job = "@collections/ansible_collections/trainyard/cluster/jobs/digits.yml"
    output = run(project, 2, "ansible-playbook", "trainyard.cluster.launch", "-i", "hosts.json", "-e", job, "--check")
    assert "no torch" in output and "training/pytorch" not in output


def test_a_role_a_module_and_a_filter(project):
    tasks = [
        {"ansible.builtin.include_role": {"name": "trainyard.cluster.dataset", "rolespec_validate": False},
         "vars": {"dataset_sets": []}},
        {"trainyard.cluster.node_files": {"files": [{"path": str(project / "written"), "content": "text\n"}]}},
        {"ansible.builtin.debug": {"msg": "{{ 3725 | trainyard.cluster.duration }}"}},
    ]  # fmt: skip
    (project / "own.json").write_text(json.dumps([{"hosts": "compute", "gather_facts": False, "tasks": tasks}]))
    assert "1:02:05" in run(project, 0, "ansible-playbook", "own.json", "-i", "hosts.json")
    assert (project / "written").read_text() == "text\n"


def test_what_ansible_checks_without_an_index(project):
    """Its other checks install tools from one."""
    tests = ["action-plugin-docs", "compile", "empty-init", "ignores", "line-endings", "no-get-exception", "shebang",
             "no-illegal-filenames", "no-smart-quotes", "replace-urlopen", "symlinks", "use-argspec-type-path",
             "use-compat-six"]  # fmt: skip
    place = project / "collections/ansible_collections/trainyard/cluster"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    named = [word for test in tests for word in ("--test", test)]
    run(place, 0, "ansible-test", "sanity", "--python", version, *named)


def test_ansible_doc_knows_modules_with_their_fragments(project):
    text = run(project, 0, "ansible-doc", "trainyard.cluster.site_software")
    assert "trainyard.cluster.python_environment" in text


def test_without_the_check_of_input_nothing_runs(project):
    (project / "bare.cfg").write_text(f"[defaults]\ncollections_path = {project}/collections\n")
    bare = ["env", f"ANSIBLE_CONFIG={project}/bare.cfg"]
    output = run(project, 2, *bare, "ansible-playbook", "trainyard.cluster.launch", "-i", "hosts.json")
    setting = "callbacks_enabled = trainyard.cluster.trainyard_input"
    assert setting in output
    (named,) = re.findall(r"(\S+) has all\s+settings", output)
    assert setting in Path(named).read_text()
