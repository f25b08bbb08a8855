"""A spare takes the place of a node, without the controller: each node a real monitor with real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.job.run.restarts import restart_text
from ansible.module_utils.trainyard_node.job.run import head as head_part
from ansible.module_utils.trainyard_node.job.run import monitor as monitors
from ansible.module_utils.trainyard_node.job.run import processes as procs
from ansible.module_utils.trainyard_node.job.run.exits import read_exits
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from captured_tree import NODES
from job_cluster import attempt, wait_for

FIXTURES = NODES.parent


def on(job, host, rank, number):
    """Wait until a rank runs its script on this host for the `number`th time after the first."""
    node = next(node for node in job.nodes if node.spec["host"] == host)
    wait_for(lambda: attempt(node, f"rank{rank}") == number, f"rank {rank} on {host}")
    return node


def lose(node):
    """Have a node vanish: its monitor and all that it ran."""
    os.kill(node.monitor.pid, signal.SIGKILL)
    node.monitor.wait()
    wait_for(lambda: not node.left(), "the processes of a lost node to end with it")


def test_a_spare_takes_the_place_of_a_lost_node_with_the_same_rank(cluster):
    job = cluster(["train"], ["train"], ["train"], max_restarts=2, spares=1).start()
    lost, spare = job.nodes[1], job.nodes[3]
    assert spare.exits() == {} and not list((spare.dir / "source").glob("up-*"))
    lose(lost)
    on(job, "n4", 1, 1)
    for host, rank in (("n1", 0), ("n3", 2)):
        on(job, host, rank, 1)
    state = wait_for(lambda: job.state() if job.state()["ranks_running"] == 3 else None, "all ranks")
    (restart,) = state["restarts"]["history"]
    assert (restart["replaced"], restart["spare"]) == ("n2", "n4")
    assert state["restarts"]["members"] == ["n1", "n4", "n3"] and state["restarts"]["spares"] == []
    # The node that was lost comes back, and has nothing to do any more.
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


def test_a_node_whose_rank_fails_twice_in_a_row_is_replaced_and_the_new_attempt_waits_until_it_has_gone(cluster):
    job = cluster(["train"], ["train"], max_restarts=3, spares=1).start()
    for number in (0, 1):
        node = on(job, "n2", 1, number)
        on(job, "n1", 0, number)
        wait_for(lambda: job.state()["ranks_running"] == 2, "all ranks")
        os.kill(node.pid("rank1"), signal.SIGKILL)
    on(job, "n3", 1, 2)
    assert [each.get("replaced") for each in job.state()["restarts"]["history"]] == [None, "n2"]
    assert job.nodes[1].end()["failure"]["kind"] == "replaced" and job.nodes[1].left() == []
    for node in (job.nodes[0], job.nodes[2]):
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()


def test_a_spare_starts_while_the_frozen_node_still_has_its_connection(cluster):
    """A node that was frozen or cut off closes no connection; the restart does not wait for it to come back."""
    job = cluster(["train"], ["train"], max_restarts=1, spares=1).start()
    lost, spare = job.nodes[1], job.nodes[2]
    frozen = [lost.monitor.pid, lost.pid("rank1")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        on(job, "n3", 1, 1)
        on(job, "n1", 0, 1)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    (restart,) = job.state()["restarts"]["history"]
    assert (restart["failure"]["kind"], restart["replaced"], restart["spare"]) == ("silent", "n2", "n3")
    assert wait_for(lambda: lost.end(), "the end of n2")["failure"]["kind"] == "replaced"
    for node in (job.head, spare):
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()


def test_ranks_of_a_spare_count_as_running_only_once_they_were_started(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, spares=1)
    spare = monitors.Monitor(job.nodes[2].dir)
    spare.take_place(1, {"": 1})
    spare.look()
    assert spare.fresh and (spare.report["ranks_running"], spare.report["done"]) == (0, False)


def test_a_node_whose_devices_do_not_get_free_is_replaced_after_a_while(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, silent_after_s=1000, spares=1)
    head = monitors.Monitor(job.head.dir)
    head.door = SimpleNamespace(lines={"n2": None, "n3": None})
    begun = time.monotonic()
    for host in ("n2", "n3"):
        head.seen[host] = begun
        head.reports[host] = {"host": host, "attempts": {"": 0}, "ready_for": None, "held": "nvidia-smi: GPU is lost"}
    head.fail({"kind": "exit", "host": "n1", "process": "rank0", "ranks": [0], "rank": 0, "exit_code": 1})
    began = head.restarts.gathering_since
    head.judge(began + head_part.HELD_S - 1)
    assert head.restarts.replaced == {}
    head.judge(began + head_part.HELD_S + 1)
    assert head.restarts.replaced == {"n2": "n3"} and head.restarts.members == ["n1", "n3"]


@pytest.fixture
def sick(tmp_path):
    """A stand-in for nvidia-smi, as there is no GPU here: its PATH, and the file with which a GPU has errors."""
    file, tool = tmp_path / "sick", tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    real = FIXTURES / "nvidia_smi/nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ ! -e {file} ] || export STAND_IN_NVIDIA_SMI=errors\nexec {real} "$@"\n')
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.defpath}"}, file


GATE = {"gate": True, "devices": [0, 1]}
ECC = "GPU ECC errors: GPU 1: 2 uncorrected; GPU remapped rows: GPU 1: remapping pending; "


def test_who_does_not_pass_the_gate_before_a_restart_is_replaced_and_a_spare_passes_it_too(cluster, sick):
    environment, file = sick
    job = cluster(["train"], ["train"], max_restarts=1, spares=2, n2=GATE, n3=GATE, n4={"gate": True})
    for node in job.nodes[1:3]:
        node.environment = environment
    job.start()
    file.touch()
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    on(job, "n4", 1, 1)
    state = wait_for(lambda: job.state() if job.state()["ranks_running"] == 2 else None, "all ranks")
    assert state["restarts"]["replaced"] == {"n2": "n3", "n3": "n4"} and state["restarts"]["members"] == ["n1", "n4"]
    refused = state["restarts"]["refused"]
    assert list(refused) == ["n2", "n3"] and all(each["reason"].startswith(ECC) for each in refused.values())
    (restart,) = state["restarts"]["history"]
    assert restart_text(restart).partition("; n4 takes the place of n3 (")[2].startswith(ECC)
    for node in (job.nodes[0], job.nodes[3]):
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert job.nodes[1].end()["failure"]["kind"] == job.nodes[2].end()["failure"]["kind"] == "replaced"


def test_what_the_gate_asks_the_machine_with_is_no_rank_that_the_restart_would_end(cluster, sick, tmp_path):
    """Drivers take their time: nvidia-smi runs over many looks of its monitor at what is left of the job."""
    environment, _ = sick
    slow, asked, told = tmp_path / "slow/nvidia-smi", tmp_path / "asked", tmp_path / "told"
    slow.parent.mkdir()
    slow.write_text(
        f"""#!/bin/sh
