#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Compare two reports of a proof, on the controller. Read-only."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: report_compare
short_description: Compare two reports of a proof
description:
  - Reads two C(report.json) that C(verify.yml) wrote, and says what got slower, which findings are new or gone, and
    which versions and settings changed.
  - Returns all of this and does not fail because of it. Changes nothing.
version_added: "0.2.0"
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
author:
  - trainyard
seealso:
  - module: verify_report
"""

EXAMPLES = r"""
- name: Compare the two newest proofs
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

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.verify.compare import compare

WHAT_TO_DO = "run playbooks/verify.yml, or name a report (compare_before, compare_after)"


class NoReport(Exception):
    """There is no report to read; the text says what was found."""


def read(path):
    """Read a report by its name or its folder's."""
    path = path / "report.json" if path.is_dir() else path
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(report, dict):
            raise ValueError("not an object")
    except (OSError, ValueError) as error:
        raise NoReport(f"{path} is no report of a proof: {error}; expected: report.json of verify.yml") from error
    return report


def started(report):
    """Return when a proof began; 0 for what is no report, so that it is the oldest."""
    when = report.get("started")
    return when if isinstance(when, (int, float)) else 0.0


def newest(runs, wanted):
    """Return the newest report in the folder of runs that is wanted; those that cannot be read are passed over."""
    found = []
    for path in sorted(runs.glob("verify-*/report.json")):
        try:
            report = read(path)
        except NoReport:
            continue
        if wanted(report):
            found.append(report)
    return max(found, key=started, default=None)


def choose(params):
    """Return the two reports. Raises NoReport."""
    runs = Path(params["runs"]) if params["runs"] else None
    if runs is None and not (params["before"] and params["after"]):
        raise NoReport("runs is not given; expected: it, or both before and after")
    after = read(Path(params["after"])) if params["after"] else newest(runs, bool)
    if after is None:
        raise NoReport(f"{runs} has no report of a proof, verify-*/report.json; {WHAT_TO_DO}")
    if params["before"]:
        return read(Path(params["before"])), after
    before = newest(
        runs, lambda report: started(report) < started(after) and report.get("cluster") == after.get("cluster")
    )
    if before is None:
        raise NoReport(
            f"{runs} has no report of the cluster {after.get('cluster')} from before {after.get('id')}; {WHAT_TO_DO}"
        )
    return before, after


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "after": {"type": "path"},
            "before": {"type": "path"},
            "runs": {"type": "path"},
            "tolerance": {"type": "float", "default": 0.05},
        },
        supports_check_mode=True,
    )
    tolerance = module.params["tolerance"]
    if not 0 <= tolerance < 1:
        module.fail_json(msg=f"tolerance is {tolerance:g}, expected a number from 0 to below 1: 0.05 is 5 %")
    try:
        before, after = choose(module.params)
        module.exit_json(changed=False, comparison=compare(before, after, tolerance))
    except NoReport as error:
        module.fail_json(msg=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        module.fail_json(
            msg=f"A report is not as docs/report.schema.json says: {type(error).__name__}: {error}. "
            "Expected: report.json as verify.yml of this release wrote it."
        )


if __name__ == "__main__":
    main()
