"""A head has a connection of every node, whatever limit of open files it inherits."""

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_cluster import PATIENCE_S, Cluster, report_to

PROJECT = str(Path(__file__).resolve().parents[4])
CLIENTS = [f"n{number}" for number in range(2, 130)]


@contextlib.contextmanager
def soft_limit(files):
    """Lower the limit that processes inherit."""
    room = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, room[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, room)


async def all_heard(head):
    clients = [asyncio.create_task(report_to(head.spec, host)) for host in CLIENTS]
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (state := head.read("cluster.json") or {}).get("state") in (None, "starting"):
            assert time.monotonic() < deadline, f"{state}; head's log: {head.log()}"
            await asyncio.sleep(0.1)
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return state


def test_a_head_serves_more_nodes_than_its_first_limit_of_open_files(tmp_path):
    job = Cluster(tmp_path, ["wait"], silent_after_s=60)
    job.head.spec.update(hosts=["n1", *CLIENTS], world_size=len(CLIENTS) + 1)
    (job.head.dir / "node_plan.json").write_text(json.dumps(job.head.spec))
    with job:
        with soft_limit(64):
            job.head.start()
        state = asyncio.run(all_heard(job.head))
        assert (state["state"], state["ranks_running"]) == ("running", len(CLIENTS) + 1)
        assert all(node["silent_s"] is not None for node in state["nodes"].values())


@pytest.mark.parametrize(("limits", "after", "said"), [
    ((64, 4096), (1000, 4096), ""),  # raised as far as is needed
    ((2000, 4096), (2000, 4096), ""),  # never lowered
    ((64, 512), (512, 512), "may open 512 files, expected 1000 for its nodes: raise the hard limit of open files\n"),
])  # fmt: skip
def test_room_is_made_as_far_as_the_hard_limit_goes(limits, after, said):
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, {limits}); "
        "from module_utils.trainyard_node.job.run.monitor.connections import make_room; make_room(1000); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    run = subprocess.run([sys.executable, "-c", code, PROJECT], capture_output=True, text=True, check=True)
    assert run.stdout == f"{said}{after}\n"
