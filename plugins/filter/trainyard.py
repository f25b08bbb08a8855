# SPDX-License-Identifier: Apache-2.0
"""All filters of the project: ROLE_findings and ROLE_plan compare and plan all nodes together; others rewrite values.

Each is one rule of module_utils/trainyard/, or adapts one to the variables of a playbook.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils

# ansible-doc imports this file without the project's module_utils.
ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from ansible.module_utils.trainyard.ascend import ascend_answers, ascend_software, role_input
from ansible.module_utils.trainyard.base import adhoc
from ansible.module_utils.trainyard.base.checks import Check
from ansible.module_utils.trainyard.base.findings import Finding, render
from ansible.module_utils.trainyard.base.received import Source
from ansible.module_utils.trainyard.base.shapes import Each, Text
from ansible.module_utils.trainyard.bundle import bundled_images, use
from ansible.module_utils.trainyard.cluster import cluster_answers, own_ssh_lines, ssh_mesh, ssh_names
from ansible.module_utils.trainyard.cluster.hosts import ClusterSettings, Node, parse_memlock, plan_cluster
from ansible.module_utils.trainyard.cluster.ssh_peers import parse_peers, peers
from ansible.module_utils.trainyard.cluster.survey import (
    Survey,
    describe_nodes,
    is_refused,
    login_findings,
    survey_findings,
)
from ansible.module_utils.trainyard.hardware import hardware_answers, rdma
from ansible.module_utils.trainyard.job.placement import cluster_files
from ansible.module_utils.trainyard.job.run.logs.progress import clock
from ansible.module_utils.trainyard.job.run.wire.answers import DEVICES
from ansible.module_utils.trainyard.nvidia import (
    container_toolkit,
    cuda_findings,
    cuda_plan,
    driver,
    driver_packages,
    driver_plan,
    library,
    library_plan,
    nccl_tests,
    nccl_tests_verify,
    nvidia_answers,
    stack,
    upgrade,
)
from ansible.module_utils.trainyard.slurm import configuration, slurm_answers
from ansible.module_utils.trainyard.software import (
    builds,
    compared,
    containers,
    datasets,
    file_differences,
    image,
    mindspore_releases,
    oneflow_releases,
    openmpi,
    pytorch,
    software_answers,
)
from ansible.module_utils.trainyard.verify import measured, measurement_settings, phases, result_events, software
from ansible.module_utils.trainyard_controller.ansible.filters import (
    as_error,
    as_plan,
    as_records,
    checked,
    findings_of_hosts,
    plan_filter,
    reads,
    records_filter,
    vars_of,
)
from ansible.module_utils.trainyard_controller.cluster.image_plan import image_plan
from ansible.module_utils.trainyard_controller.cluster.upgrade_table import entries_of
from ansible.module_utils.trainyard_controller.nodes import agent_code

# Findings of a host that answers all the same.
ANSWERING = (
    "operating system",
    "host name",
    "inventory",
    "trainyard_user",
    "trainyard_manage_system",
    "home",
    "folder",
)


def slurm_findings(nodes: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], states: str = "") -> list[Finding]:
    """Find obstacles to a change of a Slurm cluster in the results that tasks registered on its nodes."""
    return configuration.obstacles(configuration.ClusterSettings(**settings), configuration.nodes_of(nodes), states)


def framework_filter(rules: ModuleType) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a filter of a framework's settings: the findings, and without findings what to install."""

    def plan(settings: Mapping[str, Any]) -> dict[str, Any]:
        given = rules.Settings(
            **{key: value if isinstance(value, (bool, list)) else str(value) for key, value in settings.items()}
        )
        findings = [finding.as_dict() for finding in rules.input_findings(given)]
        return {"findings": findings, **({} if findings else rules.plan(given))}

    return plan


