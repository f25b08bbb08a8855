#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin findings."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: findings
short_description: Stop with all findings of all hosts in one message
description:
  - Fails if there is a finding. The message has for each finding its hosts, the found and expected state, and the
    action; the result has the records as C(findings). With C(run_once) all hosts stop.
options:
  findings:
    description: The findings.
    type: list
    elements: dict
    required: true
  headline:
    description: First line of the message; C({count}) and C({findings}) are replaced.
    type: str
    default: "{count} {findings}:"
  record:
    description: File on the controller to write the findings to, as JSON.
    type: path
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Stop if anything was found on any host
  findings:
    headline: "{count} {findings} stop this; nothing was changed."
    findings: "{{ ansible_play_hosts | rdma_findings(hostvars) }}"
  run_once: true
"""

RETURN = r""" # """
