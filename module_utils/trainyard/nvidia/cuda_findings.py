# SPDX-License-Identifier: Apache-2.0
"""Whether all nodes have the CUDA toolkits that were planned, and the same ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, host_list
from .cuda import State
from .cuda_plan import compiler_finding, matches, toolkit_text


def judge(states: Sequence[State], plans: Mapping[str, Mapping[str, Any]], told: bool = False) -> list[Finding]:
    """Check the toolkits of all nodes: each as planned, and all nodes equal.

    `told`: whether sshd must have been told of the default.
    """
    findings = []
    for state in states:
        plan = plans[state["host"]]
        for step in plan["toolkits"]:
            found = state["toolkits"].get(step["home"])
            if not matches(step, found or {}):
                findings.append(
                    Finding(
                        "CUDA toolkit",
                        toolkit_text(found, step["home"]),
                        f"CUDA {step['version'] or 'of any version'}",
                        "run site.yml, or the vendor's installer again",
                        host=state["host"],
                    )
                )
            elif found and found["newest_gcc"] and step["provider"] != "distro":
                wrong = compiler_finding(state, step["version"], found["newest_gcc"], state["compiler"]["name"])
                findings += [wrong] if wrong else []
        if plan["default"] and state["default"] != plan["default"]:
            findings.append(
                Finding(
                    "default CUDA toolkit",
                    state["default"] or "none",
                    f"{state['root']}/cuda -> {plan['default']}",
                    "run site.yml",
                    host=state["host"],
                )
            )
        if told and f"{state['root']}/cuda/bin" not in (state["session"] or {}).get("PATH", "").split(":"):
            shown = "sshd does not say" if state["session"] is None else f"PATH={state['session'].get('PATH', '')}"
            expected = f"{state['root']}/cuda/bin in the PATH that sshd sets"
            action = "sshd takes the first SetEnv only: look for another one in /etc/ssh/sshd_config and sshd_config.d"
            findings.append(Finding("ssh sessions", shown, expected, action, host=state["host"]))
    return findings + _odd(states, plans)


def _odd(states: Sequence[State], plans: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Find nodes whose toolkits differ from the majority: programs compiled on one node would not load on another."""

    def has(state: State) -> str:
        plan = plans[state["host"]]
        homes = sorted({step["home"] for step in plan["toolkits"]}, key=lambda where: where != plan["default"])
        found = [state["toolkits"].get(where) or {} for where in homes]
        return ", ".join(f"nvcc {one.get('nvcc') or 'missing'}" for one in found) or "none"

    by_text: dict[str, list[str]] = {}
    for state in states:
        by_text.setdefault(has(state), []).append(str(state["host"]))
    if len(by_text) < 2:
        return []
    most = max(by_text, key=lambda text: len(by_text[text]))
    return [
        Finding(
            "CUDA toolkits",
            text,
            f"{most}, as on {host_list(by_text[most])}",
            "give all nodes the same cuda_toolkit_versions; other hardware is a cluster of its own",
            host=host,
        )
        for text, hosts in by_text.items()
        if text != most
        for host in hosts
    ]
