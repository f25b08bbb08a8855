# SPDX-License-Identifier: Apache-2.0
"""The hosts that a scheduler has allocated to a job, as the program sees them that the scheduler starts on each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# One name with ranges: n[001-003,7]-[a,b]; and the commas between names.
_GROUP = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")
# Upper bound for the hosts of an allocation.
MAX_HOSTS = 100_000


class Allocation(NamedTuple):
    """`hosts` in the scheduler's order, of which this one has the place `place`.

    `run` counts from 0 how often the scheduler has started the job.
    """

    hosts: tuple[str, ...]
    place: int
    run: int = 0

    @property
    def host(self) -> str:
        """Return this host."""
        return self.hosts[self.place]


def of_slurm(environment: Mapping[str, str]) -> Allocation:
    """Return the allocation of a step of Slurm from its variables (srun(1)). Raises ValueError where they are none.

    SLURM_NODEID counts in the list of the step.
    """
    try:
        hosts = tuple(expand(environment["SLURM_STEP_NODELIST"]))
        found = Allocation(hosts, int(environment["SLURM_NODEID"]), int(environment.get("SLURM_RESTART_COUNT") or 0))
        # It must be one of them.
        _ = found.host
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"no step of Slurm ({error}): expected a program that srun starts") from None
    return found


# The variable with the number of a Job's pods, the name of its headless Service, by which their names end, how many of
# them it needs, and how long they may take to come, in seconds.
PODS = "TRAINYARD_PODS"
# The file with the token by which they meet.
TOKEN_FILE = "/trainyard/secrets/token"  # noqa: S105 (a path)
# The port of the first pod at which they meet; and the exit status of a program that finds that its job cannot run here
# (EX_CONFIG), which no restart mends.
POD_PORT, UNFIT = 29400, 78


def of_kubernetes(environment: Mapping[str, str]) -> Allocation:
    """Return the pods of an indexed Job from the variables of one. Raises ValueError where they are none.

    A pod that is lost is not replaced, so each runs once.
    """
    try:
        count, name, *_ = environment[PODS].split()
        hosts = tuple(f"{name}-{place}" for place in range(int(count)))
        found = Allocation(hosts, int(environment["JOB_COMPLETION_INDEX"]))
        # It must be one of them.
        _ = found.host
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"no pod of a job ({error}): expected the variables of its manifest") from None
    return found


def expand(names: str) -> list[str]:
    """Return the names of Slurm's list of hosts, such as `n[001-003,7],gpu1` (slurm.conf(5))."""
    found = [name for group in _GROUP.findall(names) for name in _names(group)]
    if len(found) > MAX_HOSTS:
        raise ValueError(f"more than {MAX_HOSTS} hosts")
    return found


def _names(group: str) -> Iterator[str]:
    parts = [_numbers(inside) if inside else [text] for inside, text in _PART.findall(group)]
    return map("".join, itertools.product(*parts))


def _numbers(ranges: str) -> list[str]:
    """Return the numbers of `001-003,7`, as wide as the first of their range."""
    found: list[str] = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        if not last:
            found.append(first)
        elif int(last) - int(first) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS} hosts")
        else:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def only_allocated(facts: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of a node with those of its GPUs alone that CUDA_VISIBLE_DEVICES of the step names.

    A scheduler that confines jobs hides the others anyway, and counts from 0.
    """
    words, accelerators = environment.get("CUDA_VISIBLE_DEVICES", "").split(","), facts["accelerators"]
    chosen = {int(word) for word in words if word.isdecimal()}
    devices = accelerators.get("devices") or ()
    if len(chosen) != len(words) or not chosen <= {device["index"] for device in devices}:
        return dict(facts)
    allocated = [device for device in devices if device["index"] in chosen]
    return {**facts, "accelerators": {**accelerators, "devices": allocated}}
