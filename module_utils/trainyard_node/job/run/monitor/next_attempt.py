# SPDX-License-Identifier: Apache-2.0
"""Bring this node from one attempt of a job to the next: end the last one, check the node, write what is new."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .....trainyard.base.shapes import Message
from .....trainyard.job.run.decide.restarts import WHOLE, Attempts
from ....machine.json_files import open_regular, write_json, write_text
from ..ranks.rank_exits import Exit, read_attempts, turn
from ..ranks.supervisor import Terminator
from .restart_check import Obstacle, RestartCheck


class Step(NamedTuple):
    """Whether this node is ready for the attempt that the head wants, and the processes to start now, if it begins."""

    ready: bool
    start: list[str] | None = None
    # All processes of all nodes start again.
    whole: bool = False


class NextAttempt:
    """Which attempt runs on this node, and which one the head has requested."""

    def __init__(self, job_dir: Path, node_plan: Message, terminator: Terminator) -> None:
        """Take the node plan, which changes here when a spare takes a place."""
        self._job_dir, self.node_plan, self._host = job_dir, node_plan, node_plan["host"]
        self._terminator = terminator
        self.attempts: Attempts = read_attempts(job_dir) or {WHOLE: 0}
        self.requested, self.go = self.attempts, True
        # Ranks of other nodes may still save.
        self.saving = False
        self.check, self.obstacle = RestartCheck(node_plan), Obstacle()
        # What stands in the way of a restart, as a failure.
        self.cannot_write: Message | None = None
        # The node rank that this spare has taken, and those of its processes that have not run yet.
        self.place: int | None = node_plan.get("place")
        self.fresh: set[str] = set()
        # The addresses of spares that have taken a place, by the addresses that they replaced (moved_addresses.py).
        self.moved: Mapping[str, str] = {}
        # The places that nobody has (remaining_nodes.py).
        self._absent: Sequence[int] = ()
        # The ranks of this node; None where they never change.
        self.ranks: list[int] | None = None
        # The attempts for which nothing of an earlier one was left here.
        self._cleared_for: Mapping[str, int] | None = None

    def request(self, message: Message) -> bool:
        """Take what the head wants to run here; return whether that is new."""
        self.moved = message.get("moved", self.moved)
        if "attempts" in message:
            # An empty message means that nothing is new.
            self.saving, self._absent = message.get("saving", False), message.get("absent", ())
        took_place = "place" in message and self.take_place(message["place"], message["attempts"])
        requested = message.get("attempts", self.requested), message.get("go", self.go)
        changed = requested != (self.requested, self.go)
        self.requested, self.go = requested
        return changed or took_place

    def has_rank_0(self) -> bool:
        """Return whether rank 0 is one of this node in the attempt that the head wants."""
        if "fewer" not in self.node_plan:
            return any(0 in process["ranks"] for process in self.node_plan["processes"])
        # Few monitors ever need it, and all would load it.
        from .....trainyard.job.run.lead import node_numbers

        return 0 in node_numbers.ranks_of(self.node_plan, self._absent)

    def advance(self, exits: Mapping[str, Exit]) -> Step:
        """Go towards the requested attempt; `exits` are how processes have ended."""
        if self.requested == self.attempts:
            return Step(ready=True)
        names = [process["name"] for process in self.node_plan["processes"]]
        behind = [name for name in names if turn(self.requested, name) > turn(self.attempts, name)]
        whole = self.requested.get(WHOLE, 0) > self.attempts.get(WHOLE, 0)
        if (whole and not self._cleared()) or not self._ended(behind, exits, whole):
            return Step(ready=False)
        if not self.go:
            return Step(ready=True)
        # By attempts.json each process knows which attempt it is.
        if (whole and not self._write_members()) or not self._write("attempts.json", self.requested):
            return Step(ready=False)
        if whole:
            shutil.rmtree(self._job_dir / "attempt", ignore_errors=True)
            # Ranks may have other numbers now.
            behind = [process["name"] for process in self.node_plan["processes"]]
        self.obstacle, self.attempts = Obstacle(), self.requested
        self.fresh.clear()
        return Step(ready=True, start=behind, whole=whole)

    def _cleared(self) -> bool:
        """End what is left of the last attempt and check the node; return whether the next one may start here."""
        cleared = self._cleared_for == self.requested
        # Again and again, as a process that was to start late may start only now. But once where only the head starts
        # ranks (mpirun): those of the next attempt may be here before its message to go is.
        if cleared and not self.node_plan["processes"]:
            return True
        if self._terminator.saving(time.monotonic(), elsewhere=self.saving):
            return False
        # Tools of the check look like ranks while they end.
        if not self.check.running and not self._terminator.terminate(time.monotonic()):
            self.check.forget()
            return False
        if not cleared:
            obstacle = self.check.result()
            self.obstacle = obstacle or Obstacle()
            if obstacle is None or obstacle.held or obstacle.excluded:
                return False
            # The next restart checks anew.
            self.check.forget()
        self._cleared_for = self.requested
        return True

    def _ended(self, behind: list[str], exits: Mapping[str, Exit], whole: bool) -> bool:
        """Return whether the processes that start again have ended, and those that start alone may."""
        for process in self.node_plan["processes"]:
            if process["name"] in behind and process["name"] not in self.fresh:
                ended = exits.get(process["name"])
                if not ended or (not whole and time.time() - ended["time"] < (process.get("recover_after_s") or 0)):
                    return False
        return True

    def take_place(self, place: int, attempts: Attempts) -> bool:
        """Become, as a spare, the node of this node rank; return whether that is new."""
        planned = self.node_plan.get("places", {}).get(str(place))
        if self.place is not None or planned is None:
            return False
        files = [{key: file[key] for key in file if key != "content"} for file in planned["files"]]
        changed = {**self.node_plan, "processes": planned["processes"], "place": place, "places": {}}
        changed["files"] = [*changed.get("files", ()), *(planned["files"] if "fewer" in changed else files)]
        written = all(self._write(file["path"], file["content"], int(file["mode"], 8)) for file in planned["files"])
        if not written or not self._write("node_plan.json", changed, 0o600):
            return False
        self.node_plan.update(changed)
        self.place, self.fresh = place, {process["name"] for process in planned["processes"]}
        # Its processes start with the attempts of the others.
        self.attempts = {WHOLE: max(0, attempts[WHOLE] - 1)}
        return True

    def _write_members(self) -> bool:
        """Write what changes with the nodes that take part into files and processes; return whether that worked."""
        return self._renumber() if "fewer" in self.node_plan else self._write_addresses()

    def _renumber(self) -> bool:
        """Number this node's ranks, of which it may have none for a while, by the places that nobody has."""
        # Few monitors ever need it, and all would load it.
        from .....trainyard.job.run.lead import moved_addresses, node_numbers

        processes, files = node_numbers.of_node(self.node_plan, self._absent, self.moved)
        self.ranks = node_numbers.ranks_of(self.node_plan, self._absent)
        if not all(self._write(file["path"], content, int(file["mode"], 8)) for file, content in files):
            return False
        first = str(self.node_plan.get("planned_address", self.node_plan["head_address"]))
        changed = {
            "processes": processes,
            "planned": node_numbers.planned_processes(self.node_plan),
            "head_address": moved_addresses.text(first, self.moved),
            "planned_address": first,
        }
        if any(changed[name] != self.node_plan.get(name) for name in ("processes", "head_address")):
            if not self._write("node_plan.json", {**self.node_plan, **changed}, 0o600):
                return False
            self.node_plan.update(changed)
        return True

    def _write_addresses(self) -> bool:
        """Write the addresses of spares into files and processes that name the nodes; return whether that worked."""
        if not self.moved:
            return True
        # Few monitors ever need it, and all would load it.
        from .....trainyard.job.run.lead import moved_addresses

        for file in self.node_plan.get("files", ()):
            if file.get("lists_nodes"):
                try:
                    with open_regular(file["path"]) as opened:
                        before = opened.read().decode()
                    text = moved_addresses.file(file, before, self.moved)
                except (OSError, ValueError) as error:
                    self._cannot_write(f"{file['path']} cannot be read: {getattr(error, 'strerror', '') or error}")
                    return False
                if text != before and not self._write(file["path"], text, int(file["mode"], 8)):
                    return False
        processes = [moved_addresses.process(each, self.moved) for each in self.node_plan["processes"]]
        head_address = moved_addresses.text(self.node_plan["head_address"], self.moved)
        changed = {"processes": processes, "head_address": head_address}
        if any(changed[name] != self.node_plan[name] for name in changed):
            if not self._write("node_plan.json", {**self.node_plan, **changed}, 0o600):
                return False
            self.node_plan.update(changed)
        return True

    def _write(self, name: str, data: Message | str, mode: int = 0o644) -> bool:
        """Write what a restart needs; the report says where that is not possible."""
        try:
            if isinstance(data, str):
                write_text(self._job_dir / name, data, mode)
            else:
                write_json(self._job_dir / name, data, mode)
        except OSError as error:
            self._cannot_write(error.strerror or str(error))
        return self.cannot_write is None

    def _cannot_write(self, reason: str) -> None:
        folder = str(self._job_dir)
        self.cannot_write = {"kind": "cannot_write", "host": self._host, "folder": folder, "reason": reason[:500]}
