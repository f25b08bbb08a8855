# SPDX-License-Identifier: Apache-2.0
"""Have the monitors start mpirun's daemons, one on each other node, so that mpirun needs no ssh.

mpirun runs a script in place of ssh (launchers/mpirun.py). It leaves a request, which goes from the monitor of its node
through the head to the other node's; how the daemon ends goes the same way back, and the script ends as ssh would.

    report of mpirun's node   "asks": [{"number": 1, "attempt": 0, "address": "10.0.0.2", "command": "orted ..."}, ...]
    order to the other node   "start": [{"number": 1, "attempt": 0, "command": "orted ..."}]
    report of the other node  "daemons": [{"number": 1, "attempt": 0, "status": null, "said": ""}]
    order to mpirun's node    "asked": {"attempt": 0, "taken": 1, "ended": [{"number": 1, "status": 0, "said": ""}]}

Numbers count from 1 in each attempt, `attempt` counts those of the whole job. `status` is as in a shell, null while the
daemon runs, and `said` is the end of what a daemon printed that failed. An order holds until its answer is there; a new
head asks anew, and a node starts no number twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....base.shapes import NOTHING, Exact, Few, Shape, Text, Whole
from .restarts import WHOLE

# Requests in one report, and upper bounds in characters: of a command, and of what a daemon said.
MAX_ASKS, MAX_COMMAND, MAX_SAID = 64, 1 << 16, 300
# Upper bounds of an attempt: daemons on one node, as one address may be asked for again, and requests.
MAX_DAEMONS, MAX_NUMBER = 16, 1 << 20
# The status of a daemon for an address that no node of the job has, as that of ssh.
UNKNOWN = 255
_LARGE = 1 << 32
_NUMBER = {"number": Whole(_LARGE, 1), "attempt": Whole(_LARGE)}
_COMMAND = {"command": Text(MAX_COMMAND)}
_STATUS = {"status": (Whole(255), NOTHING), "said": Text(MAX_SAID)}
# Fields of a report and of an order; their lists are bounded.
REPORTED: Mapping[str, Shape] = {
    "?asks": Few(Exact({**_NUMBER, **_COMMAND, "address": Text(64)}), MAX_ASKS),
    "?daemons": Few(Exact({**_NUMBER, **_STATUS}), MAX_DAEMONS),
}
ORDERED: Mapping[str, Shape] = {
    "?start": Few(Exact({**_NUMBER, **_COMMAND}), MAX_DAEMONS),
    "?asked": Exact(
        {
            "attempt": Whole(_LARGE),
            "taken": Whole(_LARGE),
            "ended": Few(Exact({"number": Whole(_LARGE, 1), **_STATUS}), MAX_NUMBER),
        }
    ),
}


class Daemons:
    """The daemons of one attempt of the job, as the head knows them."""

    def __init__(self, node_plan: Mapping[str, Any]) -> None:
        """Take the node plan of the head, which has the address of each host."""
        self._enabled = node_plan.get("launcher") == "mpirun"
        self._hosts = {address: host for host, address in node_plan.get("addresses", {}).items()}
        self._attempt, self._taken = 0, 0
        # By number: the requests that were not answered, with their hosts; and how daemons have ended.
        self._starting: dict[int, tuple[str, Mapping[str, Any]]] = {}
        self._ended: dict[int, dict[str, Any]] = {}
        # Rises with each change of which a node has to know.
        self.changes = 0

    def receive(self, host: str, report: Mapping[str, Any], first: str, attempts: Mapping[str, int]) -> None:
        """Take a report; only the `first` node, which runs mpirun, may ask."""
        if not self._enabled:
            return
        if attempts[WHOLE] != self._attempt:
            self._attempt, self._taken, self._starting, self._ended = attempts[WHOLE], 0, {}, {}
        for ask in report.get("asks", ()) if host == first else ():
            self._take(ask)
        for daemon in report.get("daemons", ()):
            if daemon["attempt"] == self._attempt:
                self._note(host, daemon)

    def _take(self, ask: Mapping[str, Any]) -> None:
        if ask["attempt"] != self._attempt or ask["number"] != self._taken + 1:
            return
        self._taken, self.changes = ask["number"], self.changes + 1
        target = self._hosts.get(ask["address"])
        if target is None:
            said = f"no node of the job has the address {ask['address']}"
            self._ended[ask["number"]] = {"number": ask["number"], "status": UNKNOWN, "said": said}
        else:
            self._starting[ask["number"]] = target, {key: ask[key] for key in ("number", "attempt", "command")}

    def _note(self, host: str, daemon: Mapping[str, Any]) -> None:
        number = daemon["number"]
        if self._starting.get(number, ("", {}))[0] == host:
            del self._starting[number]
            self.changes += 1
        if daemon["status"] is not None and number not in self._ended:
            self._ended[number] = {key: daemon[key] for key in ("number", "status", "said")}
            self.changes += 1

    def order(self, host: str, first: str) -> dict[str, Any]:
        """Return what a node has to do, and what the first one has to know."""
        starts = [start for target, start in self._starting.values() if target == host][:MAX_DAEMONS]
        known = {"attempt": self._attempt, "taken": self._taken, "ended": list(self._ended.values())}
        return {
            **({"start": starts} if starts else {}),
            **({"asked": known} if host == first and self._enabled else {}),
        }


def unanswered(asks: Sequence[Mapping[str, Any]], attempt: int, asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the first requests of an attempt that the head has not taken, by its order `asked`."""
    taken = asked.get("taken", 0) if asked.get("attempt") == attempt else 0
    return [ask for ask in asks if ask["number"] > taken][:MAX_ASKS]
