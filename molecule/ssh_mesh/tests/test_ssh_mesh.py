"""The role ssh_mesh: the result on the nodes, and its errors."""

import pytest
from lab_jobs import wait_until

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=100"
AS_TRAIN = f"sudo --user=train --set-home {SSH}"


def refused(host, command):
    """Run an ssh command that must fail, and return its message. testinfra reserves exit status 255."""
    done = host.run(f"{command} || exit 17")
    assert done.rc == 17, done
    return done.stderr


@pytest.fixture
def second_sshd(node):
    """Start another sshd beside the node's own, on port 2222, with settings of its own on top."""
    started = []

    def start(name, *options):
        settings = " ".join(f"-o {option}" for option in options)
        node(name).check_output(
            "sudo systemd-run --quiet --collect --unit=second-sshd --service-type=exec "
            f"/usr/sbin/sshd -D -p 2222 {settings}"
        )
        started.append(name)
        wait_until(lambda: node(name).run("ss -Hltn sport = :2222").stdout, "the second sshd listens")

    yield start
    for name in started:
        node(name).check_output("sudo systemctl stop second-sshd")


def test_training_user_reaches_all_nodes_by_name_and_by_address(host, node_names, node_vars):
    for name in node_names:
        for target in (name, node_vars[name]["ansible_host"]):
            assert host.check_output(f"{AS_TRAIN} {target} uname -n") == name


def test_private_keys_exist_on_their_node_only(host, node, node_names):
    found = host.check_output("sudo grep --recursive --files-with-matches 'PRIVATE KEY' /etc/trainyard /home/train")
    assert found == "/etc/trainyard/ssh/user_ed25519"
    key = host.file(found)
    assert (key.user, key.group, key.mode) == ("train", "train", 0o600)
    public = {node(name).check_output("sudo ssh-keygen -y -f /etc/trainyard/ssh/user_ed25519") for name in node_names}
    assert len(public) == len(node_names)


def test_a_host_with_a_certificate_of_another_authority_is_refused(node, second_sshd):
    host = node("n2")
    host.check_output(
        "sudo sh -ec 'rm -rf /root/foreign; mkdir /root/foreign; cd /root/foreign;"
        'ssh-keygen -q -t ed25519 -N "" -f ca; ssh-keygen -q -t ed25519 -N "" -f host;'
        "ssh-keygen -q -s ca -h -I foreign -n n2 host.pub'"
    )
    second_sshd("n2", "HostKey=/root/foreign/host", "HostCertificate=/root/foreign/host-cert.pub")
    said = refused(node("n1"), f"{AS_TRAIN} -p 2222 n2 uname -n")
    host.check_output("sudo rm -r /root/foreign")
    assert "Host key verification failed." in said
    assert node("n1").check_output(f"{AS_TRAIN} n2 uname -n") == "n2"


def test_another_node_cannot_impersonate_this_one(node, node_vars):
    """The certificate of n3 is valid, but not for the name n2."""
    address = node_vars["n3"]["ansible_host"]
    said = refused(node("n1"), f"{AS_TRAIN} -o HostName={address} -o HostKeyAlias=n2 n2 uname -n")
    assert "name is not a listed principal" in said


def test_broken_access_of_one_node_is_named_pair_by_pair(run_playbook, node, node_names, node_vars):
    *others, odd = node_names
    host, address = node(odd), node_vars[odd]["ansible_host"]
    host.check_output("sudo mv /etc/trainyard/ssh/user_ca.pub /root/user_ca.pub")
    try:
        run = run_playbook("changed.yml", step="verify")
    finally:
        host.check_output("sudo mv /root/user_ca.pub /etc/trainyard/ssh/user_ca.pub")
    assert run.rc != 0
    for name in others:
        assert f"{name} -> {odd} ({odd}, {address}): train@{odd}: Permission denied (publickey)." in run.text
    assert f"{odd} -> " not in run.text
    assert "-> n2" not in run.text
    # Every node logs in to every other one by name and by address.
    assert f"Of {2 * len(node_names) * len(others)} logins, these failed" in run.text


def test_a_name_with_another_address_has_sshs_reason(run_playbook, node):
    host = node("n2")
    host.check_output("sudo cp -p /etc/hosts /root/kept; sudo sed -i 's/^.* n3$/127.0.0.2 n3/' /etc/hosts")
    try:
        run = run_playbook("changed.yml", step="verify", ssh_mesh_verify_peers="1")
    finally:
        host.check_output("sudo cp -p /root/kept /etc/hosts; sudo rm /root/kept")
    run.fails("n2 -> n3 (n3", "Certificate invalid: name is not a listed principal")
    assert "n1 -> " not in run.text


