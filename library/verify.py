#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify
short_description: Read all nodes of a cluster, and check them together
description: The phases of C(verify.yml). Findings do not fail the task. The examples have the options of each step.
options:
  step:
    description:
      - V(read) asks all nodes at once for the facts of M(verify_facts), and measures the offsets of their clocks.
      - V(drift) finds the nodes whose settings differ from those that a cluster should have in common, by majority vote
        among nodes that can be compared. No node is visited.
      - V(devices) checks GPUs, NPUs and RDMA ports by readings; with O(before), only which error counters grew since
        then. An answer that a device does not give is unknown, never a pass. No node is visited.
      - V(reach) has every node listen on two TCP ports of its address on the job network, one outside the ephemeral
        range. Every node connects to the others, reads enough for packets of the largest size, resolves their names,
        and logs in by ssh. A listener ends after O(life_s) in any case.
      - V(storage) has one node alone, then all at once write and read files below each path, and remove them
        (docs/storage.md).
      - V(compute) reads the logs of a run of C(training/benchmark/device.py) on the controller, and compares each
        device with its equals (docs/compute.md).
      - V(collective) reads the collected logs of a run of C(all_gather.py), and compares each rank's values with 0 to
        n - 1.
      - V(pairs) puts all hosts into rounds of disjoint pairs, and writes the rounds beside a copy of the program that
        measures them, as the source of a job. The caller removes that folder.
      - V(stragglers) reads the measurements of C(training/benchmark/pairs.py) in a run on the controller, adds those of
        earlier runs, and returns which nodes are slow, wrong or silent, with which confidence, and which pairs to
        measure next (docs/stragglers.md).
      - V(compare) reads two C(report.json) of C(verify.yml), and returns what got slower, which findings are new or
        gone, and which versions and settings changed.
      - V(schedule) returns units of systemd and a line for cron, which verify a cluster as the user who runs Ansible,
        and finds what others than this user and root can change among the files that would be run. It writes nothing.
    type: str
    choices: [read, drift, devices, reach, storage, compute, collective, pairs, stragglers, compare, schedule]
    required: true
  hosts: {description: "Inventory names, in the order of the inventory.", type: list, elements: str}
  network: {description: "Job network, a CIDR or an interface; empty for the inventory's.", type: str}
  user: {description: The training user., type: str}
  root: {description: Folder of the software that the project installs., type: str}
  venvs: {description: Folder of the environments to compare., type: str}
  ascend_root: {description: Folder of Ascend's software., type: str}
  devices_only: {description: "Read only the devices, as for a second reading.", type: bool, default: false}
  tree: {description: "Folder on the nodes that holds a captured machine, for tests.", type: str, default: /}
  limit_s: {description: Seconds that a visit may take on a node., type: float}
  results: {description: RV(answers) of the step V(read)., type: dict}
  before: {description: The same from an earlier time., type: dict}
  groups:
    description: Group by inventory name. V(drift) groups other nodes by their hardware, and returns all groups.
    type: dict
    default: {}
  ignore: {description: Facts and environments that are not compared., type: list, elements: str}
  max_clock_offset: {description: Seconds that a clock may be away from the median., type: float}
  inventory: {description: Inventory options for the commands in the checks., type: str, default: ""}
  allowed_growth: {description: Growth by counter that is no failure; others may not grow., type: dict, default: {}}
  xids: {description: Xids of hardware; empty for those of NVIDIA's catalog., type: list, elements: int, default: []}
  peers: {description: "V(all), or the number of others to which each node connects.", type: str}
  names: {description: Whether to resolve names., type: bool}
  ssh: {description: Whether to log in by ssh., type: bool}
  ssh_peers: {description: "V(all), or the number of others to which each node logs in.", type: str}
  ssh_parallel: {description: Concurrent logins of one node., type: int}
  addresses: {description: Addresses of the inventory; ssh tries them besides names., type: list, elements: str}
  timeout_s: {description: Seconds that one connection or login may take., type: int}
  life_s: {description: Seconds after which a listener ends., type: int}
  paths: {description: Folders on the nodes., type: list, elements: str}
  bytes: {description: Bytes that each node writes at most to each path., type: int}
  state: {description: "The one of O(paths) that the first job makes, if it is missing.", type: str, default: ""}
  run_dir: {description: Folder of the run on the controller., type: path}
  refused: {description: Findings that prevented the run., type: list, elements: dict, default: []}
  command: {description: Command that repeats the check., type: str, default: ""}
  name: {description: "Name of the check, such as the framework.", type: str, default: all-gather}
  rounds: {description: "Number of first rounds, or V(full) for every pair.", type: str, default: "2"}
  schedule: {description: Rounds of pairs that are taken as they are., type: list, elements: list, default: []}
  source: {description: Folder of the program., type: path}
  measured: {description: RV(measurements) of earlier runs., type: list, elements: dict, default: []}
  expected: {description: "Bandwidth in GB/s that a pair of healthy nodes reaches, if known.", type: float}
  tolerance:
    description: >-
      Part of the healthy bandwidth that a node may lack; more if measurements scatter. For V(compare), the part by
      which bandwidths may differ and still count as equal.
    type: float
  cluster: {description: Name of the cluster., type: str}
  folder: {description: "Folder of C(ansible.cfg), in which the command runs.", type: path}
  sources: {description: Paths of the inventory., type: list, elements: str}
  runs: {description: Folder of the reports., type: path}
  later: {description: "Report or its folder, by default the newest of this inventory in O(runs).", type: path}
  earlier: {description: "The same, by default the last of that cluster and inventory before O(later).", type: path}
  every: {description: How often., type: str, choices: [hourly, daily, weekly]}
  timer: {description: Whether systemd is to start them., type: bool}
  systemd: {description: Folder that exists where systemd runs., type: path, default: /run/systemd/system}
attributes:
  check_mode:
    support: full
    description: The result is the same in both modes. The folder of V(pairs) is made in both, as a plan needs it.
"""

EXAMPLES = r"""
- name: Read all nodes
  verify:
    {step: read, hosts: "{{ groups['compute'] }}", network: "", user: train, root: /opt/trainyard,
     venvs: /opt/trainyard/venvs, ascend_root: /usr/local/Ascend, limit_s: 240}
  register: facts

- name: Compare all nodes
  verify:
    {step: drift, results: "{{ facts.answers }}", groups: {}, ignore: [bios], max_clock_offset: 1.0, inventory: -i my}

- name: Check which counters grew while the benchmarks ran
  verify:
    {step: devices, before: "{{ facts.answers }}", results: "{{ later.answers }}", allowed_growth: {symbol_error: 9},
     inventory: -i my}

- name: Check all connections
  verify:
    {step: reach, results: "{{ facts.answers }}", peers: all, names: true, ssh: true, ssh_peers: "8", ssh_parallel: 8,
     timeout_s: 10, addresses: [10.0.0.1, 10.0.0.2], user: train, network: "", life_s: 300, limit_s: 240,
     inventory: -i my}

- name: Measure a shared folder
  verify: {step: storage, hosts: [gpu1, gpu2], paths: [/mnt/shared], bytes: 268435456, user: train}

- name: Compare the devices
  verify: {step: compute, run_dir: runs/devices-20261129-101500-3f9c}

- name: Check the ranks' values
  verify: {step: collective, run_dir: runs/all-gather-pytorch-20261120-101500-3f9c}

- name: Choose the pairs
  verify: {step: pairs, hosts: [n1, n2, n3, n4], source: training/benchmark}
  register: chosen

- name: Find slow nodes
  verify:
    step: stragglers
    hosts: [n1, n2, n3, n4]
    run_dir: runs/pairs-20261121-101500-3f9c
    schedule: "{{ chosen.rounds }}"

- name: Compare the two newest verifications
  verify: {step: compare, runs: runs, tolerance: 0.05}

- name: Plan the schedule
  verify:
    step: schedule
    cluster: lab
    folder: /opt/trainyard-checkout
    sources: [/opt/inventories/lab]
    runs: /opt/trainyard-checkout/runs
    every: hourly
    timer: true
"""

RETURN = r"""
answers:
  description: >-
    By host, the result of M(verify_facts) and C(clock) with C(offset_s) and C(margin_s); or why there is no answer.
  returned: read
  type: dict
checks:
  description: Records of trainyard/base/checks.py (docs/report.schema.json).
  returned: drift, devices, reach, storage and compute
  type: list
groups: {description: Nodes by the kinds of hardware that they were compared in., returned: drift, type: dict}
usable: {description: Hosts that reach each other over the job network., returned: reach, type: list}
counted: {description: New readings of nodes whose counters failed tries may have raised., returned: reach, type: dict}
nodes:
  description: Each host with C(address) and C(facts). From V(collective), the number of nodes of the job.
  returned: reach and collective
  type: raw
findings: {description: All findings., returned: collective and schedule, type: list}
ranks: {description: Number of ranks of the job., returned: collective, type: int}
check: {description: The findings as a check of the cluster., returned: collective, type: dict}
cores: {description: A check of the cores that ranks run on if the plan has some., returned: collective, type: list}
rounds: {description: Lists of pairs of hosts; none for fewer than two hosts., returned: pairs, type: list}
source: {description: Folder with the program and C(schedule.json); empty without rounds., returned: pairs, type: str}
stragglers: {description: The result (docs/report.schema.json)., returned: stragglers, type: dict}
measurements: {description: "All measurements, with rounds of all runs.", returned: stragglers, type: list}
text: {description: The result for reading., returned: stragglers, type: str}
comparison:
  description: >-
    C(state), C(slower), C(faster), C(new), C(gone), C(unseen), C(stayed), C(changed), C(not_compared), C(hosts), and
    all of it as C(text).
  returned: compare
  type: dict
name: {description: "Name of the units, without their ending.", returned: schedule, type: str}
files: {description: Texts of the units by the name of their file., returned: schedule, type: dict}
line: {description: The line for cron., returned: schedule, type: str}
user: {description: The user who verifies., returned: schedule, type: str}
"""
