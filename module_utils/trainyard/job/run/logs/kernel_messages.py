# SPDX-License-Identifier: Apache-2.0
"""Kernel messages of a node that may explain a failed job: memory, GPUs, links, disks, the machine.

A message is {"time" (s since the epoch), "kind", "text"}. It is evidence only: just a process that the OOM killer ended
in the job's own unit surely belonged to the job. Sources: mm/oom_kill.c, NVRM's Xid and SXid lines (the catalog that
NVIDIA publishes), drivers mlx5_core, bonding, ixgbe, nvme and pcieport, EDAC, block/blk-core.c, kernel/hung_task.c,
kernel/watchdog.c, arch/x86/kernel/cpu/mce, reports of users.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.findings import counted, host_list

Message = dict[str, Any]


class Kind(NamedTuple):
    """Messages of one meaning: their kind, how they read, what they mean, and what to do about them."""

    kind: str
    pattern: re.Pattern[str]
    meaning: str
    action: str


_RESET = "end what uses the GPU, then nvidia-smi --gpu-reset -i GPU, or restart the node"
_POWER = "restart the node, power off first; if it comes back, have the device checked"
_CABLE = "check cable, optical module and switch port"
_DISK = "check the disk (smartctl -a /dev/NAME), and replace it if it comes back"
_SERVER = "check the file server, and the network to it"
_RAM = "have the node's memory and processors checked (ras-mc-ctl --errors)"
# The first row that matches counts. Repeats are bounded, so that the time grows with the line.
_TABLE = tuple(
    Kind(kind, re.compile(pattern, re.IGNORECASE), meaning, action)
    for kind, pattern, meaning, action in (
        ("oom", r"\boom-kill:constraint=|\bOut of memory: Kill|Memory cgroup out of memory: Kill",
         "a process was ended for want of memory", "more memory, fewer processes on the node, or smaller batches"),
        ("gpu", r"\bNVRM: .{0,200}fallen off the bus|\bNVRM: Xid \([^)]{1,40}\): 79,",
         "the driver has lost this GPU", _POWER),
        ("gpu", r"\bNVRM: Xid \([^)]{1,40}\): (?:48|63|64|92|94|95|171|172),",
         "errors in the memory of this GPU", f"verify.yml counts them; {_RESET}"),
        ("gpu", r"\bNVRM: Xid \([^)]{1,40}\): (?:74|14[4-9]|150),|\bSXid \(PCI:",
         "an error of NVLink or NVSwitch", "restart the node; if it comes back, have NVLink and NVSwitch checked"),
        ("gpu", r"\bNVRM: Xid \([^)]{1,40}\): (?:119|120),|\bNVRM: .{0,160}\bGSP Timeout",
         "the GPU's own processor (GSP) does not answer its driver", _RESET),
        ("gpu", r"\bNVRM: Xid \([^)]{1,40}\): (?:13|31|43|45),",
         "the work of a program on this GPU failed, mostly by the program's own fault", "see the log of that rank"),
        ("gpu", r"\bNVRM: .{0,300}\bNV_ERR_RESET_REQUIRED", "the GPU works again after a reset only", _RESET),
        ("gpu", r"\bNVRM: (?:Xid|The NVIDIA probe routine failed)|\[drm:.{0,80}\bGPU (?:reset|fault)",
         "an error of a GPU or its driver", "look an Xid up in NVIDIA's catalog; restart the node"),
        ("npu", r"\bascend .{0,120}\b(?:heartbeat lost|device lost|hardware fault)",
         "an NPU does not answer its driver", f"npu-smi info on the node; {_POWER}"),
        ("bus", r"\bAER: .{0,60}\bUncorrect(?:ed|able)\b|\bseverity=Uncorrect(?:ed|able)\b",
         "a device on PCI Express failed", _POWER),
        ("link", r"\bLink (?:is )?down\b|\blink status definitely down\b|\bCable unplugged\b|\bPort: \d+ Link DOWN\b",
         "a network port lost its link", _CABLE),
        ("link", r"\bmlx\d_core .{0,120}(?:health (?:poll|compromised)|\bdevice's health|Fatal error|assert_var)",
         "a network adapter does not answer its driver", _POWER),
        ("link", r"\bmlx\d_\d+: .{0,80}\breg mr failed\b", "a network adapter could not register memory for RDMA",
         "check the node's free memory: status -12 is a lack of it"),
        ("disk", r": server \S{1,255} not responding|\bLustreError: |\bLustre: .{0,200}\bwas lost\b"
         r"|\blibceph: .{0,80}\bdown\b",
         "a file server does not answer", _SERVER),
        ("disk", r"\bnvme\d+: .{0,80}(?:\btimeout\b|controller is down|not ready)|\bI/O error, dev \w"
         r"|\bcritical (?:medium|target) error, dev \w", "a disk does not read or write", _DISK),
        ("disk", r"\bEXT4-fs error|\bXFS \([^)]{1,40}\): .{0,60}(?:error|shutdown)", "a file system is damaged",
         f"repair it when nothing uses it; {_DISK}"),
        ("machine", r"\[Hardware Error\]: (?:Hardware error from|.{0,40}Machine Check)|\bMachine check events logged"
         r"|\bEDAC \S{1,20}: \d+ UE\b|\bmce: \[Hardware Error\]", "memory or a processor failed", _RAM),
        ("machine", r"\bthermal.{0,40}\bcritical", "the machine is too hot", "check fans and the air of the room"),
        ("hung", r"\bINFO: task .{1,40} blocked for more than \d+ seconds",
         "a process waits in the kernel, mostly for a disk", "check disks and file servers of the node"),
        ("hung", r"\bsoft lockup - CPU|\bhard LOCKUP\b|\bself-detected stall on CPU",
         "a processor did not leave the kernel", "if it comes back, update kernel and drivers"),
        ("crash", r"\[\d{1,10}\](?:: segfault at | trap invalid opcode| general protection fault)",
         "a program crashed, in the library that the line names",
         "see the log of that rank; check that its libraries fit"),
    )
)  # fmt: skip
# `journalctl -k -o short-unix`: 1790000000.123456 host kernel: text; dmesg: [ 1234.567890] text.
_JOURNAL = re.compile(r"(?P<at>\d{9,11}\.\d+) \S+ kernel: (?P<text>.*)")
_DMESG = re.compile(r"\[ *(?P<at>\d+\.\d+)\] (?P<text>.*)")
_OOM = re.compile(r"task_memcg=(?P<group>[^,]{0,1000}),task=(?P<name>[^,]{1,64}),pid=(?P<pid>\d{1,10})\b")
MAX_MESSAGES, _MAX_TEXT, _MAX_LINE = 64, 600, 1000
# How many messages of a log are read, and how many of one meaning are kept.
_MAX_LINES, _SAME = 20_000, 8
# How long before and after a failure messages are of interest, in seconds; clocks differ.
BEFORE_S, AFTER_S = 300.0, 5.0
_SHOWN = 6


def parse(lines: Iterable[str], since: float, until: float, booted: float) -> list[Message]:
    """Return the messages between two times; `booted` is when the machine started, for dmesg."""
    found = []
    seen: Counter[str] = Counter()
    for at, text in deque(_messages(lines, booted), _MAX_LINES):
        row = _row(text) if since <= at <= until else None
        seen.update([row.meaning] if row else [])
        # The first ones are closest to the cause, and many of one meaning would hide others.
        if row and seen[row.meaning] <= _SAME:
            found.append({"time": round(at, 3), "kind": row.kind, "text": text[:_MAX_TEXT]})
    return found[-MAX_MESSAGES:]


def _messages(lines: Iterable[str], booted: float) -> Iterator[tuple[float, str]]:
    """Yield time and text of each message; a message may have several lines, of which only the first has a time."""
    at, text = 0.0, ""
    for line in lines:
        match = _JOURNAL.match(line) or _DMESG.match(line)
        if match is None:
            # dmesg and journalctl indent the other lines.
            text += f" {line.strip()}" if text and line[:1] == " " and len(text) < _MAX_TEXT else ""
            continue
        if text:
            yield at, text
        at, text = float(match["at"]) + (0.0 if match.re is _JOURNAL else booted), match["text"][:_MAX_LINE]
    if text:
        yield at, text


def _row(text: str) -> Kind | None:
    return next((row for row in _TABLE if row.pattern.search(text[:_MAX_LINE])), None)


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
    """Return which process of a job's unit on this host the OOM killer ended; "" without one."""
    # The same name as units.unit_name returns.
    unit = f"trainyard-{job_id}.service"
    for each in messages:
        match = _OOM.search(each["text"]) if each["kind"] == "oom" and host in each["hosts"] else None
        if match and f"/{unit}/" in f"{match['group']}/":
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
    """Return lines on the last kinds of messages: the first of each, its time before the failure, its meaning."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    meanings: dict[str, str] = {}
    for each in messages:
        row = _row(each["text"])
        meaning = row.meaning if row else each["text"]
        meanings[meaning] = f"  {meaning}: {row.action}" if row else ""
        alike.setdefault((meaning, *each["hosts"]), []).append(each)
    lines = []
    for (meaning, *hosts), group in list(alike.items())[-_SHOWN:]:
        before = "" if at is None else f" {max(0.0, at - group[0]['time']):.0f} s before"
        more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        lines.append(f"the kernel of {host_list(hosts)} said{before}: {group[0]['text']}{more}")
        # Once for all hosts.
        lines += filter(None, [meanings.pop(meaning, "")])
    return lines
