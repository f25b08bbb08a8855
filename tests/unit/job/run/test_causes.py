"""Planted causes: what is blamed where ranks fail of a peer that is gone."""

import itertools
import os
import signal
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs import causes, failures
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run.monitor import node_runner
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import heard, wait_for

TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures/torchrun"
GLOO = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection reset by peer "
    "[10.77.0.3]:1431"
)
# Captured: gloo of PyTorch 2.13 (above). Composed after the sources that causes.py names: the rest.
LOST = [
    GLOO,
    f"step 3/9 loss 0.5\n[rank0]: {GLOO}",
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3690, remote process exited or "
    "there was a network error, NCCL version 2.27.3\nncclRemoteError: A call failed possibly due to a network error or "
    "a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer n3<53316>",
    "[rank1]:[E1120 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(7)",
    "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
    "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
    "RuntimeError: Failed to connect to the meta server. Maybe it has exited. Please check scheduler's log.",
    "RuntimeError: The state of the cluster is error, total nodes num: 4, abnormal nodes num: 1",
    "F1120 16:02:11.1 88 ctrl_client.cpp:168] Check failed: stubs_[i]->CallMethod<CtrlMethod::kLoadServer>(...)."
    "error_code() == grpc::StatusCode::OK (14 vs. 0) Machine 1 lost",
    "F1120 16:02:11.1 88 socket_read_helper.cpp:103] Check failed: errno == EAGAIN || errno == EWOULDBLOCK : "
    "Connection reset by peer [104]",
    "[n1][[4711,1],0][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection reset",
]
ITS_OWN = [
    "",
    "step 5/9 loss 0.25",
    "Traceback (most recent call last):\nValueError: no picture 17 in /data",
    # It failed first, and then tore down what others had torn down already.
    f"[rank2]: ValueError: loss is nan\n{GLOO}",
    f"{GLOO}\nDuring handling of the above exception, another exception occurred:\nKeyError: 'lr'",
    # A download's, not a peer's.
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'reset by peer'))",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.",
]


@pytest.mark.parametrize("log", LOST)
def test_a_message_of_a_lost_peer_is_found(log):
    assert causes.lost_peer(log) in log and causes.lost_peer(log)


@pytest.mark.parametrize("log", ITS_OWN)
def test_other_messages_name_no_lost_peer(log):
    assert causes.lost_peer(log) == ""


def captured(name):
    return (TORCHRUN.parent / f"{name}.txt").read_text()


def test_a_lost_peer_in_captured_logs():
    killed = captured("torchrun/sigkill-node0").splitlines(keepends=True)
    assert "Connection closed by peer [127.0.0.1]:14003" in causes.lost_peer("".join(killed[:10]))
    assert causes.lost_peer(captured("torchrun/error-node0")) == ""
    left = captured("mindspore/left-worker")
    assert causes.lost_peer(left).endswith("Ring ReduceScatter wait sending 153 failed.")
    # Without the collective's own message, the worker's end is left.
    left = "".join(line for line in left.splitlines(keepends=True) if "Ring" not in line)
    assert causes.lost_peer(left).endswith("Kill this process with SIGTERM.")
    assert causes.lost_peer(f"{left}ValueError: loss is nan") == ""
    assert causes.lost_peer("Kill this process with SIGTERM.") == ""
    raised = captured("mindspore/left-worker-raises")
    assert causes.lost_peer(raised).endswith("Ring ReduceScatter wait receiving [1,153] failed.")
    assert causes.lost_peer(raised.replace("DistributedGradReducer/AllReduce-op0", "MatMul-op0")) == ""
    assert causes.lost_peer(raised + "\nAssertionError\n") == ""


def failed(number, at, lost=GLOO, **changes):
    record = {"kind": "exit", "host": f"n{number + 1}", "process": f"rank{number}", "ranks": [number], "rank": number}
    record.update(exit_code=1, signal=None, result="exit-code", time=100.0 + at)
    return {**record, **({"lost": lost} if lost else {}), **changes}


def left(rank, at):
    known = failed(rank, at)
    return {name: known[name] for name in ("host", "process", "ranks", "rank", "time")}


