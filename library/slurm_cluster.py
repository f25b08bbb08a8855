#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin slurm_cluster."""

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
      - Of each node, as the filter C(vars_of) returns it, C(name), C(ansible_host), C(ansible_facts) with its
        C(hostname), and what the role has registered, C(__slurm_described) (slurmd -C), C(__slurm_version) (slurmd -V),
        C(__slurm_conf) (its C(slurm.conf) of now, as slurp returns it) and C(__slurm_accelerators).
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Render the configuration
  slurm_cluster:
    name: trainyard
    controller: n1
    controller_address: 10.77.0.11
    nodes: "{{ hosts | vars_of(hostvars, ['ansible_facts', '__slurm_described', '__slurm_version']) }}"
  run_once: true
"""

RETURN = r"""
files:
  description: Texts by the name of the file.
  returned: success
  type: dict
"""
