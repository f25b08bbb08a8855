#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read NCCL or cuDNN of a node, and make the one folder of it that programs are built on."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_library
short_description: Read NCCL or cuDNN of a node, and link its headers and libraries in one folder
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) loads the library below O(home), asks for its version (which needs no GPU) and the CUDA it was built
        with, and reads the version of the header. cuDNN 8 loads only where cuBLAS and NVRTC are installed. It reports
        files that configure NCCL for every program, C(/etc/nccl.conf) and the C(.nccl.conf) of O(user), and O(traces).
      - V(link) makes O(home) with C(include) and C(lib), which hold links to the files of O(packages) or of O(prefix),
        and a C(libnccl.so) or C(libcudnn.so) where the vendor has none, as in wheels. It is made beside the old one and
        put in its place whole, with a record of O(provider). What something else has made at O(home) is not touched.
      - V(unlink) removes what V(link) made.
    type: str
    choices: [read, link, unlink]
    required: true
  library: {description: Which library., type: str, choices: [nccl, cudnn], required: true}
  home: {description: "The folder, with C(include) and C(lib).", type: path, required: true}
  user: {description: The training user., type: str, default: train}
  traces:
    description: By provider a path that it leaves; its last part may be a pattern.
    type: dict
    default: {}
  packages: {description: Packages of the system that have the files., type: list, elements: str, default: []}
  prefix:
    description: Folder with C(include) and C(lib) that has the files, instead of O(packages).
    type: path
  provider: {description: "Where the library comes from, written down.", type: str, default: ""}
attributes:
  check_mode:
    support: full
    description: Says what would change, also before the packages or the prefix are there.
"""

EXAMPLES = r"""
- name: Read the NCCL of the node
  nvidia_library: {step: read, library: nccl, home: /opt/trainyard/nccl}
  register: found

- name: Link to the packages
  nvidia_library:
    step: link
    library: nccl
    home: /opt/trainyard/nccl
    packages: [libnccl2, libnccl-dev]
    provider: network_repo

- name: Remove the links
  nvidia_library: {step: unlink, library: nccl, home: /opt/trainyard/nccl}
"""

RETURN = r"""
state:
  description: >-
    C(kind) (V(ours), V(foreign) or V(none)), C(library) (the loaded file), C(version), C(header) and C(cuda) as library
    and header report them, C(error), C(unloaded) (the error, where only the driver's C(libcuda.so.1) is missing),
    C(remarks) for people, and C(left), by provider the paths of O(traces) that exist.
  returned: read
  type: dict
links:
  description: The links, by path in the folder.
  returned: link
  type: dict
  sample: {lib/libnccl.so: libnccl.so.2}
folder:
  description: Where the library really lies; empty before it is there.
  returned: link
  type: str
  sample: /usr/lib/x86_64-linux-gnu
"""

import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.nvidia.library import LIBRARIES
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.nvidia.library_files import (
    files_of_packages,
    files_of_prefix,
    kind_of,
    links_in,
    make_home,
    read_library,
)
from ansible.module_utils.trainyard_node.software.build_prefix import read_record

SHARED = {
    "library": {"type": "str", "choices": ["nccl", "cudnn"], "required": True},
    "home": {"type": "path", "required": True},
}
STEPS = {
    "read": {**SHARED, "user": {"type": "str", "default": "train"}, "traces": {"type": "dict", "default": {}}},
    "link": {
        **SHARED,
        "packages": {"type": "list", "elements": "str", "default": []},
        "prefix": {"type": "path"},
        "provider": {"type": "str", "default": ""},
    },
    "unlink": SHARED,
}


def read(module: AnsibleModule) -> None:
    """Read the library."""
    given = module.params
    state = read_library(given["library"], given["home"], given["user"], given["traces"])
    module.exit_json(changed=False, state=state)


def own_kind(module: AnsibleModule) -> str:
    """Return what the home is, and fail where something else has made it."""
    library, home = LIBRARIES[module.params["library"]], Path(module.params["home"])
    kind = kind_of(home)
    if kind == "foreign":
        module.fail_json(
            msg=f"found {home}, not made by this role, expected nothing: move it away or set {library.name}_root."
        )
    return kind


def unlink(module: AnsibleModule) -> None:
    """Remove the home."""
    ours = own_kind(module) == "ours"
    if ours and not module.check_mode:
        shutil.rmtree(module.params["home"])
    module.exit_json(changed=ours)


def link(module: AnsibleModule) -> None:
    """Make the home."""
    given = module.params
    if given["packages"] and given["prefix"]:
        module.fail_json(msg="parameters are mutually exclusive: packages|prefix")
    library, home, kind = LIBRARIES[given["library"]], Path(given["home"]), own_kind(module)
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


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "link": link, "unlink": unlink}[module.params["step"]](module)


if __name__ == "__main__":
    main()
