#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module image_build: an image with a framework's virtual environment, built by Podman and verified."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_build
short_description: Build an image with a framework's virtual environment, verify it, and save it as an archive
description:
  - Brings the wheels in a container of the base that has the host's network and configuration of pip and is removed,
    then builds the image from them without network, and runs the framework's check in it.
  - Builds nothing where the host has an image of O(name) that was built from the same O(recipe), and writes no O(file)
    that holds this image already.
options:
  framework:
    description: The framework, with which the variables begin that messages name.
    type: str
    required: true
  name:
    description: Name of the image.
    type: str
    required: true
  base:
    description: Id of the image to build on, which the host has.
    type: str
    required: true
  created:
    description: Time of the image and of the files in it, in seconds since 1970.
    type: int
    required: true
  recipe:
    description: Digest of everything that the image is built from.
    type: str
    required: true
  build:
    description: Files of the build's context with their texts, C(Containerfile) among them.
    type: dict
    required: true
  fetch:
    description: Files for the container that brings the wheels, C(fetch.sh) among them.
    type: dict
    required: true
  environment:
    description: Arguments of M(python_environment).
    type: dict
    required: true
  file:
    description: OCI archive to write. Empty for none.
    type: str
    default: ""
  verify:
    description: Run the framework's check in the image before it gets its name.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Build the image
  image_build:
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
reasons:
  description: What was, or would be, done, in words.
  returned: success
  type: list
  elements: str
id:
  description: Id of the image, empty where check mode would build it.
  returned: success
  type: str
digest:
  description: Digest of the manifest in O(file), or in the host's store without one.
  returned: success
  type: str
bytes:
  description: Size of the image in the host's store.
  returned: success
  type: int
verified:
  description: Output of the check.
  returned: when it ran
  type: dict
"""

from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.software.image_build import Build
from ansible.module_utils.trainyard_node.software.podman import PodmanError


def hide_passwords(module: AnsibleModule) -> None:
    """Hide passwords in addresses of indexes from everything that is returned."""
    given = module.params["environment"]
    addresses = [given["index_url"], *given["extra_index_urls"], *given["find_links"], *given["wheels"].values()]
    module.no_log_values.update(filter(None, (urlsplit(url).password for url in addresses)))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "framework": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "base": {"type": "str", "required": True},
            "created": {"type": "int", "required": True},
            "recipe": {"type": "str", "required": True},
            "build": {"type": "dict", "required": True},
            "fetch": {"type": "dict", "required": True},
            "environment": {"type": "dict", "required": True},
            "file": {"type": "str", "default": ""},
            "verify": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    hide_passwords(module)
    build = Build(module.params)
    try:
        if not module.check_mode:
            build.do()
    except PodmanError as error:
        module.fail_json(msg=f"{error}.")
    module.exit_json(**build.result())


if __name__ == "__main__":
    main()
