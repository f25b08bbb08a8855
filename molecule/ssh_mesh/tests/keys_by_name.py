"""A temporary authority: whom its certificates admit, a stolen key, keys of the site; settings that sshd has not read.

The tests run in this order; the last of them returns the nodes to the lab's own authority.
"""

import subprocess

from authority import own_authority_again, throwaway
from lab_jobs import ssh_from_here
from test_ssh_mesh import AS_TRAIN, refused, second_sshd

# Fixtures that the tests get by their names.
__all__ = ["own_authority_again", "second_sshd", "throwaway"]


def keygen(*arguments):
    return subprocess.run(["ssh-keygen", *arguments], check=True, capture_output=True, text=True).stdout


def new_key(path):
    keygen("-q", "-t", "ed25519", "-N", "", "-f", str(path))
    return path


def log_in(node_vars, name, user, key, port=22):
    """Log in to a node from this machine with only one key and its certificate."""
    there = node_vars[name]
    alias = ["-o", f"HostKeyAlias={there['ansible_host']}", "-p", str(port)]
    done = ssh_from_here(there, user, key, *alias, "id -un")
    return done.returncode, (done.stdout + done.stderr).strip()


def test_settings_of_an_interrupted_run_are_loaded_by_the_next(run_playbook, node, node_vars):
    host, settings = node("n2"), f"/etc/ssh/sshd_config.d/60-{node_vars['n2']['trainyard_cluster']}.conf"
    host.check_output(
        f"sudo sh -ec 'mv {settings} /root/kept; systemctl restart ssh; mv /root/kept {settings};"
        "rm /etc/trainyard/ssh/read_by_sshd'"
    )
    refused(node("n1"), f"{AS_TRAIN} n2 uname -n")
    run_playbook("changed.yml", "--limit", "n2").expect(0)
    assert node("n1").check_output(f"{AS_TRAIN} n2 uname -n") == "n2"
    host.check_output("sudo test -s /etc/trainyard/ssh/read_by_sshd")


def test_certificates_open_the_training_users_account_only(throwaway, tmp_path, node_vars, second_sshd):
    """A certificate for root and ops does not help, as sshd trusts the authority for the training user only."""
    private = sorted(path.name for path in throwaway.iterdir() if "PRIVATE KEY" in path.read_text(errors="replace"))
    assert private == ["host_ca", "user_ca"]
    assert all((throwaway / name).stat().st_mode & 0o777 == 0o600 for name in private)
    assert throwaway.stat().st_mode & 0o777 == 0o700

    key = new_key(tmp_path / "key")
    keygen("-q", "-s", str(throwaway / "user_ca"), "-I", "for all", "-n", "train,root,ops", f"{key}.pub")
    second_sshd("n1", "PermitRootLogin=prohibit-password")
    assert log_in(node_vars, "n1", "train", key, 2222) == (0, "train")
    for user in ("root", "ops"):
        status, said = log_in(node_vars, "n1", user, key, 2222)
        assert (status, "Permission denied" in said) == (255, True)

    other, foreign = new_key(tmp_path / "other"), new_key(tmp_path / "foreign")
    keygen("-q", "-s", str(throwaway / "user_ca"), "-I", "other", "-n", "somebody", f"{other}.pub")
    keygen("-q", "-s", str(new_key(tmp_path / "foreign_ca")), "-I", "foreign", "-n", "train", f"{foreign}.pub")
    for key in (other, foreign):
        status, said = log_in(node_vars, "n1", "train", key)
        assert (status, "Permission denied" in said) == (255, True)


def test_certificates_that_expire_soon_are_renewed_and_a_lost_key_is_revoked(run_playbook, throwaway, node):
    """The key of n2 is stolen: n2 gets a new one, and the old one opens nothing."""
    key = "/etc/trainyard/ssh/user_ed25519"
    show = f"sudo ssh-keygen -L -f {key}-cert.pub"
    before = node("n1").check_output(show)
    lost = node("n2").check_output(f"ssh-keygen -l -f {key}.pub").split()[1]
    node("n2").check_output(f"sudo sh -ec 'cp -p {key} {key}-cert.pub /home/train; rm {key} {key}.pub'")
    try:
        given = {"ssh_mesh_ca_dir": str(throwaway), "ssh_mesh_revoked": [lost]}
        run_playbook("changed.yml", "--limit", "n1,n2", "--diff", **given).expect(0, "n1: user key expires ")
        by_lost = f"{AS_TRAIN} -F /dev/null -o IdentitiesOnly=yes -i /home/train/user_ed25519 n1 uname -n"
        assert "Permission denied (publickey)" in refused(node("n2"), by_lost)
    finally:
        node("n2").check_output("sudo rm /home/train/user_ed25519 /home/train/user_ed25519-cert.pub")
    assert node("n1").check_output(show) != before
    assert node("n1").check_output(f"{AS_TRAIN} n2 uname -n") == "n2"
    assert node("n2").check_output(f"{AS_TRAIN} n1 uname -n") == "n1"


def test_keys_of_the_site_are_left_alone(throwaway, own_authority_again, node):
    host = node("n2")
    folder = "/home/train/.ssh"
    assert host.run(f"sudo test -e {folder}").rc != 0
    host.check_output(
        f'sudo --user=train sh -ec \'mkdir -m 700 {folder}; ssh-keygen -q -t ed25519 -N "" -f {folder}/id_ed25519;'
        f"cp {folder}/id_ed25519.pub {folder}/authorized_keys';"
        "echo '# of the site' | sudo tee -a /etc/ssh/ssh_known_hosts"
    )
    sums = f"sudo sh -c 'cat {folder}/* /etc/ssh/ssh_host_*_key /etc/ssh/sshd_config /etc/ssh/ssh_config | sha256sum'"
    try:
        before = host.check_output(sums)
        own_authority_again()
        assert host.check_output(sums) == before
        assert "# of the site" in host.check_output("cat /etc/ssh/ssh_known_hosts")
        offered = host.run(f"{AS_TRAIN} -v n2 true").stderr
        assert f"identity file {folder}/id_ed25519 type 3" in offered
    finally:
        host.check_output(f"sudo rm -r {folder}; sudo sed -i '/^# of the site$/d' /etc/ssh/ssh_known_hosts")
