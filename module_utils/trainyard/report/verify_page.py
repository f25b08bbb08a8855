# SPDX-License-Identifier: Apache-2.0
"""report.html of a proof, from report.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..job.progress import clock
from ..record.findings import counted, host_list
from ..verify.report import counts, first_text, left_out, verdict, why_not
from .figures import bandwidth_figures, pairs_figure
from .markup import Content, Html, Row, joined, table, tag
from .page import badge, figure, page, section, size, utc

Data = Mapping[str, Any]
MANY_NODES = 100
# At most this many benchmarks have all their sizes in a table.
MOST_SIZES = 12


def verify_page(report: Data, library: bytes) -> str:
    """Return the page. `library` is plotly.js."""
    pairs, left_out = pairs_figure(report["hosts"], report["stragglers"] or {})
    curves = bandwidth_figures(report["benchmarks"])
    sections = [
        _head(report),
        _pairs(report, pairs, left_out),
        _bandwidth(report, curves),
        _nodes(report),
        _checks(report),
        _versions(report),
        _commands(report),
    ]
    figures = [
        {key: value for key, value in each.items() if key not in ("title", "note")}
        for each in [*([pairs] if pairs else []), *curves]
    ]
    title = f"{report['state']}: cluster {report['cluster']}, {report['id']}"
    return page(title, report["state"], [part for part in sections if part], figures, library)


def _head(report: Data) -> Html:
    first = report["first"]
    step = Html("")
    if first:
        action = tag("pre", first["action"], class_="wrap") if first["action"] else Html("")
        step = tag("div", tag("h2", "Do this first"), tag("p", first_text(first)), action, class_="panel", id="first")
    links = [("pairs-section", "Pairs"), ("bandwidth", "Bandwidth"), ("nodes", "Nodes"), ("checks", "Checks")]
    links += [("versions", "Versions"), ("commands", "Commands")]
    phases = [
        tag("li", tag("a", phase["name"], href="#checks"), " ", badge(phase["state"])) for phase in report["phases"]
    ]
    return tag(
        "header",
        tag("h1", badge(report["state"]), " ", verdict(report).removesuffix(".")),
        tag("p", f"{counts(report)}; {counted(len(report['hosts']), 'node')}; {clock(report['elapsed_s'])}."),
        *(tag("p", f"{word[0].upper()}{word[1:]}: {names}.") for word, names in left_out(report)),
        tag("p", f"{report['id']}, {utc(report['started'])}, inventory {report['inventory']}", class_="soft"),
        tag("ul", *phases, class_="row", aria_label="Phases"),
        step,
        tag(
            "nav",
            tag("ul", *(tag("li", tag("a", name, href=f"#{to}")) for to, name in links), class_="row"),
            aria_label="Sections",
        ),
    )


def _checks_of(phase: Data) -> Html:
    """Those that did not pass first and to be seen, of the others their number."""
    parts = [_check(check) for state in ("fail", "unknown") for check in phase["checks"] if check["state"] == state]
    for state in ("pass", "skipped", "not_asked"):
        alike = [_check(check) for check in phase["checks"] if check["state"] == state]
        if alike:
            number = f"{len(alike)} {'check' if len(alike) == 1 else 'checks'}"
            parts.append(tag("details", tag("summary", badge(state), " ", number), tag("div", *alike, class_="inner")))
    return joined(*parts)


def _check(check: Data) -> Html:
    hosts = f" on {host_list(check['hosts'])}" if check["hosts"] else ""
    line = joined(badge(check["state"]), " ", check["name"], hosts)
    words = (("found", "found"), ("expected", "expected"), ("from", "source"), ("why", "reason"), ("do", "action"))
    rows = [joined(tag("dt", word), tag("dd", check[key])) for word, key in words if check[key]]
    if len(check["hosts"]) > 6:
        rows.insert(0, joined(tag("dt", "hosts"), tag("dd", ", ".join(check["hosts"]))))
    if check["command"]:
        rows.append(joined(tag("dt", "repeat"), tag("dd", tag("code", check["command"]))))
    wanting = check["state"] in ("fail", "unknown")
    if not rows:
        return tag("p", line)
    return tag("details", tag("summary", line), tag("dl", *rows), **({"open": "open"} if wanting else {}))


def _checks(report: Data) -> Html:
    rows = []
    for phase in report["phases"]:
        took = "" if phase["elapsed_s"] is None else clock(phase["elapsed_s"])
        checks = joined(tag("p", why_not(phase)), _checks_of(phase))
        rows.append(Row((phase["name"], badge(phase["state"]), checks, took)))
    head = ["phase", "state", "checks", "took"]
    return section("checks", "Checks", table("What was checked, in this order", head, rows))


def _pairs(report: Data, pairs: Data | None, left_out: str) -> Html:
    if not pairs:
        return section("pairs-section", "Pairs of nodes", tag("p", "No pair was measured."))
    stragglers = report["stragglers"]
    keys = (
        "With the figure in focus, ", tag("kbd", "arrows"), " go to the next measured pair, ", tag("kbd", "Page Down"),
        " and ", tag("kbd", "Page Up"), " through those not as expected, slowest first, ", tag("kbd", "Enter"),
        " to the node of that row in the table.",
    )  # fmt: skip
    about = [f"Median {stragglers['median']:.4g} GB/s"] if stragglers.get("median") is not None else []
    about += (
        [f"a pair below {stragglers['gate']:.4g} GB/s is drawn in red and crossed"] if stragglers.get("gate") else []
    )
    return section(
        "pairs-section",
        "Pairs of nodes",
        tag("p", badge(stragglers["state"]), " ", stragglers.get("reason")),
        tag("p", "; ".join([*about, "empty cells were not measured"]), ". ", left_out, class_="soft"),
        tag("p", *keys, class_="soft", id="pairs-keys"),
        figure(
            "pairs",
            f"Bandwidth between {len(report['hosts'])} nodes, a cell for each pair",
            role="application",
            tabindex=0,
            aria_roledescription="heatmap",
            aria_describedby="pairs-keys",
        ),
        tag("p", "", id="pairs-cell", role="status", aria_live="polite"),
    )


def _bandwidth(report: Data, curves: Sequence[Data]) -> Html:
    drawn = []
    for curve in curves:
        title = curve["title"]
        drawn += [tag("h3", title), tag("p", curve["note"], class_="soft") if curve["note"] else Html("")]
        drawn.append(figure(curve["id"], f"Bus bandwidth over message size: {title}"))
    head = ["collective", "state", "ranks", "GB/s", "expected", "devices", "findings"]
    # One for each node: those that passed say nothing that the figure does not.
    alike = [each for each in report["benchmarks"] if each["state"] == "pass" and len(each["hosts"]) == 1]
    others = [each for each in report["benchmarks"] if each not in alike]
    tables = []
    if others:
        tables.append(table("Benchmarks, judged at the largest size", head, [_benchmark(each) for each in others]))
    if alike:
        title = f"{len(alike)} inside a node that passed"
        inner = table("Benchmarks inside a node", head, [_benchmark(each) for each in alike])
        tables.append(tag("details", tag("summary", title), inner))
    sizes = [_sizes(each) for each in others[:MOST_SIZES] if each.get("sizes")]
    none = Html("") if tables else tag("p", "No benchmark was run.")
    return section("bandwidth", "Bandwidth over message size", *drawn, *tables, *sizes, none)


def _sizes(record: Data) -> Html:
    """The figures of a curve, for those who do not see it or want them exactly."""
    rows = []
    for each in record["sizes"]:
        cells: list[Content] = [size(each["bytes"])]
        for placement in ("out_of_place", "in_place"):
            timing = each.get(placement) or {}
            cells += [_number(timing.get("time_us")), _number(timing.get("busbw")), timing.get("wrong")]
        rows.append(Row(tuple(cells)))
    title = f"All sizes of {_name(record)} on {host_list(record['hosts'])}"
    head = ["size", "out of place: µs", "GB/s", "wrong", "in place: µs", "GB/s", "wrong"]
    return tag("details", tag("summary", title), table(title, head, rows))


def _name(record: Data) -> str:
    return " over ".join(str(record[key]) for key in ("collective", "backend") if record.get(key))


def _benchmark(record: Data) -> Row:
    expected = record.get("expected") or {}
    path = record.get("path") or {}
    gate = expected.get("gate")
    largest = max((each["bytes"] for each in record.get("sizes") or ()), default=None)
    said = [record.get("reason"), path.get("reason"), *(record.get("findings") or ())]
    return Row(
        (
            _name(record),
            badge(record["state"]),
            f"{record['ranks']} on {host_list(record['hosts'])}",
            _number(record.get("busbw_largest")) + (f" at {size(largest)}" if largest is not None else ""),
            "" if gate is None else f"at least {_number(gate)}: {expected.get('source') or ''}".rstrip(": "),
            ", ".join(path.get("devices") or ()),
            tag("ul", *(tag("li", each) for each in said if each)) if any(said) else "",
        )
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _nodes(report: Data) -> Html:
    said: dict[str, list[Html]] = {}
    for phase in report["phases"]:
        for check in phase["checks"]:
            if check["state"] not in ("fail", "unknown"):
                continue
            reason = check["reason"] or check["found"]
            line = tag(
                "li", badge(check["state"]), f" {check['phase']}: {check['name']}", f": {reason}" if reason else ""
            )
            for host in check["hosts"]:
                said.setdefault(host, []).append(line)
    judged = {node["host"]: node for node in (report["stragglers"] or {}).get("nodes", ())}
    rows = []
    for number, node in enumerate(report["nodes"]):
        stragglers = judged.get(node["host"]) or {}
        lines = said.get(node["host"], [])
        score, sure = stragglers.get("score"), stragglers.get("confidence")
        share = "" if score is None else f"{100 * score:.0f} %"
        if share and sure is not None and stragglers["state"] != "pass":
            share += f" (confidence {sure:.2f})"
        rows.append(
            Row(
                (node["host"], node["address"], badge(node["state"]), share, tag("ul", *lines) if lines else ""),
                {"id": f"node-{number}", "tabindex": -1, "data_state": node["state"]},
            )
        )
    present = sorted({node["state"] for node in report["nodes"]})
    options = [tag("option", "all", value=""), *(tag("option", state, value=state) for state in present)]
    if len(present) > 1 and "pass" in present:
        # Of many nodes those are shown at first that want something.
        chosen = "selected" if len(rows) > MANY_NODES else None
        options.append(tag("option", "not pass", value="!pass", selected=chosen))
    choice = tag(
        "p",
        tag("label", "Find ", Html('<input type="search" id="filter-text">')),
        tag("label", "State ", tag("select", *options, id="filter-state")),
        tag("span", "", id="filter-count", role="status", class_="soft"),
        class_="filter",
    )
    head = ["node", "address", "state", "bandwidth, of the healthy", "findings"]
    return section("nodes", "Nodes", choice, table("Nodes in inventory order", head, rows, id="filtered"))


def _versions(report: Data) -> Html:
    values: dict[str, dict[str, list[str]]] = {}
    for node in report["nodes"]:
        for name, value in node["facts"].items():
            written = "not known" if value is None else str(value)
            values.setdefault(name, {}).setdefault(written, []).append(node["host"])
    rows = []
    for name, hosts_by_value in values.items():
        common = sorted(hosts_by_value.items(), key=lambda item: -len(item[1]))
        if len(common) == 1 and len(common[0][1]) == len(report["nodes"]):
            rows.append(Row((name, common[0][0], "all nodes")))
            continue
        for place, (value, hosts) in enumerate(common):
            where = f"{len(hosts)} nodes" if len(hosts) > 6 else host_list(hosts)
            rows.append(Row((name if place == 0 else Html("&nbsp;"), value, where)))
    tools = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    body = table("Versions and settings", ["of", "value", "nodes"], rows) if rows else tag("p", "None were read.")
    return section("versions", "Versions", body, tag("p", f"Made with {tools}.", class_="soft"))


def _commands(report: Data) -> Html:
    rows = [Row((each["check"], each["phase"], tag("code", each["command"]))) for each in report["commands"]]
    head = ["check", "phase", "command"]
    body = table("How to repeat a check by itself", head, rows) if rows else tag("p", "None.")
    return section("commands", "Commands", body)
