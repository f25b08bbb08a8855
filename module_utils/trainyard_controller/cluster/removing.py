# SPDX-License-Identifier: Apache-2.0
"""Have all hosts keep a record of what they were before trainyard, and take trainyard off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...trainyard.base.findings import Finding, FindingsError
from ...trainyard.removal.summary import summary
from ..ansible.action_plugin import Documented
from ..nodes.fan_out import is_silent

# Seconds: a host lists its packages, and apt removes them.
_READ_S, _CHANGE_S = 300.0, 3600.0
# The fields of trainyard/removal/places.Settings, as templates of a host.
_SETTINGS = """{
    'cluster': trainyard_cluster, 'user': trainyard_user, 'root': trainyard_root, 'state': trainyard_state,
    'records': trainyard_records, 'manage_system': trainyard_manage_system | bool,
    'ssh_folder': ssh_mesh_node_dir | default('/etc/trainyard/ssh'),
    'images': container_runtime_storage | default(''),
    'folders': [openmpi_root, openmpi_prefix, cuda_toolkit_root, nccl_tests_software, python_runtime_root]
               | select('defined') | reject('eq', trainyard_root) | unique,
}"""


def keep(action: Documented, hosts: Sequence[str], *, begin: bool) -> None:
    """Have all hosts open or close their records. Raises FindingsError."""
    nodes = action.fan_out()
    own = {host: {"settings": action.value_on(host, _SETTINGS), "begin": begin} for host in hosts}
    answers = nodes.ask("keep_record", own, None, _READ_S)
    findings = [*nodes.silent_findings(answers), *_findings(answers)]
    if findings:
        headline = "{count} {findings}: what the hosts were before could not be recorded"
        raise FindingsError(findings, f"{headline}, so no role has run." if begin else f"{headline}.")


def take_off(action: Documented, hosts: Sequence[str], *, data: bool, check: bool) -> tuple[str, bool]:
    """Take trainyard off all hosts, or say what that would do; return a text, and whether something changed.

    Raises FindingsError.
    """
    nodes = action.fan_out()
    settings = {host: {"settings": action.value_on(host, _SETTINGS), "data": data} for host in hosts}
    plans = nodes.ask("removal", settings, {"change": False}, _READ_S)
    findings = [*nodes.silent_findings(plans), *_findings(plans)]
    if findings:
        raise FindingsError(findings, "{count} {findings}: nothing was removed from any host.")
    if check:
        return summary(plans, check=True), any(plan.get("steps") for plan in plans.values())
    answers = nodes.ask("removal", settings, {"change": True}, _CHANGE_S)
    findings = [*nodes.silent_findings(answers), *_findings(answers)]
    text = summary({host: answer for host, answer in answers.items() if not is_silent(answer)}, check=False)
    if findings:
        raise FindingsError(findings, text + "\n\n{count} {findings}: not everything was removed.")
    return text, any(answer.get("steps") for answer in answers.values())


def _findings(answers: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of the hosts that answered."""
    return [
        Finding.from_dict(each).on(host) for host, answer in answers.items() for each in answer.get("findings") or ()
    ]
