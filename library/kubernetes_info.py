#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read whether a Kubernetes cluster can run a job."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kubernetes_info
short_description: Read whether a Kubernetes cluster can run a job
description:
  - Asks the cluster for its version, for the kind of resource that the job is, for the rights that it takes, and for
    the objects that the job file names.
  - Never fails; what is missing is a finding.
version_added: "0.1.0"
options:
  job:
    description: The C(job_*) variables of the job file.
    type: dict
    required: true
extends_documentation_fragment: [kubernetes_cluster, read_only]
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Ask whether the cluster can run it
  kubernetes_info:
    context: training
    job: {job_image: "registry.example/pytorch:2.13", job_kubernetes: {resource: PyTorchJob}}
  register: cluster
"""

RETURN = r"""
facts:
  description: C(version) of the cluster, C(server) and the C(namespace) that the job will be in.
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.kube import settings
from ansible.module_utils.trainyard.schedulers import kubernetes
from ansible.module_utils.trainyard_kubernetes.cluster import CONNECTION, Cluster, ClusterError, preflight


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={**CONNECTION, "job": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    params = module.params
    job = params["job"]
    facts: dict[str, object] = {}
    findings = []
    try:
        cluster = Cluster(*(params[name] for name in CONNECTION))
        facts = {"version": cluster.version(), "server": cluster.server, "namespace": cluster.namespace}
        # What is wrong with the job file is the plan's to say.
        chosen, _ = settings.parse(job, str(job.get("job_launcher") or ""))
        if chosen is not None:
            needs = kubernetes.needs(chosen, recovery=bool(job.get("job_recovery")))
            made = kubernetes.made_beside(chosen, secrets=bool(job.get("job_secret_env") or job.get("job_tls")))
            findings = preflight(cluster, chosen.resource, needs, made)
    except ClusterError as error:
        findings = [error.finding]
    # A plan that nobody can start is not kept.
    facts["refused"] = bool(findings)
    module.exit_json(changed=False, facts=facts, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