KILLED = {"lost": "", "exit_code": None, "signal": signal.SIGKILL, "result": "signal"}
AN_AGENT = {"process": "agent", "rank": None, "lost": ""}
# Failures of one moment, processes that had exited with 0, nodes whose monitor has ended; and the cause.
PLANTED = {
    "a rank fails of itself, others lose it": ([failed(1, 0.1, lost=""), failed(0, 0), failed(2, 0)], [], [], "rank 1"),
    "a rank is killed": ([failed(0, 0.0), failed(3, 0.2, **KILLED)], [], [], "rank 3"),
    "a rank leaves with status 0": ([failed(2, 3.0), failed(0, 3.1)], [left(1, 2.6)], [], "rank 1"),
    "of two that left the first": ([failed(2, 3.0)], [left(0, 2.9), left(1, 2.6)], [], "rank 1"),
    "clocks differ a little": ([failed(2, 3.0)], [left(1, 3.6)], [], "rank 1"),
    "who ended well after all is no cause": ([failed(2, 3.0)], [left(1, 9.0)], [], "rank 2?"),
    "a monitor is killed": ([failed(3, 0.0), failed(0, 0.2)], [], ["n3"], "n3"),
    "a monitor is killed, and an agent sees no rank": ([failed(3, 0.0), failed(0, 0.2, **AN_AGENT)], [], ["n3"], "n3"),
    "a monitor is killed after a rank had failed of itself": ([failed(3, 0.0, lost="")], [], ["n3"], "rank 3"),
    "a monitor is killed after a rank was": ([failed(0, 0.0), failed(3, 0.4, **KILLED)], [], ["n3"], "rank 3"),
    "nobody knows": ([failed(3, 0.4), failed(0, 0.0)], [], [], "rank 0?"),
    "a rank could not write": ([failed(0, 0.0, lost=""), failed(3, 0.4, lost="", full=True)], [], [], "rank 3"),
    "an agent's could not write": ([failed(0, 0.0), failed(3, 0.4, **AN_AGENT, full=True)], [], [], "rank None"),
    "a rank is killed, one cannot write": ([failed(0, 0, "", full=True), failed(3, 0.4, **KILLED)], [], [], "rank 3"),
    "a rank fails of itself where another had left": ([failed(2, 3.0, lost="")], [left(1, 2.6)], [], "rank 2"),
}


def blamed(cause):
    who = cause["host"] if cause["kind"] == "gone" else f"rank {cause['rank']}"
    return who + "?" * (cause.get("reason") == causes.UNSURE)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_blamed_in_any_order_of_reports(name):
    found, well, gone, expected = PLANTED[name]
    for order in itertools.permutations(found):
        for before in (well, well[::-1]):
            assert blamed(causes.blame(order, before, gone)) == expected


FULL_DISK = "found 0 MiB free of 512 MiB under /jobs/x on n1"


@pytest.mark.parametrize("reason", [None, "it aborted", f"it could not write; {FULL_DISK}"])
def test_a_full_disk_of_any_node_is_evidence(reason):
    """Another node's rank was blamed for a head whose disk was full, and nobody named that."""
    cause = causes.blame([failed(1, 0.1, lost="", reason=reason)], full={"n1": FULL_DISK})
    assert cause["host"] == "n2" and cause["reason"].count(FULL_DISK) == 1
    assert cause["reason"].startswith(reason or FULL_DISK)
    assert causes.blame([], full={"n1": FULL_DISK}) is None


@pytest.mark.parametrize(("log", "said"), [
    ("up\nOSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device"),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/a'", "OSError: [Errno 122] Disk quota exceeded: '/home/a'"),
    ("tee: rank.txt: No space left on device\nstep 7", "tee: rank.txt: No space left on device"),
    ("OSError: [Errno 28] No space left on device\nValueError: no picture", ""),
    ("No space left on device\n" + "step\n" * 15, ""), ("", ""),
])  # fmt: skip
def test_a_program_that_ended_as_its_disk_was_full(log, said):
    assert causes.no_room(log) == (f"it could not write: {said}" if said else "")


