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
    description: Folder of the run on the controller, with C(plan.json), C(summary.json) and C(logs).
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: Nothing is changed in either mode.
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
  description: Number of ranks of the job.
  returned: success
  type: int
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.collective import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"run_dir": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    run_dir = Path(module.params["run_dir"])
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
    module.exit_json(changed=False, ranks=len(hosts), findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
