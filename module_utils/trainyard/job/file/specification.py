# SPDX-License-Identifier: Apache-2.0
"""Read a job file, a flat YAML file of `job_*` variables, into a typed Job; argument_specs check the types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...base.findings import Finding, counted
from ...base.visible import unwritable
from ..run.logs.progress import DEFAULT_PATTERN, check_pattern
from . import (
    event_receivers,
    hang_settings,
    image_settings,
    job_command,
    job_packages,
    mindspore_tls,
    operators,
    restart_settings,
    slurm_settings,
)
from .given_environment import as_text, environment
from .job import Events, Job, Kubernetes, Mpi
from .values import Values
from .variables import ONE_COPY, VARIABLES

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
# Variables with paths on the nodes.
_NODE_PATHS = (
    "job_venv", "job_data", "job_checkpoints", "job_recovery_path", "job_metrics_folder", "job_folder", "job_command",
    "job_outputs",
)  # fmt: skip


def unknown_keys(given: Iterable[str]) -> list[Finding]:
    """Find variables that look like a job's but are none: a misspelt key would otherwise be ignored in silence."""
    findings = []
    for key in sorted(set(given) - set(VARIABLES)):
        near = difflib.get_close_matches(key, VARIABLES, n=1)
        action = f"did you mean {near[0]}?" if near else "remove it from the job file"
        expected = "the variables of docs/job-variables.md"
        findings.append(Finding("job file", f"unknown variable {key}", expected, action))
    return findings


def parse(given: Mapping[str, Any]) -> tuple[Job | None, list[Finding]]:
    """Return the job of the `job_*` variables, or None and all findings; schedulers.parse checks the launcher."""
    findings = _unwritable(given)
    if findings:
        # No other finding could quote such a value.
        return None, findings
    values = Values(given)
    values.findings += _home_paths(given)
    scheduler, launcher = values.text("job_scheduler"), values.text("job_launcher")
    operator = operators.of(given, scheduler, launcher)
    name, command = _name(values), _command(values)
    one_copy = given.get("job_ranks_per_node") == ONE_COPY
    if one_copy:
        _check_one_copy(values, scheduler, launcher)
    devices, ranks_per_node = _devices_and_ranks(values, one_copy)
    env, secret_env = _environment(values)
    if command:
        values.findings += job_command.findings(list(command), launcher, ranks_per_node, given.get("job_nodes"), env)
    requirements = values.words("job_packages")
    packages = job_packages.names(requirements)
    with_tls = _tls(values, launcher, packages, env)
    for key in ("job_tls_warning_days", "job_log_limit_mib"):
        values.number(key)
    job = Job(
        name=name,
        command=command,
        scheduler=scheduler,
        launcher=launcher,
        ranks_per_node=ranks_per_node,
        one_copy=job_command.started(command) if one_copy and command else "",
        devices=devices,
        env=env,
        secret_env=tuple(
            dict.fromkeys([*secret_env, *(mindspore_tls.PASSWORD_VARIABLES.values() if with_tls else ())])
        ),
        port=values.count("job_port"),
        # No default here: without the role's a job runs in no environment.
        venv=str(given.get("job_venv") or ""),
        packages=packages,
        package_versions=job_packages.limits(requirements, scheduler, values.findings),
        outputs=_outputs(values, operator),
        progress_pattern=_progress_pattern(values),
        restarts=restart_settings.parse(values, scheduler, launcher, operator),
        stop=restart_settings.parse_stop(values, operator),
        hang=hang_settings.parse(values, operator),
        events=_events(values, operator),
        tls=with_tls,
        mpi=Mpi(values.variables("job_mpi_parameters"), values.choice("job_mpi_placement")),
        rank_table=_rank_table(values, launcher),
        image=image_settings.parse(values, scheduler),
        slurm=slurm_settings.parse(values, scheduler),
        kubernetes=Kubernetes(options=given.get("job_kubernetes"), **values.declared(Kubernetes)),
        **values.declared(Job),
    )
    return (None if values.findings else job), values.findings


