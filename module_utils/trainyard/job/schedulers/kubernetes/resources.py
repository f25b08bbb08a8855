# SPDX-License-Identifier: Apache-2.0
"""The kinds of resource that a job can be: batch/v1, and those of Kubeflow's MPI operator and of MindSpore's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """One kind of resource, with its launchers and the longest suffix of its pods' names."""

    kind: str
    api_version: str
    plural: str
    operator: str
    launchers: tuple[str, ...]
    container: str
    longest: str

    @property
    def group(self) -> str:
        """Name of the API group: kubeflow.org."""
        return self.api_version.partition("/")[0]


_MPI, _GITEE = "the MPI operator of Kubeflow", "mindspore.gitee.com/v1"
_ALL = ("torchrun", "msrun", "direct", "oneflow", "mindspore", "mpirun")
_RESOURCES = (
    # The controller appends an index and five random characters.
    Resource("Job", "batch/v1", "jobs", "", _ALL, "rank", "-99999-abcde"),
    Resource("MPIJob", "kubeflow.org/v2beta1", "mpijobs", _MPI, ("mpirun",), "mpi", "-launcher-abcde"),
    Resource("MSJob", _GITEE, "msjobs", "ms-operator", ("mindspore",), "mindspore", "-scheduler-99999"),
)
RESOURCES: dict[str, Resource] = {resource.kind: resource for resource in _RESOURCES}

# The resource of each launcher if a job file names none: the operator of its own, if there is one.
IMPLIED: Mapping[str, str] = {launcher: kind for kind, resource in RESOURCES.items() for launcher in resource.launchers}
