#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Note in runs/ what was removed from the nodes, and remove what need not be kept there; runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: runs_cleaned
short_description: Note on the controller what was removed from the nodes, and remove records of old runs
description:
  - Writes C(removed.json) into the folder of each run of which something was removed, where there is one.
  - Removes the folders of O(records), but for those of jobs that a node could not remove.
  - Fails with what could not be removed from a node. What has been removed is noted before.
version_added: "0.1.0"
options:
  runs_dir:
    description: Folder of the runs on the controller.
    type: path
    required: true
  remove:
    description: What was to be removed, by host, from M(job_clean_plan).
    type: dict
    required: true
  answers:
    description: What a loop of M(job_process) with O(job_process#module:state=absent) returned, by host.
    type: dict
    required: true
  objects:
    description: Jobs whose objects were removed from Kubernetes.
    type: list
    elements: str
    default: []
  records:
    description: Folders of O(runs_dir) to remove, from M(job_clean_plan).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Can run in check mode; it changes nothing then.
    support: full
author:
  - trainyard
seealso:
  - module: job_clean_plan
"""

EXAMPLES = r"""
- name: Note what was removed
  runs_cleaned:
    runs_dir: runs
    remove: "{{ chosen.remove }}"
    answers: {n1: "{{ hostvars.n1.removed }}"}
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
findings:
  description: What could not be removed.
  returned: failure
  type: list
  elements: dict
"""

import shutil
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cleaning import KUBERNETES
from ansible.module_utils.trainyard.findings import Finding, connection_reason, render
from ansible.module_utils.trainyard_node.run_folder import note_removed


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "runs_dir": {"type": "path", "required": True},
            "remove": {"type": "dict", "required": True},
            "answers": {"type": "dict", "required": True},
            "objects": {"type": "list", "elements": "str", "default": []},
            "records": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    runs_dir, now = Path(params["runs_dir"]), time.time()
    removed: dict[str, dict[str, float]] = {job_id: {KUBERNETES: now} for job_id in params["objects"]}
    findings, kept = [], set()
    for host, jobs in params["remove"].items():
        answer = params["answers"].get(host) or {}
        by_job = {result["item"]["job_id"]: result for result in answer.get("results", ())}
        for job_id in (job["job_id"] for job in jobs):
            result = by_job.get(job_id, answer)
            if "known" in result:
                removed.setdefault(job_id, {})[host] = now
                continue
            kept.add(job_id)
            why = connection_reason(str(result.get("msg") or ""))
            do = "repair what is said there, then run this again"
            findings.append(Finding(host, f"folder of {job_id}", why, "none on the node any more", do))
    records = [name for name in params["records"] if name not in kept and (runs_dir / name).is_dir()]
    if not module.check_mode:
        for job_id, hosts in removed.items():
            note_removed(runs_dir / job_id, hosts)
        for name in records:
            shutil.rmtree(runs_dir / name)
    if findings:
        text = render(findings, "{count} {findings}: not everything could be removed.")
        module.fail_json(msg=text, findings=[finding.as_dict() for finding in findings])
    module.exit_json(changed=bool(records))


if __name__ == "__main__":
    main()
