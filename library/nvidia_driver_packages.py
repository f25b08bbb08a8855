#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Find all packages that belong to one version of the NVIDIA driver, or go back to those that there were."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver_packages
short_description: Find all packages of one version of the NVIDIA driver
description:
  - With O(roots), finds the version and all packages that belong to it, with their dependencies. Changes nothing.
  - With O(before), restores the driver's packages, also in the middle of a failed installation. In check mode returns
    what could not be restored.
options:
  roots:
    description: Packages to ask for, each a list of names of which the first that is offered is meant.
    type: list
    elements: list
    default: []
  pinning:
    description: Names of the vendor's own pinning package; the first that is offered is taken along.
    type: list
    elements: str
    default: []
  version:
    description: Version of the driver, without a packaging suffix; empty for the newest of O(branch).
    type: str
    default: ""
  branch:
    description: Branch of the driver; empty for any.
    type: str
    default: ""
  uri:
    description: Address of the repository that counts; empty for the distribution's own.
    type: str
    default: ""
  origins:
    description: Without O(uri), origins of the distribution's packages.
    type: list
    elements: str
    default: []
  before:
    description: Versions of the driver's packages by name, to go back to.
    type: dict
attributes:
  check_mode:
    support: full
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: Find all packages of a version
  nvidia_driver_packages:
    host: "{{ inventory_hostname }}"
    roots: [[nvidia-open-550, nvidia-open]]
    version: 550.127.08
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64/
  register: found
"""

RETURN = r"""
version:
  description: The version that was chosen.
  returned: with O(roots)
  type: str
packages:
  description: The packages, each with C(name) and C(version).
  returned: with O(roots)
  type: list
  elements: dict
findings:
  description: Packages that are not offered, each with host, check, found, expected and action.
  returned: with O(roots)
  type: list
  elements: dict
undone:
  description: Restored packages.
  returned: with O(before)
  type: list
  elements: str
missing:
  description: Packages of O(before), with their versions, that no package list offers.
  returned: with O(before), in check mode
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.software.apt import Source
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver_apt import Request, missing, resolve, undo
from ansible.module_utils.trainyard_node.software.apt_calls import AptError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "roots": {"type": "list", "elements": "list", "default": []},
            "pinning": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str", "default": ""},
            "branch": {"type": "str", "default": ""},
            "uri": {"type": "str", "default": ""},
            "origins": {"type": "list", "elements": "str", "default": []},
            "before": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        if given["before"] is not None:
            if module.check_mode:
                module.exit_json(changed=False, undone=[], missing=missing(given["before"]))
            undone = undo(Tree(), given["before"])
            module.exit_json(changed=bool(undone), undone=undone)
        request = Request(given["roots"], given["pinning"], given["version"], given["branch"])
        version, packages, findings = resolve(request, Source(given["uri"], tuple(given["origins"])))
    except AptError as error:
        module.fail_json(msg=f"{given['host']}: {error}")
    records = [finding.on(given["host"]).as_dict() for finding in findings]
    module.exit_json(changed=False, version=version, packages=packages, findings=records)


if __name__ == "__main__":
    main()
