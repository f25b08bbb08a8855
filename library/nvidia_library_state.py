#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read NCCL or cuDNN of a node from the library itself and its header."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_library_state
short_description: Read NCCL or cuDNN of a node from the library itself
description:
  - Loads the library below O(home), asks for its version (which needs no GPU) and the CUDA it was built with, and reads
    the version of the header. cuDNN 8 loads only where cuBLAS and NVRTC are installed.
  - Reports files that configure NCCL for every program, C(/etc/nccl.conf) and the training user's C(.nccl.conf).
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
    description: By provider a path that it leaves; its last part may be a pattern.
    type: dict
    default: {}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Read the NCCL of the node
  nvidia_library_state:
    library: nccl
    home: /opt/trainyard/nccl
  register: found
"""

RETURN = r"""
state:
  description: >-
    C(kind) (V(ours), V(foreign) or V(none)), C(library) (the loaded file), C(version), C(header) and C(cuda) as library
    and header report them, C(error), C(unloaded) (the error, where only the driver's C(libcuda.so.1) is missing),
    C(remarks) for people, and C(left), by provider the paths of O(traces) that exist.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.nvidia.library_files import read_library


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "choices": ["nccl", "cudnn"], "required": True},
            "home": {"type": "path", "required": True},
            "user": {"type": "str", "default": "train"},
            "traces": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given = module.params
    state = read_library(given["library"], given["home"], given["user"], given["traces"])
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
