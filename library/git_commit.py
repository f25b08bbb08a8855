#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Bring exactly one commit of a git repository to an empty folder."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: git_commit
short_description: Bring exactly one commit of a git repository to an empty folder
description:
  - Takes no branch and no tag, only a full commit, so that what is built is known. Fails with one sentence that tells a
    repository out of reach from a commit that is not in it.
  - Asks for no password. A folder that has something in it already is refused.
version_added: "0.2.0"
options:
  url:
    description: Address of the repository, or of a mirror.
    type: str
    required: true
  commit:
    description: The commit, 40 hexadecimal digits.
    type: str
    required: true
  folder:
    description: Where to bring it.
    type: path
    required: true
  timeout:
    description: Seconds after which a step has failed.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: Nothing is fetched then.
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Fetch the source
  git_commit:
    url: https://git.example.org/nccl-tests.git
    commit: "{{ commit }}"
    folder: /var/tmp/nccl-tests
"""

RETURN = r""" # """

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.software.git_commit import CommitError, fetch_commit


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "commit": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    given = module.params
    folder = Path(given["folder"])
    if not re.fullmatch(r"[0-9a-f]{40}", given["commit"]):
        module.fail_json(msg=f"commit is '{given['commit']}', expected 40 hexadecimal digits")
    if module.check_mode:
        module.exit_json(changed=True)
    if not folder.is_dir() or next(folder.iterdir(), None) is not None:
        module.fail_json(msg=f"{folder} is not an empty folder")
    try:
        fetch_commit(given["url"], given["commit"], str(folder), given["timeout"])
    except CommitError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
