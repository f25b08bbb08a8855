#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module node_files: several folders and small files of a node in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_files
short_description: Create several folders and small files of a node in one call
description:
  - Does for a list what C(ansible.builtin.file) and C(ansible.builtin.copy) with C(content) do for one entry. That
    saves a tenth of a second of processor time for each entry on node and controller.
  - Files are replaced atomically.
options:
  files:
    description: Folders and files in the order of creation.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Full path.
        type: path
        required: true
      content:
        description: Text of the file. Without it, the path is a folder; missing parents get the same attributes.
        type: str
      owner:
        description: Name or number of the owner.
        type: str
        default: root
      group:
        description: Name or number of the group.
        type: str
        default: root
      mode:
        description: As for C(ansible.builtin.file). The default is 0644 for files and 0755 for folders.
        type: str
attributes:
  check_mode:
    support: full
    description: Returns the change and makes none.
  diff_mode:
    support: full
    description: Shows each changed file before and after.
"""

EXAMPLES = r"""
- name: Set limits
  node_files:
    files:
      - {path: /etc/systemd/system.conf.d}
      - path: /etc/systemd/system.conf.d/60-site.conf
        content: "{{ lookup('ansible.builtin.template', 'systemd.conf.j2') }}"
      - {path: /var/lib/jobs, owner: train, group: train}
"""

RETURN = r"""
paths:
  description: The changed paths.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.owned_file import difference, replace

SPEC = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str"},
}


def place(module: AnsibleModule, entry: dict[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
    """Create one folder or file; return whether it changed, and the difference.

    Raises OSError if something else has this path.
    """
    path, content = Path(entry["path"]), entry["content"]
    mode = entry["mode"] or ("0755" if content is None else "0644")
    changed, diffs, made = False, [], [path]
    if content is None:
        if not path.is_dir():
            changed = True
            diffs.append(difference(path, "", "(folder)\n"))
            made = [*reversed([folder for folder in path.parents if not folder.exists()]), path]
            if not module.check_mode:
                for folder in made:
                    folder.mkdir()
    else:
        before = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else None
        if before != content:
            changed = True
            diffs.append(difference(path, before, content))
            if not module.check_mode:
                replace(module, path, content.encode("utf-8", "surrogateescape"))
    for each in made:
        attributes = module.load_file_common_arguments({**entry, "mode": mode}, str(each))
        rights: dict[str, Any] = {}
        if module.set_fs_attributes_if_different(attributes, False, rights):
            changed = True
            diffs += [rights] if rights else []
    return changed, diffs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"files": {"type": "list", "elements": "dict", "required": True, "options": SPEC}},
        supports_check_mode=True,
    )
    paths: list[str] = []
    diffs: list[dict[str, str]] = []
    for entry in module.params["files"]:
        try:
            changed, differences = place(module, entry)
        except OSError as error:
            problem = f"{entry['path']} cannot be created: {error}. Move away the file there, then run this again."
            module.fail_json(msg=problem, changed=bool(paths), paths=paths)
        if changed:
            paths.append(entry["path"])
            diffs += differences
    module.exit_json(changed=bool(paths), paths=paths, diff=diffs)


if __name__ == "__main__":
    main()
