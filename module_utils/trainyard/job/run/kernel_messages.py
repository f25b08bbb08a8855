# SPDX-License-Identifier: Apache-2.0
"""Kernel messages of a node that may explain a failed job: memory, GPUs, links, disks, the machine.

A message is {"time" (s since the epoch), "kind", "text"}. It is evidence only: just a process that the OOM killer ended
in the job's own slice surely belonged to the job. Sources: mm/oom_kill.c, NVRM's Xid lines (the list that
NVIDIA publishes), drivers mlx5_core, bonding and ixgbe, block/blk-core.c, kernel/hung_task.c, arch/x86/kernel/cpu/mce.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...findings.findings import counted, host_list

Message = dict[str, Any]

# Patterns by kind; the first kind that matches a line counts.
_KINDS = {
    "oom": re.compile(r"\boom-kill:constraint=|\bOut of memory: Kill|Memory cgroup out of memory: Kill"),
    "gpu": re.compile(r"\bNVRM: (?:Xid|GPU .{0,60}has fallen off the bus)|\[drm:.{0,80}\bGPU (?:reset|fault)"),
    "link": re.compile(
        r"\bLink (?:is )?down\b|\blink status definitely down\b|\bCable unplugged\b|\bPort: \d+ Link DOWN\b"
        r"|\bmlx\d_core .{0,120}(?:health (?:poll|compromised)|\bdevice's health|Fatal error|assert_var)",
        re.IGNORECASE,
    ),
    "disk": re.compile(
        r"\bI/O error, dev \w|\bEXT4-fs error|\bXFS \([^)]{1,40}\): .{0,60}(?:error|shutdown)"
        r"|: server \S{1,255} not responding"
    ),
    "machine": re.compile(
        r"\bmce: \[Hardware Error\]|\bMachine check events logged|\bthermal.{0,40}\bcritical", re.IGNORECASE
    ),
    "hung": re.compile(r"\bINFO: task .{1,40} blocked for more than \d+ seconds"),
}
# `journalctl -k -o short-unix`: 1790000000.123456 host kernel: text; dmesg: [ 1234.567890] text.
_JOURNAL = re.compile(r"(?P<at>\d{9,11}\.\d+) \S+ kernel: (?P<text>.*)")
_DMESG = re.compile(r"\[ *(?P<at>\d+\.\d+)\] (?P<text>.*)")
_OOM = re.compile(r"task_memcg=(?P<group>[^,]{0,1000}),task=(?P<name>[^,]{1,64}),pid=(?P<pid>\d{1,10})\b")
MAX_MESSAGES, _MAX_TEXT = 64, 600
# How long before and after a failure messages are of interest, in seconds; clocks differ.
BEFORE_S, AFTER_S = 300.0, 5.0
_SHOWN = 6


def parse(lines: Iterable[str], since: float, until: float, booted: float) -> list[Message]:
    """Return the messages between two times; `booted` is when the machine started, for dmesg."""
    found = []
    for line in lines:
        match = _JOURNAL.match(line) or _DMESG.match(line)
        if match is None:
            continue
        at = float(match["at"]) + (0.0 if match.re is _JOURNAL else booted)
        kind = next((kind for kind, words in _KINDS.items() if words.search(match["text"][:1000])), "")
        if kind and since <= at <= until:
            found.append({"time": round(at, 3), "kind": kind, "text": match["text"][:_MAX_TEXT]})
    return found[-MAX_MESSAGES:]


def of_failure(by_host: Mapping[str, Sequence[Message]], failure: Mapping[str, Any], end: Any) -> list[Message]:
    """Return the messages around a failure in order of time; equal ones once, with all hosts."""
    at = failure.get("time") or end
    hosts: dict[tuple[float, str, str], list[str]] = {}
    for host, messages in by_host.items():
        for each in messages:
            if at is None or at - BEFORE_S <= each["time"] <= at + AFTER_S:
                hosts.setdefault((each["time"], each["kind"], each["text"]), []).append(host)
    return [
        {"hosts": names, "time": when, "kind": kind, "text": text}
        for (when, kind, text), names in sorted(hosts.items())
    ][-MAX_MESSAGES:]


def ended_process(messages: Iterable[Message], host: str, job_id: str) -> str:
    """Return which process of a job's slice on this host the OOM killer ended; "" without one."""
    # The same name as units.slice_name returns.
    slice_name = f"trainyard-{job_id.replace('-', '_')}.slice"
    for each in messages:
        match = _OOM.search(each["text"]) if each["kind"] == "oom" and host in each["hosts"] else None
        if match and f"/{slice_name}/" in f"{match['group']}/":
            return f"the kernel's OOM killer ended {match['name']} (process {match['pid']}) of this job on {host}"
    return ""


def counted_text(failure: Mapping[str, Any], host: str) -> str:
    """Return how many processes of a job the OOM killer ended on its failure's host meanwhile; "" if that is not known.

    Where only all processes of the machine or of a container are counted, those that ended may be of others.
    """
    kills = failure.get("oom_kills")
    if kills is None or (kills and not failure.get("oom_of_job")):
        return ""
    whose = " of this job" if failure.get("oom_of_job") else ""
    processes = counted(kills, "process", "processes") if kills else "no process"
    return f"the kernel's OOM killer ended {processes}{whose} on {host} while the job ran"


def texts(messages: Sequence[Message], at: float | None) -> list[str]:
    """Return lines on the last messages, each with its time before the failure."""
    lines = []
    for each in messages[-_SHOWN:]:
        before = "" if at is None else f" {max(0.0, at - each['time']):.0f} s before"
        lines.append(f"the kernel of {host_list(each['hosts'])} said{before}: {each['text']}")
    return lines
