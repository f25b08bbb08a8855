# SPDX-License-Identifier: Apache-2.0
"""Verify one benchmark of collectives: correct results, the planned ranks and hosts, bandwidth, path. Pure.

The bandwidth is checked at the largest message size, as the average that nccl-tests print sinks with each small size. A
benchmark that could not be measured is `unknown`, one whose output stops in the middle has failed, and one on hardware
without a known rate is `skipped`: there is nothing to compare it with.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..base.checks import shown
from ..base.findings import Finding, counted, grouped, host_list, refusal_text
from ..hardware.interfaces import port_name
from ..hardware.traffic import Traffic
from ..nvidia import nccl_tests_faults
from ..nvidia.nccl_tests_output import Measured, Output, Rank, Row
from . import bandwidth, latency, transport

# Collectives whose busbw is not algbw times a factor of the number of ranks alone.
_UNEVEN = ("alltoallv", "hypercube")
_SAME_GBPS = 0.03
# What in place may be slower than out of place before it is a fault.
_IN_PLACE = 0.9


@dataclass
class Request:
    """The requested benchmark, and the facts about it besides its output; each default stands for "unknown".

    `hosts` are inventory names, `exact_hosts` whether the output must name them (it may know them by other names);
    `nodes` as in bandwidth.py, each with `hostname` where it is known; `busbw` the expected value given by the user;
    `baselines` the entries of a file of baselines, with `compare` one that must have an entry for this benchmark;
    `traffic` the RDMA counters of each host before and after the run; `job_failure` why the job of the benchmark did
    not succeed.
    """

    collective: str = ""
    backend: str = ""
    ranks: int | None = None
    hosts: Sequence[str] = ()
    exact_hosts: bool = False
    nodes: Sequence[bandwidth.Node] = ()
    busbw: float | None = None
    fraction: float = bandwidth.FRACTION
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compare: bool = False
    traffic: Mapping[str, tuple[Traffic, Traffic]] = field(default_factory=dict)
    job_id: str = ""
    job_failure: str = ""


def merge(outputs: Sequence[Output]) -> Output:
    """Join what the ranks' own logs hold: the first one with a table, and what the others add to it."""
    first = next((output for output in outputs if output.tables), outputs[0] if outputs else Output(problem="no log"))
    for output in outputs:
        if output is not first:
            first.tables += output.tables
            first.ranks += output.ranks
            first.wrong_ranks += output.wrong_ranks
            first.errors += [error for error in output.errors if error not in first.errors]
            first.nccl_lines += output.nccl_lines
    return first


def largest(rows: Sequence[Row], size: int | None = None) -> float | None:
    """Return the bus bandwidth at the largest size, or at a given one: the lowest, where a size was measured often.

    The out-of-place half counts, which every collective has, else the other one.
    """
    values = [_busbw(row) for row in _of_size(rows, size)]
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _of_size(rows: Sequence[Row], size: int | None) -> list[Row]:
    size = max((row.bytes for row in rows), default=None) if size is None else size
    return [row for row in rows if row.bytes == size]


def _in_place(rows: Sequence[Row], size: int | None) -> float | None:
    """Return the lowest bus bandwidth of the in-place half; None where a collective has none."""
    halves = [row.in_place for row in _of_size(rows, size)]
    return min((half.busbw for half in halves if half is not None and half.busbw is not None), default=None)


def _busbw(row: Row) -> float | None:
    for half in (row.out_of_place, row.in_place):
        if half is not None and half.busbw is not None:
            return half.busbw
    return None


def _short(name: str) -> str:
    """Return a host name as nccl-tests print it: up to the first dot. An address is no name."""
    return name if re.fullmatch(r"[0-9.]+|.*:.*", name) else name.split(".", 1)[0].lower()


