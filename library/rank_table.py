#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module rank_table: write, merge, repair, judge or remove the rank table of an Ascend cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rank_table
short_description: Write, merge, repair, judge or remove the rank table of an Ascend cluster
description:
  - Writes the JSON file from which HCCL learns servers, NPUs and ranks, from a list of servers or from tables of single
    servers. Servers stand in the dictionary order of server_id, which is the order of ranks that MindSpore demands.
  - Judges such a file, whoever wrote it, rule by rule, and names all faults at once. C(docs/rank-table.md) lists them.
  - A table that HCCL's parser refuses is never written. What it takes and is hardly meant is a warning.
options:
  path:
    description:
      - The table's file; its name ends in C(.json). In a folder that is there (O(state=present)) the file gets its
        conventional name, such as C(hccl_8p_01234567_10.0.0.1.json) or C(hccl_2s_16p.json).
    type: path
    required: true
  state:
    description:
      - V(present) writes the table of O(servers) or of O(merge), or repairs the file in its place (O(repair)).
      - V(validated) reads the file and changes nothing.
      - V(absent) removes the file.
    type: str
    choices: [present, validated, absent]
    default: present
  chip:
    description:
      - The NPUs, of which all servers have the same. Needed with O(servers). Otherwise, what only this chip demands is
        checked when it is given.
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
            description: Its address on the NPUs' own network. May be left out on a single server or in one super pod.
            type: str
            default: ""
          super_device_id:
            description: Its id in the super pod, for version 1.2.
            type: str
            default: ""
  merge:
    description: Tables on this host to join into one, each of other servers. Ranks are numbered anew.
    type: list
    elements: path
  repair:
    description:
      - Set right what can only mean one thing in the tables of O(merge), or in O(path) if neither O(servers) nor
        O(merge) is given. That is numbers that should be strings, the order and gaps of ranks, a missing server_count,
        and a status that is not C(completed) in a table that has no other fault.
      - Make sure that nothing writes the table any more.
    type: bool
    default: false
  strict:
    description: With O(state=validated), fail when HCCL's parser would refuse the table.
    type: bool
    default: false
  overwrite:
    description: With O(state=present), write over a file that is there and differs; V(false) fails and leaves it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Returns the change and makes none.
  diff_mode:
    support: full
    description: Shows the file before and after.
extends_documentation_fragment:
  - ansible.builtin.files
"""

EXAMPLES = r"""
- name: Write the table of two servers with two NPUs each
  rank_table:
    path: /var/lib/trainyard/hccl_2s_4p.json
    chip: 910b
    servers:
      - server_id: 10.0.0.1
        devices:
          - {device_id: 0, device_ip: 192.1.0.6}
          - {device_id: 1, device_ip: 192.2.0.6}
      - server_id: 10.0.0.2
        devices:
          - {device_id: 0, device_ip: 192.1.0.8}
          - {device_id: 1, device_ip: 192.2.0.8}

- name: Join the tables that each server has made
  rank_table:
    path: /var/lib/trainyard/
    merge:
      - /home/user/hccl_8p_01234567_10.0.0.1.json
      - /home/user/hccl_8p_01234567_10.0.0.2.json
    repair: true

- name: Judge the table that the site has
  rank_table:
    path: /home/user/hccl.json
    chip: 910b
    state: validated
  register: table

- name: Show what is wrong with it
  ansible.builtin.debug:
    var: table.problems
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
  sample: /var/lib/trainyard/hccl_2s_16p.json
valid:
  description: Whether HCCL's parser takes the table. There may be warnings.
  returned: when O(state=present) or O(state=validated)
  type: bool
problems:
  description:
    - Everything wrong, with C(rule), C(where) (server, device and rank), C(found), C(expected), C(action), what to do,
      and C(level). That is C(error) where HCCL's own parser refuses the table, else C(warning).
  returned: when O(state=present) or O(state=validated)
  type: list
  elements: dict
  sample:
    - rule: string
      level: error
      where: server 10.0.0.1, device 0, rank 0
      found: rank_id is 0, a number
      expected: a string in quotes
      action: "write it in quotes: HCCL's parser takes strings only"
repaired:
  description: The faults that O(repair) has set right.
  returned: when O(state=present)
  type: list
  elements: dict
sha256:
  description: Digest of the file, which is the same wherever the table is.
  returned: when O(state=present) or O(state=validated)
  type: str
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.ascend.rank_table import (
    CHIPS,
    VERSIONS,
    Device,
    Server,
    build,
    file_name,
    file_text,
    loads,
    merge,
    path_problems,
    repair,
    validate,
)
from ansible.module_utils.trainyard.findings.findings import Finding, Warned, failure, faults, render
from ansible.module_utils.trainyard.software.files import taken
from ansible.module_utils.trainyard_node.machine.owned_file import difference, remove, write


