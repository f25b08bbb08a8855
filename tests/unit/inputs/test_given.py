"""What users give, through ansible-playbook itself: texts that become values, findings before anything, defaults."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs.job_file import from_here
from documented import HERE, KNOWN, SPECS

PROJECT = Path(__file__).resolve().parents[3]
CLUSTER = sorted(SPECS[""]["all"]["options"])


def test_every_text_becomes_its_documented_type(show):
    """In one run, with another standard output than the project's: a text for each, as `-e name=value` gives it."""
    texts = {
        "bool": ("no", False), "int": ("3", 3), "float": ("0.5", 0.5), "str": ("no", "no"), "path": ("/1", "/1"),
        "list": ("[1, 2]", [1, 2]), "dict": ("{a: 1}", {"a": 1}), "raw": ("[0, 1]", [0, 1]),
    }  # fmt: skip
    names = sorted(set(KNOWN) - {"job"})
    texts_of = {name: texts[KNOWN[name].kind] for name in names} | {"nvidia_stack": ("debian12", "debian12")}
    options = [word for name in names for word in ("-e", f"{name}={texts_of[name][0]}")]
    seen = show(names, *options, ANSIBLE_STDOUT_CALLBACK="minimal")["localhost"]
    assert {name: (type(seen[name]), seen[name]) for name in names} == {
        name: (type(texts_of[name][1]), texts_of[name][1]) for name in names
    }


def test_all_findings_come_at_once_in_every_playbook(playbook):
    run = playbook(
        "playbooks/stop.yml", "-e", "jobname=alpha", "-e", "nvidia_driver_reboot=maybe", "-e", "job_timeout=2h",
        "-e", "verify_phases=reach", "-e", "trainyard_sate=/x", "-e", "jobs/digits.yml", "-e", "job=jobs/digit.yml",
        ANSIBLE_STDOUT_CALLBACK="minimal",
    )  # fmt: skip
    assert run.rc == 2
    assert run.output.startswith("7 findings in what was given. Nothing was done.\n")
    for said in (
        "option -e found -e jobs/digits.yml expected -e @FILE or -e NAME=VALUE do write -e @jobs/digits.yml, or ",
        "job file found no file jobs/digit.yml expected a job file, such as jobs/",
        "do did you mean jobs/digits.yml?",
        "found unknown variable jobname on the command line expected the variables of docs/job-variables.md do "
        "did you mean job_name?",
        "found unknown variable trainyard_sate on the command line",
        "nvidia_driver_reboot found 'maybe' on the command line expected true or false (or yes, no, on, off, 1, 0) do "
        "write -e nvidia_driver_reboot=true or -e nvidia_driver_reboot=false",
        "job_timeout found '2h' on the command line expected a whole number from 1 to 31536000",
        "verify_phases found 'reach' on the command line expected a list do write -e 'verify_phases=[reach]'",
    ):
        assert said in run.text, run.output
    assert "Traceback" not in run.output


def test_a_launch_without_a_job_says_what_to_write(playbook):
    run = playbook("launch.yml")
    assert run.rc == 2
    assert "1 finding in what was given." in run.text
    assert "do write -e @jobs/NAME.yml, or -e job=jobs/NAME.yml" in run.text


def test_invalid_job_files_are_findings(playbook, tmp_path):
    """Ansible itself says each of these three times over, and that the inventory could not be parsed."""
    (tmp_path / "broken.yml").write_text("job_name: x\njob_command: [python, a: b: c]\n")
    (tmp_path / "empty.yml").write_text("# Nothing yet.\n")
    (tmp_path / "tab.yml").write_text("job_env:\n\tA: 1\n")
    files = [f"@{tmp_path}/broken.yml", f"@{tmp_path}/empty.yml", f"@{tmp_path}/tab.yml", "@jobs/digit.yml"]
    run = playbook("launch.yml", *(word for file in (*files, "./jobs/digits.yml", '{"a": 1') for word in ("-e", file)))
    assert run.rc == 2
    assert run.output.startswith("6 findings in what was given. Nothing was done.\n")
    here = from_here(str(tmp_path), str(PROJECT))
    broken = f"found {here}/broken.yml, line 2: job_command: [python, a: b: c] expected YAML: "
    for said in (
        broken,
        f"job file found nothing in {here}/empty.yml expected lines such as job_name: digits",
        f"job file found a tab at the beginning of {here}/tab.yml, line 2",
        "job file found no file jobs/digit.yml expected a job file, such as jobs/",
        "do did you mean jobs/digits.yml?",
        "option -e found -e ./jobs/digits.yml",
        "option -e found '{\"a\": 1': ",
    ):
        assert said in run.text, run.output
    run = playbook("launch.yml", "-e", f"job={tmp_path}/broken.yml")
    assert run.rc == 2
    assert broken in run.text and "1 finding in what was given." in run.text


