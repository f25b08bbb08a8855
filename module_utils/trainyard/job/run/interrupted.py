# SPDX-License-Identifier: Apache-2.0
"""Decide what Ctrl-C does at each moment of a launch or a watch, and what it says about the job.

There are four answers: not started; starting; continues without you; already ended. A first Ctrl-C exits at once only
before anything was started. Otherwise it waits for the answers of the nodes, so that it reports a fact. A second one
exits without them, and says so.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...base.adhoc import playbook


class Phase(Enum):
    """How far the command is with its job."""

    # Nothing of the job has been started.
    PREPARING = "preparing"
    # The job is not chosen yet.
    FINDING = "finding"
    # Its nodes were asked to start it.
    STARTING = "starting"
    WATCHING = "watching"
    # It has ended; its logs and its result are being collected.
    ENDED = "ended"
    # It could not be started everywhere: all nodes end it.
    ENDING = "ending"
    # The result has been printed.
    REPORTED = "reported"
    # Runs of a drill or of bisect.yml: the command ends them and removes their checkpoints.
    DRILLING = "drilling"


# Signals within this time, in seconds, count as one Ctrl-C.
TWICE_S = 1.0
NOT_STARTED = "Not started: nothing of the job runs on any node."
DRILL_ENDED = "Interrupted: the drill has ended its job and removed its checkpoints. There is no result."
BISECT_ENDED = "Interrupted: all runs of the job have ended, and their checkpoints are removed. No node is named."
NOT_WATCHED = "Not started to watch: the job is as it was."


class Reaction(NamedTuple):
    """The text that answers a signal, and whether the command ends with it."""

    text: str
    leaves: bool


def commands(job_id: str, inventory: str) -> str:
    """Return the commands for a job that runs on; `inventory` has options as adhoc.py writes them."""
    return "\n".join(
        f"  {label:8} {playbook(f'playbooks/{book}.yml', inventory, {'job_id': job_id})}"
        for label, book in (("watch", "watch"), ("status", "status"), ("collect", "logs"), ("stop", "stop"))
    )


def goes_on(job_id: str, how: str, unless: str = "") -> str:
    """Return the text for a job that runs on unwatched; `unless` says why that is not certain."""
    uncertain = f", as far as is known: {unless}" if unless else ""
    return f"No longer watching. Job {job_id} goes on{uncertain}.\n{how}"


# Answers to the first signal and to a further one, by phase.
_ANSWERS = {
    Phase.PREPARING: (NOT_STARTED, NOT_STARTED),
    Phase.FINDING: ("Asking whether the job still runs.", NOT_WATCHED),
    Phase.STARTING: (
        "Interrupted: waiting until the nodes of {job} have answered.",
        "Job {job} is starting, and nodes that have started it wait for the others or run:\n{how}",
    ),
    Phase.WATCHING: (
        "Asking whether {job} still runs.",
        goes_on("{job}", "{how}", "its head node has not answered yet"),
    ),
    Phase.ENDED: (
        "Interrupted: bringing the logs and the result of {job}.",
        "Job {job} has ended already. Its logs and its result are still to be brought:\n{how}",
    ),
    Phase.ENDING: (
        "Interrupted: {job} is being ended on all nodes.",
        "Job {job} has ended already, or ends; stop.yml verifies that nothing of it is left:\n{how}",
    ),
    Phase.REPORTED: ("", ""),
    Phase.DRILLING: (
        "Interrupted: {job} is being ended, with the runs beside it, and their checkpoints are removed.",
        "Job {job} and runs beside it (playbooks/jobs.yml) may still run, and leave their checkpoints:\n{how}",
    ),
}


def react(phase: Phase, again: bool, job_id: str, how: str) -> Reaction:
    """Decide what a signal does in a phase; `again`: it is not the first; `how` is from `commands`."""
    leaves = phase is Phase.PREPARING or (again and phase is not Phase.REPORTED)
    text = _ANSWERS[phase][again].format(job=job_id, how=how)
    return Reaction(text if leaves or not text else f"{text} Ctrl-C again leaves at once.", leaves)
