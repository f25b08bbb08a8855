#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Describe a node's GPUs for containers (CDI) by nvidia-ctk."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime_cdi
short_description: Describe a node's GPUs for containers by nvidia-ctk
description:
  - Writes what C(nvidia-ctk cdi generate) prints to O(path), if driver, toolkit or GPUs have changed since, which the
    first lines of the file tell. A file of somebody else stays.
  - Writes nothing while there is no driver or no toolkit that answers.
options:
  path:
    description: The specification.
    type: path
    default: /etc/cdi/nvidia.yaml
attributes:
  check_mode:
    support: full
    description: Returns the state and makes no change.
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: Describe the GPUs for containers
  container_runtime_cdi:
    host: "{{ inventory_hostname }}"
  register: gpus
"""

RETURN = r"""
state:
  description: >-
    C(host); C(path); C(driver) and C(toolkit), the versions, empty if nothing answers; C(driver_output), the output of
    nvidia-smi; C(header), the first lines of the present specification; C(devices), the paths of the GPUs; C(exists)
    and C(due), whether the specification is there and whether it is to be written; C(listed), the names of C(nvidia-ctk
    cdi list).
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.owned_file import replace
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.cdi_specification import GenerateError, generate, read_state


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "path": {"type": "path", "default": "/etc/cdi/nvidia.yaml"},
        },
        supports_check_mode=True,
    )
    host, path = module.params["host"], module.params["path"]
    state = read_state(Tree(), host, path)
    changed = bool(state["due"] and state["driver"] and state["toolkit"])
    if changed and not module.check_mode:
        try:
            text = generate(Tree(), state["header"])
            Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace(module, Path(path), text.encode())
            # Podman of an ordinary user reads it.
            Path(path).chmod(0o644)
        except (GenerateError, OSError) as error:
            module.fail_json(msg=f"{host}: nvidia-ctk cannot describe the GPUs: {error}. Run nvidia-smi there.")
        state = read_state(Tree(), host, path)
    module.exit_json(changed=changed, state=state)


if __name__ == "__main__":
    main()