def test_undefined_variables_of_a_job_file_are_named_with_their_lines(playbook, tmp_path):
    job = tmp_path / "job.yml"
    job.write_text(
        'job_command: [python, "--lr={{ lr }}", "{{ trainyard_state }}", "{{ job_nodes }}", "{{ a | default(1) }}"]\n'
        'job_env:\n  RATE: "{{ lr }}"\n  SITE: "{{ trainyard_claster }}"\n  HOME: "{{ broken"\n'
        'job_nodes: "{{ nodes }}"\njob_wait: "{{ waits }}"\n'
    )
    run = playbook("launch.yml", "-e", f"job={job}", "-e", "nodes=two", "-e", "waits=no")
    job = from_here(str(job), str(PROJECT))
    assert run.rc == 2
    for said in (
        "5 findings in what was given.",
        "job_name found nothing expected a value, such as job_name: digits do write job_name in the job file",
        f"found no variable lr, which stands in job_command in {job}, line 1, job_env in {job}, line 3 expected",
        "do write lr: VALUE in the job file, or -e lr=VALUE",
        f"found no variable trainyard_claster, which stands in job_env in {job}, line 4",
        "do did you mean trainyard_cluster? Else write",
        f"job_env found {{{{ broken in {job}, line 5: ",
        f"job_nodes found 'two' in {job}, line 6 expected a whole number from 0 to 1000000",
    ):
        assert said in run.text, run.output


def test_an_old_job_file_gets_one_finding_with_its_new_lines(playbook, tmp_path):
    job = tmp_path / "job.yml"
    job.write_text("job_name: x\njob_command: [python, x.py]\njob_launcher: slurm\n")
    run = playbook("launch.yml", "-e", f"@{job}")
    assert (run.rc, run.output.count("found ")) == (2, 1)
    assert "do write job_scheduler: slurm and job_launcher: torchrun" in run.text
    job.write_text(job.read_text() + "job_engine: mpirun\n")
    run = playbook("launch.yml", "-e", f"@{job}")
    assert (run.rc, run.output.count("found ")) == (2, 1)
    assert f"found unknown variable job_engine in {from_here(str(job), str(PROJECT))}, line 4" in run.text
    assert "do write its value as job_launcher, and beside it job_scheduler: slurm or job_scheduler: kub" in run.text


def test_two_job_files_are_a_finding(playbook):
    run = playbook("launch.yml", "-e", "@jobs/digits.yml", "-e", "job=jobs/resnet18-cifar10.yml")
    assert run.rc == 2
    assert (
        "found jobs/resnet18-cifar10.yml with -e job=, and jobs/digits.yml with -e @ expected one job file" in run.text
    )


def test_the_documented_defaults_hold_everywhere(show):
    seen = show(CLUSTER, hosts="localhost:n1")
    assert seen["n1"] == seen["localhost"]
    expected = {name: KNOWN[name].default for name in CLUSTER}
    assert seen["n1"] == {**expected, "trainyard_runs": f"{PROJECT}/runs"}


