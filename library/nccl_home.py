#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make the one folder with NCCL's headers and libraries that programs are built on, wherever NCCL comes from."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_home
short_description: Make a folder that leads to NCCL's headers and libraries
description:
  - Makes O(path) with C(include) and C(lib), which hold links to the files of packages or of a prefix, and a
    C(libnccl.so) where the vendor has none, as in wheels. It is made beside the old one and put in its place whole.
  - What something else has made at O(path) is not touched.
options:
  path:
    description: The folder.
    type: path
    required: true
  state:
    description: V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  packages:
    description: Packages of the system that have the files.
    type: list
    elements: str
    default: []
  prefix:
    description: Folder with C(include) and C(lib) that has the files, instead of O(packages).
    type: path
  provider:
    description: Where NCCL comes from, written down.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    description: Says what would change, also before the packages or the prefix are there.
"""

EXAMPLES = r"""
- name: Lead to the packages
  nccl_home:
    path: /opt/trainyard/nccl
    packages: [libnccl2, libnccl-dev]
    provider: network_repo
"""

RETURN = r"""
links:
  description: The links, by path in the folder.
  returned: success
  type: dict
  sample: {lib/libnccl.so: libnccl.so.2}
"""

import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl import home_links
from ansible.module_utils.trainyard_node.nvidia import nccl

NEEDED = ("include/nccl.h", "lib/libnccl.so", "lib/libnccl.so.2")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "prefix": {"type": "path"},
            "provider": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
        mutually_exclusive=[("packages", "prefix")],
    )
    given = module.params
    home = Path(given["path"])
    kind = nccl.kind_of(home)
    if kind == "foreign":
        module.fail_json(msg=f"{home} is not of this role, expected nothing there; move it away or set nccl_root.")
    if given["state"] == "absent":
        if kind == "ours" and not module.check_mode:
            shutil.rmtree(home)
        module.exit_json(changed=kind == "ours", links={})
    try:
        prefix = given["prefix"]
        files = nccl.files_of_prefix(prefix) if prefix else nccl.files_of_packages(given["packages"])
    except ValueError as error:
        if module.check_mode:
            module.exit_json(changed=True, links={})
        module.fail_json(msg=f"There are no files for {home}: {error}.")
    links = home_links(files)
    missing = [name for name in NEEDED if name not in links]
    if missing:
        where = given["prefix"] or "the packages " + ", ".join(given["packages"])
        module.fail_json(
            msg=f"{where} lack what {home}/{', '.join(missing)} would lead to; expected NCCL with headers."
        )
    record = {"provider": given["provider"]}
    changed = kind == "none" or nccl.links_in(home) != links or nccl.read_mark(home) != record
    if changed and not module.check_mode:
        nccl.make_home(home, links, record)
    module.exit_json(changed=changed, links=links)


if __name__ == "__main__":
    main()
