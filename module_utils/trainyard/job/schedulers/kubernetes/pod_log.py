# SPDX-License-Identifier: Apache-2.0
"""A pod prints the lines of its logs, each behind the log's name, and lines of our own, which no log can have.

    [rank 3] step 10 loss 0.1       a line of rank_3.log
    trainyard: job x on 2 pods      a text for people
    #trainyard plan 1/2 eJyrVi...   a part of a record: JSON, packed

A process of the pod can write there, too, as it can change any file of its job: a pod speaks only for itself.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

# The names of records: the plan of all pods, and at the end a pod's outputs and what it answers to `collect`.
PLAN, OUTPUTS, ANSWER = "plan", "outputs", "answer"
# Upper bound for the outputs of a pod, in bytes: the kubelet keeps 10 MiB of a log (containerLogMaxSize), and they are
# a third longer there.
MAX_OUTPUTS = 4 << 20
TEXT = "trainyard: "
# Container runtimes cut lines of 16 KiB.
_PART = 8000
# Upper bound for a record, in bytes.
_MAX_RECORD = 256 << 20
_LINE = re.compile(r"\[([\w.-]+|rank \d+)\] (.*)", re.ASCII)
_RECORD = re.compile(r"#trainyard (\w+) (\d{1,6})/(\d{1,6}) (\S+)", re.ASCII)


class Printed(NamedTuple):
    """The lines of a pod's logs by their names, its texts for people, and its records; of each kind the last."""

    logs: dict[str, list[str]]
    texts: list[str]
    records: dict[str, Any]


def prefix(log: str) -> str:
    """Return what stands before each line of a log."""
    stem = log[: -len(".log")]
    return f"[{stem.replace('_', ' ') if re.fullmatch(r'rank_[0-9]+', stem) else stem}] "


def record(kind: str, content: Any) -> list[str]:
    """Return a record as lines."""
    packed = base64.b64encode(zlib.compress(json.dumps(content).encode())).decode()
    parts = [packed[at : at + _PART] for at in range(0, len(packed), _PART)]
    return [f"#trainyard {kind} {number}/{len(parts)} {part}" for number, part in enumerate(parts, 1)]


def read(lines: Iterable[str]) -> Printed:
    """Read what a pod printed, of which the beginning may be lost."""
    found, parts = Printed({}, [], {}), dict[str, list[str]]()
    for line in lines:
        if log := _LINE.match(line):
            found.logs.setdefault(f"{log[1].replace(' ', '_')}.log", []).append(log[2])
        elif line.startswith(TEXT):
            found.texts.append(line[len(TEXT) :])
        elif part := _RECORD.fullmatch(line):
            kind, number, count = part[1], int(part[2]), int(part[3])
            known = parts.setdefault(kind, [])
            known[number - 1 :] = [part[4]] if len(known) >= number - 1 else []
            if number == count == len(known):
                found.records.update(_unpacked(kind, "".join(known)))
    return found


def _unpacked(kind: str, packed: str) -> dict[str, Any]:
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(packed), _MAX_RECORD)
        return {kind: json.loads(content)}
    except (ValueError, RecursionError, zlib.error):
        return {}
