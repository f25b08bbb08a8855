"""Hosts that somebody else administers: no sudo, homes that all hosts share, a host without apt, two users."""

import re

import pytest
import yaml
from lab_jobs import PROJECT, WORKER, Play, ansible_playbook, host_list
from without_systemd import *  # noqa: F403
from without_systemd import Place

HOME = "/srv/shared/home"
ROOT = f"{HOME}/bob/.local/share/trainyard"
# A local folder of each host.
STATE = "/var/tmp/trainyard-bob"  # noqa: S108
# The hosts share one machine, and one says that its system is another: their speed and differences say nothing.
PHASES = {"verify_phases": ["software", "reach", "collectives"]}


@pytest.fixture(scope="module", autouse=True)
def hosts_as_before(nodes):
    """Give the hosts back as they were."""
    yield
    for node in nodes.values():
        node.host.check_output(
            "for user in bob eve; do pkill -KILL -u $user; rm -rf /var/tmp/trainyard-$user /srv/shared/home/$user; "
            "userdel $user; done; chmod 0755 /usr/bin/apt* /usr/bin/dpkg*; "
            "ln -sfn ../usr/lib/os-release /etc/os-release"
        )


@pytest.fixture(scope="module")
def inventory_of(node_names, node_vars, tmp_path_factory):
    """Return a function that writes the inventory of a user: hosts, a login, and the one line."""

    def write(user):
        connection = ("ansible_ssh_private_key_file", "ansible_ssh_common_args", "ansible_python_interpreter")
        variables = {name: node_vars[node_names[0]][name] for name in connection}
        hosts = {name: {"ansible_host": node_vars[name]["ansible_host"]} for name in node_names}
        compute = {"hosts": hosts, "vars": {"ansible_user": user, "trainyard_become": False, **variables}}
        # The first host, and the one of another system.
        pair = {"hosts": dict.fromkeys((node_names[0], node_names[-1]))}
        file = tmp_path_factory.mktemp(user) / "hosts.yml"
        file.write_text(yaml.safe_dump({"compute": compute, "pair": pair}))
        return file

    return write


@pytest.fixture(scope="module")
def of_bob(inventory_of):
    return inventory_of("bob")


@pytest.fixture(scope="module")
def bob(of_bob, tmp_path_factory):
    """Return what starts playbooks as bob."""
    player = Play(tmp_path_factory.mktemp("bob"), of_bob)
    yield player
    player.end()


@pytest.fixture(scope="module")
def eve(inventory_of, tmp_path_factory):
    """Return what starts playbooks as eve."""
    player = Play(tmp_path_factory.mktemp("eve"), inventory_of("eve"))
    yield player
    player.end()


@pytest.fixture(scope="module")
def place(bob, nodes):
    """Return the place of the tests of without_systemd."""
    tables = {name: nodes[name].table for name in (next(iter(nodes)), list(nodes)[-1])}
    return Place(bob, {"job_hosts": "pair"}, None, tables, f"{STATE}/jobs", has_units=False)


@pytest.fixture(scope="module")
def software(of_bob, tmp_path_factory):
    """Return the first run of site.yml as bob."""
    runs = str(tmp_path_factory.mktemp("runs"))
    return ansible_playbook(PROJECT / "site.yml", of_bob, trainyard_runs=runs, **PHASES).expect(0)


@pytest.fixture(scope="module")
def site(software, of_bob, tmp_path_factory):
    """Return a function that runs site.yml as bob, after the first run."""
    runs = str(tmp_path_factory.mktemp("runs"))
    return lambda *arguments, **more: ansible_playbook(
        PROJECT / "site.yml", of_bob, *arguments, **{"trainyard_runs": runs, **PHASES, **more}
    )


def test_one_host_installs_what_all_share(software, first):
    installed = re.findall(r"^(.+): installed torch ", software.output, re.MULTILINE)
    assert len(installed) == 1 and re.fullmatch(r"n\d", installed[0]), software.output
    assert first.check_output(f"sudo stat -c %U {ROOT}/venvs/pytorch/.trainyard.json") == "bob"


def test_another_run_changes_nothing(site):
    site().expect(0).changes_nothing()
    site("--check").expect(0).changes_nothing()


def test_what_needs_root_is_said_before_anything_is_done(site, node_names):
    site(trainyard_frameworks=["pytorch", "container_runtime"]).fails(
        "Nothing was changed", f"on {host_list(node_names[:-1])}", "sudo apt install crun podman uidmap"
    ).changes_nothing()


def test_a_real_training_on_all_hosts(bob, software, node_names):
    run = bob.launch(PROJECT / "jobs/digits-cluster.yml", job_nodes=len(node_names))
    run.trained(len(node_names))


def test_a_state_folder_that_hosts_share_is_refused(bob, nodes, node_names):
    shared = f"{HOME}/bob/state"
    run = bob.launch(WORKER, trainyard_state=shared)
    run.expect(2, f"{host_list(node_names)} share {shared}", STATE)
    assert not next(iter(nodes.values())).host.file(f"{shared}/jobs").exists


def test_jobs_of_two_users_and_two_clusters_run_side_by_side(bob, eve, nodes, software):
    runs = [bob.launch(WORKER), bob.launch(WORKER, trainyard_cluster="second"), eve.launch(WORKER)]
    for run in runs:
        run.trains()
    eve("playbooks/stop.yml", job_id=runs[2].job_id).expect(0)
    first = next(iter(nodes.values())).host
    assert "Permission denied" in first.run(f"runuser -u eve -- ls {STATE}/jobs/{runs[0].job_id}/logs").stderr
    for run in runs[:2]:
        assert run.process.poll() is None, run.output
        bob("playbooks/stop.yml", job_id=run.job_id).expect(0)


def test_software_is_removed_once(of_bob, nodes, software):
    removed = ansible_playbook(PROJECT / "playbooks/remove.yml", of_bob, remove_data=True).expect(0)
    assert "userdel" not in removed.output
    for node in nodes.values():
        assert not node.host.file(ROOT).exists
        assert not node.host.file(STATE).exists
