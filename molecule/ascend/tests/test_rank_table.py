"""Jobs by a rank table on real nodes: every rank agrees with the table, and all ranks of it are there.

The devices are replays; the processes, their network (gloo) and the table on each node are real.
"""

import hashlib
import json
import re

import pytest
from lab_jobs import PROJECT

CHECK = PROJECT / "jobs/ascend-check.yml"
FIRST, SECOND, THIRD = "n1", "n2", "n3"
# All these processes share the machine's two cores that their imports alone take a while.
PATIENT = {"job_command": ["python", "check_ranks.py", "--timeout=140"]}
# Hosts and devices of jobs that run at the same time. Each rank imports PyTorch, so few show what all 24 would.
JOBS = {
    "four": (FIRST, "[4,8)"),
    # Not the order of the inventory: ranks follow the dictionary order of the addresses all the same.
    "three": (f"{SECOND},{THIRD},{FIRST}", [0, 1]),
}


def table_of(run, host=FIRST):
    (file,) = (each for each in run.file("plan.json", host)["files"] if each["path"].endswith("/rank_table.json"))
    return file


@pytest.fixture(scope="module")
def runs(play):
    """Jobs on four devices of one node and on two of each node, side by side."""
    started = {
        name: play.launch(CHECK, **PATIENT, job_name=f"table-{name}", job_hosts=hosts, job_devices=devices)
        for name, (hosts, devices) in JOBS.items()
    }
    return {name: run.wait() for name, run in started.items()}


@pytest.mark.parametrize(
    ("name", "hosts", "devices"), [("four", [FIRST], [4, 5, 6, 7]), ("three", [FIRST, SECOND, THIRD], [0, 1])]
)
def test_every_rank_agrees_with_the_table_and_all_are_there(runs, nodes, node_vars, name, hosts, devices):
    run = runs[name]
    assert run.rc == 0, run.output
    file = table_of(run)
    expected = [
        f"on {host}: server {node_vars[host]['ansible_host']} device {device}, table {file['sha256'][:12]} right"
        for host in hosts
        for device in devices
    ]
    for rank, place in enumerate(expected):
        assert run.log(rank).splitlines()[-1] == f"rank {rank} of {len(expected)} {place}"
    assert len(list((run.folder / "logs").glob("rank_*.log"))) == len(expected)
    for host in hosts:
        # The file that the ranks have read, on each node.
        assert nodes[host].host.check_output(f"sha256sum {table_of(run, host)['path']}").split()[0] == file["sha256"]


def test_nothing_of_the_largest_job_is_left(runs, left):
    assert left(runs["three"].job_id) == {}


def test_the_table_has_the_addresses_of_all_devices(play):
    run = play.launch(CHECK, "--check", job_name="table-sixteen", job_hosts=f"{THIRD},{FIRST}").expect(0)
    servers = json.loads(table_of(run)["content"])["server_list"]
    found = [(device["device_id"], device["device_ip"]) for server in servers for device in server["device"]]
    assert found == [(str(number), f"192.168.{100 + number}.{node}") for node in (1, 3) for number in range(8)]


def test_one_command_writes_the_table_of_all_servers(play, tmp_path, node_names):
    name = f"hccl_{len(node_names)}s_{8 * len(node_names)}p.json"
    play("playbooks/rank_table.yml", rank_table_path=str(tmp_path)).expect(0, f"{tmp_path}/{name} is written.")
    servers = json.loads((tmp_path / name).read_text())["server_list"]
    found = [(device["device_id"], device["device_ip"]) for server in servers for device in server["device"]]
    nodes = range(1, len(node_names) + 1)
    assert found == [(str(number), f"192.168.{100 + number}.{node}") for node in nodes for number in range(8)]


def test_one_command_writes_the_hostfile_of_all_servers(play, tmp_path, node_names, node_vars):
    play("playbooks/hostfile.yml", hostfile_path=str(tmp_path / "hostfile")).expect(0)
    expected = [f"{node_vars[name]['ansible_host']} slots=8" for name in node_names]
    assert (tmp_path / "hostfile").read_text().splitlines() == expected


