"""The role node_baseline: the result on the nodes, and its errors."""

from contextlib import contextmanager

from lab_jobs import host_list, ssh_from_here

HARD = {"memlock": "Max locked memory", "nofile": "Max open files"}


@contextmanager
def changed_file(host, path, line):
    """Add a line to a file of a node and put the file back."""
    host.check_output(f"sudo cp -p {path} /root/kept && echo '{line}' | sudo tee -a {path}")
    try:
        yield
    finally:
        host.check_output(f"sudo cp -p /root/kept {path} && sudo rm /root/kept")


def grantable(host, name, wanted):
    """Return the limit that a node can grant: its own hard limit, unless it can raise that."""
    hard = host.check_output(f"sudo grep '{HARD[name]}' /proc/1/limits").split()[-2]
    if hard == "unlimited":
        return wanted
    hard = str(int(hard) // 1024) if name == "memlock" else hard
    return hard if wanted == "unlimited" else str(min(int(hard), int(wanted)))


def ssh_as_train(node_vars, name, command):
    """Run a command over non-interactive ssh as the training user, from this machine."""
    there = node_vars[name]
    done = ssh_from_here(there, "train", there["ansible_ssh_private_key_file"], command)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def login_as_train(host):
    """Let the lab's key log in as the training user for a while."""
    assert host.run("sudo test -e /home/train/.ssh").rc != 0, "the training user has keys already"
    host.check_output("sudo install -d -m 700 -o train -g train /home/train/.ssh")
    host.check_output("sudo install -m 600 -o train -g train ~/.ssh/authorized_keys /home/train/.ssh/authorized_keys")
    try:
        yield
    finally:
        host.check_output("sudo rm -r /home/train/.ssh")


def test_training_user_and_folders_are_the_same_everywhere(host):
    user = host.user("train")
    assert (user.uid, user.gid, user.group, user.shell) == (2000, 2000, "train", "/bin/bash")
    assert host.check_output("sudo getent shadow train").split(":")[1] == "*"
    assert host.file("/opt/trainyard").user == "root"
    expected = {
        "": ("root", "root", 0o755),
        "/jobs": ("root", "train", 0o1775),
        "/data": ("train", "train", 0o755),
        "/checkpoints": ("train", "train", 0o755),
    }
    found = {name: host.file(f"/var/lib/trainyard{name}") for name in expected}
    assert {name: (folder.user, folder.group, folder.mode) for name, folder in found.items()} == expected
    assert all(folder.is_directory for folder in found.values())


def test_every_name_resolves_to_its_node(host, node_names, node_vars):
    for name in node_names:
        addresses = {line.split()[0] for line in host.check_output(f"getent ahosts {name}").splitlines()}
        assert addresses == {node_vars[name]["ansible_host"]}


def test_limits_hold_in_services_and_in_ssh(host, node_vars):
    name = host.check_output("uname -n")
    wanted = [grantable(host, "memlock", "unlimited"), grantable(host, "nofile", "1048576")]
    measure = "ulimit -H -l; ulimit -H -n"
    service = host.check_output(f"sudo systemd-run --quiet --wait --pipe --uid=train sh -c '{measure}'")
    assert service.split() == wanted
    with login_as_train(host):
        assert ssh_as_train(node_vars, name, measure).split() == wanted


def test_a_conflicting_line_of_the_site_is_an_error(run_playbook, node, node_vars):
    host = node("n1")
    with changed_file(host, "/etc/hosts", "203.0.113.9 n3"):
        before = host.check_output("cat /etc/hosts")
        run = run_playbook("converge.yml", "--limit", "n1,n3")
        run.fails(f"gives n3 the address 203.0.113.9; this cluster gives it {node_vars['n3']['ansible_host']}")
        assert host.check_output("cat /etc/hosts") == before


def test_a_taken_uid_and_a_user_with_another_uid_are_findings(run_playbook, node, node_names):
    host = node("n2")
    host.check_output("sudo useradd --uid 2999 squatter")
    try:
        run = run_playbook("converge.yml", trainyard_uid=2999)
    finally:
        host.check_output("sudo userdel squatter")
    run.fails(
        f"uid of the training user on {host_list(node_names)} found train has uid 2000 expected uid 2999, the "
        "same on all nodes",
        "on n2 found uid 2999 belongs to squatter expected uid 2999 free for train",
        "Nothing was changed.",
    )
    assert host.user("train").uid == 2000


def test_one_machine_under_two_names_is_a_finding(run_playbook):
    run = run_playbook("converge.yml", "-i", "molecule/node_baseline/inventory/two_names.yml")
    assert run.rc != 0
    assert "kernel host name on twin found 'n1', which the inventory calls another node" in run.text
    assert "is the address of n1, twin expected one node per address" in run.text


def test_bad_input_is_rejected_before_any_change(run_playbook):
    given = {"trainyard_network": "192.0.2.0/24", "node_baseline_nofile": 2000000000, "trainyard_user": "root"}
    run_playbook("converge.yml", "--limit", "n1", **given).fails(
        "found root with uid 2000 expected an ordinary user",
        "expected an address in 192.0.2.0/24 do correct trainyard_network (or node_baseline_network)",
        "expected at least node_baseline_nofile, 2000000000",
    ).changes_nothing()


def test_settings_that_a_container_cannot_have_are_reported(run_playbook):
    given = {"node_baseline_memlock": "999999999", "node_baseline_time_service": "systemd-timesyncd"}
    run = run_playbook("changed.yml", "--limit", "n1", step="verify", **given)
    assert run.rc == 0, run.output
    assert "memlock stays at" in run.text
    assert "limits cannot be raised (no CAP_SYS_RESOURCE)" in run.text
    assert "the clock belongs to the machine that runs it: no time service is installed" in run.text


def test_verification_names_the_node_with_a_wrong_name(run_playbook, node):
    host = node("n3")
    host.check_output("sudo cp -p /etc/hosts /root/kept")
    try:
        host.check_output("sudo sed -i 's/^.* n1$/203.0.113.1 n1/' /etc/hosts")
        run = run_playbook("changed.yml", step="verify")
    finally:
        host.check_output("sudo cp -p /root/kept /etc/hosts && sudo rm /root/kept")
    run.fails("n3: name n1: found 203.0.113.1, expected ")
    assert "n2: name n1" not in run.text
    # Settings that a container cannot have are no defaults, so nobody asked for them.
    assert "memlock stays at" not in run.text and "the clock belongs to" not in run.text


def test_a_wrong_clock_is_found(run_playbook, node, node_names):
    """A container cannot set its clock, so a `date` that is 100 s ahead simulates it."""
    host = node(node_names[-1])
    host.check_output("printf '#!/bin/sh\\n/bin/date -d +100sec \"$@\"\\n' | sudo tee /usr/local/bin/date")
    try:
        host.check_output("sudo chmod 755 /usr/local/bin/date")
        run = run_playbook("changed.yml", step="verify")
    finally:
        host.check_output("sudo rm /usr/local/bin/date")
    run.fails("The clocks of the nodes differ by ", "expected at most 1.0 s (node_baseline_max_clock_offset_s)")
    offsets = dict(
        pair.split(" ")
        for pair in run.text.split("Offsets from the controller: ")[1].split(" s. Check")[0].split(" s, ")
    )
    assert [name for name, offset in offsets.items() if float(offset) > 90] == node_names[-1:]
