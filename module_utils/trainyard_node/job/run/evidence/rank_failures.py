# SPDX-License-Identifier: Apache-2.0
"""Turn the exits of a job's processes on this node into failures: of which rank, and why, by their logs.

The ranks may have written anything into files and logs. Times are seconds since the epoch.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .....trainyard.base.shapes import TIME, Message, misfit
from .....trainyard.job.record.masking import Forms, mask_text
from .....trainyard.job.run.logs import causes, failures
from .....trainyard.job.run.wire import messages
from ....machine.json_files import end_of, keep_json
from ....machine.tree import Tree
from ..ranks import agent_ranks, oom_kills
from ..ranks.disk_space import full, shared_memory
from ..ranks.rank_exits import Exit, read_exits
from . import device_holders, port_holder
from .held_exits import HeldExits

# How long an agent may take to end after one of its ranks failed, where no other rank takes time to save.
AGENT_S = 1.5


class Failures:
    """The failures of one node's processes."""

    def __init__(self, job_dir: Path, node_plan: Message, hidden: Forms) -> None:
        """Take the node plan, and the secrets that no report may show."""
        self.job_dir, self.node_plan, self.host = job_dir, node_plan, node_plan["host"]
        self._hidden, self._unit = hidden, node_plan.get("unit", "")
        self._held, self._oom_before = HeldExits(node_plan), self._oom_kills()
        self._beside: str | None = None

    def begin_attempt(self) -> None:
        """Begin an attempt: earlier kills by the OOM killer and lines of launchers do not count for it."""
        self._held.begin_attempt()
        self._beside = None
        self._oom_before = self._oom_kills()
        if self.node_plan.get("launcher") == "mpirun":
            # For its ranks, whose ends are in mpirun's log on another node (execute.py).
            keep_json(self.job_dir / oom_kills.BEFORE, self._oom_before)

    def _oom_kills(self) -> dict[str, int]:
        return oom_kills.read(Tree(), self._unit)

    def end_of(self, log: str | Path, most: int = 1 << 20) -> str:
        """Return the end of a log, with secrets masked."""
        return mask_text(end_of(log, most), self._hidden)

    def corrected(self, exits: dict[str, Exit]) -> dict[str, Exit]:
        """Correct the exit of an mpirun that ended with 0 and has failed.

        mpirun of Open MPI 5 (PRRTE 3.0.8) prints that it lost a daemon, and so that node's ranks, and ends with 0.
        """
        for process in self.node_plan["processes"]:
            ended = exits.get(process["name"], {})
            if process["name"] == "mpirun" and ended.get("result") == "success":
                cause = failures.root_cause(self.end_of(process["log"]))
                if cause and cause.get("reason"):
                    exits["mpirun"] = {**ended, "result": "exit-code"}
        return exits

    def by_rank(self, exits: Mapping[str, Exit]) -> dict[str, Exit]:
        """Return, by name, the coming exits of launchers of which a rank has failed: others may still save.

        torchrun's agent knows of the failure itself, and mostly ends before AGENT_S is over.
        """
        coming, ended = {}, {"exit_code": 1, "signal": None, "result": "exit-code"}
        for process in self.node_plan["processes"]:
            if process["name"] in exits:
                continue
            cause, failed_at = agent_ranks.cause(self._noted(process)), self._held.failed_at(process)
            if cause and time.time() - cause["time"] > AGENT_S:
                failed_at = cause["time"]
            if failed_at is not None:
                coming[process["name"]] = {**ended, "time": failed_at}
        return coming

    def rank_0_ended_well(self, exits: Mapping[str, Exit]) -> bool | None:
        """Return whether rank 0 ended with status 0; None where that is not known (yet), as of the ranks of mpirun."""
        process = next((each for each in self.node_plan["processes"] if 0 in each["ranks"]), None)
        if process is None or process["name"] == "mpirun":
            return None
        ended = self._noted(process).get(0) or (exits.get(process["name"]) if len(process["ranks"]) == 1 else None)
        return None if ended is None else ended.get("result") == "success"

    def first_well(self, exits: Mapping[str, Exit]) -> Message | None:
        """Return the first process with ranks that ended well, which may have been too early for the other ranks."""
        ended = []
        for process in self.node_plan["processes"]:
            name, ranks, own = process["name"], process["ranks"], exits.get(process["name"], {})
            # When which rank ended; a rank of None: all of them.
            ends: list[tuple[int | None, Any]] = []
            if ranks and own.get("result") == "success":
                ends.append((ranks[0] if len(ranks) == 1 else None, own.get("time")))
            # An agent remains after its ranks, until the ranks of other nodes have ended.
            ends += agent_ranks.left(self._noted(process)).items()
            if name == "mpirun" and own.get("result", "success") != "success":
                # All ranks are this one process; its log names those that had left before it failed.
                left = failures.mpirun_left(self.end_of(process["log"]))
                ends += [(rank, own.get("time")) for rank in left if rank in ranks]
            common = {"host": self.host, "process": name, "ranks": ranks}
            ended += [{**common, "rank": rank, "time": at} for rank, at in ends]
        # The ranks may have written anything.
        valid = [each for each in ended if not misfit(each["time"], TIME)]
        return min(valid, key=lambda each: each["time"], default=None)

    def _noted(self, process: Message) -> dict[int, Exit]:
        return agent_ranks.noted(process, read_exits(self.job_dir)) if process["name"] == "agent" else {}

    def missed(self, found: Sequence[Message]) -> list[Message]:
        """Return the failure of a rank that MindSpore's scheduler misses, where ranks have lost a peer.

        The scheduler itself ends later.
        """
        if any(record["process"] == "scheduler" for record in found) or not any(record.get("lost") for record in found):
            return []
        schedulers = [process for process in self.node_plan["processes"] if process["name"] == "scheduler"]
        causes_found = [failures.root_cause(self.end_of(process["log"])) or {} for process in schedulers]
        record = {"kind": "exit", "host": self.host, "process": "scheduler", "ranks": [], "exit_code": None,
                  "result": "exit-code", "recover_after_s": None}  # fmt: skip
        return [
            {**record, **cause, "time": time.time()}
            for cause in causes_found
            if cause.get("reason") and cause["rank"] in range(self.node_plan["world_size"])
        ]

    def _device_holders(self, error: str) -> str:
        """Return who else holds the devices, once in an attempt, where a rank got no memory of its device."""
        if not self.node_plan.get("devices") or not causes.no_device_memory(error):
            return ""
        if self._beside is None:
            self._beside = device_holders.beside(self.node_plan["devices"], self.node_plan["job_id"])
        return self._beside

    def _evidence(self, process: Message, rank: int | None, log: str) -> dict[str, str]:
        """Return what the log says of the failure (restart_rules.evidence)."""
        # A rank seldom fails, and its expressions take time to compile.
        from .....trainyard.job.run.decide.restart_rules import evidence

        found = evidence(log)
        if process["name"] == "mpirun" and rank is not None and not found:
            found = failures.mpirun_evidence(self.end_of(process["log"]), rank)
        return found

    def failure(self, process: Message, ended: Exit, unsaved: str) -> Message:
        """Return the failure of a process with this exit; `unsaved` is why this node's state could not be written."""
        # The agent names the rank that failed; where none did, it failed itself, or was killed.
        by_agent = process["name"] == "agent" and self.node_plan.get("launcher") in ("torchrun", "msrun")
        record: Message = {
            "kind": "exit",
            "host": self.host,
            "process": process["name"],
            "ranks": process["ranks"],
            "rank": None if by_agent or len(process["ranks"]) != 1 else process["ranks"][0],
            "recover_after_s": process.get("recover_after_s"),
            **ended,
        }
        # The ranks may have written anything.
        shape = messages.failure_shape(self.host, self.node_plan["world_size"])
        if misfit(record, shape):
            record = {key: value for key, value in record.items() if key not in ended}
            record.update(exit_code=None, signal=None, result="unreadable", time=time.time())
        if not process["name"].startswith("rank"):
            cause = agent_ranks.cause(self._noted(process)) or failures.root_cause(self.end_of(process["log"]))
            if cause is not None:
                known = {key: value for key, value in cause.items() if value is not None or key != "time"}
                blamed = {**record, **known, "result": "signal" if cause["signal"] else "exit-code"}
                record = record if misfit(blamed, shape) else blamed
        # Ranks of mpirun write their logs on other nodes.
        name = self.node_plan["rank_log"].replace("{rank}", str(record["rank"]))
        log = self.end_of(process["log"] if record["rank"] is None else self.job_dir / "logs" / name, 1 << 16)
        log = failures.of_last_attempt(log)
        taken = port_holder.in_use(log, self.node_plan["port"])
        reasons = [record.get("reason"), taken, full(self.job_dir, self.host, unsaved)]
        if record["rank"] is not None and record["signal"] != signal.SIGKILL:
            lost = causes.lost_peer(log)
            if process["name"] == "mpirun":
                lost = lost or failures.mpirun_lost_peer(self.end_of(process["log"]), record["rank"])
            no_room = "" if lost else causes.no_room(log)
            record = {**record, **({"lost": lost} if lost else {"full": True} if no_room else {})}
            if not lost:
                reasons.insert(0, no_room or (causes.abort(log) if failures.aborted(record) else ""))
        if not record.get("lost") and record["signal"] != signal.SIGKILL:
            record.update(self._evidence(process, record["rank"], log))
        elsewhere = any(record["rank"] in ranks for ranks in (self.node_plan.get("ranks_of") or {}).values())
        error = f"{reasons[0]} {record.get('error')} {record.get('doubt')}"
        error = "Bus error" if record["signal"] == signal.SIGBUS else error
        used = "" if elsewhere else shared_memory(self.host, error)
        reasons.append("" if elsewhere else self._device_holders(error))
        reason = "; ".join(filter(None, reasons))
        reason = reason if used in reason else f"{reason}; {used}".removeprefix("; ")
        record = {**record, "reason": reason} if reason else record
        # The head knows on which node a rank of mpirun is.
        if elsewhere:
            return {**record, **failures.mpirun_oom_kills(self.end_of(process["log"]), record["rank"])}
        return {**record, **oom_kills.since(self._oom_before, self._oom_kills())}
