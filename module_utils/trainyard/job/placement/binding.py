# SPDX-License-Identifier: Apache-2.0
"""Which cores the ranks of a node run on: those of the NUMA domain of their device (job_binding).

Memory follows, as the kernel gives a process memory of the domain that it runs in. Each rank applies it itself
(trainyard_node/job/run/ranks/execute.py), so that all launchers do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# Launchers under which each rank begins with our runtime, and knows its LOCAL_RANK.
LAUNCHERS = ("direct", "torchrun", "mpirun", "rank_table")
# The cores of each rank of a node, by LOCAL_RANK, separated by semicolons.
VARIABLE = "TRAINYARD_RANK_CPUS"


def applies(setting: str, launcher: str, in_image: bool) -> bool:
    """Return whether a job binds ranks; not in images, whose program may start processes elsewhere (Docker)."""
    return setting == "auto" and not in_image and launcher in LAUNCHERS


def cores(domains: Sequence[Mapping[str, Any]], devices: Sequence[int], rank_count: int) -> str:
    """Return the value of VARIABLE for ranks with one device each, "" where no rank is bound.

    `domains` is the fact `numa`. Nothing is bound where a domain has more ranks than another: they would share its
    cores while others lie idle.
    """
    home = {index: str(domain["cpus"]) for domain in domains for index in domain["devices"]}
    if len(domains) < 2 or rank_count != len(devices) or not set(devices) <= set(home):
        return ""
    ranks = Counter(home[index] for index in devices)
    even = len(ranks) == len(domains) and len(set(ranks.values())) == 1
    return ";".join(home[index] for index in devices) if even else ""
