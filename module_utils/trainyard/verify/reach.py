# SPDX-License-Identifier: Apache-2.0
"""Check which nodes reach each other by ssh, over the job network and by name, and which hosts jobs can use.

Nodes report only failures, so that 1,000 nodes do not send a million pairs that work. A failure that many pairs share
is attributed to the host that they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..base.adhoc import playbook, shell
from ..base.checks import Check
from ..base.findings import counted, grouped, some_of
from ..cluster.ssh_peers import partners
from .reach_names import check_addresses, check_names
from .reporting_hosts import NOBODY, answers, by_reason, check_answers

_MAX_PAIRS = 6
reach = partial(Check, "reach")


class Failure(NamedTuple):
    """A connection that failed: from, to, over which way, why."""

    source: str
    target: str
    way: str
    reason: str


def suspects(
    failures: Iterable[Failure],
    hosts: Sequence[str],
    partners_each: int | None = None,
    tried: Mapping[str, Collection[str]] | None = None,
) -> tuple[list[str], list[Failure]]:
    """Return hosts that explain failures of several others, and the failures that none of them explains.

    A host explains failures if more than half of its tries fail, in either direction. The host with the most failures
    is taken first, again and again. If there are only two hosts, none explains a failure. `partners_each` is the number
    of others with which each host was tried, None for all; or `tried` has those others by host.
    """
    failures = list(failures)
    partners = _partners_of(failures)
    order = {host: number for number, host in enumerate(hosts)}
    odd: list[str] = []
    while partners:
        others = len(hosts) - len(odd) - 1
        most = others if partners_each is None else min(others, partners_each)
        counts = {host: most if tried is None else len(set(tried[host]).difference(odd)) for host in partners}
        bad = [host for host, failed in partners.items() if len(failed) >= 2 and len(failed) * 2 > counts[host]]
        if not bad:
            break
        worst = max(bad, key=lambda host: (len(partners[host]), order.get(host, -1)))
        odd.append(worst)
        _leave_out(partners, worst)
    explained = set(odd)
    return odd, [failure for failure in failures if explained.isdisjoint(failure[:2])]


def _partners_of(failures: Iterable[Failure]) -> dict[str, set[str]]:
    """Return the hosts with which each host failed, in either direction."""
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
    """Return hosts among which no connection failed: the host with the most failures is left out, again and again."""
    order = {host: number for number, host in enumerate(hosts)}
    partners = _partners_of(one for one in failures if one.source in order and one.target in order)
    while partners:
        # If two are equal, the later one goes: the first host is the head of a job.
        worst = max(partners, key=lambda host: (len(partners[host]), order[host]))
        del order[worst]
        _leave_out(partners, worst)
    return list(order)


def _number(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name} does" if len(things) == 1 else f"{len(things)} {name}s do"


def _blamed(host: str, failures: Sequence[Failure]) -> str:
    into = {failure.source for failure in failures if failure.target == host}
    out = {failure.target for failure in failures if failure.source == host}
    parts = [f"{_number(into, 'node')} not reach it"] if into else []
    parts += [f"it does not reach {counted(len(out), 'other')}"] if out else []
    return " and ".join(parts)


def _described(failures: Sequence[Failure]) -> str:
    texts = grouped((f"{each.reason} ({each.way})", f"{each.source} -> {each.target}") for each in failures)
    parts = []
    for text, pairs in texts.items():
        pairs = some_of(list(dict.fromkeys(pairs)), _MAX_PAIRS)
        parts.append(f"{', '.join(pairs)}: {text}")
    return "; ".join(parts[:_MAX_PAIRS])


class Way(NamedTuple):
    """One way between all nodes that is checked: its name, and the texts of its checks.

    `action` may name HOST. `partners_each` is the number of others with which each node was tried, None for all.
    """

    name: str
    expected: str
    action: str
    command: Callable[[str], str]
    partners_each: int | None

    def failed(self, hosts: Sequence[str], failures: Sequence[Failure], reason: str, place: tuple[str, str]) -> Check:
        """Return the check of failures; `place` is the host to look at, and the host that repeats the check."""
        action, command = self.action.replace("HOST", place[0]), self.command(place[1])
        data = {"pairs": len({failure[:2] for failure in failures})}
        found = _described(failures)
        return reach(self.name, "fail", tuple(hosts), found, self.expected, reason, action, command, data=data)


def check_pairs(
    way: Way, failures: Sequence[Failure], hosts: Sequence[str], silent: Mapping[str, str], tried: int
) -> list[Check]:
    """Check one way over all pairs of hosts: hosts that explain failures, other pairs, and hosts that did not test it.

    `silent` says of each host that did not test it why.
    """
    odd, left = suspects(failures, hosts, way.partners_each)
    if len(set(hosts).difference(odd, *(failure[:2] for failure in left))) < 2:
        # If no two hosts reach each other, no host is the odd one.
        odd, left = [], list(failures)
    by_host = {host: [each for each in failures if host in each[:2]] for host in odd}
    checks = [way.failed([host], own, _blamed(host, own), (host, host)) for host, own in by_host.items()]
    if left:
        order = {host: number for number, host in enumerate(hosts)}
        pairs = {failure[:2] for failure in left}
        named = sorted({host for pair in pairs for host in pair}, key=lambda host: order.get(host, len(order)))
        reason = f"{_number(pairs, 'pair')} not get through"
        checks.append(way.failed(named, left, reason, (left[0].target, left[0].source)))
    reason, action = "this node could not test it", "run the command and read its message"
    checks += [
        reach(way.name, "unknown", tuple(group), found, way.expected, reason, action, way.command(group[0]))
        for found, group in by_reason(silent).items()
    ]
    if checks:
        return checks
    if not tried:
        return [reach(way.name, "skipped", reason="there is one node" if hosts else NOBODY)]
    found = f"{tried} connections between {len(hosts)} nodes"
    untried = 0 if way.partners_each is None else len(hosts) * (len(hosts) - 1 - way.partners_each) // 2
    if untried > 0:
        found += f", each with {way.partners_each} others; not tried: {counted(untried, 'pair')}"
    return [reach(way.name, "pass", found=found, expected=way.expected, data={"tried": tried})]


def check_ssh(
    results: Mapping[str, Mapping[str, Any]], user: str, inventory: str = "", by: Mapping[str, str] | None = None
) -> list[Check]:
    """Check which hosts log in to which, by host; `by` has what others reach each host by, if not by its name."""
    good, bad = answers(results, "row")
    targets = {host: (by or {}).get(host, host) for host in results}
    names = {target: host for host, target in targets.items()}
    failures = [
        Failure(host, names.get(failure["peer"], failure["peer"]), "ssh", failure["reason"])
        for host, result in good.items()
        for failure in result["failures"]
    ]
    way = Way(
        "ssh",
        f"{user} logs in from every node to every other",
        "run site.yml (role ssh_mesh) on all nodes; sshd's journal on HOST says why (journalctl -t sshd)",
        lambda _: playbook("playbooks/verify.yml", inventory, {"verify_phases": ["reach"]}),
        partners(len(results), max((len(result["row"]) for result in good.values()), default=0)),
    )
    return check_pairs(way, failures, list(results), bad, sum(int(result["logins"]) for result in good.values()))


def check_network(
    listeners: Mapping[str, Mapping[str, Any]],
    ended: Mapping[str, bool],
    rows: Mapping[str, Mapping[str, Any]],
    inventory: str = "",
) -> tuple[list[Check], list[Failure]]:
    """Check the job network by the nodes' listeners, by whether each lived to the end, and by each node's tries.

    Failures towards a listener that ended early say nothing about the network.
    """
    listening, mute = answers(listeners, "endpoint")
    good, bad = answers(rows, "tried")
    dead = [host for host in listening if not ended.get(host, False)]
    failures = [
        Failure(host, str(failure["host"]), str(failure["way"]), str(failure["reason"]))
        for host, result in good.items()
        for failure in result["failures"]
    ]
    proper = [failure for failure in failures if failure.target not in dead]
    silent = {**{host: f"it could not listen: {why}" for host, why in mute.items()}, **bad}
    missed = {failure.target for failure in failures}
    silent.update({host: "its listener ended early" for host in dead if host in missed})
    way = Way(
        "job network",
        "a connection from every node to every other, on a rendezvous port and on one that the kernel gives",
        "check firewall and routes of HOST on the job network, and the MTU of interfaces and switch ports",
        lambda host: shell([host], inventory, "ip address; ip route; nft list ruleset", become=True),
        # Each partner is tried on two ports.
        partners(len(listening), max((int(result["tried"]) // 2 for result in good.values()), default=0)),
    )
    tried = sum(int(result["tried"]) for result in good.values())
    return check_pairs(way, proper, list(listening), silent, tried), proper


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
    by: Mapping[str, str] | None = None,
) -> tuple[list[Check], list[str], list[dict[str, Any]]]:
    """Check the answers of all nodes, by host in inventory order, failures among them.

    `results` are their facts, `logins` None where ssh is not tested. Returns the checks; the hosts that answer, have an
    address on the job network, and reach each other over it; and for the report each host with its address and facts.
    """
    good, _ = answers(results, "network")
    checks = check_answers({host: results[host] for host in results if host not in good}, list(results), inventory)
    checks += check_addresses({host: good[host]["network"] for host in good}, network)
    able = [host for host in good if good[host]["network"]["address"]]
    tries = {host: rows.get(host, {}) for host in able}
    lived = {host: bool(result["lived"]) for host, result in answers(ended, "lived")[0].items()}
    of_network, failures = check_network({host: listeners.get(host, {}) for host in able}, lived, tries, inventory)
    checks += of_network + check_names(tries, inventory)
    listening, tried = answers(listeners, "endpoint")[0], answers(tries, "tried")[0]
    able = usable([host for host in able if host in listening and host in tried], failures)
    if logins is None:
        checks.append(reach("ssh", "not_asked", reason="verify_ssh is false"))
    else:
        checks += check_ssh({host: logins.get(host, {}) for host in good}, user, inventory, by)
    silent = {"network": {"address": ""}, "facts": {}}
    known = [(host, good.get(host, silent)) for host in results]
    nodes = [
        {
            "host": host,
            "hostname": node.get("hostname"),
            **{name: node["network"].get(name) for name in ("address", "switch", "fabric")},
            "facts": node["facts"],
        }
        for host, node in known
    ]
    return checks, able, nodes
