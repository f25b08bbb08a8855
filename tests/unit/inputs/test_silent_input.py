"""Input that Ansible takes in silence: misspelt names in the inventory, values that YAML changes, options that win."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs.job_file import from_here
from documented import HERE

PROJECT = Path(__file__).resolve().parents[3]
BOOKS = ["launch.yml", "site.yml", "playbooks/verify.yml", "playbooks/stop.yml", "playbooks/compare.yml"]


@pytest.mark.parametrize("book", BOOKS)
def test_a_misspelt_name_anywhere_in_the_inventory_ends_every_playbook(playbook, tmp_path, book):
    for path, text in {
        "group_vars/all.yml": "site: x\ntrainyard_framework: [pytorch]\nverify_phase: [reach]\n",
        "group_vars/compute/versions.yml": "pytorch_verison: 2.0\n",
        "host_vars/n1.yml": "nvidia_gpu: 8\njob_nod_env: {A: b}\n",
        "vars.yml": "openmpi_provder: distro\nepochs: 5\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(text)
    inventory = f"compute:\n  hosts: {{n1: {HERE}}}\n  vars:\n    dataset_dir: /d\n    tranyard_state: /s\n"
    run = playbook(book, "-e", f"@{tmp_path}/vars.yml", "-e", "folow=all", inventory=inventory)
    here = from_here(str(tmp_path), str(PROJECT))
    assert run.rc == 2
    for said in (
        "9 findings in what was given.",
        f"unknown variable trainyard_framework in {here}/group_vars/all.yml, line 2 expected",
        "do did you mean trainyard_frameworks?",
        f"unknown variable verify_phase in {here}/group_vars/all.yml, line 3 expected",
        f"unknown variable pytorch_verison in {here}/group_vars/compute/versions.yml, line 1 expected",
        f"unknown variable nvidia_gpu in {here}/host_vars/n1.yml, line 1",
        f"unknown variable job_nod_env in {here}/host_vars/n1.yml, line 2",
        f"unknown variable openmpi_provder in {here}/vars.yml, line 1",
        f"unknown variable dataset_dir in {here}/hosts.yml, line 4",
        f"unknown variable tranyard_state in {here}/hosts.yml, line 5",
        "unknown variable folow on the command line",
    ):
        assert said in run.text, run.output
    run = playbook(book, inventory="[compute]\nn1\nn2 nvidia_gpu=8\n[compute:vars]\ntrainyard_usr=x\n")
    assert f"unknown variable nvidia_gpu in {here}/hosts.ini, line 3" in run.text, run.output
    assert f"unknown variable trainyard_usr in {here}/hosts.ini, line 5" in run.text


def test_users_may_have_their_own_variables(show, tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("site_proxy: x\ndata_root: /d\ncopies: '{{ lives }}'\nhollow: 1\n")
    seen = show(["copies", "hollow"], "-e", "lives=9", "-e", "hollow=2")
    assert seen["localhost"] == {"copies": "9", "hollow": "2"}


def test_values_that_yaml_changes_or_no_cluster_can_have_are_findings(playbook, tmp_path):
    for path, text in {
        "group_vars/all.yml": "trainyard_root: ~/x\nnvidia_stack: cuda99\n",
        "group_vars/compute.yml": "trainyard_state: /\ntrainyard_records: var\n",
        "host_vars/n1.yml": "job_node_env:\n  B: 12:30:45\n",
        "job.yml": "job_name: x\njob_command: [python, x.py, --version, 1.10]\njob_env:\n  A: 0123\n  C: yes\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    given = ["trainyard_uid=0", "job_mpi_parameters={btl: 010}", '{"benchmark_env": {"D": 1.50}}']
    run = playbook("launch.yml", "-e", f"@{tmp_path}/job.yml", *(word for each in given for word in ("-e", each)))
    here = from_here(str(tmp_path), str(PROJECT))
    assert run.rc == 2
    for said in (
        "11 findings in what was given.",
        f"trainyard_root found ~/x in {here}/group_vars/all.yml, line 1; ~ is another folder for each user expected",
        f"nvidia_stack found 'cuda99' in {here}/group_vars/all.yml, line 2 expected one of v100-runfile, ",
        f"trainyard_state found / in {here}/group_vars/compute.yml, line 1, a folder of the system",
        f"trainyard_records found var in {here}/group_vars/compute.yml, line 2",
        "trainyard_uid found 0 on the command line, which is root",
        f"found B: 12:30:45 in {here}/host_vars/n1.yml, line 2, which YAML reads as 45045 expected text, which YAML",
        f"found word 4: 1.10 in {here}/job.yml, line 2, which YAML reads as 1.1",
        f"found A: 0123 in {here}/job.yml, line 4, which YAML reads as 83",
        f"found C: yes in {here}/job.yml, line 5, which YAML reads as true",
        "found btl: 010 on the command line, which YAML reads as 8",
        "found D: 1.50 on the command line, which YAML reads as 1.5",
    ):
        assert said in run.text, run.output
    # A stack of one's own, and root where no users are made.
    (tmp_path / "group_vars/all.yml").write_text("nvidia_stack: site\nnvidia_stack_own: {site: {}}\ntrainyard_uid: 0\n")
    for path in ("group_vars/compute.yml", "host_vars/n1.yml"):
        (tmp_path / path).unlink()
    run = playbook("playbooks/status.yml", "-e", "trainyard_manage_system=no", "-e", f"trainyard_runs={tmp_path}")
    assert "No run at all was started" in run.text, run.output
    # A stack that differs by host is the role's to compare.
    (tmp_path / "group_vars/all.yml").write_text("nvidia_stack: \"{{ {'n1': 'v100'}[inventory_hostname] }}\"\n")
    run = playbook("playbooks/status.yml", "-e", f"trainyard_runs={tmp_path}")
    assert "No run at all was started" in run.text, run.output


def test_a_launch_accepts_no_job_id_and_no_start_task(playbook, tmp_path):
    job = tmp_path / "job.yml"
    job.write_text("job_name: x\njob_command: [python, x.py]\njob_id: y\n")
    run = playbook("launch.yml", "-e", f"@{job}")
    assert run.rc == 2
    assert f"job_id found y in {from_here(str(job), str(PROJECT))}, line 3 expected none" in run.text
    run = playbook("launch.yml", "-e", "@jobs/digits.yml", "-e", "job_id=digits-1")
    assert run.rc == 2 and "job_id found digits-1 on the command line" in run.text
    run = playbook("launch.yml", "-e", "@jobs/digits.yml", "--start-at-task", "Start")
    assert run.rc == 2 and "found 'Start', which leaves out the tasks before it" in run.text


ONE, TWO, AS_JSON = "job_command=[echo, one]", "job_command=[echo, two, lr=1]", '{"job_command": ["echo", "json"]}'


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ([ONE, TWO], ["echo", "two", "lr=1"]),
        ([TWO, ONE], ["echo", "one"]),
        ([TWO, ONE, TWO], ["echo", "two", "lr=1"]),
        ([ONE, AS_JSON], ["echo", "json"]),
        ([AS_JSON, ONE], ["echo", "one"]),
        ([ONE, "@"], ["echo", "file"]),
        (["@", ONE], ["echo", "one"]),
        (["job_command=[echo,short]", ONE], ["echo", "one"]),
        ([ONE, "job_command=[echo,short]"], ["echo", "short"]),
        (["@", ONE, AS_JSON, TWO], ["echo", "two", "lr=1"]),
    ],
)
def test_the_last_of_several_options_for_a_variable_holds(show, tmp_path, given, command):
    """Ansible splits those with blanks, so that two of them look the same to it."""
    (tmp_path / "job.yml").write_text("job_command: [echo, file]\n")
    options = [f"@{tmp_path}/job.yml" if each == "@" else each for each in given]
    seen = show(["job_command", "lr"], *(word for each in ("lr=5", *options) for word in ("-e", each)))
    assert seen["localhost"] == {"job_command": command, "lr": "5"}


def test_a_finding_names_the_place_of_the_last_option(playbook, tmp_path):
    """Also where a job file, or an earlier option, has the same variable."""
    job = tmp_path / "job.yml"
    job.write_text("job_name: x\njob_command: [python, x.py]\njob_env: {A: 0123}\njob_timeout: 5\n")
    given = ["job_timeout=2h", "{job_env: {A: 0456}}"]
    run = playbook("launch.yml", "-e", f"@{job}", *(word for each in given for word in ("-e", each)))
    assert run.rc == 2
    assert "2 findings in what was given." in run.text
    assert "job_timeout found '2h' on the command line" in run.text
    assert "job_env found A: 0456 on the command line, which YAML reads as 302" in run.text
    run = playbook("launch.yml", *(word for each in (*given, f"@{job}") for word in ("-e", each)))
    assert run.rc == 2
    here = from_here(str(job), str(PROJECT))
    assert "1 finding in what was given." in run.text
    assert f"job_env found A: 0123 in {here}, line 3, which YAML reads as 83" in run.text


def test_variables_that_cannot_be_checked_end_the_playbook(playbook, tmp_path):
    """Ansible itself only warns of a callback that fails, and goes on."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "broken.py").write_text(
        "from ansible.plugins.vars import BaseVarsPlugin\n\n\nclass VarsModule(BaseVarsPlugin):\n"
        "    def get_vars(self, loader, path, entities):\n        raise RuntimeError('no vault here')\n"
    )
    run = playbook(
        "playbooks/status.yml",
        ANSIBLE_VARS_PLUGINS=str(tmp_path / "plugins"),
        ANSIBLE_VARS_ENABLED="host_group_vars,broken",
        ANSIBLE_RUN_VARS_PLUGINS="demand",
    )
    assert run.rc == 2
    assert "found they cannot be checked: no vault here" in run.text
    assert "Traceback" not in run.output
