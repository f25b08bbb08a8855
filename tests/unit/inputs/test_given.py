"""What users give, through ansible-playbook itself: values of the documented types, findings and defaults."""

from ansible_run import PROJECT, extra
from documented import HERE, KNOWN, SPECS

CLUSTER = sorted(SPECS[""]["all"]["options"])
TWO = f"compute: {{hosts: {{n1: {HERE}, n2: {HERE}}}}}\n"


def test_every_text_becomes_its_documented_type(show):
    """One run with another standard output than the project's, and a text for each variable."""
    texts = {
        "bool": ("no", False), "int": ("3", 3), "float": ("0.5", 0.5), "str": ("no", "no"), "path": ("/1", "/1"),
        "list": ("[1, 2]", [1, 2]), "dict": ("{a: 1}", {"a": 1}), "raw": ("[0, 1]", [0, 1]),
    }  # fmt: skip
    names = sorted(set(KNOWN) - {"job"})
    texts_of = {name: texts[KNOWN[name].kind] for name in names} | {"nvidia_stack": ("debian12", "debian12")}
    options = extra(*(f"{name}={texts_of[name][0]}" for name in names))
    seen = show(names, *options, ANSIBLE_STDOUT_CALLBACK="minimal")["localhost"]
    types = {name: (type(seen[name]), seen[name]) for name in names}
    assert types == {name: (type(texts_of[name][1]), texts_of[name][1]) for name in names}


def test_all_findings_come_at_once_in_every_playbook(playbook):
    given = ["jobname=alpha", "nvidia_driver_reboot=maybe", "job_timeout=2h", "verify_phases=reach"]
    run = playbook("playbooks/stop.yml", *extra(*given, "trainyard_sate=/x", "jobs/digits.yml", "job=jobs/digit.yml"))
    run.expect(
        2,
        "7 findings in what was given. Nothing was done.",
        "option -e found -e jobs/digits.yml expected -e @FILE or -e NAME=VALUE do write -e @jobs/digits.yml, or ",
        "job file found no file jobs/digit.yml",
        "do did you mean jobs/digits.yml?",
        "found unknown variable jobname on the command line",
        "found unknown variable trainyard_sate on the command line",
        "nvidia_driver_reboot found 'maybe' on the command line",
        "job_timeout found '2h' on the command line expected a whole number from 1 to 31536000",
        "verify_phases found 'reach' on the command line expected a list do write -e 'verify_phases=[reach]'",
    )
    assert "Traceback" not in run.output


def test_a_relative_source_is_looked_for_beside_the_job_file_first(show, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "job.yml").write_text("job_name: mine\njob_source: mine\njob_rank_table: training/pytorch\n")
    seen = show(["job_source", "job_rank_table"], *extra(f"@{tmp_path}/job.yml"))["localhost"]
    assert seen == {"job_source": str(tmp_path / "mine"), "job_rank_table": "training/pytorch"}


def test_a_launch_without_a_job_is_a_finding(playbook):
    playbook("launch.yml").expect(
        2, "1 finding in what was given.", "do write -e @jobs/NAME.yml, or -e job=jobs/NAME.yml"
    )


def test_invalid_job_files_are_findings(playbook, tmp_path, write, here):
    """Ansible itself reports each of these three times, and that the inventory could not be parsed."""
    write({"broken.yml": "job_name: x\njob_command: [python, a: b: c]\n", "empty.yml": "# Nothing yet.\n"})
    write({"tab.yml": "job_env:\n\tA: 1\n"})
    files = [f"@{tmp_path}/{name}.yml" for name in ("broken", "empty", "tab")]
    broken = f"found {here}/broken.yml, line 2: job_command: [python, a: b: c] expected YAML: "
    playbook("launch.yml", *extra(*files, "@jobs/digit.yml", "./jobs/digits.yml", '{"a": 1')).expect(
        2,
        "6 findings in what was given. Nothing was done.",
        broken,
        f"job file found nothing in {here}/empty.yml",
        f"job file found a tab at the beginning of {here}/tab.yml, line 2",
        "job file found no file jobs/digit.yml",
        "option -e found -e ./jobs/digits.yml",
        "option -e found '{\"a\": 1': ",
    )


def test_undefined_variables_of_a_job_file_are_named_with_their_lines(playbook, tmp_path, here):
    job = tmp_path / "job.yml"
    job.write_text(
        'job_command: [python, "--lr={{ lr }}", "{{ trainyard_state }}", "{{ job_nodes }}", "{{ a | default(1) }}"]\n'
        'job_env:\n  RATE: "{{ lr }}"\n  SITE: "{{ trainyard_claster }}"\n  HOME: "{{ broken"\n'
        'job_nodes: "{{ nodes }}"\njob_wait: "{{ waits }}"\njob_launcher: slurm\njob_id: y\n'
    )
    playbook("launch.yml", *extra(f"job={job}", "nodes=two", "waits=no")).expect(
        2,
        "7 findings in what was given.",
        "job_name found nothing",
        f"job_id found y in {here}/job.yml, line 9 expected",
        "do write job_scheduler: slurm and job_launcher: torchrun",
        f"found no variable lr, which stands in job_command in {here}/job.yml, line 1, job_env in {here}/job.yml, line",
        f"found no variable trainyard_claster, which stands in job_env in {here}/job.yml, line 4",
        "do did you mean trainyard_cluster?",
        f"job_env found {{{{ broken in {here}/job.yml, line 5: ",
        f"job_nodes found 'two' in {here}/job.yml, line 6",
    )


