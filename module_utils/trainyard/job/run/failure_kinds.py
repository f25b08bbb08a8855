# SPDX-License-Identifier: Apache-2.0
"""The failures that monitors can find, and the fields of each: the one declaration for messages and for answers."""

from __future__ import annotations

from ...findings.shapes import (
    DURATION,
    MAYBE_DURATION,
    MAYBE_INT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    MAYBE_TIME,
    TIME,
    ByKind,
    Shape,
)

# How a job ends.
STATES = ("succeeded", "failed", "timed_out", "stopped")
# How a process ended, as exits/NAME.json has it.
EXIT: Shape = {
    **dict.fromkeys(("exit_code", "signal"), MAYBE_INT),
    "result": str,
    "time": TIME,
    "?attempt": int,
    "?by_agent": bool,
}
_SILENT = {"host": str, "after_s": DURATION}
_STACKS = {"host": str, "after_s": DURATION, "limit": str, "groups": [str], "?step": MAYBE_NUMBER}
# The failures that monitors can find, by kind, with the fields that each of them needs: messages between monitors and
# answers to the controller are checked against this table before anything reads them.
KINDS: dict[str, dict[str, Shape]] = {
    "exit": {"host": str, "process": str, "ranks": [int], "result": str},
    "not_joined": {"host": str, "process": str, "who": str},
    "gone": {"host": str, "reason": str},
    "silent": {**_SILENT, "?hosts": [str], "?least_s": DURATION},
    "head_silent": {**_SILENT, "seen_by": str},
    "no_majority": _SILENT,
    "absent": _SILENT,
    "frozen": _SILENT,
    "rebooted": {"host": str},
    "not_back": {"hosts": [str], "after_s": DURATION},
    "held": {"host": str, "reason": str, "after_s": DURATION},
    "excluded": {"host": str, "reason": str},
    "hung": _STACKS,
    "timed_out": _STACKS,
    "cannot_write": {"host": str, "folder": str, "reason": str},
    "folder_gone": {"host": str, "folder": str},
    "replaced": {"host": str, "by": str},
    "not_a_number": {"host": str, "checkpoint": str},
    "apart": {"host": str, "hosts": [str], "reason": str, "action": str},
}
_TEXTS = (
    *("host", "process", "result", "seen_by", "reason", "lost", "peer", "error", "stack", "doubt", "who", "limit"),
    *("not_restarted", "rolled_back", "action"),
)
_DURATIONS = ("after_s", "least_s", "recover_after_s")
_COUNTS = ("rank", "exit_code", "signal", "attempt", "fruitless", "oom_kills")
# A failure as a monitor keeps it: what its kind needs, and what else some have.
FAILURE = ByKind(
    {
        **{f"?{name}": MAYBE_TEXT for name in _TEXTS},
        **{f"?{name}": MAYBE_DURATION for name in _DURATIONS},
        "?time": MAYBE_TIME,
        "?ranks_running": MAYBE_NUMBER,
        **{f"?{name}": MAYBE_INT for name in _COUNTS},
        "?oom_of_job": bool,
        "?ranks": [int],
        "?hosts": [str],
    },
    KINDS,
)
# The failures that a node may report of its own processes; the head finds the others.
KINDS_OF_NODES = ("exit", "not_joined")
# The failures of hosts, after which the job may succeed on others.
OF_HOSTS = frozenset(
    {"gone", "silent", "head_silent", "no_majority", "absent", "frozen", "rebooted", "not_back", "held", "excluded"}
)
