"""Files that users give: text in UTF-8, encrypted ones with their password, templates whose variables are set."""

import re
import subprocess
from types import SimpleNamespace

import pytest

HERE = 'ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"'
JOB = "job_name: probe\njob_command: [hostname]\njob_launcher: direct\njob_venv: ''\njob_packages: []\n"


@pytest.fixture
def call(playbook, tmp_path):
    """Run a playbook of the project on an inventory in a folder of its own."""
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (tmp_path / "password").write_text("right")
    (tmp_path / "wrong").write_text("wrong")

    def run(book, *arguments, host="", variables=""):
        (folder / "hosts.yml").write_text(f"compute: {{hosts: {{n1: {{{HERE}{host}}}}}, vars: {{{variables}}}}}\n")
        done = playbook(book, *arguments, inventory=folder)
        assert not re.search("ERROR|WARNING|Task failed", done.text), done.output
        return done.rc, done.text

    return run


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    """Return the text of an encrypted job file."""
    folder = tmp_path_factory.mktemp("vault")
    (folder / "job.yml").write_text(JOB)
    (folder / "password").write_text("right")
    argv = ["ansible-vault", "encrypt", "--vault-password-file", folder / "password", folder / "job.yml"]
    subprocess.run(argv, check=True, capture_output=True)
    return (folder / "job.yml").read_text()


LATIN = JOB.encode() + b"note: caf\xe9\n"


def test_job_files_in_another_encoding_or_without_their_password_are_findings(call, tmp_path, encrypted, here):
    (tmp_path / "job.yml").write_text(encrypted)
    (tmp_path / "latin.yml").write_bytes(LATIN)
    latin = f"found byte 0xe9 in {here}/latin.yml, line 6 expected text in UTF-8"
    rc, text = call("launch.yml", "-e", f"@{tmp_path}/latin.yml", "-e", f"@{tmp_path}/job.yml")
    assert (rc, "2 findings" in text, latin in text) == (2, True, True)
    assert f"found {here}/job.yml is encrypted, and there is no password" in text
    rc, text = call("launch.yml", "-e", f"job={tmp_path}/job.yml", "--vault-password-file", str(tmp_path / "wrong"))
    assert (rc, f"found no password that was given decrypts {here}/job.yml" in text) == (2, True)


def test_an_encrypted_job_file_is_read_with_its_password(call, tmp_path, encrypted):
    (tmp_path / "job.yml").write_text(encrypted)
    given = ["-e", f"job={tmp_path}/job.yml", "-e", "job_nodes=-1"]
    rc, text = call("launch.yml", *given, "--vault-password-file", str(tmp_path / "password"))
    assert (rc, "1 finding" in text, "job_nodes found -1" in text) == (2, True, True)


def test_all_files_of_the_inventory_are_checked_at_once(call, tmp_path, encrypted):
    variables = tmp_path / "inventory" / "group_vars"
    (variables / "all.yml").write_text(encrypted)
    (variables / "compute.yml").write_bytes(b"# caf\xe9\n")
    more = "compute: {hosts: [n1, n2], children: {x: {hosts: [n3]}}}\n"
    (tmp_path / "inventory" / "more.yml").write_text(more)
    rc, text = call("playbooks/status.yml", "-e", "@jobs")
    assert (rc, "4 findings" in text) == (2, True)
    assert "found jobs, a folder expected a job file do name one of its files, such as -e @jobs/ascend" in text
    assert "a list as hosts of group compute: " in text and "a list as hosts of group x: " in text
    assert "group_vars/all.yml is encrypted" in text and "byte 0xe9 in" in text


def not_a_path(value):
    """Return what is found of a variable `job`; this needs a process that is a controller."""
    from ansible.module_utils.trainyard_controller.inputs.input_options import read_job_file

    (finding,) = read_job_file(SimpleNamespace(extra={"job": value}))
    return finding.found


def test_a_job_that_is_not_a_path_is_a_finding(call, controller, tmp_path):
    (tmp_path / "job.yml").write_text("job: {name: x}\n")
    rc, text = call("launch.yml", "-e", f"@{tmp_path}/job.yml")
    assert (rc, "as the variable job:" in text) == (2, True)
    for value in (["a"], 3):
        assert "as the variable job:" in controller.submit(not_a_path, value).result()


def test_undefined_variables_of_the_inventory_are_findings(call):
    host, variables = ', ansible_host: "{{ nope }}"', 'trainyard_root: "{{ nope }}/x"'
    rc, text = call("playbooks/validate.yml", host=host, variables=variables)
    assert (rc, "1 finding" in text) == (2, True)
    assert "no variable nope, which stands in trainyard_root in" in text and "ansible_host in" in text


def test_variables_that_roles_set_later_are_not_findings(call):
    variables = 'nccl_version: "{{ nvidia_stack_set.nccl }}", trainyard_state: "{{ ansible_facts.hostname }}/x"'
    _, text = call("playbooks/status.yml", variables=variables)
    assert "no variable" not in text


def test_values_that_cannot_be_had_or_that_nothing_reads_are_findings(call, tmp_path, encrypted, here):
    """A site's inventory may name a partition; the job file's is for this job."""
    vault = encrypted.replace("\n", "\n    ")
    env = 'job_env: {A: "{{ 1/0 }}", H: "{{ ansible_facts.fqdn }}"}'
    secret = f"job_secret_env:\n  B: !vault |\n    {vault}\njob_namespace: a\njob_oneflow_style: launch\n"
    (tmp_path / "job.yml").write_text(f"{JOB}{env}\n{secret}")
    rc, text = call("launch.yml", "-e", f"@{tmp_path}/job.yml", variables="job_partition: train")
    assert (rc, "3 findings" in text) == (2, True)
    assert "job_env found {{ 1/0 }} in" in text and "line 6: division by zero expected" in text
    assert f"job_secret_env found an encrypted value in {here}/job.yml, line 8" in text and "--ask-vault-pass" in text
    assert "job_namespace in" in text and "do set job_scheduler: kubernetes, or leave job_namespace out" in text


def test_findings_of_a_job_name_the_place_of_each_variable(call, tmp_path, here):
    file = tmp_path / "job.yml"
    file.write_text(f'{JOB}job_timeout: "0"\n')
    (tmp_path / "inventory" / "group_vars" / "all.yml").write_text("job_port: 80\n")
    rc, text = call("launch.yml", "-e", f"@{file}", "-e", "job_nodes=-1")
    assert (rc, "3 findings" in text) == (2, True)
    assert "(job_nodes is given on the command line)" in text
    assert f"(job_timeout is given in {here}/job.yml, line 6)" in text
    assert f"(job_port is given in {here}/inventory/group_vars/all.yml, line 1)" in text


def test_a_source_may_be_in_the_users_home(call, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    rc, text = call("launch.yml", "-e", "job_name=x", "-e", "job_command=[hostname]", "-e", "job_source=~/src")
    assert (rc, f"no folder '{tmp_path}/src' on the controller" in text) == (2, True)
