#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin collective_benchmark."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_benchmark
short_description: Check one benchmark of collectives
description:
  - Reads what nccl-tests printed, as text of any version or as JSON (C(-J)), marked by mpirun or srun or not, with or
    without the lines of C(NCCL_DEBUG), or what C(training/benchmark/collectives.py) printed, which is the same text.
  - Checks whether the results were right, whether the ranks and hosts that were meant took part, whether the bus
    bandwidth at the largest size is what the hardware, a saved baseline or a given number lets expect, and which
    devices carried the bytes.
  - Never fails because of what was measured; only because of a file that cannot be read. No machine is touched.
options:
  parse:
    description:
      - File with the output of a benchmark, a log or JSON. One of O(parse), O(run_dir) and O(refused) is needed.
    type: path
  run_dir:
    description:
      - Folder of a run of C(launch.yml) on the controller, with C(plan.json), C(summary.json) and C(logs). Its plan
        says which ranks and hosts are expected.
    type: path
  refused:
    description: Findings because of which there was no run.
    type: list
    elements: dict
    default: []
  facts:
    description: JSON file with what was known of the nodes when the run was planned, in the place of O(nodes).
    type: path
  each_node:
    description:
      - The ranks of each node of O(run_dir) worked by themselves, and the log of a node's first rank has its table.
      - Then there is a record for each node, and the plan says which ranks and hosts are expected.
    type: bool
    default: false
  job_id:
    description: Name of the run that wrote the file O(parse), for the record and the baseline.
    type: str
    default: ""
  collective:
    description:
      - What is expected to be measured, C(all_reduce) and so on. Versions of nccl-tests before 2.17 do not print it.
    type: str
    default: ""
  backend:
    description: C(nccl), C(gloo), C(mpi) or C(hccl), for output that does not say it.
    type: str
    default: ""
  expected_ranks:
    description: Number of ranks that must have taken part; with O(run_dir) the plan's, unless it is given.
    type: int
  expected_hosts:
    description:
      - Inventory names of the hosts that must have taken part, no more and no fewer. The output has host names up to
        the first dot; where these are others, O(nodes) says them.
    type: list
    elements: str
  nodes:
    description:
      - What the nodes are, for the expected bandwidth and the path. Each has C(host), C(networks) (of M(network_info)),
        and where known C(hostname), C(interface) (by which it takes part in jobs), C(gpus) (each with C(model) or
        C(name), C(link_gen_max) and C(link_width_max)).
    type: list
    elements: dict
    default: []
  expected_busbw:
    description:
      - Bus bandwidth in GB/s (1e9 bytes a second) that a sound cluster reaches at the largest size. It wins over
        O(baseline), which wins over what O(nodes) let expect.
    type: float
  fraction:
    description: Part of the expected bandwidth that has to be reached.
    type: float
    default: 0.9
  baseline:
    description:
      - JSON file on the controller with the baselines of a site, by collective, backend, number of hosts and ranks, and
        hardware. It must be there, unless O(save_baseline) makes it.
      - Without a benchmark (O(parse), O(run_dir), O(refused)) only this file is checked.
    type: path
  save_baseline:
    description:
      - Keep the bandwidth of this benchmark in O(baseline), in the place of an older value, unless that is of the same
        run (inside another node) and higher. A benchmark that failed or was not measured wholly is not kept.
    type: bool
    default: false
  traffic_before:
    description: What M(rdma_traffic) returned of each node before the benchmark.
    type: list
    elements: dict
    default: []
  traffic_after:
    description: The same after it.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    support: full
    description: The result is the same in both modes; a baseline is not written in check mode.
seealso:
  - module: rdma_traffic
  - module: network_info
"""

EXAMPLES = r"""
- name: Check a log that somebody has
  collective_benchmark:
    parse: all_reduce.log
    expected_ranks: 16
    expected_busbw: 384

- name: Check a run, with what the hardware lets expect
  collective_benchmark:
    run_dir: runs/benchmark-all-reduce-nccl-20261121-101500-3f9c
    nodes: "{{ nodes }}"
    baseline: baselines.json
    traffic_before: "{{ before }}"
    traffic_after: "{{ after }}"
  register: measured
"""

RETURN = r"""
benchmarks:
  description:
    - The record of the benchmark; with O(each_node) one for each node, in the order of the plan. What was not measured
      is null.
  returned: success
  type: list
  elements: dict
  contains:
    state:
      description: V(pass), V(fail), V(unknown), or V(skipped) where there is nothing to compare its bandwidth with.
      type: str
    reason:
      description: Why it is not V(pass); empty where it is.
      type: str
    collective:
      description: What was measured; empty where nothing says it.
      type: str
    backend:
      description: V(nccl), V(gloo), V(mpi), V(hccl), or empty.
      type: str
    ranks:
      description: Number of ranks that took part.
      type: int
    hosts:
      description: Their hosts, by inventory names where these are known.
      type: list
      elements: str
    sizes:
      description:
        - The table, each row with C(bytes), C(out_of_place) and C(in_place); these have C(time_us), C(algbw) and
          C(busbw) in GB/s, and C(wrong), the number of wrong elements (null where results were not checked).
      type: list
      elements: dict
    busbw_largest:
      description: Bus bandwidth at the largest size in GB/s, the lowest where it was measured several times.
      type: float
    busbw_average:
      description: The average over all sizes that the output prints.
      type: float
    footer_seen:
      description: Whether the output has its end.
      type: bool
    job_id:
      description: The run; empty for a file.
      type: str
    format:
      description: What was read.
      type: str
      sample: nccl-tests json, NCCL 2.28.9
    expected:
      description: C(busbw), the C(fraction) of it, the C(gate) that makes, and the C(source); null without expectation.
      type: dict
    path:
      description: C(state), C(devices) that carried the bytes and C(reason); null where nothing could tell.
      type: dict
    baseline:
      description: The file in which it is kept as the baseline; empty where it is not.
      type: str
    findings:
      description: Everything that was noted besides.
      type: list
      elements: str
text:
  description: The records for reading, a line for each, and what became of the baseline.
  returned: success
  type: str
baseline:
  description: C(key) under which the baseline stands, whether it was C(saved), and C(reason) when it was not.
  returned: when O(save_baseline); of the last node, when O(each_node)
  type: dict
"""
