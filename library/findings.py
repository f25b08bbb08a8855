#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin findings."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: findings
short_description: Stop with all findings of all hosts in one message
description:
  - Fails when there is a finding, with one message that names for each the hosts, what was found, what was expected and
    what to do. Findings that differ only by host are one entry.
  - Works on the controller, whatever host it is for. With C(run_once) all hosts stop.
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
"""

EXAMPLES = r"""
- name: Stop when anything was found on any host
  findings:
    headline: "{count} {findings} stop this; nothing was changed."
    findings: "{{ ansible_play_hosts | map('extract', hostvars, 'node') | rdma_findings }}"
  run_once: true
"""

RETURN = r""" # """
