#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module rank_table: write, merge, repair, check or remove the rank table of an Ascend cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rank_table
short_description: Write, merge, repair, check or remove the rank table of an Ascend cluster
description:
  - Writes the JSON file with HCCL's servers, NPUs and ranks, from a list of servers or from tables of single
    servers. Servers are in the dictionary order of server_id, which is the order of ranks that MindSpore requires.
  - Checks such a file by the rules in C(docs/rank-table.md), and returns all problems at once.
  - Never writes a table that HCCL's parser rejects. A table that it accepts, but that is probably wrong, is a warning.
options:
  path:
    description: >-
      The table's file, which ends in C(.json). In an existing folder (O(state=present)) the file gets its conventional
      name, such as C(hccl_8p_01234567_10.0.0.1.json) or C(hccl_2s_16p.json).
    type: path
    required: true
  state:
    description: >-
      V(present) writes the table of O(servers) or O(merge), or repairs the file (O(repair)). V(validated) reads it.
      V(absent) removes it.
    type: str
    choices: [present, validated, absent]
    default: present
  chip:
    description: The NPUs of all servers. Required with O(servers); otherwise it adds the checks of this chip.
    type: str
    choices: ["910", 910b, a3]
  version:
    description: The table's version. V(auto) is 1.2 for a3 and 1.0 for the others. Only with O(servers).
    type: str
    choices: [auto, "1.0", "1.2"]
    default: auto
  servers:
    description: The servers, in any order.
    type: list
    elements: dict
    suboptions:
      server_id:
        description: Address or name, at most 64 characters.
        type: str
        required: true
      host_ip:
        description: Address of the server, written in version 1.2 only.
        type: str
        default: ""
      super_pod_id:
        description: Its super pod, written in version 1.2 only.
        type: str
        default: "0"
      devices:
        description: Its NPUs in the order of their ranks.
        type: list
        elements: dict
        required: true
        suboptions:
          device_id:
            description: Physical id.
            type: int
            required: true
          device_ip:
            description: Its address on the NPUs' network. Optional on a single server or in one super pod.
            type: str
            default: ""
          super_device_id:
            description: Its id in the super pod, for version 1.2.
            type: str
            default: ""
  merge:
    description: Tables on this host to merge, each of other servers. Ranks are numbered anew.
    type: list
    elements: path
  repair:
    description: >-
      Repair what has only one meaning in the tables of O(merge), or in O(path): numbers instead of strings, order and
      gaps of ranks, a missing server_count, a status other than C(completed). No other program may write the file.
    type: bool
    default: false
  strict:
    description: With O(state=validated), fail when HCCL's parser would reject the table.
    type: bool
    default: false
  overwrite:
    description: With O(state=present), replace a file that differs; V(false) fails and leaves it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
extends_documentation_fragment: [ansible.builtin.files]
"""

EXAMPLES = r"""
- name: Write the table of a server with two NPUs
  rank_table:
    path: /var/lib/trainyard/hccl_1s_2p.json
    chip: 910b
    servers:
      - server_id: 10.0.0.1
        devices:
          - {device_id: 0, device_ip: 192.1.0.6}
          - {device_id: 1, device_ip: 192.2.0.6}
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
valid:
  description: Whether HCCL's parser accepts the table, maybe with warnings.
  returned: when O(state=present) or O(state=validated)
  type: bool
