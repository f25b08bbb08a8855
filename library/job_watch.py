#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_watch."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_watch
short_description: Watch a job until it is over
description:
  - Prints a line of progress each round and returns when the job is over, or when its head node has not answered for
    20 seconds and O(rejoin_s).
  - Runs on the head node of the job; an action plugin. To interrupt it changes nothing for the job.
version_added: "0.1.0"
options:
  job_id:
    description: The job.
    type: str
    required: true
  job_dir:
    description: The job's folder on the node.
    type: path
    required: true
  rejoin_s:
    description: Seconds that the head node has to come back after it was lost, beyond those in which its nodes notice.
    type: int
    default: 0
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Watch the job
  job_watch:
    job_id: digits-20261120-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500
"""

RETURN = r"""
status:
  description: What M(job_process_info) returned last.
  returned: always
  type: dict
lost:
  description: Why the head node could not be asked any more, or an empty string.
  returned: always
  type: str
"""
