# SPDX-License-Identifier: Apache-2.0
"""Find the plan of a job in its folder on this node, also where an older version wrote it.

Each rank starts through this module: importing typing or pathlib would double its time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]

NAME = "node_plan.json"
# Its name until November 2026.
_OLD_NAME = "job.json"


def path(job_dir: AnyPath) -> str:
    """Return the path of the node's plan, which may not exist."""
    found, old = (os.path.join(job_dir, name) for name in (NAME, _OLD_NAME))
    return old if os.path.lexists(old) and not os.path.lexists(found) else found
