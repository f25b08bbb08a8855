# SPDX-License-Identifier: Apache-2.0
"""Check this node before a restart: free devices (device_holders.py) and health (health_gate.py)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ....machine.tree import Tree
from ..evidence.device_holders import CHECK_S, held
from ..ranks.supervisor import OWN_CHILDREN

if TYPE_CHECKING:
    from .....trainyard.base.findings import Finding
    from ..evidence.health_gate import Earlier

# Upper bound for the text of findings, in characters.
MAX_TEXT = 400


class Obstacle(NamedTuple):
    """The reasons against a restart: `held` names the holder of devices, `excluded` the findings of the health check.

    `temporary`: the findings may go away by themselves. `suspect` is no obstacle, but a spare would be better.
    """

    held: str = ""
    excluded: str = ""
    temporary: bool = False
    suspect: str = ""


class RestartCheck:
    """A check in a thread of its own, as drivers and disks may take long to answer."""

    def __init__(self, node_plan: Mapping[str, Any]) -> None:
        """Take the node plan. Nobody holds the devices of a job that begins now."""
        self._node_plan, self._devices = node_plan, list(node_plan.get("devices", ()))
        # A job that shares its devices waits for its own processes alone.
        self._of_job = str(node_plan["job_id"]) if node_plan.get("busy_devices") == "share" else ""
        self._checks_health = bool(node_plan.get("health_gate"))
        self._since = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._earlier: Earlier | None = None
        self._thread: threading.Thread | None = None
        self._at, self._turn = 0.0, 0
        # The turn for which the devices have run a collective, and its findings.
        self._collective: tuple[int, list[Finding]] | None = None
        self._found: Obstacle | None = None
        # A check is running; its processes are children of this monitor, as ranks may be.
        self.running = False
        # The thread calls it when there is a result.
        self.notify: Callable[[], object] = lambda: None

    def begin(self) -> None:
        """Note the state of ports and the output of tools before anything has failed."""
        if self._checks_health:
            self._thread = threading.Thread(target=self._note, name="health_gate", daemon=True)
            self._thread.start()

    def result(self) -> Obstacle | None:
        """Return the obstacle to a restart; None where there is no result yet."""
        if not self._devices and not self._checks_health:
            return Obstacle()
        if self._found and not (self._found.held or self._found.excluded):
            return self._found
        if not (self._thread and self._thread.is_alive()) and time.monotonic() - self._at >= CHECK_S:
            self._thread = threading.Thread(target=self._check, args=[self._turn], name="health_gate", daemon=True)
            self.running = True
            self._thread.start()
        return self._found

    def forget(self) -> None:
        """Drop the result: the next one comes from a check that begins after this call."""
        self._found, self._at = None, 0.0
        self._turn += 1

    def _note(self) -> None:
        with OWN_CHILDREN, _logged():
            from ..evidence import health_gate

            self._earlier = health_gate.note(Tree(), self._node_plan)

    def _check(self, turn: int) -> None:
        try:
            with OWN_CHILDREN:
                found = self._obstacle(turn)
        finally:
            self.running = False
        if turn == self._turn:
            self._found, self._at = found, time.monotonic()
            self.notify()

    def _obstacle(self, turn: int) -> Obstacle:
        holders = held(self._devices, self._since, of_job=self._of_job) if self._devices else ""
        found = Obstacle(holders)
        if holders or not self._checks_health:
            return found
        with _logged():
            from ..evidence import health_gate

            tree, earlier = Tree(), self._earlier or health_gate.Earlier()
            machine = health_gate.read_machine(tree, self._node_plan)
            findings = health_gate.check(tree, self._node_plan, machine, earlier)
            if not findings:
                # Once is enough while a restart waits for other nodes.
                if not self._collective or self._collective[0] != turn:
                    self._collective = turn, health_gate.collective_findings(self._node_plan)
                findings = self._collective[1]
            links = health_gate.links(tree, self._node_plan, earlier.ports)
            text = "; ".join(health_gate.texts(findings))[:MAX_TEXT]
            temporary = bool(findings) and all(finding.check in health_gate.PASSING for finding in findings)
            found = Obstacle("", text, temporary, health_gate.bad_links(earlier, links)[:MAX_TEXT])
            if not findings and turn == self._turn:
                # The next check compares with these.
                self._earlier = health_gate.later(earlier, links)
        return found


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Write an error of the check itself into the monitor's log: it is no finding about the node."""
    try:
        yield
    except Exception as error:
        print(f"the health check did not run: {error!r}", flush=True)
