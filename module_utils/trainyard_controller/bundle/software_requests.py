# SPDX-License-Identifier: Apache-2.0
"""Requests of roles for software, by host and part, kept by the controller while a playbook runs.

They lie in the private folder that Ansible makes for each run and removes at its end. As facts of a host they would be
what that host's modules may return, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def file() -> Path:
    """Return the path of the file in this run's folder."""
    # It makes this process a controller for good, which tests of rules are not.
    from ansible import constants as C

    return Path(C.DEFAULT_LOCAL_TMP) / "trainyard-requests.jsonl"


def record(part: str, requests: Mapping[str, Any]) -> None:
    """Record what hosts are to get of a part of the software; a later request of the same part replaces it."""
    with file().open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([part, requests]) + "\n")


def recorded() -> dict[str, dict[str, Any]]:
    """Return the requests by host and part."""
    path = file()
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        part, requests = json.loads(line)
        for host, request in requests.items():
            found.setdefault(host, {})[part] = request
    return found
