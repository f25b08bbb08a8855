"""Hosts that somebody else administers: no sudo, homes that all hosts share, a host without apt, two users."""

import re

import pytest
import yaml
from lab_jobs import PROJECT, WORKER, Play, ansible_playbook, host_list

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


def test_a_job_runs_and_leaves_the_same_record(bob, left):
    run = bob.launch(WORKER, job_hosts="pair", job_command=["python3", "worker.py", "--steps", "10"]).expect(0)
    assert run.summary["state"] == "succeeded"
    exits = [process["exit_code"] for node in run.summary["nodes"] for process in node["processes"]]
    assert exits == [0, 0] and left(run.job_id) == {}
    for rank in range(2):
        assert f"rank {rank} of 2 pid " in run.log(rank) and "step 10/10" in run.log(rank)


def test_a_job_on_a_shared_disk_has_its_source_once_and_a_part_of_each_host(bob, nodes, node_names, left):
    """Its ranks save in one folder by relative names, and go on from there after a restart."""
    shared = f"{HOME}/bob/state"
    command = ["python3", "worker.py", "--steps", "10", "--resume", "--restarts", "1", "--raise-on", "1", "--once"]
    more = {"job_max_restarts": 1, "job_checkpoints": "done_*", "job_command": command}
    run = bob.launch(WORKER, trainyard_state=shared, **more).expect(0)
    assert len(run.summary["restarts"]) == 1 and left(run.job_id) == {}
    first, folder = next(iter(nodes.values())).host, f"{shared}/jobs/{run.job_id}"
    saved = [f"done_{rank}" for rank in range(len(node_names))]
    assert first.check_output(f"ls {folder}").split() == [*saved, "hosts", "source", "source.sha256"]
    assert first.check_output(f"ls {folder}/hosts").split() == list(node_names)
    bob("playbooks/clean.yml", job_id=run.job_id, trainyard_state=shared).expect(0)
    assert not first.file(folder).exists


@pytest.mark.long
def test_jobs_of_two_users_and_two_clusters_run_side_by_side(bob, eve, nodes, left, software):
    """One loses a rank, one is stopped, and one loses a monitor, whose ranks live on until they are stopped."""
    runs = [bob.launch(WORKER), eve.launch(WORKER), bob.launch(WORKER, trainyard_cluster="second", job_wait=False)]
    for run in runs[:2]:
        run.trains()
    failed, stopped, orphaned = (run.job_id for run in runs)
    runs[2].expect(0)
    name, (first, *_, last) = list(nodes)[-1], [node.table for node in nodes.values()]
    assert "Permission denied" in first.host.run(f"runuser -u eve -- ls {STATE}/jobs/{failed}/hosts/*/logs").stderr
    eve("playbooks/stop.yml", job_id=stopped).expect(0, f"Job {stopped} was stopped after")
    assert set(left(orphaned)) == set(left(failed)) == set(nodes) and left(stopped) == {}
    assert first.read_json(f"{STATE}/jobs/{orphaned}/hosts/*/node_plan.json")["unit"] == ""
    last.kill(last.read_json(f"{STATE}/jobs/{orphaned}/hosts/*/monitor.json")["pid"])
    # On a busy machine the other monitors may have missed it before, and ended the job.
    bob("playbooks/stop.yml", job_id=orphaned).expect(0, f"no process of the job is left on {host_list(list(nodes))}")
    assert left(orphaned) == {}
    rank = len(nodes) - 1
    last.kill(last.rank(f"{STATE}/jobs/{failed}", rank))
    runs[0].shows(2, f"  rank {rank} on {name} failed first: killed by SIGKILL")
    assert left(failed) == {}


def test_software_is_removed_once(of_bob, nodes, software):
    removed = ansible_playbook(PROJECT / "playbooks/remove.yml", of_bob, remove_data=True).expect(0)
    assert "userdel" not in removed.output
    for node in nodes.values():
        assert not node.host.file(ROOT).exists
        assert not node.host.file(STATE).exists
