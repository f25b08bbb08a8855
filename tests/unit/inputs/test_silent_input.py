"""Input that Ansible accepts in silence: misspelt names, values that YAML changes, several options for a variable."""

import json
from types import SimpleNamespace
from unittest import mock

import pytest
from ansible.module_utils.trainyard.inputs import input_variables
from ansible_run import extra
from documented import HERE, KNOWN


def test_misspelt_names_anywhere_in_the_inventory_end_a_playbook(playbook, tmp_path, write, here):
    write({"group_vars/all.yml": "site: x\ntrainyard_framework: [pytorch]\nverify_phase: [reach]\n"})
    write({"group_vars/compute/versions.yml": "pytorch_verison: 2.0\n"})
    write(
        {"host_vars/n1.yml": "nvidia_gpu: 8\njob_nod_env: {A: b}\n", "vars.yml": "openmpi_provder: distro\nepochs: 5\n"}
    )
    inventory = f"compute:\n  hosts: {{n1: {HERE}}}\n  vars:\n    dataset_dir: /d\n    tranyard_state: /s\n"
    playbook("playbooks/compare.yml", "-e", f"@{tmp_path}/vars.yml", "-e", "folow=all", inventory=inventory).expect(
        2,
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
    )


def test_a_misspelt_name_of_an_ini_file_has_its_line(playbook, here):
    playbook(
        "playbooks/verify.yml", inventory="[compute]\nn1\nn2 nvidia_gpu=8\n[compute:vars]\ntrainyard_usr=x\n"
    ).expect(
        2,
        f"unknown variable nvidia_gpu in {here}/hosts.ini, line 3",
        f"unknown variable trainyard_usr in {here}/hosts.ini, line 5",
    )


def test_users_may_have_their_own_variables(show, write):
    """A stack of the site's own, and root where no users are made, are accepted as well."""
    own = "nvidia_stack: site\nnvidia_stack_own: {site: {}}\ntrainyard_uid: 0\ntrainyard_manage_system: false\n"
    write({"group_vars/all.yml": f"site_proxy: x\ndata_root: /d\ncopies: '{{{{ lives }}}}'\nhollow: 1\n{own}"})
    seen = show(["copies", "hollow"], "-e", "lives=9", "-e", "hollow=2")
    assert seen["localhost"] == {"copies": "9", "hollow": "2"}


def test_values_that_yaml_changes_or_no_cluster_can_have_are_findings(playbook, tmp_path, write, here):
    write({"group_vars/all.yml": "trainyard_root: ~/x\nnvidia_stack: cuda99\n"})
    write({"group_vars/compute.yml": "trainyard_state: /\ntrainyard_records: var\n"})
    write({"host_vars/n1.yml": "job_node_env:\n  B: 12:30:45\n"})
    job = "job_name: no\njob_command: [python, x.py, --version, 1.10]\njob_env:\n  A: 0123\n  C: yes\n"
    write({"job.yml": f"{job}job_timeout: 010\njob_hosts: [n1]\njob_venv:\njob_source:\njob_network: ' '\nnodes: 1\n"})
    given = ["trainyard_uid=0", "job_mpi_parameters={btl: 010}", '{"benchmark_env": {"D": 1.50}}', "id=x"]
    playbook("launch.yml", *extra(f"@{tmp_path}/job.yml", *given)).expect(
        2,
        "18 findings in what was given.",
        f"found job_name: no in {here}/job.yml, line 1, which YAML reads as false",
        'do put it in quotes: job_name: "no"',
        f"found 010 in {here}/job.yml, line 6, which YAML reads as 8 expected a decimal number without zeros before it",
        "do write job_timeout: 10, or job_timeout: 8",
        f"found ['n1'] in {here}/job.yml, line 7 expected a text do write job_hosts: n1",
        f"found nothing in {here}/job.yml, line 8 expected a text do write job_venv: pytorch or",
        f"found ' ' in {here}/job.yml, line 10 expected a text",
        f"unknown variable nodes in {here}/job.yml, line 11 expected",
        "unknown variable id on the command line expected a documented variable",
        "do did you mean job_id?",
        f"trainyard_root found ~/x in {here}/group_vars/all.yml, line 1; ~ is another folder for each user expected",
        f"nvidia_stack found 'cuda99' in {here}/group_vars/all.yml, line 2 expected one of v100-runfile, ",
        f"trainyard_state found / in {here}/group_vars/compute.yml, line 1, a folder of the system",
        f"trainyard_records found var in {here}/group_vars/compute.yml, line 2",
        "trainyard_uid found 0 on the command line, which is root",
        f"found B: 12:30:45 in {here}/host_vars/n1.yml, line 2, which YAML reads as 45045",
        f"found word 4: 1.10 in {here}/job.yml, line 2, which YAML reads as 1.1",
        f"found A: 0123 in {here}/job.yml, line 4, which YAML reads as 83",
        f"found C: yes in {here}/job.yml, line 5, which YAML reads as true",
        "found btl: 010 on the command line, which YAML reads as 8",
        "found D: 1.50 on the command line, which YAML reads as 1.5",
    )