def _hosts(ranks: Sequence[Rank], request: Request) -> tuple[list[str], str, str]:
    """Return the hosts that took part, by their inventory names where these are known, a fault and a note."""
    found = list(dict.fromkeys(rank.host for rank in ranks))
    names = {str(node["host"]): str(node.get("hostname") or "") for node in request.nodes}
    inventory = grouped((_short(names.get(host) or host), host) for host in request.hosts or names)
    named = [inventory[_short(host)][0] if _short(host) in inventory else host for host in found]
    if not request.hosts or not found:
        return named, "", ""
    missing = [host for short, hosts in inventory.items() for host in hosts if short not in map(_short, found)]
    strange = [host for host in found if _short(host) not in inventory]
    twins = [hosts for hosts in inventory.values() if len(hosts) > 1]
    if twins:
        return named, f"{host_list(twins[0])} have one host name: they cannot be told apart", ""
    if not missing and not strange:
        return named, "", ""
    if not request.exact_hosts and not any(names.values()) and len(strange) == len(found) == len(request.hosts):
        return list(request.hosts), "", f"the output knows the hosts by other names: {host_list(found)}"
    parts = [f"no rank ran on {host_list(missing)}"] if missing else []
    parts += [f"ranks ran on {host_list(strange)}, which were not asked"] if strange else []
    return named, "; ".join(parts), ""


def _contradiction(output: Output, collective: str, ranks: int) -> str:
    """Compare busbw / algbw with what the collective and the number of ranks make of it."""
    expected = bandwidth.factor(collective, ranks)
    row = max(output.rows, key=lambda row: row.bytes, default=None)
    half: Measured | None = (row.out_of_place or row.in_place) if row else None
    if expected is None or collective in _UNEVEN or half is None or half.algbw is None or half.busbw is None:
        return ""
    # Two decimals are printed.
    if half.algbw < 1 or abs(half.busbw - half.algbw * expected) <= _SAME_GBPS * half.algbw + 0.01:
        return ""
    ratio = f"{half.busbw / half.algbw:.2f} times algbw"
    return f"busbw is {ratio}, where {collective} over the {ranks} ranks listed makes it {expected:.2f} times"


def _nodes(request: Request, hosts: Sequence[str]) -> list[bandwidth.Node]:
    """Return what is known of the nodes that took part."""
    return [node for node in request.nodes if node["host"] in hosts]


def _expectation(
    request: Request, output: Output, collective: str, backend: str, ranks: int, hosts: Sequence[str]
) -> tuple[bandwidth.Expected | bandwidth.NoFigure, int | None]:
    """Return what is expected or why nothing is, and at which size (None: the largest)."""
    if request.busbw is not None:
        return bandwidth.Expected(request.busbw, request.fraction, "given"), None
    nodes = _nodes(request, hosts)
    key = bandwidth.baseline_key(nodes, collective, backend, len(hosts), ranks)
    entry = request.baselines.get(key)
    if entry is not None:
        source = f"baseline of {entry.get('saved') or 'an unknown day'} ({entry.get('run') or 'run unknown'})"
        size = int(entry["bytes"])
        if any(row.bytes == size for row in output.rows):
            return bandwidth.Expected(float(entry["busbw"]), request.fraction, source), size
        why = f"the baseline is for messages of {size} bytes, which were not measured"
        return bandwidth.NoFigure(why, unread=True), None
    groups = len({rank.group for rank in output.ranks}) or 1
    if request.nodes and len(nodes) < len(hosts):
        known = {node["host"] for node in nodes}
        unread = host_list([host for host in hosts if host not in known])
        return bandwidth.NoFigure(f"the hardware of {unread} was not read", unread=True), None
    found = bandwidth.from_hardware(nodes, collective, backend, ranks, groups=groups, fraction=request.fraction)
    if not request.compare:
        return found, None
    # The user asks for a comparison: a baseline without this entry is a missing measurement.
    missing = f"the baseline has no entry for {key}; it has {host_list(sorted(request.baselines), 3) or 'none'}"
    if isinstance(found, bandwidth.NoFigure):
        return bandwidth.NoFigure(missing, unread=True), None
    return replace(found, source=f"{found.source}; {missing}"), None


def _faults(output: Output, request: Request, host_fault: str) -> list[str]:
    """Return what is wrong with a benchmark besides its bandwidth and path, "" for what is right."""
    wrong = f"{output.collective} was measured, expected {request.collective}"
    # A log that begins in the middle does not show what is missing.
    incomplete = []
    if not output.headless:
        ranks_fault, ended = nccl_tests_faults.ranks(output, request.ranks), nccl_tests_faults.ending(output)
        incomplete = [output.problem, ranks_fault, host_fault, ended]
    return [
        *nccl_tests_faults.values(output),
        output.errors[0] if output.errors else "",
        request.job_failure,
        *incomplete,
        "busbw is below NCCL_TESTS_MIN_BW" if output.too_slow else "",
        wrong if request.collective and output.collective not in ("", request.collective) else "",
    ]


