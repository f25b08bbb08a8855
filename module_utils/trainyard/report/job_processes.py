# SPDX-License-Identifier: Apache-2.0
"""The table of a job's page: each rank, how it ended, and which one failed first."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.spans import spans
from ..job.run.logs.causes import CLOCKS_S
from ..job.run.logs.failures import exit_text, missed, well
from ..job.run.logs.progress import clock
from .text import shown

Data = Mapping[str, Any]
_ENDED_BY = (signal.SIGTERM, signal.SIGKILL)


def rows(summary: Data) -> list[dict[str, Any]]:
    """Return the rows of the table, what failed first on top, then in the order of ranks.

    `filtered` is the state by which a row is found, None for a node without any.
    """
    found = []
    for node in summary["nodes"]:
        for each in _started(summary, node):
            first = _is_first(summary, node, each)
            state, text = _ended(each, node, summary, first)
            at = each.get("time")
            row = {"name": each["name"], "host": node["host"], "state": shown(state), "text": text, "filtered": state}
            after = clock(at - summary["started"]) if at and summary["started"] else ""
            found.append(
                {**row, "ranks": spans(each["ranks"]), "after": after, "log": f"logs/{each['log']}", "first": first}
            )
        if not node["processes"]:
            text = node.get("role") or node["why"]
            row = {"name": node["host"], "host": node["host"], "state": shown(node["state"]), "text": text}
            found.append({**row, "filtered": None, "ranks": "", "after": "", "log": "", "first": False})
    return sorted(found, key=lambda row: not row["first"])


def folded(rows: Sequence[Mapping[str, Any]], rank_log: str) -> list[list[Any]]:
    """Return rows in a short form for the page's script: successive ranks that ended alike on a host are one.

    Each is [host, first rank, last rank, name, state, text, after, log]; `name` and `log` are "" where they are those
    of a rank by the pattern `rank_log`. Ranks of other processes are -1.
    """
    found: list[list[Any]] = []
    for row in rows:
        rank = int(row["ranks"]) if row["ranks"].isdigit() else -1
        usual = rank >= 0 and row["name"] == f"rank{rank}" and row["log"] == f"logs/{_log(rank_log, rank)}"
        name, log = ("", "") if usual else (row["name"], row["log"])
        entry = [row["host"], rank, rank, name, row["state"]["state"], row["text"], row["after"], log]
        last = found[-1] if found else None
        if usual and last and not last[3] and last[2] == rank - 1 and [last[0], *last[4:7]] == [entry[0], *entry[4:7]]:
            last[2] = rank
        else:
            found.append(entry)
    return found


def _log(rank_log: str, rank: int) -> str:
    return rank_log.replace("{rank}", str(rank))


def _started(summary: Data, node: Data) -> list[Data]:
    """Return what runs or ended on a node: the ranks under an agent where they are known, else the processes.

    The agent ends with 1 whatever ended its ranks, so it is there only where it failed itself. Where it is killed, the
    kernel ends its ranks.
    """
    found: list[Data] = []
    for process in node["processes"]:
        ends = {each["rank"]: each for each in process.get("ends", ())}
        agent = process["name"] == "agent" and summary["launcher"] in ("torchrun", "msrun")
        by_rank = ends or (agent and ("exit_code" not in process or process["signal"]))
        if not by_rank or _is_first(summary, node, process):
            found.append(process)
        for rank in process["ranks"] if by_rank else ():
            log = _log(summary["rank_log"], rank)
            named = {"name": f"rank{rank}", "ranks": [rank], "log": log, "agent": process["name"]}
            found.append({**named, **ends.get(rank, {"with_agent": "exit_code" in process})})
    return found


def _is_first(summary: Data, node: Data, process: Data) -> bool:
    """Tell whether a process, or a rank of an agent, is what failed first."""
    failure = summary.get("failure") or {}
    if failure.get("host") != node["host"] or failure.get("process") != process.get("agent", process["name"]):
        return False
    if "agent" in process:
        return failure.get("rank") in process["ranks"]
    return not process.get("ends") or failure.get("rank") is None


def _ended(process: Data, node: Data, summary: Data, first: bool) -> tuple[str, str]:
    """Return the state of a process, and how it ended."""
    if process.get("with_agent"):
        return "stopped", "ended with its agent"
    if "exit_code" not in process:
        return (node["state"] if node["state"] != "ended" else "unknown"), node["why"]
    if process["exit_code"] == 0 and not process.get("by_agent"):
        return "succeeded", ""
    text = exit_text(process)
    if process.get("result") == "oom-kill":
        text += " (oom-kill)"
    if first:
        failure = summary["failure"]
        one = len(process["ranks"]) > 1 and failure.get("rank") is not None and not missed(failure)
        return "failed", f"first: rank {failure['rank']}: {exit_text(failure)}" if one else f"first: {text}"
    after = _after(summary, process)
    ended = process.get("signal") in _ENDED_BY or process["exit_code"] == 0
    if process.get("by_agent") and ended:
        by = "" if process.get("signal") == signal.SIGTERM else f": {text}"
        return "stopped", f"ended by {summary['launcher']}{after}{by}"
    # A process that was ended because another one failed is no failure.
    return ("stopped" if ended else "failed"), f"{text}{after}"


def _after(summary: Data, process: Data) -> str:
    """Say after which rank or process a process ended: what failed first; "" where nothing did, or it ended later."""
    failure = summary.get("failure") or {}
    if failure.get("kind") != "exit" or missed(failure):
        return ""
    at, began = process.get("time"), failure.get("time")
    if at and began and at < began - CLOCKS_S:
        return ""
    rank, host = failure.get("rank"), failure["host"]
    name = f"rank {rank}" if rank is not None else f"the agent on {host}" if failure["process"] == "agent" else None
    return f" after {name or failure['process']} {'left' if well(failure) else 'failed'}"
