# SPDX-License-Identifier: Apache-2.0
"""The upgrade of the NVIDIA driver on many nodes: the order, the result of each node, and the way back.

A node has its `driver` (library/nvidia_driver), its `plan` (driver_plan.py), the role's `settings`, what is
`expected` of the driver, its users (`uses`), whether it runs a kubelet (`kubernetes`), and the packages that no list
offers any longer (`missing`). `checks` are those of the devices of all nodes (trainyard/verify/devices.py). `parts` are
other users of the driver: CUDA programs, NCCL, cuDNN. A node's entry in the table stays between runs: `state`, `why`,
`target`, and `before`, the driver it had.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding, counted, host_list
from ..base.shapes import Each, Shape
from ..base.visible import visible
from ..software.requirements import is_sha256
from . import driver
from .cuda_verify import works
from .driver_plan import installer_arguments
from .library import LIBRARIES

Node = Mapping[str, Any]
Entry = Mapping[str, Any]

# Started and not successful: the next run begins with these. The first three are left by a run that was interrupted.
UNDONE = ("installing", "rebooting", "going back", "reboot due", "rolled back", "failed")
# In these states a node may be half installed; its entry has what it had before.
HALFWAY = ("installing", "rebooting", "going back", "reboot due", "failed")
# Upper bound for a reason in the table, in characters.
_MAX_WHY = 300
_TEXTS = Each(str)
_BEFORE = {
    **dict.fromkeys(("provider", "version", "flavour", "runfile", "record"), str),
    "packages": _TEXTS,
    "held": [str],
    "?parts": _TEXTS,
}
# The content of table.json.
TABLE: Shape = {"nodes": Each({"state": str, "why": str, "?since": str, "?target": _TEXTS, "?before": _BEFORE})}
_WAY_BACK = ", or set nvidia_driver_upgrade_without_way_back: true"


def _target(node: Node) -> dict[str, str]:
    return {name: str(node["settings"][name]) for name in ("provider", "version", "flavour")}


def _host(node: Node) -> str:
    return str(node["driver"]["host"])


def previous(state: Node, record: str = "", parts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a node goes back to; `record`: the file that lists its packages, `parts`: the users of the driver."""
    names = ("provider", "version", "flavour", "packages", "held", "runfile")
    return {**{name: state[name] for name in names}, "record": record, "parts": dict(parts or {})}


def parts(programs: Mapping[str, Any], libraries: Mapping[str, Any]) -> dict[str, str]:
    """Return the users of a node's driver with their error, or "" for those that work.

    `programs`: results of the role cuda_toolkit by home; `libraries`: states of the role nvidia_library by name.
    Without a GPU on purpose, a program that ends at the missing device works.
    """
    found = {f"CUDA program of {home}": "" if works(each) else each["detail"] for home, each in programs.items()}
    ours = {name: state for name, state in libraries.items() if state["kind"] == "ours"}
    found.update({LIBRARIES[name].title: state["error"] or state["unloaded"] for name, state in ours.items()})
    return {name: " ".join(error.split())[:_MAX_WHY] for name, error in found.items()}


def _parts_before(entry: Entry, failed: bool) -> list[str]:
    """Return the users of the previous driver that worked or failed with it."""
    return [name for name, error in entry.get("parts", {}).items() if bool(error) == failed]


def _has_target(node: Node, checks: Sequence[Node]) -> bool:
    state, target = node["driver"], _target(node)
    same = (state["provider"], state["version"]) == (target["provider"], target["version"])
    healthy = not driver.check(state, node["expected"]) and not _device_errors(node, checks)
    return same and not node["plan"]["step"] and healthy


def batch_size(serial: Any, nodes: int) -> int | None:
    """Return the size of a batch from a number or a percentage (at least one), None for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*(%?)\s*", str(serial))
    if match is None or isinstance(serial, bool) or int(match[1]) < 1 or (match[2] and int(match[1]) > 100):
        return None
    return max(1, nodes * int(match[1]) // 100) if match[2] else int(match[1])


def _entry(node: Node, old: Entry, checks: Sequence[Node]) -> dict[str, Any]:
    """Return a node's entry before anything is changed."""
    target = _target(node)
    same = old.get("target") == target
    entry: dict[str, Any] = {"state": "waiting", "why": "", "target": target}
    if same and old.get("state") in UNDONE:
        entry.update(state=old["state"], why=str(old.get("why", "")))
    if same and old.get("state") in HALFWAY and old.get("before"):
        entry["before"] = old["before"]
    if node["plan"]["action"] == "skip":
        return {**entry, "state": "left out", "why": "it is declared to have no GPU"}
    # What worked before the upgrade is tried again first.
    if not _parts_before(entry.get("before", {}), failed=False) and _has_target(node, checks):
        return {"state": "upgraded", "why": "", "target": target}
    return entry


