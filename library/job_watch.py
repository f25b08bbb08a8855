#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_watch."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_watch
short_description: Watch a job until it ends
description:
  - Prints progress from the head node or the job's scheduler, and from another node after it has taken over as head.
    Without answers it asks as long as the job's monitors may live (60 seconds for a scheduler), and then fails with the
    commands for a job that goes on. It ends nothing, and interrupting the command does not affect the job.
options:
  follow:
    description: >-
      Ranks whose lines are printed, V(all) or a text such as V(0,4-7), of at most 64 nodes. Not for jobs of Slurm or
      Kubernetes.
    type: raw
    default: ""
  live:
    description: >-
      Write C(report.html) anew every 10 seconds, as a page that reloads itself; of at most 64 nodes. Not for jobs of
      Slurm or Kubernetes.
    type: bool
    default: false
  record:
    description: Return RV(lost) where nobody answers, and do not fail.
    type: bool
    default: false
extends_documentation_fragment: [job.run_dir, read_only]
"""

EXAMPLES = r"""
- name: Watch the job
  job_watch:
    run_dir: runs/digits-20261120-101500-3f9c
"""

RETURN = r"""
goes_on:
  description: Whether the job still ran when the command was interrupted.
  returned: always
  type: bool
lost:
  description: >-
    Why it is not known whether the job has ended, as the nodes or the scheduler gave no more answers; or an empty
    string.
  returned: always
  type: str
"""
