"""The cluster itself: health, changes that jobs outlive, changes that are refused."""

import json

import pytest
from lab_jobs import host_list, wait_until

CHECK = "/usr/local/sbin/trainyard-slurm-health"
MEMORY = "/var/lib/trainyard-slurm-health.json"
SETTINGS = "/etc/trainyard-slurm-health.json"
CONF = "/etc/slurm/slurm.conf"
# Where the training user may write: the job of a test waits for one file and leaves the other.
GO, GONE = "/var/lib/trainyard/jobs/go", "/var/lib/trainyard/jobs/gone"
STOPPED = "/var/lib/trainyard/jobs/stopped"
# Stops the shell of the next epilog as its own user, and says which one it was.
STOPPER = rf"""
import glob, os, signal
while True:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if b"\0-c\0" in (words := open(path, "rb").read()) and b"\0epilog\0" in words:
                os.kill(pid := int(path.split("/")[2]), signal.SIGSTOP)
                open("{STOPPED}", "w").write(str(pid))
                raise SystemExit
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def machines(nodes):
    return {name: node.host for name, node in nodes.items()}


@pytest.fixture
def state(machines):
    """Return Slurm's record of n3, which is in service before and after the test."""

    def said():
        return machines["n1"].check_output("scontrol show node n3 -o")

    assert "DRAIN" not in said()
    yield said
    if "DRAIN" in said():
        machines["n1"].check_output("scontrol update nodename=n3 state=resume")
    wait_until(lambda: "DRAIN" not in said(), "n3 is back")


@pytest.fixture
def settings(machines):
    """Return a writer of settings of its own, with a memory of its own."""

    def write(**changes):
        given = {**json.loads(machines["n3"].check_output(f"cat {SETTINGS}")), "memory": "/root/health/memory.json"}
        content = json.dumps({**given, **changes})
        machines["n3"].check_output("mkdir -p /root/health && printf %s > /root/health/settings.json", content)
        return "/root/health/settings.json"

    yield write
    machines["n3"].check_output("rm -rf /root/health")


def test_slurmd_runs_the_check_on_every_node(machines):
    for host in machines.values():
        host.check_output(f"rm -f {MEMORY}; systemctl restart slurmd")
    for name, host in machines.items():
        wait_until(lambda host=host: host.file(MEMORY).exists, f"the check has run on {name}")


def test_a_sick_node_is_drained_and_only_our_own_drain_is_undone(machines, state, settings):
    n1, n3 = machines["n1"], machines["n3"]
    assert n3.run(f"{CHECK} {settings(min_disk_mib=10**9)}").rc == 1
    assert "DRAIN" in state() and "Reason=trainyard: disk: less than 1000000000 MiB free in " in state()
    assert n3.run(f"{CHECK} {settings()}").rc == 0
    assert "DRAIN" not in state()
    n1.check_output("scontrol update nodename=n3 state=drain reason='new fan'")
    assert n3.run(f"{CHECK} {settings()}").rc == 0
    assert n3.run(f"{CHECK} {settings(min_disk_mib=10**9)}").rc == 1
    assert "DRAIN" in state() and "Reason=new fan" in state()


def test_a_port_that_fails_drains_until_somebody_does_without_it(machines, state, settings):
    n1, n3 = machines["n1"], machines["n3"]
    # Stands in for an adapter, of which the lab's nodes have none.
    port = "/root/health/machine/sys/class/infiniband/mlx5_0/ports/1"
    check = f"{CHECK} {settings()} /root/health/machine"

    def port_is(words):
        n3.check_output(f"mkdir -p {port} && echo '{words}' > {port}/state && echo '400 Gb/sec' > {port}/rate")

    port_is("4: ACTIVE")
    assert n3.run(check).rc == 0
    port_is("1: DOWN")
    assert n3.run(check).rc == 1
    assert "DRAIN" in state() and "Reason=trainyard: RDMA ports: mlx5_0:1 DOWN" in state()
    n1.check_output("scontrol update nodename=n3 state=resume")
    n3.run(check)
    n3.run(check)
    assert "DRAIN" not in state()


