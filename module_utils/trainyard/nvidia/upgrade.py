# SPDX-License-Identifier: Apache-2.0
"""An upgrade of the NVIDIA driver over many nodes: who goes first, how a node did, what it goes back to. Pure.

A node is what library/nvidia_driver_state says of it (`driver`), what driver_plan.py plans for it (`plan`), the role's
variables (`wanted`), by what it is judged (`judged`), who uses it (`uses`), whether it has a kubelet (`kubernetes`) and
which of its packages no list offers any longer (`lacking`). `checks` are those of the devices of all nodes
(trainyard/verify/devices.py). `parts` are what else uses the driver: CUDA programs, NCCL, cuDNN. What is kept of a node
between runs is its entry in the table: `state`, `why`, `target`, and `before`, what it had.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, counted, host_list
from ..findings.visible import visible
from . import driver as rules
from .cuda_verify import works
from .driver_plan import installer_arguments
from .library import LIBRARIES

Node = Mapping[str, Any]
Entry = Mapping[str, Any]

# Begun and not ended well: these go before all others in the next run. The first three are left by a run that was
# interrupted.
UNDONE = ("installing", "rebooting", "going back", "reboot due", "rolled back", "failed")
# In these a node may have half of something: what it had before stands in its entry.
HALFWAY = ("installing", "rebooting", "going back", "reboot due", "failed")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_WHY = 300


def target_of(wanted: Node) -> dict[str, str]:
    """Return the driver that a node is to have: provider, version, flavour."""
    return {name: str(wanted[name]) for name in ("provider", "version", "flavour")}


def had(state: Node, record: str = "", parts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a node goes back to; `record` is what is written down there of its packages, `parts` what it runs."""
    names = ("provider", "version", "flavour", "packages", "held", "runfile")
    return {**{name: state[name] for name in names}, "record": record, "parts": dict(parts or {})}


