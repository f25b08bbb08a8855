# SPDX-License-Identifier: Apache-2.0
"""Which jobs of a cluster an operator runs, so that no monitors of ours do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The resource of a launcher that has an operator.
RESOURCES = {"mpirun": "MPIJob", "mindspore": "MSJob"}
INSTEAD = "job_scheduler: ssh or slurm, or a plain Job"


def of(given: Mapping[str, Any], scheduler: str, launcher: str) -> str:
    """Return the operator's resource that a job of Kubernetes is; "" for a plain Job, and elsewhere."""
    if scheduler != "kubernetes":
        return ""
    options = given.get("job_kubernetes")
    chosen = options.get("resource") if isinstance(options, Mapping) else ""
    resource = str(chosen or RESOURCES.get(launcher, ""))
    return resource if resource in RESOURCES.values() else ""