# Stands in for a slow driver.
echo >> {asked}
[ "$1" != --query-compute-apps=pid,process_name ] || until [ -e {told} ]; do sleep 0.05; done
exec {tmp_path}/bin/nvidia-smi "$@"
"""
    )
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
    # Who has the devices, which there are, how they and their links are: each once.
    assert len(asked.read_text()) - noted <= 4


@pytest.mark.parametrize("there", [["wait"], []], ids=["its own ranks", "ranks that the head starts, as mpirun does"])
def test_without_a_spare_what_does_not_go_away_ends_the_job_at_once_with_the_reason(cluster, sick, there):
    environment, file = sick
    job = cluster(["wait"], there, max_restarts=3, rejoin_s=1000, n2=GATE)
    job.nodes[1].environment = environment
    job.start()
    file.touch()
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    failure = job.over()["failure"]
    assert (failure["kind"], failure["host"]) == ("refused", "n2") and failure["reason"].startswith(ECC)
    assert job.state()["restarts"]["refused"]["n2"]["reason"] == failure["reason"]
    job.all_ended()


def test_what_may_go_away_is_waited_for(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, rejoin_s=100, silent_after_s=1000, spares=1)
    head = monitors.Monitor(job.head.dir)
    head.door = SimpleNamespace(lines={"n2": None, "n3": None})
    for host in ("n2", "n3"):
        head.seen[host] = time.monotonic()
        head.reports[host] = {"host": host, "attempts": {"": 0}, "ready_for": None}
    full = {"reason": "disk: 3 MiB free in /jobs", "waits": True}
    head.reports["n2"]["refused"] = full
    head.fail({"kind": "exit", "host": "n1", "process": "rank0", "ranks": [0], "rank": 0, "exit_code": 1})
    began = head.restarts.gathering_since
    head.judge(began + head_part.HELD_S - 1)
    assert head.restarts.replaced == {}
    assert head.save_cluster()["held"] == "n2 does not pass the gate: disk: 3 MiB free in /jobs"
    head.judge(began + head_part.HELD_S + 1)
    assert head.restarts.replaced == {"n2": "n3"}
    # The head has no spare: it may make room until the nodes are given up.
    head.report = {"host": "n1", "attempts": {"": 0}, "ready_for": None, "refused": full}
    head.judge(began + 101)
    assert head.end_record["failure"] == {"kind": "refused", "host": "n1", "reason": full["reason"], "after_s": 100}


def gathered(cluster, spares):
    """A head whose nodes n2 and n3 have ended their part of a job with these spares, and are ready for a restart."""
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=1, silent_after_s=1000, spares=spares, n1={"gate": True})
    head = monitors.Monitor(job.head.dir)
    hosts = [node.spec["host"] for node in job.nodes[1:]]
    head.door = SimpleNamespace(lines=dict.fromkeys(hosts))
    for host in hosts:
        head.seen[host] = time.monotonic()
        head.reports[host] = {"host": host, "attempts": {"": 0}, "ready_for": None}
    head.fail({"kind": "exit", "host": "n1", "process": "rank0", "ranks": [0], "rank": 0, "exit_code": 1})
    head.report = {"host": "n1", "attempts": {"": 0}, "ready_for": {"": 1}}
    for host in ("n2", "n3"):
        head.reports[host]["ready_for"] = {"": 1}
    return head


def test_of_nodes_that_pass_one_that_lost_a_link_or_has_another_time_gives_way_to_a_spare(cluster):
    head = gathered(cluster, spares=2)
    head.reports["n3"]["suspect"] = "mlx5_0:1 lost its link 2 times"
    # Late twice, but never early: its time is that of the head.
    head.clocks.update(n2=deque([-70.0, -61.0]), n3=deque([-20.0, 0.0]))
    head.reports["n2"]["ready_for"] = None
    head.judge(time.monotonic())
    assert head.restarts.replaced == {}, "another node may have more to say"
    head.reports["n2"]["ready_for"] = {"": 1}
    head.judge(time.monotonic())
    assert head.restarts.replaced == {"n3": "n4", "n2": "n5"} and not head.restarts.go
    reasons = {host: each["reason"] for host, each in head.restarts.refused.items()}
    assert reasons == {
        "n3": "mlx5_0:1 lost its link 2 times", "n2": "clock: -61 s from the median of the nodes"
    }  # fmt: skip


def test_with_fewer_spares_than_nodes_that_lost_a_link_all_go_on(cluster):
    head = gathered(cluster, spares=1)
    for host in ("n2", "n3"):
        head.reports[host]["suspect"] = "eth0 lost its link 1 time"
    head.judge(time.monotonic())
    assert head.restarts.replaced == {} and head.restarts.go


def test_a_spare_that_cannot_write_down_its_place_is_named_at_once(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, silent_after_s=1000, spares=1)
    head = monitors.Monitor(job.head.dir)
    head.door = SimpleNamespace(lines={"n3": None})
    head.seen["n3"] = time.monotonic()
    head.fail({"kind": "silent", "host": "n2", "after_s": 15})
    assert head.restarts.replaced == {"n2": "n3"}
    stuck = {"kind": "cannot_write", "host": "n3", "folder": "/jobs/x", "reason": "No space left on device"}
    head.reports["n3"] = {"host": "n3", "attempts": {"": 0}, "ready_for": None, "place": None, "cannot_write": stuck}
    head.judge(time.monotonic())
    assert head.end_record["failure"] == stuck


def test_two_lost_nodes_with_one_spare_end_the_job_and_the_second_is_named(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=3, rejoin_s=1, spares=1).start()
    lose(job.nodes[1])
    on(job, "n4", 1, 1)
    on(job, "n3", 2, 1)
    wait_for(lambda: job.state()["ranks_running"] == 3, "all ranks")
    lose(job.nodes[2])
    end = job.over()
    assert (end["state"], end["failure"]["kind"], end["failure"]["host"]) == ("failed", "not_back", "n3")
    job.all_ended(but=("n2", "n3"))


def test_a_spare_that_is_lost_first_is_not_taken_and_ends_nothing(cluster):
    job = cluster(["train"], ["train"], max_restarts=1, rejoin_s=1, spares=1).start()
    wait_for(lambda: job.state()["nodes"]["n3"]["silent_s"] is not None, "the spare")
    lose(job.nodes[2])
    wait_for(lambda: job.state()["nodes"]["n3"]["silent_s"] > job.head.spec["silent_after_s"], "the head to miss it")
    assert job.state()["end"] is None
    for node in job.nodes[:2]:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended(but=("n3",))
    assert read_exits(job.nodes[2].dir) == {}


ADDRESSES = {f"n{number}": f"127.0.0.{number}" for number in range(1, 5)}


def telling(job, **of_head):
    """Give each process of a job, also of a spare, what launchers tell of all members: a variable, an option and files;
    in one stands a machine that is none of them, whose address begins as that of n2 does."""
    addresses = [ADDRESSES[host] for host in job.head.spec["hosts"]]
    members = ",".join(addresses)
    # As a rank table, which has devices of a server, too; and of each spare that of it alone.
    tables = {
        address: {
            "server_list": [{"server_id": address, "device": [{"device_ip": f"ip of {address}", "rank_id": "0"}]}]
        }
        for address in ADDRESSES.values()
    }
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
    """What a process that runs was told of the members: by options, by variables, by the file."""
    words = wait_for(lambda: running(node.pid(name)), "its script")
    environment = procs.environment(node.pid(name))
    return words[3:], environment["MACHINES"], environment["OTHER"], (node.dir / "hostfile").read_text()


def test_every_node_is_told_of_the_spare_whatever_tells_it_of_the_others(cluster):
    job = telling(cluster(["train"], ["train"], ["train"], max_restarts=2, spares=1)).start()
    lose(job.nodes[1])
    now = "127.0.0.1,127.0.0.4,127.0.0.3"
    for host, rank in (("n1", 0), ("n4", 1), ("n3", 2)):
        node = on(job, host, rank, 1)
        assert told(node, f"rank{rank}") == (["-H", now, "-H", "127.0.0.2"], now, "127.0.0.2", f"{now}\n127.0.0.22\n")
        table = json.loads((node.dir / "table.json").read_text())["server_list"]
        assert [each["server_id"] for each in table] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert [each["device"][0]["device_ip"][-1] for each in table] == ["1", "4", "3"]
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended(but=("n2",))


def by_mpirun(cluster):
    """Both ranks are the head's, as those of mpirun are; n2 and the spare n3 have a script by which theirs start."""
    job = cluster(["wait", "wait"], [], max_restarts=2, spares=1)
    (first, _), log = job.head.spec["processes"], str(job.head.dir / "logs" / "mpirun.log")
    job.head.spec["processes"] = [{**first, "name": "mpirun", "ranks": [0, 1], "log": log}]
    script = {"path": str(job.nodes[2].dir / "mpi_rank"), "mode": "0755", "content": "#!/bin/sh\nexec true\n"}
    job.nodes[2].spec["places"]["1"]["files"] = [script]
    return telling(job, ranks_of={"n2": [1]})


