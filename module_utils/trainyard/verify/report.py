# SPDX-License-Identifier: Apache-2.0
"""The report of a verification: report.json, what the terminal shows, the exit code, and what to do first.

The format is docs/report.schema.json. Times are seconds since the epoch, durations seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.adhoc import playbook
from ..base.checks import EXIT_CODES, MADE, Check, outcomes, worst
from ..base.findings import counted, grouped, host_list, some_of
from ..base.redaction import safe
from ..base.shapes import MAYBE_NUMBER, TIME, Each, Is, Shape, misfit
from ..base.state_format import NEWER
from ..base.visible import one_line
from ..cluster import switches
from ..job.run.logs.progress import clock
from .measured import benchmark_checks, straggler_checks
from .past_reports import offender_text, offenders

Data = Mapping[str, Any]

SCHEMA = "trainyard-verify-1"
_CHECK = {**dict.fromkeys(("name", "state", "found", "reason"), str), "hosts": [str]}
_TIMING = ({"busbw": MAYBE_NUMBER}, type(None))
_BENCHMARK = {
    **dict.fromkeys(("collective", "backend"), str),
    "ranks": int,
    "hosts": [str],
    "sizes": [{"bytes": int, "out_of_place": _TIMING, "in_place": _TIMING}],
    **dict.fromkeys(("?state", "?key"), str),
    "?busbw_largest": MAYBE_NUMBER,
    "?latency": ({"us": float, "bytes": int}, type(None)),
}
_STRAGGLERS = {"?spread": MAYBE_NUMBER, "median": MAYBE_NUMBER, "nodes": [{"host": str, "score": MAYBE_NUMBER}]}
# The parts of a report that are read again.
SHAPE: Shape = {
    "schema": Is((SCHEMA,)),
    **dict.fromkeys(("id", "cluster", "state"), str),
    "started": TIME,
    "elapsed_s": float,
    "hosts": [str],
    "nodes": [{**dict.fromkeys(("host", "state"), str), "facts": Each(object)}],
    "phases": [{"name": str, "checks": [_CHECK]}],
    "benchmarks": [_BENCHMARK],
    "stragglers": (_STRAGGLERS, type(None)),
    "?topology": (switches.SHAPE, type(None)),
    "versions": Each(object),
}
# Where to begin when several phases failed: a node that cannot be reached explains all that follows, a fault that a
# device itself counts explains its bandwidth, and the bandwidth of all explains nothing.
FIRST_PHASES = (
    "reach", "devices", "compute", "storage", "stragglers", "software", "drift", "collectives", "bandwidth", "counters",
)  # fmt: skip
# At most this many checks that did not pass are written on the terminal; the page has all of them.
MAX_CHECKS = 20
# At most this many reasons are given for what does not apply in a phase, each with so many names of checks.
MAX_REASONS, MAX_NAMED = 4, 6
# At most this many repeat offenders are named on terminal and page.
MAX_OFFENDERS = 8


def unreadable(report: Any) -> str:
    """Return why a report cannot be read; "" where it can."""
    schema = report.get("schema") if isinstance(report, dict) else None
    if isinstance(schema, str) and schema != SCHEMA:
        return f"{NEWER[1]}{schema[:40]!r}, and this version reads {SCHEMA!r}"
    return one_line(misfit(report, SHAPE))


def build(
    *,
    report_id: str,
    cluster: str,
    inventory: str,
    started: float,
    finished: float,
    hosts: Sequence[str],
    nodes: Iterable[Data],
    phases: Iterable[Data],
    not_asked: Iterable[str] = (),
    benchmarks: Iterable[Data],
    stragglers: Data | None,
    versions: Data,
    group_by: str = "",
    groups: Data | None = None,
    earlier: Iterable[Data] = (),
    soak: Data | None = None,
    topology: Data | None = None,
) -> dict[str, Any]:
    """Build report.json from what the phases found.

    `not_asked` are phases that were not requested. `groups` has the value of the host variable `group_by` by host;
    `earlier` are reports of this cluster, `soak` is the record of soak.py. Without a given `topology` it is the one
    that nodes or pairs show. A phase's state is the worst of its checks, and of the state that it gives itself.
    Benchmarks and stragglers without a check in their phases become checks, so that they count. Raises TypeError or
    ValueError for a check that is none.
    """
    benchmarks = [safe(record) for record in benchmarks]
    stragglers = dict(safe(stragglers)) if stragglers else None
    measured, nodes = stragglers.pop("topology", None) if stragglers else None, list(nodes)
    again = playbook("playbooks/verify.yml", inventory)
    checked = _with_records([_phase(phase) for phase in phases], benchmarks, stragglers, again)
    checks = [check for phase in checked for check in phase["checks"]]
    # A verification in which no check was made verifies nothing.
    states = [phase["state"] for phase in checked if phase["state"] in MADE]
    state = worst(states) if states else "unknown"
    made = {
        "schema": SCHEMA,
        "id": safe(report_id),
        "cluster": safe(cluster),
        "inventory": safe(inventory),
        "started": started,
        "finished": finished,
        "elapsed_s": round(max(0.0, finished - started), 1),
        "state": state,
        "exit_code": EXIT_CODES[state],
        "text": "",
        "first": first_step(checks),
        "hosts": [safe(host) for host in hosts],
        "group_by": safe(group_by),
        "nodes": [
            {**node, "group": group}
            for node, group in zip(
                _nodes(hosts, {node["host"]: node for node in nodes}, checks, stragglers, bool(states)),
                _groups(hosts, groups or {}),
            )
        ],
        "phases": checked,
        "coverage": _coverage(checked, not_asked),
        "benchmarks": benchmarks,
        "stragglers": stragglers,
        "topology": safe(topology or switches.of_nodes(nodes) or measured),
        "versions": safe(versions),
        "commands": _commands(checks),
        "soak": safe(soak) if soak else None,
    }
    made["offenders"] = offenders([*earlier, made])
    return made


def _coverage(phases: Sequence[Data], not_asked: Iterable[str]) -> dict[str, Any]:
    """Return the phases in which something was checked, those that do not apply, and those that were not requested."""
    named = {"checked": MADE, "not_applicable": ("skipped",), "not_asked": ("not_asked",)}
    found = {word: [phase["name"] for phase in phases if phase["state"] in states] for word, states in named.items()}
    found["not_asked"] += map(safe, not_asked)
    return found


def why_not(phase: Data) -> str:
    """Say why checks of a phase do not apply or were not asked for; nothing where all were made.

    Where others were made, the checks are named: `CUDA, NCCL: not on any node`.
    """
    names = grouped((check["reason"], check["name"]) for check in phase["checks"] if check["state"] not in MADE)
    of_checks = list(names)
    if phase["state"] in MADE:
        of_checks = [f"{', '.join(some_of(list(dict.fromkeys(of)), MAX_NAMED))}: {why}" for why, of in names.items()]
    reasons = [str(reason) for reason in dict.fromkeys([phase["reason"], *of_checks]) if reason]
    # The reason of a phase that was skipped as a whole consists of the reasons of its checks.
    reasons = [text for text in reasons if not any(text in other for other in reasons if other != text)]
    return "; ".join(some_of(reasons, MAX_REASONS))


def _phase(phase: Data) -> dict[str, Any]:
    checks = [safe(Check.from_dict(check).as_dict()) for check in phase.get("checks") or ()]
    return {
        "name": str(phase["name"]),
        "state": worst([*(check["state"] for check in checks), phase.get("state") or "skipped"]),
        "reason": safe(phase.get("reason") or ""),
        "started": phase.get("started"),
        "elapsed_s": phase.get("elapsed_s"),
        "checks": checks,
    }


def _with_records(
    phases: list[dict[str, Any]], benchmarks: Sequence[Data], stragglers: Data | None, again: str
) -> list[dict[str, Any]]:
    """Add checks for records of phases that have no checks."""
    by_name = {phase["name"]: phase for phase in phases}
    missing = [check for record in benchmarks for check in benchmark_checks(record, again)]
    missing += straggler_checks(stragglers, again) if stragglers else []
    for check in [check for check in missing if not (by_name.get(check.phase) or {}).get("checks")]:
        phase = by_name.setdefault(check.phase, _phase({"name": check.phase}))
        phase["checks"].append(safe(check.as_dict()))
        phase["state"] = worst([phase["state"], check.state])
    return list(by_name.values())


def first_step(checks: Sequence[Data]) -> dict[str, Any] | None:
    """Return what to do first: {hosts, phase, check, reason, action}, or None where everything passed.

    Failures come before what is unknown. Hosts that cannot be reached come first; then the host that most phases name,
    as each of them looks from another side; its phase that says most (FIRST_PHASES) says what to do.
    """
    failed = [check for check in checks if check["state"] == "fail"]
    bad = failed or [check for check in checks if check["state"] == "unknown"]
    if not bad:
        return None
    phases = grouped((host, check["phase"]) for check in bad for host in check["hosts"])

    def rank(check: Data) -> tuple[bool, int, int, bool]:
        most = max((len(set(phases[host])) for host in check["hosts"]), default=0)
        return check["phase"] != "reach", -most, FIRST_PHASES.index(check["phase"]), not check["hosts"]

    # The first of equal ones: a phase lists first what weighs most.
    chosen = min(bad, key=rank)
    return {
        "hosts": list(chosen["hosts"]),
        "phase": chosen["phase"],
        "check": chosen["name"],
        "reason": chosen["reason"] or _comparison(chosen),
        "action": chosen["action"] or chosen["command"],
    }


def _comparison(check: Data) -> str:
    parts = [("found", check["found"]), ("expected", check["expected"])]
    return ", ".join(f"{word} {text}" for word, text in parts if text)


def _nodes(
    hosts: Sequence[str], given: Mapping[str, Data], checks: Sequence[Data], stragglers: Data | None, verified: bool
) -> list[dict[str, Any]]:
    bad = [check for check in checks if check["state"] in ("fail", "unknown")]
    states = grouped((host, check["state"]) for check in bad for host in check["hosts"])
    for node in (stragglers or {}).get("nodes", ()):
        states.setdefault(node["host"], []).append(node["state"])
    return [
        {
            "host": safe(host),
            "address": safe((given.get(host) or {}).get("address") or ""),
            "state": worst([*states.get(safe(host), ()), "pass" if verified else "skipped"]),
            "facts": safe((given.get(host) or {}).get("facts") or {}),
        }
        for host in hosts
    ]


def _groups(hosts: Sequence[str], groups: Data) -> list[str]:
    """Return the group of each host as text; "" for none."""
    return [safe("" if groups.get(host) is None else str(groups[host])) for host in hosts]


def _commands(checks: Iterable[Data]) -> list[dict[str, str]]:
    """Return each command of a phase once, with the first check that it repeats."""
    first: dict[tuple[str, str], str] = {}
    for check in checks:
        if check["command"]:
            first.setdefault((check["phase"], check["command"]), check["name"])
    return [{"phase": phase, "check": name, "command": command} for (phase, command), name in first.items()]


_RESULTS = {
    "pass": "is verified in {checked}",
    "fail": "is NOT fit to train",
    "unknown": "is not verified: something could not be measured",
}
NOTHING = "is not verified: nothing was checked"


def first_text(first: Data) -> str:
    """Return on which hosts something is to be done first, and why; the name of the check if there is no reason."""
    reason = str(first["reason"] or first["check"])
    return f"{host_list(first['hosts'])}: {reason}" if first["hosts"] else reason


def sentence(report: Data) -> str:
    """Say the result in a sentence: what is verified is what was checked, and no more."""
    checked = report["coverage"]["checked"]
    words = _RESULTS[report["state"]].format(checked=", ".join(checked)) if checked else NOTHING
    return f"The cluster {report['cluster']} {words}."


def headline(report: Data) -> str:
    """Say the result in a line: what, how long, how many nodes and checks."""
    nodes, soak = counted(len(report["hosts"]), "node"), report["soak"]
    often = f", {counted(soak['repetitions'], 'repetition')}" if soak else ""
    return f"{sentence(report)} {counts(report)} on {nodes} in {clock(report['elapsed_s'])}{often}."


def counts(report: Data) -> str:
    """Say how many checks were made, and with which outcome: `41 checks: 38 passed, 2 failed, 1 unknown`."""
    states = [check["state"] for phase in report["phases"] for check in phase["checks"] if check["state"] in MADE]
    total = counted(len(states), "check")
    return f"{total} passed" if set(states) == {"pass"} else f"{total}: {outcomes(states)}" if states else total


def left_out(report: Data) -> list[tuple[str, str]]:
    """Return words and phases for what the result is not about."""
    words = (("not applicable", "not_applicable"), ("not asked for", "not_asked"))
    return [(word, ", ".join(report["coverage"][key])) for word, key in words if report["coverage"][key]]


def terminal_text(report: Data, run_dir: str) -> str:
    """Write what the user reads at the end of the run: result, first step, phases, what did not pass."""
    lines = [headline(report)]
    first = report["first"]
    if first:
        lines += _block("first", first_text(first), indent=2) + _block("", first["action"], indent=2)
    lines += [f"  {word:<15} {phases}" for word, phases in left_out(report)]
    lines += [f"  {'again and again':<15} {offender_text(each)}" for each in report["offenders"][:MAX_OFFENDERS]]
    if (report["topology"] or {}).get("switches"):
        lines.append(f"  {'topology':<15} {switches.text(report['topology'])}")
    lines.append("")
    numbers = [outcomes(check["state"] for check in phase["checks"]) for phase in report["phases"]]
    width = max((len(phase["name"]) for phase in report["phases"]), default=0)
    wide = max(map(len, numbers), default=0)
    for phase, count in zip(report["phases"], numbers):
        took = "" if phase["elapsed_s"] is None else clock(phase["elapsed_s"])
        state = {"skipped": "n/a", "not_asked": "not asked"}.get(phase["state"], phase["state"])
        row = f"  {phase['name']:<{width}}  {state:<9}{count:<{wide}}{took:>9}  {why_not(phase)}"
        lines.append(row.rstrip())
    bad = to_do(report)
    for number, check in enumerate(bad[:MAX_CHECKS], start=1):
        on_hosts = f" on {host_list(check['hosts'])}" if check["hosts"] else ""
        source = f" ({check['source']})" if check["source"] else ""
        lines += ["", f"  {number}. {check['phase']}: {check['name']}{on_hosts}: {check['state']}"]
        lines += _block("found", check["found"])
        lines += _block("expected", check["expected"] and check["expected"] + source)
        lines += _block("why", check["reason"])
        lines += _block("do", check["action"])
        lines += _block("repeat", check["command"])
    if len(bad) > MAX_CHECKS:
        lines += ["", f"  ... {len(bad) - MAX_CHECKS} more in the report"]
    files = [("report", "html"), ("data", "json"), ("for CI", "xml")]
    lines += ["", *(f"  {word:<8} {run_dir}/report.{ending}" for word, ending in files)]
    return "\n".join(lines)


def to_do(report: Data) -> list[Data]:
    """Return the checks that did not pass, in the order in which text and page number them."""
    checks = [check for phase in report["phases"] for check in phase["checks"]]
    return [check for state in ("fail", "unknown") for check in checks if check["state"] == state]


def _block(word: str, text: str, indent: int = 5) -> list[str]:
    """Write a text after a word, further lines of it below its first."""
    lines = enumerate(text.splitlines())
    return [f"{' ' * indent}{word if number == 0 else '':<9} {line}" for number, line in lines]
