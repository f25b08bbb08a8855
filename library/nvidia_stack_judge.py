#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Choose a stack of driver, CUDA, NCCL, Open MPI and framework for every host, and judge it by what each host is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_stack_judge
short_description: Judge a stack of NVIDIA's software on all hosts at once
description:
  - Takes a stack out of a catalog, with what is overridden, and compares it with what each host is by the rules that
    are given as data, GPU generation by module flavour, driver and CUDA, and so on.
  - Returns all findings of all hosts with the stacks that would fit, and a table; does not fail because of them.
  - Needs no machine; run it on the controller, once for all nodes.
version_added: "0.2.0"
options:
  nodes:
    description: The hosts.
    type: list
    elements: dict
    required: true
    suboptions:
      facts:
        description: What M(nvidia_host) returned.
        type: dict
        required: true
      driver:
        description: What M(nvidia_driver_state) returned.
        type: dict
        required: true
      stack:
        description: Name of the stack.
        type: str
        required: true
      overrides:
        description: Fields of the stack's parts that are to differ, by part.
        type: dict
        default: {}
      wanted:
        description:
          - What else is wanted, C(gpus) (V(auto) or a number), and of the role nvidia_driver C(kernels), C(replace),
            C(mok), C(fabric_manager), C(without_gpu), and C(file), C(url) and C(sha256) of a runfile.
        type: dict
        required: true
  catalog:
    description: Stacks by name, each with C(for), which says in a line what it is for, and C(set), its parts.
    type: dict
    required: true
  rules:
    description: The rules' data, as the role nvidia_stack has them.
    type: dict
    required: true
  accept:
    description: Checks whose findings do not stop.
    type: list
    elements: str
    default: []
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes
  nvidia_stack_judge:
    nodes:
      - facts: "{{ host.nvidia_host }}"
        driver: "{{ driver.driver }}"
        stack: pytorch-cuda12
        overrides: {driver: {version: 580.126.09}}
        wanted: {gpus: auto}
    catalog: "{{ stacks }}"
    rules: "{{ rules }}"
  delegate_to: localhost
  run_once: true
  register: judged
"""

RETURN = r"""
sets:
  description: The chosen parts by host; empty where the choice itself was wrong.
  returned: success
  type: dict
findings:
  description: What stops, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
notes:
  description: What does not stop, in the same form.
  returned: success
  type: list
  elements: dict
summary:
  description: A table of all hosts, equal ones in one line, and the notes.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.stack import judge_all
from ansible.module_utils.trainyard.record.findings import render


def main() -> None:
    """Run the module."""
    node = {
        "facts": {"type": "dict", "required": True},
        "driver": {"type": "dict", "required": True},
        "stack": {"type": "str", "required": True},
        "overrides": {"type": "dict", "default": {}},
        "wanted": {"type": "dict", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True, "options": node},
            "catalog": {"type": "dict", "required": True},
            "rules": {"type": "dict", "required": True},
            "accept": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    judged = judge_all(given["nodes"], given["catalog"], given["rules"], given["accept"])
    notes = render(judged.warnings, "Nothing of this stops ({count} {findings}):") if judged.warnings else ""
    module.exit_json(
        changed=False,
        sets=judged.sets,
        findings=[finding.as_dict() for finding in judged.findings],
        notes=[finding.as_dict() for finding in judged.warnings],
        summary="\n\n".join(text for text in (judged.table, notes) if text),
    )


if __name__ == "__main__":
    main()
