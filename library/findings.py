#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Show all findings of all hosts and stop, or go on where there are none."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: findings
short_description: Stop with all findings of all hosts in one message
description:
  - Fails when there is a finding, with one message that names for each the hosts, what was found, what was expected and
    what to do. Findings that differ only by host are one entry.
version_added: "0.1.0"
options:
  findings:
    description: What checks found.
    type: list
    elements: dict
    required: true
  headline:
    description: First line of the message; C({count}) and C({findings}) are replaced.
    type: str
    default: "{count} {findings}:"
  record:
    description: File on this machine that keeps the findings as JSON.
    type: path
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Stop when anything was found on any host
  findings:
    headline: "{count} {findings} stop this job; nothing was started."
    findings: "{{ preflight_findings }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r""" # """

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.record.findings import Finding, render


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "findings": {"type": "list", "elements": "dict", "required": True},
            "headline": {"type": "str", "default": "{count} {findings}:"},
            "record": {"type": "path"},
        },
        supports_check_mode=True,
    )
    findings = [Finding.from_dict(finding) for finding in module.params["findings"]]
    if findings:
        if module.params["record"]:
            kept = [finding.as_dict() for finding in findings]
            Path(module.params["record"]).write_text(json.dumps(kept, indent=2) + "\n")
        module.fail_json(msg=render(findings, module.params["headline"]))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
