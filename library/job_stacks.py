#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_stacks."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_stacks
short_description: Tell where the ranks of a job are
description:
  - Takes the stacks of all ranks of a job that runs, three times within seconds, groups ranks by equal stacks, and
    names those that are not where the others are. The job goes on; no rank is stopped or signalled.
  - Python stacks need py-spy beside the job's Python; without it, and where the kernel forbids it, the state and the
    wait channel of each rank are told, and why there is no more.
  - Fails where no rank runs, and for a job that a scheduler was handed.
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  seconds:
    description:
      - Look once a second for so long, to tell also which rank the others wait for. At least 20 seconds tell.
    type: int
    default: 0
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Tell where the ranks are
  job_stacks:
    run_dir: runs/digits-20261120-101500-3f9c
"""

RETURN = r"""
groups:
  description: Where the ranks are, a line for each group of equal stacks, and what is not known.
  returned: success
  type: list
  elements: str
file:
  description: File in the folder of the run with all that was seen, or an empty string with --check.
  returned: success
  type: str
"""
