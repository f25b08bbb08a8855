"""What readers of an advice do: to the job file, to the inventory and to the nodes of a launch."""

from __future__ import annotations

import re

import yaml
from launch_world import on

# The part of an advice has the variables and values itself.
AS_WRITTEN = object()
USE_DIRECT = {"use job_launcher: direct": AS_WRITTEN}


def written(part):
    """Return what a part of an advice has its reader write into the job file; None for what is left out."""
    values = re.findall(r"\b(job_\w+): (\[[^\]]*\]|[\w./-]+)", part)
    new = {name: yaml.safe_load(text) for name, text in values}
    return {**new, **dict.fromkeys(re.findall(r"\bleave (job_\w+) out", part))}


def follow(world, part, change):
    if callable(change):
        change(world)
    else:
        new = written(part) if change is AS_WRITTEN else {f"job_{name}": value for name, value in change.items()}
        assert new, f"{part!r} names no variable"
        world.job |= new


def leave_out(*hosts):
    def change(world):
        world.groups["compute"] = [name for name in world.groups["compute"] if name not in hosts]

    return change


def have(**facts_of):
    def change(world):
        for name, facts in facts_of.items():
            world.facts[name] |= facts

    return change


def on_both(*kinds):
    return have(**{f"n{number}": on(*(kind(number) for kind in kinds)) for number in (1, 2)})


def of_world(**changes):
    return lambda world: world.having(**changes)


def together(*changes):
    def change(world):
        for each in changes:
            follow(world, "", each)

    return change


def of_job(world, **changes):
    follow(world, "", changes)
    return world
