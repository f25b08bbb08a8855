# SPDX-License-Identifier: Apache-2.0
"""Parse the output of Slurm, with times in seconds since the epoch, and map its job states to ours."""

from __future__ import annotations

import re

# Our state for each base state of Slurm (squeue(1), JOB STATE CODES).
_STATES = {
    "pending": "PENDING, CONFIGURING, REQUEUED, REQUEUE_FED, REQUEUE_HOLD, SPECIAL_EXIT, RESV_DEL_HOLD",
    "running": "RUNNING, COMPLETING, STAGE_OUT, SIGNALING, SUSPENDED, STOPPED, RESIZING",
    "succeeded": "COMPLETED",
    "stopped": "CANCELLED",
    "timed_out": "TIMEOUT",
    "failed": "FAILED, NODE_FAIL, OUT_OF_MEMORY, BOOT_FAIL, DEADLINE, PREEMPTED, REVOKED",
}
STATE = {name: state for state, names in _STATES.items() for name in names.split(", ")}

# Explanations of reasons; others are shown as they are.
ADVICE = {
    "Resources": "it waits for nodes that other jobs use",
    "Priority": "jobs before it in the queue wait, too",
    "PartitionNodeLimit": "it needs more nodes than the partition allows",
    "PartitionTimeLimit": "job_timeout is longer than the partition allows",
    "BadConstraints": "no node has what job_sbatch_options asks for",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Dependency": "it waits for another job",
    "JobHeldUser": "it is held; run scontrol release to start it",
    "JobHeldAdmin": "an administrator holds it",
    "launch failed requeued held": "nodes could not start it; see slurmd's log there",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as your quality of service allows",
    "AssocGrpCpuLimit": "your account uses all CPUs that it may use",
    "BeginTime": "it starts later: a requeued job waits two minutes, unless slurm.conf sets another time",
}

# The highest signal number of Linux.
_LAST_SIGNAL = 64
_FIELD = re.compile(r"(?:^|\s)(?P<name>[A-Za-z][A-Za-z0-9_:/]*)=")


def fields(record: str) -> dict[str, str]:
    """Parse one line of `scontrol show ... -o`: NAME=value pairs, whose values may contain spaces and `=`."""
    found = list(_FIELD.finditer(record))
    ends = [*(match.start() for match in found[1:]), len(record)]
    # The first of several fields of one name counts.
    return {match["name"]: record[match.end() : end].strip() for match, end in reversed(list(zip(found, ends)))}


def read_state(word: str) -> str:
    """Return our state for a state of Slurm, such as `CANCELLED by 1000` or `CANCELLED+`; an unknown one is `lost`."""
    return STATE.get(re.split(r"[ +]", word, maxsplit=1)[0].upper(), "lost")


def exit_of(code: str) -> tuple[int | None, int | None]:
    """Parse Slurm's `exit:signal` into exit code and signal, one of which is None."""
    match = re.fullmatch(r"(\d+):(\d+)", code.strip())
    if match is None:
        return None, None
    status, number = int(match[1]), int(match[2])
    # A job out of memory has 125 there, which is not a signal.
    if number:
        return None, number if number <= _LAST_SIGNAL else None
    # srun and shells report a signal as 128 + its number.
    return (None, status - 128) if 128 < status < 160 else (status, None)


def pending_line(reason: str) -> str:
    """Return a line with Slurm's reason why a job waits, and its meaning if that is known."""
    word = reason.strip() or "None"
    if word in ("None", "(null)"):
        return "pending: Slurm has not scheduled it yet"
    known = next((text for name, text in ADVICE.items() if word.startswith(name)), "")
    return f"pending ({word}): {known}" if known else f"pending ({word})"


# Columns for sacct. Slurm 22.05 has no Restarts, and Reason is why a job waited, not why it ended.
SACCT = "JobName,User,State,ExitCode,NodeList,Start,End"


def from_sacct(text: str) -> dict[str, str]:
    """Parse `sacct -X -P -D -o SACCT` of one job into scontrol's names; a requeued job has a line for each run."""
    _, header, rest = text.partition(SACCT.replace(",", "|"))
    lines = [line.split("|") for line in rest.splitlines() if line.count("|") == SACCT.count(",")]
    if not lines:
        return {}
    names = {"State": "JobState", "Start": "StartTime", "End": "EndTime"}
    rows = [dict(zip([names.get(name, name) for name in header.split("|")], line)) for line in lines]
    last = rows[-1]
    # Slurm may restart its job numbers, so another job may have had this number.
    same = [row for row in rows if (row["JobName"], row["User"]) == (last["JobName"], last["User"])]
    return {**last, "Restarts": str(len(same) - 1)}