def test_the_inventory_wins_over_defaults_and_its_texts_are_converted(show, tmp_path):
    """INI knows only texts. What all nodes have the controller sees, too; one node may have another `become`."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("trainyard_user: jane\ntrainyard_uid: '1001'\n")
    ini = (
        "[compute]\nn1 ansible_connection=local\nn2 ansible_connection=local trainyard_become=true\n"
        "[compute:vars]\ntrainyard_become=no\ntrainyard_state=/data/{{ trainyard_user }}\n"
        "trainyard_frameworks=[pytorch, openmpi]\ntrainyard_free_gib=7\n"
        "[all:vars]\ntrainyard_manage_system=false\n"
    )
    seen = show(CLUSTER, "-e", "trainyard_cluster=c", hosts="localhost:n1:n2", inventory=ini)
    assert seen["n1"] == {
        "trainyard_become": False, "trainyard_cluster": "c", "trainyard_frameworks": ["pytorch", "openmpi"],
        "trainyard_free_gib": 7, "trainyard_manage_system": False, "trainyard_network": "",
        "trainyard_nvidia": ["nvidia_driver", "cuda_toolkit", "nccl", "cudnn"],
        "trainyard_records": "/var/lib/trainyard-root", "trainyard_root": "/opt/trainyard",
        "trainyard_runs": f"{PROJECT}/runs", "trainyard_state": "/data/jane", "trainyard_uid": "1001",
        "trainyard_user": "jane",
    }  # fmt: skip
    assert seen["n2"] == {**seen["n1"], "trainyard_become": True}
    assert seen["localhost"] == {**seen["n1"], "trainyard_become": True}


def test_wrong_values_of_the_inventory_are_findings(playbook, tmp_path):
    for folder, text in {
        "group_vars/all.yml": "trainyard_frameworks: pytorch\ntrainyard_become: 'false'\n",
        "group_vars/compute.yml": "trainyard_state: /data\n",
        "host_vars/n2.yml": "trainyard_state: /scratch\npytorch_verify: maybe\n",
    }.items():
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).write_text(text)
    run = playbook("playbooks/status.yml", inventory=f"compute: {{hosts: {{n1: {HERE}, n2: {HERE}}}}}\n")
    here = from_here(str(tmp_path), str(PROJECT))
    assert run.rc == 2
    for said in (
        "4 findings in what was given.",
        f"found 'pytorch' in {here}/group_vars/all.yml, line 1 expected a list do write trainyard_frameworks: [py",
        f"found 'false' in {here}/group_vars/all.yml, line 2 expected true or false without quotes do ",
        f"pytorch_verify found 'maybe' in {here}/host_vars/n2.yml, line 2",
        "trainyard_state found /data on n1, n2, /scratch on n2; /var/lib/trainyard on localhost, where jobs are",
    ):
        assert said in run.text, run.output


def test_variables_of_nodes_reach_the_controller_or_are_findings(show, playbook, tmp_path):
    hosts = f"compute: {{hosts: {{n1: {HERE}, n2: {HERE}}}}}\n"
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/compute.yml").write_text("verify_ignore: [bios]\njob_network: 10.0.0.0/8\n")
    seen = show(["verify_ignore", "job_network"], hosts="localhost", inventory=hosts)
    assert seen["localhost"] == {"verify_ignore": ["bios"], "job_network": "10.0.0.0/8"}
    # The controller's own value, and one that not all nodes have.
    (tmp_path / "group_vars/all.yml").write_text("job_network: eth0\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/n1.yml").write_text("verify_fraction: 0.8\n")
    run = playbook("playbooks/status.yml", inventory=hosts)
    assert run.rc == 2 and "2 findings in what was given." in run.text, run.output
    assert "job_network found 10.0.0.0/8 on n1, n2; eth0 on localhost, where jobs are planned and clusters" in run.text
    assert "verify_fraction found 0.8 on n1; nothing on localhost" in run.text


@pytest.mark.parametrize("book", ["site.yml", "playbooks/provision.yml"])
def test_values_that_a_role_does_not_allow_are_findings(playbook, tmp_path, book):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/compute.yml").write_text(
        "site_time: ntpd\nnode_baseline_time_service: '{{ site_time }}'\ndataset_sets: [{name: a, url: b}, {kind: c}]\n"
        "openmpi_provider: \"{{ ansible_facts['os_family'] }}\"\nrdma_link_layer: Ethernet\n"
    )
    run = playbook(book, "-e", "cuda_toolkit_provider=vendor")
    assert run.rc == 2, run.output
    for said in (
        "3 findings in what was given. Nothing was done.",
        "cuda_toolkit_provider found value of cuda_toolkit_provider must be one of: distro, network_repo, runfile, "
        "wheel, none, got: vendor, on the command line",
        "node_baseline_time_service found value of node_baseline_time_service must be one of: auto, systemd-timesyncd, "
        "chrony, none, got: ntpd, in ",
        "dataset_sets found missing required arguments: name found in dataset_sets, in ",
    ):
        assert said in run.text, run.output


@pytest.mark.parametrize(
    ("book", "arguments", "rc", "said"),
    [
        ("site.yml", ["--tags", "validate"], 0, "1 node: "),
        ("playbooks/clean.yml", ["-e", "clean_days=30", "--check"], 0, "Nothing to remove."),
        ("playbooks/compare.yml", [], 2, "has no report of a verification"),
        ("playbooks/collective_benchmark.yml", ["--check", "-e", "benchmark_hosts=[]"], 0, ""),
    ],
)
def test_the_smallest_inventory_is_enough(playbook, tmp_path, book, arguments, rc, said):
    """For the playbooks that are no launch: every variable that the inventory leaves out has its default."""
    given = ["trainyard_become=no", "trainyard_manage_system=false", f"trainyard_runs={tmp_path}/runs"]
    run = playbook(book, *arguments, *(word for option in given for word in ("-e", option)))
    assert run.rc == rc, run.output
    assert said in run.text
    assert "undefined" not in run.output and "no attribute" not in run.output


def test_texts_on_the_command_line_are_converted_for_a_job(playbook, tmp_path):
    """A job that nobody waits for, with the job file as `-e job=`; beside it, what a text would have turned around."""
    job = tmp_path / "job.yml"
    job.write_text(
        "job_name: unwatched\njob_launcher: direct\njob_command: [sleep, '1']\njob_venv: ''\njob_packages: []\n"
        'job_devices: none\njob_min_disk_mib: 1\njob_data: ["{{ trainyard_state }}"]\n'
    )
    (tmp_path / "state").mkdir()
    given = [word for option in (
        f"job={job}", "job_wait=false", "job_recovery=false", "job_tls=no", "trainyard_manage_system=false",
        "trainyard_become=no", f"trainyard_state={tmp_path}/state", f"trainyard_runs={tmp_path}/runs",
        f"trainyard_user={subprocess.check_output(['id', '-un'], text=True).strip()}", "job_devices=none",
        "job_env={A: 1, B: 2}", "trainyard_frameworks=[pytorch]",
    ) for word in ("-e", option)]  # fmt: skip
    run = playbook("launch.yml", *given)
    assert run.rc == 0, run.output
    assert "Started; not waiting for its end (job_wait: false)." in run.text
    (plan,) = (tmp_path / "runs").glob("unwatched-*/plan.json")
    assert json.loads(plan.read_text())["nodes"][0]["processes"][0]["env"]["B"] == "2"


ODD = f"""compute:
  hosts:
    localhost: {HERE}
    "n1 n2": {HERE}
    "n3#": {HERE}
    "n4\\n10.0.0.9 github.com": {HERE}
    n5: {HERE}
    "own name": {{ansible_connection: local, trainyard_manage_system: false}}
