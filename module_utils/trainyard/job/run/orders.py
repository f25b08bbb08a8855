# SPDX-License-Identifier: Apache-2.0
"""The orders with which a decision about a job (head_state.py) tells the head's monitor what to do."""

from __future__ import annotations

from typing import NamedTuple, Union

from .messages import Message


class Now(NamedTuple):
    """The time of a decision: seconds on the head's monotonic clock, and since the epoch."""

    s: float
    epoch_s: float


class PollCheckpoints(NamedTuple):
    """Poll the checkpoints once more, then decide again: a failure is about to be answered."""


class Restart(NamedTuple):
    """End what still runs of the last attempt and get ready for this one, which starts no sooner than in `wait_s`.

    `processes` is "the whole job", or the names of the processes that start again alone.
    """

    attempt: int
    processes: str
    wait_s: float


class Replace(NamedTuple):
    """Use a spare in the place of a node."""

    lost: str
    spare: str
    reason: str


class Start(NamedTuple):
    """Start this attempt on all nodes: each has ended its part of the last one."""

    attempt: int


class TakeStacks(NamedTuple):
    """Have all nodes take stacks of their ranks; `number` tells one order from the next."""

    number: int


class SampleStacks(NamedTuple):
    """Have all nodes sample the stacks of their ranks, too, or no longer."""

    on: bool


class Disconnect(NamedTuple):
    """End the connection of a replaced node that is silent."""

    host: str


class End(NamedTuple):
    """End the job."""

    end: Message


Order = Union[PollCheckpoints, Restart, Replace, Start, TakeStacks, SampleStacks, Disconnect, End]
