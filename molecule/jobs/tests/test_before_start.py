"""What stops a job before anything is started: every message, all findings at once, and no node touched."""

import re

import pytest
from lab_jobs import WORKER, host_list, wait_until

NOT_PLANNED = "the job cannot be planned, and nothing was started."
NOT_RUN = "the job cannot run, and nothing was started."


@pytest.fixture(scope="module", autouse=True)
def untouched(nodes):
    """None of these launches makes a job's folder on a node."""
    listing = "ls /var/lib/trainyard/jobs | grep -E '^(worker|planned)-' || true"
    before = {name: node.host.check_output(listing) for name, node in nodes.items()}
    yield
    assert {name: node.host.check_output(listing) for name, node in nodes.items()} == before


def test_one_problem_is_reported_and_nothing_starts(play):
    play.launch(WORKER, job_nodes=2, job_network="lo").expect(
        2,
        f"1 finding: {NOT_PLANNED}",
        "1. interface on n1, n2 found lo 127.0.0.1/8 (loopback), which no other node can reach, chosen by "
        "job_network lo expected an address that every node of the job reaches do set job_network",
    )


def test_all_problems_are_reported_at_once(play, node_names):
    size, everywhere = len(node_names), host_list(node_names)
    play.launch(
        WORKER,
        job_nodes=9,
        job_ranks_per_node="auto",
        job_command=["pyhton3", "wroker.py"],
        job_data=["/var/lib/trainyard/data/imagenet"],
        job_devices=[0, 1],
        job_env={"https_proxy": "http://192.0.2.1:3128", "GLOO_SOCKET_IFNAME": "lo"},
    ).expect(
        2,
        f"7 findings: {NOT_RUN}",
        f"job_nodes found 9 nodes requested, {size} in group compute expected at most as many nodes as the group has",
        "job_command found no wroker.py in ",
        f"devices on {everywhere} found no device on the node expected devices 0, 1 do correct job_devices",
        f"interface on {everywhere} found GLOO_SOCKET_IFNAME=lo: lo (loopback) expected an interface that reaches the",
        f"proxy on {everywhere} found https_proxy in the job's environment, and no_proxy without ",
        f"program on {everywhere} found no pyhton3 in ",
        f"data on {everywhere} found no /var/lib/trainyard/data/imagenet expected the job's data on every node",
    )


@pytest.fixture(scope="module")
def refused(play, nodes):
    """A launch whose port another program has on the head, and whose script no node has."""
    head = nodes["n1"].host
    head.check_output("systemd-run --quiet --collect --unit=squatter python3 -m http.server 23456")
    try:
        wait_until(lambda: head.run("ss -Hltn sport = :23456").stdout, "the port is taken")
        command = ["python3", "/srv/absent.py"]
        return play.launch(WORKER, job_name="planned", job_nodes=2, job_port=23456, job_command=command).wait()
    finally:
        head.check_output("systemctl stop squatter")


def test_a_busy_port_is_named_with_its_owner_and_a_missing_script_with_its_nodes(refused):
    program = "program on n1, n2 found no /srv/absent.py expected the script that job_command names by its path"
    refused.expect(2, f"2 findings: {NOT_RUN}", program)
    port = r"rendezvous port on n1 found 23456 is in use by \S*python3 \(pid \d+\) expected a free TCP port on the head"
    assert re.search(port, refused.text), refused.output


def test_a_plan_that_was_never_started_is_no_run(play, refused):
    """Neither one of --check nor one with findings: `stop -e job_name=...` must not take it for the newest run."""
    assert play.launch(WORKER, "--check", job_nodes=2, job_name="planned").rc == 0
    assert len(list(play.runs.glob("planned-*/plan.json"))) == 2
    play("playbooks/status.yml", job_name="planned").expect(2, f"No run of job planned was started from {play.runs}.")


def test_a_bridge_to_the_nodes_own_guests_is_no_network_of_a_job(play, nodes):
    """As Docker makes it on every machine, and with an address that the inventory's network has, too."""
    for name in ("n1", "n2"):
        nodes[name].host.check_output("ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0")
        nodes[name].host.check_output("ip link set docker0 up")
    try:
        named = play.launch(WORKER, job_nodes=2, job_network="docker0").wait()
        wide = play.launch(WORKER, "--check", job_nodes=2, job_network="0.0.0.0/1").wait()
    finally:
        for name in ("n1", "n2"):
            nodes[name].host.check_output("ip link delete docker0")
    named.expect(2, "interface on n1, n2 found docker0 172.17.0.1/16 (for containers or virtual machines of this")
    assert wide.rc == 0, wide.output
    assert {node["interface"] for node in wide.file("plan.json")["nodes"]} == {"eth0"}


def test_a_script_that_differs_between_nodes(play, nodes):
    """It does not come with the job: every node has a copy of its own, and one was changed."""
    script = "/srv/differs.py"
    for number, name in enumerate(("n1", "n2", "n3")):
        nodes[name].host.check_output(f"echo 'print({number == 1})' > {script}")
    try:
        run = play.launch(WORKER, job_nodes=3, job_command=["python3", script]).expect(2)
    finally:
        for name in ("n1", "n2", "n3"):
            nodes[name].host.check_output(f"rm {script}")
    found = rf"1 finding: .* scripts on n2 found {script} sha256 \w{{12}} expected one {script} on all nodes"
    assert re.search(found, run.text), run.output


def test_hosts_that_limit_leaves_out_are_called_so(play):
    limit = "1. limit on n2 found left out by --limit n1,localhost expected every host of the job"
    play.launch(WORKER, "--limit", "n1,localhost", job_nodes=2).expect(2, limit)


def test_limit_without_the_controller_is_no_success(play, run_playbook):
    for run in (play.launch(WORKER, "--limit", "n1", job_nodes=1), run_playbook("playbooks/stop.yml", "--limit", "n1")):
        run.expect(2, "--limit n1 leaves out localhost", "1 finding in what was given. Nothing was done.")
