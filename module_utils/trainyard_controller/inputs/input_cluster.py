# SPDX-License-Identifier: Apache-2.0
"""Set the cluster's defaults for a run, and check its variables: one value for all nodes and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.template import trust_as_template

from ...trainyard.base.findings import Finding, UnusableError
from ...trainyard.cluster.hosts import inventory_findings
from ...trainyard.inputs import cluster_values, input_variables, nothing_to_do
from ...trainyard.inputs.input_variables import INVENTORY, Place
from ..runs import run_folder, topologies
from . import input_login
from .input_run import InputRun, places
from .value_sources import leaves, place_of

# Variables that must be the same for all nodes and the controller, which plans with them.
_SAME = ("trainyard_cluster", "trainyard_root", "trainyard_state", "trainyard_uid", "trainyard_user")
_STACKS = ("nvidia_stack", "nvidia_stack_own")
# Playbooks that write the report of a verification.
_VERIFY = ("site.yml", "verify.yml")


def set_defaults(run: InputRun, where: Mapping[str, Place]) -> set[str]:
    """Set the cluster's defaults for the group all, below the inventory; return their names.

    They are the documented ones, or those of the login. `where` is the result of `written`.
    """
    everybody = run.inventory.groups["all"]
    names = set(run.cluster_names - set(everybody.vars))
    for name in names:
        default = run.documented[name].default
        everybody.set_variable(name, trust_as_template(default) if isinstance(default, str) else default)
    for name, value in input_login.defaults(run, where).items():
        # Also of roles, whose variables have had no default here.
        if name in names or name not in everybody.vars:
            everybody.set_variable(name, value)
    return names


def share_with_controller(run: InputRun, by_default: set[str]) -> list[Finding]:
    """Copy variables that only nodes have to localhost, where jobs are planned; find those that differ there.

    `by_default` are the names whose value is a default.
    """
    nodes = run.compute()
    # Hosts by variable and text. The group all includes localhost.
    hosts_by_text: dict[str, dict[str, list[str]]] = {}
    names = run.controller_names | run.cluster_names
    for entity, filed in run.entities:
        if entity.name in ("all", "localhost"):
            continue
        hosts = [host.name for host in run.hosts_of(entity) if host.name in nodes]
        for name in names.intersection(set(entity.vars) | set(filed)):
            text = repr(filed.get(name, entity.vars.get(name)))
            hosts_by_text.setdefault(name, {}).setdefault(text, []).extend(hosts)
    findings = []
    controller = run.inventory.get_host("localhost")
    not_set = run.controller_names.difference(run.manager.get_vars(host=controller))
    for name, by_text in hosts_by_text.items():
        try:
            here = run.value(controller, name) if name not in not_set - by_default else "nothing"
            there = [(run.value(nodes[hosts[0]], name), hosts) for hosts in by_text.values() if hosts]
        except AnsibleError:
            continue
        if all(str(value) == str(here) for value, _ in there):
            continue
        one = all(value == there[0][0] for value, _ in there)
        if one and {host for _, hosts in there for host in hosts} == set(nodes) and name in by_default | not_set:
            controller.set_variable(name, there[0][0])
        elif name in _SAME or name in run.controller_names:
            findings.append(input_variables.differs(name, here, there))
    return findings


def node_names(run: InputRun) -> list[Finding]:
    """Find names of nodes that cannot stand in /etc/hosts, which the playbooks write."""
    if not run.is_of_project or run.playbook.name not in ("site.yml", "provision.yml"):
        return []
    return [
        finding
        for name, host in run.compute().items()
        for finding in inventory_findings([name])
        if run.value(host, "trainyard_manage_system")
    ]


def written(run: InputRun) -> dict[str, Place]:
    """Return where the cluster's variables were written, before there are defaults."""
    where: dict[str, Place] = {}
    for entity, filed in run.entities:
        for variables in (entity.vars, filed):
            for name in run.cluster_names.union(_STACKS).intersection(variables):
                where[name] = places(variables)(name)
    return {**where, **{name: place_of(name) for name in run.extra}}


def values(run: InputRun, where: Mapping[str, Place]) -> list[Finding]:
    """Find impossible folders, uid and NVIDIA stack; `where` is the result of `written`."""
    host = next(iter(run.compute().values()), None) or run.inventory.get_host("localhost")
    findings: list[Finding] = []
    for name, place in where.items():
        try:
            findings += _value(run, host, name, place, "nvidia_stack_own" in where)
        except (AnsibleError, KeyError, TypeError, ValueError):
            # The value depends on facts, or its type is a finding already.
            continue
    return findings


def _value(run: InputRun, host: Any, name: str, place: Place, has_own: bool) -> list[Finding]:
    if name in cluster_values.FOLDERS:
        return cluster_values.folder(name, run.value(host, name), run.documented[name].default, place)
    if name == "trainyard_uid":
        manages = bool(run.value(host, "trainyard_manage_system"))
        return cluster_values.uid(int(run.value(host, name)), manages, place)
    group = run.inventory.groups.get("nvidia")
    # The role nvidia_stack compares it with its hosts; a template may differ by host.
    if name != "nvidia_stack" or (group and group.get_hosts()):
        return []
    if any(leaves(run.variables(host)[name])):
        return []
    catalog = yaml.safe_load((run.project / "roles/nvidia_stack/vars/main/stacks.yml").read_text())
    own = run.value(host, "nvidia_stack_own") if has_own else {}
    return cluster_values.stack(run.value(host, name), {**catalog["__nvidia_stack_catalog"], **own}, place)


def group_by(run: InputRun) -> list[Finding]:
    """Find that the nodes have no variable by which the report of a verification can group them."""
    if not run.is_of_project or run.playbook.name not in _VERIFY:
        return []
    controller = run.inventory.get_host("localhost")
    try:
        name = str(run.value(controller, "verify_group_by"))
    except (AnsibleError, KeyError):
        return []
    found: dict[str, Any] = {}
    for host in run.compute().values() if name else ():
        try:
            value = run.value(host, name)
        except KeyError:
            continue
        except AnsibleError:
            # It depends on facts, which a verification does not gather.
            value = None
        found = {host.name: value}
        break
    place = place_of(run.extra["verify_group_by"]) if "verify_group_by" in run.extra else INVENTORY
    return cluster_values.group_by(name, found, place) if name else []


def topology(run: InputRun) -> list[Finding]:
    """Find that the file trainyard_topology cannot be read."""
    path = str(run.value(run.inventory.get_host("localhost"), "trainyard_topology")) if run.is_of_project else ""
    try:
        topologies.given(path) if path else None
    except UnusableError as error:
        expected = "a file on the controller in the form of Slurm's topology.conf"
        return [Finding("trainyard_topology", f"{path}: {error}", expected, "correct the file, or trainyard_topology")]
    return []


def runs(run: InputRun) -> list[Finding]:
    """Find that a playbook could not write its results to trainyard_runs."""
    if not run.is_of_project or run.playbook.name not in nothing_to_do.RUNS:
        return []
    try:
        folder = Path(str(run.value(run.inventory.get_host("localhost"), "trainyard_runs"))).expanduser()
    except AnsibleError:
        return []
    return run_folder.findings(folder)
