#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module built_archives: check what one node built before other nodes unpack it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: built_archives
short_description: Check the archives of builds before other nodes unpack them
description:
  - Rejects archives with setuid or setgid, devices, pipes, links that leave the folder, absolute paths or other owners
    than root. So root on the building node gains no more on the others than a program of the training user.
  - Rewrites each archive with names, content, links and modes alone. Runs on the controller, once for all nodes.
options:
  folder:
    description: Folder of the controller with an archive C(NAME.tar.gz) for each of O(hosts), as tar packed it.
    type: path
    required: true
  hosts:
    description: Inventory names of the nodes that built.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Check the archives before anything is unpacked
  built_archives:
    folder: "{{ folder.path }}"
    hosts: [n1]
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
findings:
  description: Findings on the archives, one for each node.
  returned: failure
  type: list
  elements: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard_controller.built_archives import rewrite


def main() -> None:
    """Check all archives, and fail with the findings on any."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
        }
    )
    folder = Path(module.params["folder"])
    findings = [finding for host in module.params["hosts"] for finding in rewrite(host, folder / f"{host}.tar.gz")]
    if findings:
        module.fail_json(**failure(findings, "The build cannot be copied: {count} {findings}. Nothing was unpacked."))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
