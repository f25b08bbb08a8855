"""site.yml as a whole: findings before anything is touched, and --check on hosts that nothing was ever done to."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
LAB = os.environ.get("LAB") or "trainyard"
SUBNET = os.environ.get("BARE_SUBNET", "10.74.0.0/24")
# The first part of site.yml, which alone is read in a fifth of the time.
VALIDATE = "playbooks/validate.yml"


def make(*arguments):
    done = subprocess.run(["make", "-s", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def bare_lab(release="bookworm"):
    """Make two hosts fresh from the image, in a lab of their own, and return the inventory."""
    lab = f"{LAB}-bare"
    make("lab-destroy", f"LAB={lab}")  # one that a killed run left behind would not be bare
    make("lab", f"LAB={lab}", "NODES=2", f"SUBNET={SUBNET}", f"RELEASE={release}")
    try:
        yield PROJECT / ".cache/labs" / lab / "inventory"
    finally:
        make("lab-destroy", f"LAB={lab}")


@pytest.fixture(scope="module")
def bare_inventory():
    with bare_lab() as inventory:
        yield inventory


def test_check_mode_on_bare_hosts_shows_the_changes_and_makes_none(run_playbook, bare_inventory):
    run = run_playbook("site.yml", "--check", "--diff", inventory=bare_inventory)
    run.expect(0, "n1, n2 have no user train yet")
    # Nothing is changed on localhost either.
    made = {host: number for host, number in run.changes.items() if host != "localhost"}
    assert run.changes.get("localhost", 0) == 0 and set(made) == {"n1", "n2"} and min(made.values()) > 0, run.output
    # The next look finds the same hosts: none of it was done.
    again = run_playbook("site.yml", "--check", inventory=bare_inventory).changes
    assert {host: again[host] for host in made} == made


def fingerprints():
    """Return the lines of lab_fingerprint.py for the bare hosts."""
    script = (PROJECT / "molecule/lab_fingerprint.py").read_text()
    lines = {}
    for node in ("n1", "n2"):
        argv = ["podman", "exec", "--interactive", f"{LAB}-bare-{node}", "python3", "-B", "-"]
        done = subprocess.run(argv, input=script, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        lines[node] = set(done.stdout.splitlines())
    return lines


@pytest.mark.long
def test_hosts_are_as_before_when_trainyard_is_taken_off(run_playbook, bare_inventory):
    # The test above has sent the agent.
    agent = "/var/cache/trainyard"
    before = {node: {line for line in lines if not line.startswith(agent)} for node, lines in fingerprints().items()}
    assert min(map(len, before.values())) > 5000
    # The roles that change most of the system, without a framework's many files; remove_by_name.py has those.
    site = {"inventory": bare_inventory, "trainyard_frameworks": [], "dataset_sets": []}
    run_playbook("site.yml", "--skip-tags", "verify", **site).expect(0)
    made = fingerprints()
    assert all(len(made[node] ^ before[node]) > 50 for node in before)
    remove = {"inventory": bare_inventory}
    shown = run_playbook("playbooks/remove.yml", "--check", **remove)
    shown.expect(0, "n1, n2: remove.yml would remove 2 packages: libpopt0, rsync", "remove the user train")
    assert fingerprints() == made
    run_playbook("playbooks/remove.yml", **remove).expect(0, "n1, n2: done: remove 2 packages")
    after = fingerprints()
    assert {node: sorted(after[node] ^ before[node]) for node in before} == {"n1": [], "n2": []}
    again = run_playbook("playbooks/remove.yml", **remove)
    again.expect(0, "n1, n2: nothing of trainyard is there to remove.")


def test_all_findings_come_at_once_and_nothing_is_touched(run_playbook, inventory_path, tmp_path, node_vars):
    twins = tmp_path / "twins.yml"
    address = node_vars["n1"]["ansible_host"]
    # n2 is n1 once more (so it has its host name, too), and n3's Python is none.
    twins.write_text(
        f"compute: {{hosts: {{n2: {{ansible_host: {address}}}, n3: {{ansible_python_interpreter: /bin/false}}}}}}\n"
    )
    run = run_playbook("site.yml", "-i", str(twins), inventory=inventory_path)
    assert run.rc == 2, run.output
    assert "These hosts cannot become nodes yet: 3 findings. Nothing was changed." in run.text
    assert "Python on n3 found no working Python expected Python 3.9 or newer" in run.text
    assert "host name on n2 found n1 on n1, n2 expected a different host name on every node" in run.text
    assert f"inventory on n1, n2 found {address} on n1, n2 expected a different address for every node" in run.text
    assert set(run.changes.values()) == {0}


def test_a_node_that_does_not_answer_is_named_with_sshs_reason(run_playbook, inventory_path, tmp_path, node_vars):
    nowhere = tmp_path / "nowhere.yml"
    address = node_vars["n1"]["ansible_host"].rpartition(".")[0] + ".250"
    nowhere.write_text(f"compute: {{hosts: {{n3: {{ansible_host: {address}}}}}}}\n")
    run = run_playbook(VALIDATE, "-i", str(nowhere), inventory=inventory_path)
    assert run.rc == 2, run.output
    assert "These hosts cannot become nodes yet: 1 finding." in run.text
    assert "reach on n3 found ssh: connect to port 22: " in run.text
    assert f"expected a node that answers over ssh, at {address} do repair it, or leave it out;" in run.text
    assert run.output.count("n3") == 2, run.output
    assert set(run.changes.values()) == {0}


def test_the_list_of_frameworks_decides_what_is_verified(run_playbook, nodes, tmp_path):
    # Only who asks for Open MPI hears that n3 has none: mpirun is a link to orterun.
    host, software = nodes["n3"].host, {"verify_phases": ["software"], "trainyard_runs": str(tmp_path)}
    host.run("mv /usr/bin/orterun /usr/bin/orterun.away")
    try:
        asked = run_playbook("playbooks/verify.yml", trainyard_frameworks=["openmpi"], **software)
        not_asked = run_playbook("playbooks/verify.yml", trainyard_frameworks=[], **software)
    finally:
        host.run("mv /usr/bin/orterun.away /usr/bin/orterun")
    asked.expect(2, "Open MPI does not work over all nodes: ", "n3 found no mpirun that answers as Open MPI")
    assert not_asked.rc == 0, not_asked.output
    run = run_playbook(VALIDATE, trainyard_frameworks=["openmpi", "torch"])
    run.expect(
        2, "frameworks has torch, expected pytorch, mindspore, oneflow, openmpi, container_runtime, ascend. Nothing was"
    )


@pytest.mark.long
def test_the_group_nvidia_gets_its_stack_after_a_look_at_all_hosts(run_playbook, inventory_path, tmp_path):
    group = tmp_path / "group.yml"
    group.write_text("nvidia: {hosts: {n1: {nvidia_gpus: 0}, n2: {nvidia_gpus: 0}}}\n")

    def site(*arguments, **variables):
        return run_playbook("site.yml", "-i", str(group), *arguments, inventory=inventory_path, **variables)

    wrong = site(nvidia_stack="pytorch-cuda14")
    wrong.expect(2, "1. nvidia_stack on n1, n2 found 'pytorch-cuda14' expected one of v100-runfile,").changes_nothing()
    # By its tag: the stack's roles, and no others.
    alone = site("--tags", "nvidia", trainyard_nvidia=["nvidia_driver"], nvidia_stack="wheels-cuda13")
    alone.expect(0, "n1, n2 (2) none, as declared debian 12")
    # Nothing but the first look at a host outside the group.
    assert set(alone.changes.values()) == {0} and "pytorch : " not in alone.output
    missing = site("--tags", "nvidia", trainyard_nvidia=["nccl_tests"], nvidia_stack="wheels-cuda13")
    assert missing.rc == 2 and "nccl_tests_commit" in missing.text, missing.output
    unknown = run_playbook(VALIDATE, trainyard_nvidia=["driver"])
    unknown.expect(2, "trainyard_nvidia has driver, expected nvidia_driver, cuda_toolkit, nccl, nccl_tests, cudnn.")
