#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge nodes by what pairs of them measured."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pair_verdict
short_description: Judge nodes by what pairs of them measured
description:
  - Reads what C(training/benchmark/pairs.py) printed in a run on the controller, adds it to what earlier runs measured,
    and says which nodes are slow, wrong or silent, how sure that is, and which pairs would decide what is open.
  - Never fails because of what was measured.
version_added: "0.2.0"
options:
  hosts:
    description: The hosts, in the order of the inventory.
    type: list
    elements: str
    required: true
  run_dir:
    description: Folder of the run on the controller; without it only what was measured before is judged.
    type: path
  schedule:
    description: The rounds of that run.
    type: list
    elements: list
    default: []
  measured:
    description: RV(measurements) of earlier runs.
    type: list
    elements: dict
    default: []
  refused:
    description: Findings because of which there was no run.
    type: list
    elements: dict
    default: []
  expected:
    description: Bandwidth in GB/s that a pair of healthy nodes reaches, where it is known.
    type: float
  tolerance:
    description: Part of the healthy bandwidth that a node may lack; more where measurements scatter.
    type: float
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge the nodes
  pair_verdict:
    hosts: [n1, n2, n3, n4]
    run_dir: runs/pairs-20261121-101500
    schedule: "{{ chosen.rounds }}"
  delegate_to: localhost
  register: judged
"""

RETURN = r"""
stragglers:
  description: The judgement of stragglers, as docs/stragglers.md describes it.
  returned: success
  type: dict
measurements:
  description: All measurements so far, with rounds counted over all runs.
  returned: success
  type: list
  elements: dict
text:
  description: The judgement of stragglers for reading, in a line, and another one for each node that is not well.
  returned: success
  type: str
"""

import dataclasses
import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.record.findings import Finding
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard.verify.pair_report import complete, describe, judge, read, refusal
from ansible.module_utils.trainyard.verify.straggler_limits import Limits


def measurements_of(run_dir, schedule, first):
    """Read the measurements of a run. Raises OSError, ValueError or KeyError for what is no run."""
    plan = json.loads((run_dir / "plan.json").read_text())
    summary = json.loads((run_dir / "summary.json").read_text())
    failure = summary.get("failure") or {}
    failed = {}
    if summary["state"] != "succeeded" and failure.get("host"):
        failed[failure["host"]] = (cause(summary, plan["job_dir"]) or [summary["state"]])[0]
    logs = [run_dir / "logs" / plan["rank_log"].replace("{rank}", str(rank)) for rank in range(plan["world_size"])]
    return complete(schedule, read(log.read_text(errors="replace") for log in logs if log.is_file()), failed, first)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "run_dir": {"type": "path"},
            "schedule": {"type": "list", "elements": "list", "default": []},
            "measured": {"type": "list", "elements": "dict", "default": []},
            "refused": {"type": "list", "elements": "dict", "default": []},
            "expected": {"type": "float"},
            "tolerance": {"type": "float"},
        },
        supports_check_mode=True,
    )
    given = module.params
    limits = Limits()
    if given["tolerance"] is not None:
        if not 0 < given["tolerance"] < 1:
            module.fail_json(msg=f"tolerance is {given['tolerance']:g}, expected a number above 0 and below 1")
        most = max(limits.most_tolerance, given["tolerance"])
        limits = dataclasses.replace(limits, tolerance=given["tolerance"], most_tolerance=most)
    measurements = given["measured"]
    if given["run_dir"]:
        first = 1 + max((record["round"] for record in measurements), default=-1)
        try:
            measurements = measurements + measurements_of(Path(given["run_dir"]), given["schedule"], first)
        except (OSError, ValueError, KeyError) as error:
            module.fail_json(msg=f"{given['run_dir']} is not the folder of a run that has ended: {error}")
    stragglers = judge(given["hosts"], measurements, expected=given["expected"], limits=limits)
    if given["refused"]:
        stragglers = refusal(stragglers, [Finding.from_dict(finding) for finding in given["refused"]])
    module.exit_json(changed=False, stragglers=stragglers, measurements=measurements, text=describe(stragglers))


if __name__ == "__main__":
    main()
