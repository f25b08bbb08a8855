# SPDX-License-Identifier: Apache-2.0
"""Find calls of ansible-playbook that would do nothing, from their hosts, tags and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible import context

from ...trainyard.base.findings import Finding
from ...trainyard.inputs import nothing_to_do
from ...trainyard.inputs.input_variables import is_template


def settings_findings() -> list[Finding]:
    """Return the finding on a setting with which facts, which nodes return, replace variables of the inventory."""
    if not C.INJECT_FACTS_AS_VARS:
        return []
    found, expected = "inject_facts_as_vars is on", "it off, as a node's facts would replace variables of the inventory"
    action = "write inject_facts_as_vars = false into the section [defaults] of ansible.cfg, or unset "
    return [Finding("configuration", found, expected, f"{action}ANSIBLE_INJECT_FACT_VARS")]


def findings(playbook: Any, plays: list[Any], project: Path) -> list[Finding]:
    """Return why a playbook of the project would do nothing, or less than requested."""
    folders = (project, project / "playbooks")
    path = Path(playbook._file_name).resolve()
    ours = [play for play in plays if Path(str(play.get_path()).rpartition(":")[0]).resolve().parent in folders]
    if not ours:
        return []
    inventory = plays[0].get_variable_manager()._inventory
    check, limit = bool(context.CLIARGS.get("check")), context.CLIARGS.get("subset") or ""
    tags, skipped = (
        [tag for each in context.CLIARGS.get(option) or () for tag in each.split(",")]
        for option in ("tags", "skip_tags")
    )
    known: set[str] = set()
    selected = ours
    if set(tags) != {"all"} or skipped:
        selected = []
        for play in ours:
            tasks = [task for block in play.compile() for task in _tasks(block)]
            known.update(tag for task in tasks for tag in task.tags)
            if any(task.evaluate_tags(tags, skipped, {}) for task in tasks):
                selected.append(play)
    variable, group, _ = nothing_to_do.HOSTS.get(path.name, ("", "", 0)) if path.parent in folders else ("", "", 0)
    given = plays[0].get_variable_manager().extra_vars.get(variable) if variable else None
    named = given if isinstance(given, str) and not is_template(given) and not given.startswith("[") else ""
    # The playbook itself checks a value that is no pattern, or not yet known.
    checked = bool(group) and (given is None or bool(named))
    exists = checked and (bool(named) or group in inventory.groups)
    run = nothing_to_do.Run(
        playbook=path.name if checked or not group else "",
        hosts=[host.name for host in inventory.get_hosts(named or group, ignore_limits=True)] if exists else [],
        left=[host.name for host in inventory.get_hosts(named or group)] if exists else [],
        named=named,
        has_group=group in inventory.groups,
        limit=limit,
        tags=tags,
        skip_tags=skipped,
        known=sorted(known),
        runs=bool(selected),
        controller=any(_needs_controller(str(play.hosts), check) for play in selected),
        controller_left=not limit or bool(inventory.get_hosts("localhost")),
        check=check,
        start_at=context.CLIARGS.get("start_at_task") or "",
    )
    return nothing_to_do.findings(run)


def _tasks(block: Any) -> Iterator[Any]:
    """Yield all tasks of a block except `meta`."""
    for each in [*block.block, *block.rescue, *block.always]:
        if hasattr(each, "block"):
            yield from _tasks(each)
        elif each.action not in ("meta", "ansible.builtin.meta"):
            yield each


def _needs_controller(hosts: str, check: bool) -> bool:
    """Tell whether a play with these hosts works on localhost, and does not only read its facts."""
    return hosts.strip("[]'\"") == "localhost" or (not check and bool(re.search(r"'localhost'(?!\])", hosts)))
