"""What openmpi promises: mpirun over all nodes as the training user, the same version everywhere, or who is odd."""

import re

AS_TRAIN = "sudo --user=train --set-home"


def test_mpirun_starts_processes_on_all_nodes(host, node_names):
    """From every node, as any may be a job's head."""
    where = ",".join(f"{name}:2" for name in node_names)
    started = host.check_output(f"{AS_TRAIN} timeout 300 mpirun -H {where} --bind-to none uname -n")
    assert sorted(started.split()) == sorted(node_names * 2)


def test_a_command_by_ssh_finds_it(host, node_names):
    for name in node_names:
        shown = host.check_output(f"{AS_TRAIN} ssh -o BatchMode=yes {name} mpirun --version")
        assert re.match(r"mpirun \(Open MPI\) \d+\.\d+\.\d+", shown)


def test_programs_can_be_built(host):
    assert host.package("libopenmpi-dev").is_installed


def test_packages_in_the_systems_folders_need_no_settings(host):
    assert host.run("ls /etc/ssh/sshd_config.d/*sessions* /etc/profile.d/*openmpi*").stdout == ""


def test_the_verification_passes_and_changes_nothing(run_playbook):
    run_playbook("changed.yml", step="verify").expect(0).changes_nothing()


def test_a_node_that_cannot_take_part_fails_the_verification(run_playbook, node_names, node):
    last = node(node_names[-1])
    last.check_output("sudo mv /usr/bin/orted /usr/bin/orted.away")
    try:
        done = run_playbook("changed.yml", step="verify")
    finally:
        last.check_output("sudo mv /usr/bin/orted.away /usr/bin/orted")
    done.fails("Open MPI does not work over all nodes: 1 finding. 1. mpirun found it ended with status")
    # The message of the user's shell, bash or sh.
    assert re.search(r"sh: (line )?1: /usr/bin/orted: (No such file or directory|not found)", done.text), done.output
    assert f"expected {2 * len(node_names)} processes" in done.text


def test_bad_input_is_refused_with_what_to_do(run_playbook):
    given = {"openmpi_provider": "source", "openmpi_ucx": "/opt/no-ucx", "openmpi_prefix": "/var/lib/trainyard"}
    run_playbook("changed.yml", "--limit", "n1,n2", **given).fails(
        "Open MPI cannot be built: 2 findings. Nothing was changed. 1. openmpi_ucx on n1, n2 found no UCX headers",
        "2. openmpi_prefix on n1, n2 found /var/lib/trainyard, which this role did not make",
    ).changes_nothing()
