# SPDX-License-Identifier: Apache-2.0
"""Write the line for people who watch a job, and name its parts that last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .....trainyard.job.run.lead.succession import witness_line
from .....trainyard.job.run.logs.progress import progress_line
from .....trainyard.job.run.measure.checkpoints import checkpoint_line
from .....trainyard.job.run.measure.slow_ranks import slow_ranks_line


def lasting(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of the line that stay the same for long, by name (live_lines.py)."""
    apart = cluster["apart"]["text"] if cluster.get("apart") else ""
    slow = slow_ranks_line(cluster.get("slow_ranks") or ())
    found = {"apart": apart, "held": cluster.get("held") or "", "slow": slow}
    return {name: text for name, text in found.items() if text}


def line(cluster: Mapping[str, Any]) -> str:
    """Return the line for people."""
    ranks = cluster["ranks_running"], cluster["world_size"]
    lost_loss, printing = cluster.get("loss_not_a_number"), cluster.get("printing")
    stays = lasting(cluster)
    parts = [
        progress_line(
            *ranks, cluster["elapsed_s"], cluster["metrics"], lost_loss, bool(cluster["end"]), cluster.get("left_s")
        ),
        stays.get("apart"),
        cluster.get("silence"),
        stays.get("held"),
        "" if cluster["end"] else witness_line(cluster.get("witness_lost")),
        stays.get("slow"),
        printing["text"] if printing and not cluster["end"] else "",
        checkpoint_line(cluster["checkpoints"], time.time()) if cluster.get("checkpoints") else "",
    ]
    return "   ".join(filter(None, parts))
