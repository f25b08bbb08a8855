#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read NCCL or cuDNN of a node: what the library and the header say of themselves."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_library_state
short_description: Read which NCCL or cuDNN a node has, from the library itself
description:
  - Loads the library below O(home), asks it for its version (C(ncclGetVersion) or C(cudnnGetVersion), which need no
    GPU) and which CUDA it was built with, and reads from the header which version that is. cuDNN 8 answers only where
    cuBLAS and NVRTC are.
  - Reads also what can change NCCL behind a job's back, C(/etc/nccl.conf) and the training user's C(.nccl.conf).
options:
  library:
    description: Which library.
    type: str
    choices: [nccl, cudnn]
    required: true
  home:
    description: Folder with C(include) and C(lib) that M(nvidia_library_home) made.
    type: path
    required: true
  user:
    description: The training user.
    type: str
    default: train
  traces:
    description: For each provider a path that is there when it was used before; its last part may be a pattern.
    type: dict
    default: {}
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: See which NCCL the node has
  nvidia_library_state:
    library: nccl
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
    unasked:
      description: The same, where nothing but the driver's C(libcuda.so.1) is missing.
      type: str
    settings:
      description: Files that configure NCCL, with their content; none for cuDNN.
      type: dict
    others:
      description: C(path) and C(version) of further libraries that the loader knows.
      type: list
      elements: dict
    left:
      description: For each provider of O(traces) the paths that are there.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.nvidia.library import read_library


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "choices": ["nccl", "cudnn"], "required": True},
            "host": {"type": "str", "required": True},
            "home": {"type": "path", "required": True},
            "user": {"type": "str", "default": "train"},
            "traces": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given = module.params
    state = read_library(given["library"], given["host"], given["home"], given["user"], given["traces"])
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