def verify(output: Output, request: Request) -> dict[str, Any]:
    """Return the record of a benchmark (docs/bandwidth.md)."""
    collective, backend = output.collective or request.collective, output.backend or request.backend
    hosts, host_fault, host_note = _hosts(output.ranks, request)
    ranks, groups = len(output.ranks), Counter(rank.group for rank in output.ranks)
    in_group = groups[min(groups)] if groups else 0
    busbw = largest(output.rows)
    faults = _faults(output, request, host_fault)
    unknowns = [_HEADLESS] if output.headless else []
    if not any(faults) and not unknowns:
        unknowns += _unmeasured(output, collective, in_group, busbw)
    measured = not any(faults) and not unknowns and busbw is not None
    figure, size = _expectation(request, output, collective, backend, ranks, hosts)
    expected = figure if isinstance(figure, bandwidth.Expected) else None
    key = bandwidth.baseline_key(_nodes(request, hosts), collective, backend, len(hosts), ranks)
    not_compared, small = "", None
    compared = busbw if size is None else largest(output.rows, size)
    path = _path(output, request, backend, hosts)
    notes = [host_note, *output.notes]
    if path and request.nodes:
        faults += [path["reason"]] if path["state"] == "fail" else []
        unknowns += [path["reason"]] if path["state"] == "unknown" else []
    if measured and busbw is not None:
        if isinstance(figure, bandwidth.NoFigure):
            not_compared = f"nothing to compare it with: {figure.why}; {_ADVICE}"
            unknowns += [not_compared] if figure.unread else []
        else:
            faults.append(_slow(output.rows, figure, compared, size))
        small = latency.of_benchmark(output.rows, backend, request.baselines.get(key), request.fraction)
        faults.append(latency.slow(small))
    if len(groups) > 1:
        notes.append(f"the ranks form {len(groups)} groups: the bandwidths are those of one group of {in_group}")
    much = expected is not None and compared is not None and compared > expected.busbw * 1.05
    if expected and compared is not None and much and collective == "all_reduce" and expected.source != "given":
        notes.append(
            f"{compared:.2f} GB/s is more than the {expected.busbw:.2f} expected: between two nodes NCCL's trees can, "
            "NCCL_ALGO=RING measures the network"
        )
    reasons = [text for text in faults if text] or unknowns or ([not_compared] if not_compared else [])
    state = "fail" if any(faults) else "unknown" if unknowns else "skipped" if not_compared else "pass"
    average = output.average
    return _record(
        state=state,
        reason=reasons[0] if reasons else "",
        collective=collective,
        backend=backend,
        ranks=ranks,
        hosts=hosts,
        sizes=[asdict(row) for row in output.rows],
        busbw_largest=busbw,
        busbw_average=None if average is None or math.isnan(average) else average,
        footer_seen=output.footer_seen,
        job_id=request.job_id,
        key=key if measured else "",
        format=f"{output.format}{f', {output.version}' if output.version else ''}",
        expected=expected.as_dict() if expected else None,
        latency=small,
        path=path,
        findings=list(dict.fromkeys(filter(None, [*reasons[1:], *(unknowns if any(faults) else []), *notes]))),
    )


def _slow(rows: Sequence[Row], figure: bandwidth.Expected, busbw: float | None, size: int | None) -> str:
    """Say that the bandwidth is below the expected one; "" if it is not."""
    at = max(row.bytes for row in rows) if size is None else size
    of = f"{figure.fraction:.0%} of {figure.busbw:.2f}: {figure.source}"
    in_place, least = _in_place(rows, size), figure.gate * _IN_PLACE
    if busbw is not None and busbw < figure.gate:
        return f"busbw {busbw:.2f} GB/s at {at} bytes, expected at least {figure.gate:.2f} ({of})"
    if in_place is not None and in_place < least:
        of = f"{_IN_PLACE:.0%} of out of place, which is {of}"
        return f"busbw {in_place:.2f} GB/s in place at {at} bytes, expected at least {least:.2f} ({of})"
    return ""


