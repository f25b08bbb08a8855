#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_stacks."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_stacks
short_description: Print the stacks of a job's ranks
description:
  - Takes the stacks of all ranks three times within seconds, groups ranks by equal stacks, and names the ranks that
    are elsewhere. The job continues; no rank is stopped or signalled. Without py-spy, only the state and the wait
    channel of each rank are known.
  - Fails if no rank runs, and for jobs of Slurm or Kubernetes.
options:
  seconds:
    description: Sample once a second for this long, to find the rank for which others wait; at least 20 are needed.
    type: int
    default: 0
extends_documentation_fragment: [job.run_dir, read_only]
"""

EXAMPLES = r"""
- name: Print the stacks
  job_stacks:
    run_dir: runs/digits-20261120-101500-3f9c
"""

RETURN = r"""
groups:
  description: A line for each group of equal stacks, and for nodes without an answer.
  returned: success
  type: list
  elements: str
file:
  description: File in the run's folder with all stacks; empty in check mode.
  returned: success
  type: str
"""
