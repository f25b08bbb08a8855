#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin nvidia_upgrade_table."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_upgrade_table
short_description: Read or write how the nodes of a driver upgrade stand
description:
  - Keeps one table for each cluster in C(runs/nvidia-upgrade-CLUSTER), as C(table.json) and, for people, C(table.txt).
    The next run of C(playbooks/nvidia_upgrade.yml) goes on from there.
  - Nothing is written in check mode. No machine is touched.
options:
  runs:
    description: Folder of the runs.
    type: path
    required: true
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  entries:
    description:
      - Entries of the table by host, C(state), C(why), C(target) and C(before). Other entries stay.
      - Without entries the table is read.
    type: dict
    default: {}
  batches:
    description: Batches of hosts, by which the text is ordered.
    type: list
    elements: list
    default: []
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Note that the nodes are at work
  nvidia_upgrade_table:
    runs: runs
    cluster: trainyard
    entries:
      n1: {state: installing, why: ""}
"""

RETURN = r"""
table:
  description: By host its entry.
  returned: success
  type: dict
text:
  description: The same for people; with O(entries) only these nodes have a line.
  returned: success
  type: str
folder:
  description: Folder of the table.
  returned: success
  type: str
"""
