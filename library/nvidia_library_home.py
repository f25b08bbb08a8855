#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Make the one folder with headers and libraries of NCCL or cuDNN that programs are built on."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_library_home
short_description: Make a folder that leads to headers and libraries of NCCL or cuDNN
description:
  - Makes O(path) with C(include) and C(lib), which hold links to the files of packages or of a prefix, and a
    C(libnccl.so) or C(libcudnn.so) where the vendor has none, as in wheels. It is made beside the old one and put in
    its place whole.
  - What something else has made at O(path) is not touched.
options:
  library:
    description: Which library.
    type: str
    choices: [nccl, cudnn]
    required: true
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
    description: Where the library comes from, written down.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    description: Says what would change, also before the packages or the prefix are there.
"""

EXAMPLES = r"""
- name: Lead to the packages
  nvidia_library_home:
    library: nccl
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
folder:
  description: Where the library really lies; empty before it is there.
  returned: success
  type: str
  sample: /usr/lib/x86_64-linux-gnu
"""

import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.library import LIBRARIES
from ansible.module_utils.trainyard_node.nvidia.library_files import (
    files_of_packages,
    files_of_prefix,
    kind_of,
    links_in,
    make_home,
)
from ansible.module_utils.trainyard_node.software.build_prefix import read_record


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "choices": ["nccl", "cudnn"], "required": True},
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
    library, home = LIBRARIES[given["library"]], Path(given["path"])
    kind = kind_of(home)
    if kind == "foreign":
        module.fail_json(
            msg=f"found {home}, not made by this role, expected nothing: move it away or set {library.name}_root."
        )
    if given["state"] == "absent":
        if kind == "ours" and not module.check_mode:
            shutil.rmtree(home)
        module.exit_json(changed=kind == "ours", links={}, folder="")
    try:
        prefix = given["prefix"]
        files = files_of_prefix(prefix) if prefix else files_of_packages(given["packages"])
    except ValueError as error:
        if module.check_mode:
            module.exit_json(changed=True, links={}, folder="")
        module.fail_json(msg=f"There are no files for {home}: {error}.")
    links = library.home_links(files)
    missing = library.missing(links)
    if missing:
        where = given["prefix"] or "the packages " + ", ".join(given["packages"])
        module.fail_json(
            msg=f"{where} lack the files for {home}/{', '.join(missing)}, expected {library.title} with headers."
        )
    record = {"provider": given["provider"]}
    changed = kind == "none" or links_in(home) != links or read_record(home) != record
    if changed and not module.check_mode:
        make_home(home, links, record)
    file = links[next(name for name in links if re.fullmatch(rf"lib/lib{library.name}\.so\.\d+", name))]
    module.exit_json(changed=changed, links=links, folder=str(Path(file).resolve().parent))


if __name__ == "__main__":
    main()
