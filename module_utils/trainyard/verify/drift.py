# SPDX-License-Identifier: Apache-2.0
"""Find drift: differences between nodes that should be equal, by majority vote.

All nodes are compared for settings that a job needs to be equal (frameworks, MPI, MTU), nodes with the same kinds of
hardware for the rest (driver, firmware, kernel). A value that more than half of the nodes have is the usual one, and
nodes with another value are odd. Without such a value there is drift, but no odd node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import median_low
from typing import Any

from ..base.adhoc import ansible, shell
from ..base.checks import Check
from ..base.findings import counted, grouped, host_list, some_of
from ..base.majority import usual
from .drift_clocks import check_clocks
from .drift_facts import ALONE, FACTS, Fact
from .reporting_hosts import answers

# The answer of a node (facts.read_machine): host, hostname, facts, environments, hardware, network; `group` where
# it is declared.
Node = Mapping[str, Any]

_UNITS = {"memory_mib": " MiB", "nic_speed": " Mb/s"}
_NO_PEER = "there is one node of a kind, and nothing to compare it with"
_MAX_PACKAGES = 8
drift = partial(Check, "drift")


def groups_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return hosts by group: the declared one, or the kinds of hardware that were found."""
    return grouped(
        (node.get("group") or ", ".join(node["hardware"]) or "no adapter of its own", node["host"]) for node in nodes
    )


def _text(key: str, value: Any) -> str:
    if value is None:
        return "not readable"
    return "none" if value == "" else f"{value}{_UNITS.get(key, '')}"


def _majority(values: Iterable[Any]) -> tuple[bool, Any]:
    """Return whether more than half have the most frequent value, and that value."""
    every = list(values)
    most = usual(every, None)
    return every.count(most) * 2 > len(every), most


def _same(value: Any, usual: Any, tolerance: float) -> bool:
    if tolerance and isinstance(value, (int, float)) and isinstance(usual, (int, float)):
        return abs(value - usual) <= tolerance * abs(usual)
    return bool(value == usual)


def _by_text(texts: Mapping[str, str]) -> str:
    """Write each text with its hosts, the most frequent text first."""
    hosts = grouped((text, host) for host, text in texts.items())
    ordered = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{text} on {host_list(names)}" for text, names in ordered)


def _command(shown: str, hosts: Sequence[str], inventory: str) -> str:
    return shell(hosts, inventory, shown) if shown else ansible(hosts, inventory, "verify_facts", become=True)


def _difference(
    key: str, fact: Fact, group: str, values: Mapping[str, Any], inventory: str
) -> tuple[str, Check | None]:
    """Return the usual value as text, and the check of hosts that differ, None where they agree."""
    decided, most = _majority(values.values())
    numbers = [value for value in values.values() if isinstance(value, (int, float))]
    if fact.tolerance and len(numbers) == len(values):
        # Numbers that lie close together agree, even if no two are equal.
        decided, most = True, median_low(numbers)
    odd = {host: value for host, value in values.items() if not _same(value, most, fact.tolerance)}
    text = _text(key, most)
    if not odd:
        return text, None
    voters = counted(len(values), "node") + (f" with {group}" if group else "")
    others = [host for host in values if host not in odd]
    if decided and len(odd) < len(others):
        expected, source, data = f"{text}, as on {host_list(others)}", f"majority of {voters}", {"values": odd}
        reason = f"{'differs' if len(odd) == 1 else 'differ'} from the other {len(others)}"
    else:
        odd, expected, source, data = dict(values), "one value on all of them", "", {}
        reason = f"no value has a majority of {voters}"
    found = _by_text({host: _text(key, value) for host, value in odd.items()})
    command = _command(fact.command, list(odd), inventory)
    return text, drift(fact.name, "fail", tuple(odd), found, expected, reason, fact.action, command, source, data)


def _check_fact(key: str, fact: Fact, nodes: Sequence[Node], inventory: str) -> list[Check]:
    """Compare one fact in each group of hosts that can be compared."""
    check = partial(drift, fact.name)
    values = {node["host"]: node["facts"].get(key, "") for node in nodes}
    alone = ALONE if len(nodes) == 1 else ""
    if all(value == "" for value in values.values()):
        return [] if fact.optional else [check("skipped", reason=alone or "not on any node")]
    checks, agreed, compared, no_value = [], [], 0, False
    for group, hosts in groups_of(nodes).items() if fact.scope == "hardware" else [("", list(values))]:
        unread = [host for host in hosts if values[host] is None]
        if fact.unreadable and len(unread) == len(hosts):
            no_value = True
            continue
        if unread:
            expected, reason = "a value that can be compared", "the value could not be read"
            action = f"see on the node why: {fact.command or 'verify_facts'}"
            command = _command(fact.command, unread, inventory)
            checks.append(check("unknown", tuple(unread), "not readable", expected, reason, action, command))
        readable = {host: values[host] for host in hosts if values[host] is not None}
        if len(readable) < 2 or all(value == "" for value in readable.values()):
            continue
        usual, difference = _difference(key, fact, group, readable, inventory)
        if difference:
            checks.append(difference)
        else:
            agreed.append(usual)
            compared += len(readable)
    if agreed:
        found, command = "; ".join(dict.fromkeys(agreed)), _command(fact.command, (), inventory)
        checks.append(check("pass", found=found, command=command, source=counted(compared, "node")))
    elif not checks:
        found = _by_text({host: _text(key, value) for host, value in values.items()})
        checks.append(check("skipped", found=found, reason=alone or (fact.unreadable if no_value else _NO_PEER)))
    return checks


