# SPDX-License-Identifier: Apache-2.0
"""Make a rank table from servers or from files that are read already, and record its problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.findings import Finding, Warned
from .rank_table import Device, Server, Table, build, merge, repair, validate
from .rank_table_view import loads


def parse(content: bytes) -> tuple[object, list[Finding]]:
    """Return the table in a file, or the findings. Like HCCL, accept a byte order mark."""
    return loads(content.decode("utf-8-sig", errors="replace"))


def from_servers(servers: Iterable[Mapping[str, Any]], chip: str, version: str) -> tuple[Table, list[Finding]]:
    """Return the table of servers, as the module rank_table takes them, and its problems."""
    members = [
        Server(
            each["server_id"], tuple(Device(**one) for one in each["devices"]), each["host_ip"], each["super_pod_id"]
        )
        for each in servers
    ]
    table = build(members, chip, version)
    return table, validate(table, chip)


def from_files(
    files: Sequence[tuple[str, bytes]], chip: str, *, merging: bool, repairing: bool
) -> tuple[Any, list[Finding], list[Finding]]:
    """Return the table of a file, or the merged one of many, its problems, and the problems that were repaired."""
    tables: list[Any] = []
    problems: list[Finding] = []
    repaired: list[Finding] = []
    for path, content in files:
        table, wrong = parse(content)
        if repairing and isinstance(table, dict):
            table, fixed = repair(table)
            repaired += [replace(problem, host=f"{path}, {problem.host}") for problem in fixed]
        problems += [replace(problem, host=f"{path}, {problem.host}") for problem in wrong]
        tables.append(table)
    if problems:
        return {}, problems, repaired
    if merging:
        return (*merge(tables, chip, [path for path, _ in files]), repaired)
    return tables[0], validate(tables[0], chip), repaired


def records(problems: Iterable[Finding]) -> list[dict[str, str]]:
    """Return problems as the module rank_table returns them."""
    return [
        {
            "rule": each.check,
            "level": "warning" if isinstance(each, Warned) else "error",
            "where": each.host,
            "found": each.found,
            "expected": each.expected,
            "action": each.action,
        }
        for each in problems
    ]
