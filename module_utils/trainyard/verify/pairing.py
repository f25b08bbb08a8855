# SPDX-License-Identifier: Apache-2.0
"""Choose rounds of pairs that share no host, so that all pairs of a round run side by side.

A round is a list of pairs, a pair two hosts in inventory order. Neighbors of the inventory come first: they mostly
stand at one switch, so that what differs between two pairs is the hosts rather than the way between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..base.findings import counted

Pair = tuple[str, str]
Round = list[Pair]
MAX_ROUNDS = 1000


def choose(hosts: Sequence[str], rounds: str, schedule: Sequence[Sequence[Any]]) -> list[list[list[str]]]:
    """Return the `schedule` if there is one; else first rounds in this number, or with `full` those of every pair.

    Raises ValueError with what is wrong.
    """
    if schedule:
        for number, pairs in enumerate(schedule):
            _check_round(hosts, number, pairs)
        chosen = schedule
    elif rounds == "full":
        chosen = full_rounds(hosts)
    elif rounds.isdecimal() and 1 <= int(rounds) <= MAX_ROUNDS:
        chosen = first_rounds(hosts, int(rounds))
    else:
        raise ValueError(f"rounds is {rounds!r}, expected a number from 1 to {MAX_ROUNDS}, or full")
    return [[list(pair) for pair in pairs] for pairs in chosen]


def _check_round(hosts: Sequence[str], number: int, pairs: Sequence[Any]) -> None:
    busy: set[str] = set()
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(f"round {number} has {pair!r}, expected a pair of two hosts")
        for host in pair:
            if host not in hosts:
                raise ValueError(f"round {number} has {host}, which is not among the {counted(len(hosts), 'host')}")
            if host in busy:
                raise ValueError(f"round {number} has {host} twice: the pairs of a round run side by side")
        busy.update(pair)


def first_rounds(hosts: Sequence[str], rounds: int = 2) -> list[Round]:
    """Return the rounds to begin with: each host meets a neighbor, then its next but one, then its other neighbor.

    In this order, as it is mostly every second host, not both ends of four, that differs from the others: neighbors
    alone would have one of these in every pair, and nothing would differ. With an odd number of hosts one of them sits
    out in each round, another one each time. Three to five hosts take at least three rounds: with two, one or two slow
    hosts could be in every pair. Two hosts have one pair, which is repeated. Raises ValueError for a host named twice.
    """
    _check_hosts(hosts)
    if len(hosts) < 2:
        return []
    if len(hosts) == 2:
        return [[(hosts[0], hosts[1])] for _ in range(rounds)]
    number = max(rounds, 3) if len(hosts) <= 5 else rounds
    found = [_neighbors(hosts), _next_but_one(hosts), _neighbors_shifted(hosts)][:number]
    if number > len(found):
        seen = {pair for each in found for pair in each}
        fresh = ([pair for pair in each if pair not in seen] for each in full_rounds(hosts))
        found += [each for each in fresh if each][: number - len(found)]
    return found


def full_rounds(hosts: Sequence[str]) -> list[Round]:
    """Return rounds that measure every pair once: n - 1 of them, or n where n is odd (the circle method)."""
    _check_hosts(hosts)
    circle: list[int | None] = list(range(len(hosts)))
    if len(circle) % 2:
        circle.append(None)
    half, found = len(circle) // 2, []
    for _ in range(len(circle) - 1):
        pairs = zip(circle[:half], reversed(circle[half:]))
        found.append(_in_order(hosts, ((a, b) for a, b in pairs if a is not None and b is not None)))
        circle[1:] = [circle[-1], *circle[1:-1]]
    return found


def with_partners(
    hosts: Sequence[str],
    requested: Sequence[int],
    partners: Sequence[int],
    met: Collection[tuple[int, int]],
    repeat: Iterable[tuple[int, int]] = (),
    controls: int = 0,
) -> Round:
    """Return a round that pairs each of the requested hosts with a partner, as far as there are partners.

    All are places in `hosts`. Pairs to be measured again (`repeat`) come first. Partners that a host has
    not met (`met`) come before others, then the nearest. At most `controls` pairs of partners that are left follow.
    """
    free = dict.fromkeys(partners)
    pairs: list[tuple[int, int]] = []
    busy: set[int] = set()

    def take(first: int, second: int) -> None:
        pairs.append((first, second))
        for host in (first, second):
            busy.add(host)
            free.pop(host, None)

    for first, second in repeat:
        if not busy & {first, second}:
            take(first, second)
    for host in requested:
        if host in busy:
            continue
        others = (other for other in free if other != host)
        best = min(others, key=lambda other: (_pair(host, other) in met, abs(other - host), other), default=None)
        if best is not None:
            take(host, best)
    left = sorted(free)
    if pairs:
        pairs += list(zip(left[::2], left[1::2]))[:controls]
    return _in_order(hosts, pairs)


def _check_hosts(hosts: Sequence[str]) -> None:
    if len(set(hosts)) != len(hosts):
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        raise ValueError(f"hosts named twice: {', '.join(twice)}; expected: each host once")


def _in_order(hosts: Sequence[str], pairs: Iterable[tuple[int, int]]) -> Round:
    return [(hosts[a], hosts[b]) for a, b in sorted(_pair(*pair) for pair in pairs)]


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)


def _neighbors(hosts: Sequence[str]) -> Round:
    """Pair 0-1, 2-3, ...; the last one of an odd number sits out."""
    return _in_order(hosts, ((at, at + 1) for at in range(0, len(hosts) - 1, 2)))


def _neighbors_shifted(hosts: Sequence[str]) -> Round:
    """Pair 1-2, 3-4, ... and the last with the first; the first one of an odd number sits out."""
    pairs = [(at, at + 1) for at in range(1, len(hosts) - 1, 2)]
    return _in_order(hosts, pairs if len(hosts) % 2 else [*pairs, (0, len(hosts) - 1)])


def _next_but_one(hosts: Sequence[str]) -> Round:
    """Pair 0-2, 1-3, 4-6, 5-7, ...: where every second host is slow, this round has pairs without a slow one.

    An odd number closes the circle instead (last with first), and one of the others sits out.
    """
    rest, pairs = list(range(len(hosts))), []
    if len(rest) % 2:
        pairs = [(0, rest.pop())]
        rest.pop(0)
        # So that what is left is two, six, or in fours, each with both its pairs.
        rest.pop(len(rest) // 2 if len(rest) % 4 == 3 else -1)
    while len(rest) > 6 or len(rest) == 4:
        pairs += [(rest[0], rest[2]), (rest[1], rest[3])]
        rest = rest[4:]
    if len(rest) == 6:
        pairs += [(rest[0], rest[2]), (rest[1], rest[4]), (rest[3], rest[5])]
    elif rest:
        pairs += [(rest[0], rest[1])]
    return _in_order(hosts, pairs)