def test_a_failed_check_changes_nothing(machines, state, settings):
    broken = machines["n3"].run(f"{CHECK} {settings(folder='/nowhere')}")
    assert broken.rc == 2
    assert "the check of this node failed, nothing was changed: FileNotFoundError" in broken.stderr
    assert "DRAIN" not in state()


def test_root_of_one_node_has_no_jobs_on_others(machines, node_names):
    n1 = machines["n1"]
    for command in ("srun --immediate=30 --nodelist=n2 --chdir=/ id", "sbatch --output=/dev/null --wrap=id"):
        refused = machines["n3"].run(command)
        assert refused.rc != 0 and "uid=0" not in refused.stdout, refused
    assert n1.check_output("squeue --noheader") == ""
    assert "uid=2000(train)" in n1.check_output("runuser --user=train -- srun --nodelist=n2 --chdir=/ id")
    states = n1.check_output('sinfo --noheader --Node --format "%N %T"').split()
    assert states[::2] == node_names and not any("drain" in state or "down" in state for state in states)


def test_a_user_that_stops_the_epilog_keeps_no_node(machines, state):
    n1, n3 = machines["n1"], machines["n3"]
    n3.check_output(f"rm -f {STOPPED}")
    n3.check_output("runuser --user=train -- setsid --fork python3 -c %s >/dev/null 2>&1", STOPPER)
    job = "runuser --user=train -- srun --immediate=60 --nodelist=n3 --chdir=/ true"
    # An epilog may be faster than the one who stops it.
    wait_until(lambda: n1.check_output(job) == "" and n3.file(STOPPED).exists, "an epilog has been stopped")
    stopped = n3.check_output(f"cat {STOPPED}")
    wait_until(lambda: not n3.file(f"/proc/{stopped}").exists, "root has ended the epilog")
    wait_until(lambda: "State=IDLE " in state(), "n3 has no job any more")
    n3.check_output(f"rm -f {STOPPED}")


@pytest.fixture
def job(machines):
    """A job on n2 that runs until it is let go; returns what Slurm says of it and how to end it."""
    n1, n2 = machines["n1"], machines["n2"]
    n2.check_output(f"rm -f {GO} {GONE}")
    script = f"while [ ! -e {GO} ]; do sleep 0.2; done; touch {GONE}"
    submit = f"sbatch --parsable --nodelist=n2 --chdir=/ --output=/dev/null --wrap='{script}'"
    number = n1.check_output(f'runuser --user=train -- sh -c "{submit}"').strip()

    def said():
        words = n1.check_output(f"scontrol show job {number} -o").split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    wait_until(lambda: said()["JobState"] == "RUNNING", "the job runs")
    yield said
    n2.check_output(f"touch {GO}")
    wait_until(lambda: said()["JobState"] != "RUNNING", "the job has ended")
    n2.check_output(f"rm -f {GO} {GONE}")


def all_but(name, node_names):
    return ",".join(other for other in node_names if other != name)


def test_jobs_survive_upgrades_and_changes_of_nodes(machines, job, run_playbook, node_names):
    n1, n2 = machines["n1"], machines["n2"]
    without_n2, without_n3 = all_but("n2", node_names), all_but("n3", node_names)
    before = job()
    # As in an upgrade, the packages' scripts stop and start the daemons.
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --reinstall --no-install-recommends"
    n2.check_output(f"{install} slurmd munge")
    n1.check_output(f"{install} slurmctld slurmd munge")
    run_playbook("cluster.yml", slurm_health_interval=240).expect(0)
    assert "HealthCheckInterval=240" in n1.check_output(f"cat {CONF}")
    run_playbook("cluster.yml", "--limit", without_n2, slurm_hosts=without_n2).fails(
        "found n2 has jobs and would leave expected no job on a node that leaves, as Slurm would end it"
    )
    run_playbook("cluster.yml", "--limit", without_n3, slurm_hosts=without_n3).expect(0)
    assert n1.check_output("sinfo -hN -o %N").split() == without_n3.split(",")
    run_playbook("cluster.yml").expect(0)
    assert n1.check_output("sinfo -hN -o %N").split() == node_names
    now = job()
    assert [now[name] for name in ("JobState", "StartTime", "Restarts")] == ["RUNNING", before["StartTime"], "0"]
    n2.check_output(f"touch {GO}")
    wait_until(lambda: job()["JobState"] == "COMPLETED", "the job has ended well")
    assert n2.file(GONE).exists


