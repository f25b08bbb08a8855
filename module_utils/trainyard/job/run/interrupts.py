# SPDX-License-Identifier: Apache-2.0
"""Decide what Ctrl-C means at each moment of a launch or a watch, and what becomes of the job.

There are four answers: not started; starting, with what becomes of it; goes on without you; already ended. A first
Ctrl-C leaves at once only where nothing was started. Everywhere else it waits for what the nodes say, so that the
answer is a fact; a second one leaves without it, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...findings.adhoc import playbook


class Phase(Enum):
    """How far the command is with its job."""

    # Nothing of the job has been started.
    PREPARING = "preparing"
    # Which job is meant is still to be found.
    FINDING = "finding"
    # Its nodes are told to start it.
    STARTING = "starting"
    WATCHING = "watching"
    # It has ended, and its logs and its result are brought.
    ENDED = "ended"
    # It could not be started everywhere, or its head is lost: it is ended on all nodes.
    ENDING = "ending"
    # All that there is to say has been said.
    TOLD = "told"


# Signals that come within this time, in seconds, are one Ctrl-C of an impatient hand.
TWICE_S = 1.0
NOT_STARTED = "Not started: nothing of the job runs on any node."
NOT_WATCHED = "Not started to watch: the job is as it was."
_LEAVES = "Ctrl-C again leaves at once."


@dataclass(frozen=True)
class Reaction:
    """The text that answers a signal, and whether the command ends with it."""

    text: str
    leaves: bool


def commands(job_id: str, inventory: str) -> str:
    """Write the commands with which one comes back to a job; `inventory` are options as adhoc.py writes them."""
    return "\n".join(
        f"  {label:8} {playbook(f'playbooks/{book}.yml', inventory, {'job_id': job_id})}"
        for label, book in (("watch", "watch"), ("status", "status"), ("collect", "logs"), ("stop", "stop"))
    )


def react(phase: Phase, again: bool, job_id: str, how: str) -> Reaction:
    """Decide what a signal does in a phase; `again` where one came before, `how` as `commands` writes it."""
    if phase is Phase.PREPARING:
        return Reaction(NOT_STARTED, leaves=True)
    if phase is Phase.TOLD:
        return Reaction("", leaves=False)
    job = f"Job {job_id}"
    if not again:
        waits = {
            Phase.FINDING: f"Asking whether the job still runs. {_LEAVES}",
            Phase.STARTING: f"Interrupted: waiting until the nodes of {job_id} have answered. {_LEAVES}",
            Phase.WATCHING: f"Asking whether {job_id} still runs. {_LEAVES}",
            Phase.ENDED: f"Interrupted: bringing the logs and the result of {job_id}. {_LEAVES}",
            Phase.ENDING: f"Interrupted: {job_id} is being ended on all nodes. {_LEAVES}",
        }
        return Reaction(waits[phase], leaves=False)
    leaves = {
        Phase.FINDING: NOT_WATCHED,
        Phase.STARTING: f"{job} is starting, and nodes that have started it wait for the others or run:\n{how}",
        Phase.WATCHING: goes_on(job_id, how, "its head node has not answered yet"),
        Phase.ENDED: f"{job} has ended already. Its logs and its result are still to be brought:\n{how}",
        Phase.ENDING: f"{job} has ended already, or ends; stop.yml verifies that nothing of it is left:\n{how}",
    }
    return Reaction(leaves[phase], leaves=True)


def goes_on(job_id: str, how: str, unless: str = "") -> str:
    """Say that a job goes on unwatched; `unless` says why that is not certain."""
    known = f", as far as is known: {unless}" if unless else ""
    return f"No longer watching. Job {job_id} goes on{known}.\n{how}"


def has_started(job_id: str, how: str) -> str:
    """Say that a job was started on all its nodes while somebody interrupted that."""
    return f"Job {job_id} has started on all its nodes, and goes on.\n{how}"


def had_ended(job_id: str) -> str:
    """Say that a job was over when its watcher was interrupted; its result follows."""
    return f"Job {job_id} has ended already. Bringing its logs and its result."
