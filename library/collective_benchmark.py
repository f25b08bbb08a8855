#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge one benchmark of collectives: a run of launch.yml, or any file that nccl-tests wrote."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_benchmark
short_description: Judge one benchmark of collectives
description:
  - Reads what nccl-tests printed, as text of any version or as JSON (C(-J)), marked by mpirun or srun or not, with or
    without the lines of C(NCCL_DEBUG), or what C(training/benchmark/collectives.py) printed, which is the same text.
  - Judges whether the results were right, whether the ranks and hosts that were meant took part, whether the bus
    bandwidth at the largest size is what the hardware, a saved baseline or a given number lets expect, and which
    devices carried the bytes.
  - Never fails because of what was measured; only because of a file that cannot be read. Runs on the controller.
version_added: "0.2.0"
options:
  parse:
    description:
      - File with the output of a benchmark, a log or JSON. One of O(parse) and O(run_dir) is needed.
    type: path
  run_dir:
    description:
      - Folder of a run of C(launch.yml) on the controller, with C(plan.json), C(summary.json) and C(logs). Its plan
        says which ranks and hosts are expected.
    type: path
  each_node:
    description:
      - The ranks of each node of O(run_dir) worked by themselves, and the log of a node's first rank has its table.
      - Then the result is RV(benchmarks), and the plan says which ranks and hosts are expected.
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
        hardware. It may be missing.
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
    description: The verdict is the same in both modes; a baseline is not written in check mode.
author:
  - trainyard
seealso:
  - module: rdma_traffic
  - module: network_info
"""

EXAMPLES = r"""
- name: Judge a log that somebody has
  collective_benchmark:
    parse: all_reduce.log
    expected_ranks: 16
    expected_busbw: 384
  delegate_to: localhost

- name: Judge a run, with what the hardware lets expect
  collective_benchmark:
    run_dir: runs/benchmark-all-reduce-nccl-20261121-101500
    nodes: "{{ nodes }}"
    baseline: baselines.json
    traffic_before: "{{ before }}"
    traffic_after: "{{ after }}"
  delegate_to: localhost
  register: measured
"""

RETURN = r"""
benchmark:
  description: The record of the benchmark. What was not measured is null.
  returned: unless O(each_node)
  type: dict
  contains:
    state:
      description: V(pass), V(fail) or V(unknown).
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
    findings:
      description: Everything that was noted besides.
      type: list
      elements: str
benchmarks:
  description: Such a record for each node, in the order of the plan.
  returned: when O(each_node)
  type: list
  elements: dict
baseline:
  description: C(key) under which the baseline stands, whether it was C(saved), and C(reason) when it was not.
  returned: when O(save_baseline); of the last node, when O(each_node)
  type: dict
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl_tests_output import Output, parse
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard.verify.bandwidth import BaselineError, add_baseline, read_baselines
from ansible.module_utils.trainyard.verify.benchmark import Asked, baseline_entry, baseline_name, judge, merge

# The table stands in the log of the first rank; of the others the beginning tells enough: tables, errors, NCCL's lines.
_MOST_BYTES = 64 * 1024


def read_log(path: Path, most: int = -1) -> str:
    """Return the text of a log, nothing where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(most).decode("utf-8", errors="replace")


def read_plan(run_dir: Path, asked: Asked) -> dict[str, Any]:
    """Return a run's plan, and put what it and the summary say into `asked`. Raises OSError, ValueError, KeyError."""
    plan: dict[str, Any] = json.loads((run_dir / "plan.json").read_text())
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    asked.job_id = plan["job_id"]
    asked.ranks = plan["world_size"] if asked.ranks is None else asked.ranks
    asked.hosts = asked.hosts or [node["host"] for node in plan["nodes"]]
    if summary["state"] != "succeeded":
        why = cause(summary, plan["job_dir"])
        asked.job_failure = f"the job {summary['state']}{': ' + '; '.join(why) if why else ''}"
    return plan


def read_run(run_dir: Path, plan: dict[str, Any]) -> Output:
    """Read the logs of all ranks."""
    outputs = []
    for rank in range(plan["world_size"]):
        log = run_dir / "logs" / plan["rank_log"].replace("{rank}", str(rank))
        outputs.append(parse(read_log(log, _MOST_BYTES if rank else -1)))
    return merge(outputs)


