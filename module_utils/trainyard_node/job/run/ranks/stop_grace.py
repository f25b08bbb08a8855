# SPDX-License-Identifier: Apache-2.0
"""Give the ranks of this node time to save before they are ended. Times are seconds on the monotonic clock.

Each rank's own program gets the job's stop signal, once: not the processes that it has started, such as data loader
workers, which would end under it; and not what starts ranks (shells, torchrun's agent, mpirun), which would end them.
A program without a handler for this signal ends by it at once. One that has a handler may take `grace_s`.

Files in the job's folder: ranks/RANK, "PID START", by a rank that an agent or mpirun starts (execute.py);
asked/PID-START, the time at which a program was asked: torchrun's agent asks its ranks, too, when one has failed. While
the folder asked/ is there, start scripts of ranks hold their exits back (launchers/held_exit.py): it is made also where
no rank is left to ask.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .....trainyard.job.run.measure.saving import MAX_NAMED, grace_s
from ....machine.json_files import open_regular
from . import process_table
from .container import BETWEEN
from .execute import SHELLS

if TYPE_CHECKING:
    # An agent loads this module in an image, whose Python may be too old for the other ones.
    from .....trainyard.base.shapes import Message

# Upper bound of a note, in bytes.
_NOTE = 64
# Processes of plans that start ranks, which note their own process.
_STARTERS = ("agent", "mpirun")


class Asked(NamedTuple):
    """A program with a handler that was asked to end, when, and when it had left."""

    rank: int
    at: float
    left_at: float | None = None


def of_plan(node_plan: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of the job's stop signal, and how long its ranks may take to save."""
    name = (node_plan.get("stop") or {}).get("signal", "TERM")
    return int(signal.Signals[f"SIG{name}"]), grace_s(node_plan)


def programs(pid: int, children: Mapping[int, Sequence[int]], starts: Callable[[int], bool]) -> list[int]:
    """Return this process, or, where it only starts others, the first below it that do not."""
    if not starts(pid):
        return [pid]
    return [each for child in children.get(pid, ()) for each in programs(child, children, starts)]


def _starts(pid: int) -> bool:
    """Return whether a process is a shell, a container program, or our runtime that waits for one of them."""
    argv = process_table.arguments(pid)
    ours = any(word.endswith("/trainyard.pyz") for word in argv[:4])
    return ours or process_table.name(pid) in SHELLS or process_table.name(pid) in BETWEEN


def ask_once(job_dir: str | os.PathLike[str], pid: int, started: int, number: int) -> float:
    """Send a process the stop signal unless somebody has; return when it was sent."""
    path, now = Path(job_dir, "asked", f"{pid}-{started}"), time.monotonic()
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x", encoding="ascii") as note:
            note.write(f"{now:.2f}")
    except FileExistsError:
        return min(now, _asked_at(path, now))
    except OSError:
        # A full disk: the signal may come twice.
        pass
    process_table.send(pid, started, number)
    # A stopped process takes no signal before it continues.
    process_table.send(pid, started, signal.SIGCONT)
    return now


def _asked_at(path: Path, otherwise: float) -> float:
    try:
        with open_regular(path) as note:
            return float(note.read(_NOTE))
    except (OSError, ValueError):
        return otherwise


def ask_rank(job_dir: str, node_plan: Mapping[str, Any], pid: int) -> bool:
    """Ask a rank to end that its agent ends; return whether it handles the stop signal, and so gets the time to save.

    The agent would send SIGTERM to all processes of the rank.
    """
    number, patience_s = of_plan(node_plan)
    started = process_table.start_time(pid)
    if not patience_s or started is None or not process_table.handles(pid, number):
        return False
    ask_once(job_dir, pid, started, number)
    return True


def await_rank(job_dir: str, node_plan: Mapping[str, Any], pid: int) -> None:
    """Wait until a rank that was asked to end has ended, or its time is over."""
    started = process_table.start_time(pid)
    patience_s = of_plan(node_plan)[1]
    until = _asked_at(Path(job_dir, "asked", f"{pid}-{started}"), time.monotonic() - patience_s) + patience_s
    while process_table.start_time(pid) == started and time.monotonic() < until:
        time.sleep(0.1)