def read(module: AnsibleModule, path: Path) -> bytes:
    """Return a file's bytes."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        module.fail_json(msg=f"no {path}. Expected a rank table to read.")
        raise
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be read: {error.strerror}. Expected a rank table.")
        raise


def parsed(content: bytes) -> tuple[object, list[Finding]]:
    """Return what a file says, or why it says nothing."""
    # As HCCL does, which takes a byte order mark, too.
    return loads(content.decode("utf-8-sig", errors="replace"))


def refuse(module: AnsibleModule, headline: str, problems: list[Finding], **more: Any) -> None:
    """Fail with all faults, each once with all the places that have it."""
    headline = headline.replace("{", "{{").replace("}", "}}") + ": {count} {findings}."
    module.fail_json(**failure(problems, headline), valid=False, problems=dicts(problems), **more)


def dicts(problems: list[Finding]) -> list[dict[str, str]]:
    """Return problems as the result shows them."""
    return [
        {
            "rule": each.check,
            "level": "warning" if isinstance(each, Warned) else "error",
            "where": each.host,
            "found": each.found,
            "expected": each.expected,
            "action": each.action,
        }
        for each in problems
    ]


def warn(module: AnsibleModule, path: Path, problems: list[Finding]) -> None:
    """Warn of what HCCL takes."""
    warned = [each for each in problems if isinstance(each, Warned)]
    if warned:
        module.warn(render(warned, f"{path}: HCCL takes it, but".replace("{", "{{").replace("}", "}}")))


def in_file(problem: Finding, files: list[Path]) -> Finding:
    """Name the file that merge() numbers."""
    if not problem.host.startswith("tables["):
        return problem
    index, _, place = problem.host.removeprefix("tables[").partition("], ")
    return replace(problem, host=f"{files[int(index)]}, {place}")


def wanted(module: AnsibleModule, path: Path) -> tuple[dict[str, Any], list[Finding], list[Finding]]:
    """Return the table to be written, what is wrong with it, and what was repaired."""
    params = module.params
    chip = params["chip"] or ""
    if params["servers"] is not None:
        servers = [
            Server(each["server_id"], tuple(Device(**device) for device in each["devices"]), each["host_ip"],
                   each["super_pod_id"])
            for each in params["servers"]
        ]  # fmt: skip
        table = build(servers, chip, params["version"])
        return table, validate(table, chip), []
    files = [path] if params["merge"] is None else [Path(each) for each in params["merge"]]
    tables, problems, repaired = [], [], []
    for each in files:
        table, faults = parsed(read(module, each))
        if params["repair"] and isinstance(table, dict):
            table, cured = repair(table)
            repaired += [replace(problem, host=f"{each}, {problem.host}") for problem in cured]
        problems += [replace(problem, host=f"{each}, {problem.host}") for problem in faults]
        tables.append(table)
    if problems:
        return {}, problems, repaired
    if params["merge"] is None:
        return tables[0], validate(tables[0], chip), repaired
    merged, problems = merge(tables, chip)
    return merged, [in_file(problem, files) for problem in problems], repaired


def present(module: AnsibleModule, path: Path) -> None:
    """Write the table when it is not there, or repair it."""
    table, problems, repaired = wanted(module, path)
    if path.is_dir():
        path /= file_name(table)
    problems += path_problems(str(path))
    if faults(problems):
        refuse(module, f"{path} was not written", problems, path=str(path), repaired=dicts(repaired))
    warn(module, path, problems)
    before = path.read_bytes() if path.exists() else None
    # A file without faults stays as it is, however it is indented.
    in_place = module.params["servers"] is None and module.params["merge"] is None
    after = before if before is not None and in_place and not repaired else file_text(table).encode()
    if before not in (None, after) and not module.params["overwrite"]:
        refuse(module, f"{path} was not written", [taken(str(path), "rank table")], path=str(path))
    module.exit_json(
        changed=write(module, path, before, after),
        path=str(path),
        valid=True,
        problems=dicts(problems),
        repaired=dicts(repaired),
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
    table, problems = parsed(content)
    problems += path_problems(str(path))
    if not any(problem.check == "json" for problem in problems):
        problems += validate(table, module.params["chip"] or "")
    result = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest()}
    if faults(problems) and module.params["strict"]:
        refuse(module, f"{path} is no table that HCCL would take", problems, **result)
    warn(module, path, problems)
    module.exit_json(changed=False, valid=not faults(problems), problems=dicts(problems), **result)


if __name__ == "__main__":
    main()
