#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module cluster_survey: judge the first look at every node, once, on the controller. Read-only."""
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_survey
short_description: Judge whether hosts can become nodes, all findings of all hosts at once
description:
  - Takes what two raw commands brought from every host (a probe, and one with privileges) and finds hosts that cannot
    be reached, systems that are not supported, a Python too old for modules, refused privileges, missing space, and
    names or addresses held twice.
  - Fails once, with all findings. Runs on the controller and touches no host.
options:
  nodes:
    description:
      - The hosts in inventory order. Each has C(name), C(connect) (the address it is reached by), C(probe) and
        C(become) (the results of the two raw tasks).
    type: list
    elements: dict
    required: true
  free_gib:
    description: Folders, each with the free space in GiB that its file system must have.
    type: dict
    default: {}
  check_system:
    description: Whether the operating system must be a supported one.
    type: bool
    default: true
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Judge all hosts
  cluster_survey:
    nodes: "{{ records }}"
    free_gib: {/opt/trainyard: 5}
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
summary:
  description: What the hosts are, in one line.
  returned: success
  type: str
  sample: "4 nodes: debian 12; Python 3.11.2; at least 70 GiB free"
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.findings import render
from ansible.module_utils.trainyard.survey import Survey, describe_nodes, judge_survey


def main() -> None:
    """Judge, and fail with all findings at once."""
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "free_gib": {"type": "dict", "default": {}},
            "check_system": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    free_gib = {path: float(size) for path, size in module.params["free_gib"].items()}
    nodes = [Survey.from_dict(record) for record in module.params["nodes"]]
    findings = judge_survey(nodes, free_gib, module.params["check_system"])
    if findings:
        # The text alone: it is the last thing on the screen, and a list of the same findings would bury it.
        module.fail_json(
            msg=render(findings, "These hosts cannot become nodes yet: {count} {findings}. Nothing was changed.")
        )
    module.exit_json(changed=False, summary=describe_nodes(nodes))


if __name__ == "__main__":
    main()
