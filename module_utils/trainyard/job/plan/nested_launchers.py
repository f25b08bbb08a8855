# SPDX-License-Identifier: Apache-2.0
"""Find commands and start scripts that clearly start ranks by themselves: one copy on each node is right for these.

No more of a script is read than that: what its processes do is observed while the job runs (job/run/measure/worlds.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

from ..file import launcher_programs
from ..file.job import Job
from ..file.job_command import scripts, started
from ..file.start_scripts import BACKGROUND, code_in

# Variables that number a rank, or choose its device, in a loop that starts one for each device.
_NUMBERS = re.compile(
    r"(?<![\w$])(RANK_ID|RANK|MS_NODE_ID|DEVICE_ID|LOCAL_RANK|MS_ROLE|(?:CUDA|ASCEND_RT)_VISIBLE_DEVICES)="
)
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_SEPARATOR = re.compile(rf"(\n|;|&&|\|\|?|[()]|{BACKGROUND})")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "exec", "command", "time"))
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def starts_ranks(text: str) -> str:
    """Return by what a script starts ranks in any case: a launcher, or a loop that numbers them; "" for neither."""
    # For each open loop whether it is outside conditions, its variable, and whether it starts in the background.
    depth, loops, perhaps = 0, list[tuple[bool, list[str], list[bool]]](), False
    parts = _SEPARATOR.split(_code(text))
    for piece, separator in zip(parts[::2], [*parts[1::2], ""]):
        words = piece.split()
        first = next((word for word in words if word not in ("do", "then", "else", "{")), "")
        depth += (first in ("if", "case")) - (first in ("fi", "esac"))
        if first in ("for", "while", "until"):
            loops.append((depth == 0, [], []))
        elif first == "done" and loops:
            clear, names, background = loops.pop()
            if clear and names and background:
                return f"a loop that sets {names[0]}"
            if loops:
                loops[-1][1].extend(names[:1])
                loops[-1][2].extend(background[:1])
        elif loops:
            loops[-1][1].extend(_NUMBERS.findall(piece))
        if loops and separator == "&":
            loops[-1][2].append(True)
        program = itertools.dropwhile(lambda word: word in _KEYWORDS or _ASSIGNED.fullmatch(word), words)
        found = launcher_programs.find([*program]) if depth == 0 and not perhaps else None
        if found:
            return found.called
        perhaps = separator in ("&&", "||") and (perhaps or first in ("[", "[[", "test"))
    return ""


def _code(text: str) -> str:
    """Return a script's text without comments, texts in quotes and here-documents, each command in one line."""
    lines: list[str] = []
    end = ""
    for line in _COMMENT.sub("", text).split("\n"):
        if end:
            end = "" if line.strip() == end else end
            continue
        opened = _HEREDOC.search(line)
        end = opened[1] if opened else ""
        lines.append(line)
    return _QUOTED.sub("_", "\n".join(lines).replace("\\\n", " "))


def in_scripts(job: Job, text_of: Callable[[str], str]) -> dict[str, str]:
    """Return by what the job's scripts start ranks, by their names. `text_of` gives the text of one of the source."""
    names = [name.removeprefix("./") for name in scripts(job.command) if not name.endswith(".py")]
    texts = {**{name: text_of(name) for name in names}, "job_command": "\n".join(code_in(job.command))}
    return {name: found for name, text in texts.items() if (found := starts_ranks(text))}


def with_one_copy(job: Job, text_of: Callable[[str], str]) -> Job:
    """Return the job with one copy on each node where its command or start script clearly starts ranks by itself."""
    if job.launcher != "direct" or job.ranks_per_node not in (None, 1) or job.one_copy:
        return job
    if launcher_programs.find(job.command) or in_scripts(job, text_of):
        return replace(job, ranks_per_node=1, one_copy=started(job.command))
    return job


def one_copy_text(name: str) -> str:
    """Return the note of a plan with one copy of the start script `name` on each node."""
    return f"{name} starts its own ranks: one copy on each node, all devices"
