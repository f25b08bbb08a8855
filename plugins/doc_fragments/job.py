# SPDX-License-Identifier: Apache-2.0
"""Options that several modules for jobs have."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of one option each, as `job.run_dir`."""

    RUN_DIR = r"""
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
"""
    RUNS_DIR = r"""
options:
  runs_dir:
    description: Folder on the controller that holds the folders of all runs.
    type: path
    required: true
"""
    EXCLUDED_FILE = r"""
options:
  excluded_file:
    description: File on the controller that records the hosts that jobs excluded.
    type: path
    required: true
"""
