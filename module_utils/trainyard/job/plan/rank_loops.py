# SPDX-License-Identifier: Apache-2.0
"""Find loops of start scripts that start a rank for each device: they set its number and put it in the background."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..file.launcher_programs import Found, Program

# The variables that such a loop sets for each rank, with the job_launcher that would set them. The first ones number
# the ranks of all nodes, the others those of one node.
_OVER_NODES = {"RANK_ID": "rank_table", "RANK": "torchrun", "MS_NODE_ID": "mindspore"}
_OF_NODE = {
    "DEVICE_ID": "rank_table",
    "LOCAL_RANK": "torchrun",
    "MS_ROLE": "mindspore",
    "CUDA_VISIBLE_DEVICES": "",
    "ASCEND_RT_VISIBLE_DEVICES": "",
}
_NAMES = {**_OVER_NODES, **_OF_NODE}
_SETS = re.compile(r"([A-Za-z_]\w*)=.*", re.DOTALL)
# The value of a number over all nodes, and what in it only a run of the script can tell.
_VALUE = re.compile(rf"\b(?:{'|'.join(_OVER_NODES)})=(\$\(\([^()]*\)\)|\S+)")
_UNKNOWN = re.compile(r"\$[\d@*#]|\$\{[^}]*\W[^}]*\}|\$\((?!\()|`")
# The begin of a loop that counts from the same number on each node.
_ALIKE = re.compile(r"\bfor\s*(?:\(\(\s*\w+\s*=\s*\d+\s*;|\w+\s+in\s+(?:\{?\d|(?:\$\(|`)\s*seq\s+\d))")


@dataclass
class _Loop:
    line: int
    conditional: bool
    # Variables whose values are the same on each node.
    variables: list[str]
    names: list[str] = field(default_factory=list)
    background: bool = False
    # Whether the numbers of ranks may differ from node to node.
    joins: bool = False

    def found(self) -> Found:
        """Return the loop as a launcher; a word of unknown value says that it may know the other nodes."""
        name = next(name for name in _NAMES if name in self.names)
        over_nodes = any(each in _OVER_NODES for each in self.names)
        words = () if over_nodes and not self.joins else ("$NODE_RANK",)
        return Found(f"a loop that sets {name}", Program(_NAMES[name], ("node-rank",)), words)


class Loops:
    """The open loops of a script, while its commands are read one after the other."""

    def __init__(self) -> None:
        """Begin outside any loop."""
        self._open: list[_Loop] = []

    def read(
        self, line: int, before: str, words: Sequence[str], written: str, conditional: bool, known: Mapping[str, str]
    ) -> tuple[int, bool, Found] | None:
        """Read a simple command; return line, condition and the launcher where it ends a loop that starts ranks.

        `before` is the separator in front of it, `written` its line without values, `known` the assigned variables.
        """
        if before == "&" and self._open:
            self._open[-1].background = True
        inner = list(words)
        while inner and inner[0] in ("do", "then", "else", "{"):
            inner = inner[1:]
        first = next(iter(inner), "")
        if first in ("for", "while", "until"):
            self._open.append(_Loop(line, conditional, inner[1:2] if _ALIKE.search(written) else []))
        elif first == "done" and self._open:
            return self._close()
        elif self._open:
            self._note(inner, written, known)
        return None

    def _note(self, words: Sequence[str], written: str, known: Mapping[str, str]) -> None:
        loop = self._open[-1]
        names = [match[1] for match in map(_SETS.fullmatch, words) if match and match[1] in _NAMES]
        loop.names += names
        counted = {variable for each in self._open for variable in each.variables}
        for value in _VALUE.findall(written) if names else ():
            used = set(re.findall(r"[A-Za-z_]\w*", value)) - counted
            unknown = any("$" in known.get(name, "$") for name in used)
            loop.joins = loop.joins or unknown or bool(_UNKNOWN.search(value))

    def _close(self) -> tuple[int, bool, Found] | None:
        loop = self._open.pop()
        if loop.names and loop.background:
            return loop.line, loop.conditional, loop.found()
        if self._open:
            self._open[-1].names += loop.names
            self._open[-1].background |= loop.background
            self._open[-1].joins |= loop.joins
        return None
