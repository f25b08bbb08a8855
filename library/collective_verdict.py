#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge what the ranks of a collective check gathered."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_verdict
short_description: Judge what the ranks of a collective check gathered
description:
  - Reads the collected logs of a run of C(all_gather.py) on the controller, and compares what every rank gathered with
    0 to n - 1.
  - Returns all faults and does not fail because of them. Changes nothing.
version_added: "0.2.0"
options:
  run_dir:
    description: Folder of the run on the controller, with C(plan.json), C(summary.json) and C(logs). Or O(refused).
    type: path
  refused:
    description: Findings because of which there was no run.
    type: list
    elements: dict
    default: []
  name:
    description: What the check is called, such as the framework and its launcher.
    type: str
    default: all-gather
  command:
    description: How to repeat the check.
    type: str
    default: ""
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge what the ranks gathered
  collective_verdict:
    run_dir: runs/all-gather-pytorch-20261120-101500
  register: verdict
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
ranks:
  description: Number of ranks of the job; 0 where there was no run.
  returned: success
  type: int
nodes:
  description: Number of nodes of the job; 0 for one that could not run.
  returned: always
  type: int
check:
  description: The same as a check of the cluster, with C(state), C(hosts), C(reason), C(action) and more.
  returned: success
  type: dict
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.record.findings import Finding
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard.verify.collectives import check, judge, refused


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "run_dir": {"type": "path"},
            "refused": {"type": "list", "elements": "dict", "default": []},
            "name": {"type": "str", "default": "all-gather"},
            "command": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["refused"]:
        findings = [Finding.from_dict(finding) for finding in given["refused"]]
        said = refused(given["name"], findings, given["command"])
        module.exit_json(changed=False, ranks=0, nodes=0, findings=given["refused"], check=said.as_dict())
    if not given["run_dir"]:
        module.fail_json(msg="neither run_dir nor refused is given, expected the folder of a run, or why there is none")
    run_dir = Path(given["run_dir"])
    try:
        plan = json.loads((run_dir / "plan.json").read_text())
        summary = json.loads((run_dir / "summary.json").read_text())
    except OSError as error:
        module.fail_json(msg=f"{run_dir} is not the folder of a run that has ended: {error}")
    hosts = {rank: node["host"] for node in plan["nodes"] for rank in node["ranks"]}
    logs = {}
    for rank in hosts:
        log = run_dir / "logs" / plan["rank_log"].replace("{rank}", str(rank))
        logs[rank] = log.read_text(errors="replace") if log.is_file() else ""
    findings = judge(hosts, logs, summary["state"])
    failure = "" if summary["state"] == "succeeded" else f"the job {summary['state']}"
    if summary.get("failure") and (why := cause(summary, plan["job_dir"])):
        failure += f": {'; '.join(why)}"
    failed_on = (summary.get("failure") or {}).get("host") or ""
    said = check(given["name"], findings, len(hosts), given["command"], failure, failed_on)
    module.exit_json(
        changed=False,
        ranks=len(hosts),
        nodes=len(plan["nodes"]),
        findings=[finding.as_dict() for finding in findings],
        check=said.as_dict(),
    )


if __name__ == "__main__":
    main()
