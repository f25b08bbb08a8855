#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin collective_benchmark."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_benchmark
short_description: Verify one benchmark of collectives
description:
  - Reads the output of nccl-tests, as text of any version or as JSON, or of C(training/benchmark/collectives.py).
    Checks that the results are correct, that the planned ranks and hosts took part, the bus bandwidth at the largest
    size, and which devices carried the bytes.
  - Fails only for a file that cannot be read. One of O(parse), O(run_dir) and O(refused) is needed; without them only
    O(baseline) is checked.
options:
  parse: {description: "File with the output of a benchmark, a log or JSON.", type: path}
  run_dir:
    description: Folder of a run of C(launch.yml) on the controller; its plan says which ranks and hosts are expected.
    type: path
  refused: {description: Findings that prevented the run., type: list, elements: dict, default: []}
  facts: {description: "JSON file with the nodes' facts when the run was planned, instead of O(nodes).", type: path}
  each_node:
    description: Return a record for each node of O(run_dir), which ran by itself.
    type: bool
    default: false
  job_id: {description: Name of the run that wrote O(parse)., type: str, default: ""}
  collective: {description: The expected collective; nccl-tests before 2.17 do not print it., type: str, default: ""}
  backend: {description: "The backend, for output that does not name it.", type: str, default: ""}
  expected_ranks: {description: Number of ranks that must have taken part., type: int}
  expected_hosts: {description: Inventory names of the hosts that must have taken part., type: list, elements: str}
  nodes:
    description: Facts of the nodes, with C(host), C(networks), and where known C(hostname), C(interface) and C(gpus).
    type: list
    elements: dict
    default: []
  expected_busbw:
    description: Expected bus bandwidth in GB/s at the largest size. It wins over O(baseline), which wins over O(nodes).
    type: float
  fraction: {description: Part of the expected bandwidth that must be reached., type: float, default: 0.9}
  baseline: {description: JSON file with the site's baselines; V(fleet) for the usual values in O(runs)., type: path}
  runs: {description: Folder of runs with reports of past verifications., type: path}
  save_baseline: {description: Save the bandwidth of a good benchmark in O(baseline)., type: bool, default: false}
  traffic_before:
    description: The bytes that the RDMA ports of each node had carried, as M(fan_out) asks for them (C(rdma_traffic)).
    type: list
    elements: dict
    default: []
  traffic_after: {description: The same after it., type: list, elements: dict, default: []}
attributes:
  check_mode:
    support: full
    description: The result is the same in both modes; a baseline is not written in check mode.
seealso:
  - module: fan_out
"""

EXAMPLES = r"""
- name: Check a log
  collective_benchmark:
    parse: all_reduce.log
    expected_ranks: 16
    expected_busbw: 384
"""

RETURN = r"""
benchmarks:
  description: Records of docs/report.schema.json, with O(each_node) by node.
  returned: success
  type: list
  elements: dict
text: {description: "The records for reading, and whether a baseline was kept.", returned: success, type: str}
baseline:
  description: C(key), whether it was C(saved), C(reason) if not.
  returned: when O(save_baseline)
  type: dict
"""
