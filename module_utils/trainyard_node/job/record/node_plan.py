# SPDX-License-Identifier: Apache-2.0
"""Name what the folder of a job on this node has, and find its plan.

Each rank starts through this module: importing typing or pathlib would double its time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]

# Folders of each job, created first.
FOLDERS = ("source", "logs", "exits")


def path(job_dir: AnyPath) -> str:
    """Return the path of the node's plan, which may not exist."""
    return os.path.join(job_dir, "node_plan.json")
