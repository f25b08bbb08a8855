#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module session_environment: a role's part of the environment of ssh sessions."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: session_environment
short_description: Add variables to the environment of a user's ssh sessions
description:
  - sshd takes the first C(SetEnv) line that applies to a user and ignores all others. This module changes one
    piece in a file below C(sshd_config.d) that combines the pieces of several roles in one line.
  - Commands over ssh without a login shell, as by mpirun, then find the programs of all roles.
  - C(sshd -t) checks the new file before it is installed. Without pieces, the file is removed.
options:
  file:
    description: The file, below C(sshd_config.d).
    type: path
    required: true
  user:
    description: The user of the sessions.
    type: str
    required: true
  name:
    description: Name of the piece. Pieces are combined in the order of their names.
    type: str
    required: true
  path:
    description: Folders before the system's in PATH. Without any, and without O(variables), the piece is removed.
    type: list
    elements: str
    default: []
  libraries:
    description: Folders of LD_LIBRARY_PATH.
    type: list
    elements: str
    default: []
  variables:
    description: Further variables.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Reports the change and makes none.
"""

EXAMPLES = r"""
- name: Let commands that come by ssh find nvcc
  session_environment:
    file: /etc/ssh/sshd_config.d/61-trainyard-sessions.conf
    user: train
    name: cuda
    path: [/opt/trainyard/cuda/bin]
    variables: {CUDA_HOME: /opt/trainyard/cuda}
  notify: Reload sshd
"""

RETURN = r"""
pieces:
  description: Names of the pieces in the file.
  returned: success
  type: list
  elements: str
"""

import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.session_environment import fault, read_pieces, rewrite
from ansible.module_utils.trainyard_node.machine.owned_file import difference


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "file": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "path": {"type": "list", "elements": "str", "default": []},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "variables": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params = module.params
    file = Path(params["file"])
    if wrong := fault(params):
        module.fail_json(msg=f"{params['name']}: {wrong}: expected names of variables, and values without quotes and "
                             "line breaks. Correct the variables of this role.")  # fmt: skip
    before = file.read_text() if file.exists() else ""
    try:
        after = rewrite(before, params["user"], params["name"], params)
    except ValueError as error:
        module.fail_json(msg=f"{file} has a piece that cannot be read: {error}. Remove the file and run this again.")
    if before != after and not module.check_mode:
        if after:
            place(module, file, after)
        else:
            file.unlink()
    module.exit_json(changed=before != after, pieces=sorted(read_pieces(after)), diff=difference(file, before, after))


def place(module: AnsibleModule, file: Path, text: str) -> None:
    """Install the file if sshd accepts it."""
    # With a rejected file, sshd would not start again, and nobody could log in.
    with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, delete=False) as new:
        new.write(text)
    sshd = module.get_bin_path("sshd", opt_dirs=["/usr/sbin", "/usr/local/sbin"], required=True)
    status, output, error = module.run_command([sshd, "-t", "-f", new.name], environ_update={"LC_ALL": "C"})
    if status != 0:
        module.fail_json(msg=f"sshd rejects the new {file}: {(error or output).strip()}")
    module.atomic_move(new.name, str(file))
    module.set_mode_if_different(str(file), "0644", False)


if __name__ == "__main__":
    main()
