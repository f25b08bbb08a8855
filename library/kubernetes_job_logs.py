#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the logs of a job from a Kubernetes cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kubernetes_job_logs
short_description: Read the logs of a job from a Kubernetes cluster
description:
  - Returns the log of each pod of the job under the project's name for it, and C(metrics.jsonl) of what rank 0 printed.
  - A pod that is gone has none; what was brought before stays in the run's folder.
version_added: "0.1.0"
options:
  settings:
    description: The settings of the job in its plan.
    type: dict
    required: true
  log_limit:
    description: Greatest number of bytes of each log; of a longer log the end is brought.
    type: int
    default: 4194304
  progress_pattern:
    description: Regular expression with named groups that reads metrics from the log of rank 0.
    type: str
    default: ""
extends_documentation_fragment: [kubernetes_cluster, read_only]
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Read the logs
  kubernetes_job_logs:
    settings: "{{ plan.engine.settings }}"
"""

RETURN = r"""
logs:
  description: Contents of the logs by name, base64.
  returned: success
  type: dict
"""

import base64

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_kubernetes.cluster import CONNECTION, Cluster, ClusterError
from ansible.module_utils.trainyard_kubernetes.run import job_logs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **CONNECTION,
            "settings": {"type": "dict", "required": True},
            "log_limit": {"type": "int", "default": 4 << 20},
            "progress_pattern": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        cluster = Cluster(*(params[name] for name in CONNECTION))
        logs = job_logs(cluster, params["settings"], params["log_limit"], params["progress_pattern"])
    except ClusterError as error:
        module.fail_json(msg=f"The logs of the job could not be read: {error}")
    module.exit_json(changed=False, logs={name: base64.b64encode(content).decode() for name, content in logs.items()})


if __name__ == "__main__":
    main()
