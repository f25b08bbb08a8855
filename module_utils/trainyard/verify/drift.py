# SPDX-License-Identifier: Apache-2.0
"""Drift: differences between nodes that should be alike, by majority vote.

A vote is among hosts that can be compared: all of them for what a job needs to be equal (frameworks, MPI, MTU), those
with the same kinds of hardware for what belongs to the hardware (driver, firmware, kernel). A value that more than half
of the known ones have is the usual one, and hosts with another one are odd; without such a value there is drift and no
odd host. One host alone has nothing to be compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any

from ..findings.adhoc import ansible, shell
from ..findings.checks import Check
from ..findings.findings import counted, host_list
from .drift_clocks import judge_clocks
from .drift_facts import ALONE, FACTS, OPTIONAL, Fact
from .reporting_hosts import answers

# What a node answers (facts.read_machine): host, hostname, facts, environments, hardware, network; `group` where
# it is declared.
Node = Mapping[str, Any]


_UNITS = {"memory_mib": " MiB", "nic_speed": " Mb/s"}


def groups_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return hosts by group: the declared one, else the kinds of hardware that were found."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(node.get("group") or ", ".join(node["hardware"]) or "no adapter of its own", []).append(
            node["host"]
        )
    return groups


def _text(key: str, value: Any) -> str:
    if value is None:
        return "not readable"
    return "none" if value == "" else f"{value}{_UNITS.get(key, '')}"


def _majority(values: Iterable[Any]) -> tuple[bool, Any]:
    """Return whether one value is that of more than half, and which."""
    counts = Counter(values)
    value, number = counts.most_common(1)[0]
    return number * 2 > sum(counts.values()), value


def _same(value: Any, usual: Any, tolerance: float) -> bool:
    if tolerance and isinstance(value, (int, float)) and isinstance(usual, (int, float)):
        return abs(value - usual) <= tolerance * abs(usual)
    return bool(value == usual)


def _by_value(key: str, values: Mapping[str, Any]) -> str:
    """Say who has what, the most frequent value first."""
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(_text(key, value), []).append(host)
    return "; ".join(
        f"{text} on {host_list(names)}" for text, names in sorted(hosts.items(), key=lambda item: -len(item[1]))
    )


def _voters(nodes: Sequence[Node], scope: str) -> list[tuple[str, list[Node]]]:
    if scope == "cluster":
        return [("", list(nodes))]
    by_host = {node["host"]: node for node in nodes}
    return [(name, [by_host[host] for host in hosts]) for name, hosts in groups_of(nodes).items()]


def _command(shown: str, hosts: Sequence[str], inventory: str) -> str:
    return shell(hosts, inventory, shown) if shown else ansible(hosts, inventory, "verify_facts", become=True)


def _judge_fact(key: str, fact: Fact, nodes: Sequence[Node], inventory: str) -> list[Check]:
    """Compare one fact in each group of hosts that can be compared."""
    everything = {node["host"]: node["facts"].get(key, "") for node in nodes}
    if all(value == "" for value in everything.values()):
        if key in OPTIONAL:
            return []
        return [
            Check(phase="drift", name=fact.name, state="skipped", reason=ALONE if len(nodes) == 1 else "no node has it")
        ]
    checks, agreed, lacking = [], [], []
    for group, members in _voters(nodes, fact.scope):
        values = {node["host"]: everything[node["host"]] for node in members}
        unread = [host for host, value in values.items() if value is None]
        if unread and fact.lacking and len(unread) == len(values):
            lacking.append(group)
            continue
        known = {host: value for host, value in values.items() if value is not None}
        if unread:
            checks.append(
                Check(
                    phase="drift",
                    name=fact.name,
                    state="unknown",
                    hosts=tuple(unread),
                    found="not readable",
                    expected="a value that can be compared",
                    reason=f"{host_list(unread)} did not say",
                    action=f"see on the node why: {fact.command or 'verify_facts'}",
                    command=_command(fact.command, unread, inventory),
                )
            )
        if len(known) < 2 or all(value == "" for value in known.values()):
            continue
        decided, usual = _majority(known.values())
        numbers = [value for value in known.values() if isinstance(value, (int, float))]
        if fact.tolerance and len(numbers) == len(known):
            # Any that lie close together agree, though no two may be the same.
            decided, usual = True, median_low(numbers)
        odd = [host for host, value in known.items() if not _same(value, usual, fact.tolerance)]
        if not odd:
            agreed.append((group, _text(key, usual), len(known)))
        elif decided and len(odd) * 2 < len(known):
            usual_hosts = [host for host in known if host not in odd]
            found = _by_value(key, {host: known[host] for host in odd})
            checks.append(
                Check(
                    phase="drift",
                    name=fact.name,
                    state="fail",
                    hosts=tuple(odd),
                    found=found,
                    expected=f"{_text(key, usual)}, as on {host_list(usual_hosts)}",
                    reason=(
                        f"{host_list(odd)} {'differs' if len(odd) == 1 else 'differ'} from the other {len(usual_hosts)}"
                    ),
                    action=fact.action,
                    command=_command(fact.command, odd, inventory),
                    source=f"majority of {counted(len(known), 'node')}{_of(group)}",
                    data={"values": {host: known[host] for host in odd}},
                )
            )
        else:
            checks.append(
                Check(
                    phase="drift",
                    name=fact.name,
                    state="fail",
                    hosts=tuple(known),
                    found=_by_value(key, known),
                    expected="one value on all of them",
                    reason=f"they differ, and no value has a majority of {counted(len(known), 'node')}{_of(group)}",
                    action=fact.action,
                    command=_command(fact.command, list(known), inventory),
                    source="",
                )
            )
    if agreed:
        found = "; ".join(dict.fromkeys(text for _, text, _ in agreed))
        checks.append(
            Check(
                phase="drift",
                name=fact.name,
                state="pass",
                found=found,
                command=_command(fact.command, (), inventory),
                source=counted(sum(count for *_, count in agreed), "node"),
            )
        )
    elif not checks:
        checks.append(
            Check(
                phase="drift",
                name=fact.name,
                state="skipped",
                found=_by_value(key, everything),
                reason=(
                    ALONE
                    if len(nodes) == 1
                    else fact.lacking
                    if lacking
                    else "there is one node of a kind, and nothing to compare it with"
                ),
            )
        )
    return checks


def _of(group: str) -> str:
    return f" with {group}" if group else ""


def _package_difference(found: Mapping[str, str], usual: Mapping[str, str]) -> str:
    parts = [
        f"{name} {found.get(name, 'missing')} instead of {usual[name]}"
        if name in usual
        else f"{name} {found[name]} besides"
        for name in sorted({*found, *usual})
        if found.get(name) != usual.get(name)
    ]
    return ", ".join(parts[:8]) + (f", ... ({len(parts) - 8} more)" if len(parts) > 8 else "")


def _judge_environments(nodes: Sequence[Node], inventory: str) -> list[Check]:
    """Compare all packages of every environment; a missing environment is a difference, too."""
    names = sorted({name for node in nodes for name in node["environments"]})
    checks = []
    for name in names:
        has = {node["host"]: node["environments"].get(name, {}) for node in nodes}
        frozen = {host: tuple(sorted(packages.items())) for host, packages in has.items()}
        check = f"environment {name}"
        if len(frozen) < 2:
            checks.append(Check(phase="drift", name=check, state="skipped", reason=ALONE))
            continue
        decided, most = _majority(frozen.values())
        usual = dict(most)
        odd = [host for host in frozen if frozen[host] != most]
        action, command = (
            "install it anew on the odd ones: run site.yml, or the role that makes it",
            _command("", odd, inventory),
        )
        if not odd:
            found, source = counted(len(usual), "equal package"), counted(len(nodes), "node")
            checks.append(Check(phase="drift", name=check, state="pass", found=found, source=source))
        elif decided:
            texts = {host: _package_difference(has[host], usual) if has[host] else "not there" for host in odd}
            found = "; ".join(f"{text} on {host_list(hosts)}" for text, hosts in _turned(texts).items())
            checks.append(
                Check(
                    phase="drift",
                    name=check,
                    state="fail",
                    hosts=tuple(odd),
                    found=found,
                    expected=f"as on the other {len(nodes) - len(odd)}",
                    reason=f"{host_list(odd)} {'has' if len(odd) == 1 else 'have'} other packages",
                    action=action,
                    command=command,
                    source=f"majority of {counted(len(nodes), 'node')}",
                )
            )
        else:
            first = nodes[0]["host"]
            texts = {
                host: _package_difference(has[host], has[first]) for host in frozen if frozen[host] != frozen[first]
            }
            found = "; ".join(f"{text} on {host_list(hosts)}" for text, hosts in _turned(texts).items())
            checks.append(
                Check(
                    phase="drift",
                    name=check,
                    state="fail",
                    hosts=tuple(frozen),
                    found=f"against {first}: {found}",
                    expected="equal packages on all",
                    reason="they differ, and none has a majority",
                    action=action,
                    command=_command("", list(frozen), inventory),
                )
            )
    return checks


def _turned(texts: Mapping[str, str]) -> dict[str, list[str]]:
    turned: dict[str, list[str]] = {}
    for host, text in texts.items():
        turned.setdefault(text, []).append(host)
    return turned


def _judge_hardware(nodes: Sequence[Node]) -> list[Check]:
    """Name the groups; a host alone that only lacks what a larger group has may have lost it."""
    groups = groups_of(nodes)
    kinds = {node["host"]: set(node["hardware"]) for node in nodes}
    declared = {node["host"] for node in nodes if node.get("group")}
    checks = []
    for hosts in groups.values():
        host = hosts[0]
        if len(hosts) > 1 or host in declared:
            continue
        larger = [names for names in groups.values() if len(names) > 2 and kinds[host] < kinds[names[0]]]
        if larger:
            gone = ", ".join(sorted(kinds[larger[0][0]] - kinds[host]))
            checks.append(
                Check(
                    phase="drift",
                    name="hardware",
                    state="unknown",
                    hosts=(host,),
                    found=f"no {gone} (PCI)",
                    expected=f"as on {host_list(larger[0])}",
                    reason=f"{host} is another kind of node, or has lost a device",
                    action="look for the device (lspci -nn), or declare the kind of node: verify_group",
                    command="",
                    source=f"PCI of {host_list(larger[0])}",
                )
            )
    if not checks:
        found = "; ".join(f"{len(hosts)} with {name}" for name, hosts in groups.items())
        state, reason = ("skipped", ALONE) if len(nodes) == 1 else ("pass", "")
        checks.append(
            Check(phase="drift", name="hardware", state=state, found=found, reason=reason, data={"groups": groups})
        )
    return checks


def _judge_names(nodes: Sequence[Node]) -> list[Check]:
    """Find host names that several nodes have: frameworks tell nodes apart by them."""
    if len(nodes) == 1:
        return [Check(phase="drift", name="host names", state="skipped", reason=ALONE)]
    holders: dict[str, list[str]] = {}
    for node in nodes:
        holders.setdefault(node["hostname"].split(".")[0].lower(), []).append(node["host"])
    twice = {name: hosts for name, hosts in holders.items() if len(hosts) > 1}
    if not twice:
        return [Check(phase="drift", name="host names", state="pass", found=counted(len(nodes), "different name"))]
    return [
        Check(
            phase="drift",
            name="host names",
            state="fail",
            hosts=tuple(hosts),
            found=f"{name} on {host_list(hosts)}",
            expected="a different host name on every node",
            reason="frameworks take nodes with one name for one node",
            action="rename all but one (hostnamectl set-hostname)",
        )
        for name, hosts in twice.items()
    ]


def judge(nodes: Sequence[Node], *, ignore: Sequence[str] = (), inventory: str = "") -> list[Check]:
    """Compare the nodes in all facts but those to `ignore` (names of facts or of environments)."""
    if not nodes:
        return [
            Check(
                phase="drift",
                name="facts",
                state="unknown",
                reason="no node said anything",
                action="see the phase reach",
            )
        ]
    checks = _judge_hardware(nodes) + _judge_names(nodes)
    for key, fact in FACTS.items():
        if key not in ignore:
            checks += _judge_fact(key, fact, nodes, inventory)
    return checks + [
        check for check in _judge_environments(nodes, inventory) if check.name.partition(" ")[2] not in ignore
    ]


def verify(
    results: Mapping[str, Mapping[str, Any]],
    *,
    groups: Mapping[str, str],
    ignore: Sequence[str] = (),
    max_clock_offset: float = 1.0,
    inventory: str = "",
) -> tuple[list[Check], dict[str, list[str]]]:
    """Compare what all nodes said, by host, also what they said in place of an answer; `groups` are the declared ones.

    Returns the checks and the hosts by the kinds of hardware that they were compared in.
    """
    good, _ = answers(results, "facts")
    nodes = [{**node, "host": host, "group": groups.get(host, "")} for host, node in good.items()]
    checks = judge(nodes, ignore=ignore, inventory=inventory)
    # Who did not answer at all is a check of the phase reach.
    read, _ = answers({host: node.get("clock", {}) for host, node in good.items()}, "offset_s")
    clocks = {host: read.get(host) for host in good}
    if clocks:
        checks += judge_clocks(clocks, max_clock_offset, inventory)
    return checks, groups_of(nodes)