def parts(programs: Mapping[str, Any], libraries: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a node uses its driver, each with what is wrong with it, or "" where it works.

    `programs`: what the role cuda_toolkit says of each toolkit's program, by home; `libraries`: what the role
    nvidia_library reads, by name. Where no GPU is to be, a program that ends at the missing device works.
    """
    found = {
        f"CUDA program of {home}": "" if works(program) else program["detail"] for home, program in programs.items()
    }
    for name, state in libraries.items():
        if state["kind"] == "ours":
            found[LIBRARIES[name].title] = state["error"] or state["unloaded"]
    return {name: " ".join(fault.split())[:_LONGEST_WHY] for name, fault in found.items()}


def _lost(before: Node, now: Mapping[str, str]) -> list[str]:
    """Return what worked with the driver of before and does not now; only that is a fair judge of the new one."""
    worked = [name for name, fault in before.get("parts", {}).items() if not fault]
    lost = {name: now.get(name, "it is no longer there") for name in worked}
    return [f"{name}: {fault}" for name, fault in lost.items() if fault]


def _untried(before: Node) -> str:
    """Say what was no judge of the new driver."""
    names = [name for name, fault in before.get("parts", {}).items() if fault]
    return f"without {host_list(names, 4)}: failed before, too" if names else ""


def has_target(node: Node, checks: Sequence[Node]) -> bool:
    """Tell whether a node has what it is to have, and nothing is wrong with it."""
    state, target = node["driver"], target_of(node["wanted"])
    same = (state["provider"], state["version"]) == (target["provider"], target["version"])
    well = not rules.judge(state, node["judged"]) and not device_faults(node, checks)
    return same and not node["plan"]["step"] and well


def batch_size(serial: Any, nodes: int) -> int | None:
    """Return how many nodes a batch has: of a number, or a part such as 25%, at least one; None where it is neither."""
    match = re.fullmatch(r"\s*(\d+)\s*(%?)\s*", str(serial))
    if match is None or isinstance(serial, bool) or int(match[1]) < 1 or (match[2] and int(match[1]) > 100):
        return None
    return max(1, nodes * int(match[1]) // 100) if match[2] else int(match[1])


def _entry(node: Node, kept: Entry, checks: Sequence[Node]) -> dict[str, Any]:
    """Return how a node stands before anything is done."""
    target = target_of(node["wanted"])
    same = kept.get("target") == target
    entry: dict[str, Any] = {"state": "waiting", "why": "", "target": target}
    if same and kept.get("state") in UNDONE:
        entry.update(state=kept["state"], why=str(kept.get("why", "")))
    if same and kept.get("state") in HALFWAY and kept.get("before"):
        entry["before"] = kept["before"]
    if node["plan"]["action"] == "skip":
        return {**entry, "state": "left out", "why": "it is declared to have no GPU"}
    # What worked before it was begun is tried again first.
    tried = not any(not fault for fault in entry.get("before", {}).get("parts", {}).values())
    if tried and has_target(node, checks):
        return {"state": "upgraded", "why": "", "target": target}
    return entry


def _target_findings(nodes: Sequence[Node]) -> Iterator[Finding]:
    for node in nodes:
        wanted = node["wanted"]
        if wanted["provider"] == "none" or wanted["state"] == "absent":
            yield Finding(
                "nvidia_driver_provider",
                "nvidia_driver_state: absent" if wanted["state"] == "absent" else "none",
                "distro, network_repo or runfile, from where the new driver comes",
                "set nvidia_stack, or nvidia_driver_provider and nvidia_driver_version",
                host=node["driver"]["host"],
            )
        elif not wanted["version"]:
            yield Finding(
                "nvidia_driver_version",
                "none" + (f", only branch {wanted['branch']}" if wanted["branch"] else ""),
                "the exact version that all nodes are to have, as a branch has another newest one tomorrow",
                "set nvidia_driver_version, or nvidia_stack_overrides: {driver: {version: ...}}",
                host=node["driver"]["host"],
            )


def _setting_findings(settings: Node, hosts: Sequence[str]) -> Iterator[Finding]:
    for name in settings["canary"]:
        if name not in hosts:
            yield Finding(
                "nvidia_driver_upgrade_canary",
                str(name),
                f"hosts of the groups nvidia and compute that --limit leaves: {host_list(hosts)}",
                "correct nvidia_driver_upgrade_canary, or --limit",
            )
    if batch_size(settings["serial"], 1) is None:
        yield Finding(
            "nvidia_driver_upgrade_serial",
            repr(settings["serial"]),
            "nodes of one batch: a number from 1 on, or a part of all such as 25%",
            "correct nvidia_driver_upgrade_serial",
        )
    for one in settings["runfiles"]:
        where = [name for name in ("file", "url") if one.get(name)]
        if not (rules.VERSION.fullmatch(str(one.get("version", ""))) and _SHA256.fullmatch(str(one.get("sha256", "")))):
            where = []
        if len(where) != 1:
            yield Finding(
                "nvidia_driver_upgrade_runfiles",
                ", ".join(f"{name}: {one[name]}" for name in sorted(one)) or "an empty entry",
                "version, sha256 (64 hexadecimal digits), and file (on the controller) or url",
                "correct nvidia_driver_upgrade_runfiles",
            )


def _way_back(node: Node, before: Node, settings: Node) -> Iterator[Finding]:
    """What a node has now must be there to be had again."""
    action = "; or go without a way back: nvidia_driver_upgrade_without_way_back: true"
    if before["provider"] == "runfile" and not _runfile(before, settings["runfiles"]):
        yield Finding(
            "way back",
            f"driver {before['runfile']} of a runfile, and nothing says where that is",
            "an entry of nvidia_driver_upgrade_runfiles with this version",
            f"add it: version, sha256, and file or url{action}",
            host=node["driver"]["host"],
        )
    elif node["lacking"] and before["provider"] != "none":
        yield Finding(
            "way back",
            f"no package list offers {host_list(node['lacking'])} any longer",
            "a repository or mirror that still has what the node has now",
            f"`apt-get update`, or bring them into the mirror{action}",
            host=node["driver"]["host"],
        )


def _runfile(before: Node, runfiles: Sequence[Node]) -> dict[str, str]:
    for one in runfiles:
        if str(one.get("version")) == before["runfile"]:
            return {name: str(one.get(name) or "") for name in ("version", "file", "url", "sha256")}
    return {}


def device_faults(node: Node, checks: Sequence[Node]) -> list[str]:
    """Return the checks of devices that fail on a node, in words; none where it is to have no GPU, as an image."""
    if not node["judged"]["gpus"]:
        return []
    host = node["driver"]["host"]
    return [f"{one['name']}: {one['found']}" for one in checks if one["state"] == "fail" and host in one["hosts"]]


def _unwell(node: Node, checks: Sequence[Node]) -> Iterator[Finding]:
    for text in device_faults(node, checks):
        yield Finding(
            "devices",
            text,
            "devices that are well, so that a fault after the upgrade is one of the upgrade",
            "repair it first, or leave the node out: --limit",
            host=node["driver"]["host"],
        )


def _cordoned(node: Node, settings: Node) -> Iterator[Finding]:
    """Kubernetes gives a node pods at any moment; the cluster's owner alone may keep it from that."""
    if node["kubernetes"] and not settings["cordoned"]:
        host = node["driver"]["host"]
        yield Finding(
            "Kubernetes",
            "a kubelet runs, and nothing says that this node gets no pods meanwhile",
            "a node that is cordoned, without pods that use its GPUs",
            (
                "kubectl cordon NODE, kubectl drain NODE --ignore-daemonsets, then set "
                "nvidia_driver_upgrade_cordoned: true; afterwards kubectl uncordon NODE"
            ),
            host=host,
        )


def _batches(entries: Mapping[str, Entry], free: Sequence[str], settings: Node) -> list[list[str]]:
    """Put the nodes that are free into an order: canaries, what was begun and did not end well, the others."""
    begun = [host for host in free if entries[host]["state"] in UNDONE]
    others = [host for host in free if host not in begun]
    first = [host for host in settings["canary"] if host in free]
    states = {entry["state"] for entry in entries.values()}
    verified = "upgraded" in states and states.isdisjoint(UNDONE)
    if not first:
        # A node that failed shows whether the fault is gone; without one, and after one that was verified, all may go.
        first = begun[:1] or ([] if verified else others[:1])
    rest = [host for host in [*begun, *others] if host not in first]
    size = batch_size(settings["serial"], len(free)) or 1
    return [*([first] if first else []), *(rest[at : at + size] for at in range(0, len(rest), size))]


def plan(nodes: Sequence[Node], settings: Node, kept: Mapping[str, Entry]) -> dict[str, Any]:
    """Plan an upgrade: `table` (entries by host), `batches`, and `findings`, with which nothing may be touched.

    `settings`: `canary` (hosts), `serial`, `busy` (skip or wait), `runfiles`, `without_way_back`, `cordoned`,
    `checks`.
    """
    hosts = [str(node["driver"]["host"]) for node in nodes]
    findings = [*_setting_findings(settings, hosts)]
    meant = [node for node in nodes if node["plan"]["action"] != "skip"]
    findings += _target_findings(meant)
    findings += [
        Finding(
            "nvidia_driver_upgrade_canary",
            "a node that is declared to have no GPU",
            "a node that gets the driver",
            "name another one",
            host=host,
        )
        for host, node in zip(hosts, nodes)
        if host in settings["canary"] and node not in meant
    ]
    entries = {host: _entry(node, kept.get(host, {}), settings["checks"]) for host, node in zip(hosts, nodes)}
    to_do = {host: node for host, node in zip(hosts, nodes) if entries[host]["state"] not in ("upgraded", "left out")}
    # With nothing to aim at nobody can be said to have it.
    if any(finding.check.startswith("nvidia_driver_") and finding.host for finding in findings):
        return {"table": entries, "batches": [], "findings": [finding.as_dict() for finding in findings]}
    used = {host: node["uses"] for host, node in to_do.items() if node["uses"]}
    free = [host for host in to_do if host not in used or settings["busy"] == "wait"]
    for host, uses in used.items():
        state = entries[host]["state"]
        entries[host]["why"] = ", ".join(uses)[:_LONGEST_WHY]
        # What did not end well stays known as that: it must not let the others go before it was tried again.
        entries[host]["state"] = state if state in UNDONE else "in use"
    if to_do and not free:
        findings += _in_use(used, "an idle node to begin with")
    elif settings["busy"] != "wait":
        canaries = {host: uses for host, uses in used.items() if host in settings["canary"]}
        findings += _in_use(canaries, "a canary that nobody uses")
    for host in free:
        # Of one that has begun, the upgrade may be the reason.
        if "before" not in entries[host]:
            findings += _unwell(to_do[host], settings["checks"])
        findings += _cordoned(to_do[host], settings)
        if not settings["without_way_back"]:
            before = entries[host].get("before") or to_do[host]["driver"]
            findings += _way_back(to_do[host], before, settings)
    return {
        "table": entries,
        "batches": [] if findings else _batches(entries, free, settings),
        "findings": [finding.as_dict() for finding in findings],
    }


def _in_use(used: Mapping[str, Sequence[str]], expected: str) -> Iterator[Finding]:
    for host, uses in used.items():
        yield Finding(
            "in use",
            ", ".join(uses),
            expected,
            "wait until they are over, end them, or have this wait for them: nvidia_driver_upgrade_busy: wait",
            host=host,
        )


def settle(node: Node) -> dict[str, Any]:
    """Judge a node after its installation, and its reboot where that was due: its `state`, `why` and `back`.

    `node`: `driver` as it is now, `judged`, `checks`, `parts`, `failure` (what stopped the installation, or ""),
    `findings` (the records of that failure),
    `reboots` (whether they are allowed), `before`, `wanted`, `runfiles`, `gpus`. `back` is empty where the node stays
    as it is, else what return_plan returns.
    """
    found = rules.judge(node["driver"], node["judged"])
    faults = [*device_faults(node, node["checks"]), *_lost(node["before"], node["parts"])]
    failure = node["failure"]
    # Findings that name others: the installation ended for all nodes of the batch, as it could not go on with one.
    if node["findings"] and all(each["host"] != node["driver"]["host"] for each in node["findings"]):
        failure = ""
    if not failure and not faults:
        if not found:
            return {"state": "upgraded", "why": _untried(node["before"]), "back": {}}
        if not node["reboots"] and all(one.check == "reboot due" for one in found):
            return {"state": "reboot due", "why": "; ".join(one.found for one in found), "back": {}}
    texts = [*([failure] if failure else [f"{one.check}: {one.found}" for one in found]), *faults]
    why = " ".join("; ".join(texts).split())
    return {"state": "going back", "why": why[:_LONGEST_WHY], "back": return_plan(node)}


def return_plan(node: Node) -> dict[str, Any]:
    """Say how a node gets what it had: `provider`, `packages`, `held`, `record`, what goes first (`remove`), `runfile`.

    `runfile` has version, file, url, sha256 and `arguments`, or is empty.
    """
    before, now = node["before"], node["driver"]
    runfile: dict[str, Any] = {}
    if before["provider"] == "runfile" and now["runfile"] != before["runfile"]:
        runfile = dict(_runfile(before, node["runfiles"]))
    if runfile:
        flavour = before["flavour"] or node["wanted"]["flavour"]
        wanted = {**node["wanted"], "version": before["runfile"], "flavour": flavour}
        runfile["arguments"] = installer_arguments(wanted, now, bool(node["gpus"]))
    foreign = now["provider"] not in (before["provider"], "none")
    return {
        **{name: before[name] for name in ("provider", "packages", "held", "record")},
        "remove": now["provider"] if foreign else "",
        "runfile": runfile,
    }


def came_back(node: Node) -> dict[str, str]:
    """Judge a node that was brought back: `state`, `rolled back` where it has what it had, else `failed`; and `why`.

    `node`: `before`, `driver` as it is now, `why` it went back, `failure`: what stopped it on the way, or "".
    """
    before, now, why = node["before"], node["driver"], node["why"]
    differs = [
        f"{name} {now['packages'].get(name, 'is missing')}, had {version}"
        for name, version in before["packages"].items()
        if now["packages"].get(name) != version
    ]
    differs += [f"{name} is new" for name in now["packages"] if name not in before["packages"]]
    if now["runfile"] != before["runfile"]:
        differs.append(f"runfile {now['runfile'] or 'none'}, had {before['runfile'] or 'none'}")
    differs += [f"{name} is half installed" for name in now["broken"]]
    if differs:
        left = "; ".join([*filter(None, [" ".join(node["failure"].split())[:_LONGEST_WHY]]), host_list(differs, 4)])
        return {"state": "failed", "why": f"{why}; it was not brought back: {left}"}
    due = f"; reboot due: {now['reboot_due'][0]}" if now["reboot_due"] else ""
    return {"state": "rolled back", "why": f"{why}{due}"}


def stops(entries: Mapping[str, Entry]) -> list[Finding]:
    """Return why an upgrade ends with these nodes of a batch: each of them that is not as it is to be."""
    actions = {
        "reboot due": "reboot it, or set nvidia_driver_reboot: true; then run this again, which goes on from here",
        "rolled back": "find out why, then run this again, which begins with this node",
        "failed": "repair it by hand; it is no longer what it was. Then run this again, which begins with this node",
        "in use": "run this again when nobody uses it, or set nvidia_driver_upgrade_busy: wait",
    }
    return [
        Finding(
            entry["state"],
            entry["why"] or "nothing was said",
            "the new driver, verified",
            actions.get(entry["state"], "see the table, and run this again"),
            host=host,
        )
        for host, entry in entries.items()
        if entry["state"] != "upgraded"
    ]


def table_text(
    table: Mapping[str, Entry], batches: Sequence[Sequence[str]] = (), hosts: Collection[str] | None = None
) -> str:
    """Write the table for people: a line for each node, those of one batch together, and a line that counts all.

    With `hosts` only these have a line.
    """
    number = {host: str(at) for at, batch in enumerate(batches, start=1) for host in batch}
    shown = [host for host in table if hosts is None or host in hosts]
    order = sorted(shown, key=lambda host: int(number.get(host, "0")) or len(number) + 1)
    rows = [("node", "batch", "state", "target", "why")]
    for host in order:
        entry = table[host]
        target = entry.get("target", {})
        aim = f"{target.get('version', '')} ({target.get('provider', '')})"
        # Nodes have said it, and whoever names processes there.
        why = visible(" ".join(str(entry["why"]).split()))
        rows.append((host, number.get(host, "-"), entry["state"], aim, why))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows]
    states = [entry["state"] for entry in table.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return "\n".join([*lines, f"{counted(len(states), 'node')}: {counts or 'none'}"])
