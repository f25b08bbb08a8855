"""Real monitors: a spare takes the place of a node, without the controller."""

import json
import os
import signal
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.decide.restarts import restart_text
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from captured_tree import NODES
from job_cluster import attempt, wait_for

FIXTURES = NODES.parent


def on(job, host, rank, number):
    """Wait until a rank runs its script on this host for the `number`th time after the first."""
    node = next(node for node in job.nodes if node.spec["host"] == host)
    wait_for(lambda: attempt(node, f"rank{rank}") == number, f"rank {rank} on {host}")
    return node


def lose_head(job, *successors):
    """Have the first node vanish, once those that may lead after it know the state of the job."""
    wait_for(lambda: all(node.read("succession.json") for node in successors), "copies of the job's state")
    lose(job.nodes[0])


def lose(node):
    """Have a node vanish: its monitor and all that it ran."""
    os.kill(node.monitor.pid, signal.SIGKILL)
    node.monitor.wait()
    wait_for(lambda: not node.left(), "the processes of a lost node to end with it")


def test_ranks_of_a_spare_count_as_running_only_once_they_were_started(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, spares=1)
    spare = NodeRunner(job.nodes[2].dir)
    spare.follow({"attempts": {"": 1}, "go": False, "place": 1})
    spare.inspect()
    assert (spare.report["place"], spare.report["ranks_running"], spare.report["done"]) == (1, 0, False)


def test_a_spare_in_the_first_place_watches_what_rank_0_saves(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, spares=1, n3={"checkpoints": "saved"})
    (job.nodes[2].dir / "saved").mkdir()
    (job.nodes[2].dir / "saved/step_7.npz").touch()
    spare = NodeRunner(job.nodes[2].dir)
    assert spare.checkpoints.state() is None
    spare.follow({"attempts": {"": 1}, "go": False, "place": 0})
    state = wait_for(spare.checkpoints.state, "a poll of the checkpoints")
    assert (state["newest"] or state["unfinished"])["name"] == "step_7.npz"


@pytest.fixture
def sick(tmp_path):
    """A fake nvidia-smi: its PATH, and the file that gives a GPU errors."""
    file, tool = tmp_path / "sick", tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    real = FIXTURES / "nvidia_smi/nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ ! -e {file} ] || export STAND_IN_NVIDIA_SMI=errors\nexec {real} "$@"\n')
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.defpath}"}, file


GATE = {"health_gate": True, "devices": [0, 1]}
ECC = "GPU ECC errors: GPU 1: 2 uncorrected; GPU remapped rows: GPU 1: remapping pending; "


def test_a_node_that_fails_the_check_before_a_restart_is_replaced_and_a_spare_is_checked_too(cluster, sick):
    environment, file = sick
    job = cluster(["train"], ["train"], max_restarts=1, spares=2, n2=GATE, n3=GATE, n4={"health_gate": True})
    for node in job.nodes[1:3]:
        node.environment = environment
    job.start()
    file.touch()
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    on(job, "n4", 1, 1)
    state = wait_for(lambda: job.state() if job.state()["ranks_running"] == 2 else None, "all ranks")
    assert state["restarts"]["replaced"] == {"n2": "n3", "n3": "n4"} and state["restarts"]["members"] == ["n1", "n4"]
    excluded = state["restarts"]["excluded"]
    assert list(excluded) == ["n2", "n3"] and all(each["reason"].startswith(ECC) for each in excluded.values())
    (restart,) = state["restarts"]["history"]
    assert restart_text(restart).partition("; n4 takes the place of n3 (")[2].startswith(ECC)
    for node in (job.nodes[0], job.nodes[3]):
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert job.nodes[1].end()["failure"]["kind"] == job.nodes[2].end()["failure"]["kind"] == "replaced"


def test_tools_of_the_health_check_are_not_ended_as_ranks(cluster, sick, tmp_path):
    """Drivers take their time: nvidia-smi runs over many looks of its monitor at what is left of the job."""
    environment, _ = sick
    slow, asked, told = tmp_path / "slow/nvidia-smi", tmp_path / "asked", tmp_path / "told"
    slow.parent.mkdir()
    waits = f"until [ -e {told} ]; do sleep 0.05; done"
    waits = f'[ "$1" != --query-compute-apps=gpu_uuid,pid,used_memory,process_name ] || {waits}'
    slow.write_text(f'#!/bin/sh\necho >> {asked}\n{waits}\nexec {tmp_path}/bin/nvidia-smi "$@"\n')
    slow.chmod(0o755)
    job = cluster(["wait"], ["wait"], max_restarts=1, n2=GATE)
    job.nodes[1].environment = {"PATH": f"{slow.parent}:{environment['PATH']}"}
    job.start()
    wait_for(asked.exists, "what is noted before anything has failed")
    noted = len(asked.read_text())
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    wait_for(lambda: len(asked.read_text()) > noted, "the gate to ask")
    since = job.state()["elapsed_s"]
    wait_for(lambda: job.state()["elapsed_s"] > since + 1, "some looks of the monitors")
    told.touch()
    on(job, "n2", 1, 1)
    # Four queries: processes on the devices, the devices, their health and their links.
    assert len(asked.read_text()) - noted <= 4


