# SPDX-License-Identifier: Apache-2.0
"""Find the cause of a failure where the ranks that failed only say that they lost a peer.

Sources of the messages: gloo (third_party/gloo/gloo/transport), NCCL (ncclRemoteError, socketProgress),
PyTorch's watchdog and store (torch/csrc/distributed/c10d), HCCL (EI0002, EI0006), Open MPI (btl tcp, ULFM), MindSpore
(ccsrc/cluster: topology/compute_graph_node.cc, topology/meta_server_node.cc, init.cc, collective_ops_impl.cc), OneFlow
(core/control/ctrl_client.cpp, core/comm_network/epoll). A plain ConnectionResetError is none of them: it may be a
download's. Times are seconds since the epoch on the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ....base.late_pattern import late_pattern
from .failures import Failure, exit_text, failure_text, first_failure, missed
from .headline import find, plain, wraps

LOST = late_pattern(
    r"gloo/transport/[^\]\n]{1,80}\] .{0,80}?"
    r"(?:Connection (?:closed|reset) by peer|Read error|Write error|Timed out|timeout|Broken pipe)"
    r"|Connection closed by remote peer"
    r"|ncclRemoteError|remote process exited or there was a network error"
    r"|Watchdog caught collective operation timeout"
    r"|DistStoreError: |recvValue failed|failed to recv, got 0 bytes|Connection was likely closed"
    r"|\bEI000[26]\b"
    r"|MPI_ERR_PROC_FAILED|mca_btl_tcp_\w{1,40}: readv (?:error|failed)"
    r"|Failed to connect to the meta server\. Maybe it has exited|The state of the cluster is error, total nodes num"
    r"|The total number of timed out node is|The node: \d{1,9} is timed out"
    r"|Ring (?:ReduceScatter|AllGather) wait (?:sending|receiving) \S{1,40} failed"
    r"|Check failed: .{0,80}StatusCode::OK.{0,200}\bMachine \d{1,9} lost"
    r"|Check failed: errno == EAGAIN \|\| errno == EWOULDBLOCK.{0,40}: (?:Connection (?:reset|timed out)|Broken pipe)"
)
# A worker of MindSpore prints this after its scheduler has lost another worker.
_ENDS_ITSELF = late_pattern(
    r"mindspore/ccsrc/\S{0,80}\binit\.cc:\d{1,5}\] operator\(\)\] Kill this process with SIGTERM"
)
# The lost rank in such a line.
_RANK_GONE = late_pattern(
    r"worker (\d{1,9}) is the first one timed out|The node: (\d{1,9}) is timed out|\bMachine (\d{1,9}) lost"
)
# Follows MindSpore's error for a failed collective, whose own line is empty.
_COLLECTIVE = late_pattern(r"^Launch kernel failed: \S{1,300}/(?:All|Broadcast|Reduce)\w{0,40}-op\d", re.MULTILINE)
# The last line of a traceback.
_ERROR = late_pattern(r"(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b")
# PyTorch, CUDA's libraries, JAX and TensorFlow, Ascend. A shape with the host's memory has none of these words.
_NO_DEVICE_MEMORY = late_pattern(
    r"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|NPU|GPU|HIP|XPU) out of memory|CUDA(?: driver)? error: out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED|ResourceExhaustedError"
)
# Messages of the system, Python and C++ for a full disk or quota (errno(3): ENOSPC, EDQUOT).
_NO_ROOM = late_pattern(r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]")
# Errors of connections. They may be a download's, unless a node of the job is away.
_CONNECTION = late_pattern(
    r"[Cc]onnection (?:refused|reset|aborted|closed|error|timed out|unexpectedly|to \S{1,255} closed)|[Bb]roken pipe"
    r"|Connection(?:Refused|Reset|Aborted)?Error|\b[Tt]imed out\b|TimeoutError|No route to host|Host is down"
    r"|Network is unreachable|\bErrno (?:32|10[1347]|11[0-3])\b|\b(?:Dist(?:Network|Store)|Rendezvous\w{1,20})Error\b"
    r"|\bnccl(?:Remote|System)Error\b|^mpirun lost its daemon"
)
# Number of lines at the end of a log that are searched where none of them is an error of Python's.
_LAST = 15
# The C++ runtime's message where threads of a library still run as the process exits.
_TERMINATED = "terminate called without an active exception"
_AT_EXIT = (
    f"it aborted as its interpreter exited, when the program had ended ({_TERMINATED}): threads of a library, "
    "mostly PyTorch's with gloo, still ran; end with torch.distributed.destroy_process_group(), flush, and os._exit(0)"
)
_MAX_LINE = 300  # characters of a line
# Upper bound for the full disks that are named beside another cause.
_MAX_FULL = 3
# How far the clocks of two nodes may be from each other.
CLOCKS_S = 1.0
UNSURE = "it had lost a peer: another rank or node was gone before it, but none is known to have failed"


def _lines(log: str) -> list[str]:
    return [line.text for line in plain(log.split("\n"))]


def lost_peer(log: str) -> str:
    """Return the line at the end of a rank's log that says it lost a peer; "" where the rank itself may have failed."""
    lines = list(map(str.strip, _lines(log)))
    lost = [line for line in lines if LOST.search(line)] or [line for line in lines if _ENDS_ITSELF.search(line)]
    own = [line for line in lines if _ERROR.match(line) and not LOST.search(line) and not wraps(line)]
    if _COLLECTIVE.search(log):
        own = [line for line in own if not line.endswith("Error:")]
    return lost[-1][:_MAX_LINE] if lost and not own else ""


