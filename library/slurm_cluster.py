#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin slurm_cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_cluster
short_description: Render the configuration of a Slurm cluster from the facts of its nodes
description:
  - Returns the texts of C(slurm.conf), C(gres.conf) and C(cgroup.conf), and changes nothing.
  - Fails with all findings if a setting or an answer of a node cannot stand in these files, if two nodes have one host
    name, or if a node has no description by slurmd, an incompatible release of Slurm, or fewer devices than its
    configuration. Runs on the controller.
options:
  settings:
    description: The settings of the role C(slurm).
    type: dict
    required: true
    suboptions:
      name:
        description: Name of the cluster.
        type: str
        required: true
      controller:
        description: Host of the inventory that runs slurmctld; one of O(nodes).
        type: str
        required: true
      confinement:
        description: V(cgroup) confines a job to its cores, memory and devices, which V(none) does not.
        type: str
        choices: [cgroup, none]
        default: cgroup
      partition:
        description: Name of the partition.
        type: str
        default: train
      node_timeout_s:
        description: Seconds after which a node that does not answer is down.
        type: int
        default: 60
      requeue_wait_s:
        description: Seconds until a requeued job restarts, and time limit for the start of a step.
        type: int
        default: 120
      health_interval_s:
        description: Seconds between two checks.
        type: int
        default: 300
      health_program:
        description: Program with which slurmd checks a node.
        type: str
        default: ""
      epilog:
        description: Program that kills remaining processes of a job on each node.
        type: str
        default: ""
  nodes:
    description:
      - The nodes by the filter C(slurm_nodes), which reads C(ansible_host), C(ansible_facts) and the results
        C(__slurm_described) (slurmd -C), C(__slurm_version) (slurmd -V), C(__slurm_conf) (the present C(slurm.conf))
        and C(__slurm_accelerators) of each host.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Render the configuration
  slurm_cluster:
    settings:
      name: trainyard
      controller: n1
    nodes: "{{ hosts | slurm_nodes(hostvars) }}"
  run_once: true
"""

RETURN = r"""
files:
  description: Texts by the name of the file.
  returned: success
  type: dict
"""
