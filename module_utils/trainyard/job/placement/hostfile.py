# SPDX-License-Identifier: Apache-2.0
"""Write, read and check hostfiles of MPI and DeepSpeed launchers.

openmpi    10.0.0.1 slots=8 max_slots=8
mpich      10.0.0.1:8
deepspeed  10.0.0.1 slots=8
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FLAVORS = ("openmpi", "mpich", "deepspeed")

# White space, `#`, `=` and `,` mean something in one hostfile or another, and in mpirun -H.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:%-]*[A-Za-z0-9_])?")
_BLANKS = " \t\r\f\v"
_COMMENT = re.compile(r"(?:#|//).*")
_COUNT = re.compile(r"[0-9]{1,9}")
# Open MPI takes both spellings.
_KEYS = {"slots": "slots", "max_slots": "max_slots", "max-slots": "max_slots"}


@dataclass(frozen=True)
class MpiHost:
    """A host and its number of processes; None where the launcher decides."""

    name: str
    slots: int | None = None
    max_slots: int | None = None


def _host_faults(host: MpiHost, flavor: str) -> list[str]:
    if not _NAME.fullmatch(host.name):
        return [f"{host.name!r} is no host name or address"]
    faults = [
        f"{host.name}: {key} is {count}; expected 1 or more"
        for key, count in (("slots", host.slots), ("max_slots", host.max_slots))
        if count is not None and count < 1
    ]
    if host.slots is not None and host.max_slots is not None and host.max_slots < host.slots:
        faults.append(f"{host.name}: max_slots {host.max_slots} is less than slots {host.slots}")
    if host.max_slots is not None and flavor != "openmpi":
        faults.append(f"{host.name}: max_slots, which only Open MPI knows")
    if host.slots is None and flavor == "deepspeed":
        faults.append(f"{host.name}: no slots, without which DeepSpeed refuses the file")
    if ":" in host.name and flavor == "mpich":
        faults.append(f"{host.name}: MPICH takes what follows a colon for the number of processes")
    return faults


def faults(hosts: Sequence[MpiHost], flavor: str) -> list[str]:
    """Return every problem of a hostfile with these hosts."""
    seen: set[str] = set()
    found = []
    for host in hosts:
        found += _host_faults(host, flavor)
        if host.name in seen:
            found.append(f"{host.name}: named twice")
        seen.add(host.name)
    return found


def render(hosts: Sequence[MpiHost], flavor: str) -> str:
    """Write a hostfile, one host a line. Raises ValueError with all faults."""
    found = faults(hosts, flavor)
    if found:
        raise ValueError("; ".join(found))
    lines = []
    for host in hosts:
        if flavor == "mpich":
            lines.append(host.name if host.slots is None else f"{host.name}:{host.slots}")
            continue
        counts = [("slots", host.slots), ("max_slots", host.max_slots)]
        lines.append(" ".join([host.name, *(f"{key}={count}" for key, count in counts if count is not None)]))
    return "".join(f"{line}\n" for line in lines)


def parse(text: str) -> tuple[list[MpiHost], dict[int, list[str]]]:
    """Read a hostfile of any flavor: its hosts, and the faults by line (from 1). A line with a fault is no host.

    As Open MPI reads it: a name that stands n times without a number has n slots, blanks are those of ASCII, and what
    follows `#` or `//` is a comment.
    """
    hosts: list[MpiHost] = []
    problems: dict[int, list[str]] = {}
    lines_of: dict[str, int] = {}
    # Index in `hosts` of each name without a number.
    bare: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        # Open MPI allows blanks around the equals sign.
        words = "=".join(part.strip(_BLANKS) for part in _COMMENT.sub("", line).split("="))
        if not words:
            continue
        host, wrong = _parse_words(re.split(rf"[{_BLANKS}]+", words))
        if host.name in bare and not wrong and host == MpiHost(host.name):
            hosts[bare[host.name]] = MpiHost(host.name, (hosts[bare[host.name]].slots or 1) + 1)
            continue
        if host.name in lines_of:
            wrong.append(f"{host.name} is in line {lines_of[host.name]} already")
        if _NAME.fullmatch(host.name):
            lines_of.setdefault(host.name, number)
        if wrong:
            problems[number] = wrong
        else:
            if host == MpiHost(host.name):
                bare[host.name] = len(hosts)
            hosts.append(host)
    return hosts, problems


def _parse_words(words: Sequence[str]) -> tuple[MpiHost, list[str]]:
    name, colon, count = words[0].rpartition(":")
    settings = list(words[1:])
    # More than one colon is an IPv6 address.
    if colon and ":" not in name:
        settings.insert(0, f"slots={count}")
    else:
        name = words[0]
    counts: dict[str, int] = {}
    wrong = []
    for word in settings:
        key, equals, value = word.partition("=")
        known = _KEYS.get(key)
        if not equals or known is None:
            wrong.append(f"unknown key {key!r}; expected slots or max_slots" if equals else f"stray word {word!r}")
        elif known in counts:
            wrong.append(f"{known} twice")
        elif not _COUNT.fullmatch(value):
            wrong.append(f"{key} {value!r} is no number of processes")
        else:
            counts[known] = int(value)
    host = MpiHost(name, counts.get("slots"), counts.get("max_slots"))
    return host, [*_host_faults(host, "openmpi"), *wrong]
