#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin report_compare."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: report_compare
short_description: Compare two reports of a verification
description:
  - Reads two C(report.json) that C(verify.yml) wrote, and says what got slower, which findings are new or gone, and
    which versions and settings changed.
  - Returns all of this and does not fail because of it. Changes nothing.
options:
  after:
    description: The later report, C(report.json) or its folder. Default is the newest one in O(runs).
    type: path
  before:
    description:
      - The earlier report. Default is the one in O(runs) that was made last before O(after), of the same cluster.
    type: path
  runs:
    description: Folder of the runs, with C(verify-*/report.json). Needed where O(before) or O(after) is not given.
    type: path
  tolerance:
    description: The part by which a bandwidth may be lower or higher and still counts as the same.
    type: float
    default: 0.05
extends_documentation_fragment: read_only
seealso:
  - module: verify_report
"""

EXAMPLES = r"""
- name: Compare the two newest verifications
  report_compare:
    runs: runs
  register: compared

- name: Compare with how the cluster was when it was handed over
  report_compare:
    before: handover/report.json
    runs: runs
    tolerance: 0.1
"""

RETURN = r"""
comparison:
  description: What differs.
  returned: success
  type: dict
  contains:
    state:
      description:
        - V(fail) where something got slower or a new failure was found, V(unknown) where something could not be
          compared or is new and undecided, else V(pass).
      type: str
    before: {description: "The earlier report: C(id), C(cluster), C(started), C(state).", type: dict}
    after: {description: The later report., type: dict}
    hosts: {description: "Hosts that are C(new) and C(gone).", type: dict}
    slower:
      description: Bandwidths that fell, with C(what), C(hosts), C(before), C(after), C(ratio), C(unit).
      type: list
      elements: dict
    faster: {description: Bandwidths that rose., type: list, elements: dict}
    new:
      description: Findings of the later report only, with C(phase), C(check), C(hosts), C(state), C(found), C(before).
      type: list
      elements: dict
    gone: {description: Findings that the later report looked for in vain., type: list, elements: dict}
    unseen: {description: Findings that the later report did not look for., type: list, elements: dict}
    stayed: {description: How many findings both have., type: int}
    changed:
      description: Versions and settings that changed, with C(what), C(before), C(after), C(hosts).
      type: list
      elements: dict
    not_compared: {description: Why something could not be compared., type: list, elements: str}
    text: {description: All of this for reading., type: str}
"""
