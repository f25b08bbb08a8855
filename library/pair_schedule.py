#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Choose which pairs of nodes are measured in which round."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pair_schedule
short_description: Choose which pairs of nodes are measured in which round
description:
  - Puts all hosts into rounds of disjoint pairs, or takes the rounds that are given, and writes them beside a copy of
    the program that measures them, as the source of a job.
  - Runs on the controller. Whoever calls it removes the folder.
version_added: "0.2.0"
options:
  hosts:
    description: The hosts, in the order of their ranks.
    type: list
    elements: str
    required: true
  rounds:
    description: A number of rounds to begin with, or V(full) for every pair.
    type: str
    default: "2"
  schedule:
    description: Rounds to take as they are, each a list of pairs of hosts.
    type: list
    elements: list
    default: []
  source:
    description: Folder of the program.
    type: path
    required: true
attributes:
  check_mode:
    support: full
    description: The folder is made in both modes, as a plan needs it.
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Choose the pairs
  pair_schedule:
    hosts: [n1, n2, n3, n4]
    source: training/benchmark
  delegate_to: localhost
  register: chosen
"""

RETURN = r"""
rounds:
  description: The rounds, each a list of pairs of hosts; empty for fewer than two hosts.
  returned: success
  type: list
  elements: list
  sample: [[[n1, n2], [n3, n4]], [[n2, n3], [n1, n4]]]
source:
  description: Folder with the program and C(schedule.json); empty without rounds.
  returned: success
  type: str
"""

import json
import shutil
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.verify.pairing import first_rounds, full_rounds

MOST_ROUNDS = 1000


def choose(hosts, rounds, schedule):
    """Return the rounds as lists. Raises ValueError with what is wrong."""
    if not schedule:
        if rounds == "full":
            found = full_rounds(hosts)
        elif rounds.isdecimal() and 1 <= int(rounds) <= MOST_ROUNDS:
            found = first_rounds(hosts, int(rounds))
        else:
            raise ValueError(f"rounds is {rounds!r}, expected a number from 1 to {MOST_ROUNDS}, or full")
        return [[list(pair) for pair in each] for each in found]
    for number, each in enumerate(schedule):
        busy = set()
        for pair in each:
            if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
                raise ValueError(f"round {number} has {pair!r}, expected a pair of two hosts")
            for host in pair:
                if host not in hosts:
                    raise ValueError(f"round {number} has {host}, which is not among the {len(hosts)} hosts")
                if host in busy:
                    raise ValueError(f"round {number} has {host} twice: the pairs of a round run side by side")
            busy.update(pair)
    return schedule


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "rounds": {"type": "str", "default": "2"},
            "schedule": {"type": "list", "elements": "list", "default": []},
            "source": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        rounds = choose(given["hosts"], given["rounds"], given["schedule"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    if not rounds:
        module.exit_json(changed=False, rounds=[], source="")
    folder = Path(tempfile.mkdtemp(prefix="trainyard-pairs-"))
    source = shutil.copytree(given["source"], folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "schedule.json").write_text(json.dumps({"hosts": given["hosts"], "rounds": rounds}) + "\n")
    module.exit_json(changed=True, rounds=rounds, source=str(source))


if __name__ == "__main__":
    main()
