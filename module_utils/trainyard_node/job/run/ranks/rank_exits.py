# SPDX-License-Identifier: Apache-2.0
"""Read and write how the processes of a job ended: one JSON file for each, `exits/<name>.json` in the job's folder.

    {"exit_code": 1 | null, "signal": null | 9, "result": "exit-code", "time": 1790000000.0}

`result` is systemd's term (success, exit-code, signal, resources), and `lost` where the process went down with its
node. In a job with restarts `attempt` tells which run ended. torchrun's agent adds a file for each of its ranks
(agent_process.py); `by_agent` is true where the agent ended the rank. Before a process ends, its file holds `{}`: a
full disk has room for its end.
"""

from __future__ import annotations

import os
import time

from ....machine.json_files import MAX_EXIT, read_object

# Every rank imports this module: typing and pathlib would double its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Exit = dict[str, Any]
    AnyPath = str | os.PathLike[str]
else:
    Exit = dict

# Room for the end of a job in its state, in bytes: on a full disk it replaces spaces at the end of the file.
ROOM = 8 << 10


def read_attempts(job_dir: AnyPath) -> dict[str, int]:
    """Read how often each process of this node was started again; empty where nothing can be read."""
    found = read_object(f"{job_dir}/attempts.json")
    return {name: count for name, count in found.items() if type(count) is int}


def from_status(status: int) -> Exit:
    """Translate subprocess's return code (negative: a signal)."""
    if status < 0:
        return {"exit_code": None, "signal": -status, "result": "signal", "time": time.time()}
    return {"exit_code": status, "signal": None, "result": "exit-code" if status else "success", "time": time.time()}


def lost() -> Exit:
    """Return the record of a process whose end is unknown."""
    return {"exit_code": None, "signal": None, "result": "lost", "time": time.time()}


def read_exits(job_dir: AnyPath) -> dict[str, Exit]:
    """Read how the processes of a job ended, by name; without processes that run (again)."""
    # Each rank loads this module to write its exit, and needs none of it.
    from .....trainyard.base.shapes import TIME, misfit

    attempts, exits = read_attempts(job_dir), {}
    try:
        files = sorted(os.listdir(f"{job_dir}/exits"))
    except OSError:
        return {}
    for file in files:
        name, kind = os.path.splitext(file)
        path = f"{job_dir}/exits/{file}"
        ended = read_object(path, MAX_EXIT) if kind == ".json" and not name.startswith(".") else {}
        # The folder belongs to the job's user, who may write anything.
        if not isinstance(ended.get("result"), str) or misfit(ended.get("time"), TIME):
            continue
        if not attempts or ended.get("attempt", 0) == turn(attempts, name):
            exits[name] = ended
    return exits


def ranks_ended(processes: Sequence[Mapping[str, Any]], exits: Mapping[str, Exit]) -> dict[int, bool]:
    """Return the ranks of processes that have ended, and whether they ended well."""
    ended = [process for process in processes if process["name"] in exits]
    return {rank: exits[each["name"]]["result"] == "success" for each in ended for rank in each["ranks"]}


def turn(attempts: Mapping[str, int], name: str) -> int:
    """Return how often a process was started again: with the whole job ("") and alone."""
    return attempts.get("", 0) + attempts.get(name, 0)
