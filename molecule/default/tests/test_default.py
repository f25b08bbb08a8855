"""The lab itself: hosts that booted, know each other by name, and are reached with strict host-key checking."""

from pathlib import Path


def test_booted_without_a_failed_unit(host):
    assert host.check_output("systemctl is-system-running") == "running"


def test_has_its_inventory_name_and_resolves_every_node(host, node_names, node_vars):
    assert host.check_output("hostname") == host.backend.host
    resolved = {name: host.check_output("getent ahostsv4 %s", name).split()[0] for name in node_names}
    assert resolved == {name: node_vars[name]["ansible_host"] for name in node_names}


def test_has_an_identity_of_its_own(node_names, node_vars):
    known_hosts = Path(node_vars[node_names[0]]["ansible_ssh_private_key_file"]).with_name("known_hosts")
    keys = [line.split()[2] for line in known_hosts.read_text().splitlines()]
    assert len(set(keys)) == len(keys) >= len(node_names)


def test_lets_nobody_in_by_password_nor_as_root(host):
    with host.sudo():
        effective = host.check_output("sshd -T").splitlines()
    assert {"permitrootlogin no", "passwordauthentication no", "kbdinteractiveauthentication no"} <= set(effective)


def test_a_node_with_another_host_key_is_refused(run_playbook, node_names, node_vars, tmp_path):
    known_hosts = Path(node_vars[node_names[0]]["ansible_ssh_private_key_file"]).with_name("known_hosts")
    wrong = tmp_path / "known_hosts"
    # n1's name with n2's keys: what a node put in another's place looks like.
    addresses = [node_vars[name]["ansible_host"] for name in node_names[:2]]
    lines = [line.split() for line in known_hosts.read_text().splitlines()]
    wrong.write_text("".join(f"{addresses[0]} {t} {k}\n" for names, t, k in lines if addresses[1] in names.split(",")))

    run = run_playbook(
        "converge.yml",
        "--limit",
        node_names[0],
        ansible_control_path_dir=str(tmp_path / "cp"),  # no connection that is already open
        ansible_ssh_common_args=f"-o UserKnownHostsFile={wrong} -o GlobalKnownHostsFile=/dev/null "
        "-o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
    )

    run.expect(4, "Host key verification failed")