def test_mpirun_starts_again_with_the_spare_which_has_its_script_by_then(cluster):
    job = by_mpirun(cluster).start()
    script = job.nodes[2].dir / "mpi_rank"
    assert not script.exists()
    # One that was never heard is waited for, and it has no ranks by which one could see that it is there.
    wait_for(lambda: job.state()["state"] == "running", "the head to hear of n2")
    lose(job.nodes[1])
    wait_for(lambda: attempt(job.head, "mpirun") == 1, "mpirun's second start")
    assert told(job.head, "mpirun")[0] == ["-H", "127.0.0.1,127.0.0.3", "-H", "127.0.0.2"]
    assert (job.head.dir / "hostfile").read_text() == "127.0.0.1,127.0.0.3\n127.0.0.22\n"
    assert os.access(script, os.X_OK) and script.read_text() == "#!/bin/sh\nexec true\n"
    state = wait_for(lambda: job.state() if job.state()["ranks_running"] == 2 else None, "all ranks")
    assert state["restarts"]["members"] == ["n1", "n3"]
    # A rank there is the spare's, also to a head that has come back.
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    (job.head.dir / "logs" / "mpirun.log").write_text("trainyard: rank 1 ended with status 7\n")
    head = monitors.Monitor(job.head.dir)
    head.supervisor.exits = lambda: {"mpirun": {"exit_code": 1, "signal": None, "result": "exit-code", "time": 1.0}}
    head.look()
    assert [each["host"] for each in head.report["failures"]] == ["n3"]
    assert head.moved == {"127.0.0.2": "127.0.0.3"}
    job.head.signal(signal.SIGTERM)
    job.all_ended(but=("n2",))


def test_a_node_that_cannot_read_what_it_would_change_says_so(cluster):
    job = by_mpirun(cluster)
    (job.head.dir / "hostfile").unlink()
    head = monitors.Monitor(job.head.dir)
    head.moved, head.wanted = {"127.0.0.2": "127.0.0.3"}, {"": 1}
    head.cleared_for, head.supervisor.exits = head.wanted, lambda: {"mpirun": {"result": "success", "time": 1.0}}
    head.look()
    stuck = head.report["cannot_write"]
    assert stuck["reason"] == f"{job.head.dir}/hostfile cannot be read: No such file or directory"
    assert head.attempts == {"": 0}