def test_a_host_certificate_of_the_site_is_not_displaced(run_playbook, node):
    host = node("n1")
    host.check_output(
        "sudo cp -p /etc/ssh/sshd_config /root/kept; "
        "echo 'HostCertificate /etc/ssh/missing-cert.pub' | sudo tee -a /etc/ssh/sshd_config"
    )
    try:
        run = run_playbook("changed.yml", "--limit", "n1")
    finally:
        host.check_output("sudo cp -p /root/kept /etc/ssh/sshd_config; sudo rm /root/kept")
    run.fails("the site's own /etc/ssh/missing-cert.pub expected none, as the mesh's certificate would compete with it")
    assert set(run.changes.values()) == {0}


def test_rejected_settings_are_replaced_by_the_previous_ones(run_playbook, node, node_vars):
    """A simulated sshd rejects everything, as if the site's settings conflicted with ours."""
    host, settings = node("n2"), f"/etc/ssh/sshd_config.d/60-{node_vars['n2']['trainyard_cluster']}.conf"
    script = r'#!/bin/sh\n[ "$1" != -t ] || { echo planted refusal >&2; exit 1; }\nexec /usr/sbin/sshd.kept "$@"\n'
    host.check_output(f"echo '# of an earlier run' | sudo tee -a {settings}")
    host.check_output(f"sudo sh -ec 'mv /usr/sbin/sshd /usr/sbin/sshd.kept; cp {settings} /root/kept'")
    host.check_output(f"printf '{script}' | sudo tee /usr/sbin/sshd; sudo chmod 755 /usr/sbin/sshd")
    try:
        run = run_playbook("changed.yml", "--limit", "n2")
    finally:
        host.check_output("sudo mv /usr/sbin/sshd.kept /usr/sbin/sshd")
    run.fails("planted refusal. The file is restored")
    host.check_output(
        f"sudo sh -ec 'cmp /root/kept {settings}; sed -i \"/^# of an earlier run$/d\" {settings}; rm /root/kept'"
    )


def test_certificates_are_valid_for_the_nodes_only_and_forward_nothing(host, node_names, node_vars):
    marked = f"trainyard:{node_vars['n1']['trainyard_cluster']}$"
    patterns = host.check_output(f"grep '{marked}' /etc/ssh/ssh_known_hosts").split()[1].split(",")
    assert patterns == sorted([*node_names, *(node_vars[name]["ansible_host"] for name in node_names)])
    shown = host.check_output("sudo ssh-keygen -L -f /etc/trainyard/ssh/user_ed25519-cert.pub").split("Critical")[1]
    assert shown.split() == [
        "Options:", "source-address", node_vars["n1"]["trainyard_network"], "Extensions:", "permit-pty"
    ]  # fmt: skip


def test_an_undeclared_address_gets_no_certificate(run_playbook, node, node_vars):
    """The address is a free one of the cluster's network."""
    host, claimed = node("n2"), node_vars["n2"]["ansible_host"].rpartition(".")[0] + ".250"
    host.check_output(f"sudo ip address add {claimed}/24 dev eth0")
    try:
        run = run_playbook("changed.yml", "--limit", "n2")
    finally:
        host.check_output(f"sudo ip address del {claimed}/24 dev eth0")
    assert run.rc == 0, run.output
    assert set(run.changes.values()) == {0}
    assert f"address without a certificate on n2 found {claimed}" in run.text
    assert claimed not in host.check_output("sudo ssh-keygen -L -f /etc/trainyard/ssh/host-cert.pub")


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"ssh_mesh_validity": "4w"}, ["ssh_mesh_renew_before is not shorter than ssh_mesh_validity"]),
        (
            {"ssh_mesh_revoked": ["n99"], "ssh_mesh_user": "nobody2", "ssh_mesh_host_key": "/etc/ssh/none"},
            [
                "found n99, which has no certificate of this authority expected one of n",
                "training user on n1 found no user nobody2",
                "expected /etc/ssh/none do as the node says: set ssh_mesh_host_key",
            ],
        ),
    ],
)
def test_bad_input_is_rejected_before_any_change(run_playbook, given, texts):
    run_playbook("changed.yml", "--limit", "n1", **given).fails(*texts).changes_nothing()
