# SPDX-License-Identifier: Apache-2.0
"""Filters ROLE_findings: compare what was read of all nodes, and return findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ansible.module_utils

# ansible-doc imports this file without the project's module_utils.
ansible.module_utils.__path__.append(str(Path(__file__).resolve().parents[2] / "module_utils"))

from ansible.module_utils.trainyard.ascend import software as ascend
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.hardware import rdma
from ansible.module_utils.trainyard.nvidia import cuda_findings, driver, library, nccl_tests, nccl_tests_verify, upgrade
from ansible.module_utils.trainyard.slurm.change import change_findings
from ansible.module_utils.trainyard.slurm.configuration import nodes_of
from ansible.module_utils.trainyard.slurm.confinement import confinement_findings
from ansible.module_utils.trainyard.software import openmpi
from ansible.module_utils.trainyard_controller.filters import findings_filter


def slurm_findings(
    nodes: Sequence[Mapping[str, Any]], cluster: str, controller: str, states: str = ""
) -> list[Finding]:
    """Find obstacles to a change of a Slurm cluster in the results that tasks registered on its nodes."""
    described = nodes_of(nodes)
    findings = change_findings(cluster, controller, described, states)
    return findings + confinement_findings([node for node in described if node["cgroups"] is not None])


RULES = {
    "openmpi_input_findings": openmpi.input_findings,
    "ascend_findings": ascend.verify,
    "ascend_remarks": ascend.remarks,
    "cuda_toolkit_findings": cuda_findings.check,
    "nccl_tests_input_findings": nccl_tests.input_findings,
    "nccl_tests_findings": nccl_tests_verify.check,
    "nvidia_driver_findings": driver.check_hosts,
    "nvidia_library_findings": library.check_nodes,
    "nvidia_upgrade_findings": upgrade.stops,
    "rdma_findings": rdma.check,
    "slurm_findings": slurm_findings,
}


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        return {name: findings_filter(rule) for name, rule in RULES.items()}
