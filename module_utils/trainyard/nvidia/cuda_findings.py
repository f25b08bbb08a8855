# SPDX-License-Identifier: Apache-2.0
"""Check that all nodes have the CUDA toolkits that were planned, and the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from ..base.majority import unlike_most
from .cuda import State
from .cuda_plan import compiler_findings, matches, toolkit_text


def check(states: Sequence[State], plans: Mapping[str, Mapping[str, Any]], sessions: bool = False) -> list[Finding]:
    """Check the toolkits of all nodes: each as planned, and all nodes equal.

    `sessions`: whether sshd sets the default in its sessions. Programs find one in the system's folders anyway.
    """
    findings = [each.on(state["host"]) for state in states for each in _check(state, plans[state["host"]], sessions)]
    versions = {state["host"]: _versions(state, plans[state["host"]]) for state in states}
    # Programs compiled on one node would not load on another.
    action = "give all nodes the same cuda_toolkit_versions; other hardware is a cluster of its own"
    return findings + unlike_most(versions, "CUDA toolkits", action)


def _check(state: State, plan: Mapping[str, Any], sessions: bool) -> Iterator[Finding]:
    for step in plan["toolkits"]:
        found = state["toolkits"].get(step["home"])
        if not matches(step, found or {}):
            text, expected = toolkit_text(found, step["home"]), f"CUDA {step['version'] or 'of any version'}"
            yield Finding("CUDA toolkit", text, expected, "run site.yml, or the vendor's installer again")
        elif found and step["provider"] != "distro":
            yield from compiler_findings(state, step["version"], found["newest_gcc"], state["compiler"]["name"])
    if plan["default"] and state["default"] != plan["default"]:
        expected = f"{state['root']}/cuda -> {plan['default']}"
        yield Finding("default CUDA toolkit", state["default"] or "none", expected, "run site.yml")
    path = (state["session"] or {}).get("PATH", "")
    exported = sessions and plan["default"] not in ("", "/usr")
    if exported and f"{state['root']}/cuda/bin" not in path.split(":"):
        text = "sshd does not report its settings" if state["session"] is None else f"PATH={path}"
        expected = f"{state['root']}/cuda/bin in the PATH that sshd sets"
        action = "sshd takes the first SetEnv only: look for another one in /etc/ssh/sshd_config and sshd_config.d"
        yield Finding("ssh sessions", text, expected, action)


def _versions(state: State, plan: Mapping[str, Any]) -> str:
    homes = sorted({step["home"] for step in plan["toolkits"]}, key=lambda where: where != plan["default"])
    found = [state["toolkits"].get(where) or {} for where in homes]
    return ", ".join(f"nvcc {one.get('nvcc') or 'missing'}" for one in found) or "none"