def abort(log: str) -> str:
    """Return why a rank aborted (SIGABRT) as its interpreter exited; "" where it aborted inside the program.

    Inside is where Python's faulthandler, if enabled, shows the main thread in a file.
    """
    lines = _lines(log)
    at = max((number for number, line in enumerate(lines) if line.endswith(_TERMINATED)), default=None)
    if at is None or "".join(map(str.strip, lines[at:])).find('most recent call first):File "') >= 0:
        return ""
    error = find(lines[:at])
    return f"it aborted as its interpreter exited, after its own error: {error.text}" if error else _AT_EXIT


def no_room(log: str) -> str:
    """Return the error at the end of a rank's log that says a disk is full; "" without one.

    The disk may be another one than that of the job's folder: the line usually names the file.
    """
    lines = _lines(log)
    error = find(lines)
    last = [error.text] if error else lines[-_LAST:]
    found = next((line for line in reversed(last) if _NO_ROOM.search(line)), "")
    return f"it could not write: {found[:_MAX_LINE]}" if found else ""


def no_device_memory(error: str) -> bool:
    """Return whether an error says that a GPU or an NPU had no memory left, not the host."""
    return bool(_NO_DEVICE_MEMORY.search(error))


def named_peer(failure: Failure, addresses: Mapping[str, str]) -> str:
    """Return the host that a rank's last message names as its peer, by address or name; "" without one."""
    lost = str(failure.get("lost") or "")
    for host, address in addresses.items():
        names = rf"(?<![\w.:]){re.escape(address)}(?![\w.])|(?<![\w.-]){re.escape(host)}(?=<\d)"
        if host != failure["host"] and re.search(names, lost):
            return host
    return ""


def _last_named(first: Failure, found: Sequence[Failure], addresses: Mapping[str, str]) -> str:
    """Follow the named peers to the last one; "" where no peer is named, or two name each other."""
    names = {each["host"]: named_peer(each, addresses) for each in found if each.get("lost")}
    host, seen = str(first["host"]), set()
    while names.get(host):
        if host in seen:
            return ""
        seen.add(host)
        host = names[host]
    return host if host in names.values() else ""


def _ended_before(at: float, well: Iterable[Failure]) -> list[Failure]:
    return [each for each in well if float(each["time"]) <= at + CLOCKS_S]


def _left(cause: Failure, chain: str) -> Failure:
    """Return the failure that a process is to blame for which ended well before others."""
    return {"kind": "exit", **cause, "exit_code": 0, "signal": None, "result": "success", "reason": chain}


