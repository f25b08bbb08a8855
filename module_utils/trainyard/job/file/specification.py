# SPDX-License-Identifier: Apache-2.0
"""The job: what a job file says, checked and typed.

A job file is a flat YAML file of `job_*` variables. The role's argument_specs checks types; the rules across fields
stand here, and each violation becomes a finding.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ascend.given_rank_table import GivenTable
from ...findings.findings import Finding, counted
from ...findings.visible import unwritable
from ..run import checkpoints as saved
from ..run.progress import DEFAULT_PATTERN, check_pattern
from . import command as commands
from . import event_receivers, node_paths, tls
from . import hang_settings as hang_variables
from .rank_environment import environment
from .variables import VARIABLES, Variable

# Variables of older job files: what to write in place of each.
RENAMED = {
    "job_engine": "write its value as job_launcher, and beside it job_scheduler: slurm or job_scheduler: kubernetes"
}

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
# More devices than any node has: a range beyond it is a typo.
_MOST_DEVICES = 1024


@dataclass(frozen=True)
class Job:
    """One job, as asked for. `None` in processes_per_node, devices and port means: let the plan choose."""

    name: str
    scheduler: str
    launcher: str
    command: tuple[str, ...]
    source: str
    processes_per_node: int | None
    devices: tuple[int, ...] | None
    env: Mapping[str, str]
    secret_env: tuple[str, ...]
    network: str
    port: int | None
    timeout_s: int
    join_timeout_s: int
    heartbeat_timeout_s: int
    message_timeout_s: int
    max_restarts: int
    rejoin_s: int
    recovery: bool
    recovery_path: str
    venv: str
    packages: tuple[str, ...]
    data: tuple[str, ...]
    min_disk_mib: int
    progress_pattern: str
    mpi_parameters: Mapping[str, str]
    mpi_placement: str
    tls: bool = False
    checkpoints: str = ""
    # What hang.parse() makes of job_hang_*; None where nobody looks for that.
    hang: Mapping[str, Any] | None = None
    slow_ranks: bool = True
    # Path of a rank table on the controller, and what is in it once somebody has read it.
    rank_table: str = ""
    given_table: GivenTable | None = None
    oneflow_style: str = "launch"
    # As they may be shown: addresses and arguments go to the head alone.
    events: tuple[Mapping[str, Any], ...] = ()
    events_s: int = 600
    metrics_folder: str = ""
    spares: int = 0
    gate: bool = True
    min_memory_mib: int = 256


def unknown_keys(given: Iterable[str]) -> list[Finding]:
    """Find variables that look like a job's but are none: a misspelt key would otherwise be ignored in silence."""
    findings = []
    for key in sorted(set(given) - set(VARIABLES)):
        near = difflib.get_close_matches(key, VARIABLES, n=1)
        otherwise = f"did you mean {near[0]}?" if near else "remove it from the job file"
        findings.append(
            Finding(
                "job file", f"unknown variable {key}", "the variables of docs/job-file.md", RENAMED.get(key, otherwise)
            )
        )
    return findings


def parse_devices(value: Any) -> tuple[int, ...] | None:
    """Read `auto` (None), `none` (no device at all), a list of device numbers, or a half-open range such as "[4,8)".

    Raises ValueError for anything else.
    """
    if value is None or value == "auto":
        return None
    if value == "none":
        return ()
    if isinstance(value, str):
        match = re.fullmatch(r"\s*\[\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)\s*", value)
        numbers = list(range(int(match[1]), int(match[2]))) if match else [int(part) for part in value.split(",")]
    elif isinstance(value, (list, tuple)) and not any(isinstance(item, (bool, float)) for item in value):
        numbers = [int(item) for item in value]
    else:
        raise ValueError("no list of whole numbers")
    if not numbers or len(set(numbers)) != len(numbers) or min(numbers) < 0 or max(numbers) >= _MOST_DEVICES:
        raise ValueError("empty, repeated, negative or excessive device numbers")
    return tuple(numbers)