def _outputs(values: Values, operator: str) -> tuple[str, ...]:
    patterns = values.words("job_outputs")
    wrong = [
        each
        for each in patterns
        if not each.strip("/.") or any(part == ".." or ("**" in part and part != "**") for part in each.split("/"))
    ]
    if wrong:
        expected = "patterns below the working folder such as results/*.csv, or absolute ones, without .., and ** alone"
        values.wrong("job_outputs", ", ".join(map(repr, wrong)), expected, "correct these patterns")
    if patterns and operator:
        found = f"job_outputs with an {operator}, whose files stay in its pods"
        values.wrong("job_outputs", found, operators.INSTEAD, "leave job_outputs out, and mount a volume")
    return patterns


def _unwritable(given: Mapping[str, Any]) -> list[Finding]:
    expected = "text in UTF-8 and numbers of a usual length"
    found = {key: unwritable(given[key]) for key in sorted(set(given) & set(VARIABLES))}
    return [Finding(key, problem, expected, f"correct {key}") for key, problem in found.items() if problem]


def _home_paths(given: Mapping[str, Any]) -> list[Finding]:
    """Find paths on nodes that begin with `~`, which no shell expands there."""
    paths = []
    for key in _NODE_PATHS:
        value = given.get(key)
        words = value if isinstance(value, (list, tuple)) else [value]
        # Further words of the command are the program's own.
        paths += [(key, word) for word in (words[:1] if key == "job_command" else words) if isinstance(word, str)]
    expected, action = (
        "a whole path: only a shell knows ~",
        "write the path on the nodes, such as {{ trainyard_state }}",
    )
    return [
        Finding(key, path, expected, f"{action}/{path.partition('/')[2] or 'data'}")
        for key, path in paths
        if path.startswith("~")
    ]


def _name(values: Values) -> str:
    name = str(values.given.get("job_name") or "")
    if not _NAME.fullmatch(name):
        expected = "1 to 40 lower-case letters, digits and hyphens, a letter first, no hyphen last"
        values.wrong("job_name", repr(name) if name else "nothing", expected, "give the job such a name")
    return name


def _command(values: Values) -> tuple[str, ...]:
    command = values.given.get("job_command") or []
    is_list = isinstance(command, (list, tuple)) and len(command) > 0 and str(command[0]).strip()
    if is_list and all(isinstance(word, (str, int, float)) and "\0" not in str(word) for word in command):
        return tuple(map(as_text, command))
    written, env = job_command.of_text(command) if isinstance(command, str) else ("", "")
    action = f"write {f'job_command: {written}' if written else 'the command as a YAML list'}; no shell reads it"
    action += f". Its variables: job_env: {env}" if env else ""
    values.wrong("job_command", repr(command), "a list of words such as [python, train.py, --epochs, 5]", action)
    return ()


def _check_one_copy(values: Values, scheduler: str, launcher: str) -> None:
    """Check job_ranks_per_node: node, one copy of a command that starts ranks by itself."""
    if launcher != "direct":
        expected = "job_launcher: direct, which starts that one copy"
        action = "choose it, or leave job_ranks_per_node out"
        values.wrong("job_ranks_per_node", f"{ONE_COPY} with job_launcher: {launcher}", expected, action)
    if scheduler == "kubernetes":
        expected = "a number: a pod gets a device for each of its ranks"
        action = "set job_ranks_per_node: 1, or use job_launcher: torchrun, which starts the ranks of a pod"
        values.wrong("job_ranks_per_node", f"{ONE_COPY} with job_scheduler: kubernetes", expected, action)


def _devices_and_ranks(values: Values, one_copy: bool) -> tuple[tuple[int, ...] | None, int | None]:
    devices, ranks = values.devices(), 1 if one_copy else values.count("job_ranks_per_node")
    if devices and not one_copy and ranks is not None and ranks != len(devices):
        found = f"{counted(ranks, 'process', 'processes')} for {counted(len(devices), 'device')} {list(devices)}"
        action = "set job_ranks_per_node: auto, or name as many devices"
        values.wrong("job_ranks_per_node", found, "one process for each device", action)
    return devices, ranks


