# SPDX-License-Identifier: Apache-2.0
"""One call of ansible-playbook: the hosts, tags and options of which it consists, out of Ansible's own objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible import context

from ..trainyard.findings.findings import Finding
from ..trainyard.inputs import nothing_to_do
from ..trainyard.inputs.variables import is_template

META = ("meta", "ansible.builtin.meta")


def findings(playbook: Any, plays: list[Any], project: Path) -> list[Finding]:
    """Return why a playbook of the project would do nothing, or less than was meant."""
    folders = (project, project / "playbooks")
    path = Path(playbook._file_name).resolve()
    ours = [play for play in plays if Path(str(play.get_path()).rpartition(":")[0]).resolve().parent in folders]
    if not ours:
        return []
    inventory = plays[0].get_variable_manager()._inventory
    options = {name: context.CLIARGS.get(name) for name in ("tags", "skip_tags", "subset", "check")}
    wanted = [tag for each in options["tags"] or () for tag in each.split(",")]
    unwanted = [tag for each in options["skip_tags"] or () for tag in each.split(",")]
    known: set[str] = set()
    selected = ours
    if set(wanted) != {"all"} or unwanted:
        selected = []
        for play in ours:
            tasks = [task for block in play.compile() for task in tasks_of(block) if task.action not in META]
            known.update(tag for task in tasks for tag in task.tags)
            if any(task.evaluate_tags(wanted, unwanted, {}) for task in tasks):
                selected.append(play)
    variable, group, _ = nothing_to_do.HOSTS.get(path.name, ("", "", 0)) if path.parent in folders else ("", "", 0)
    given = plays[0].get_variable_manager().extra_vars.get(variable) if variable else None
    named = given if isinstance(given, str) and not is_template(given) and not given.startswith("[") else ""
    # The playbook itself checks a value that is no pattern, or not yet known.
    looked_at = bool(group) and (given is None or bool(named))
    pattern = named or group
    there = looked_at and (bool(named) or group in inventory.groups)
    hosts = [host.name for host in inventory.get_hosts(pattern, ignore_limits=True)] if there else []
    left = [host.name for host in inventory.get_hosts(pattern)] if there else []
    run = nothing_to_do.Run(
        playbook=path.name if looked_at or not group else "",
        hosts=hosts,
        left=left,
        named=named,
        has_group=group in inventory.groups,
        limit=options["subset"] or "",
        tags=wanted,
        skip_tags=unwanted,
        known=sorted(known),
        runs=bool(selected),
        controller=any(needs_controller(str(play.hosts), bool(options["check"])) for play in selected),
        controller_left=not options["subset"] or bool(inventory.get_hosts("localhost")),
        check=bool(options["check"]),
        start_at=context.CLIARGS.get("start_at_task") or "",
    )
    return nothing_to_do.findings(run)


def tasks_of(block: Any) -> Iterator[Any]:
    """Return all tasks of a block."""
    for each in [*block.block, *block.rescue, *block.always]:
        if hasattr(each, "block"):
            yield from tasks_of(each)
        else:
            yield each


def needs_controller(hosts: str, check: bool) -> bool:
    """Tell by the hosts of a play whether it works on localhost, which a play that only reads its facts does not."""
    return hosts.strip("[]'\"") == "localhost" or (not check and bool(re.search(r"'localhost'(?!\])", hosts)))