class StopGrace:
    """The ranks of this node between the stop signal and their end."""

    def __init__(self, job_dir: Path, node_plan: Message, main: Callable[[str], Message | None]) -> None:
        """Take the node plan; `main` returns the process id and start time of a process of the plan."""
        self._signal, self._grace_s = of_plan(node_plan)
        self._job_dir, self._node_plan, self._main = job_dir, node_plan, main
        # By process id and start time; None before anything was asked.
        self._asked: dict[tuple[int, int], Asked] | None = None
        self._since = 0.0

    def begin(self) -> None:
        """Begin an attempt."""
        self._asked = None
        shutil.rmtree(self._job_dir / "asked", ignore_errors=True)

    def over(self, now: float) -> bool:
        """Ask all ranks to end, if that was not done yet; return whether none is left that may still save."""
        if not self._grace_s:
            return True
        if self._asked is None:
            self._since, self._asked = now, {}
            with contextlib.suppress(OSError):
                (self._job_dir / "asked").mkdir(exist_ok=True)
            for rank, pid, started in self._ranks():
                self._ask(rank, pid, started)
        for program, asked in self._asked.items():
            if asked.left_at is None and process_table.start_time(program[0]) != program[1]:
                self._asked[program] = asked._replace(left_at=now)
        return self._all_left(now)

    def _all_left(self, now: float) -> bool:
        asked = (self._asked or {}).values()
        return all(each.left_at is not None or now - each.at > self._grace_s for each in asked)

    def expired(self, now: float) -> bool:
        """Return whether no rank of the job may take longer, whatever was said of other nodes."""
        return not self._grace_s or (self._asked is not None and now - self._since > self._grace_s)

    @property
    def left(self) -> bool | None:
        """Whether nothing runs here any more that may still save; None where nothing was asked to end."""
        return None if self._asked is None else self._all_left(time.monotonic())

    def left_for(self, rank: int, now: float) -> float | None:
        """Return for how long a rank that handles the signal has left by itself; None where it has not."""
        left = [each.left_at for each in (self._asked or {}).values() if each.rank == rank]
        times = [at for at in left if at is not None]
        return now - max(times) if times and len(times) == len(left) else None

    def record(self) -> Message | None:
        """Return how many programs were asked that handle the signal, and how they left; None where none was."""
        if not self._asked:
            return None
        left = [each for each in self._asked.values() if each.left_at is not None]
        last = max(left, key=lambda each: each.left_at - each.at, default=None)  # type: ignore[operator]
        stayed = sorted({each.rank for each in self._asked.values() if each.left_at is None})
        return {
            "asked": len(self._asked),
            "last": None if last is None else last.rank,
            "last_s": None if last is None or last.left_at is None else round(max(0.0, last.left_at - last.at), 1),
            "stayed": stayed[:MAX_NAMED],
        }

    def _ranks(self) -> Iterator[tuple[int, int, int]]:
        """Return rank, process id and start time of the ranks that run here."""
        for process in self._node_plan["processes"]:
            is_rank = len(process["ranks"]) == 1 and process["name"] not in _STARTERS
            main = self._main(process["name"]) if is_rank else None
            if main and type(main.get("start_time")) is int:
                yield process["ranks"][0], main["pid"], main["start_time"]
        yield from _noted(self._job_dir / "ranks", int(self._node_plan["world_size"]))

    def _ask(self, rank: int, pid: int, started: int) -> None:
        if process_table.start_time(pid) != started:
            return
        found = programs(pid, process_table.children() if _starts(pid) else {}, _starts)
        handle = [each for each in found if process_table.handles(each, self._signal)]
        # Beside a program that handles it, `tee` and the like must not end before it.
        for each in handle or found:
            began = process_table.start_time(each)
            if began is not None:
                at = ask_once(self._job_dir, each, began, self._signal)
                if handle and self._asked is not None:
                    self._asked[each, began] = Asked(rank, at)


def _noted(folder: Path, world_size: int) -> Iterator[tuple[int, int, int]]:
    """Return the ranks that have noted their process: the folder is their user's, who may write anything."""
    try:
        notes = sorted(folder.iterdir())
    except OSError:
        return
    for path in notes:
        try:
            with open_regular(path) as note:
                rank, pid, started = int(path.name), *map(int, note.read(_NOTE).split())
        except (OSError, ValueError, TypeError):
            continue
        if 0 <= rank < world_size and pid > 1:
            yield rank, pid, started
