# SPDX-License-Identifier: Apache-2.0
"""Compare two reports of verify.yml (docs/report.schema.json): slower bandwidths, new findings, changed versions.

A check that only one report made is no change: a finding is gone only if the later report made the same check with a
better result. Bandwidths are GB/s of 1e9 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import MADE
from ..base.findings import UnusableError, counted, host_list, some_of
from ..base.redaction import safe
from .measured import size_text
from .report import unreadable

Report = Mapping[str, Any]
Change = dict[str, Any]

# Two runs of one benchmark on one healthy cluster differ by less.
TOLERANCE = 0.05
_BAD = ("fail", "unknown")
_IDENTITY = ("id", "cluster", "started", "state")
# At most this many lines of one kind are written; the data has all.
_MAX_LINES = 20
_RESULTS = {"pass": "nothing got worse", "fail": "something got worse", "unknown": "not all could be compared"}


def compare(before: Report, after: Report, tolerance: float = TOLERANCE) -> dict[str, Any]:
    """Return what differs between two reports of a cluster.

    `state` is fail where something got slower by more than `tolerance` or a new failure was found, unknown where
    nothing did but something of the first report could not be compared, else pass. `slower` and `faster` are
    bandwidths, `new`, `gone` and `unseen` findings of nodes (unseen: not checked any more), `stayed` the number of
    findings of both, `changed` versions and settings, `not_compared` the rest. Raises UnusableError for another schema.
    """
    for report in (before, after):
        if why := unreadable(report):
            raise UnusableError(f"The report {report.get('id', 'without id')} cannot be compared: {why}.")
    bandwidths, not_compared = _bandwidths(before, after)
    findings = _findings(before, after)
    slower = [change for change in bandwidths if change["ratio"] < 1 - max(tolerance, change["spread"])]
    faster = [change for change in bandwidths if change["ratio"] > 1 + max(tolerance, change["spread"])]
    worse = slower or any(finding["state"] == "fail" for finding in findings["new"])
    open_ends = not_compared or findings["unseen"] or findings["new"]
    result: dict[str, Any] = {
        "state": "fail" if worse else "unknown" if open_ends else "pass",
        "before": {key: before[key] for key in _IDENTITY},
        "after": {key: after[key] for key in _IDENTITY},
        "hosts": {
            "new": [host for host in after["hosts"] if host not in set(before["hosts"])],
            "gone": [host for host in before["hosts"] if host not in set(after["hosts"])],
        },
        "slower": slower,
        "faster": faster,
        **findings,
        "changed": _facts(before, after) + _versions(before, after),
        "not_compared": not_compared,
    }
    result = dict(safe(result))
    result["text"] = _text(result)
    return result


def _change(what: str, hosts: Sequence[str], before: float, after: float, unit: str, spread: float = 0.0) -> Change:
    values = {"before": before, "after": after, "ratio": round(after / before, 4), "unit": unit, "spread": spread}
    return {"what": what, "hosts": list(hosts), **values}


def _bandwidths(before: Report, after: Report) -> tuple[list[Change], list[str]]:
    """Return the bandwidths that both reports have, and what only the first one has or is not the same thing."""
    changes, missing = [], []
    later = _benchmarks(after)
    for key, first in _benchmarks(before).items():
        name = " ".join(part for part in key[:3] if part)
        second = later.get(key)
        if second is None:
            missing.append(f"{name}: not measured any more")
            continue
        if (first["ranks"], sorted(first["hosts"])) != (second["ranks"], sorted(second["hosts"])):
            both = (first, second)
            then, now = (f"{counted(each['ranks'], 'rank')} on {host_list(each['hosts'])}" for each in both)
            missing.append(f"{name}: {then} before, {now} now")
            continue
        sizes, sizes_now = _busbw(first), _busbw(second)
        common = sorted(set(sizes) & set(sizes_now))
        if not common:
            if sizes:
                missing.append(f"{name}: no message size that both have")
            continue
        largest = common[-1]
        if sizes[largest] > 0:
            what = f"{name} at {size_text(largest)}"
            changes.append(_change(what, first["hosts"], sizes[largest], sizes_now[largest], "GB/s"))
    pairs, unmeasured = _pairs(before.get("stragglers") or {}, after.get("stragglers") or {})
    return changes + pairs, missing + unmeasured


def _pairs(before: Report, after: Report) -> tuple[list[Change], list[str]]:
    """Compare the stragglers of two reports: the median of pairs, and each node's score."""
    changes, missing = [], []
    # Three standard deviations of a single measurement: what a node's few measurements may differ by.
    spread = 3 * max(before.get("spread") or 0.0, after.get("spread") or 0.0)
    if before.get("median") and after.get("median"):
        changes.append(_change("pairs of nodes, median", [], before["median"], after["median"], "GB/s", spread))
    elif before.get("median"):
        missing.append("pairs of nodes: not measured any more")
    scores = {node["host"]: node["score"] for node in after.get("nodes", ())}
    for node in before.get("nodes", ()):
        score = scores.get(node["host"])
        # 0 is a node that did not answer: a finding, not a speed.
        if node["score"] and score:
            what = "with other nodes, relative to the healthy"
            changes.append(_change(what, [node["host"]], node["score"], score, "", spread))
    return changes, missing