problems:
  description: >-
    All problems with C(rule), C(level) (C(error) where HCCL's parser rejects the table, else C(warning)), C(where)
    (server, device and rank), C(found), C(expected) and C(action).
  returned: when O(state=present) or O(state=validated)
  type: list
  elements: dict
repaired:
  description: The problems that O(repair) has repaired.
  returned: when O(state=present)
  type: list
  elements: dict
sha256:
  description: Digest of the file.
  returned: when O(state=present) or O(state=validated)
  type: str
"""

import hashlib
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.ascend.rank_table import (
    CHIPS,
    VERSIONS,
    file_name,
    file_text,
    path_problems,
    validate,
)
from ansible.module_utils.trainyard.ascend.rank_table_sources import from_files, from_servers, parse, records
from ansible.module_utils.trainyard.base.findings import Finding, Warned, failure, faults, render
from ansible.module_utils.trainyard.software.file_differences import taken
from ansible.module_utils.trainyard_node.machine.owned_file import difference, remove, write


def read(module: AnsibleModule, path: Path) -> bytes:
    """Return a file's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}. Expected a rank table."
        missing = isinstance(error, FileNotFoundError)
        module.fail_json(msg=f"no {path}. Expected a rank table to read." if missing else problem)
        raise


def reject(module: AnsibleModule, headline: str, problems: list[Finding], **more: Any) -> None:
    """Fail with all problems, each once with all its places."""
    headline = headline.replace("{", "{{").replace("}", "}}") + ": {count} {findings}."
    module.fail_json(**failure(problems, headline), valid=False, problems=records(problems), **more)


def warn(module: AnsibleModule, path: Path, problems: list[Finding]) -> None:
    """Warn of problems that HCCL accepts."""
    warned = [each for each in problems if isinstance(each, Warned)]
    if warned and not faults(problems):
        module.warn(render(warned, f"{path}: HCCL takes it, but".replace("{", "{{").replace("}", "}}")))


def requested(module: AnsibleModule, path: Path) -> tuple[Any, list[Finding], list[Finding]]:
    """Return the table to write, its problems, and the problems that were repaired."""
    params = module.params
    chip = params["chip"] or ""
    if params["servers"] is not None:
        return (*from_servers(params["servers"], chip, params["version"]), [])
    merging = params["merge"] is not None
    paths = [Path(each) for each in params["merge"]] if merging else [path]
    files = [(str(each), read(module, each)) for each in paths]
    return from_files(files, chip, merging=merging, repairing=params["repair"])


def present(module: AnsibleModule, path: Path) -> None:
    """Write the table when it is not there, or repair it."""
    table, problems, repaired = requested(module, path)
    if path.is_dir():
        path /= file_name(table)
    problems += path_problems(str(path))
    if faults(problems):
        reject(module, f"{path} was not written", problems, path=str(path), repaired=records(repaired))
    warn(module, path, problems)
    before = path.read_bytes() if path.exists() else None
    # A file without problems stays as it is, whatever its indentation.
    in_place = module.params["servers"] is None and module.params["merge"] is None
    after = before if before is not None and in_place and not repaired else file_text(table).encode()
    if before not in (None, after) and not module.params["overwrite"]:
        reject(module, f"{path} was not written", [taken(str(path), "rank table")], path=str(path))
    module.exit_json(
        changed=write(module, path, before, after),
        path=str(path),
        valid=True,
        problems=records(problems),
        repaired=records(repaired),
        sha256=hashlib.sha256(after).hexdigest(),
        diff=difference(path, before, after),
    )


def main() -> None:
    """Run the module."""
    device = {
        "device_id": {"type": "int", "required": True},
        "device_ip": {"type": "str", "default": ""},
        "super_device_id": {"type": "str", "default": ""},
    }
    server = {
        "server_id": {"type": "str", "required": True},
        "host_ip": {"type": "str", "default": ""},
        "super_pod_id": {"type": "str", "default": "0"},
        "devices": {"type": "list", "elements": "dict", "required": True, "options": device},
    }
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "validated", "absent"], "default": "present"},
            "chip": {"type": "str", "choices": list(CHIPS)},
            "version": {"type": "str", "choices": ["auto", *VERSIONS], "default": "auto"},
            "servers": {"type": "list", "elements": "dict", "options": server},
            "merge": {"type": "list", "elements": "path"},
            "repair": {"type": "bool", "default": False},
            "strict": {"type": "bool", "default": False},
            "overwrite": {"type": "bool", "default": True},
        },
        mutually_exclusive=[("servers", "merge")],
        required_by={"servers": ("chip",)},
        add_file_common_args=True,
        supports_check_mode=True,
    )
    path, state = Path(module.params["path"]), module.params["state"]
    if state == "present":
        if module.params["servers"] is None and module.params["merge"] is None and not module.params["repair"]:
            module.fail_json(msg=f"nothing to write to {path}. Expected servers, merge or repair with state: present.")
        present(module, path)
    if path.is_dir():
        module.fail_json(msg=f"{path} is a folder. Expected a file with state: {state}.")
    if state == "absent":
        before = read(module, path) if path.exists() else None
        module.exit_json(changed=remove(module, path), path=str(path), diff=difference(path, before, b""))
    content = read(module, path)
    table, problems = parse(content)
    problems += path_problems(str(path))
    if not any(problem.check == "json" for problem in problems):
        problems += validate(table, module.params["chip"] or "")
    result = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest()}
    if faults(problems) and module.params["strict"]:
        reject(module, f"{path} is no table that HCCL would take", problems, **result)
    warn(module, path, problems)
    module.exit_json(changed=False, valid=not faults(problems), problems=records(problems), **result)


if __name__ == "__main__":
    main()
