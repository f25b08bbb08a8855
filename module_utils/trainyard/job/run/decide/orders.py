# SPDX-License-Identifier: Apache-2.0
"""The orders with which a decision about a job (head_state.py) tells the head's monitor what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Union

from ....base.shapes import Message


class Now(NamedTuple):
    """The time of a decision: seconds on the head's monotonic clock, and since the epoch."""

    s: float
    epoch_s: float


# Two tuples without fields would be equal, whatever their classes.
@dataclass(frozen=True)
class PollCheckpoints:
    """Poll the checkpoints once more, then decide again: a failure is about to be answered."""


@dataclass(frozen=True)
class Inform:
    """Send each node what it has to do (HeadState.message_for), as that has changed."""


class Replace(NamedTuple):
    """Use a spare in the place of a node."""

    lost: str
    spare: str


class Disconnect(NamedTuple):
    """End the connection of a replaced node that is silent."""

    host: str


class End(NamedTuple):
    """End the job."""

    end: Message


Order = Union[PollCheckpoints, Inform, Replace, Disconnect, End]