def _target_finding(node: Node) -> Finding | None:
    settings = node["settings"]
    if settings["provider"] == "none" or settings["state"] == "absent":
        found, expected = "none", "the new driver's provider: distro, network_repo or runfile"
        action = "set nvidia_stack, or nvidia_driver_provider, and the exact version (nvidia_driver_version)"
        if settings["state"] == "absent":
            found, action = "nvidia_driver_state: absent", "leave nvidia_driver_state out"
        return Finding("nvidia_driver_provider", found, expected, action, host=_host(node))
    if not settings["version"]:
        found = "none" + (f", only branch {settings['branch']}" if settings["branch"] else "")
        expected = "one exact version for all nodes (the newest of a branch changes)"
        action = "set nvidia_driver_version, or nvidia_stack_overrides: {driver: {version: ...}}"
        return Finding("nvidia_driver_version", found, expected, action, host=_host(node))
    return None


def _setting_findings(settings: Node, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    for name in settings["canary"]:
        check = "nvidia_driver_upgrade_canary"
        if name not in nodes:
            expected = f"hosts of the groups nvidia and compute within --limit: {host_list(list(nodes))}"
            yield Finding(check, str(name), expected, "correct nvidia_driver_upgrade_canary, or --limit")
        elif nodes[name]["plan"]["action"] == "skip":
            found = "a node that is declared to have no GPU"
            yield Finding(check, found, "a node that gets the driver", "name another one", host=name)
    if batch_size(settings["serial"], 1) is None:
        check, expected = "nvidia_driver_upgrade_serial", "a number from 1 on, or a percentage such as 25%"
        yield Finding(check, repr(settings["serial"]), expected, f"correct {check}")
    for one in settings["runfiles"]:
        exact = driver.VERSION.fullmatch(str(one.get("version", ""))) and is_sha256(str(one.get("sha256", "")))
        if not exact or bool(one.get("file")) == bool(one.get("url")):
            check = "nvidia_driver_upgrade_runfiles"
            found = ", ".join(f"{name}: {one[name]}" for name in sorted(one)) or "an empty entry"
            expected = "version, sha256 (64 hexadecimal digits), and file (on the controller) or url"
            yield Finding(check, found, expected, f"correct {check}")


def _node_findings(node: Node, entry: Entry, settings: Node) -> Iterator[Finding]:
    """Yield what speaks against an upgrade of a node now."""
    # On a node that was started, the upgrade itself may be the cause.
    for text in _device_errors(node, settings["checks"]) if "before" not in entry else ():
        expected = "healthy devices, so that an error after the upgrade comes from the upgrade"
        canary = " (and out of nvidia_driver_upgrade_canary)" if _host(node) in settings["canary"] else ""
        yield Finding("devices", text, expected, f"repair it first, or leave the node out: --limit{canary}")
    if node["kubernetes"] and not settings["cordoned"]:
        found = "a kubelet runs, and the node may get pods during the upgrade"
        action = (
            "kubectl cordon NODE, kubectl drain NODE --ignore-daemonsets, then set "
            "nvidia_driver_upgrade_cordoned: true; afterwards kubectl uncordon NODE"
        )
        yield Finding("Kubernetes", found, "a cordoned node without pods that use its GPUs", action)
    before = entry.get("before") or node["driver"]
    if settings["without_way_back"] or before["provider"] == "none":
        return
    if before["provider"] == "runfile" and not _runfile(before, settings["runfiles"]):
        found = f"driver {before['runfile']} from a runfile without a known address"
        expected = "an entry of nvidia_driver_upgrade_runfiles for this version"
        yield Finding("way back", found, expected, f"add it with version, sha256, and file or url{_WAY_BACK}")
    elif node["missing"]:
        found = f"no package list offers {host_list(node['missing'])} any longer"
        expected = "a repository or mirror that still has what the node has now"
        yield Finding("way back", found, expected, f"run `apt-get update`, or add them to the mirror{_WAY_BACK}")


def sources(runfiles: Sequence[Node]) -> list[dict[str, str]]:
    """Return the installers for the way back as the sources of a lock, see site_software (step request)."""
    return [
        {
            "what": f"NVIDIA driver {one.get('version', '')}",
            "url": str(one.get("url") or ""),
            "local_file": str(one.get("file") or ""),
            "sha256": str(one.get("sha256") or ""),
        }
        for one in runfiles
    ]


def _runfile(before: Node, runfiles: Sequence[Node]) -> dict[str, str]:
    for one in runfiles:
        if str(one.get("version")) == before["runfile"]:
            return {name: str(one.get(name) or "") for name in ("version", "file", "url", "sha256")}
    return {}


def _device_errors(node: Node, checks: Sequence[Node]) -> list[str]:
    """Return the failed checks of a node's devices as text; none for a node without a GPU on purpose."""
    failed = [one for one in checks if one["state"] == "fail" and _host(node) in one["hosts"]]
    return [f"{one['name']}: {one['found']}" for one in failed] if node["expected"]["gpus"] else []


def _batches(entries: Mapping[str, Entry], free: Sequence[str], settings: Node) -> list[list[str]]:
    """Return the batches of the free nodes: canaries, nodes that failed before, the others."""
    begun = [host for host in free if entries[host]["state"] in UNDONE]
    others = [host for host in free if host not in begun]
    first = [host for host in settings["canary"] if host in free]
    states = {entry["state"] for entry in entries.values()}
    verified = "upgraded" in states and states.isdisjoint(UNDONE)
    if not first:
        # A node that failed shows whether the cause is repaired. Without any, one verified node lets all others follow.
        first = begun[:1] or ([] if verified else others[:1])
    rest = [host for host in [*begun, *others] if host not in first]
    size = batch_size(settings["serial"], len(free)) or 1
    return [*([first] if first else []), *(rest[at : at + size] for at in range(0, len(rest), size))]


def plan(nodes: Sequence[Node], settings: Node, previous_table: Mapping[str, Entry]) -> dict[str, Any]:
    """Plan an upgrade: `table` (entries by host), `batches`, and `findings`. With findings nothing may be changed.

    `settings`: `canary` (hosts), `serial`, `busy` (skip or wait), `runfiles`, `without_way_back`, `cordoned`,
    `checks`.
    """
    by_host = {_host(node): node for node in nodes}
    findings = list(_setting_findings(settings, by_host))
    findings += filter(None, (_target_finding(node) for node in nodes if node["plan"]["action"] != "skip"))
    entries = {host: _entry(node, previous_table.get(host, {}), settings["checks"]) for host, node in by_host.items()}
    # Without a target no node can have it already.
    if any(finding.host for finding in findings):
        return {"table": entries, "batches": [], "findings": [finding.as_dict() for finding in findings]}
    to_do = {host: node for host, node in by_host.items() if entries[host]["state"] not in ("upgraded", "left out")}
    used = {host: node["uses"] for host, node in to_do.items() if node["uses"]}
    free = [host for host in to_do if host not in used or settings["busy"] == "wait"]
    for host, uses in used.items():
        state = entries[host]["state"]
        entries[host]["why"] = ", ".join(uses)[:_MAX_WHY]
        # A failed node keeps its state: it must be tried again before the others follow.
        entries[host]["state"] = state if state in UNDONE else "in use"
    blocked, expected = used, "at least one idle node"
    if free or not to_do:
        waits = settings["busy"] == "wait"
        blocked = {host: uses for host, uses in used.items() if host in settings["canary"] and not waits}
        expected = "an idle canary"
    action = "wait for them, end them, or set nvidia_driver_upgrade_busy: wait"
    findings += [Finding("in use", ", ".join(uses), expected, action, host=host) for host, uses in blocked.items()]
    for host in free:
        findings += [each.on(host) for each in _node_findings(to_do[host], entries[host], settings)]
    return {
        "table": entries,
        "batches": [] if findings else _batches(entries, free, settings),
        "findings": [finding.as_dict() for finding in findings],
    }


def settle(node: Node) -> dict[str, Any]:
    """Return `state`, `why` and `back` of a node after its installation and reboot.

    `node`: `driver` as it is now, `expected`, `checks`, `parts`, `failure` (why the installation stopped, or ""),
    `findings` (the records of that failure), `reboots` (whether they are allowed), `before`, `settings`, `runfiles`.
    `back` is empty for a node that stays as it is, else the result of _return_plan.
    """
    found = driver.check(node["driver"], node["expected"])
    # Only what worked with the previous driver and does not now is an error of the new one.
    lost = {name: node["parts"].get(name, "it is no longer there") for name in _parts_before(node["before"], False)}
    errors = [*_device_errors(node, node["checks"]), *(f"{name}: {error}" for name, error in lost.items() if error)]
    failure = node["failure"]
    # Findings of other nodes: the installation stopped for the whole batch because of them.
    if node["findings"] and all(each["host"] != _host(node) for each in node["findings"]):
        failure = ""
    if not failure and not errors:
        if not found:
            failed = host_list(_parts_before(node["before"], failed=True), 4)
            why = f"not compared, failed before as well: {failed}" if failed else ""
            return {"state": "upgraded", "why": why, "back": {}}
        if not node["reboots"] and all(one.check == "reboot due" for one in found):
            return {"state": "reboot due", "why": "; ".join(one.found for one in found), "back": {}}
    texts = [*([failure] if failure else [f"{one.check}: {one.found}" for one in found]), *errors]
    why = " ".join("; ".join(texts).split())
    return {"state": "going back", "why": why[:_MAX_WHY], "back": _return_plan(node)}


def _return_plan(node: Node) -> dict[str, Any]:
    """Return how a node goes back: `provider`, `packages`, `held`, `record`, `runfile`, `remove` (what goes first).

    `runfile` has version, file, url, sha256 and `arguments`, or is empty.
    """
    before, now = node["before"], node["driver"]
    due = before["provider"] == "runfile" and now["runfile"] != before["runfile"]
    runfile: dict[str, Any] = {**_runfile(before, node["runfiles"])} if due else {}
    if runfile:
        flavour = before["flavour"] or node["settings"]["flavour"]
        settings = {**node["settings"], "version": before["runfile"], "flavour": flavour}
        runfile["arguments"] = installer_arguments(settings, now, bool(node["expected"]["gpus"]))
    foreign = now["provider"] not in (before["provider"], "none")
    return {
        **{name: before[name] for name in ("provider", "packages", "held", "record")},
        "remove": now["provider"] if foreign else "",
        "runfile": runfile,
    }


def check_returned(node: Node) -> dict[str, str]:
    """Return `state` and `why` of a node that went back: `rolled back` if it has its previous driver, else `failed`.

    `node`: `before`, `driver` as it is now, `why` it went back, `failure` (why that stopped, or "").
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
        failure = " ".join(node["failure"].split())[:_MAX_WHY]
        left = "; ".join(filter(None, [failure, host_list(differs, 4)]))
        return {"state": "failed", "why": f"{why}; the rollback failed: {left}"}
    due = f"; reboot due: {now['reboot_due'][0]}" if now["reboot_due"] else ""
    return {"state": "rolled back", "why": f"{why}{due}"}


def stops(entries: Mapping[str, Entry]) -> list[Finding]:
    """Return the findings of a batch: its nodes that are not upgraded."""
    actions = {
        "reboot due": "reboot it, or set nvidia_driver_reboot: true, and run this again",
        "rolled back": "find the cause, and run this again: it begins with this node",
        "failed": "repair it by hand, as its previous driver is gone, and run this again: it begins with this node",
        "in use": "run this again when it is idle, or set nvidia_driver_upgrade_busy: wait",
    }
    findings = []
    for host, entry in entries.items():
        found = entry["why"] or "no reason given"
        action = actions.get(entry["state"], "see the table, and run this again")
        if entry["state"] != "upgraded":
            findings.append(Finding(entry["state"], found, "the new driver, verified", action, host=host))
    return findings


def table_text(
    table: Mapping[str, Entry], batches: Sequence[Sequence[str]] = (), hosts: Collection[str] | None = None
) -> str:
    """Return the table for people: one line per node, ordered by batch, and a line with the counts.

    With `hosts`, only these get a line.
    """
    number = {host: str(at) for at, batch in enumerate(batches, start=1) for host in batch}
    shown = [host for host in table if hosts is None or host in hosts]
    order = sorted(shown, key=lambda host: int(number.get(host, "0")) or len(number) + 1)
    rows = [("node", "batch", "state", "target", "why")]
    for host in order:
        entry = table[host]
        target = entry.get("target", {})
        aim = f"{target.get('version', '')} ({target.get('provider', '')})"
        # The text comes from nodes, and process names in it from any user there.
        why = visible(" ".join(str(entry["why"]).split()))
        rows.append((host, number.get(host, "-"), entry["state"], aim, why))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows]
    states = [entry["state"] for entry in table.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return "\n".join([*lines, f"{counted(len(states), 'node')}: {counts or 'none'}"])
