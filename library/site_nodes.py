#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_nodes
short_description: Keep what the hosts of a cluster were, were changed to, and are to be
description: The examples have the options of each step.
options:
  step:
    description:
      - V(record) opens the record of each host before site.yml changes it, and closes it afterwards. All that is new
        then is trainyard's. The record is C(removal/record.json) in C(trainyard_records), where only root writes. It is
        not counted as a change.
      - V(remove) plans on all hosts by their records how trainyard is taken off. If a host does not answer, runs a job,
        or has a record that cannot be used, no host is changed. Then it removes what is trainyard's, and puts back what
        was there before. What stays is named with its reason.
      - V(upgrade_table) reads or writes how the nodes of a driver upgrade stand, in C(runs/nvidia-upgrade-CLUSTER), as
        C(table.json) and, for people, C(table.txt). The next run of C(playbooks/nvidia_upgrade.yml) goes on from there.
        No machine is touched.
      - V(slurm) returns the texts of C(slurm.conf), C(gres.conf), C(cgroup.conf) and C(topology.conf), and changes
        nothing. It fails with all findings if a setting or an answer of a node cannot stand in these files, if two
        nodes have one host name, or if a node has no description by slurmd, an incompatible release of Slurm, or fewer
        devices than its configuration.
    type: str
    choices: [record, remove, upgrade_table, slurm]
    required: true
  hosts: {description: Inventory names., type: list, elements: str}
  state: {description: V(open) before all changes and V(closed) after them., type: str, choices: [open, closed]}
  data:
    description: Whether folders of jobs, data sets, checkpoints, and files in the home of the training user go as well.
    type: bool
    default: false
  runs: {description: Folder of the runs and of the reports of verifications., type: path}
  cluster: {description: Name of the cluster., type: str}
  entries:
    description:
      - Entries of the table by host, C(state), C(why), C(target) and C(before). Other entries stay.
      - Without entries the table is read.
    type: dict
    default: {}
  batches: {description: "Batches of hosts, by which the text is ordered.", type: list, elements: list, default: []}
  settings:
    description: The settings of the role C(slurm).
    type: dict
    suboptions:
      name: {description: Name of the cluster., type: str, required: true}
      controller: {description: The one of O(nodes) that runs slurmctld., type: str, required: true}
      confinement:
        description: V(cgroup) confines a job to its cores, memory and devices, which V(none) does not.
        type: str
        choices: [cgroup, none]
        default: cgroup
      partition: {description: Name of the partition., type: str, default: train}
      node_timeout_s: {description: Seconds after which a silent node is down., type: int, default: 60}
      requeue_wait_s:
        description: Seconds until a requeued job restarts, and time limit for the start of a step.
        type: int
        default: 120
      health_interval_s: {description: Seconds between two checks., type: int, default: 300}
      health_program: {description: Program with which slurmd checks a node., type: str, default: ""}
      epilog: {description: Program that kills remaining processes of a job on each node., type: str, default: ""}
  nodes:
    description:
      - The nodes by the filter C(slurm_nodes), which reads C(ansible_host), C(ansible_facts) and the results
        C(__slurm_described) (slurmd -C), C(__slurm_version) (slurmd -V), C(__slurm_conf) (the present C(slurm.conf))
        and C(__slurm_accelerators) of each host.
    type: list
    elements: dict
  topology:
    description: >-
      File with the switches of the nodes, in the form of C(topology.conf); without it, the newest topology in O(runs).
    type: path
    default: ""
attributes:
  check_mode:
    support: full
    description: Nothing is written. V(remove) prints what would be removed.
"""

EXAMPLES = r"""
- name: Record what the hosts are
  site_nodes: {step: record, hosts: "{{ ansible_play_hosts }}", state: open}
  run_once: true

- name: Take trainyard off the hosts
  site_nodes: {step: remove, hosts: "{{ ansible_play_hosts_all }}"}

- name: Note that a node is at work
  site_nodes: {step: upgrade_table, runs: runs, cluster: trainyard, entries: {n1: {state: installing, why: ""}}}

- name: Render the configuration
  site_nodes:
    step: slurm
    settings: {name: trainyard, controller: n1}
    nodes: "{{ hosts | slurm_nodes(hostvars) }}"
    runs: runs
  run_once: true
"""

RETURN = r"""
text:
  description: A list of what was removed, and of what stays; or the table for people, with O(entries) of these nodes.
  returned: remove and upgrade_table
  type: str
table: {description: By host its entry., returned: upgrade_table, type: dict}
folder: {description: Folder of the table., returned: upgrade_table, type: str}
files: {description: Texts by the name of the file., returned: slurm, type: dict}
"""
