#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin report_compare."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: report_compare
short_description: Compare two reports of a verification
description:
  - Reads two C(report.json) of C(verify.yml), and returns what got slower, which findings are new or gone, and which
    versions and settings changed. Differences do not fail the task.
options:
  after:
    description: The later report or its folder, by default the newest of this inventory in O(runs).
    type: path
  before:
    description: The earlier report, by default the last one of the same cluster and inventory before O(after).
    type: path
  runs: {description: Folder of the runs; needed unless O(before) and O(after) are given., type: path}
  tolerance: {description: Part by which bandwidths may differ and still count as equal., type: float, default: 0.05}
extends_documentation_fragment: read_only
seealso:
  - module: verify_report
"""

EXAMPLES = r"""
- name: Compare the two newest verifications
  report_compare:
    runs: runs
  register: compared
"""

RETURN = r"""
comparison:
  description: >-
    C(state), C(slower), C(faster), C(new), C(gone), C(unseen), C(stayed), C(changed), C(not_compared), C(hosts), and
    all of it as C(text).
  returned: success
  type: dict
"""