def _benchmarks(report: Report) -> dict[tuple[str, str, str, int], Report]:
    """Name the benchmarks: collective, backend, host inside which it ran ("" over several), number of the repeat."""
    found: dict[tuple[str, str, str, int], Report] = {}
    for record in report["benchmarks"]:
        inside = f"inside {record['hosts'][0]}" if len(record["hosts"]) == 1 else ""
        over = f"over {record['backend']}" if record["backend"] else ""
        number = 0
        while (record["collective"], over, inside, number) in found:
            number += 1
        found[record["collective"], over, inside, number] = record
    return found


def _busbw(record: Report) -> dict[int, float]:
    """Return the bus bandwidth (GB/s) for each message size (bytes), out of place, or in place where only that is."""
    found = {}
    for size in record["sizes"]:
        timing = size["out_of_place"] or size["in_place"]
        if timing and timing["busbw"] is not None:
            found[int(size["bytes"])] = float(timing["busbw"])
    return found


def _findings(before: Report, after: Report) -> dict[str, Any]:
    """Return findings that are new, gone (with their node, too), unseen (not checked any more); how many stayed."""
    first, second = _bad(before), _bad(after)
    made_before, made_now, hosts_now = _made(before), _made(after), set(after["hosts"])
    new, stayed = [], 0
    for key, entry in second.items():
        earlier = first.get(key)
        if earlier and not (earlier["state"] == "unknown" and entry["state"] == "fail"):
            stayed += 1
        else:
            new.append({**entry, "before": earlier["state"] if earlier else _earlier(key[0], key[1], made_before)})
    ended = {key: entry for key, entry in first.items() if key not in second}
    gone = {key: entry for key, entry in ended.items() if key[:2] in made_now or (key[2] and key[2] not in hosts_now)}
    unseen = [entry for key, entry in ended.items() if key not in gone]
    return {"new": _grouped(new), "gone": _grouped(gone.values()), "unseen": _grouped(unseen), "stayed": stayed}


def _earlier(phase: str, check: str, made: set[tuple[str, str]]) -> str:
    """Return the state of a check in the first report, which has no such finding."""
    if (phase, check) in made:
        return "pass"
    return "not found" if any(phase == name for name, _ in made) else "not looked at"


def _bad(report: Report) -> dict[tuple[str, str, str], Change]:
    """Return what did not pass by phase, check and host ("": the whole cluster)."""
    found: dict[tuple[str, str, str], Change] = {}
    for phase in report["phases"]:
        for check in phase["checks"]:
            for host in (check["hosts"] or [""]) if check["state"] in _BAD else ():
                key = (phase["name"], check["name"], host)
                if key not in found or check["state"] == "fail":
                    entry = {"phase": phase["name"], "check": check["name"], "host": host, "state": check["state"]}
                    found[key] = {**entry, "found": check["found"] or check["reason"]}
    return found


