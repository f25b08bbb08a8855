# SPDX-License-Identifier: Apache-2.0
"""Find the plan of a job in its folder on this node.

Each rank starts through this module: importing typing or pathlib would double its time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]


def path(job_dir: AnyPath) -> str:
    """Return the path of the node's plan, which may not exist."""
    return os.path.join(job_dir, "node_plan.json")