FROZEN = failures.scheduler_root_cause(captured("mindspore/frozen-scheduler"))
MISSED = failed(0, 9.0, "", **{**FROZEN, "process": "scheduler", "ranks": [], "time": 109.0})
NOT_JOINED = {**MISSED, "kind": "not_joined", "who": "rank 1"}


@pytest.mark.parametrize(
    ("well", "gone", "expected"),
    [
        ([], [], None),
        ([left(2, 0.0)], [], None),
        ([left(2, 0.0), left(1, 0.1)], [], ("exit", "n2", "rank1", 0)),
        ([left(1, 0.1)], ["n2"], ("gone", "n2", None, None)),
    ],
)
def test_why_mindspores_scheduler_missed_a_rank(well, gone, expected):
    for missed, chain in ((MISSED, "scheduler on n1: no word from rank 1"), (NOT_JOINED, "rank 1 never joined")):
        for found in itertools.permutations([missed, failed(0, 9.1)]):
            cause = causes.blame(found, well, gone)
            if expected is None:
                assert cause is missed
            else:
                said = (cause["kind"], cause["host"], cause.get("process"), cause.get("exit_code"))
                assert (said, cause["reason"]) == (expected, chain)
    killed = {**MISSED, **KILLED, "rank": None, "reason": ""}
    assert causes.blame([killed, failed(0, 9.1)], well, gone) is killed


HOSTS = {"n1": "10.77.0.1", "n2": "10.77.0.2", "n3": "10.77.0.3", "n4": "10.77.0.4", "n13": "10.77.0.30"}


def names(address):
    return f"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection reset by peer [{address}]:1431"


def test_the_peer_that_an_error_names():
    """Neither itself nor an address of no node."""
    for address, host in {"10.77.0.3": "n3", "10.77.0.30": "n13", "10.77.0.1": "", "192.0.2.7": ""}.items():
        assert causes.named_peer(failed(0, 0.0, lost=names(address)), HOSTS) == host
    for peer, host in {"n3<53316>": "n3", "10.77.0.4<41234>": "n4"}.items():
        lost = f"socketProgress: Connection closed by remote peer {peer}"
        assert causes.named_peer(failed(0, 0.0, lost=lost), HOSTS) == host


