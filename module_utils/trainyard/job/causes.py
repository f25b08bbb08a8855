# SPDX-License-Identifier: Apache-2.0
"""Causes, not symptoms: what is blamed where the ranks that failed say only that a peer is gone.

What ranks print then, by source: gloo (third_party/gloo/gloo/transport), NCCL (ncclRemoteError, socketProgress),
PyTorch's watchdog and store (torch/csrc/distributed/c10d), HCCL (EI0002, EI0006), Open MPI (btl tcp, ULFM). A plain
ConnectionResetError is none of them: it may be a download's. Times are seconds since the epoch on the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .failure import Failure, first_failure

_LOST = re.compile(
    r"gloo/transport/[^\]\n]{1,80}\] .{0,80}?"
    r"(?:Connection (?:closed|reset) by peer|Read error|Write error|Timed out|timeout|Broken pipe)"
    r"|Connection closed by remote peer"
    r"|ncclRemoteError|remote process exited or there was a network error"
    r"|Watchdog caught collective operation timeout"
    r"|DistStoreError: |recvValue failed|failed to recv, got 0 bytes|Connection was likely closed"
    r"|\bEI000[26]\b"
    r"|MPI_ERR_PROC_FAILED|mca_btl_tcp_\w{1,40}: readv (?:error|failed)"
)
# The line with which a traceback ends, behind the rank that PyTorch puts before it.
_ERROR = re.compile(r"(?:\[rank\d{1,9}\]: )?(?:\w{1,60}\.){0,8}\w{0,60}(?:Error|Exception)\b")
_MOST = 300  # characters of a line
# How far the clocks of two nodes may be from each other.
CLOCKS_S = 1.0
UNSURE = "it had lost a peer: another rank or node was gone before it, but none is known to have failed"


def lost_peer(log: str) -> str:
    """Return the line in the end of a rank's log that says a peer is gone; "" where the rank may have failed itself."""
    lines = [line.strip() for line in log.splitlines()]
    told = [line for line in lines if _LOST.search(line)]
    own = [line for line in lines if _ERROR.match(line) and not _LOST.search(line)]
    return told[-1][:_MOST] if told and not own else ""


def blame(found: Sequence[Failure], well: Iterable[Failure] = (), gone: Sequence[str] = ()) -> Failure | None:
    """Choose what to blame for failures that were seen together; None when there is none.

    A rank that failed of itself is the cause. Where all had lost a peer, it is a node whose monitor is `gone`, else a
    process of `well` (host, process, ranks, rank, time) that had ended well before them; else nobody knows.
    """
    first = first_failure(found)
    if first is None or not first.get("lost"):
        return first
    more = len([each for each in found if each.get("lost")]) - 1
    who = f"rank {first['rank']}" if first.get("rank") is not None else first["process"]
    chain = (
        f"{who} on {first['host']} then lost its peer" + (f", and {more} more" if more else "") + f": {first['lost']}"
    )
    if gone:
        return {"kind": "gone", "host": gone[0], "reason": chain}
    at = float(first.get("time") or 0)
    left = [each for each in well if float(each["time"]) <= at + CLOCKS_S]
    if left:
        cause = min(left, key=lambda each: float(each["time"]))
        return {"kind": "exit", **cause, "exit_code": 0, "signal": None, "result": "success", "reason": chain}
    return {**first, "reason": first.get("reason") or UNSURE}
