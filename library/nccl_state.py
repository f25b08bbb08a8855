#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the NCCL of a node: what the library and the header say of themselves."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_state
short_description: Read which NCCL a node has, from the library itself
description:
  - Loads the library below O(home), asks it for its version (C(ncclGetVersion), which needs no GPU), reads from it
    which CUDA it was built with, and from the header which version that is.
  - Reads also what can change NCCL behind a job's back, C(/etc/nccl.conf) and the training user's C(.nccl.conf).
options:
  home:
    description: Folder with C(include) and C(lib) that M(nccl_home) made.
    type: path
    required: true
  user:
    description: The training user.
    type: str
    default: train
  traces:
    description: For each provider a path that is there when it was used before.
    type: dict
    default: {}
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: See which NCCL the node has
  nccl_state:
    host: "{{ inventory_hostname }}"
    home: /opt/trainyard/nccl
  register: found
"""

RETURN = r"""
state:
  description: What the node has.
  returned: success
  type: dict
  contains:
    host:
      description: The node's name in the inventory.
      type: str
    home:
      description: O(home).
      type: str
    kind:
      description: V(ours), V(foreign) where something else has the name, or V(none).
      type: str
    record:
      description: What the home was made from.
      type: dict
    version:
      description: What the library answers; empty where it does not.
      type: str
      sample: 2.21.5
    header:
      description: Version of the header.
      type: str
    cuda:
      description: CUDA release that the library was built with; empty where it does not say.
      type: str
      sample: "12.4"
    library:
      description: The file that was loaded.
      type: str
    error:
      description: Why there is no answer.
      type: str
    settings:
      description: Files that configure NCCL, with their content.
      type: dict
    others:
      description: C(path) and C(version) of further libraries that the loader knows.
      type: list
      elements: dict
    left:
      description: Providers of O(traces) that were used before.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.nvidia.nccl import read_nccl


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "home": {"type": "path", "required": True},
            "user": {"type": "str", "default": "train"},
            "traces": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, state=read_nccl(given["host"], given["home"], given["user"], given["traces"]))


if __name__ == "__main__":
    main()