def _package_difference(found: Mapping[str, str], usual: Mapping[str, str]) -> str:
    if not found:
        return "missing"
    parts = [
        f"{name} {found.get(name, 'missing')} instead of {usual[name]}"
        if name in usual
        else f"{name} {found[name]} in addition"
        for name in sorted({*found, *usual})
        if found.get(name) != usual.get(name)
    ]
    return ", ".join(some_of(parts, _MAX_PACKAGES))


def _check_environment(name: str, nodes: Sequence[Node], inventory: str) -> Check:
    """Compare all packages of an environment; a missing environment is a difference, too."""
    packages = {node["host"]: node["environments"].get(name, {}) for node in nodes}
    check = partial(drift, f"environment {name}")
    if len(nodes) < 2:
        return check("skipped", reason=ALONE)
    decided, pairs = _majority(tuple(sorted(each.items())) for each in packages.values())
    most = dict(pairs)
    odd = [host for host in packages if packages[host] != most]
    if not odd:
        return check("pass", found=counted(len(most), "equal package"), source=counted(len(nodes), "node"))
    action = "install it anew on the odd nodes: run site.yml, or the role that makes it"
    if decided:
        found = _by_text({host: _package_difference(packages[host], most) for host in odd})
        expected, source = f"as on the other {len(nodes) - len(odd)}", f"majority of {counted(len(nodes), 'node')}"
        reason = f"{'has' if len(odd) == 1 else 'have'} other packages"
    else:
        odd, (first, first_packages) = list(packages), next(iter(packages.items()))
        differences = {
            host: _package_difference(each, first_packages) for host, each in packages.items() if each != first_packages
        }
        found = f"compared with {first}: {_by_text(differences)}"
        expected, source, reason = "equal packages on all nodes", "", "no set of packages has a majority"
    return check("fail", tuple(odd), found, expected, reason, action, _command("", odd, inventory), source)


def _check_hardware(nodes: Sequence[Node]) -> list[Check]:
    """Name the groups; a single host that only lacks a device of a larger group may have lost it."""
    groups = groups_of(nodes)
    kinds = {node["host"]: set(node["hardware"]) for node in nodes}
    declared = {node["host"] for node in nodes if node.get("group")}
    checks = []
    for host, *more in groups.values():
        larger = [names for names in groups.values() if len(names) > 2 and kinds[host] < kinds[names[0]]]
        if more or host in declared or not larger:
            continue
        lost, others = ", ".join(sorted(kinds[larger[0][0]] - kinds[host])), host_list(larger[0])
        reason = "it is another kind of node, or has lost a device"
        action = "look for the device (lspci -nn), or declare the kind of node: verify_group"
        found, expected, source = f"no {lost} (PCI)", f"as on {others}", f"PCI of {others}"
        checks.append(drift("hardware", "unknown", (host,), found, expected, reason, action, source=source))
    if checks:
        return checks
    found = "; ".join(f"{len(hosts)} with {name}" for name, hosts in groups.items())
    state, reason = ("skipped", ALONE) if len(nodes) == 1 else ("pass", "")
    return [drift("hardware", state, found=found, reason=reason, data={"groups": groups})]


def _check_names(nodes: Sequence[Node]) -> list[Check]:
    """Find host names that several nodes have: frameworks distinguish nodes by them."""
    if len(nodes) == 1:
        return [drift("host names", "skipped", reason=ALONE)]
    holders = grouped((node["hostname"].split(".")[0].lower(), node["host"]) for node in nodes)
    expected, reason = "a different host name on every node", "frameworks take nodes with one name for one node"
    action = "rename all but one (hostnamectl set-hostname)"
    checks = [
        drift("host names", "fail", tuple(hosts), f"{name} on {host_list(hosts)}", expected, reason, action)
        for name, hosts in holders.items()
        if len(hosts) > 1
    ]
    return checks or [drift("host names", "pass", found=counted(len(nodes), "different name"))]


def check_nodes(nodes: Sequence[Node], *, ignore: Sequence[str] = (), inventory: str = "") -> list[Check]:
    """Compare the nodes in all facts except those in `ignore` (names of facts or of environments)."""
    if not nodes:
        return [drift("facts", "unknown", reason="no node answered", action="see the phase reach")]
    checks = _check_hardware(nodes) + _check_names(nodes)
    for key, fact in FACTS.items():
        if key not in ignore:
            checks += _check_fact(key, fact, nodes, inventory)
    environments = sorted({name for node in nodes for name in node["environments"]})
    return checks + [_check_environment(name, nodes, inventory) for name in environments if name not in ignore]


def verify(
    results: Mapping[str, Mapping[str, Any]],
    *,
    groups: Mapping[str, str],
    ignore: Sequence[str] = (),
    max_clock_offset: float = 1.0,
    inventory: str = "",
) -> tuple[list[Check], dict[str, list[str]]]:
    """Return the checks, and the hosts by the kinds of hardware that they were compared in.

    `results` are the nodes' answers by host, failures among them; `groups` are the declared ones.
    """
    good, _ = answers(results, "facts")
    nodes = [{**node, "host": host, "group": groups.get(host, "")} for host, node in good.items()]
    checks = check_nodes(nodes, ignore=ignore, inventory=inventory)
    # The phase reach has a check for nodes without any answer.
    read, _ = answers({host: node.get("clock", {}) for host, node in good.items()}, "offset_s")
    if good:
        checks += check_clocks({host: read.get(host) for host in good}, max_clock_offset, inventory)
    return checks, groups_of(nodes)
