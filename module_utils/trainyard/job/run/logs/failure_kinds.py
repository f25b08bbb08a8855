# SPDX-License-Identifier: Apache-2.0
"""The kinds of failures: the one declaration of each, for messages, answers, reports and advice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ....base.shapes import (
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


class FailureKind(NamedTuple):
    """A kind of failure, for all that read one: its fields, what the user reads, and what it says of the hosts.

    Texts have places for its fields and for what their readers make of them (failure.Words, job_text). An empty line of
    `causes` is left out.
    """

    fields: Mapping[str, Shape]
    # In a few words, what failed where.
    text: str = "node {host}: {kind}"
    # Why the job ended, and what to do: exit, hung and timed_out have more than a text for it.
    causes: str = ""
    # What comes first before the next launch.
    next_step: str = ""
    # Whether the job may succeed on other hosts, and whether a spare takes the place of this one at once.
    of_host: bool = False
    replaceable: bool = False
    # Whether only a part of the nodes ends with it, where another node can lead the job.
    of_part: bool = False


_SILENT: Mapping[str, Shape] = {"host": str, "after_s": DURATION}
_STACKS: Mapping[str, Shape] = {**_SILENT, "limit": str, "groups": [str], "?step": MAYBE_NUMBER}
_REASON: Mapping[str, Shape] = {"host": str, "reason": str}
_CHECK = "check {hosts}"
_of_host = partial(FailureKind, of_host=True)
# The failures that monitors can find: messages between monitors and answers to the controller are checked against this
# table before anything reads them.
KINDS: dict[str, FailureKind] = {
    "exit": FailureKind({"host": str, "process": str, "ranks": [int], "result": str}),
    "not_joined": FailureKind(
        {"host": str, "process": str, "who": str},
        "{who} never joined",
        "{who} never joined the cluster: the scheduler waited for job_join_timeout\n"
        "a worker that waits before it calls init(), is slow (a longer job_join_timeout), or does not reach the "
        "scheduler on {host}",
        "find out why that worker did not call init()",
    ),
    "gone": _of_host(
        _REASON,
        "node {host}: its monitor ended",
        "the monitor of {host} ended first, and {on_node} with it\n"
        "{reason}\n"
        "see what killed it: journalctl -k and {node_dir}/logs/monitor_*.log on {host}",
        _CHECK,
        replaceable=True,
    ),
    "silent": _of_host(
        {**_SILENT, "?hosts": [str], "?least_s": DURATION},
        "{nodes}: no report for {since}",
        "{nodes} with {on_node} went silent: no report for {since}, so {they_are} frozen, cut off or down\n"
        "{reason}\n"
        "{monitors_end} {on_node} as soon as {they_run} again; check the {machines}, then start the job again",
        _CHECK,
        replaceable=True,
    ),
    "head_silent": _of_host(
        {**_SILENT, "seen_by": str},
        "node {host}: no report for {after_s} s",
        "head node {host} went silent: {seen_by} received no report from it for {after_s} s\n"
        "every other node has ended its ranks; check the head node, then start the job again",
        _CHECK,
        of_part=True,
    ),
    "no_majority": _of_host(
        _SILENT,
        "node {host}: cut off from most nodes of the job for {after_s} s",
        "{host} was cut off from most nodes of the job for {after_s} s: {on_node} ended, as the others may go on "
        "without it, and never two parts of a job train\n"
        "no node found a majority within job_rejoin_timeout: check the network between the nodes, then start the job "
        "again. A job_witness, or one spare more or less, makes the number of hosts odd: then one part always has a "
        "majority",
        of_part=True,
    ),
    "absent": _of_host(
        _SILENT,
        "node {host}: no report for {after_s} s",
        "node {host} never reported to the head within {after_s} s of the start\n"
        "read {node_dir}/logs/monitor_*.log on {host}, and check the firewall between the nodes",
        _CHECK,
    ),
    "frozen": _of_host(
        _SILENT,
        "head node {host}: suspended for {after_s} s",
        "head node {host} was suspended for {after_s} s, and the other nodes gave it up\n"
        "check the machine (suspended, paused, out of memory), then start the job again",
        _CHECK,
        of_part=True,
    ),
    "rebooted": _of_host(
        {"host": str},
        "node {host}: shut down or restarted",
        "node {host} with {on_node} shut down or restarted while the job ran\n"
        "see who did that: last -x, and journalctl -b -1 -e on {host}; with job_max_restarts a job goes on when "
        "the node is back",
    ),
    "not_back": _of_host(
        {"hosts": [str], "after_s": DURATION},
        causes="{names} did not take part in the restart within {after_s} s (job_rejoin_timeout)\n"
        "check the machine, then start the job again; ranks that it still runs end as soon as it runs again\n"
        "{no_spare}\n"
        "job_min_nodes lets a job go on with fewer nodes, as long as so many are left",
        next_step=_CHECK,
        replaceable=True,
    ),
    "held": _of_host(
        {**_REASON, "after_s": DURATION},
        "node {host}: its devices are not free",
        "the devices of {host} were not free for the restart within {after_s} s (job_rejoin_timeout): {reason}\n"
        "see what that is (ps -fp PID on {host}) and end it, then start the job again",
    ),
    "excluded": _of_host(
        _REASON,
        "node {host}: does not pass the health check",
        "{host} did not pass the health check for the restart{waited}: {reason}\n"
        "repair it, or leave it out (job_hosts); with job_spares another host takes the place of any but the head, "
        "and with job_min_nodes the job goes on without it; job_health_gate: false starts again all the same",
    ),
    "hung": FailureKind(
        _STACKS,
        "no new progress for {after_s} s{because}",
        next_step="read logs/stacks_*.log to see where the ranks wait, and correct that",
    ),
    "timed_out": FailureKind(
        _STACKS,
        "its time (job_timeout) was up, no new progress for {after_s} s{because}",
        next_step="raise job_timeout, or have the program go on from its last checkpoint",
    ),
    "cannot_write": FailureKind(
        {**_REASON, "folder": str},
        "node {host}: cannot write to {folder}",
        "{host} could not start its ranks again: {folder} cannot be written: {reason}\n"
        "make room there, or choose another folder with trainyard_state; then start the job again",
    ),
    "folder_gone": FailureKind(
        {"host": str, "folder": str},
        "the job's folder {folder} is gone on {host}",
        "the job's folder {folder} is gone on {host}: something removed or renamed it while the job ran\n"
        "its logs and the state of its processes went with it. See what did that, such as a cleanup of old files "
        "or another user's rm; then start the job again",
        replaceable=True,
    ),
    "replaced": FailureKind({"host": str, "by": str}, "node {host}: {by} has taken its place", of_part=True),
    "not_a_number": FailureKind(
        {"host": str, "checkpoint": str},
        "no loss after checkpoint {checkpoint} is a number",
        "no loss after checkpoint {checkpoint} was a number\n"
        "an attempt from an earlier checkpoint had none either: see learning rate, mixed precision and data",
        "change learning rate, precision or data",
    ),
    "apart": FailureKind(
        {**_REASON, "hosts": [str], "action": str},
        "{reason}",
        "{reason}\n{action}",
        "give the launcher of the program all nodes, as the reason above says",
    ),
}
# Those and the ones that the controller finds.
RECORDED = {
    **KINDS,
    "not_started": FailureKind({"host": str, "text": str}, causes="{host} could not start its ranks: {text}"),
    "engine": FailureKind(_REASON, causes="{engine} says: {where}{reason}"),
}
_UNKNOWN = FailureKind({})


def failure_kind(failure: Mapping[str, Any]) -> FailureKind:
    """Return the kind of a failure; one without texts where only newer versions know it, or without a failure."""
    return RECORDED.get(str(failure.get("kind")), _UNKNOWN)


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
    {name: kind.fields for name, kind in KINDS.items()},
)
# The failures that a node may report of its own processes; the head finds the others.
KINDS_OF_NODES = ("exit", "not_joined")
