#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin debug_archive."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: debug_archive
short_description: Collect what an issue about a run needs into one archive
description:
  - Packs the record of a job or of a verification, the begin and the end of its logs, versions, and facts and journals
    of its nodes into one file that only its owner can read. Recognized secrets are hidden; its C(README) lists them,
    the files, and the nodes without an answer.
  - At most 24 MiB of text. Nothing is changed on the nodes. A node that does not answer does not fail the task.
  - Fails with the known runs if there is no such run.
options:
  runs_dir: {description: Folder on the controller that holds the folders of all runs., type: path, required: true}
  job_id: {description: The job., type: str, default: ""}
  job_name:
    description: The newest run of this job; without it, O(job_id) and O(verification), the newest job.
    type: str
    default: ""
  verification: {description: "The verification, the name of its folder in O(runs_dir).", type: str, default: ""}
  file: {description: "The file to write, or its folder; by default it is in O(folder).", type: str, default: ""}
  folder: {description: The current folder., type: path, required: true}
  network: {description: "Job network, a CIDR or an interface; empty for the inventory's.", type: str, required: true}
  user: {description: The training user., type: str, required: true}
  root: {description: Folder of the software that the project installs., type: path, required: true}
  venvs: {description: Folder of the environments., type: path, required: true}
  ascend_root: {description: Folder of Ascend's software., type: path, required: true}
  limit_s: {description: Seconds that a node may take for an answer., type: float, default: 120}
attributes:
  check_mode:
    support: full
    description: It reads the same, and writes no file.
seealso:
  - module: verify_facts
"""

EXAMPLES = r"""
- name: Collect what an issue needs
  debug_archive:
    runs_dir: runs
    job_id: digits-20261120-101500-3f9c
    folder: /tmp
    network: ""
    user: train
    root: /opt/trainyard
    venvs: /opt/trainyard/venvs
    ascend_root: /usr/local/Ascend
"""

RETURN = r"""
path:
  description: The archive.
  returned: success
  type: str
files:
  description: Names of the files in it.
  returned: success
  type: list
  elements: str
silent:
  description: The nodes that gave no facts.
  returned: success
  type: list
  elements: str
hidden:
  description: How many values C((hidden)) replaces.
  returned: success
  type: int
"""
