#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Take a node out of Slurm's use, or give it back."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_drain
short_description: Take a node out of Slurm's use, or give it back
description:
  - Drains the node that it runs on, as root of that node, if Slurm uses it; jobs that run there end as they would have.
  - A node that is drained already, for whatever reason, is left alone, and only a node that is drained for O(reason) is
    given back.
options:
  drained:
    description: Whether the node is to get no more jobs.
    type: bool
    required: true
  reason:
    description: Reason that Slurm shows, and by which the node is known again.
    type: str
    required: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Take the node out of use
  slurm_drain:
    drained: true
    reason: NVIDIA driver upgrade (trainyard)
"""

RETURN = r"""
node:
  description: What Slurm calls the node; empty where no slurmd runs.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.slurm import set_aside
from ansible.module_utils.trainyard_node.slurm.commands import SlurmError


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
        module.fail_json(msg=f"Slurm does not do as told: {error}")
    module.exit_json(changed=changed, node=node)


if __name__ == "__main__":
    main()
