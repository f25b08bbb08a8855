# SPDX-License-Identifier: Apache-2.0
"""The environment of ranks as a job file and the inventory give it: names, values, and what launchers set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...base.findings import Finding
from ...base.visible import type_name, unwritable
from . import mindspore_tls

# Set by the launcher from the placement: a job file that sets one of these would break the rendezvous.
RANK_VARIABLES = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
     "MS_ROLE", "MS_WORKER_NUM", "MS_SERVER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_NODE_ID", "MS_WORKER_IP",
     "MS_TOPO_TIMEOUT", "MS_NODE_TIMEOUT", "MS_RECEIVE_MSG_TIMEOUT", "MS_ENABLE_RECOVERY", "MS_RECOVERY_PATH",
     "ONEFLOW_MACHINES", "ONEFLOW_MACHINE_ID", "ONEFLOW_CTRL_PORT", "ONEFLOW_DEVICE_NUM",
     "TRAINYARD_JOB_ID", "TRAINYARD_JOB_DIR", "TRAINYARD_NODE_DIR", "TRAINYARD_ATTEMPT", "TRAINYARD_HOSTS",
     "TRAINYARD_PLANNED_WORLD_SIZE", mindspore_tls.CONFIG_VARIABLE}
)  # fmt: skip

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def as_text(value: Any) -> str:
    """Return a value as ranks get it: YAML's true is what shells and frameworks write in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def environment(value: Any, key: str, findings: list[Finding], host: str = "") -> dict[str, str]:
    """Check the variables that `key` gives, and return those that are right, as text."""

    def wrong(found: str, expected: str, action: str) -> None:
        findings.append(Finding(key, found, expected, action, host=host))

    if not isinstance(value, Mapping):
        wrong(f"a {type_name(value)}", "a dictionary of variables", f"write {key} as NAME: value lines")
        return {}
    env: dict[str, str] = {}
    for name, content in value.items():
        problem = unwritable([name, content])
        text = "" if problem else as_text(content)
        if problem:
            wrong(problem, "text in UTF-8", f"correct it in {key}")
        elif not _NAME.fullmatch(str(name)):
            wrong(f"variable name {name!r}", "letters, digits and _", f"rename it in {key}")
        elif name in RANK_VARIABLES:
            found = f"{name}={text}" if text else str(name)
            wrong(found, f"{name} is set by the launcher on each rank", f"remove {name} from {key}")
        elif content is None:
            action = f'write a value for {name} in {key}, or "" for an empty one'
            wrong(f"{name} without a value", "text or a number", action)
        elif not isinstance(content, (str, int, float)):
            found = f"{name} is a {type_name(content)}"
            wrong(found, "text or a number", f"write one value for {name} in {key}")
        elif "\0" in text:
            wrong(f"a NUL character in {name}", "text", f"remove it from {key}")
        else:
            env[str(name)] = text
    return env


def node_environment(value: Any, host: str) -> tuple[dict[str, str], list[Finding]]:
    """Check the host variable `job_node_env` of one host."""
    findings: list[Finding] = []
    return environment({} if value is None else value, "job_node_env", findings, host), findings
