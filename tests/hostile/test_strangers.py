"""Peers without the job's token that connect to the head as fast as they can, while a node wants to join."""

import asyncio
import contextlib
import select
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard_node.job.run.monitor import connections as wire
from job_cluster import PATIENCE_S, REPORT, Cluster, wait_for

STRANGER, NODE = "127.0.0.9", "127.0.0.1"
# Open connections from one address as fast as it goes, keep the last ones open, and tell every thousand.
ATTACK = """
import socket, struct, sys, time
source, port, until, kept, number = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3]), [], 0
while time.monotonic() < until:
    number += 1
    one = socket.socket()
    # Nothing of it stays, so it never runs out of ports.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.setblocking(False)
    one.bind((source, 0))
    one.connect_ex(("127.0.0.1", port))
    kept.append(one)
    if len(kept) > 1000:
        kept.pop(0).close()
    if not number % 1000:
        print(number, flush=True)
"""


@contextlib.contextmanager
def attack(source, port):
    """Attack from an address until the end, once a thousand connections were begun."""
    command = [sys.executable, "-c", ATTACK, source, str(port), str(2 * PATIENCE_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as attacker:
        try:
            assert select.select([attacker.stdout], [], [], PATIENCE_S)[0]
            yield attacker
        finally:
            attacker.kill()


@pytest.mark.parametrize(("source", "addresses"), [
    pytest.param(STRANGER, {"n2": NODE}, id="a stranger"),
    pytest.param(STRANGER, {"n2": "10.0.0.2"}, id="a stranger, and a node from an address that the plan does not have"),
    pytest.param(STRANGER, {"n2": NODE, "n3": STRANGER}, id="an address of the job"),
])  # fmt: skip
def test_a_node_joins_whatever_another_address_does(tmp_path, source, addresses):
    job = Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=PATIENCE_S, n1={"addresses": addresses})
    head, node = job.nodes
    with job:
        head.start()
        wait_for(job.state, "the head")
        with attack(source, head.spec["monitor_port"]) as attacker:
            node.start()
            wait_for(lambda: (job.state() or {}).get("ranks_running") == 2, "the node to join")
            assert attacker.poll() is None
        assert not head.log() and head.monitor.poll() is None


def test_a_node_that_is_there_keeps_its_place_though_its_own_address_attacks(tmp_path):
    job = Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=PATIENCE_S, n1={"addresses": {"n2": STRANGER}})
    spec = job.head.spec

    async def stay():
        heard, over = asyncio.Queue(), asyncio.Event()
        where = spec["head_address"], spec["monitor_port"]
        _, line = await asyncio.get_running_loop().create_connection(
            lambda: wire.NodeConnection(
                spec["token"], lambda _, message: heard.put_nowait(message), lambda _: over.set(), "n2"
            ),
            *where,
            local_addr=(STRANGER, 0),
        )
        assert await line.authenticated
        with attack(STRANGER, spec["monitor_port"]) as attacker:
            for step in range(10):
                line.update({"report": {**REPORT, "host": "n2", "metrics": {"step": step}}})
                await heard.get()
                # Another thousand of them.
                await asyncio.to_thread(attacker.stdout.readline)
            assert not over.is_set() and attacker.poll() is None
        line.abort()

    with job:
        job.head.start()
        wait_for(job.state, "the head")
        asyncio.run(asyncio.wait_for(stay(), PATIENCE_S))
        assert not job.head.log()