def each_node(run_dir: Path, plan: dict[str, Any], asked: Asked) -> list[dict[str, Any]]:
    """Return a record for each node of the plan; ports carry nothing inside a node."""
    records = []
    for node in plan["nodes"]:
        own = [known for known in asked.nodes if known["host"] == node["host"]]
        mine = dataclasses.replace(asked, ranks=len(node["ranks"]), hosts=[node["host"]], nodes=own, traffic={})
        log = run_dir / "logs" / plan["rank_log"].replace("{rank}", str(node["ranks"][0]))
        record = judge(parse(read_log(log)), mine)
        # A log without a table does not say whose it is.
        records.append({**record, "hosts": record["hosts"] or [node["host"]]})
    return records


def traffic_of(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Join the two readings of each host that has both."""
    first = {reading["host"]: reading["ports"] for reading in before}
    return {
        reading["host"]: (first[reading["host"]], reading["ports"]) for reading in after if reading["host"] in first
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "parse": {"type": "path"},
            "run_dir": {"type": "path"},
            "each_node": {"type": "bool", "default": False},
            "job_id": {"type": "str", "default": ""},
            "collective": {"type": "str", "default": ""},
            "backend": {"type": "str", "default": ""},
            "expected_ranks": {"type": "int"},
            "expected_hosts": {"type": "list", "elements": "str"},
            "nodes": {"type": "list", "elements": "dict", "default": []},
            "expected_busbw": {"type": "float"},
            "fraction": {"type": "float", "default": 0.9},
            "baseline": {"type": "path"},
            "save_baseline": {"type": "bool", "default": False},
            "traffic_before": {"type": "list", "elements": "dict", "default": []},
            "traffic_after": {"type": "list", "elements": "dict", "default": []},
        },
        mutually_exclusive=[("parse", "run_dir")],
        required_one_of=[("parse", "run_dir")],
        required_if=[("save_baseline", True, ("baseline",)), ("each_node", True, ("run_dir",))],
        supports_check_mode=True,
    )
    given = module.params
    for name, most in (("expected_busbw", float("inf")), ("fraction", 1.0)):
        if given[name] is not None and not 0 < given[name] <= most:
            wanted = "GB/s above 0" if name == "expected_busbw" else "a number above 0, at most 1"
            module.fail_json(msg=f"{name} is {given[name]:g}, expected {wanted}")
    baseline = Path(given["baseline"]) if given["baseline"] else None
    try:
        kept = baseline.read_text() if baseline and baseline.exists() else ""
        entries = read_baselines(kept)
    except (OSError, UnicodeDecodeError, BaselineError) as error:
        module.fail_json(msg=f"{baseline} is no file of baselines: {error}. Correct it, or name another file.")
    asked = Asked(
        job_id=given["job_id"],
        collective=given["collective"],
        backend=given["backend"],
        ranks=given["expected_ranks"],
        hosts=given["expected_hosts"] or [],
        exact_hosts=bool(given["expected_hosts"]),
        nodes=given["nodes"],
        busbw=given["expected_busbw"],
        fraction=given["fraction"],
        baselines=entries,
        traffic=traffic_of(given["traffic_before"], given["traffic_after"]),
    )
    try:
        if given["run_dir"]:
            run_dir = Path(given["run_dir"])
            plan = read_plan(run_dir, asked)
            apart = given["each_node"]
            records = each_node(run_dir, plan, asked) if apart else [judge(read_run(run_dir, plan), asked)]
        else:
            records = [judge(parse(Path(given["parse"]).read_text(encoding="utf-8", errors="replace")), asked)]
    except (OSError, ValueError, KeyError) as error:
        what = "the folder of a run that has ended" if given["run_dir"] else "a file that can be read"
        module.fail_json(msg=f"{given['run_dir'] or given['parse']} is not {what}: {error}")
    result: dict[str, Any] = {"changed": False}
    result.update({"benchmarks": records} if given["each_node"] else {"benchmark": records[0]})
    if given["save_baseline"] and baseline:
        text = kept
        for record in records:
            entry, reason = baseline_entry(record, time.strftime("%Y-%m-%d"))
            key = baseline_name(record, asked)
            result["baseline"] = {"key": key, "saved": entry is not None, "reason": reason}
            text = text if entry is None else add_baseline(text, key, entry)
        result["changed"] = text != kept
        if text != kept and not module.check_mode:
            baseline.write_text(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
