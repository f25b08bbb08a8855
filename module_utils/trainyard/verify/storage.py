# SPDX-License-Identifier: Apache-2.0
"""Checks of the phase `storage`: which folder hangs, is full, is slow, or is shared by some nodes only.

Sizes are in bytes, rates in bytes or files a second. docs/storage.md has the method and its limits.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..base.checks import Check
from ..base.findings import counted, grouped
from ..base.visible import one_line
from ..cluster.sharing import Sharing, sharing
from ..hardware.traffic import size
from .reporting_hosts import answers, by_reason

Place = Mapping[str, Any]
Members = Mapping[str, Place]
Results = Mapping[str, Mapping[str, Any]]
# A node makes so many small files, in so many seconds for each part; a hang is so many seconds without progress.
FILES, PART_S, SILENT_S, FIRST_STEP = 200, 10.0, 9.0, "opening"
# Fewer equal disks do not tell a slow one from a busy one; a slow one lacks this part of their median, twice.
LEAST, SLOW = 5, 0.5
NEARLY_FULL = 0.05  # of the space or the inodes
_CHECKPOINT, _MAKE_ROOM = 100e9, "remove what is not needed, or use a larger disk"
FIGURES = {"write": "writing", "read": "reading", "files": "small files"}
check = partial(Check, "storage")


def limit_s(paths: Sequence[str]) -> float:
    """Return the seconds after which a node that measures these paths has surely answered."""
    return 20 + len(paths) * (3 * PART_S + 2 * SILENT_S)


def has_slow(paths: Sequence[str], together: Results) -> bool:
    """Tell whether a node seems slow, so that all have to measure again."""
    return any(_slow(members) for path in paths for members in _classes(_places(path, together)))


def verify(
    paths: Sequence[str], alone: Results, together: Results, folders: Results, again: Results, command: str
) -> list[Check]:
    """Return the checks of all paths, by the answers of the nodes to the question `storage`.

    `alone` is the answer of one node while the others waited, `together` are those of all at once, `again` a second
    time if one seemed slow. `folders` says of each host and path who shares it (sharing.FOLDERS).
    """
    good, silent = answers(together, "paths")
    silent |= {host: f"nothing of {path}" for path in paths for host in good if path not in good[host]["paths"]}
    action = "run the command again, and read the message"
    checks = [
        check("storage", "unknown", tuple(hosts), reason=f"no answer: {one_line(why)}", action=action, command=command)
        for why, hosts in by_reason(silent).items()
    ]
    for path in paths:
        places = _places(path, together)
        troubles = {host: _trouble(path, place) for host, place in places.items()}
        named = grouped((why, host) for host, why in troubles.items() if why)
        for (state, found, expected, action), hosts in named.items():
            reason = "it cannot be used" if state == "fail" else "it could not be measured"
            texts = (found, expected, reason, action, command)
            checks.append(check(f"access to {path}", state, tuple(hosts), *texts))
        sound = {host: place for host, place in places.items() if not troubles[host]}
        shared = sharing(sound, {host: each[path] for host, each in folders.items() if path in each})
        checks += _space(path, places, command)
        checks += _sharing(path, shared, command) if len(sound) > 1 else []
        checks += _speed(path, sound, shared, _places(path, alone), _places(path, again), command)
    return checks


def _places(path: str, results: Results) -> dict[str, Place]:
    good, _ = answers(results, "paths")
    return {host: found["paths"][path] for host, found in good.items() if path in found["paths"]}


def _trouble(path: str, place: Place) -> tuple[str, str, str, str] | None:
    """Return the state, what was found and expected, and the action, of a folder that cannot be used."""
    step, problem = one_line(place["step"], 60), one_line(place["problem"], 300)
    writable, log = "a folder that can be written", "read the kernel's log (dmesg) for errors of the disk or the server"
    at_first = step in ("", FIRST_STEP)
    if place["silent"]:
        asleep = ", in a sleep that no signal ends (state D)" if place["state"] == "D" else ""
        found, expected = f"nothing for {SILENT_S:g} s while {step}{asleep}", "a file system that answers"
        mount = f"see which mount it is (findmnt -T {path}) and whether its server runs; umount -l {path} gives it up"
        return ("fail", found, expected, mount) if at_first else ("unknown", found, expected, log)
    if place["read_only"]:
        return "fail", "a read-only file system", writable, log
    if problem:
        action = f"make the folder and give it to the training user (namei -l {path}), or set verify_storage"
        return "fail", f"{problem} ({step})" if step else problem, writable, action if at_first else log
    return ("unknown", f"its process ended early ({step})", writable, log) if step else None


def _space(path: str, places: Members, command: str) -> Iterator[Check]:
    parts = [
        (what, place[free] / place[total], host)
        for host, place in places.items()
        for what, free, total in (("space", "free", "size"), ("inodes", "free_inodes", "inodes"))
        if place[total]
    ]
    full = grouped(((what, part > 0), (part, host)) for what, part, host in parts if part < NEARLY_FULL)
    for (what, some), of_kind in full.items():
        state, reason = ("unknown", f"nearly no {what} left") if some else ("fail", f"no {what} left")
        texts = (
            f"{min(of_kind)[0]:.1%} of the {what} is free",
            f"at least {NEARLY_FULL:.0%}",
            reason,
            _MAKE_ROOM,
            command,
        )
        yield check(f"space of {path}", state, tuple(host for _, host in of_kind), *texts)
    if parts and not full:
        part, what = min((part, what) for what, part, _ in parts)
        yield check(f"space of {path}", "pass", found=f"at least {part:.0%} of the {what} is free", command=command)


def _sharing(path: str, shared: Sharing, command: str) -> Iterator[Check]:
    if not shared.unknown and (len(shared.groups) < 2 or not shared.shared):
        yield check(f"sharing of {path}", "pass", found=shared.text(), command=command)
        return
    usual = max(shared.groups, key=len, default=())
    hosts = shared.unknown or [host for group in shared.groups if group is not usual for host in group]
    action = f"mount the same file system on all nodes (findmnt -T {path}), or set verify_hosts to those that share it"
    reason = "nothing tells who sees the same files" if shared.unknown else "nodes do not see the same files"
    texts = (shared.text(), "shared by all, or local", reason, action, command)
    yield check(f"sharing of {path}", "unknown" if shared.unknown else "fail", tuple(hosts), *texts)


def _classes(places: Members) -> list[Members]:
    """Return what was measured by type and size of the file system: equal disks, or one that all share."""
    sound = {host: place for host, place in places.items() if all(place[figure] for figure in FIGURES)}
    pairs = (((place["kind"], f"{place['size']:.1e}"), (host, place)) for host, place in sound.items())
    return [dict(members) for members in grouped(pairs).values()]


def _slow(members: Members) -> set[tuple[str, str]]:
    """Return host and figure of what is slow among equals."""
    limits = {figure: SLOW * _median(members, figure) for figure in FIGURES if len(members) >= LEAST}
    return {(host, figure) for host, place in members.items() for figure in limits if place[figure] < limits[figure]}


def _of(members: Members, figure: str) -> dict[str, float]:
    return {host: place[figure] for host, place in members.items()}


def _median(members: Members, figure: str) -> float:
    return float(statistics.median(_of(members, figure).values()))


def _speed(path: str, sound: Members, shared: Sharing, alone: Members, again: Members, command: str) -> Iterator[Check]:
    """Return a check for each node that is slow twice, and one of all nodes of its kind."""
    classes, of_all = _classes(sound), len(shared.shared) > 0
    unmeasured = tuple(host for host in sound if not any(host in members for members in classes))
    if unmeasured:
        reason = "there is too little room to measure"
        yield check(f"speed of {path}", "unknown", unmeasured, reason=reason, action=_MAKE_ROOM, command=command)
    for members in classes:
        second = next(iter(_classes({host: again[host] for host in members if host in again})), {})
        second = second if len(second) >= LEAST else {}
        once = {(host, figure) for host in second for figure in FIGURES} - _slow(second)
        for host, figure in sorted(_slow(members) - once):
            found, median = members[host][figure], _median(members, figure)
            reason = f"{1 - found / median:.0%} below the median of {len(members)} equal file systems, twice"
            # Nodes that share a server do not get equal parts of it.
            state = "unknown" if of_all or host not in second else "fail"
            action = "look for other programs that use it (iostat, iotop), and at the health of the disk or the network"
            texts = (_rate(figure, found), f"at least {_rate(figure, SLOW * median)}", reason, action, command)
            yield check(f"{FIGURES[figure]} in {path}", state, (host,), *texts)
        few = f"fewer than {LEAST} equal file systems do not tell a slow one from a busy one"
        state, reason = ("skipped", few) if len(members) < LEAST else ("pass", "")
        found = _described(members, alone, of_all)
        data = {
            "figures": {f"{name} in {path}": _of(members, figure) for figure, name in FIGURES.items()},
            "fall": SLOW,
        }
        yield check(f"speed of {path}", state, found=found, reason=reason, command=command, data=data)


def _described(members: Members, alone: Members, of_all: bool) -> str:
    first = next(iter(members.values()))
    kind = one_line(first["kind"], 40) or "unknown file system"
    how = "O_DIRECT" if first["direct"] else "memory" if kind == "tmpfs" else "flushed, without O_DIRECT"
    parts = [f"{kind} of {size(first['size'])} ({how}) on {counted(len(members), 'node')}: {_figures(members)}"]
    parts += [f"{host} alone: {_figures(each)}" for each in _classes(alone) for host in each if host in members]
    writes = [place["write"] for place in members.values()]
    seconds = _CHECKPOINT / (sum(writes) if of_all else min(writes))
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    who = "that all write" if of_all else "of one node"
    return "; ".join([*parts, f"a checkpoint of {size(_CHECKPOINT)} {who} takes {took}"])


def _figures(members: Members) -> str:
    texts = []
    for figure, name in FIGURES.items():
        least, most = (pick(place[figure] for place in members.values()) for pick in (min, max))
        spread = f" ({_rate(figure, least)} to {_rate(figure, most)})" if len(members) > 1 else ""
        texts.append(f"{name} {_rate(figure, _median(members, figure))}{spread}")
    return ", ".join(texts)


def _rate(figure: str, value: float) -> str:
    return f"{value:.0f}/s" if figure == "files" else f"{size(value)}/s"
