# SPDX-License-Identifier: Apache-2.0
"""Try the RDMA ports and NPUs of this node: servers that wait for others, and calls to those of others.

Root runs ibv_rc_pingpong as nobody on both sides: it trusts what strangers send to its TCP port. A server outlives its
module and serves one client. alarm(2), which lasts over execve(2), ends both: the tool would wait for ever.
Times are seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ...trainyard.base.findings import grouped
from ...trainyard.hardware.ping_tools import DENIED, LATE, MISSING, PINGPONG, SILENT, npu_words, pingpong_words, problem
from ..cluster.node_identity import unused_ports, used_ports
from ..hardware.npu_discovery import hccn_tool
from ..job.run.ranks import process_table
from ..machine.programs import NOBODY, bare, english
from ..machine.tree import Tree
from .peer_connections import stop_listener

# A driver that opens many devices at once takes a second or two, a busy machine longer.
_START_S, _POLL_S = 60.0, 0.05
_LISTENS = "0A"
Record = dict[str, Any]
_Started = list[tuple["subprocess.Popen[Any]", BinaryIO]]


def unusable(program: str | None, folder: Path) -> str:
    """Return why nobody can run the tool here, "" where it can; `folder` has the files of RDMA devices."""
    if program is None:
        return MISSING
    shut = [path for path in sorted(folder.glob("uverbs*")) if path.stat().st_mode & 0o006 != 0o006]
    return f"{DENIED}{shut[0]}" if shut and not os.geteuid() else ""


def _start(program: str, calls: Sequence[Sequence[str]], limit_s: float) -> _Started:
    """Start the tool once for each list of words as nobody; end all of them where one cannot start."""
    started: _Started = []
    settings: Record = {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    settings |= {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True, "cwd": "/"}
    settings |= {"env": english(bare(NOBODY)), "preexec_fn": partial(signal.alarm, max(1, round(limit_s)))}
    # The buffers of RDMA are locked memory, of which only root may allow more. A container's root may not.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        for words in calls:
            # Without a name, so that nothing stays.
            output = tempfile.TemporaryFile()  # noqa: SIM115
            started.append((subprocess.Popen([program, *words], stdout=output, **settings), output))
    except BaseException:
        for process, _ in started:
            process.kill()
        raise
    return started


def _printed(output: BinaryIO) -> str:
    output.seek(0)
    return problem(output.read(1 << 16).decode("utf-8", "replace"))


def serve(ends: Sequence[Record], life_s: int) -> Record:
    """Start a server for each end of a pair, and wait until all of them listen: `servers`, each with its TCP port."""
    tree = Tree()
    program, ports = tree.tool(PINGPONG), random.SystemRandom().sample(sorted(unused_ports(tree)), len(ends))
    why = unusable(program, Path("/dev/infiniband"))
    if program is None or why:
        nobody = {"tcp": 0, "pid": 0, "start_time": None, "problem": why}
        return {"servers": [{"id": end["id"], **nobody} for end in ends]}
    started = _start(program, [pingpong_words(end, tcp) for end, tcp in zip(ends, ports)], life_s)
    deadline, quiet = time.monotonic() + _START_S, set(ports)
    while quiet and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        live = {tcp for tcp, (server, _) in zip(ports, started) if server.poll() is None}
        quiet = live - used_ports(tree, _LISTENS)
    servers = []
    for end, tcp, (server, output) in zip(ends, ports, started):
        why = LATE if tcp in quiet else _printed(output) if server.poll() is not None else ""
        begun = process_table.start_time(server.pid)
        servers.append({"id": end["id"], "tcp": tcp, "pid": server.pid, "start_time": begun, "problem": why})
    return {"servers": servers}


def ping(calls: Sequence[Record], timeout_s: float, limit_s: float) -> Record:
    """Call other nodes: `failures`, and what is `left`, as no call begins after `limit_s`.

    The NPUs call side by side, each one node after the other. Then all RDMA ports call one node after the other.
    """
    deadline, whys = time.monotonic() + limit_s, {}

    def call_npus(own: Sequence[Record]) -> None:
        for call in own:
            if time.monotonic() <= deadline:
                answer = hccn_tool(Tree(), call["npu"], "ping", *npu_words(call["address"]))
                whys[call["id"]] = MISSING if answer is None else problem(answer.output)

    # hccn_tool serves one caller of a device at a time.
    npus = grouped((call["npu"], call) for call in calls if "npu" in call)
    with ThreadPoolExecutor(max(1, len(npus))) as pool:
        list(pool.map(call_npus, npus.values()))
    for step in grouped((call["peer"], call) for call in calls if "npu" not in call).values():
        if time.monotonic() <= deadline:
            whys.update(zip((call["id"] for call in step), _call_ports(step, timeout_s)))
    failures = [{"id": at, "reason": why} for at, why in whys.items() if why]
    return {"failures": failures, "left": [call["id"] for call in calls if call["id"] not in whys]}


def _call_ports(calls: Sequence[Mapping[str, Any]], timeout_s: float) -> list[str]:
    """Call all ports of a node at once; return why each call failed, "" where it did not."""
    program = Tree().tool(PINGPONG)
    why = unusable(program, Path("/dev/infiniband"))
    if program is None or why:
        return [why] * len(calls)
    words = [pingpong_words(call, call["tcp"], call["address"]) for call in calls]
    # The alarm is for what outlives this process.
    started, reasons = _start(program, words, timeout_s + _START_S), []
    deadline = time.monotonic() + timeout_s
    try:
        for process, output in started:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
                reasons.append(_printed(output))
            except subprocess.TimeoutExpired:
                reasons.append(f"{SILENT}{timeout_s:g} s")
    finally:
        # Without waiting for their end: a process that hangs in a driver ends only when the driver returns.
        for process, _ in started:
            process.kill()
    return reasons


def close(servers: Sequence[Record]) -> Record:
    """End servers; return how many still ran, and which still listened: nobody had connected to these."""
    listening = used_ports(Tree(), _LISTENS)
    return {
        "waiting": [each["id"] for each in servers if each["tcp"] in listening],
        "ended": sum(stop_listener(each["pid"], each["start_time"]) for each in servers),
    }


STEPS: dict[str, Callable[..., Record]] = {"serve": serve, "ping": ping, "close": close}
