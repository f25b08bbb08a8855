#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read a node and its NVIDIA driver, find the driver's packages, and go back to those that there were."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver
short_description: Read a node and its NVIDIA driver, and find or restore the packages of the driver
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(host) reads the GPUs from the PCI bus, so no driver is needed, and everything else that decides which driver
        and which CUDA the node can have, such as O(toolkits) and O(records). The filter C(nvidia_stack_plan) compares
        it with the stack. It starts a few short processes (C(uname), C(gcc), C(df), C(dpkg-query), C(apt-cache),
        C(mokutil)). O(root) may be a captured machine.
      - V(read) returns the driver that is installed and where it came from, what dkms built for O(kernels), and which
        version runs. A driver whose module was not built for a kernel is seen as that, and with the compiler's reason.
        O(root) may be a captured machine.
      - V(resolve) finds the version (O(version), or the newest of O(branch)) and all packages that belong to O(roots)
        and O(pinning), with their dependencies, from O(uri) or O(origins). O(host) is named in findings.
      - V(restore) restores the driver's packages O(before), also in the middle of a failed installation. In check mode
        it returns what could not be restored. O(host) is named in failures.
    type: str
    choices: [host, read, resolve, restore]
    required: true
  toolkits:
    description: Folders in which CUDA toolkits lie, each as C(cuda-VERSION).
    type: list
    elements: path
    default: [/usr/local]
  records:
    description: Folder in which the role nvidia_repository notes which packages it keeps at their version.
    type: path
    default: /var/lib/trainyard-root/packages
  kernels:
    description: Kernels that need the module, as C(uname -r) prints them; the running one without any.
    type: list
    elements: str
    default: []
  host: {description: The node's name in the inventory., type: str}
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
  branch: {description: Branch of the driver; empty for any., type: str, default: ""}
  uri:
    description: Address of the repository that counts; empty for the distribution's own.
    type: str
    default: ""
  origins:
    description: Without O(uri), origins of the distribution's packages.
    type: list
    elements: str
    default: []
  before: {description: "Versions of the driver's packages by name, to go back to.", type: dict}
extends_documentation_fragment: captured_machine
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Read what the node is
  nvidia_driver: {step: host, records: /var/lib/trainyard-root/packages}
  register: found

- name: Read the driver
  nvidia_driver: {step: read}
  register: driver

- name: Find all packages of a version
  nvidia_driver:
    step: resolve
    host: "{{ inventory_hostname }}"
    roots: [[nvidia-open-550, nvidia-open]]
    version: 550.127.08
    uri: https://mirror.example.org/cuda/repos/debian12/x86_64/
  register: resolved

- name: Go back to the packages before
  nvidia_driver: {step: restore, host: "{{ inventory_hostname }}", before: "{{ driver.driver.packages }}"}
"""

RETURN = r"""
nvidia_host:
  description: >-
    The facts of the node are C(os), C(arch), C(kernel), C(virtual), C(gpus), C(nvswitches),
    C(secure_boot), C(nouveau), C(gcc), C(apt), C(cuda), C(free_mib) and C(rdma_ports).
  returned: host
  type: dict
driver:
  description: >-
    The facts of its driver are C(kernel), C(headers), C(provider), C(version), C(packages), C(broken),
    C(held), C(runfile), C(loaded), C(flavour), C(userspace), C(fabric_manager), C(smi), C(dkms), C(modules),
    C(builds), C(unbuilt), C(nouveau) and C(reboot_due).
  returned: read
  type: dict
version: {description: The version that was chosen., returned: resolve, type: str}
packages: {description: C(name) and C(version) of each package., returned: resolve, type: list, elements: dict}
findings:
  description: Packages that are not offered, each with host, check, found, expected and action.
  returned: resolve
  type: list
  elements: dict
undone: {description: Restored packages., returned: restore, type: list, elements: str}
missing:
  description: Packages of O(before), with their versions, that no package list offers.
  returned: restore in check mode
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.software.apt import Source
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import driver_apt
from ansible.module_utils.trainyard_node.nvidia.driver_state import read_driver
from ansible.module_utils.trainyard_node.nvidia.host import read_host
from ansible.module_utils.trainyard_node.software.apt_calls import AptError

ROOT = {"root": {"type": "path", "default": "/"}}
HOST = {"host": {"type": "str", "required": True}}
TEXTS = {"type": "list", "elements": "str", "default": []}
STEPS = {
    "host": {
        **ROOT,
        "toolkits": {"type": "list", "elements": "path", "default": ["/usr/local"]},
        "records": {"type": "path", "default": "/var/lib/trainyard-root/packages"},
    },
    "read": {**ROOT, "kernels": TEXTS},
    "resolve": {
        **HOST,
        "roots": {"type": "list", "elements": "list", "default": []},
        "pinning": TEXTS,
        "version": {"type": "str", "default": ""},
        "branch": {"type": "str", "default": ""},
        "uri": {"type": "str", "default": ""},
        "origins": TEXTS,
    },
    "restore": {**HOST, "before": {"type": "dict", "required": True}},
}


def host(module: AnsibleModule) -> None:
    """Read what the node is."""
    given = module.params
    module.exit_json(changed=False, nvidia_host=read_host(Tree(given["root"]), given["toolkits"], given["records"]))


def read(module: AnsibleModule) -> None:
    """Read the driver."""
    given = module.params
    module.exit_json(changed=False, driver=read_driver(Tree(given["root"]), given["kernels"]))


def resolve(module: AnsibleModule) -> None:
    """Find the packages of a version."""
    given = module.params
    request = driver_apt.Request(given["roots"], given["pinning"], given["version"], given["branch"])
    version, packages, findings = driver_apt.resolve(request, Source(given["uri"], tuple(given["origins"])))
    records = [finding.on(given["host"]).as_dict() for finding in findings]
    module.exit_json(changed=False, version=version, packages=packages, findings=records)


def restore(module: AnsibleModule) -> None:
    """Go back to packages."""
    before = module.params["before"]
    if module.check_mode:
        module.exit_json(changed=False, undone=[], missing=driver_apt.missing(before))
    undone = driver_apt.undo(Tree(), before)
    module.exit_json(changed=bool(undone), undone=undone)


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    try:
        {"host": host, "read": read, "resolve": resolve, "restore": restore}[module.params["step"]](module)
    except AptError as error:
        module.fail_json(msg=f"{module.params['host']}: {error}")


if __name__ == "__main__":
    main()
