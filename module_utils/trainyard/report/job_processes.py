# SPDX-License-Identifier: Apache-2.0
"""The table of a job's page: each rank, how it ended, and which one failed first."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any

from ..job.run.causes import CLOCKS_S
from ..job.run.failure import exit_text, missed, well
from ..job.run.progress import clock
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
            state, said = _ended(each, node, summary, first)
            at = each.get("time")
            found.append(
                {
                    "name": each["name"],
                    "ranks": _span(each["ranks"]),
                    "host": node["host"],
                    "state": shown(state),
                    "said": said,
                    "after": clock(at - summary["started"]) if at and summary["started"] else "",
                    "log": f"logs/{each['log']}",
                    "filtered": state,
                    "first": first,
                }
            )
        if not node["processes"]:
            alone = {
                "name": node["host"],
                "host": node["host"],
                "state": shown(node["state"]),
                "said": node.get("role") or node["why"],
            }
            found.append({**alone, "ranks": "", "after": "", "log": "", "filtered": None, "first": False})
    return sorted(found, key=lambda row: not row["first"])


def _started(summary: Data, node: Data) -> list[Data]:
    """Return what runs or ended on a node: the ranks under torchrun's agent where they are known, else the processes.

    The agent ends with 1 whatever ended its ranks, so it is there only where it failed itself. Where it is killed, the
    kernel ends its ranks.
    """
    found: list[Data] = []
    for process in node["processes"]:
        ends = {each["rank"]: each for each in process.get("ends", ())}
        agent = process["name"] == "agent" and summary["launcher"] == "torchrun"
        by_rank = ends or (agent and ("exit_code" not in process or process["signal"]))
        if not by_rank or _is_first(summary, node, process):
            found.append(process)
        for rank in process["ranks"] if by_rank else ():
            log = summary["rank_log"].replace("{rank}", str(rank))
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
    said = exit_text(process)
    if process.get("result") in ("oom-kill", "timeout", "watchdog"):
        said += f" ({process['result']})"
    if first:
        failure = summary["failure"]
        one = len(process["ranks"]) > 1 and failure.get("rank") is not None and not missed(failure)
        return "failed", f"first: rank {failure['rank']}: {exit_text(failure)}" if one else f"first: {said}"
    after = _after(summary, process)
    ended = process.get("signal") in _ENDED_BY or process["exit_code"] == 0
    if process.get("by_agent") and ended:
        by = "" if process.get("signal") == signal.SIGTERM else f": {said}"
        return "stopped", f"ended by {summary['launcher']}{after}{by}"
    # Those that were ended because another one failed are not what is looked for.
    return ("stopped" if ended else "failed"), f"{said}{after}"


def _after(summary: Data, process: Data) -> str:
    """Say after whom a process ended: what failed first; "" where that is no rank or process, or ended later."""
    failure = summary.get("failure") or {}
    if failure.get("kind") != "exit" or missed(failure):
        return ""
    at, began = process.get("time"), failure.get("time")
    if at and began and at < began - CLOCKS_S:
        return ""
    rank, host = failure.get("rank"), failure["host"]
    who = f"rank {rank}" if rank is not None else f"the agent on {host}" if failure["process"] == "agent" else None
    return f" after {who or failure['process']} {'left' if well(failure) else 'failed'}"


def _span(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(number) for number in numbers)
