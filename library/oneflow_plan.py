#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module oneflow_plan: check a wanted OneFlow against the releases there are, and say what to install."""

from __future__ import annotations

DOCUMENTATION = r"""
module: oneflow_plan
short_description: Check a wanted OneFlow before anything is touched
description:
  - Fails when there is no such release, or a package beside it is too new for it, with a message that says what is.
  - Needs no machine; run it on the controller, once for all nodes.
options:
  version:
    description: Exact release.
    type: str
    required: true
  wheel_url:
    description: Address of the wheel, where no index has it.
    type: str
    default: ""
  wheel_sha256:
    description: Its sum.
    type: str
    default: ""
  packages:
    description: Pinned packages beside OneFlow; those that it is sensitive to must be old enough.
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
  oneflow_plan:
    version: 0.9.0
    packages: [numpy==1.23.5, protobuf==3.20.3]
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
pins:
  description: The requirements, OneFlow's own first, then the libraries that it cannot be imported without.
  returned: success
  type: list
  elements: str
  sample: [oneflow==0.9.0, nvidia-cublas-cu11==11.10.3.66, nvidia-cudnn-cu11==8.5.0.96]
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
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import oneflow


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "wheel_url": {"type": "str", "default": ""},
            "wheel_sha256": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "python_min": {"type": "str", "default": ""},
            "python_max": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = oneflow.Wanted(**module.params)
    findings = list(oneflow.problems(wanted))
    if findings:
        module.fail_json(msg=" ".join(findings), findings=findings)
    module.exit_json(changed=False, **oneflow.plan(wanted))


if __name__ == "__main__":
    main()
