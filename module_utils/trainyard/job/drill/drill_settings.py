# SPDX-License-Identifier: Apache-2.0
"""Find out whether a job can be drilled or run on parts of its nodes, and what a run changes in its job file.

The drill never uses the job's own checkpoints. So the program must take their folder from the job file: a word of
job_command or a value of job_env is the folder of job_checkpoints, or a folder above it. The drill replaces it there by
a folder of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.findings import Finding

# The runs of a drill, in their order. `resumed` uses the checkpoints of `stopped`; each other run has its own.
RUNS = ("undisturbed", "stopped", "resumed", "rank", "node")
# Bounds of drill_steps: the job is stopped at half of them, and compared over both halves.
LEAST_STEPS, MOST_STEPS = 6, 1_000_000
# Signs of a pattern.
_SIGNS = "*?["
# A drill's own folder ends in this.
FOLDER = re.compile(r"drill-\d{8}-\d{6}-[0-9a-f]{4}")
_NAMED = "an absolute folder that job_command or job_env names, so that the drill can give the program another one"
_HOW = "write job_checkpoints: /shared/NAME, and {{ job_checkpoints }} where the program takes the folder"


@dataclass(frozen=True)
class Drill:
    """The settings of a drill: in all texts of the job, `instead`, a folder of its own, replaces `folder`."""

    steps: int
    arguments: tuple[Any, ...]
    timeout_s: int
    folder: str
    instead: str
    # job_max_restarts of the job file; the drill has its own.
    restarts: int = 0

    @property
    def half(self) -> int:
        """The step at which the job is stopped."""
        return (self.steps + 1) // 2


def read(job: Mapping[str, Any], given: Mapping[str, Any], drill_id: str) -> tuple[Drill | None, list[Finding]]:
    """Return the drill of a job with these variables, or the findings. `given` are the variables drill_*."""
    scheduler = str(job.get("job_scheduler") or "ssh")
    if scheduler != "ssh":
        expected = "ssh: the drill stops the job and kills ranks through the job's monitors"
        action = "drill the job on hosts of the inventory, with -e job_scheduler=ssh"
        return None, [Finding("job_scheduler", scheduler, expected, action)]
    findings = _settings(given)
    folder, unnamed = checkpoints(job)
    findings += unnamed
    other = str(given.get("drill_checkpoints") or "").rstrip("/")
    if findings:
        return None, findings
    instead = f"{other}/drill-{drill_id}" if other else f"{folder}.drill-{drill_id}"
    arguments, timeout_s = tuple(given.get("drill_args") or ()), int(given["drill_timeout"])
    restarts = int(job.get("job_max_restarts") or 0)
    return Drill(int(given["drill_steps"]), arguments, timeout_s, folder, instead, restarts), []


def checkpoints(job: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    """Return the folder of checkpoints that another one can replace, or the finding why there is none."""
    place = str(job.get("job_checkpoints") or "")
    folder = _named_folder(place, _texts(job)) if place.startswith("/") else ""
    if folder:
        return folder, []
    unnamed = "neither job_command nor job_env names it, or a folder above it"
    inside = "below the folder of each run, where a new launch finds nothing"
    why = unnamed if place.startswith("/") else inside
    return "", [Finding("job_checkpoints", f"{place}: {why}" if place else "none", _NAMED, _HOW)]


def on_parts(
    job: Mapping[str, Any], given: Mapping[str, Any], hosts: Sequence[str], drill_id: str
) -> tuple[Drill, list[Finding]]:
    """Return what runs on parts of the nodes change, and the findings. `given` are the variables bisect_*."""
    scheduler, findings = str(job.get("job_scheduler") or "ssh"), []
    if scheduler != "ssh":
        expected, action = "ssh: these runs choose their nodes themselves", "set job_scheduler=ssh, on inventory hosts"
        findings.append(Finding("job_scheduler", scheduler, expected, action))
    if len(hosts) < 2:
        action = "choose a larger group with job_hosts; playbooks/verify.yml verifies a single node"
        findings.append(Finding("job_hosts", f"{len(hosts)} in {job.get('job_hosts')}", "two hosts or more", action))
    for name, least in (("bisect_timeout", 1), ("bisect_multiple", 1), ("bisect_min_nodes", 0)):
        if given[name] < least:
            findings.append(Finding(name, str(given[name]), f"{least} or more", f"correct {name}"))
    folder, unnamed = checkpoints(job)
    # Without an absolute folder each run has its own.
    findings += unnamed if str(job.get("job_checkpoints") or "").startswith("/") else []
    instead = folder and f"{folder}.drill-{drill_id}"
    return Drill(0, tuple(given["bisect_args"]), given["bisect_timeout"], folder, instead), findings


def _settings(given: Mapping[str, Any]) -> list[Finding]:
    findings = []
    steps, timeout_s = given.get("drill_steps"), given.get("drill_timeout")
    # Ansible's numbers are of a class of their own.
    if not isinstance(steps, int) or isinstance(steps, bool) or not LEAST_STEPS <= steps <= MOST_STEPS:
        expected = f"a whole number from {LEAST_STEPS} to {MOST_STEPS}: the job is stopped at half of it"
        findings.append(Finding("drill_steps", str(steps), expected, "correct drill_steps"))
    if not isinstance(timeout_s, int) or isinstance(timeout_s, bool) or timeout_s < 1:
        findings.append(Finding("drill_timeout", str(timeout_s), "seconds for one run", "correct drill_timeout"))
    arguments = given.get("drill_args") or ()
    if isinstance(arguments, (str, Mapping)) or not all(isinstance(each, (str, int, float)) for each in arguments):
        expected = "a list of words for the end of job_command"
        action = "write drill_args: [--max-steps, 20]"
        findings.append(Finding("drill_args", repr(arguments), expected, action))
    other = given.get("drill_checkpoints") or "/"
    if not str(other).startswith("/") or any(sign in str(other) for sign in _SIGNS):
        expected = "an absolute folder on the disk of job_checkpoints, in which the training user may write"
        findings.append(
            Finding("drill_checkpoints", str(other), expected, "correct drill_checkpoints, or leave it out")
        )
    return findings


def _texts(job: Mapping[str, Any]) -> list[str]:
    env = job.get("job_env")
    values = env.values() if isinstance(env, Mapping) else ()
    return [str(each) for each in (*(job.get("job_command") or ()), *values)]


def _whole(folder: str) -> re.Pattern[str]:
    """Return a pattern for a folder as a whole path, which is neither the end of another one nor its begin."""
    return re.compile(rf"(?<![\w./-]){re.escape(folder)}(?=/?(?![\w./*?\[-]))")


def _named_folder(place: str, texts: Sequence[str]) -> str:
    """Return the folder of checkpoints, or the nearest one above it, that a text names; "" where none does."""
    parts = place.rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if any(sign in part for sign in _SIGNS)), len(parts))
    # The folders of the system's root are no folders of checkpoints.
    for length in range(fixed, 2, -1):
        folder = "/".join(parts[:length])
        if any(_whole(folder).search(text) for text in texts):
            return folder
    return ""


def changes(drill: Drill, job: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return the variables of the job that this run changes. Without a `folder`, the program keeps its checkpoints."""
    instead = f"{drill.instead}/{'stopped' if run == 'resumed' else run}"
    whole = _whole(drill.folder)

    def moved(value: Any) -> Any:
        return whole.sub(lambda _: instead, str(value)) if drill.folder and isinstance(value, str) else value

    env = job.get("job_env")
    return {
        "job_command": [*map(moved, job.get("job_command") or ()), *drill.arguments],
        "job_env": {name: moved(value) for name, value in env.items()} if isinstance(env, Mapping) else env,
        "job_checkpoints": (instead if drill.folder else "") + str(job["job_checkpoints"])[len(drill.folder) :],
        # One fault, one restart: a second one means that the first did not help.
        "job_max_restarts": 1,
        "job_checkpoint_rollback": False,
        "job_timeout": drill.timeout_s,
        "job_outputs": [],
    }


def changes_on_part(drill: Drill, job: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return the variables of the job that this run on a part of the nodes changes: nothing waits or restarts."""
    none = dict.fromkeys(("job_nodes", "job_spares", "job_min_nodes", "job_max_restarts"), 0)
    return {**changes(drill, job, run), **none, "job_witness": ""}
