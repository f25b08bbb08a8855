# SPDX-License-Identifier: Apache-2.0
"""Check the variables of the role ascend. Nodes, which use ascend_software.py for restarts, need nothing of this."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..base.findings import Finding
from ..software.requirements import setting_finding
from .ascend_software import DEFAULT_ROOT


def input_findings(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the role ascend on each host, by their names without the role's."""
    for node in nodes:
        wrong = partial(setting_finding, "ascend", node)
        found = []
        if node["packages"] and not re.match(r"(https?|file)://|/", node["source"]):
            expected = "the folder on the controller that has the packages, or an address that begins with https://"
            found.append(wrong("source", expected))
        if node["packages"] and not node["manage_system"]:
            named = "packages in ascend_packages, which only root may install, and trainyard_manage_system is false"
            action = "install them by hand and set ascend_packages: []"
            found.append(Finding("input of ascend", named, "no packages", action))
        if not re.match(r"/[^/]", node["root"]):
            found.append(wrong("root", f"the folder of the vendor's software such as {DEFAULT_ROOT}"))
        if node["devices"] < 0:
            found.append(wrong("devices", "the number of devices of each node, or 0"))
        if not node["net_health"]:
            found.append(wrong("net_health", "answers of hccn_tool such as Success"))
        yield from (each.on(node["host"]) for each in found)
