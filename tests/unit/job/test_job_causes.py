"""Planted causes: what is blamed where ranks fail of a peer that is gone."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job import causes, failure
from ansible.module_utils.trainyard.report import job_text
from job_cluster import wait_for

TORCHRUN = Path(__file__).resolve().parents[2] / "fixtures/torchrun"
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
def test_a_rank_that_lost_a_peer_says_so(log):
    assert causes.lost_peer(log) in log and causes.lost_peer(log)


@pytest.mark.parametrize("log", ITS_OWN)
def test_a_rank_that_may_have_failed_itself_has_lost_nobody(log):
    assert causes.lost_peer(log) == ""


def test_captured_logs_of_ranks_whose_peer_was_killed_or_failed():
    assert "Connection closed by peer [127.0.0.1]:14003" in causes.lost_peer(
        "\n".join((TORCHRUN / "sigkill-node0.txt").read_text().splitlines()[:10])
    )
    assert causes.lost_peer((TORCHRUN / "error-node0.txt").read_text()) == ""


def failed(number, at, lost=GLOO, **changes):
    record = {"kind": "exit", "host": f"n{number + 1}", "process": f"rank{number}", "ranks": [number], "rank": number}
    record.update(exit_code=1, signal=None, result="exit-code", time=100.0 + at)
    return {**record, **({"lost": lost} if lost else {}), **changes}


def left(rank, at):
    known = failed(rank, at)
    return {name: known[name] for name in ("host", "process", "ranks", "rank", "time")}


KILLED = {"lost": "", "exit_code": None, "signal": signal.SIGKILL, "result": "signal"}
AN_AGENT = {"process": "agent", "rank": None, "lost": ""}
# What was seen together: failures, processes that had ended well, nodes whose monitor is gone; who is to blame.
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
    "a rank fails of itself where another had left": ([failed(2, 3.0, lost="")], [left(1, 2.6)], [], "rank 2"),
}


def blamed(cause):
    who = cause["host"] if cause["kind"] == "gone" else f"rank {cause['rank']}"
    return who + "?" * (cause.get("reason") == causes.UNSURE)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_is_blamed_in_whatever_order_it_is_told(name):
    found, well, gone, expected = PLANTED[name]
    for order in itertools.permutations(found):
        for before in (well, well[::-1]):
            assert blamed(causes.blame(order, before, gone)) == expected


def test_nothing_failed():
    assert causes.blame([], [left(1, 0.0)], ["n3"]) is None


def summary(cause):
    nodes = [{"host": f"n{rank + 1}", "ranks": [rank]} for rank in range(4)]
    return {"failure": cause, "nodes": nodes, "rank_log": "rank_{rank}.log"}


def test_the_report_says_cause_and_chain():
    cause = causes.blame([failed(2, 3.0), failed(0, 3.1)], [left(1, 2.6)])
    assert job_text.cause(summary(cause), "/jobs/x") == [
        "rank 1 on n2 ended first, with exit code 0, while others still ran",
        f"rank 2 on n3 then lost its peer, and 1 more: {GLOO}",
    ]
    assert failure.text(cause) == "rank 1 on n2: exit code 0 before the others"
    cause = causes.blame([failed(3, 3.0)], [], ["n3"])
    assert job_text.cause(summary(cause), "/jobs/x") == [
        "the monitor of n3 ended first, and rank 2 with it",
        f"rank 3 on n4 then lost its peer: {GLOO}",
        "see what killed it: journalctl -k and /jobs/x/logs/monitor_*.log on n3",
    ]
    assert failure.text(cause) == "node n3: its monitor ended"
    assert job_text.cause(summary(causes.blame([failed(3, 3.0)])), "/jobs/x")[1] == causes.UNSURE


# ---- real monitors


def test_a_rank_that_leaves_is_blamed_for_those_that_lose_it(cluster):
    job = cluster(["lost"], ["train"], ["lost"], ["wait"]).start()
    job.nodes[1].go()
    wait_for(job.nodes[1].exits, "the end of rank 1")
    for number in (2, 0):
        job.nodes[number].go()
    cause = job.over()["failure"]
    assert (cause["kind"], cause["host"], cause["rank"], cause["result"]) == ("exit", "n2", 1, "success")
    assert "then lost its peer" in cause["reason"] and "Connection closed by peer [127.0.0.1]:1431" in cause["reason"]
    job.all_ended()


def test_a_monitor_that_is_killed_is_blamed_for_those_that_lose_its_ranks(cluster):
    job = cluster(["wait"], ["lost"], ["wait"]).start()
    os.kill(job.nodes[2].monitor.pid, signal.SIGKILL)
    job.nodes[2].monitor.wait()
    job.nodes[1].go()
    cause = job.over()["failure"]
    assert (cause["kind"], cause["host"]) == ("gone", "n3")
    assert cause["reason"].startswith("rank 1 on n2 then lost its peer: RuntimeError: ")


def test_a_rank_that_lost_a_peer_that_nobody_knows_of_is_named_with_that(cluster):
    job = cluster(["wait"], ["lost"]).start()
    job.nodes[1].go()
    cause = job.over()["failure"]
    assert (cause["host"], cause["rank"], cause["reason"]) == ("n2", 1, causes.UNSURE)
    job.all_ended()
