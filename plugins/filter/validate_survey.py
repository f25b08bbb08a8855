# SPDX-License-Identifier: Apache-2.0
"""Filter plugin validate_survey: judge the first look at every node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.trainyard.cluster.survey import Survey, describe_nodes, judge_survey

DOCUMENTATION = r"""
name: validate_survey
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
    survey: "{{ records | validate_survey(free_gib={'/opt/trainyard': 5}, check_system=true) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: >-
    C(findings), for M(findings), C(usable), the hosts of which more can be asked, and without any finding C(summary),
    what the hosts are in one line.
  type: dict
"""

# Faults of a host that answers all the same.
ASKED = ("operating system", "host name", "inventory")


def validate_survey(
    nodes: Iterable[Mapping[str, Any]], free_gib: Mapping[str, Any], check_system: bool
) -> dict[str, Any]:
    """Return findings and summary."""
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
    # Whom more can be asked: what else is wrong with the host keeps nobody from that.
    deaf = {finding.host for finding in findings if finding.check not in ASKED and "space" not in finding.check}
    return {
        "findings": [finding.as_dict() for finding in findings],
        "usable": [survey.name for survey in surveys if survey.name not in deaf],
        "summary": "" if findings else describe_nodes(surveys),
    }


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"validate_survey": validate_survey}