def _environment(values: Values) -> tuple[dict[str, str], list[str]]:
    env = values.variables("job_env")
    secret = environment(dict.fromkeys(values.words("job_secret_env"), ""), "job_secret_env", values.findings)
    for both in sorted(set(env) & set(secret)):
        found = f"{both} in job_env and in job_secret_env"
        values.wrong("job_env", found, "one place for each variable", f"keep {both} in job_secret_env only")
    if values.flag("job_nccl_info"):
        if env.get("NCCL_DEBUG", "INFO").upper() not in ("INFO", "TRACE"):
            found, expected = f"true with NCCL_DEBUG: {env['NCCL_DEBUG']} in job_env", "NCCL_DEBUG: INFO or TRACE"
            values.wrong("job_nccl_info", found, expected, "leave NCCL_DEBUG out of job_env, or job_nccl_info")
        # NCCL then logs its networks and channels, but not every collective.
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", **env}
    return env, list(secret)


def _tls(values: Values, launcher: str, packages: tuple[str, ...], env: Mapping[str, str]) -> bool:
    if not values.flag("job_tls"):
        return False
    if launcher not in mindspore_tls.LAUNCHERS:
        expected = (
            f"job_launcher: {' or '.join(mindspore_tls.LAUNCHERS)}, whose processes can speak TLS with each other"
        )
        action = "choose one of these, or leave job_tls out"
        values.wrong("job_tls", f"true with job_launcher: {launcher}", expected, action)
    if not any(package.startswith("mindspore") for package in packages):
        expected = "mindspore among them: TLS is MindSpore's own"
        values.wrong("job_packages", f"{list(packages)} with job_tls", expected, "add mindspore to job_packages")
    for name in sorted(set(env) & set(mindspore_tls.PASSWORD_VARIABLES.values())):
        values.wrong("job_env", name, "a secret in no plan", f"move {name} to job_secret_env")
    if "job_tls_ciphers" in values.given:
        values.findings += mindspore_tls.cipher_findings(values.words("job_tls_ciphers"))
    return True


def _events(values: Values, operator: str) -> Events:
    receivers = event_receivers.receivers(values.given, values.findings)
    values.findings += event_receivers.secret_findings(values.given)
    folder = values.text("job_metrics_folder").rstrip("/")
    if folder and not folder.startswith("/"):
        expected = "an absolute path of a folder in which the training user may write, on every node"
        values.wrong("job_metrics_folder", folder, expected, "write the absolute path, or leave job_metrics_folder out")
    requested = {"job_events": ", ".join(each["to"] for each in receivers), "job_metrics_folder": folder}
    for name, found in requested.items() if operator else ():
        if found:
            action = "leave it out; the cluster's own events and kube-state-metrics tell of the job"
            values.wrong(name, f"{found} with an {operator}", f"{operators.INSTEAD}, whose monitors send them", action)
    return Events(tuple(event_receivers.shown(receivers)), metrics_folder=folder, **values.declared(Events))


def _progress_pattern(values: Values) -> str:
    pattern = values.text("job_progress_pattern") or DEFAULT_PATTERN
    problem = check_pattern(pattern)
    if problem:
        expected = "a regular expression with named groups"
        values.wrong("job_progress_pattern", problem, expected, "correct job_progress_pattern")
    return pattern


def _rank_table(values: Values, launcher: str) -> str:
    path = values.text("job_rank_table")
    if path and launcher != "rank_table":
        expected = "job_launcher: rank_table, which starts the ranks by such a table"
        action = "choose it, or leave job_rank_table out"
        values.wrong("job_rank_table", f"{path} with job_launcher: {launcher}", expected, action)
    return path
