# SPDX-License-Identifier: Apache-2.0
"""Write the line for people who watch a job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ....trainyard.job.run.checkpoints import line as checkpoint_line
from ....trainyard.job.run.progress import progress_line
from ....trainyard.job.run.slow_ranks import line as slow_ranks_line
from ....trainyard.job.run.succession import witness_line


def line(cluster: Mapping[str, Any]) -> str:
    """Return the line for people. A monitor of an older version reports less."""

    ranks = cluster["ranks_running"], cluster["world_size"]
    lost_loss, printing = cluster.get("loss_not_a_number"), cluster.get("printing")
    parts = [
        progress_line(
            *ranks, cluster["elapsed_s"], cluster["metrics"], lost_loss, bool(cluster["end"]), cluster.get("left_s")
        ),
        cluster["apart"]["text"] if cluster.get("apart") and not cluster["end"] else "",
        cluster.get("silence"),
        cluster.get("held"),
        "" if cluster["end"] else witness_line(cluster.get("witness_lost")),
        slow_ranks_line(cluster.get("slow_ranks") or ()),
        printing["text"] if printing and not cluster["end"] else "",
        checkpoint_line(cluster["checkpoints"], time.time()) if cluster.get("checkpoints") else "",
    ]
    return "   ".join(filter(None, parts))