def test_two_job_files_are_a_finding(playbook):
    run = playbook("launch.yml", "-e", "@jobs/digits.yml", "-e", "job=jobs/resnet18-cifar10.yml")
    run.expect(2, "found jobs/resnet18-cifar10.yml with -e job=, and jobs/digits.yml with -e @ expected one job file")


def test_the_inventory_wins_over_defaults_and_its_texts_are_converted(show, write):
    """INI knows only texts. The controller has the values that all nodes share; `become` may differ."""
    write({"group_vars/all.yml": "trainyard_user: jane\ntrainyard_uid: '1001'\n"})
    write({"group_vars/compute.yml": "verify_ignore: [bios]\njob_network: 10.0.0.0/8\n"})
    ini = (
        "[compute]\nn1 ansible_connection=local\nn2 ansible_connection=local trainyard_become=true\n"
        "[compute:vars]\ntrainyard_become=no\ntrainyard_state=/data/{{ trainyard_user }}\n"
        "trainyard_frameworks=[pytorch, openmpi]\ntrainyard_free_gib=7\n"
        "[all:vars]\ntrainyard_manage_system=false\n"
    )
    names = [*CLUSTER, "verify_ignore", "job_network"]
    seen = show(names, "-e", "trainyard_cluster=c", hosts="localhost:n1:n2", inventory=ini)
    given = {"verify_ignore": ["bios"], "job_network": "10.0.0.0/8"}
    given |= {"trainyard_become": False, "trainyard_cluster": "c", "trainyard_frameworks": ["pytorch", "openmpi"]}
    given |= {"trainyard_free_gib": 7, "trainyard_manage_system": False, "trainyard_state": "/data/jane"}
    given |= {"trainyard_uid": "1001", "trainyard_user": "jane", "trainyard_runs": f"{PROJECT}/runs"}
    assert seen["n1"] == {**{name: KNOWN[name].default for name in CLUSTER}, **given}
    assert seen["n2"] == {**seen["n1"], "trainyard_become": True}
    assert seen["localhost"] == {**seen["n1"], "trainyard_become": True}


def test_wrong_values_of_the_inventory_are_findings(playbook, write, here):
    """The controller needs one value: it has another one, or only some nodes have one."""
    write({"group_vars/all.yml": "trainyard_frameworks: pytorch\ntrainyard_become: 'false'\njob_network: eth0\n"})
    write({"group_vars/compute.yml": "trainyard_state: /data\njob_network: 10.0.0.0/8\n"})
    write({"host_vars/n1.yml": "verify_fraction: 0.8\n"})
    write({"host_vars/n2.yml": "trainyard_state: /scratch\npytorch_verify: maybe\n"})
    playbook("playbooks/status.yml", inventory=TWO).expect(
        2,
        "6 findings in what was given.",
        f"found 'pytorch' in {here}/group_vars/all.yml, line 1 expected a list",
        f"found 'false' in {here}/group_vars/all.yml, line 2 expected true or false without quotes",
        f"pytorch_verify found 'maybe' in {here}/host_vars/n2.yml, line 2",
        "trainyard_state found /data on n1, n2, /scratch on n2; /var/lib/trainyard on localhost",
        "job_network found 10.0.0.0/8 on n1, n2; eth0 on localhost",
        "verify_fraction found 0.8 on n1; nothing on localhost",
    )


def test_values_that_a_role_does_not_allow_are_findings(playbook, write):
    """A group of nodes by a variable that needs facts is one as well."""
    text = (
        "site_time: ntpd\nnode_baseline_time_service: '{{ site_time }}'\ndataset_sets: [{name: a, url: b}, {kind: c}]\n"
        "openmpi_provider: \"{{ ansible_facts['os_family'] }}\"\nrdma_link_layer: Ethernet\n"
        "verify_group_by: rack\nrack: '{{ ansible_facts.x }}'\ntrainyard_topology: /none\n"
    )
    write({"group_vars/compute.yml": text})
    playbook("site.yml", "-e", "cuda_toolkit_provider=vendor").expect(
        2,
        "5 findings in what was given. Nothing was done.",
        "trainyard_topology found /none: No such file or directory expected a file on the controller in the form of ",
        "cuda_toolkit_provider found 'vendor' on the command line expected one of distro, network_repo, runfile, ",
        "node_baseline_time_service found 'ntpd' in",
        "expected one of auto, ",
        "dataset_sets found missing required arguments: name found in dataset_sets, in ",
        "rack in the inventory, which is no text or number on n1",
    )


def test_values_are_checked_before_a_playbook_that_installs_nothing(playbook):
    given = ("-e", '{"verify_collectives": ["all", "reduce"], "verify_phases": ["reachable"]}')
    playbook("playbooks/verify.yml", *given).expect(
        2,
        "2 findings in what was given. Nothing was done.",
        "verify_collectives found 'reduce' on the command line expected some of all, all_reduce, ",
        "verify_phases found 'reachable' on the command line expected some of software, drift, ",
    )


def test_the_smallest_inventory_is_enough(playbook, tmp_path):
    """Every variable that the inventory leaves out has its default in playbooks that are no launch."""
    given = extra("trainyard_become=no", "trainyard_manage_system=false", f"trainyard_runs={tmp_path}/runs")
    run = playbook("playbooks/collective_benchmark.yml", "--check", "-e", "benchmark_hosts=[]", *given)
    run.expect(0)
    assert "undefined" not in run.output and "no attribute" not in run.output


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
    run = playbook("playbooks/provision.yml", "-e", "trainyard_uid=many", inventory=ODD)
    expected = "found 'localhost' 'n1 n2' 'n3#' 'n4\\n10.0.0.9 github.com' expected a name of letters"
    run.expect(2, "2 findings in what was given. Nothing was done.", expected, "trainyard_uid found 'many'")
    assert "own name" not in run.text
