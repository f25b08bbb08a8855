# SPDX-License-Identifier: Apache-2.0
"""Reach: who gets to whom, by ssh, over the job network, by name; and which hosts jobs can use.

The matrix is not kept: a node tells only its failures, so that the judge of 1,000 nodes reads what is wrong and no
million of pairs that are well. A failure that many share is said of the host that they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..cluster.ssh_logins import partners
from ..findings.adhoc import ansible, arguments, shell
from ..findings.checks import Check
from ..findings.findings import counted, host_list
from .reach_names import judge_addresses, judge_names
from .reporting_hosts import NOBODY, answers, by_reason, judge_answers

_MOST_PAIRS = 6


class Failure(NamedTuple):
    """One way that does not lead there: from, to, over what, why."""

    source: str
    target: str
    way: str
    reason: str


def suspects(
    failures: Iterable[Failure], hosts: Sequence[str], partners_each: int | None = None
) -> tuple[list[str], list[Failure]]:
    """Return hosts that explain failures of several others, and the failures that none of them explains.

    A host explains when more than half of those that tried fail with it, in either direction: the greedy choice of the
    one with the most, again and again. Two hosts cannot tell which of them it is. `partners_each` is with how many
    others a host was tried at most, all where it is None.
    """
    everything = list(failures)
    partners = _partners_of(everything)
    order = {host: number for number, host in enumerate(hosts)}
    odd: list[str] = []
    while partners:
        others = len(hosts) - len(odd) - 1
        tried = others if partners_each is None else min(others, partners_each)
        worst = max(partners, key=lambda host: (len(partners[host]), order.get(host, -1)))
        if len(partners[worst]) < 2 or len(partners[worst]) * 2 <= tried:
            break
        odd.append(worst)
        _leave_out(partners, worst)
    gone = set(odd)
    return odd, [failure for failure in everything if failure.source not in gone and failure.target not in gone]


def _partners_of(failures: Iterable[Failure]) -> dict[str, set[str]]:
    """Return with whom each host failed, in either direction."""
    partners: dict[str, set[str]] = {}
    for failure in failures:
        if failure.source != failure.target:
            partners.setdefault(failure.source, set()).add(failure.target)
            partners.setdefault(failure.target, set()).add(failure.source)
    return partners


def _leave_out(partners: dict[str, set[str]], host: str) -> None:
    for other in partners.pop(host):
        partners[other].discard(host)
        if not partners[other]:
            del partners[other]


def usable(hosts: Sequence[str], failures: Iterable[Failure]) -> list[str]:
    """Return hosts among which no way failed: as long as there is one, the host with the most is left out."""
    order = {host: number for number, host in enumerate(hosts)}
    partners = _partners_of(one for one in failures if one.source in order and one.target in order)
    left_out = set()
    while partners:
        # Of two alike the later one: the head of a job is the first host.
        worst = max(partners, key=lambda host: (len(partners[host]), order[host]))
        left_out.add(worst)
        _leave_out(partners, worst)
    return [host for host in hosts if host not in left_out]


def _number(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name} does" if len(things) == 1 else f"{len(things)} {name}s do"


def _blamed(host: str, failures: Sequence[Failure]) -> str:
    into = {failure.source for failure in failures if failure.target == host}
    out = {failure.target for failure in failures if failure.source == host}
    said = [f"{_number(into, 'node')} not reach {host}"] if into else []
    said += [f"{host} does not reach {len(out)} other{'s' if len(out) > 1 else ''}"] if out else []
    return " and ".join(said)


def _described(failures: Sequence[Failure]) -> str:
    texts: dict[str, list[str]] = {}
    for failure in failures:
        texts.setdefault(f"{failure.reason} ({failure.way})", []).append(f"{failure.source} -> {failure.target}")
    parts = []
    for text, pairs in texts.items():
        pairs = list(dict.fromkeys(pairs))
        more = f", ... ({len(pairs) - _MOST_PAIRS} more)" if len(pairs) > _MOST_PAIRS else ""
        parts.append(f"{', '.join(pairs[:_MOST_PAIRS])}{more}: {text}")
    return "; ".join(parts[:_MOST_PAIRS])


def _untried(nodes: int, partners_each: int) -> str:
    pairs = nodes * (nodes - 1 - partners_each) // 2
    return f", each with {partners_each} others; not tried: {counted(pairs, 'pair')}" if pairs > 0 else ""


def judge_pairs(
    name: str,
    failures: Sequence[Failure],
    asked: Sequence[str],
    silent: Mapping[str, str],
    *,
    expected: str,
    action: str,
    command: Callable[[str], str],
    tried: int,
    partners_each: int,
) -> list[Check]:
    """Make the records of one way over all pairs: hosts that explain failures, the other pairs, who was not asked."""
    checks = []
    odd, left = suspects(failures, asked, partners_each)
    if len(set(asked).difference(odd, *(failure[:2] for failure in left))) < 2:
        # Where no two hosts are well with each other, none is the odd one.
        odd, left = [], list(failures)
    of_host: dict[str, list[Failure]] = {host: [] for host in odd}
    for failure in failures if odd else ():
        for host in {failure.source, failure.target}:
            if host in of_host:
                of_host[host].append(failure)
    for host, own in of_host.items():
        checks.append(
            Check(
                phase="reach",
                name=name,
                state="fail",
                hosts=(host,),
                found=_described(own),
                expected=expected,
                reason=_blamed(host, own),
                action=action.replace("HOST", host),
                command=command(host),
                source="",
                data={"pairs": len({failure[:2] for failure in own})},
            )
        )
    if left:
        order = {host: number for number, host in enumerate(asked)}
        pairs = {failure[:2] for failure in left}
        hosts = sorted({host for pair in pairs for host in pair}, key=lambda host: order.get(host, len(order)))
        checks.append(
            Check(
                phase="reach",
                name=name,
                state="fail",
                hosts=tuple(hosts),
                found=_described(left),
                expected=expected,
                reason=f"{_number(pairs, 'pair')} not get through",
                action=action.replace("HOST", left[0].target),
                command=command(left[0].source),
                source="",
                data={"pairs": len(pairs)},
            )
        )
    for words, group in by_reason(silent).items():
        checks.append(
            Check(
                phase="reach",
                name=name,
                state="unknown",
                hosts=tuple(group),
                found=words,
                expected=expected,
                reason=f"{host_list(group)} could not test it",
                action="see on the node what it says",
                command=command(group[0]),
            )
        )
    if not checks:
        if tried:
            checks.append(
                Check(
                    phase="reach",
                    name=name,
                    state="pass",
                    found=f"{tried} ways between {len(asked)} nodes{_untried(len(asked), partners_each)}",
                    expected=expected,
                    data={"tried": tried},
                )
            )
        else:
            checks.append(
                Check(phase="reach", name=name, state="skipped", reason="there is one node" if asked else NOBODY)
            )
    return checks


def judge_ssh(
    results: Mapping[str, Mapping[str, Any]], user: str, inventory: str = ""
) -> tuple[list[Check], list[Failure]]:
    """Judge what ssh_reach.row returned, by host. Returns the checks and the failures."""
    good, bad = answers(results, "row")
    failures = []
    for host, result in good.items():
        lines = {line.partition(" -> ")[2].partition(" ")[0]: line.partition("): ")[2] for line in result["failures"]}
        failures += [
            Failure(host, peer, "ssh", lines.get(peer, "no login"))
            for peer, reached in result["row"].items()
            if not reached
        ]
    checks = judge_pairs(
        "ssh",
        failures,
        list(results),
        bad,
        expected=f"{user} logs in from every node to every other by name, and by address where the inventory gives it",
        action="run site.yml (role ssh_mesh) on all nodes; sshd's journal on HOST says why (journalctl -t sshd)",
        command=lambda host: ansible(
            [host], inventory, "ssh_reach", arguments(host=host, nodes=list(results), user=user), become=True
        ),
        tried=sum(int(result["logins"]) for result in good.values()),
        partners_each=partners(len(results), max((len(result["row"]) for result in good.values()), default=0)),
    )
    return checks, failures


def judge_network(
    listeners: Mapping[str, Mapping[str, Any]],
    ended: Mapping[str, bool],
    rows: Mapping[str, Mapping[str, Any]],
    inventory: str = "",
) -> tuple[list[Check], list[Failure]]:
    """Judge the job network: who listened, whether the listener lived to the end, and what each node's tries brought.

    Failures towards a listener that was gone in the end say nothing about the network.
    """
    heard, mute = answers(listeners, "endpoint")
    good, bad = answers(rows, "tried")
    dead = [host for host in heard if not ended.get(host, False)]
    failures = [
        Failure(host, str(failure["host"]), str(failure["way"]), str(failure["reason"]))
        for host, result in good.items()
        for failure in result["failures"]
    ]
    true = [failure for failure in failures if failure.target not in dead]
    silent = {**{host: "nothing could listen there: " + why for host, why in mute.items()}, **bad}
    silent.update(
        {host: "its listener ended early" for host in dead if any(failure.target == host for failure in failures)}
    )
    checks = judge_pairs(
        "job network",
        true,
        list(heard),
        silent,
        expected="a connection from every node to every other, on a rendezvous port and on one that the kernel gives",
        action="look at firewall and routes of HOST on the job network, and at MTU of interfaces and switch ports",
        command=lambda host: shell([host], inventory, "ip address; ip route; nft list ruleset", become=True),
        tried=sum(int(result["tried"]) for result in good.values()),
        # Two ports each.
        partners_each=partners(len(heard), max((int(result["tried"]) // 2 for result in good.values()), default=0)),
    )
    return checks, true


def verify(
    results: Mapping[str, Mapping[str, Any]],
    listeners: Mapping[str, Mapping[str, Any]],
    ended: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, Any]],
    logins: Mapping[str, Mapping[str, Any]] | None,
    *,
    user: str = "",
    network: str = "",
    inventory: str = "",
) -> tuple[list[Check], list[str], list[dict[str, Any]]]:
    """Judge what all nodes answered, by host, in inventory order, also what they said in place of an answer.

    `results` are their facts, `logins` None where ssh is not tested. Returns the checks; the hosts that answer, have an
    address on the job network, and reach each other over it; and for the report each host with its address and facts.
    """
    good, _ = answers(results, "facts")
    checks = judge_answers({host: results[host] for host in results if host not in good}, list(results), inventory)
    checks += judge_addresses({host: good[host]["network"] for host in good}, network)
    able = [host for host in good if good[host]["network"]["address"]]
    tries = {host: rows.get(host, {}) for host in able}
    lived = {host: bool(result["lived"]) for host, result in answers(ended, "lived")[0].items()}
    ways, failures = judge_network({host: listeners.get(host, {}) for host in able}, lived, tries, inventory)
    checks += ways + judge_names(tries, inventory)
    heard, tried = answers(listeners, "endpoint")[0], answers(tries, "tried")[0]
    able = usable([host for host in able if host in heard and host in tried], failures)
    if logins is None:
        checks.append(Check(phase="reach", name="ssh", state="not_asked", reason="verify_ssh is false"))
    else:
        checks += judge_ssh({host: logins.get(host, {}) for host in good}, user, inventory)[0]
    nodes = [
        {
            "host": host,
            "address": good[host]["network"]["address"] if host in good else "",
            "facts": good[host]["facts"] if host in good else {},
        }
        for host in results
    ]
    return checks, able, nodes
