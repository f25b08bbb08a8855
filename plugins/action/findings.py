# SPDX-License-Identifier: Apache-2.0
"""Stop with findings, or go on where there are none. Documentation: library/findings.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.base.findings import Finding, FindingsError
from ansible.module_utils.trainyard_controller.ansible.action_plugin import Documented


class ActionModule(Documented):
    BYPASS_HOST_LOOP = False

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        findings = [Finding.from_dict(finding) for finding in given["findings"]]
        if findings and given["record"]:
            records = [finding.as_dict() for finding in findings]
            Path(given["record"]).write_text(json.dumps(records, indent=2) + "\n")
        if findings:
            raise FindingsError(findings, given["headline"])
        return {}
