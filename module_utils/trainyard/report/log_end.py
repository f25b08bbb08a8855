# SPDX-License-Identifier: Apache-2.0
"""Choose the log, and its lines, that tell how a program ended: what libraries print last does not hide it.

Forms of stacks, by source: PyTorch (c10/util/Backtrace), glog, Open MPI's signal handler, gdb and AddressSanitizer, and
the threads beside the one that failed in a dump of Python's faulthandler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import counted
from ..job.run.logs import framework_log
from ..job.run.logs.failures import STARTED_AGAIN
from ..job.run.logs.headline import find, plain, went_on

Data = Mapping[str, Any]
# Upper bounds: characters of an error, ranks whose logs are searched where that of the rank that failed tells nothing.
MAX_ERROR, MAX_OTHERS = 200, 64
_FRAME = re.compile(
    r"(?:frame #\d{1,4}: |\s{2,8}@ +(?:0x)?[0-9a-f]{6,16}\b|\s{0,8}#\d{1,4}\s+0x[0-9a-f]{4,16}\b"
    r"|\[\S{1,255}:\d{1,9}\] \[ ?\d{1,4}\] )"
)
_OTHER_THREAD = re.compile(r"^Thread 0x[0-9a-f]{1,16} .{0,80}\(most recent call first\):$")
_OF_THREAD = re.compile(r'^\s{2}(?:File ".{1,400}", line \d{1,9} in |\.\.\.$|<no Python frame>)')
# Follows the line that tells the cause, where lines between it and the end are left out.
CUT = "..."
# Shorter stacks are shown as they are.
_FEW = 3


def telling(lines: Sequence[str], most: int, failed: bool = True) -> list[str]:
    """Return at most so many lines of the end of a log; of one that `failed` without stacks, and with its own error.

    Lines of earlier attempts are left out where the last one has its own error.
    Lines of a framework's own log tell nothing of a success.
    """
    noise = ("INFO",) if failed else ("INFO", "WARNING")
    short = framework_log.without(_without_stacks(lines) if failed else lines, *noise)
    began = max((number for number, line in enumerate(short) if line.startswith(STARTED_AGAIN)), default=-1) + 1
    last = short[began:]
    kept = plain(last) if failed else []
    found = find([line.text for line in kept])
    if found is None:
        return short[-most:]
    end, at = last[-most:], kept[found.at].at
    return end if at >= len(last) - most else [found.text, CUT, *end[2:]]


def _without_stacks(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    stack: list[str] = []
    other = False
    texts = {line.at: line.text for line in plain(lines)}
    for at, line in enumerate(lines):
        text = texts.get(at, "")
        other = bool(_OTHER_THREAD.match(text)) or (other and bool(_OF_THREAD.match(text)))
        # An empty line within a stack is part of it.
        if other or _FRAME.match(text) or (stack and not text):
            stack.append(line)
            continue
        found += [*_shortened(stack), line]
        stack = []
    return found + _shortened(stack)


def _shortened(stack: list[str]) -> list[str]:
    return stack if len(stack) <= _FEW else [f"... {counted(len(stack), 'line')} of a stack"]


def telling_log(summary: Data) -> str | None:
    """Name the log whose end tells how the job ended: a rank's, or that of what starts ranks; None where none does."""
    failure = summary.get("failure") or {}
    if summary["state"] in ("succeeded", "running", "timed_out"):
        return str(summary["rank_log"]).replace("{rank}", str(failure.get("rank") or 0))
    if failure.get("kind") == "engine":
        log = {"slurm": "slurm.log", "kubernetes": "pods.log"}.get(summary["engine"]["kind"])
        return log if summary["nodes"] else None
    if failure.get("kind") == "hung" and failure.get("rank") is None:
        return None
    if failure.get("kind") not in ("exit", "not_joined", "hung"):
        return None
    # Where several ranks share a log, it is that of what started them.
    if failure.get("rank") is not None and ("{rank}" in summary["rank_log"] or not failure.get("process")):
        return str(summary["rank_log"]).replace("{rank}", str(failure["rank"]))
    return _log_of_process(summary) or None


def _log_of_process(summary: Data) -> str:
    failure = summary["failure"]
    logs = {
        (node["host"], process["name"]): str(process["log"])
        for node in summary["nodes"]
        for process in node["processes"]
    }
    return logs.get((failure["host"], failure["process"]), "")


def starter_log(summary: Data) -> str:
    """Name the log of what started the rank that failed; "" where nothing did, or no rank failed."""
    return _log_of_process(summary) if (summary.get("failure") or {}).get("kind") == "exit" else ""


def error_of_rank(summary: Data, tail: Sequence[str], log: str | None = None) -> str:
    """Return what the end of the failed rank's log tells of the cause, or the error that its node read; "" without."""
    failure = summary.get("failure") or {}
    if failure.get("kind") != "exit" or failure.get("rank") is None:
        return ""
    own = "" if other_rank(summary, log) is not None else error_of_log(tail)
    return own or str(failure.get("error") or "")[:MAX_ERROR]


def error_of_log(tail: Sequence[str], ended: bool = False) -> str:
    """Return the line that tells the cause, out of the end of a log (log_end.telling); "" without one.

    With `ended`, an error that the program has survived is none.
    """
    lines = [line.text for line in plain(tail)]
    found = find(lines)
    text, at = (lines[0], 0) if lines[1:2] == [CUT] else (found.text, found.at) if found else ("", 0)
    return "" if ended and went_on(lines[at + 1 :]) else framework_log.short(text.strip())[:MAX_ERROR]


def other_ranks(summary: Data, tail: Sequence[str]) -> list[int]:
    """Return ranks whose logs may tell more than the log of the rank that failed, or hung, which ends with `tail`."""
    failure = summary.get("failure") or {}
    kind, rank, peer = failure.get("kind"), failure.get("rank"), str(failure.get("peer") or "")
    # Several ranks may share one log.
    own_logs = "{rank}" in summary["rank_log"]
    every = [each for node in summary["nodes"] for each in node["ranks"] if own_logs and each != rank]
    if kind == "exit" and failure.get("lost") and peer:
        of_peer = [each for node in summary["nodes"] if node["host"] == peer for each in node["ranks"]]
        return [each for each in every if each in of_peer or peer == f"rank {each}"][:MAX_OTHERS]
    silent = (kind == "exit" and rank is not None and not tail) or (kind == "hung" and not error_of_log(tail, True))
    return sorted(every)[:MAX_OTHERS] if silent else []


def other_rank(summary: Data, log: str | None) -> int | None:
    """Return the rank of a log that is neither that of the rank that failed nor of its launcher; None for those."""
    if not log or log in (telling_log(summary), starter_log(summary)) or "{rank}" not in summary["rank_log"]:
        return None
    before, _, after = str(summary["rank_log"]).partition("{rank}")
    rank = log.removeprefix(before).removesuffix(after)
    return int(rank) if rank.isdecimal() and len(rank) < 10 else None