@pytest.fixture(scope="module")
def given(runs, play, node_vars, tmp_path_factory):
    """The table of one command, changed: ranks of the devices turned round, and one port for two of them."""
    made, address = tmp_path_factory.mktemp("made"), node_vars[FIRST]["ansible_host"]
    options = {"rank_table_devices": "[4,8)", "rank_table_server_ip": address, "rank_table_path": str(made)}
    play("playbooks/rank_table.yml", "--limit", FIRST, **options).expect(0)
    table = json.loads((made / f"hccl_4p_4567_{address}.json").read_text())
    assert table == json.loads(table_of(runs["four"])["content"])
    devices = table["server_list"][0]["device"]
    for device, rank in zip(devices, reversed(range(len(devices)))):
        device["rank_id"] = str(rank)
    devices[0]["host_port"] = devices[1]["host_port"] = "50000"
    path = tmp_path_factory.mktemp("table") / "hccl_4p_4567.json"
    path.write_text(json.dumps(table))
    return path


def test_a_given_table_is_used_as_it_is(play, given, nodes):
    run = play.launch(CHECK, job_hosts=FIRST, job_devices=[4, 5, 6, 7], job_rank_table=str(given)).expect(0)
    digest = hashlib.sha256(given.read_bytes()).hexdigest()
    assert nodes[FIRST].host.check_output(f"sha256sum {table_of(run)['path']}").split()[0] == digest
    devices = [re.search(r"device (\d), table .* right", run.log(rank))[1] for rank in range(4)]
    assert devices == ["7", "6", "5", "4"]
    # The launch names a set that HCCL takes all the same before anything starts.
    warned, _, started = run.text.partition(f"Job {run.job_id}:")
    shared = f"host_port 50000, which device {devices[3]} has expected each host_port of a server once do give each"
    assert "Warnings: 1. The job starts all the same. 1. rank table on n1 found" in warned and started
    assert shared in warned


def test_a_table_that_does_not_fit_is_refused_with_all_that_differs(play, given, node_vars, nodes):
    play.launch(CHECK, job_name="unfit", job_hosts=f"{FIRST},{SECOND}", job_rank_table=str(given)).expect(
        2,
        f"rank table on {FIRST} found devices 4, 5, 6, 7 in {given} expected devices 0, 1, 2, 3, 4, 5, 6, 7, as the "
        "job has on this node do set job_devices: [4, 5, 6, 7], or correct the table",
        f"rank table on {SECOND} found no server {node_vars[SECOND]['ansible_host']} in {given}",
        f"found 4 ranks on 1 server in {given} expected 16 ranks on 2 nodes, as the job has",
        "nothing was started",
    )
    assert nodes[FIRST].host.run("ls -d /var/lib/trainyard/jobs/unfit-*").rc != 0


@pytest.mark.long
def test_a_910_takes_only_sets_of_devices_that_its_links_join(play, nodes):
    model = "sed -i s/^MODEL=.*/MODEL={}/ /usr/local/Ascend/replay.conf"
    nodes[FIRST].host.check_output(model.format("910A"))
    try:
        run = play.launch(CHECK, job_hosts=FIRST, job_devices=[2, 3, 4, 5]).wait()
    finally:
        nodes[FIRST].host.check_output(model.format("910B3"))
    assert run.rc == 2, run.output
    assert (
        f"devices on {FIRST} found 4 devices: 2, 3, 4, 5 (chip 910) expected {{0,1,2,3}} or {{4,5,6,7}} for 4 devices"
    ) in run.text


@pytest.mark.long
def test_under_mpirun_every_rank_finds_its_own_nodes_address(play, node_vars):
    show = "echo $HCCL_IF_IP $HCCL_WHITELIST_DISABLE $ASCEND_RT_VISIBLE_DEVICES $RANK_TABLE_FILE"
    run = play.launch(CHECK, job_launcher="mpirun", job_nodes=2, job_devices="[4,6)", job_command=["sh", "-c", show])
    assert run.rc == 0, run.output
    found = [run.log(rank).splitlines()[-1] for rank in range(4)]
    assert found == [f"{node_vars[host]['ansible_host']} 1 4,5" for host in (FIRST, FIRST, SECOND, SECOND)]