def test_a_cluster_keeps_its_name_and_its_controller(run_playbook, machines, node_names):
    nodes = host_list(node_names)
    before = machines["n2"].check_output(f"cat {CONF}")
    run = run_playbook("cluster.yml", slurm_controller="n2", slurm_cluster="other")
    assert run.rc != 0
    assert f"slurm_cluster on {nodes} found the cluster trainyard expected other" in run.text
    assert f"slurm_controller on {nodes} found slurmctld on n1 expected a slurmctld on n2" in run.text
    assert machines["n2"].check_output(f"cat {CONF}") == before


@pytest.fixture
def host_name(machines):
    """Return a function with which root of n3 has its Python answer another host name."""
    n3 = machines["n3"]
    file = n3.check_output("python3 -c 'import site; print(site.getsitepackages()[0])'") + "/forged.pth"

    def change(name):
        n3.check_output(f"printf %%s %s >{file}", f"import platform; platform.node = lambda: {name!r}")

    yield change
    n3.check_output(f"rm -f {file}")


def test_a_host_name_is_no_line_of_a_file_and_no_name_of_another_node(run_playbook, machines, host_name):
    before = machines["n2"].check_output(f"cat {CONF}")
    host_name("n3\nProlog=/home/train/evil\n#")
    forged = run_playbook("cluster.yml").fails(
        "host name on n3 found 'n3 Prolog=/home/train/evil #' expected a host name"
    )
    assert "do set it with hostnamectl set-hostname" in forged.text
    host_name("n1")
    taken = run_playbook("cluster.yml").fails("host name on n1, n3 found n1: n1, which is a name of n3 n3: n1, which ")
    assert "the cluster stays as it is" in taken.text
    assert machines["n2"].check_output(f"cat {CONF}") == before


def test_all_hosts_are_configured_together(run_playbook, node_names):
    run = run_playbook("cluster.yml", "--limit", all_but("n3", node_names))
    run.fails("n3 of compute is not in this run; expected: all hosts")


def test_check_mode_reports_the_packages_of_a_new_node(run_playbook, machines):
    machines["n3"].check_output("DEBIAN_FRONTEND=noninteractive apt-get -qq remove slurmd")
    run_playbook("cluster.yml", "--check").expect(0, "To be installed: slurmd")
    assert not machines["n3"].exists("slurmd")
    run_playbook("cluster.yml").expect(0)
    assert machines["n3"].service("slurmd").is_running


def test_daemons_that_have_not_read_their_configuration_are_restarted(run_playbook, machines):
    n3 = machines["n3"]
    started = "systemctl show --timestamp=us --property=ActiveEnterTimestamp slurmd"
    before = n3.check_output(started)
    n3.check_output(f"touch {CONF}")
    run = run_playbook("cluster.yml").expect(0)
    assert [run.changes[name] > 0 for name in ("n1", "n2", "n3")] == [False, False, True]
    assert n3.check_output(started) != before


def test_containers_that_cannot_confine_are_a_finding(run_playbook, node_names):
    run = run_playbook("confined.yml").fails()
    # The lab's nodes have the read-only cgroups of one machine.
    assert f"slurm_confinement on {host_list(node_names)} found cgroup v" in run.text
    assert "cannot be written expected cgroups that slurmd can write, as slurm_confinement is cgroup" in run.text
    assert "do set slurm_confinement: none if jobs need not be kept apart" in run.text
