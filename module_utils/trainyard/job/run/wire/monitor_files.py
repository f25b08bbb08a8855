# SPDX-License-Identifier: Apache-2.0
"""Declare the shapes of monitor.json and cluster.json, in which monitors write the state of a node and of the job.

Nodes read these files for many queries, and need the shapes of other answers (answers.py) for none of them.
"""

from __future__ import annotations

from ....base.shapes import (
    DURATION,
    MAYBE_DURATION,
    MAYBE_INT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NOTHING,
    TIME,
    All,
    Each,
    Is,
    Text,
    Whole,
    finite,
)
from ..logs.failure_kinds import FAILURE, STATES
from ..logs.stacks import STACKS
from ..measure.saving import SAVING
from ..measure.slow_ranks import SLOW_RANK
from ..measure.worlds import APART

# Upper bound for the takeovers of a job.
_MAX_TERM = 1 << 31
END = {
    "state": Is(STATES),
    "finished": TIME,
    "?host": MAYBE_TEXT,
    "?after_s": MAYBE_DURATION,
    "?failure": (FAILURE, NOTHING),
    "?failures": [FAILURE],
}
# A diverging loss is still a number.
METRICS = Each((finite, NOTHING))
_PLACE = All((METRICS, {"?elapsed_s": MAYBE_DURATION}))
NOT_A_NUMBER = {
    "since": (_PLACE, NOTHING),
    **dict.fromkeys(("first", "last"), _PLACE),
    "stretches": int,
    "steps": (finite, NOTHING),
}
CHECKPOINT = {"name": str, "step": MAYBE_INT, "epoch": MAYBE_INT, "time": TIME, "size": int}
CHECKPOINTS = {
    **dict.fromkeys(("place", "host", "problem"), str),
    "newest": (CHECKPOINT, NOTHING),
    "unfinished": ({**CHECKPOINT, "reason": str}, NOTHING),
    "?aside": [str],
    "?restored": [str],
    "?not_restored": str,
    "?suspect": {"name": str, "before": str, "attempts": int},
}
RESTART = {
    **dict.fromkeys(("reason", "restarted", "?resumed", "?replaced", "?spare", "?why"), str),
    **dict.fromkeys(("?set_aside", "?not_set_aside"), str),
    **dict.fromkeys(("elapsed_s", "?wait_s", "?detect_s", "?restart_s", "?step_s"), MAYBE_DURATION),
    **dict.fromkeys(("?step", "?epoch", "?first_step", "?lost_steps", "?lost_s"), MAYBE_NUMBER),
    "failure": FAILURE,
    **dict.fromkeys(("?world_size", "?nodes"), int),
    **{name: [str] for name in ("?left_out", "?back")},
    "?fruitless": MAYBE_INT,
    "?checkpoint": MAYBE_TEXT,
    "?saving": (SAVING, NOTHING),
}
# A silence that ends nothing: since when it is known, how long it was, and where the ranks were.
NO_PROGRESS = {
    **{"time": TIME, "after_s": DURATION, "limit": str, "host": str, "rank": MAYBE_INT, "groups": [str]},
    "?reason": str,
}
GOODPUT = dict.fromkeys(("share", "productive_s", "steps", "lost_steps"), finite)
RECEIVER = {**dict.fromkeys(("to", "why"), str), **dict.fromkeys(("sent", "waiting", "lost"), int)}
CLUSTER = {
    "started": TIME,
    "elapsed_s": DURATION,
    **dict.fromkeys(("world_size", "ranks_running"), int),
    # The host that wrote it, and how many takeovers made it the head.
    "?head": str,
    "?term": Whole(_MAX_TERM),
    "metrics": METRICS,
    "?loss_not_a_number": (NOT_A_NUMBER, NOTHING),
    "?progress_rank": MAYBE_INT,
    "?checkpoints": (CHECKPOINTS, NOTHING),
    "?goodput": (GOODPUT, NOTHING),
    "?left_s": MAYBE_DURATION,
    "?held": MAYBE_TEXT,
    "?silence": str,
    "?no_progress": (NO_PROGRESS, NOTHING),
    "?slow_ranks": [SLOW_RANK],
    "?printing": ({"text": str, "unread": bool}, NOTHING),
    "?stacks": (STACKS, NOTHING),
    "?apart": (APART, NOTHING),
    "?saving": (SAVING, NOTHING),
    "?events": [RECEIVER],
    "?witness_lost": ({"host": str, "silent_s": DURATION}, NOTHING),
    "restarts": {
        "history": [RESTART],
        "?stepped": bool,
        "?members": [str],
        "?spares": [str],
        "?replaced": Each(str),
        "?left_out": Each(Whole(1 << 32)),
        "?excluded": Each({"reason": str, "since": TIME}),
    },
    "end": (END, NOTHING),
}
PORTS = Each(dict.fromkeys(("sent", "received"), MAYBE_INT))
MONITOR = {
    "started": TIME,
    "end": (END, NOTHING),
    "?carried": {"before": PORTS, "now": PORTS},
    **dict.fromkeys(("?unwritten", "?lost_logs"), str),
    # The present head as this node knows it, empty while it looks for one, and the highest term that it has followed.
    "?follows": MAYBE_TEXT,
    "?term": Whole(_MAX_TERM),
    "?meeting": ({"met": bool, "looks": Whole(1 << 32), "launcher": Text(64)}, NOTHING),
}
