#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module mindspore_plan: check a wanted MindSpore against the releases there are, and say what to install."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mindspore_plan
short_description: Check a wanted MindSpore before anything is touched
description:
  - Fails when there is no such combination of release, device and CUDA, with a message that names those there are.
  - Needs no machine; run it on the controller, once for all nodes.
options:
  version:
    description: Exact release.
    type: str
    required: true
  device:
    description: C(cpu), C(gpu) or C(ascend).
    type: str
    default: cpu
  cuda:
    description: CUDA release that the nodes have, as in V(11.6). For C(gpu) only.
    type: str
    default: ""
  wheel_url:
    description: Address of the wheel, where no index has it.
    type: str
    default: ""
  wheel_sha256:
    description: Its sum.
    type: str
    default: ""
  packages:
    description: Pinned packages beside MindSpore; a numpy among them must be one that the release works with.
    type: list
    elements: str
    default: []
  python_min:
    description: Least Python, for a release that is not known here.
    type: str
    default: ""
  python_max:
    description: Newest Python, for a release that is not known here.
    type: str
    default: ""
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Check what is wanted
  mindspore_plan:
    version: 2.2.14
    device: gpu
    cuda: "11.6"
    wheel_url: https://mirror.example.org/mindspore-2.2.14-cp39-cp39-linux_x86_64.whl
    wheel_sha256: "{{ mindspore_wheel_sha256 }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
distribution:
  description: Name under which the wheel is installed.
  returned: success
  type: str
  sample: mindspore
pin:
  description: The requirement.
  returned: success
  type: str
  sample: mindspore==2.10.0
wheels:
  description: Address of the wheel with its sum, by name of the distribution; empty for one from an index.
  returned: success
  type: dict
python_min:
  description: Least Python that the release has wheels for.
  returned: success
  type: str
python_max:
  description: Newest Python that the release has wheels for.
  returned: success
  type: str
target:
  description: The device as MindSpore names it.
  returned: success
  type: str
  sample: CPU
driver:
  description: Least version of NVIDIA's driver, for a GPU build with a known CUDA release, else empty.
  returned: success
  type: str
  sample: 510.39.01
needs:
  description: What the nodes must have beside it, in words, for a GPU build.
  returned: success
  type: str
  sample: CUDA 11.6, cuDNN 8.5, NVIDIA driver 510.39.01 or newer
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import mindspore


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "device": {"type": "str", "default": "cpu"},
            "cuda": {"type": "str", "default": ""},
            "wheel_url": {"type": "str", "default": ""},
            "wheel_sha256": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "python_min": {"type": "str", "default": ""},
            "python_max": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = mindspore.Wanted(**module.params)
    findings = list(mindspore.problems(wanted))
    if findings:
        module.fail_json(msg=" ".join(findings), findings=findings)
    module.exit_json(changed=False, **mindspore.plan(wanted))


if __name__ == "__main__":
    main()