def test_without_a_spare_a_lasting_finding_ends_the_job_at_once(cluster, sick):
    """The head starts all ranks, as mpirun does."""
    environment, file = sick
    job = cluster(["wait"], [], max_restarts=3, rejoin_s=1000, n2=GATE)
    job.nodes[1].environment = environment
    job.start()
    file.touch()
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    failure = job.over()["failure"]
    assert (failure["kind"], failure["host"]) == ("excluded", "n2") and failure["reason"].startswith(ECC)
    assert job.state()["restarts"]["excluded"]["n2"]["reason"] == failure["reason"]
    job.all_ended()


ADDRESSES = {f"n{number}": f"127.0.0.{number}" for number in range(1, 5)}


def telling(job, **of_head):
    """Give each process of a job, also of a spare, what launchers tell of all members: a variable, an option and files;
    in one stands a machine that is none of them, whose address begins as that of n2 does."""
    addresses = [ADDRESSES[host] for host in job.head.spec["hosts"]]
    members = ",".join(addresses)
    # As a rank table, which has devices of a server, too; and of each spare that of it alone.
    tables = {}
    for address in ADDRESSES.values():
        device = {"device_ip": f"ip of {address}", "rank_id": "0"}
        tables[address] = {"server_list": [{"server_id": address, "device": [device]}]}
    servers = [tables[each]["server_list"][0] for each in addresses]
    for node in job.nodes:
        file = node.dir / "hostfile"
        file.write_text(f"{members}\n127.0.0.22\n")
        spec = node.spec
        spec.update(addresses=ADDRESSES if node is job.head else {}, **(of_head if node is job.head else {}))
        (node.dir / "table.json").write_text(json.dumps({"server_list": servers}))
        table = {"path": str(node.dir / "table.json"), "mode": "0644", "lists_nodes": True, "servers": tables}
        spec["files"] = [{"path": str(file), "mode": "0644", "lists_nodes": True}, table]
        in_places = [process for had in spec.get("places", {}).values() for process in had["processes"]]
        for process in (*spec["processes"], *in_places):
            process.update(lists_nodes=["-H", "MACHINES"], argv=[*process["argv"], "-H", members, "-H", "127.0.0.2"])
            process["env"] = {**process["env"], "MACHINES": members, "OTHER": "127.0.0.2"}
        write_json(node.dir / "node_plan.json", spec)
    return job


def running(pid):
    """The words of a rank once it runs its script; none before."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return words if "rank.py" in words else []


def told(node, name):
    """Return the members that a running process knows: by options, variables and the file."""
    words = wait_for(lambda: running(node.pid(name)), "its script")
    environment = process_table.environment(node.pid(name))
    return words[3:], environment["MACHINES"], environment["OTHER"], (node.dir / "hostfile").read_text()


def test_a_spare_takes_the_place_of_a_lost_node_and_every_node_gets_its_address(cluster):
    job = telling(cluster(["train"], ["train"], ["train"], max_restarts=2, spares=1)).start()
    lost, spare = job.nodes[1], job.nodes[3]
    assert spare.exits() == {} and not list((spare.dir / "source").glob("up-*"))
    lose(lost)
    now = "127.0.0.1,127.0.0.4,127.0.0.3"
    for host, rank in (("n1", 0), ("n4", 1), ("n3", 2)):
        node = on(job, host, rank, 1)
        assert told(node, f"rank{rank}") == (["-H", now, "-H", "127.0.0.2"], now, "127.0.0.2", f"{now}\n127.0.0.22\n")
        table = json.loads((node.dir / "table.json").read_text())["server_list"]
        assert [each["server_id"] for each in table] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert [each["device"][0]["device_ip"][-1] for each in table] == ["1", "4", "3"]
    state = wait_for(lambda: job.state() if job.state()["ranks_running"] == 3 else None, "all ranks")
    (restart,) = state["restarts"]["history"]
    assert (restart["replaced"], restart["spare"]) == ("n2", "n4")
    assert state["restarts"]["members"] == ["n1", "n4", "n3"] and state["restarts"]["spares"] == []
    # The lost node comes back and has nothing to do any more.
    lost.start()
    end = wait_for(lambda: lost.end(), "the end of n2")
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", "n4")
    lost.monitor.wait()
    assert lost.left() == []
    for node in (job.nodes[0], job.nodes[2], spare):
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert spare.exits() == {"rank1": (0, None)}


def by_mpirun(cluster):
    """Both ranks are the head's, as those of mpirun are; n2 and the spare n3 have a script by which theirs start."""
    job = cluster(["wait", "wait"], [], max_restarts=2, spares=1)
    (first, _), log = job.head.spec["processes"], str(job.head.dir / "logs" / "mpirun.log")
    job.head.spec["processes"] = [{**first, "name": "mpirun", "ranks": [0, 1], "log": log}]
    script = {"path": str(job.nodes[2].dir / "mpi_rank"), "mode": "0755", "content": "#!/bin/sh\nexec true\n"}
    job.nodes[2].spec["places"]["1"]["files"] = [script]
    return telling(job, ranks_of={"n2": [1]})


def test_a_node_that_cannot_read_what_it_would_change_reports_that(cluster):
    job = by_mpirun(cluster)
    (job.head.dir / "hostfile").unlink()
    head = NodeRunner(job.head.dir)
    head.follow({"attempts": {"": 1}, "go": True, "moved": {"127.0.0.2": "127.0.0.3"}})
    head.supervisor.exits = lambda: {"mpirun": from_status(0)}
    head.inspect()
    problem = head.report["cannot_write"]
    assert problem["reason"] == f"{job.head.dir}/hostfile cannot be read: No such file or directory"
    assert head.report["attempts"] == {"": 0}
