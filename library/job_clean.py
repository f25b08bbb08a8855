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
  - Of a job that ended unwatched, first brings its logs and writes its record, as C(status.yml) does; where that is not
    possible, nothing is removed.
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
  log_limit:
    description: Bytes that are brought of each log at most.
    type: int
    required: true
  excluded_file:
    description: File on the controller that keeps which hosts jobs have excluded.
    type: path
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
    log_limit: 16777216
    excluded_file: runs/.excluded-lab.json
"""

RETURN = r""" # """
