# SPDX-License-Identifier: Apache-2.0
"""The options of modules that ask a Kubernetes cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of which cluster it is, and which namespace."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Path of the kubeconfig. By default as for kubectl.
    type: path
    default: ""
  context:
    description: Context of the kubeconfig. By default its current one.
    type: str
    default: ""
  namespace:
    description: Namespace of the job. By default that of the context.
    type: str
    default: ""
requirements:
  - kubernetes
"""
