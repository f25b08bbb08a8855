#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module slurm_drain: drain a node in Slurm, or resume it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_drain
short_description: Drain a node in Slurm, or resume it
description:
  - Drains this node as root if Slurm uses it; running jobs continue.
  - A node that is already drained is not changed, and only a node that was drained for O(reason) is resumed.
options:
  drained:
    description: Whether the node gets no more jobs.
    type: bool
    required: true
  reason:
    description: Reason in Slurm, which identifies the drain.
    type: str
    required: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Drain the node
  slurm_drain:
    drained: true
    reason: NVIDIA driver upgrade (trainyard)
"""

RETURN = r"""
node:
  description: Name of the node in Slurm; empty without slurmd.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.slurm import set_aside
from ansible.module_utils.trainyard_node.slurm.slurm_commands import SlurmError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"drained": {"type": "bool", "required": True}, "reason": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    change = set_aside.set_aside if module.params["drained"] else set_aside.give_back
    changed, node = False, ""
    try:
        node = set_aside.node_name()
        if node:
            changed = change(node, module.params["reason"], check=module.check_mode)
    except SlurmError as error:
        module.fail_json(msg=f"Slurm reports an error: {error}")
    module.exit_json(changed=changed, node=node)


if __name__ == "__main__":
    main()
