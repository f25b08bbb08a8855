# SPDX-License-Identifier: Apache-2.0
"""The content of report.html of a verification (templates/report/verify.html.j2), from report.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import MADE, worst
from ..base.findings import counted, grouped, host_list, some_of
from ..cluster import switches
from ..job.run.logs.progress import clock
from ..verify.measured import size_text
from ..verify.past_reports import offender_text
from ..verify.report import MAX_OFFENDERS, counts, first_text, left_out, sentence, to_do, why_not
from .bandwidth_plots import bandwidth_plots
from .text import digits, shown, utc

Data = Mapping[str, Any]
MANY_NODES = 100
NOT_PASSED = "!pass"
# At most this many benchmarks have all their sizes in a table.
MAX_SIZES = 12
# Numbered steps on top of the page, and pairs of a node.
MAX_TO_DO, MAX_PAIRS = 50, 16
# Repetitions of a soak that are named in a row.
MAX_NUMBERS = 20
# Checks of a phase, and benchmarks inside a node, that passed and are shown with their details.
MAX_DETAILED = 100
_BAD = ("fail", "unknown")
# Phases that run jobs, and the checks of the phase reach by which jobs leave out a host.
_OF_JOBS, _NO_JOBS = ("compute", "collectives", "bandwidth", "stragglers"), ("job address", "job network")


def verify_content(report: Data) -> dict[str, Any]:
    """Return what stands in templates/report/verify.html.j2."""
    # Benchmarks of single nodes that passed: the plot has them.
    alike = [each for each in report["benchmarks"] if each["state"] == "pass" and len(each["hosts"]) == 1]
    others = [each for each in report["benchmarks"] if each not in alike]
    nodes = _nodes(report)
    return {
        "title": f"{report['state']}: cluster {report['cluster']}, {report['id']}",
        "state": shown(report["state"]),
        "headline": sentence(report).removesuffix("."),
        "about": [
            f"{counts(report)}; {counted(len(report['hosts']), 'node')}; {clock(report['elapsed_s'])}.",
            *(f"{word[0].upper()}{word[1:]}: {names}." for word, names in left_out(report)),
            *([f"Topology: {switches.text(report['topology'])}."] if report["topology"] else []),
            *(f"Again and again: {offender_text(each)}." for each in report["offenders"][:MAX_OFFENDERS]),
        ],
        "made": f"{report['id']}, {utc(report['started'])}, inventory {report['inventory']}",
        "first": _first(report["first"]),
        "to_do": [_check(check) for check in to_do(report)[:MAX_TO_DO]],
        "more_to_do": max(0, len(to_do(report)) - MAX_TO_DO),
        "cells": cells(report, nodes),
        "states": [shown(state) for state in sorted({node["state"] for node in report["nodes"]})],
        "shares": any(node["share"] for node in nodes),
        "pairs": _pairs(report["stragglers"]) if report["stragglers"] else None,
        "plots": bandwidth_plots(report["benchmarks"]),
        "benchmarks": [_benchmark(each) for each in others],
        "benchmarks_alike": {"number": len(alike), "rows": [_benchmark(each) for each in alike[:MAX_DETAILED]]},
        "sizes": [_sizes(each) for each in others[:MAX_SIZES] if each.get("sizes")],
        "nodes": nodes,
        "columns": [phase["name"] for phase in report["phases"] if phase["state"] in MADE],
        "addresses": any(node["address"] for node in nodes),
        "longest_name": max((len(node["host"]) for node in nodes), default=0),
        "options": _options(report["nodes"]),
        # A page of many nodes shows at first only those that did not pass.
        "chosen": NOT_PASSED if len(report["nodes"]) > MANY_NODES else "",
        "phases": [_phase(phase) for phase in report["phases"]],
        "soak": _soak(report["soak"]) if report.get("soak") else None,
        "versions": _versions(report["nodes"]),
        "tools": ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        "commands": [{key: each[key] for key in ("check", "phase", "command")} for each in report["commands"]],
    }


def cells(report: Data, nodes: Sequence[Data]) -> list[dict[str, Any]]:
    """Return the cells of nodes in groups by the variable `group_by`, else by switch, those without either last."""
    by_group: dict[str, list[dict[str, Any]]] = {}
    variable, above = report["group_by"], (report["topology"] or {}).get("switches", ())
    at = {host: " / ".join(switch["path"]) for switch in above for host in switch["hosts"]}
    for number, (node, row) in enumerate(zip(report["nodes"], nodes)):
        cell = {**{key: row[key] for key in ("host", "state", "share", "part")}, "number": number}
        by_group.setdefault(node["group"] if variable else at.get(node["host"], ""), []).append(cell)
    last = f"without {variable}" if variable else "at no known switch" if at else ""
    return [
        {
            "name": f"{variable} {group}".strip() if group else last,
            "label": f"Nodes of {variable} {group}".replace("  ", " ") if group else f"Nodes {last}".rstrip(),
            "cells": by_group[group],
        }
        for group in sorted(by_group, key=lambda group: not group)
    ]


def _first(first: Data | None) -> dict[str, str] | None:
    """Return what to do first, unless it is nothing."""
    return {"text": first_text(first), "action": first["action"] or ""} if first else None


def _phase(phase: Data) -> dict[str, Any]:
    """Checks that did not pass come first and are seen, of the others their number."""
    by_state = grouped((check["state"], _check(check)) for check in phase["checks"])
    folded = [
        {"state": shown(state), "number": counted(len(by_state[state]), "check"), "checks": _brief(by_state[state])}
        for state in ("pass", "skipped", "not_asked")
        if state in by_state
    ]
    return {
        "name": phase["name"],
        "state": shown(phase["state"]),
        "why": why_not(phase),
        "wanting": [*by_state.get("fail", ()), *by_state.get("unknown", ())],
        "folded": folded,
        "took": "" if phase["elapsed_s"] is None else clock(phase["elapsed_s"]),
    }


def _soak(soak: Data) -> dict[str, Any]:
    """Return which repetitions of each phase did not pass."""
    named = [", ".join(some_of([*map(str, each["not_passed"])], MAX_NUMBERS)) or "none" for each in soak["phases"]]
    rows = [[each["phase"], str(each["repetitions"]), text] for each, text in zip(soak["phases"], named)]
    return {"about": counted(soak["repetitions"], "repetition"), "rows": rows}


def _brief(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return checks that need no attention; of many only their titles, as report.json has the rest."""
    if len(checks) <= MAX_DETAILED:
        return list(checks)
    return [{**check, "details": [], "command": ""} for check in checks]