def dataset_plan(
    sets: Sequence[Mapping[str, Any]], here: Mapping[str, Any] | None = None, wheel: str = ""
) -> dict[str, Any]:
    """Return the findings, the data sets and their sources; `here`: a bundle, `wheel`: the sum of the digits' wheel."""
    planned, findings = datasets.plan(sets)
    # The digits themselves come from a wheel or as a file of their own, so they have no sum of a source.
    planned = [
        {**record, "sha256": each["sha256"]}
        for each in planned
        for record in use.with_files([{**each, "sha256": wheel} if each["kind"] == "digits" else each], here or {})
    ]
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
    nodes: Sequence[Mapping[str, Any]],
    user: str,
    uid: int,
    group: str,
    gid: int,
    nofile: int,
    network: str = "",
    memlock: str | int = "unlimited",
    sets_clock: bool = False,
    rdma: Iterable[str] = (),
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
    cluster = ClusterSettings(
        str(user), int(uid), str(group), int(gid), str(network), limit, int(nofile), bool(sets_clock), frozenset(rdma)
    )
    names = ssh_names.declared_names(nodes)
    planned = plan_cluster(
        [
            Node.from_dict(
                {
                    **node["__node_baseline_identity"],
                    "name": node["name"],
                    "names": names[node["name"]],
                    "connect": str(node.get("ansible_host") or node["name"]),
                }
            )
            for node in nodes
        ],
        cluster,
    )
    return {
        "findings": [finding.as_dict() for finding in planned.findings],
        "entries": [{"address": entry.address, "names": list(entry.names)} for entry in planned.entries],
        "limits": planned.limits,
        "exceptions": list(planned.exceptions),
    }