def _record(**values: Any) -> dict[str, Any]:
    """Return the record of a benchmark; values that are not given are those of one that did not run."""
    nothing = {
        "state": "fail", "reason": "", "collective": "", "backend": "", "ranks": 0, "hosts": [], "sizes": [],
        "busbw_largest": None, "busbw_average": None, "footer_seen": False, "job_id": "", "format": "",
        "expected": None, "latency": None, "path": None, "baseline": "", "key": "", "findings": [],
    }  # fmt: skip
    return {**nothing, **values}


_HEADLESS = "the log begins in the middle: its beginning, at least the list of ranks, is missing; give the whole log"
_ADVICE = "give the expected value, or save a baseline when the cluster is known to be well (docs/bandwidth.md)"


def _unmeasured(output: Output, collective: str, ranks: int, busbw: float | None) -> list[str]:
    if not ranks:
        return ["the output does not list its ranks: it is unknown how many took part, and where"]
    if ranks == 1:
        return ["one rank alone sends nothing: there is no bus bandwidth to measure"]
    found = [
        "the results were not checked (-c 0)" if output.unchecked_rows else "",
        "no bus bandwidth was printed at the largest size" if busbw is None else "",
        _contradiction(output, collective, ranks),
    ]
    return [text for text in found if text]


def _path(output: Output, request: Request, backend: str, hosts: Sequence[str]) -> dict[str, Any] | None:
    active = None
    if request.nodes:
        nodes = _nodes(request, hosts)
        active = {str(node["host"]): [port_name(port) for port in bandwidth.active_ports(node)] for node in nodes}
    if active is None and not request.traffic and not output.nccl_lines:
        return None
    # Each node sends a message of the largest size at least once; warm-up and repetitions make it many times that.
    least = max((row.bytes for row in output.rows), default=0)
    return (
        transport.check_transport(hosts, backend, least, active, request.traffic, output.nccl_lines) if least else None
    )


def refused(findings: Sequence[Finding], collective: str) -> dict[str, Any]:
    """Return the record of a benchmark that could not run, as its job was refused."""
    texts = [f"{finding.check}, {finding.host}, {finding.found}" for finding in findings]
    return _record(reason=refusal_text(findings), collective=collective, findings=texts)


def nodes_of(plan: Mapping[str, Any], known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes of a job (bandwidth.py) by its plan, as far as their facts are `known`, by host."""
    found = []
    for node in plan["nodes"]:
        if node["host"] in known:
            facts = known[node["host"]]["facts"]
            gpus = facts["accelerators"]["devices"] if node["devices"] else []
            place = {"host": node["host"], "hostname": facts["hostname"], "interface": node["interface"]}
            found.append({**place, "networks": facts["networks"], "gpus": gpus})
    return found


def describe(record: Mapping[str, Any]) -> str:
    """Return the result of a benchmark as a line."""
    over = f" over {record['backend']}" if record["backend"] else ""
    where = f" on {record['hosts'][0]}" if len(record["hosts"]) == 1 else ""
    state = shown(record["state"])
    busbw = record["busbw_largest"]
    size = max((row["bytes"] for row in record["sizes"]), default=0)
    speed = "" if busbw is None else f", {busbw:.2f} GB/s at {size} bytes"
    speed += f", {record['latency']['us']:.4g} µs for small messages" if record["latency"] else ""
    why = f"; {record['reason']}" if record["reason"] else ""
    return f"  {record['collective']}{over}, {counted(record['ranks'], 'rank')}{where}: {state}{speed}{why}"


def baseline_name(record: Mapping[str, Any], request: Request) -> str:
    """Return the name under which a benchmark is saved as a baseline, and found again."""
    nodes = _nodes(request, record["hosts"])
    return bandwidth.baseline_key(nodes, record["collective"], record["backend"], len(record["hosts"]), record["ranks"])


def baseline_entry(record: Mapping[str, Any], saved: str) -> tuple[dict[str, Any] | None, str]:
    """Return what is saved of a benchmark as a baseline, or why it is none; `saved` is the day."""
    # A benchmark is skipped because it lacks a baseline.
    if record["state"] not in ("pass", "skipped") or record["busbw_largest"] is None or record["ranks"] < 2:
        return None, record["reason"] or "nothing was measured"
    size = max(row["bytes"] for row in record["sizes"])
    small = record.get("latency") or {}
    times = {"latency_us": small["us"], "latency_bytes": small["bytes"]} if small else {}
    return {"busbw": record["busbw_largest"], "bytes": size, "saved": saved, "run": record["job_id"], **times}, ""
