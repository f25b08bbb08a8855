#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Decide whether a planned job can start; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_judge
short_description: Decide whether a planned job can start, from what plan and nodes found
description:
  - Joins the findings of the plan with those of M(job_preflight) on every node, and adds what shows only when nodes are
    compared, such as scripts that differ, and nodes that were not checked.
  - Fails with all of them in one message, or returns that the job is ready.
  - Where something was found, or a node is no longer what it was, and the plan rests on facts that were kept from an
    earlier launch, nothing fails and RV(ready) is false, as the nodes have to be asked first what they are now.
version_added: "0.1.0"
options:
  planned:
    description: Findings of the plan.
    type: list
    elements: dict
    required: true
  hosts:
    description: The nodes of the plan, in the order of their ranks; none where there is no plan.
    type: list
    elements: str
    required: true
  answers:
    description: What M(job_preflight) returned on each of O(hosts); empty for one that was not asked.
    type: list
    elements: dict
    required: true
  probed:
    description: Whether the plan rests on what the nodes are now, from M(job_plan).
    type: bool
    required: true
  limit:
    description: What the option C(--limit) of ansible-playbook was.
    type: str
    default: ""
  run_dir:
    description: Folder of the run on the controller, which keeps the findings as C(findings.json).
    type: path
attributes:
  check_mode:
    description: Can run in check mode; the findings are kept then too, beside the plan that they belong to.
    support: full
author:
  - trainyard
seealso:
  - module: findings
"""

EXAMPLES = r"""
- name: Decide whether the job can start
  job_judge:
    planned: "{{ plan.findings }}"
    hosts: "{{ plan.slices | list }}"
    answers: "{{ plan.slices | map('extract', hostvars, 'preflight') }}"
    probed: "{{ plan.probed }}"
    run_dir: "{{ plan.run_dir }}"
  delegate_to: localhost
  run_once: true
  register: judged
"""

RETURN = r"""
ready:
  description: Whether the job can start; otherwise its nodes have to be asked what they are, and it planned again.
  returned: success
  type: bool
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: failure
  type: list
  elements: dict
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.findings import Finding, render
from ansible.module_utils.trainyard.preflight import join


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "planned": {"type": "list", "elements": "dict", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "answers": {"type": "list", "elements": "dict", "required": True},
            "probed": {"type": "bool", "required": True},
            "limit": {"type": "str", "default": ""},
            "run_dir": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    answers = dict(zip(params["hosts"], params["answers"]))
    planned = [Finding.from_dict(finding) for finding in params["planned"]]
    findings = join(planned, answers, params["limit"])
    if not params["probed"] and (findings or any(answer.get("stale") for answer in answers.values())):
        module.exit_json(changed=False, ready=False)
    if findings:
        kept = [finding.as_dict() for finding in findings]
        # A plan of --check may have gone for that of another --check meanwhile.
        if params["run_dir"] and Path(params["run_dir"]).is_dir():
            # Beside the plan: so it is known as one that was never started.
            Path(params["run_dir"], "findings.json").write_text(json.dumps(kept, indent=2) + "\n")
        said = render(findings, "{count} {findings}: the job cannot run, and nothing was started.")
        module.fail_json(msg=said, findings=kept)
    module.exit_json(changed=False, ready=True)


if __name__ == "__main__":
    main()