# Ranks by the peer that they lost, processes that had ended, lost nodes; and the cause at the end of the chain.
CHAINS = {
    "the named one is gone": ({0: 1, 1: 2, 3: 2}, [], ["n4", "n3"], "n3"),
    "the named one had left, and another too": ({0: 2}, [left(1, -3.0), left(2, -0.5)], [], "rank 2"),
    "nothing is known of the named one": ({0: 1, 3: 1}, [], [], "rank 0? n2"),
    "they name each other": ({0: 1, 1: 0}, [], [], "rank 0?"),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_peer_that_errors_name_comes_first(name):
    lost, well, gone, expected = CHAINS[name]
    found = [failed(rank, 0.1 * rank, lost=names(HOSTS[f"n{peer + 1}"])) for rank, peer in lost.items()]
    for order in itertools.permutations(found):
        cause = causes.blame(order, well, gone, HOSTS)
        who = blamed({**cause, "reason": causes.UNSURE} if causes.UNSURE in cause.get("reason", "") else cause)
        look = cause["reason"].partition("; it names ")[2].partition(" ")[0]
        assert f"{who} {look}".strip() == expected and cause.get("peer", "") == look


def test_the_rank_that_an_error_names_is_reported():
    (oneflow,) = [line for line in LOST if "Machine 1 lost" in line]
    log = captured("mindspore/killed-msrun").splitlines()
    (msrun,) = [line for line in log if "total number of timed out node" in line and line.startswith("RuntimeError")]
    for line in (oneflow, msrun):
        cause = causes.blame([failed(0, 0.0, lost=causes.lost_peer(line))], [], [], HOSTS)
        assert "; it names rank 1 as that peer: " in cause["reason"]


# The fields of a failure that has lost no peer for sure, and whether it is a victim while a node is away.
DOUBTED = {
    "a download's error, or a peer's": ({"error": "ConnectionResetError: [Errno 104] Connection reset by peer"}, True),
    "no route": ({"doubt": "OSError: [Errno 113] No route to host"}, True),
    "an agent's rendezvous": ({"error": "RendezvousConnectionError: The connection has failed."}, True),
    "a daemon of mpirun": ({"rank": None, "process": "mpirun", "reason": "mpirun lost its daemon on 10.77.0.3"}, True),
    "no error": ({}, True),
    "its own error": ({"error": "ValueError: no picture 17", "doubt": "Connection reset by peer"}, False),
    "its own abort": ({"exit_code": None, "signal": 6}, False),
    "its own reason": ({"reason": f"it could not write; {FULL_DISK}"}, False),
    "a kill that a shell reports": ({"exit_code": 137}, False),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_who_fails_by_a_connection_is_a_victim_only_while_a_node_is_away(name):
    """`exit code 1` of such a rank was named first where a node went off."""
    more, victim = DOUBTED[name]
    found = [failed(0, 0.0, lost="", **more)]
    silent = {"kind": "silent", "host": "n3", "after_s": 16}
    assert causes.blame(found) == found[0]
    assert causes.lost_unknown(causes.blame(found, away=True)) == victim
    for given in ({"gone": ["n3"]}, {"silent": silent}):
        cause = causes.blame(found, away=True, **given)
        assert (cause["host"], cause["kind"]) == (("n3", next(iter(given))) if victim else ("n1", "exit"))
        assert not victim or "then lost its peer: " in cause["reason"]


def summary(cause):
    nodes = [{"host": f"n{rank + 1}", "ranks": [rank]} for rank in range(4)]
    return {"failure": cause, "nodes": nodes, "rank_log": "rank_{rank}.log"}


def test_the_report_has_cause_and_chain():
    cause = causes.blame([failed(2, 3.0), failed(0, 3.1)], [left(1, 2.6)])
    first, chain = job_text.cause(summary(cause), "/jobs/x")
    assert first.startswith("rank 1 on n2 ended first, with exit code 0,")
    assert chain == f"rank 2 on n3 then lost its peer, and 1 more: {GLOO}"
    assert failures.failure_text(cause) == "rank 1 on n2: exit code 0 before the others"
    cause = causes.blame([failed(3, 3.0)], [], ["n3"])
    first, chain, action = job_text.cause(summary(cause), "/jobs/x")
    assert first == "the monitor of n3 ended first, and rank 2 with it"
    assert chain == f"rank 3 on n4 then lost its peer: {GLOO}" and "/jobs/x/logs/monitor_*.log on n3" in action
    assert failures.failure_text(cause) == "node n3: its monitor ended"
    assert job_text.cause(summary(causes.blame([failed(3, 3.0)])), "/jobs/x")[1] == causes.UNSURE


# ---- real monitors


# An agent stays when its ranks have left with status 0, until those of all others have ended.
STAYS = """
import os, subprocess, sys, time
ranks = [
    subprocess.Popen([sys.executable, "rank.py", mode], env={**os.environ, "RANK": str(rank)})
    for rank, mode in enumerate(sys.argv[1:], 1)
]
while True:
    for rank in ranks:
        rank.poll()
    time.sleep(0.05)
"""


def under_an_agent(node, *modes):
    """Have ranks 1 and more of a node started by an agent."""
    (agent,) = node.spec["processes"]
    (node.dir / "source" / "launcher").mkdir()
    (node.dir / "source" / "launcher" / "run.py").write_text(STAYS)
    argv = [sys.executable, str(node.dir / "trainyard.pyz"), "agent", "launcher.run", *modes]
    agent.update(name="agent", ranks=list(range(1, len(modes) + 1)), argv=argv)
    agent["env"]["TRAINYARD_JOB_DIR"] = str(node.dir)
    agent["log"] = str(node.dir / "logs" / "agent_1.log")
    write_json(node.dir / "node_plan.json", node.spec)


def test_a_rank_that_leaves_is_blamed_for_those_that_lose_it(cluster):
    """The agent of a rank that left may still run."""
    job = cluster(["lost"], ["train"], ["lost"], ["wait"])
    under_an_agent(job.nodes[1], "train")
    job.start().nodes[1].go()
    wait_for(job.nodes[1].exits, "the end of rank 1")
    heard(job.head, "n2")
    for number in (2, 0):
        job.nodes[number].go()
    cause = job.over()["failure"]
    assert (cause["kind"], cause["host"], cause["process"], cause["rank"]) == ("exit", "n2", "agent", 1)
    assert (cause["exit_code"], cause["result"]) == (0, "success")
    assert "then lost its peer" in cause["reason"] and "Connection closed by peer [127.0.0.1]:1431" in cause["reason"]
    job.all_ended()


def test_the_rank_that_an_agent_noted_as_failed_is_blamed_and_not_those_that_it_ended(cluster):
    job = cluster(["wait"], ["wait"], n2={"launcher": "torchrun", "world_size": 4})
    node = job.nodes[1]
    under_an_agent(node, "wait", "wait", "wait")
    for rank, status, more in ((1, -9, {"by_agent": True}), (2, 7, {}), (3, 1, {"attempt": 4})):
        write_json(node.dir / "exits" / f"rank{rank}.json", {**from_status(status), **more})
    part = node_runner.NodeRunner(node.dir)
    failed = part.failure(node.spec["processes"][0], from_status(1))
    assert (failed["process"], failed["rank"], failed["exit_code"], failed["result"]) == ("agent", 2, 7, "exit-code")


@pytest.mark.parametrize(("attempt", "rank"), [(1, 2), (0, None)])
def test_a_rank_that_left_an_earlier_attempt_does_not_count(cluster, attempt, rank):
    job = cluster(["wait"], ["wait"], n2={"max_restarts": 1})
    node = job.nodes[1]
    under_an_agent(node, "wait", "wait")
    write_json(node.dir / "attempts.json", {"": 1})
    write_json(node.dir / "exits" / "rank2.json", {**from_status(0), "attempt": attempt})
    part = node_runner.NodeRunner(node.dir)
    part.inspect()
    assert (part.report["well"] or {"rank": None})["rank"] == rank


def test_a_rank_that_mindspores_scheduler_misses_has_left(cluster):
    job = cluster(["lost"], ["train"])
    scheduler = {**job.head.spec["processes"][0], "name": "scheduler", "ranks": []}
    scheduler.update(argv=[sys.executable, "rank.py", "wait"], log=str(job.head.dir / "logs/scheduler.log"))
    job.head.spec["processes"].insert(0, scheduler)
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    Path(scheduler["log"]).write_text(captured("mindspore/frozen-scheduler"))
    job.start()
    job.nodes[1].go()
    wait_for(job.nodes[1].exits, "the end of rank 1")
    heard(job.head, "n2")
    job.head.go()
    cause = job.over()["failure"]
    assert (cause["kind"], cause["rank"], cause["result"]) == ("exit", 1, "success")
    assert (cause["host"], cause["process"]) == ("n2", "rank1")
    job.all_ended()


def under_mpirun(cluster, program, world_size, **more):
    """Return a job whose ranks mpirun starts on the head, with only its own log there."""
    process = {"name": "mpirun", "ranks": list(range(world_size)), "argv": ["sh", "-c", program]}
    job = cluster(
        [""], *([] for _ in range(world_size - 1)), n1={"world_size": world_size, "processes": [process], **more}
    )
    process.update(env={"PATH": os.defpath}, log=str(job.head.dir / "logs/mpirun.log"))
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    return job.start()


def test_mpirun_that_ends_with_0_has_failed_where_it_lost_a_daemon(cluster):
    said = f"cat {TORCHRUN.parent}/mpirun/openmpi5-daemon-killed.txt"
    program = f"touch up-1; until [ -e go ]; do sleep 0.1; done; {said}"
    job = under_mpirun(cluster, program, 2)
    job.head.go()
    ended = job.over()
    assert ended["state"] == "failed"
    assert ended["failure"]["reason"] == "mpirun lost its daemon on n2: killed, or the node is lost"
