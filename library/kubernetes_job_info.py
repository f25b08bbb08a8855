#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ask a Kubernetes cluster how a job is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kubernetes_job_info
short_description: Ask a Kubernetes cluster how a job is
description:
  - Returns the state in the project's words, the cluster's own reason, and a line for whoever watches.
  - Of a job that is not in the cluster any more it returns how it had ended, as its summary says.
version_added: "0.1.0"
options:
  settings:
    description: The settings of the job in its plan.
    type: dict
    required: true
  progress_pattern:
    description: Regular expression with named groups that reads metrics from the log of rank 0.
    type: str
    default: ""
  waits:
    description: Whether somebody waits for the end; then a job that can never start counts as failed.
    type: bool
    default: false
  before:
    description: The job's state before it was deleted, to tell how it ended and what is left of it.
    type: dict
extends_documentation_fragment: [kubernetes_cluster, read_only]
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Ask how a job is
  kubernetes_job_info:
    settings: "{{ plan.engine.settings }}"
"""

RETURN = r"""
state:
  description: V(pending), V(running), V(succeeded), V(failed), V(timed_out), V(stopped) or V(lost).
  returned: success
  type: str
reason:
  description: The cluster's own words for why.
  returned: success
  type: str
hopeless:
  description: Why the job can never start; empty where it may.
  returned: success
  type: str
line:
  description: What a watcher prints.
  returned: success
  type: str
restarts:
  description: Each restart of a container or a pod, as in C(summary.json).
  returned: success
  type: list
  elements: dict
told:
  description: The same as lines, each of which a watcher prints once.
  returned: success, unless O(before) is given
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_kubernetes.cluster import CONNECTION, Cluster, ClusterError
from ansible.module_utils.trainyard_kubernetes.run import after_deletion, job_state


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **CONNECTION,
            "settings": {"type": "dict", "required": True},
            "progress_pattern": {"type": "str", "default": ""},
            "waits": {"type": "bool", "default": False},
            "before": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        cluster = Cluster(*(params[name] for name in CONNECTION))
        if params["before"]:
            found = after_deletion(cluster, params["settings"], params["before"])
        else:
            found = job_state(cluster, params["settings"], params["progress_pattern"], params["waits"])
    except ClusterError as error:
        module.fail_json(msg=f"The cluster does not say how the job is: {error}")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
