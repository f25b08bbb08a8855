# SPDX-License-Identifier: Apache-2.0
"""Choose the lines of a log that tell how a program ended: what libraries print last does not hide it.

Forms of stacks, by source: PyTorch (c10/util/Backtrace), glog, Open MPI's signal handler, gdb and AddressSanitizer, and
the threads beside the one that failed in a dump of Python's faulthandler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..findings.findings import counted
from ..job.run import framework_log
from ..job.run.failure import STARTED_AGAIN
from ..job.run.headline import find, plain

_FRAME = re.compile(
    r"(?:frame #\d{1,4}: |\s{2,8}@ +(?:0x)?[0-9a-f]{6,16}\b|\s{0,8}#\d{1,4}\s+0x[0-9a-f]{4,16}\b"
    r"|\[\S{1,255}:\d{1,9}\] \[ ?\d{1,4}\] )"
)
_OTHER_THREAD = re.compile(r"^Thread 0x[0-9a-f]{1,16} .{0,80}\(most recent call first\):$")
_OF_THREAD = re.compile(r'^\s{2}(?:File ".{1,400}", line \d{1,9} in |\.\.\.$|<no Python frame>)')
# Follows the line that tells the cause, where lines between it and the end are left out.
CUT = "..."
# Shorter stacks are shown as they are.
_FEW = 3


def telling(lines: Sequence[str], most: int, failed: bool = True) -> list[str]:
    """Return at most so many lines of the end of a log; of one that `failed` without stacks, and with its own error.

    Lines of earlier attempts are left out where the last one has its own error.
    Lines of a framework's own log tell nothing of a success.
    """
    noise = ("INFO",) if failed else ("INFO", "WARNING")
    short = framework_log.without(_without_stacks(lines) if failed else lines, *noise)
    began = max((number for number, line in enumerate(short) if line.startswith(STARTED_AGAIN)), default=-1) + 1
    last = short[began:]
    kept = plain(last) if failed else []
    found = find([line.text for line in kept])
    if found is None:
        return short[-most:]
    end, at = last[-most:], kept[found.at].at
    return end if at >= len(last) - most else [found.text, CUT, *end[2:]]


def _without_stacks(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    stack: list[str] = []
    other = False
    texts = {line.at: line.text for line in plain(lines)}
    for at, line in enumerate(lines):
        text = texts.get(at, "")
        other = bool(_OTHER_THREAD.match(text)) or (other and bool(_OF_THREAD.match(text)))
        # An empty line within a stack is part of it.
        if other or _FRAME.match(text) or (stack and not text):
            stack.append(line)
            continue
        found += [*_shortened(stack), line]
        stack = []
    return found + _shortened(stack)


def _shortened(stack: list[str]) -> list[str]:
    return stack if len(stack) <= _FEW else [f"... {counted(len(stack), 'line')} of a stack"]