def validate_survey(
    nodes: Iterable[Mapping[str, Any]], free_gib: Mapping[str, Any], check_system: bool, user: str = "", state: str = ""
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
    findings += login_findings(surveys, list(free_gib), str(user), str(state), manages=bool(check_system))
    # Hosts with other findings can still be checked further.
    silent = {finding.host for finding in findings if finding.check not in ANSWERING and "space" not in finding.check}
    return {
        "findings": [finding.as_dict() for finding in findings],
        "usable": [survey.name for survey in surveys if survey.name not in silent],
        "summary": "" if findings else describe_nodes(surveys),
    }


def validate_refused(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the hosts that gave no answer as root and may give one without."""
    tried = [node for node in nodes if "__validate_probe" in node and node["trainyard_become"]]
    return [node["name"] for node in tried if is_refused(node["__validate_probe"])]


def peers_of(nodes: Sequence[str], own: str, most: str | int, changed: Sequence[str] | None = None) -> list[str]:
    """Return the part of `nodes` that the node `own` tests. Raises ValueError."""
    if own not in nodes:
        raise ValueError(f"{own} is none of the nodes: {', '.join(nodes)}")
    return peers(list(nodes), own, parse_peers(str(most)), None if changed is None else set(changed))


def declared_addresses(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the addresses that the inventory gives these hosts, which their certificates for ssh bear."""
    return ssh_names.declared_addresses(ssh_names.declared_names(vars_of(hosts, hostvars, ssh_names.NAMED_BY)))


def benchmark_checks(records: Iterable[Mapping[str, Any]], again: str) -> list[Check]:
    """Return the checks of all benchmarks."""
    return [check for record in records for check in measured.benchmark_checks(record, again)]


def straggler_checks(stragglers: Mapping[str, Any], again: str) -> list[Check]:
    """Return the checks; none if nothing was measured."""
    return measured.straggler_checks(stragglers, again) if stragglers else []


def software_checks(hosts: Iterable[Mapping[str, Any]], roles: Mapping[str, Sequence[str]], again: str) -> list[Check]:
    """Return the checks of all roles."""
    noted = {host["name"]: host.get("__verify_noted", {}) for host in hosts}
    checks: list[Check] = []
    for role, members in roles.items():
        of_role = {host: outcomes[role] for host, outcomes in noted.items() if role in outcomes}
        checks += software.check_role(role, members, of_role, again)
    return checks


def ssh_mesh_keys(hosts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return by host the key that was made for the training user, as `ssh_keys` of the fan-out returns it."""
    return {host["name"]: host.get("__ssh_mesh_made", {}) for host in hosts}


def bundle_states(hosts: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return by host the lines in which it describes the bundle that it has."""
    return {host["name"]: host.get("__bundle_state", {}).get("stdout_lines", []) for host in hosts}


def slurm_nodes(hosts: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the nodes of a Slurm cluster as the step slurm of the action cluster takes them."""
    return hosts


def hosts_with(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    """Return the hosts for which the playbook has set a variable, and not to false."""
    return [host for host in hosts if hostvars[host].get(name)]


def input_of_nodes(found: Iterable[Iterable[Mapping[str, str]]]) -> list[Finding]:
    """Return the findings about the input of all nodes, equal ones once."""
    return list(dict.fromkeys(Finding(**finding) for of_node in found for finding in of_node))


# Rules that return findings or checks.
RECORDS = {
    "ascend_findings": ascend_software.verify,
    "ascend_input_findings": role_input.input_findings,
    "ascend_remarks": ascend_software.remarks,
    "benchmark_checks": benchmark_checks,
    "build_findings": builds.shared_findings,
    "container_runtime_cdi_findings": container_toolkit.cdi_findings,
    "container_runtime_findings": containers.state_findings,
    "container_runtime_image_findings": bundled_images.input_findings,
    "container_runtime_input_findings": containers.input_findings,
    "container_runtime_probe_findings": containers.probe_findings,
    "container_runtime_wrong_findings": input_of_nodes,
    "cuda_toolkit_findings": cuda_findings.check,
    "image_settings_findings": image.settings_findings,
    "measurement_findings": measurement_settings.findings,
    "nccl_tests_findings": nccl_tests_verify.check,
    "nccl_tests_input_findings": nccl_tests.input_findings,
    "nvidia_driver_findings": driver.check_hosts,
    "nvidia_driver_module_findings": driver.module_findings,
    "nvidia_library_findings": library.check_nodes,
    "nvidia_upgrade_findings": upgrade.stops,
    "openmpi_input_findings": openmpi.input_findings,
    "openmpi_ranks_findings": openmpi.ranks_findings,
    "openmpi_wrong_findings": input_of_nodes,
    "openmpi_version_findings": openmpi.compare_versions,
    "oneflow_script_findings": compared.script_findings,
    "python_runtime_findings": compared.version_findings,
    "pytorch_build_findings": compared.build_findings,
    "rdma_findings": rdma.check,
    "slurm_findings": slurm_findings,
    "software_checks": software_checks,
    "straggler_checks": straggler_checks,
    "verify_events_findings": result_events.findings,
}
# Rules that return a plan by node, and findings.
PLANS = {
    "ascend_plan": ascend_software.plan_packages,
    "cuda_toolkit_plan": cuda_plan.plan_toolkits,
    "nccl_tests_plan": nccl_tests.plan_builds,
    "nvidia_driver_plan": driver_plan.plan_hosts,
    "openmpi_plan": openmpi.plan_builds,
}
FRAMEWORKS = {"mindspore_plan": mindspore_releases, "oneflow_plan": oneflow_releases, "pytorch_plan": pytorch}
# Rules that return plain values, and whose arguments are checked.
CHECKED: dict[str, Callable[..., Any]] = {
    "ascend_request": ascend_software.request,
    "build_copies": builds.copies,
    "bundle_environment": use.environment,
    "bundle_file": use.file,
    "bundle_files": use.with_files,
    "cuda_toolkit_offers": cuda_plan.offers,
    "cuda_toolkit_sources": cuda_plan.sources,
    "dataset_plan": dataset_plan,
    "hostfile_plan": cluster_files.plan_hostfile,
    "image_plan": image_plan,
    "image_summary": image.summary,
    "inventory_plan": cluster_files.plan_inventory,
    "nvidia_driver_locked": driver_packages.locked,
    "nvidia_driver_offers": driver_plan.offers,
    "nvidia_library_plan": library_plan.plan,
    "nvidia_stack_assumed": stack.assume,
    "nvidia_stack_defaults": stack.role_defaults,
    "nvidia_stack_plan": nvidia_stack_plan,
    "nvidia_upgrade_before": upgrade.previous,
    "nvidia_upgrade_parts": upgrade.parts,
    "nvidia_upgrade_plan": upgrade.plan,
    "nvidia_upgrade_returned": upgrade.check_returned,
    "nvidia_upgrade_settled": upgrade.settle,
    "nvidia_upgrade_sources": upgrade.sources,
    "rank_table_plan": cluster_files.plan_rank_table,
}
OTHERS: dict[str, Callable[..., Any]] = {
    "bundle_states": bundle_states,
    "declared_addresses": declared_addresses,
    "differing": file_differences.differing,
    "duration": clock,
    "seconds": ssh_mesh.parse_duration,
    "findings_of_hosts": findings_of_hosts,
    "first_job": phases.first_job,
    "hosts_with": hosts_with,
    "inventory_options": adhoc.inventory_options,
    "job_hosts": phases.job_hosts,
    "nvidia_upgrade_entries": entries_of,
    "node_baseline_plan": node_baseline_plan,
    "peers_of": peers_of,
    "own_ssh_lines": own_ssh_lines.lines,
    "phase_outcome": phases.phase_outcome,
    "printed_command": adhoc.playbook,
    "slurm_nodes": slurm_nodes,
    "ssh_mesh_keys": ssh_mesh_keys,
    "validate_refused": validate_refused,
    "validate_survey": validate_survey,
    "vars_of": vars_of,
    "verified_roles": phases.verified_roles,
    "with_folders": file_differences.with_folders,
    "with_imports": agent_code.program,
}


# A finding about the input of a node, made here.
WRONG = dict.fromkeys(("check", "found", "expected", "action", "host"), str)
# What filters read of each host.
SOURCES = {
    "ascend_findings": Source("__ascend_checked", ascend_answers.STATE),
    "ascend_input_findings": Source("__ascend_input", ascend_answers.INPUT),
    "ascend_plan": Source("__ascend_node", ascend_answers.NODE),
    "ascend_remarks": Source("__ascend_checked", ascend_answers.STATE),
    "build_copies": Source("__build_once_found.built", software_answers.BUILT),
    "build_findings": Source("__build_once_found.built", software_answers.BUILT),
    "bundle_states": Source("", {"?__bundle_state": {"?stdout_lines": [Text(4096)]}}),
    "container_runtime_cdi_findings": Source(
        "__container_runtime_cdi.state", software_answers.CONTAINER_GPUS, may_lack=True
    ),
    "container_runtime_findings": Source("__container_runtime_read.state", software_answers.CONTAINERS),
    "container_runtime_probe_findings": Source("__container_runtime_probe.probe", software_answers.CONTAINER_PROBE),
    "container_runtime_wrong_findings": Source("__container_runtime_wrong", [WRONG]),
    "cuda_toolkit_findings": Source("__cuda_toolkit_state.state", nvidia_answers.TOOLKITS),
    "cuda_toolkit_plan": Source("__cuda_toolkit_node", nvidia_answers.TOOLKITS_NODE),
    "hostfile_plan": Source("", DEVICES),
    "nccl_tests_findings": Source("__nccl_tests_probe.probe", nvidia_answers.NCCL_TESTS_PROBE),
    "nccl_tests_plan": Source("__nccl_tests_node", nvidia_answers.NCCL_TESTS),
    "node_baseline_plan": Source("", cluster_answers.IDENTITY),
    "nvidia_driver_findings": Source("__nvidia_driver_compared", nvidia_answers.COMPARED, may_lack=True),
    "nvidia_driver_module_findings": Source("nvidia_driver_now.driver", nvidia_answers.DRIVER),
    "nvidia_driver_plan": Source("__nvidia_driver_node", nvidia_answers.DRIVER_NODE, may_lack=True),
    "nvidia_library_findings": Source("__nvidia_library_node", nvidia_answers.LIBRARY_NODE, may_lack=True),
    "nvidia_stack_plan": Source("__nvidia_stack_node", nvidia_answers.STACK_NODE, may_lack=True),
    "nvidia_upgrade_plan": Source("__nvidia_driver_upgrade_node", nvidia_answers.UPGRADE_NODE),
    "oneflow_script_findings": Source("", {"__oneflow_digests": software_answers.DIGESTS}),
    "openmpi_plan": Source("__openmpi_state.state", software_answers.OPENMPI),
    "openmpi_ranks_findings": Source("", software_answers.OPENMPI_RANKS),
    "openmpi_wrong_findings": Source("__openmpi_wrong", [WRONG]),
    "openmpi_version_findings": Source("__openmpi_state.state", software_answers.OPENMPI),
    "python_runtime_findings": Source("", software_answers.ENVIRONMENT),
    "pytorch_build_findings": Source("", software_answers.ENVIRONMENT),
    "rank_table_plan": Source("", DEVICES),
    "rdma_findings": Source("__rdma_node", hardware_answers.RDMA),
    "slurm_findings": Source("", slurm_answers.NODE),
    "slurm_nodes": Source("", slurm_answers.NODE),
    "software_checks": Source("", {"?__verify_noted": Each({"fault": object, "?all": object})}),
    "own_ssh_lines": Source("", own_ssh_lines.ANSWER),
    "ssh_mesh_keys": Source("", {"?__ssh_mesh_made": {"?user_key": Text(1 << 16)}}),
    "validate_refused": Source("", cluster_answers.PROBES),
    "validate_survey": Source("", cluster_answers.PROBES),
}


class FilterModule:
    """All filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        found = {
            **{name: records_filter(rule) for name, rule in RECORDS.items()},
            **{name: plan_filter(rule) for name, rule in PLANS.items()},
            **{name: framework_filter(rules) for name, rules in FRAMEWORKS.items()},
            **{name: checked(rule) for name, rule in CHECKED.items()},
            **OTHERS,
        }
        return {**found, **{name: reads(source, found[name], _refusal(name)) for name, source in SOURCES.items()}}


def _refusal(name: str) -> Callable[..., Any]:
    return as_records if name.endswith(("_findings", "_remarks")) else as_plan if name.endswith("_plan") else as_error