"""


def test_names_that_would_break_the_hosts_file_are_findings(playbook):
    run = playbook("site.yml", "-e", "trainyard_uid=many", inventory=ODD)
    assert run.rc == 2
    assert "2 findings in what was given. Nothing was done." in run.text
    assert "found 'localhost' 'n1 n2' 'n3#' 'n4\\n10.0.0.9 github.com' expected a name of letters" in run.text
    assert "own name" not in run.text
    assert "trainyard_uid found 'many'" in run.text


NOTES_WHERE = """
import gc, os
def tell(what):
    with open(%r, "a") as told:
        print(what, os.getpid(), file=told)
def used(value):
    tell("used" if gc.get_freeze_count() > 10_000 else "used, collected")
    return value
tell("loaded")
class FilterModule:
    def filters(self):
        return {"unchanged": used}
"""


def test_filters_are_loaded_once_for_all_tasks(playbook, tmp_path):
    """Nor does a task's process write to what it shares with its parent, as a collection of garbage there would."""
    (tmp_path / "filters").mkdir()
    (tmp_path / "filters/notes.py").write_text(NOTES_WHERE % str(tmp_path / "told"))
    play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n" + "  - debug: {msg: '{{ 1 | unchanged }}'}\n" * 2
    (tmp_path / "play.yml").write_text(play)
    folders = f"{PROJECT}/plugins/filter:{tmp_path}/filters"
    done = playbook(str(tmp_path / "play.yml"), ANSIBLE_FILTER_PLUGINS=folders)
    assert done.rc == 0, done.output
    told = [line.rpartition(" ") for line in (tmp_path / "told").read_text().splitlines()]
    assert [what for what, _, _ in told] == ["loaded", "used", "used"]
    assert len({process for _, _, process in told}) == 3
