# SPDX-License-Identifier: Apache-2.0
"""Name what the part of a job's folder has that this node writes, and find its plan and the ranks' working folder.

Each rank starts through this module: importing typing or pathlib would double its time.
"""

from __future__ import annotations

import os

from ....trainyard.job.record.folder_layout import SOURCE, common_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]

# Folders of a job on each node, created first.
FOLDERS = ("logs", "exits")
# The file with the name of the machine whose part of a job's folder it is.
MACHINE = "machine"


def plan_path(job_dir: AnyPath) -> str:
    """Return the path of the node's plan, which may not exist."""
    return os.path.join(job_dir, "node_plan.json")


def source_of(job_dir: AnyPath) -> str:
    """Return the working folder of the ranks, which nodes may share."""
    return os.path.join(common_dir(str(job_dir)), SOURCE)
