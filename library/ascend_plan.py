#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan which of the vendor's packages for Ascend are to be installed on which node, and find what stops it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ascend_plan
short_description: Plan which Ascend packages are to be installed on which node
description:
  - Compares what each node has with the packages wanted there, and returns for each node those that are missing, in the
    vendor's order (driver before firmware on a new node, after it in an upgrade) and with the installer's arguments.
  - Needs no machine; run it on the controller, once for all nodes.
version_added: "0.2.0"
options:
  nodes:
    description: Each node's C(state), as M(ascend_state) returns it, and the C(packages) wanted there.
    type: list
    elements: dict
    required: true
  ascend_root:
    description: Where the packages are installed.
    type: path
    default: /usr/local/Ascend
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan what to install
  ascend_plan:
    nodes:
      - state: "{{ found.state }}"
        packages:
          - component: driver
            version: 24.1.0
            file: Ascend-hdk-910b-npu-driver_24.1.0_linux-aarch64.run
            sha256: "{{ driver_sha256 }}"
  delegate_to: localhost
  run_once: true
  register: plan
"""

RETURN = r"""
nodes:
  description:
    - For each host the packages to install, in order, with C(component), C(version), C(file), C(sha256), C(found) (the
      version that is there) and C(arguments).
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.ascend.software import plan_packages


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "ascend_root": {"type": "path", "default": "/usr/local/Ascend"},
        },
        supports_check_mode=True,
    )
    nodes, findings = plan_packages(module.params["nodes"], module.params["ascend_root"].rstrip("/"))
    module.exit_json(changed=False, nodes=nodes, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
