# SPDX-License-Identifier: Apache-2.0
"""Filters of verify.yml: the roles and jobs of a phase, and the phase's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ansible.module_utils

# ansible-doc imports this file without the project's module_utils.
ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from ansible.module_utils.trainyard.verify import measured, phases, settings, software


def benchmark_checks(records: Iterable[Mapping[str, Any]], again: str) -> list[dict[str, Any]]:
    """Return the checks of all benchmarks."""
    return [check.as_dict() for record in records for check in measured.benchmark_checks(record, again)]


def measurement_findings(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is wrong with the settings of a measurement."""
    return [finding.as_dict() for finding in settings.findings(given)]


def straggler_checks(stragglers: Mapping[str, Any], again: str) -> list[dict[str, Any]]:
    """Return the checks; none where nothing was measured."""
    return [check.as_dict() for check in measured.straggler_checks(stragglers, again)] if stragglers else []


def software_checks(
    hosts: Iterable[Mapping[str, Any]], roles: Mapping[str, Sequence[str]], again: str
) -> list[dict[str, Any]]:
    """Return the checks of all roles."""
    said = {host["name"]: host.get("__verify_noted") or {} for host in hosts}
    checks = []
    for role, wanted in roles.items():
        of_role = {host: outcomes[role] for host, outcomes in said.items() if role in outcomes}
        checks += software.check_role(role, wanted, of_role, again)
    return [check.as_dict() for check in checks]


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        return {
            "benchmark_checks": benchmark_checks,
            "measurement_findings": measurement_findings,
            "straggler_checks": straggler_checks,
            "software_checks": software_checks,
            "phase_outcome": phases.phase_outcome,
            "job_hosts": phases.job_hosts,
            "first_job": phases.first_job,
            "verified_roles": phases.verified_roles,
        }
