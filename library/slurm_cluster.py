#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Write the configuration of a Slurm cluster as text; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_cluster
short_description: Render the configuration of a Slurm cluster from what its nodes are
description:
  - Returns the texts of C(slurm.conf), C(gres.conf) and C(cgroup.conf), and changes nothing.
  - Fails, with all findings at once, where a node does not say what it is, has another release of Slurm than its
    controller works with, or has fewer devices than its configuration.
  - Runs once, on the controller.
version_added: "0.1.0"
options:
  name:
    description: Name of the cluster.
    type: str
    required: true
  controller:
    description: Host name of the node that runs slurmctld.
    type: str
    required: true
  controller_address:
    description: Its address.
    type: str
    required: true
  confinement:
    description: V(cgroup) keeps a job to its cores, memory and devices. V(none) is for nodes that cannot.
    type: str
    choices: [cgroup, none]
    default: cgroup
  partition:
    description: Name of the one partition.
    type: str
    default: train
  node_timeout:
    description: Seconds after which a node that does not answer is down.
    type: int
    default: 60
  requeue_wait:
    description: Seconds that a requeued job waits before it starts again, and that a step may take to start.
    type: int
    default: 120
  health_program:
    description: Program by which slurmd has each node checked.
    type: str
    default: ""
  epilog:
    description: Program that ends on each node what a job has left.
    type: str
    default: ""
  health_interval:
    description: Seconds between two checks.
    type: int
    default: 300
  nodes:
    description:
      - Each with C(host), C(address), C(hostname), C(slurmd) (output of slurmd -C), C(version) (of slurmd -V), C(conf)
        (its C(slurm.conf) of now, empty where there is none) and C(accelerators).
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Render the configuration
  slurm_cluster:
    name: trainyard
    controller: n1
    controller_address: 10.77.0.11
    nodes:
      - {host: n1, address: 10.77.0.11, hostname: n1, slurmd: "{{ described.stdout }}", accelerators: {}}
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description: Texts by the name of the file.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.record.findings import render as render_findings
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, render


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "controller": {"type": "str", "required": True},
            "controller_address": {"type": "str", "required": True},
            "confinement": {"type": "str", "choices": ["cgroup", "none"], "default": "cgroup"},
            "partition": {"type": "str", "default": "train"},
            "node_timeout": {"type": "int", "default": 60},
            "requeue_wait": {"type": "int", "default": 120},
            "health_program": {"type": "str", "default": ""},
            "epilog": {"type": "str", "default": ""},
            "health_interval": {"type": "int", "default": 300},
            "nodes": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    settings = ClusterSettings(
        name=params["name"],
        controller=params["controller"],
        controller_address=params["controller_address"],
        confinement=params["confinement"],
        partition=params["partition"],
        node_timeout_s=params["node_timeout"],
        requeue_wait_s=params["requeue_wait"],
        health_program=params["health_program"],
        epilog=params["epilog"],
        health_interval_s=params["health_interval"],
    )
    files, findings = render(settings, params["nodes"])
    if findings:
        module.fail_json(msg=render_findings(findings, "{count} {findings}: there is no configuration for Slurm."))
    module.exit_json(changed=False, files=files)


if __name__ == "__main__":
    main()
