# SPDX-License-Identifier: Apache-2.0
"""Filters that only choose or rewrite values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ansible.module_utils

# ansible-doc imports this file without the project's module_utils.
ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from ansible.module_utils.trainyard.cluster import ssh_names
from ansible.module_utils.trainyard.cluster.ssh_logins import parse_peers, peers
from ansible.module_utils.trainyard.findings import adhoc
from ansible.module_utils.trainyard.job.run.progress import clock
from ansible.module_utils.trainyard.software import files


def peers_of(nodes: Sequence[str], own: str, most: str | int, changed: Sequence[str] | None = None) -> list[str]:
    """Return the part of `nodes` that the node `own` tests. Raises ValueError."""
    if own not in nodes:
        raise ValueError(f"{own} is none of the nodes: {', '.join(nodes)}")
    return peers(list(nodes), own, parse_peers(str(most)), None if changed is None else set(changed))


def vars_of(
    hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], names: Iterable[str]
) -> list[dict[str, Any]]:
    """Return for each host its name and those of the variables that it has."""
    wanted, records = list(names), []
    for host in hosts:
        variables = hostvars[host]
        records.append({"name": host, **{name: variables[name] for name in wanted if name in variables}})
    return records


def declared_addresses(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the addresses that the inventory gives these hosts, which their certificates for ssh bear."""
    return ssh_names.declared_addresses(ssh_names.declared_names(vars_of(hosts, hostvars, ssh_names.NAMED_BY)))


def versions_in(environment: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Return the texts with the versions, and the Python."""
    found = [text % environment["packages"].get(name, "missing") for name, text in texts.items()]
    return ", ".join([*found, f"Python {'.'.join(environment['version'].split('.')[:2])}"])


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        return {
            "declared_addresses": declared_addresses,
            "duration": clock,
            "inventory_options": adhoc.inventory_options,
            "printed_command": adhoc.playbook,
            "peers_of": peers_of,
            "differing": files.differing,
            "vars_of": vars_of,
            "versions_in": versions_in,
            "with_folders": files.with_folders,
        }
