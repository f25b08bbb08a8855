# SPDX-License-Identifier: Apache-2.0
"""Filters ROLE_plan, validate_* and nvidia_upgrade_*: plan for all nodes together."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils

# ansible-doc imports this file without the project's module_utils.
ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from ansible.module_utils.trainyard.ascend import software as ascend
from ansible.module_utils.trainyard.cluster.hosts import ClusterSettings, Node, parse_memlock, plan_cluster
from ansible.module_utils.trainyard.cluster.survey import Survey, describe_nodes, is_refused, survey_findings
from ansible.module_utils.trainyard.findings.findings import Finding, render
from ansible.module_utils.trainyard.job.placement import cluster_files
from ansible.module_utils.trainyard.nvidia import cuda_plan, driver_plan, library_plan, nccl_tests, stack, upgrade
from ansible.module_utils.trainyard.software import datasets, mindspore, oneflow, openmpi, pytorch
from ansible.module_utils.trainyard_controller.filters import checked, plan_filter

RULES = {
    "ascend_plan": ascend.plan_packages,
    "cuda_toolkit_plan": cuda_plan.plan_toolkits,
    "nccl_tests_plan": nccl_tests.plan_builds,
    "nvidia_driver_plan": driver_plan.plan_hosts,
    "openmpi_plan": openmpi.plan_builds,
}
FRAMEWORKS = {"mindspore_plan": mindspore, "oneflow_plan": oneflow, "pytorch_plan": pytorch}

# Faults of a host that answers all the same.
ASKED = ("operating system", "host name", "inventory")


def framework_filter(rules: ModuleType) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a filter of a framework's settings: the findings, and what to install where there are none."""

    def plan(settings: Mapping[str, Any]) -> dict[str, Any]:
        given = rules.Settings(
            **{key: value if isinstance(value, (bool, list)) else str(value) for key, value in settings.items()}
        )
        findings = [finding.as_dict() for finding in rules.input_findings(given)]
        return {"findings": findings, **({} if findings else rules.plan(given))}

    return plan


def dataset_plan(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the findings, the data sets and their sources."""
    planned, findings = datasets.plan(sets)
    records = [finding.as_dict() for finding in findings]
    return {"findings": records, "sets": planned, "sources": datasets.sources(planned)}


def nvidia_stack_plan(
    nodes: Sequence[Mapping[str, Any]], catalog: Mapping[str, Any], rules: Mapping[str, Any], accept: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the chosen parts, the findings, and a summary for people."""
    choice = stack.choose_all(nodes, catalog, rules, accept)
    warnings = render(choice.warnings, "Warnings that do not stop ({count} {findings}):") if choice.warnings else ""
    return {
        "nodes": choice.parts,
        "findings": [finding.as_dict() for finding in choice.findings],
        "summary": "\n\n".join(text for text in (choice.table, warnings) if text),
    }


def node_baseline_plan(
    nodes: Iterable[Mapping[str, Any]],
    user: str,
    uid: int,
    group: str,
    gid: int,
    nofile: int,
    network: str = "",
    memlock: str | int = "unlimited",
    sets_clock: bool = False,
) -> dict[str, Any]:
    """Return findings, entries, limits and exceptions."""
    wrong = []
    try:
        if network:
            ipaddress.ip_network(str(network), strict=False)
    except ValueError as error:
        wrong.append((str(error), "trainyard_network (or node_baseline_network) a CIDR such as 10.0.0.0/24"))
    try:
        limit = parse_memlock(str(memlock))
    except ValueError as error:
        wrong.append((str(error), "node_baseline_memlock 'unlimited' or KiB"))
    if wrong:
        findings = [Finding("input of node_baseline", found, expected, "correct it") for found, expected in wrong]
        return {"findings": [finding.as_dict() for finding in findings]}
    settings = ClusterSettings(
        str(user), int(uid), str(group), int(gid), str(network), limit, int(nofile), bool(sets_clock)
    )
    planned = plan_cluster([Node.from_dict(node) for node in nodes], settings)
    return {
        "findings": [finding.as_dict() for finding in planned.findings],
        "entries": [{"address": entry.address, "names": list(entry.names)} for entry in planned.entries],
        "limits": planned.limits,
        "exceptions": list(planned.exceptions),
    }


def validate_survey(
    nodes: Iterable[Mapping[str, Any]], free_gib: Mapping[str, Any], check_system: bool
) -> dict[str, Any]:
    """Return findings and summary."""
    surveys = []
    for node in nodes:
        probe, plain = node["__validate_probe"], node.get("__validate_plain") or {}
        record = {
            "name": node["name"],
            "connect": node.get("ansible_host", node["name"]),
            "probe": plain if "stdout" in plain else probe,
            "become": probe if node["trainyard_become"] else None,
        }
        surveys.append(Survey.from_dict(record))
    findings = survey_findings(surveys, {path: float(size) for path, size in free_gib.items()}, bool(check_system))
    # Hosts with other findings can still be checked further.
    deaf = {finding.host for finding in findings if finding.check not in ASKED and "space" not in finding.check}
    return {
        "findings": [finding.as_dict() for finding in findings],
        "usable": [survey.name for survey in surveys if survey.name not in deaf],
        "summary": "" if findings else describe_nodes(surveys),
    }


def validate_refused(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the hosts that answered nothing as root and may without."""
    asked = [node for node in nodes if "__validate_probe" in node and node["trainyard_become"]]
    return [node["name"] for node in asked if is_refused(node["__validate_probe"])]


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        return {
            **{name: plan_filter(rule) for name, rule in RULES.items()},
            **{name: framework_filter(rules) for name, rules in FRAMEWORKS.items()},
            "cuda_toolkit_offers": checked(cuda_plan.offers),
            "cuda_toolkit_sources": checked(cuda_plan.sources),
            "dataset_plan": checked(dataset_plan),
            "hostfile_plan": checked(cluster_files.plan_hostfile),
            "inventory_plan": checked(cluster_files.plan_inventory),
            "node_baseline_plan": node_baseline_plan,
            "nvidia_driver_offers": checked(driver_plan.offers),
            "nvidia_library_plan": checked(library_plan.plan),
            "nvidia_stack_defaults": checked(stack.role_defaults),
            "nvidia_stack_plan": checked(nvidia_stack_plan),
            "nvidia_upgrade_before": checked(upgrade.previous),
            "nvidia_upgrade_parts": checked(upgrade.parts),
            "nvidia_upgrade_plan": checked(upgrade.plan),
            "nvidia_upgrade_returned": checked(upgrade.check_returned),
            "nvidia_upgrade_settled": checked(upgrade.settle),
            "rank_table_plan": checked(cluster_files.plan_rank_table),
            "validate_refused": validate_refused,
            "validate_survey": validate_survey,
        }
