# SPDX-License-Identifier: Apache-2.0
"""Check every rank's line of an all-gather: `all-gather rank 1 of 4 on n2: 0 1 2 3 right`.

The values are compared here once more, as a script may be wrong about itself, for instance if every rank takes itself
for the only one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..base.checks import Check
from ..base.findings import Finding, counted, some_of
from ..base.spans import named_ranks, numbers, ranges

_LINE = re.compile(r"all-gather rank (?P<rank>\d+) of (?P<ranks>\d+) on (?P<host>\S+): (?P<values>-?\d+(?: -?\d+)*) ")
# The cores that a rank may run on, as it says after the all-gather.
_CORES = re.compile(r"^cores of rank (?P<rank>\d{1,9}): (?P<cores>\d{1,5}(?:,\d{1,5}){0,9999})$", re.MULTILINE)
_MISSING = "all-gather result"
_ACTION = "read the log of the rank; the nodes' network (job_network) and its driver are what collectives stand on"
_UNBOUND = "look for a cpuset or CPUAffinity of the node without these cores, and for what binds ranks itself (job_env)"


def verify(
    hosts: Mapping[int, str], logs: Mapping[int, str], state: str, failure: str = "", failed_on: str = ""
) -> list[Finding]:
    """Check all ranks: `hosts` is the planned host of each, `logs` what each wrote, `state` how the job ended.

    If no rank printed a result, nothing is known of collectives: the finding is the `failure` of the job.
    """
    if failure and not any(_LINE.search(logs.get(rank, "")) for rank in hosts):
        action = "read the last lines of the log above, and mend what they name"
        return [Finding("job", failure, "a job that succeeds", action, host=failed_on)]
    expected = list(range(len(hosts)))
    findings = []
    for rank in sorted(hosts):
        found = list(_LINE.finditer(logs.get(rank, "")))
        values = [int(value) for value in found[-1]["values"].split()] if found else []
        if found and int(found[-1]["rank"]) == rank and values == expected:
            continue
        text = f"rank {rank} has {found[-1]['values']}" if found else f"rank {rank} printed no result"
        if found and int(found[-1]["rank"]) != rank:
            text += f" and takes itself for rank {found[-1]['rank']}"
        name = "all-gather" if found else _MISSING
        findings.append(Finding(name, text, _values_text(expected), _ACTION, host=hosts[rank]))
    if not findings and state != "succeeded":
        text = f"it {state} after every rank had gathered rightly"
        findings.append(Finding("job", text, "a job that succeeds", _ACTION))
    return findings


def check(
    name: str, findings: Sequence[Finding], ranks: int, again: str, failure: str = "", failed_on: str = ""
) -> Check:
    """Return the check of one framework's collectives; `failure` is why the job failed, `failed_on` the host of that.

    If the job failed and no printed result is wrong, the job's failure is the reason: it ended the other ranks.
    """
    expected = f"0 to {ranks - 1} on every rank" if ranks else "a job that runs"
    if not findings and not failure:
        return Check("collectives", name, "pass", found=expected, expected=expected, command=again)
    wrong = [finding for finding in findings if finding.check != _MISSING] or list(findings)
    hosts = _hosts(wrong)
    # Four findings are enough to see what is wrong.
    found = "; ".join(dict.fromkeys(some_of([finding.found for finding in wrong], 4)))
    reason, action = found, wrong[0].action if wrong else _ACTION
    if failure and wrong == list(findings):
        hosts, reason = (failed_on,) if failed_on else hosts, failure
    return Check("collectives", name, "fail", hosts, found, expected, reason, action, again)


def binding(
    name: str, hosts: Mapping[int, str], planned: Mapping[int, str], logs: Mapping[int, str], again: str
) -> list[Check]:
    """Check that ranks run on the cores that are `planned` for them (placement/binding.py), or on some of these.

    Return no check where none are planned: a node has one domain, no devices, or job_binding is none.
    """
    if not planned:
        return []
    may: dict[int, set[int]] = {}
    for rank in planned:
        for line in _CORES.finditer(logs.get(rank, "")):
            if int(line["rank"]) == rank:
                may[rank] = set(map(int, line["cores"].split(",")))
    wrong = [rank for rank, cores in sorted(may.items()) if not cores <= numbers(planned[rank])]
    silent = sorted(planned.keys() - may)
    state, reason, action = "pass", "", ""
    if wrong:
        texts = [f"rank {rank} may run on {ranges(may[rank])[:100]}, expected {planned[rank]}" for rank in wrong]
        state, reason, action = "fail", "; ".join(some_of(texts, 4)), _UNBOUND
    elif silent:
        state, reason, action = "unknown", f"{named_ranks(silent)} printed no cores", "read the logs of these ranks"
    subject = tuple(dict.fromkeys(hosts[rank] for rank in wrong or silent))
    found, expected = reason or f"{counted(len(may), 'rank')} bound", "each rank on the cores next to its device"
    return [Check("collectives", f"cores, {name}", state, subject, found, expected, reason, action, again)]


def refused(name: str, findings: Sequence[Finding], again: str, phase: str = "collectives") -> Check:
    """Return the check of what could not be tried, as its job was refused."""
    first = findings[0]
    reason = f"the job could not run: {first.found}, expected {first.expected}"
    return Check(phase, name, "fail", _hosts(findings), first.found, first.expected, reason, first.action, again)


def _hosts(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.host for finding in findings if finding.host))


def _values_text(values: Sequence[int]) -> str:
    return " ".join(map(str, values)) if len(values) <= 8 else f"0 1 2 ... {values[-1]}"
