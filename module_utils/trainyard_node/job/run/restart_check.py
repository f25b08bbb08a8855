# SPDX-License-Identifier: Apache-2.0
"""What of this node stands in the way of a restart: who has its devices (device_holders.py), and the gate (gate.py)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...machine.tree import Tree
from .device_holders import LOOK_S, held
from .supervisors import LOOKING

if TYPE_CHECKING:
    from ....trainyard.findings.findings import Finding
    from .health_gate import Earlier

# What is told of faults, in characters.
MOST_TEXT = 400


class Obstacle(NamedTuple):
    """What stands in the way of a restart: who holds the devices, what the node does not pass; both "" where nothing.

    `waits`: all of that may go by itself. `suspect` is in nobody's way, but speaks for another node.
    """

    held: str = ""
    refused: str = ""
    waits: bool = False
    suspect: str = ""


class RestartCheck:
    """Looks in a thread of its own, as drivers and disks may not answer for long."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Know nothing yet; nobody holds the devices of a job that begins now."""
        self._spec, self._devices = spec, list(spec.get("devices", ()))
        self._whole = bool(spec.get("gate"))
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._earlier: Earlier | None = None
        self._thread: threading.Thread | None = None
        self._at, self._turn = 0.0, 0
        # For which turn the devices have added up numbers, and what was found.
        self._sums: tuple[int, list[Finding]] | None = None
        self._found: Obstacle | None = None
        # A look is under way, with processes that are this monitor's children as ranks may be.
        self.running = False
        # Called from the thread when something is known.
        self.notify: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Note, for restarts, how the ports are and what tools complain of as long as nothing has failed."""
        if self._whole:
            self._thread = threading.Thread(target=self._note, name="gate", daemon=True)
            self._thread.start()

    def result(self) -> Obstacle | None:
        """Return what stands in the way of a restart, None where that is not known yet."""
        if not self._devices and not self._whole:
            return Obstacle()
        if self._found and not (self._found.held or self._found.refused):
            return self._found
        if not (self._thread and self._thread.is_alive()) and time.monotonic() - self._at >= LOOK_S:
            self._thread = threading.Thread(target=self._look, args=[self._turn], name="gate", daemon=True)
            self.running = True
            self._thread.start()
        return self._found

    def forget(self) -> None:
        """Know nothing, so that the next answer is of a look that begins from now on."""
        self._found, self._at = None, 0.0
        self._turn += 1

    def _note(self) -> None:
        with LOOKING, _said():
            from . import health_gate as gate

            self._earlier = gate.note(Tree(), self._spec)

    def _look(self, turn: int) -> None:
        try:
            with LOOKING:
                found = self._seen(turn)
        finally:
            self.running = False
        if turn == self._turn:
            self._found, self._at = found, time.monotonic()
            self.notify()

    def _seen(self, turn: int) -> Obstacle:
        found = Obstacle(held(self._devices, self._since) if self._devices else "")
        if self._whole and not found.held:
            with _said():
                from . import health_gate as gate

                tree, earlier = Tree(), self._earlier or gate.Earlier()
                faults = gate.look(tree, self._spec, gate.read_machine(tree, self._spec), earlier)
                if not faults:
                    # Once is enough for a restart that waits for others.
                    if not self._sums or self._sums[0] != turn:
                        self._sums = turn, gate.collective_findings(self._spec)
                    faults = self._sums[1]
                links = gate.links(tree, self._spec, earlier.ports)
                told = "; ".join(gate.texts(faults))[:MOST_TEXT]
                waits = bool(faults) and all(fault.check in gate.PASSING for fault in faults)
                found = Obstacle("", told, waits, gate.bad_links(earlier, links)[:MOST_TEXT])
                if not faults and turn == self._turn:
                    # The next attempt begins with these.
                    self._earlier = gate.later(earlier, links)
        return found


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """Whatever broke, it is the check and not the node; it is said in the monitor's log."""
    try:
        yield
    except Exception as error:
        print(f"the gate could not be looked at: {error!r}", flush=True)