def _check(check: Data) -> dict[str, Any]:
    words = (("found", "found"), ("expected", "expected"), ("from", "source"), ("why", "reason"), ("do", "action"))
    details = [(word, check[key]) for word, key in words if check[key]]
    if len(check["hosts"]) > 6:
        details.insert(0, ("hosts", ", ".join(check["hosts"])))
    hosts = f" on {host_list(check['hosts'])}" if check["hosts"] else ""
    return {
        "state": shown(check["state"]),
        "title": f"{check['name']}{hosts}",
        "details": details,
        "command": check["command"] or "",
    }


def _pairs(stragglers: Data) -> dict[str, Any]:
    about = [f"median of all pairs {stragglers['median']:.4g} GB/s"] if stragglers.get("median") is not None else []
    if stragglers.get("gate") and len(stragglers["nodes"]) > 2:
        about.append(f"expected at least {stragglers['gate']:.4g} GB/s")
    about.append(counted(len(stragglers.get("pairs") or ()), "measurement"))
    return {"state": shown(stragglers["state"]), "reason": stragglers.get("reason") or "", "about": "; ".join(about)}


def _pairs_of_nodes(stragglers: Data) -> dict[str, list[dict[str, Any]]]:
    """Return the pairs of each node, the slowest first: the partner, GB/s, state, and what went wrong."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pair in stragglers.get("pairs") or ():
        wrong = counted(pair["wrong"], "wrong value") if pair.get("wrong") else ""
        note = ", ".join(filter(None, (wrong, str(pair.get("error") or ""))))
        for host, partner in (pair["hosts"], pair["hosts"][::-1]):
            state = shown(str(pair.get("state") or "unknown"))
            row = {
                "partner": partner,
                "busbw": pair["busbw"],
                "text": digits(pair["busbw"]),
                "state": state,
                "note": note,
            }
            found.setdefault(host, []).append(row)
    slowest = {host: sorted(rows, key=lambda row: row["busbw"] or 0.0) for host, rows in found.items()}
    return {host: rows[:MAX_PAIRS] for host, rows in slowest.items()}


def _name(record: Data) -> str:
    return " over ".join(str(record[key]) for key in ("collective", "backend") if record.get(key))


def _benchmark(record: Data) -> dict[str, Any]:
    expected = record.get("expected") or {}
    path, small = record.get("path") or {}, record.get("latency")
    gate = expected.get("gate")
    largest = max((each["bytes"] for each in record.get("sizes") or ()), default=None)
    texts = [record.get("reason"), path.get("reason"), *(record.get("findings") or ())]
    return {
        "name": _name(record),
        "state": shown(record["state"]),
        "ranks": f"{record['ranks']} on {host_list(record['hosts'])}",
        "busbw": digits(record.get("busbw_largest"))
        + (f" at {size_text(largest)}" if largest is not None else "")
        + (f", {digits(small['us'])} µs up to {size_text(small['bytes'])}" if small else ""),
        "expected": "" if gate is None else f"at least {digits(gate)}: {expected.get('source') or ''}".rstrip(": "),
        "devices": ", ".join(path.get("devices") or ()),
        "findings": [text for text in texts if text],
    }


def _sizes(record: Data) -> dict[str, Any]:
    """Return the figures of a curve, for those who do not see it or want them exactly."""
    rows = []
    for each in record["sizes"]:
        cells = [size_text(each["bytes"])]
        for placement in ("out_of_place", "in_place"):
            timing = each.get(placement) or {}
            wrong = timing.get("wrong")
            cells += [digits(timing.get("time_us")), digits(timing.get("busbw")), "" if wrong is None else str(wrong)]
        rows.append(cells)
    return {"title": f"All sizes of {_name(record)} on {host_list(record['hosts'])}", "rows": rows}


def _nodes(report: Data) -> list[dict[str, Any]]:
    """Return the row of each node; `part` is its share of the healthy bandwidth from 0 to 1, None if unknown."""
    findings: dict[str, list[dict[str, Any]]] = {}
    for check in (check for phase in report["phases"] for check in phase["checks"]):
        if check["state"] in _BAD:
            reason = check["reason"] or check["found"]
            line = f"{check['phase']}: {check['name']}{f': {reason}' if reason else ''}"
            for host in check["hosts"]:
                findings.setdefault(host, []).append({"state": shown(check["state"]), "text": line})
    stragglers, states = report["stragglers"] or {}, _by_phase(report)
    # The only pair is healthy or not: it has no other to compare it with.
    checked = {node["host"]: node for node in stragglers.get("nodes", ()) if len(stragglers["nodes"]) > 2}
    pairs = _pairs_of_nodes(stragglers)
    rows = []
    for node in report["nodes"]:
        host, found = node["host"], checked.get(node["host"]) or {}
        score, confidence = found.get("score"), found.get("confidence")
        share = "" if score is None else f"{100 * score:.0f} %"
        if share and confidence is not None and found["state"] != "pass":
            share += f" (confidence {confidence:.2f})"
        part = None if score is None else round(min(max(score, 0.0), 1.0), 2)
        row = {"host": host, "address": node["address"], "state": shown(node["state"]), "share": share, "part": part}
        row["phases"] = [shown(each) for each in states[host]]
        own = pairs.get(host, [])
        rows.append({**row, "findings": findings.get(host, []), "pairs": own, "pairs_text": counted(len(own), "pair")})
    return rows


def _by_phase(report: Data) -> dict[str, list[str]]:
    """Return by host its state in each phase in which something was checked: the worst of the checks that name it.

    Where none does, it has passed, unless it was not measured: a host that does not answer takes no part, jobs leave
    out those that the job network fails, and only hosts with figures have some. A fault of all nodes together may be
    any node's.
    """
    found: dict[str, list[str]] = {node["host"]: [] for node in report["nodes"]}
    reach = [check for phase in report["phases"] if phase["name"] == "reach" for check in phase["checks"]]
    of = grouped((check["name"], host) for check in reach if check["state"] in _BAD for host in check["hosts"])
    silent, unusable = ({host for name in names for host in of.get(name, ())} for names in (("answer",), _NO_JOBS))
    for phase in (phase for phase in report["phases"] if phase["state"] in MADE):
        bad = [check for check in phase["checks"] if check["state"] in _BAD]
        named = grouped((host, check["state"]) for check in bad for host in check["hosts"])
        lost = silent | (unusable if phase["name"] in _OF_JOBS else set())
        figures = [each for check in phase["checks"] for each in check["data"].get("figures", {}).values()]
        measured = {host for by_host in figures for host in by_host}
        # Figures of all hosts together are no host's own.
        left_out = (lost if "" in (measured or {""}) else set(found)) - measured
        together = "pass" if all(check["hosts"] for check in bad) else "unknown"
        for host, states in found.items():
            states.append(worst(named.get(host) or ["skipped" if host in left_out else together]))
    return found


def _options(nodes: Sequence[Data]) -> list[tuple[str, str]]:
    """Return the states by which nodes are found, and their names."""
    present = sorted({node["state"] for node in nodes})
    options = [("", "all"), *((state, state) for state in present)]
    return [*options, (NOT_PASSED, "not pass")] if len(present) > 1 and "pass" in present else options


def _versions(nodes: Sequence[Data]) -> list[list[str]]:
    """Return rows of what, which value, and where; what it is stands in the first of its rows."""
    values: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for name, value in node["facts"].items():
            written = "not known" if value is None else str(value)
            values.setdefault(name, {}).setdefault(written, []).append(node["host"])
    rows = []
    for name, hosts_by_value in values.items():
        common = sorted(hosts_by_value.items(), key=lambda item: -len(item[1]))
        if len(common) == 1 and len(common[0][1]) == len(nodes):
            rows.append([name, common[0][0], "all nodes"])
            continue
        for place, (value, hosts) in enumerate(common):
            where = f"{len(hosts)} nodes" if len(hosts) > 6 else host_list(hosts)
            # A row without a header is read as one of the row above.
            rows.append([name if place == 0 else "\N{NO-BREAK SPACE}", value, where])
    return rows
