#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module framework_image: an image with a framework's virtual environment, built by Podman and verified."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: framework_image
short_description: Build an image with a framework's virtual environment, verify it, and save it as an archive
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) finds Podman, O(min_free_mb) for O(file), and the image O(base) to build on, which is pulled where
        O(host) does not have it. It runs the base's O(interpreter) without network, and reads its version and which of
        O(libraries) the base has not.
      - V(build) brings the wheels of O(framework) for O(environment) by O(fetch) in a container of O(base) that has the
        host's network and configuration of pip and is removed. Then it makes O(build) without network, with O(created),
        and runs the framework's check in it (O(verify)). Nothing is built where the host has an image O(name) that was
        built from the same O(recipe), and no O(file) is written that holds this image already.
    type: str
    choices: [read, build]
    required: true
  host: {description: "The host's name in the inventory, for findings.", type: str}
  base:
    description: >-
      C(docker://NAME@sha256:...), C(oci-archive:/path), C(docker-archive:/path), or an image of the host; for V(build)
      the id of that image.
    type: str
    required: true
  interpreter: {description: "The Python in the base, a path or a name on PATH.", type: str, default: python3}
  libraries:
    description: Libraries, programs and C(Python.h) that the packages need from the base.
    type: list
    elements: str
    default: []
  file: {description: OCI archive to write. Empty for none., type: str, default: ""}
  min_free_mb: {description: MB (10^6 bytes) that must be free., type: int, default: 0}
  framework: {description: "The framework, with which the variables begin that messages name.", type: str}
  name: {description: Name of the image., type: str}
  created: {description: "Time of the image and of the files in it, in seconds since 1970.", type: int}
  recipe: {description: Digest of everything that the image is built from., type: str}
  build: {description: "Files of the build's context with their texts, C(Containerfile) among them.", type: dict}
  fetch: {description: "Files for the container that brings the wheels, C(fetch.sh) among them.", type: dict}
  environment: {description: Arguments of M(python_environment)., type: dict}
  verify: {description: Run the framework's check in the image before it gets its name., type: bool, default: true}
attributes:
  check_mode:
    support: full
    description: Pulls and builds nothing. Where the base would be pulled, RV(base) is empty.
"""

EXAMPLES = r"""
- name: Read Podman and the base
  framework_image:
    step: read
    host: "{{ inventory_hostname }}"
    base: oci-archive:/srv/images/python-3.11.tar
  register: state

- name: Build the image
  framework_image:
    step: build
    framework: pytorch
    name: "{{ plan.name }}"
    base: "{{ plan.base }}"
    created: "{{ plan.created }}"
    recipe: "{{ plan.recipe }}"
    build: "{{ plan.build }}"
    fetch: "{{ plan.fetch }}"
    environment: "{{ environment }}"
    file: /srv/images/pytorch.tar
"""

RETURN = r"""
base:
  description: >-
    C(reference), C(id), C(digest), C(user), C(created) (seconds since 1970), C(python), and C(lacking) (libraries).
    Empty with findings, or where check mode would pull it.
  returned: read
  type: dict
pulled: {description: "Whether the base was, or would be, pulled.", returned: read, type: bool}
findings: {description: All that prevents the build., returned: read, type: list, elements: dict}
reasons: {description: "What was, or would be, done, in words.", returned: build, type: list, elements: str}
id: {description: "Id of the image, empty where check mode would build it.", returned: build, type: str}
digest:
  description: Digest of the manifest in O(file), or in the host's store without one.
  returned: build
  type: str
bytes: {description: Size of the image in the host's store., returned: build, type: int}
verified: {description: Output of the check., returned: build when it ran, type: dict}
"""

from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.software.image_build import Build
from ansible.module_utils.trainyard_node.software.image_state import State
from ansible.module_utils.trainyard_node.software.podman import PodmanError

SHARED = {"base": {"type": "str", "required": True}, "file": {"type": "str", "default": ""}}
STEPS = {
    "read": {
        **SHARED,
        "host": {"type": "str", "required": True},
        "interpreter": {"type": "str", "default": "python3"},
        "libraries": {"type": "list", "elements": "str", "default": []},
        "min_free_mb": {"type": "int", "default": 0},
    },
    "build": {
        **SHARED,
        **{name: {"type": "str", "required": True} for name in ("framework", "name", "recipe")},
        **{name: {"type": "dict", "required": True} for name in ("build", "fetch", "environment")},
        "created": {"type": "int", "required": True},
        "verify": {"type": "bool", "default": True},
    },
}


def read(module: AnsibleModule) -> None:
    """Read Podman and the base."""
    given = module.params
    state = State(given["base"], not module.check_mode)
    state.read(given["interpreter"], given["libraries"], given["file"], given["min_free_mb"])
    findings = [finding.on(given["host"]).as_dict() for finding in state.findings]
    module.exit_json(changed=state.pulled and not findings, pulled=state.pulled, base=state.base, findings=findings)


def hide_passwords(module: AnsibleModule) -> None:
    """Hide passwords in addresses of indexes from everything that is returned."""
    given = module.params["environment"]
    addresses = [given["index_url"], *given["extra_index_urls"], *given["find_links"], *given["wheels"].values()]
    module.no_log_values.update(filter(None, (urlsplit(url).password for url in addresses)))


def build(module: AnsibleModule) -> None:
    """Build the image."""
    hide_passwords(module)
    work = Build(module.params)
    try:
        if not module.check_mode:
            work.do()
    except PodmanError as error:
        module.fail_json(msg=f"{error}.")
    module.exit_json(**work.result())


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "build": build}[module.params["step"]](module)


if __name__ == "__main__":
    main()