def _why_missed(scheduler: Failure, well: Iterable[Failure], lost: Sequence[Failure]) -> Failure:
    """Return why MindSpore's scheduler missed a rank: its node is lost, or the rank had left, if known."""
    if lost:
        return {**lost[0], "reason": failure_text(scheduler)}
    left = [
        each for each in _ended_before(float(scheduler.get("time") or 0), well) if each["rank"] == scheduler["rank"]
    ]
    return _left(left[0], failure_text(scheduler)) if left else scheduler


def blame(
    found: Sequence[Failure],
    well: Iterable[Failure] = (),
    gone: Sequence[str] = (),
    addresses: Mapping[str, str] | None = None,
    full: Mapping[str, str] | None = None,
    away: bool = False,
    silent: Failure | None = None,
) -> Failure | None:
    """Choose the cause of failures that were seen together (see _blame); None without any.

    While a node is `away` (gone, or without a report since the first failure), a failure by an error of a connection,
    or without any error, is of a lost peer. The messages of hosts whose disks are `full` are added to the reason.
    """
    lost = [{"kind": "gone", "host": host} for host in gone] + ([silent] if silent else [])
    cause = _blame([_victim(each) for each in found] if away else found, well, lost, addresses or {})
    if cause is None:
        return None
    reason = str(cause.get("reason") or "")
    disks = [message for message in (full or {}).values() if message not in reason][:_MAX_FULL]
    return {**cause, "reason": "; ".join(filter(None, [reason, *disks]))} if disks else cause


def _victim(failure: Failure) -> Failure:
    """Return a failure as that of a lost peer where its error is one of a connection, or its log has none."""
    error = str(failure.get("error") or failure.get("doubt") or failure.get("reason") or "")
    if not error and 0 < (failure.get("exit_code") or 0) <= 128:
        return {"lost": f"{exit_text(failure)}, without an error in its log", **failure}
    return {"lost": error, **failure} if _CONNECTION.search(error) else failure


def lost_unknown(cause: Failure) -> bool:
    """Return whether a cause has only lost a peer, of which nothing is known: a node may be lost."""
    return bool(cause.get("lost")) or missed(cause)


def _blame(
    found: Sequence[Failure], well: Iterable[Failure], lost: Sequence[Failure], addresses: Mapping[str, str]
) -> Failure | None:
    """Choose the cause.

    A rank that failed without losing a peer is the cause. If all lost a peer, the peer that they name (by `addresses`
    of hosts) is preferred: a node that is `lost` (gone or silent), else a process of `well` (host, process, ranks,
    rank, time) that had ended before them. Otherwise the cause is unknown, and the reason names the peer.
    """
    first = first_failure(found)
    if first is not None and first["process"] == "scheduler" and first.get("rank") is not None:
        return _why_missed(first, well, lost)
    if first is None or not first.get("lost"):
        return first
    process = f"rank {first['rank']}" if first.get("rank") is not None else first["process"]
    # The ranks of mpirun are on other nodes, too.
    where = "" if first["process"] == "mpirun" else f" on {first['host']}"
    others = sum(bool(each.get("lost")) for each in found) - 1
    chain = f"{process}{where} then lost its peer" + (f", and {others} more" if others else "") + f": {first['lost']}"
    peer = _last_named(first, found, addresses)
    if lost:
        return {**next((each for each in lost if each["host"] == peer), lost[0]), "reason": chain}
    left = _ended_before(float(first.get("time") or 0), well)
    if left:
        return _left(min(left, key=lambda each: (each["host"] != peer, float(each["time"]))), chain)
    rank = next((number for groups in _RANK_GONE.findall(str(first["lost"])) for number in groups if number), "")
    named = peer or (f"rank {rank}" if rank else "")
    unsure = f"{UNSURE}; it names {named} as that peer: look there first" if named else UNSURE
    return {**first, **({"peer": named} if named else {}), "reason": first.get("reason") or unsure}
