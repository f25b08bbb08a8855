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
    20 seconds beyond those that a lost node may take to come back.
  - Where somebody interrupts the command, it asks once more whether the job still runs, and returns.
  - Asks the head node alone, or the job's scheduler, which is given up after 60 seconds. To interrupt it changes
    nothing for the job.
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  follow:
    description: >-
      Ranks whose lines are shown as they come, V(all) or a text such as V(0,4-7), of at most 64 nodes; equal lines of
      several ranks are shown once. Not with another scheduler.
    type: raw
    default: ""
  live:
    description: >-
      Write C(report.html) in the run's folder anew every 10 seconds, as a page that reloads itself; of at most 64
      nodes. Not with another scheduler.
    type: bool
    default: false
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Watch the job
  job_watch:
    run_dir: runs/digits-20261120-101500-3f9c
"""

RETURN = r"""
goes_on:
  description: Whether the job still ran when somebody interrupted the command.
  returned: always
  type: bool
lost:
  description: Why the head node or the scheduler could not be asked any more, or an empty string.
  returned: always
  type: str
"""
