"""Files that users give: text in UTF-8, encrypted ones with their password, templates whose variables are set."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs.job_file import from_here

PROJECT = Path(__file__).resolve().parents[3]
JOB = "job_name: probe\njob_command: [hostname]\njob_launcher: direct\njob_venv: ''\njob_packages: []\n"
HERE = 'ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"'


@pytest.fixture
def call(tmp_path):
    """Run a playbook of the project on an inventory in a folder of its own."""
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (tmp_path / "password").write_text("right")
    (tmp_path / "wrong").write_text("wrong")

    def run(book, *arguments, host="", variables=""):
        (folder / "hosts.yml").write_text(f"compute: {{hosts: {{n1: {{{HERE}{host}}}}}, vars: {{{variables}}}}}\n")
        env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        argv = ["ansible-playbook", book, "-i", str(folder), *arguments]
        done = subprocess.run(argv, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
        output = " ".join((done.stdout + done.stderr).split())
        assert "ERROR" not in output and "WARNING" not in output and "Task failed" not in output, output
        return done.returncode, output

    return run


def shown(path):
    """Return a path as playbooks name it, which are called in the project's folder."""
    return from_here(str(path), str(PROJECT))


def encrypt(path, password):
    subprocess.run(
        ["ansible-vault", "encrypt", "--vault-password-file", password, path], check=True, capture_output=True
    )


@pytest.mark.parametrize("way", ["@{}", "job={}"])
def test_a_job_file_that_is_no_utf_8(call, tmp_path, way):
    file = tmp_path / "job.yml"
    file.write_bytes(JOB.encode() + b"note: caf\xe9\n")
    rc, text = call("launch.yml", "-e", way.format(file))
    assert (rc, f"found byte 0xe9 in {shown(file)}, line 6 expected text in UTF-8" in text) == (2, True)


@pytest.mark.parametrize("way", ["@{}", "job={}"])
def test_an_encrypted_job_file_without_its_password(call, tmp_path, way):
    file = tmp_path / "job.yml"
    file.write_text(JOB)
    encrypt(file, tmp_path / "password")
    rc, text = call("launch.yml", "-e", way.format(file))
    assert (rc, f"found {shown(file)} is encrypted, and there is no password" in text) == (2, True)
    rc, text = call("launch.yml", "-e", way.format(file), "--vault-password-file", str(tmp_path / "wrong"))
    assert (rc, f"found no password that was given decrypts {shown(file)}" in text) == (2, True)
    right = ["--vault-password-file", str(tmp_path / "password")]
    rc, text = call("launch.yml", "-e", way.format(file), "-e", "job_nodes=-1", *right)
    assert (rc, "1 finding" in text, "job_nodes found -1" in text) == (2, True, True)


def test_files_of_the_inventory_are_looked_at_all_at_once(call, tmp_path):
    variables = tmp_path / "inventory" / "group_vars"
    (variables / "all.yml").write_text("password: x\n")
    encrypt(variables / "all.yml", tmp_path / "password")
    (variables / "compute.yml").write_bytes(b"# caf\xe9\n")
    rc, text = call("playbooks/status.yml")
    assert (rc, "2 findings" in text) == (2, True)
    assert "group_vars/all.yml is encrypted" in text and "byte 0xe9 in" in text


@pytest.mark.parametrize("value", ["{name: x}", "[a]", "3"])
def test_a_job_that_is_no_path(call, tmp_path, value):
    file = tmp_path / "job.yml"
    file.write_text(f"job: {value}\n")
    rc, text = call("launch.yml", "-e", f"@{file}")
    assert (rc, "as the variable job:" in text) == (2, True)


@pytest.mark.parametrize("book", ["launch.yml", "playbooks/status.yml", "playbooks/validate.yml"])
def test_what_the_inventory_uses_and_nobody_has_set(call, book, tmp_path):
    more = ["-e", "job_name=probe", "-e", "job_command=[hostname]"] if book == "launch.yml" else []
    host, variables = ', ansible_host: "{{ nope }}"', 'trainyard_root: "{{ nope }}/x"'
    rc, text = call(book, *more, host=host, variables=variables)
    assert (rc, "1 finding" in text) == (2, True)
    assert "no variable nope, which stands in trainyard_root in" in text and "ansible_host in" in text


def test_what_roles_and_plays_set_later_is_not_missed(call):
    variables = 'nccl_version: "{{ nvidia_stack_set.nccl }}", trainyard_state: "{{ ansible_facts.hostname }}/x"'
    _, text = call("playbooks/status.yml", variables=variables)
    assert "no variable" not in text


@pytest.mark.parametrize("book", ["launch.yml", "playbooks/verify.yml", "playbooks/collective_check.yml"])
def test_runs_that_cannot_be_written_are_found_before_anything_is_done(call, book, tmp_path):
    (tmp_path / "file").touch()
    rc, text = call(book, "-e", f"trainyard_runs={tmp_path}/file/runs", "-e", "job_name=x", "-e", "job_command=[a]")
    assert (rc, "1 finding" in text, "PLAY" not in text) == (2, True, True)
    assert f"found {tmp_path}/file: Not a directory, and there is no {tmp_path}/file/runs" in text


def test_findings_of_a_job_say_where_each_variable_was_given(call, tmp_path):
    file = tmp_path / "job.yml"
    file.write_text(f'{JOB}job_timeout: "0"\n')
    (tmp_path / "inventory" / "group_vars" / "all.yml").write_text("job_port: 80\n")
    rc, text = call("launch.yml", "-e", f"@{file}", "-e", "job_nodes=-1")
    assert (rc, "3 findings" in text) == (2, True)
    assert "do correct job_nodes (job_nodes is given on the command line)" in text
    assert f"do correct job_timeout (job_timeout is given in {shown(file)}, line 6)" in text
    assert f"do correct job_port (job_port is given in {shown(tmp_path)}/inventory/group_vars/all.yml, line 1)" in text


def test_a_source_in_the_home_of_whoever_launches(call, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    rc, text = call("launch.yml", "-e", "job_name=x", "-e", "job_command=[hostname]", "-e", "job_source=~/src")
    assert (rc, f"no folder '{tmp_path}/src' on the controller" in text) == (2, True)
