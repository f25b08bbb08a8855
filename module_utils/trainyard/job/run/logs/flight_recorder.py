# SPDX-License-Identifier: Apache-2.0
"""Read from a dump of PyTorch's flight recorder in which collective a rank is, or which one it ended last, and compare.

This is evidence only: collectives are recorded when the host starts them, and the device may be elsewhere. The file is
a pickle that the job's user can write: the reader accepts only the steps that build plain data, so that nothing in it
can name, import or call anything. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp
(version 2.10 of the dump, PyTorch 2.13).
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ....base.shapes import Exact, Few, Text, Whole
from ....base.spans import named_ranks
from ....base.visible import visible

# Upper bound for a dump, in bytes: the 2,000 collectives with stacks that are recorded by default take 2 to 3 MiB.
MAX_BYTES = 8 << 20
# Upper bounds for the groups of a rank that are reported, and for the characters of a text and of a name.
MAX_GROUPS, MAX_TEXT, MAX_NAME = 3, 240, 60
# The place of a rank in a group: `of` tells groups with one name apart, `open` is false where the call has ended.
CALLS = Few(
    Exact({**dict.fromkeys(("group", "of", "call"), Text(MAX_NAME)), "number": Whole(1 << 53), "open": bool}),
    MAX_GROUPS,
)
Call = Mapping[str, Any]
# How the names of calls begin that two ranks alone make, and of those in which ranks give different amounts.
_PAIR = ("send", "recv")
_UNEVEN = (*_PAIR, "gather", "scatter", "all_to_all", "alltoall")
_PLAIN = (
    *(pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
    *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET),
    *(pickle.LONG_BINGET, pickle.MEMOIZE, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST),
    *(pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
)

# Errors of a dump that is cut off or forged.
_BROKEN = (
    *(pickle.UnpicklingError, struct.error, LookupError, TypeError),
    *(ValueError, AttributeError, EOFError, RecursionError),
)


# The reader in Python: the one in C allocates as many values as the file claims to have.
class _Reader(pickle._Unpickler):
    """Builds dictionaries, lists, tuples, texts and numbers; any other step of a pickle is refused."""

    dispatch: ClassVar = {step[0]: pickle._Unpickler.dispatch[step[0]] for step in _PLAIN}

    def find_class(self, module: str, name: str) -> Any:
        """Refuse to import anything."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read(content: bytes) -> list[dict[str, Any]]:
    """Return the place of a rank in each of its groups (CALLS), open ones first: the first open call, else the last.

    Raises ValueError where this is no dump.
    """
    try:
        dump = _Reader(io.BytesIO(content)).load()
        found: dict[str, dict[str, Any]] = {}
        for each in dump["entries"]:
            name, described = each["process_group"]
            # Groups may share a description: PyTorch's is "undefined" where the program gives none.
            own = str(name)
            # Entries are in order.
            if not found.get(own, {}).get("open"):
                found[own] = {
                    "group": visible(str(described or name))[:MAX_NAME],
                    "of": _members(dump, name),
                    "call": visible(str(each["profiling_name"]) + _sizes(each))[:MAX_NAME],
                    "number": int(each["p2p_seq_id" if each.get("is_p2p") else "collective_seq_id"]),
                    "open": not (each["state"] == "completed" or bool(each["retired"])),
                }
            if not 0 <= found[own]["number"] < 1 << 53:
                raise ValueError("no number of a call")
    except _BROKEN as error:
        raise ValueError(f"no dump of the flight recorder: {type(error).__name__}: {error}") from None
    return sorted(found.values(), key=lambda each: not each["open"])[:MAX_GROUPS]


def _members(dump: Mapping[str, Any], name: str) -> str:
    """Return what tells a group from others with its description, and with its name but other ranks."""
    known = dump.get("pg_config") or {}
    # gloo notes its first group without a name.
    ranks = (known.get(name) or known.get("") or {}).get("ranks", name)
    return hashlib.sha256(f"{name} {ranks}".encode()).hexdigest()[:8]


def _sizes(entry: Mapping[str, Any]) -> str:
    """Return the sizes and types of what a rank gave, " of [4, 2] Float"; "" where those of ranks differ by nature."""
    if str(entry["profiling_name"]).partition(":")[2].startswith(_UNEVEN):
        return ""
    parts = zip(entry.get("input_sizes") or (), entry.get("input_dtypes") or ())
    given = ", ".join(f"{json.dumps(list(size))} {kind}" for size, kind in parts)
    return f" of {given}" if given else ""


def text(calls: Sequence[Call]) -> str:
    """Return the place of a rank in words."""
    named = [(each["open"], f"{each['call']}, number {each['number']} of {each['group']}") for each in calls]
    return "; ".join(f"in {name}" if open_ else f"ended {name}, and began no other" for open_, name in named)[:MAX_TEXT]


def differences(found: Mapping[int, Sequence[Call]]) -> list[str]:
    """Return the ranks that did not call what more than half of their group wait in, by rank; none without such a half.

    The majority decides, not the first rank. Point to point calls differ by nature.
    """
    groups: dict[tuple[str, str], dict[int, tuple[int, str, bool]]] = {}
    for rank, calls in found.items():
        for each in calls:
            place = int(each["number"]), str(each["call"]), bool(each["open"])
            groups.setdefault((each["group"], each["of"]), {})[rank] = place
    lines = []
    for (group, _), places in groups.items():
        (usual, count), *_ = Counter(places.values()).most_common(1)
        number, call, waits = usual
        if count == len(places) or 2 * count <= len(places) or not waits or call.partition(":")[2].startswith(_PAIR):
            continue
        ranks_by: dict[str, list[int]] = {}
        for rank, place in places.items():
            ranks_by.setdefault(_instead(place, number) if place != usual else "", []).append(rank)
        usual_ranks = ranks_by.pop("")
        odd = "; ".join(f"{named_ranks(ranks)} {did}" for did, ranks in ranks_by.items())
        lines.append(f"{named_ranks(usual_ranks)} called {call} as number {number} of {group}; {odd}")
    return lines


def _instead(place: tuple[int, str, bool], number: int) -> str:
    """Return what ranks did instead of the call with this number, in words that fit one and several."""
    own, call, is_open = place
    if own == number:
        return f"called {call}" + ("" if is_open else ", which has ended")
    if own < number and not is_open:
        return f"did not: number {own} was the last call"
    return f"had called number {own}, {call}" + ("" if is_open else ", which has ended")