def test_a_stack_may_differ_by_host(playbook, tmp_path, write):
    """The role compares it with the hosts."""
    write({"group_vars/all.yml": "nvidia_stack: \"{{ {'n1': 'v100'}[inventory_hostname] }}\"\n"})
    run = playbook("playbooks/status.yml", "-e", f"trainyard_runs={tmp_path}")
    assert "No run at all was started" in run.text, run.output


ONE, TWO, AS_JSON = "job_command=[echo, one]", "job_command=[echo, two, lr=1]", '{"job_command": ["echo", "json"]}'


def read(options):
    """Return the variables of options -e; this needs a process that is a controller."""
    from ansible import context
    from ansible.module_utils.trainyard_controller.inputs.input_options import read_options
    from ansible.parsing.dataloader import DataLoader

    run = SimpleNamespace(documented=KNOWN, loader=DataLoader(), extra={"of": "Ansible"})
    with mock.patch.object(context, "CLIARGS", {"extra_vars": options}):
        assert read_options(run) == []
    changes, findings = input_variables.converted(
        run.extra, lambda _: input_variables.COMMAND_LINE, KNOWN, run.loader.load
    )
    assert findings == []
    return json.loads(json.dumps({**run.extra, **changes}))


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
    ],
)
def test_the_last_of_several_options_for_a_variable_holds(controller, tmp_path, given, command):
    """Ansible splits options with blanks, so that two of them look the same to it."""
    (tmp_path / "job.yml").write_text("job_command: [echo, file]\n")
    options = [f"@{tmp_path}/job.yml" if each == "@" else each for each in given]
    assert controller.submit(read, ["lr=5", *options]).result() == {"job_command": command, "lr": "5"}


def test_a_playbook_has_the_last_of_several_options(show, tmp_path):
    (tmp_path / "job.yml").write_text("job_command: [echo, file]\n")
    options = extra("lr=5", f"@{tmp_path}/job.yml", ONE, AS_JSON, TWO)
    assert show(["job_command", "lr"], *options)["localhost"] == {"job_command": ["echo", "two", "lr=1"], "lr": "5"}


def test_a_finding_names_the_place_of_the_last_option(playbook, tmp_path, write, here):
    """A job file, or an earlier option, may have the same variable."""
    write({"job.yml": "job_name: x\njob_command: [python, x.py]\njob_env: {A: 0123}\njob_timeout: 5\n"})
    given = ["job_timeout=2h", "{job_env: {A: 0456}}"]
    playbook("launch.yml", *extra(f"@{tmp_path}/job.yml", *given)).expect(
        2,
        "2 findings in what was given.",
        "job_timeout found '2h' on the command line",
        "job_env found A: 0456 on the command line, which YAML reads as 302",
    )
    changed = f"job_env found A: 0123 in {here}/job.yml, line 3, which YAML reads as 83"
    playbook("launch.yml", *extra(*given, f"@{tmp_path}/job.yml")).expect(2, "1 finding in what was given.", changed)


def test_variables_that_cannot_be_checked_end_the_playbook(playbook, tmp_path, write):
    """Ansible itself only warns of a callback that fails, and continues."""
    plugin = (
        "from ansible.plugins.vars import BaseVarsPlugin\n\n\nclass VarsModule(BaseVarsPlugin):\n"
        "    def get_vars(self, loader, path, entities):\n        raise RuntimeError('no vault here')\n"
    )
    write({"plugins/broken.py": plugin})
    env = {"ANSIBLE_VARS_PLUGINS": str(tmp_path / "plugins"), "ANSIBLE_VARS_ENABLED": "host_group_vars,broken"}
    run = playbook("playbooks/status.yml", **env, ANSIBLE_RUN_VARS_PLUGINS="demand")
    run.expect(2, "found they cannot be checked: no vault here")
    assert "Traceback" not in run.output