def _made(report: Report) -> set[tuple[str, str]]:
    """Return phase and name of the checks that were made, with any result."""
    return {
        (phase["name"], check["name"])
        for phase in report["phases"]
        for check in phase["checks"]
        if check["state"] in MADE
    }


def _grouped(entries: Iterable[Change]) -> list[Change]:
    """Put the hosts of equal entries together: `host` becomes `hosts`, [] for the whole cluster."""
    groups: dict[str, Change] = {}
    for entry in entries:
        rest = {name: value for name, value in entry.items() if name != "host"}
        group = groups.setdefault(json.dumps(rest, sort_keys=True), {**rest, "hosts": []})
        group["hosts"] += [entry["host"]] if entry["host"] else []
    return list(groups.values())


def _facts(before: Report, after: Report) -> list[Change]:
    """Return versions and settings of nodes that changed, hosts with the same change together."""
    now = {node["host"]: node["facts"] for node in after["nodes"]}
    changes = []
    for node in before["nodes"]:
        if node["host"] not in now or not node["facts"] or not now[node["host"]]:
            continue
        facts = now[node["host"]]
        for name in sorted({*node["facts"], *facts}):
            then, value = _plain(node["facts"].get(name)), _plain(facts.get(name))
            if then != value:
                changes.append({"what": name, "before": then, "after": value, "host": node["host"]})
    return _grouped(changes)


def _versions(before: Report, after: Report) -> list[Change]:
    """Return the versions on the controller that differ."""
    return [
        {"what": f"{name} of the controller", "before": value, "after": after["versions"].get(name), "hosts": []}
        for name, value in before["versions"].items()
        if after["versions"].get(name) != value
    ]


def _plain(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _text(result: Mapping[str, Any]) -> str:
    """Return the comparison for reading."""
    before, after = result["before"], result["after"]
    lines = [f"{before['id']} ({before['state']}) and {after['id']} ({after['state']}): {_RESULTS[result['state']]}"]
    if before["cluster"] != after["cluster"]:
        lines.append(f"  of two clusters: {before['cluster']} and {after['cluster']}")
    for title, hosts in (("new nodes", result["hosts"]["new"]), ("nodes that are gone", result["hosts"]["gone"])):
        if hosts:
            lines.append(f"  {title}: {host_list(hosts)}")
    sections = {
        "slower": map(_speed, result["slower"]),
        "new": map(_finding, result["new"]),
        "not compared": [*result["not_compared"], *map(_finding, result["unseen"])],
        "faster": map(_speed, result["faster"]),
        "gone": map(_finding, result["gone"]),
        "changed": map(_changed, result["changed"]),
    }
    for title, texts in sections.items():
        entries = some_of(list(texts), _MAX_LINES)
        lines += [f"  {title}", *(f"    {entry}" for entry in entries)] if entries else []
    if result["stayed"]:
        lines.append(f"  as before: {counted(result['stayed'], 'finding')}")
    return "\n".join(lines)


def _on(hosts: Sequence[str]) -> str:
    return f" on {host_list(hosts)}" if hosts else ""


def _speed(change: Change) -> str:
    what, before, after, unit = (change[key] for key in ("what", "before", "after", "unit"))
    if not unit:
        return f"{host_list(change['hosts'])} {what}: {before:.0%}, now {after:.0%}"
    return f"{what}: {before:.4g}, now {after:.4g} {unit} ({change['ratio'] - 1:+.0%})"


def _finding(finding: Change) -> str:
    found = f", {finding['found']}" if finding["found"] else ""
    was = f"; before: {finding['before']}" if "before" in finding else ""
    return f"{finding['phase']}: {finding['check']}{_on(finding['hosts'])}: {finding['state']}{found}{was}"


def _changed(change: Change) -> str:
    before, after = (change[key] or "nothing" for key in ("before", "after"))
    return f"{change['what']}: {before}, now {after}{_on(change['hosts'])}"
