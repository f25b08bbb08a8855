# SPDX-License-Identifier: Apache-2.0
"""Filter plugin cluster_survey: judge the first look at every node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.trainyard.cluster.survey import Survey, describe_nodes, judge_survey
from ansible.module_utils.trainyard.record.findings import render

DOCUMENTATION = r"""
name: cluster_survey
short_description: Judge whether hosts can become nodes, all findings of all hosts at once
description:
  - Takes what a raw command brought from every host, as it runs with privileges and once more without them where it
    brought nothing, and finds hosts that cannot be reached, systems that are not supported, a Python too old for
    modules, refused privileges, missing space, and names or addresses held twice.
options:
  _input:
    description:
      - The hosts in inventory order, as the filter C(vars_of) returns them, each with C(ansible_host) where it has
        that, C(trainyard_become), C(__validate_probe) and C(__validate_plain), the results of the two raw tasks.
    type: list
    elements: dict
    required: true
  free_gib:
    description: Folders, each with the free space in GiB that its file system must have.
    type: dict
    required: true
  check_system:
    description: Whether the operating system must be a supported one.
    type: bool
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Judge all hosts
  ansible.builtin.set_fact:
    survey: "{{ records | cluster_survey(free_gib={'/opt/trainyard': 5}, check_system=true) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: C(fault), all findings in one text or nothing, and C(summary), what the hosts are in one line.
  type: dict
"""


def cluster_survey(
    nodes: Iterable[Mapping[str, Any]], free_gib: Mapping[str, Any], check_system: bool
) -> dict[str, str]:
    """Return fault and summary."""
    surveys = []
    for node in nodes:
        probe, plain = node["__validate_probe"], node.get("__validate_plain") or {}
        record = {
            "name": node["name"],
            "connect": node.get("ansible_host", node["name"]),
            "probe": plain if "stdout" in plain else probe,
            "become": probe if node["trainyard_become"] else None,
        }
        surveys.append(Survey.from_dict(record))
    findings = judge_survey(surveys, {path: float(size) for path, size in free_gib.items()}, bool(check_system))
    headline = "These hosts cannot become nodes yet: {count} {findings}. Nothing was changed."
    if findings:
        return {"fault": render(findings, headline), "summary": ""}
    return {"fault": "", "summary": describe_nodes(surveys)}


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"cluster_survey": cluster_survey}