def parse_count(value: Any, variable: Variable) -> int | None:
    """Read `auto` (None) or a whole number that the variable may be. Raises ValueError otherwise."""
    if value is None or value == "auto":
        return None
    if isinstance(value, bool):
        raise ValueError("a truth value")
    number = int(str(value))
    if not variable.least <= number <= variable.most:
        raise ValueError(f"{number} is out of range")
    return number


def _unwritable(given: Mapping[str, Any]) -> list[Finding]:
    expected = "text in UTF-8 and numbers of a usual length"
    found = {key: unwritable(given[key]) for key in sorted(set(given) & set(VARIABLES))}
    return [Finding(key, fault, expected, f"correct {key}") for key, fault in found.items() if fault]


def parse(given: Mapping[str, Any]) -> tuple[Job | None, list[Finding]]:
    """Turn the `job_*` variables into a Job, or say everything that is wrong with them.

    Whether job_launcher is one depends on job_scheduler, and is for schedulers.parse to say. The Job is None when there
    is at least one finding.
    """
    findings = _unwritable(given)
    if findings:
        # Nothing else can be said of what cannot be written down.
        return None, findings
    findings += node_paths.findings(given)

    def wrong(key: str, found: str, expected: str, action: str) -> None:
        findings.append(Finding(key, found, expected, action))

    def text(key: str) -> str:
        return str(given.get(key) or VARIABLES[key].default)

    def choice(key: str) -> str:
        value, choices = text(key), VARIABLES[key].choices
        if value not in choices:
            expected = "one of " + ", ".join(choices)
            wrong(key=key, found=repr(value), expected=expected, action="choose one of these")
        return value

    def count(key: str) -> int | None:
        variable = VARIABLES[key]
        value = given.get(key, variable.default)
        may_be_auto = variable.default == "auto"
        try:
            number = parse_count(variable.default if value is None else value, variable)
            if number is None and not may_be_auto:
                raise ValueError("auto")
            return number
        except ValueError:
            expected = f"{'auto or ' if may_be_auto else ''}a whole number {variable.range}"
            wrong(key=key, found=repr(value), expected=expected, action=f"correct {key}")
            return None

    def whole(key: str) -> int:
        # Without a number there is a finding.
        return count(key) or 0

    def words(key: str) -> tuple[str, ...]:
        value = given.get(key) or []
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) and "\0" not in item for item in value):
            return tuple(value)
        wrong(key=key, found=repr(value), expected="a list of words", action=f"write {key} as a YAML list")
        return ()

    name = str(given.get("job_name") or "")
    if not _NAME.fullmatch(name):
        wrong(
            key="job_name",
            found=repr(name) if name else "nothing",
            expected=(
                "1 to 40 lower-case letters, digits and hyphens, a letter "
                "first (it becomes part of unit, folder and pod names)"
            ),
            action="give the job such a name",
        )

    launcher = text("job_launcher")
    command = given.get("job_command") or []
    if (
        not isinstance(command, (list, tuple))
        or not command
        or not all(isinstance(part, (str, int, float)) and "\0" not in str(part) for part in command)
        or not str(command[0]).strip()
    ):
        written = commands.of_text(command) if isinstance(command, str) else ""
        wrong(
            key="job_command",
            found=repr(command),
            expected="a list of words such as [python, train.py, --epochs, 5]",
            action=f"write {f'job_command: {written}' if written else 'the command as a YAML list'}; no shell reads it",
        )
        command = []

    try:
        devices = parse_devices(given.get("job_devices", "auto"))
    except (ValueError, TypeError):
        wrong(
            key="job_devices",
            found=repr(given.get("job_devices")),
            expected='auto, none, a list such as [0, 1], or a range such as "[4,8)"',
            action="correct job_devices",
        )
        devices = None
    processes = count("job_processes_per_node")
    if devices and processes is not None and processes != len(devices):
        wrong(
            key="job_processes_per_node",
            found=f"{counted(processes, 'process', 'processes')} for {counted(len(devices), 'device')} {list(devices)}",
            expected="one process for each device",
            action="set job_processes_per_node: auto, or name as many devices",
        )

    given_env = given.get("job_env")
    env = environment({} if given_env is None else given_env, "job_env", findings)
    secret = environment(dict.fromkeys(words("job_secret_env"), ""), "job_secret_env", findings)
    for both in sorted(set(env) & set(secret)):
        wrong(
            key="job_env",
            found=f"{both} in job_env and in job_secret_env",
            expected="one place for each variable",
            action=f"keep {both} in job_secret_env only",
        )

    if given.get("job_nccl_info"):
        if env.get("NCCL_DEBUG", "INFO").upper() not in ("INFO", "TRACE"):
            wrong(
                key="job_nccl_info",
                found=f"true with NCCL_DEBUG: {env['NCCL_DEBUG']} in job_env",
                expected="NCCL_DEBUG: INFO, at which NCCL names its networks",
                action="leave NCCL_DEBUG out of job_env, or job_nccl_info",
            )
        # Networks and channels, and nothing of each collective.
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", **env}

    if command:
        words_of_command = [str(part) for part in command]
        findings += commands.findings(words_of_command, launcher, processes, given.get("job_nodes"), env)

    port, restarts = count("job_port"), whole("job_max_restarts")
    timeout_s = whole("job_timeout")
    rejoin_s = whole("job_rejoin_timeout")
    recovery = bool(given.get("job_recovery"))
    if recovery and launcher != "mindspore":
        wrong(
            key="job_recovery",
            found=f"true with job_launcher: {launcher}",
            expected="job_launcher: mindspore, whose scheduler and workers may come back alone",
            action="leave job_recovery out: job_max_restarts starts the whole job again",
        )
    if recovery and not restarts:
        wrong(
            key="job_recovery",
            found=f"true with job_max_restarts: {restarts}",
            expected="a number of restarts: each process that comes back is one",
            action="set job_max_restarts, or leave job_recovery out",
        )
    spares = whole("job_spares")
    if spares and given.get("job_scheduler") not in (None, "", "ssh"):
        wrong(
            key="job_spares",
            found=f"{spares} with job_scheduler: {given['job_scheduler']}, which chooses nodes itself",
            expected="job_scheduler: ssh",
            action="leave job_spares out",
        )
    elif spares and not restarts:
        wrong(
            key="job_spares",
            found=f"{spares} with job_max_restarts: {restarts}",
            expected="a number of restarts: a spare takes a lost node's place in one",
            action="set job_max_restarts, or leave job_spares out",
        )
    recovery_path = str(given.get("job_recovery_path", "")).rstrip("/")
    if recovery_path and not recovery:
        wrong(
            key="job_recovery_path",
            found=f"{recovery_path} without job_recovery",
            expected="job_recovery: true, whose records lie there",
            action="set job_recovery, or leave job_recovery_path out",
        )
    elif recovery_path and not recovery_path.startswith("/"):
        wrong(
            key="job_recovery_path",
            found=recovery_path,
            expected="an absolute path of a folder in which the training user may write, on every node",
            action="write the whole path, or leave job_recovery_path out: the records then lie in the job's folder",
        )
    checkpoints = text("job_checkpoints")
    unwatchable = saved.place_fault(checkpoints)
    if not unwatchable and checkpoints and text("job_scheduler") != "ssh":
        unwatchable = f"it with job_scheduler: {text('job_scheduler')}", "job_scheduler: ssh, whose monitors watch it"
    if unwatchable:
        found, expected = unwatchable
        wrong(key="job_checkpoints", found=found, expected=expected, action="correct it, or leave job_checkpoints out")
    join_timeout_s, heartbeat_timeout_s = whole("job_join_timeout"), whole("job_heartbeat_timeout")
    message_timeout_s = whole("job_message_timeout")
    min_disk_mib, min_memory_mib = map(whole, ("job_min_disk_mib", "job_min_memory_mib"))
    packages, data = words("job_packages"), words("job_data")
    with_tls = bool(given.get("job_tls"))
    secret_env = dict.fromkeys([*secret, *(tls.PASSWORD_VARIABLES.values() if with_tls else ())])
    if with_tls:
        if launcher not in tls.LAUNCHERS:
            wrong(
                key="job_tls",
                found=f"true with job_launcher: {launcher}",
                expected=f"job_launcher: {' or '.join(tls.LAUNCHERS)}, whose processes can speak TLS with each other",
                action="choose one of these, or leave job_tls out",
            )
        if not any(package.startswith("mindspore") for package in packages):
            wrong(
                key="job_packages",
                found=f"{list(packages)} with job_tls",
                expected="mindspore among them: TLS is MindSpore's own",
                action="add mindspore to job_packages",
            )
        for name in sorted(set(env) & set(tls.PASSWORD_VARIABLES.values())):
            wrong(key="job_env", found=name, expected="a secret in no plan", action=f"move {name} to job_secret_env")
    if with_tls and "job_tls_ciphers" in given:
        findings += tls.cipher_findings(words("job_tls_ciphers"))
    for key in ("job_tls_warning_days", "job_nodes", "job_log_limit_mib"):
        whole(key)

    receivers = event_receivers.receivers(given, findings)
    findings += event_receivers.secret_findings(given)
    events_s = whole("job_events_interval")
    metrics_folder = str(given.get("job_metrics_folder") or "").rstrip("/")
    if metrics_folder and not metrics_folder.startswith("/"):
        wrong(
            key="job_metrics_folder",
            found=metrics_folder,
            expected="an absolute path of a folder in which the training user may write, on every node",
            action="write the whole path, or leave job_metrics_folder out",
        )
    if text("job_scheduler") != "ssh":
        findings += event_receivers.elsewhere(text("job_scheduler"), receivers, metrics_folder)

    pattern = str(given.get("job_progress_pattern") or DEFAULT_PATTERN)
    fault = check_pattern(pattern)
    if fault:
        wrong(
            key="job_progress_pattern",
            found=fault,
            expected="a regular expression with named groups",
            action="correct job_progress_pattern",
        )

    hang, hang_findings = hang_variables.parse(given)
    findings += hang_findings

    rank_table = text("job_rank_table")
    if rank_table and launcher != "rank_table":
        wrong(
            key="job_rank_table",
            found=f"{rank_table} with job_launcher: {launcher}",
            expected="job_launcher: rank_table, which starts the ranks by such a table",
            action="choose it, or leave job_rank_table out",
        )

    mpi_parameters = environment(given.get("job_mpi_parameters") or {}, "job_mpi_parameters", findings)
    mpi_placement = choice("job_mpi_placement")
    oneflow_style = choice("job_oneflow_style")

    if findings:
        return None, findings
    return Job(
        name=name,
        scheduler=text("job_scheduler"),
        launcher=launcher,
        command=tuple(str(part) for part in command),
        source=text("job_source"),
        processes_per_node=processes,
        devices=devices,
        env=env,
        secret_env=tuple(secret_env),
        network=text("job_network"),
        port=port,
        timeout_s=timeout_s,
        join_timeout_s=join_timeout_s,
        heartbeat_timeout_s=heartbeat_timeout_s,
        message_timeout_s=message_timeout_s,
        max_restarts=restarts,
        spares=spares,
        rejoin_s=rejoin_s,
        recovery=recovery,
        recovery_path=recovery_path,
        checkpoints=checkpoints,
        hang=hang,
        slow_ranks=bool(given.get("job_slow_ranks", True)),
        venv=str(given.get("job_venv") or ""),
        packages=packages,
        data=data,
        min_disk_mib=min_disk_mib,
        min_memory_mib=min_memory_mib,
        gate=bool(given.get("job_gate", True)),
        progress_pattern=pattern,
        mpi_parameters=mpi_parameters,
        mpi_placement=mpi_placement,
        tls=with_tls,
        rank_table=rank_table,
        oneflow_style=oneflow_style,
        events=tuple(event_receivers.shown(receivers)),
        events_s=events_s,
        metrics_folder=metrics_folder,
    ), []
