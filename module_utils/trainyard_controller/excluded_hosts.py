# SPDX-License-Identifier: Apache-2.0
"""The record of excluded hosts on the controller: one file of a cluster, beside its runs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..trainyard.job.record import excluded_hosts as refused
from ..trainyard.job.record.excluded_hosts import Gate, Refused
from ..trainyard_node.machine.json_files import read_json
from .run_folder import write_whole


def read(file: Path) -> Refused:
    """Return who is refused, by host."""
    hosts: Refused = refused.read(read_json(file))["refused"]
    return hosts


def change(file: Path, how: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Change the record, one after the other where several playbooks do; nothing is written where nothing changes.

    Raises NotWrittenError, or OSError where there is no folder of runs.
    """
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        kept = refused.read(read_json(file))
        new = how(kept)
        if new != kept:
            write_whole(file, json.dumps(new, indent=2) + "\n")
    finally:
        os.close(folder)


@dataclass(frozen=True)
class Kept:
    """What a launch finds of earlier ones: who takes part again, in words; since when others are refused, by host."""

    back: Sequence[str]
    again: Mapping[str, str]
    warning: str = ""


def looked_at(file: Path, gate: Gate, job_id: str, inventory: Sequence[str], check: bool) -> Kept:
    """Keep what a launch has found of hosts; those that pass are taken back; with `check` write nothing."""
    known, now = read(file), time.time()
    passes = {host: look.devices for host, look in gate.items() if look.texts == []}
    told = {host: {"reason": "; ".join(look.texts), "since": now} for host, look in gate.items() if look.texts}

    def how(kept: Mapping[str, Any]) -> Mapping[str, Any]:
        left = refused.passed(kept, refused.back(kept["refused"], passes), now, inventory)
        return refused.told(left, told, job_id, {host: gate[host].devices for host in told}, now)

    warning = ""
    try:
        if not check:
            change(file, how)
    except OSError as error:
        warning = f"who was refused cannot be kept: {error.filename or file}: {error.strerror}"
    again = {host: refused.since(known[host]) for host in told if host in known}
    return Kept(refused.back_lines(known, refused.back(known, passes)), again, warning)
