# SPDX-License-Identifier: Apache-2.0
"""Stop with findings, or go on where there are none. Documentation: library/findings.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import Finding, failure
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Write findings as one text, in this process."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `msg` where there are findings."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(
            argument_spec={
                "findings": {"type": "list", "elements": "dict", "required": True},
                "headline": {"type": "str", "default": "{count} {findings}:"},
                "record": {"type": "path"},
            }
        )
        findings = [Finding.from_dict(finding) for finding in given["findings"]]
        if findings:
            if given["record"]:
                kept = [finding.as_dict() for finding in findings]
                Path(given["record"]).write_text(json.dumps(kept, indent=2) + "\n")
            return {**result, "changed": False, **failure(findings, given["headline"])}
        return {**result, "changed": False}
