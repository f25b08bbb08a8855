#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_clean."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_clean
short_description: Remove what ended jobs have left, and note it on the controller
description:
  - Removes folders of jobs from their nodes and their objects from Kubernetes, and says what went.
  - Writes C(removed.json) into the folder of each run of which something was removed, where there is one.
  - Removes the folders in O(runs_dir) that were chosen, but for those of jobs that a node could not remove.
  - Fails with what could not be removed from a node. What has been removed is noted before.
options:
  runs_dir:
    description: Folder of the runs on the controller.
    type: path
    required: true
  chosen:
    description:
      - What M(job_clean_plan) returned.
    type: dict
    required: true
attributes:
  check_mode:
    description: Can run in check mode; it says what would go then.
    support: full
seealso:
  - module: job_clean_plan
"""

EXAMPLES = r"""
- name: Remove what was chosen
  job_clean:
    runs_dir: runs
    chosen: "{{ chosen }}"
"""

RETURN = r""" # """
