# SPDX-License-Identifier: Apache-2.0
"""Read from a dump of PyTorch's flight recorder in which collective a rank is, or which one it ended last.

This is evidence only: collectives are recorded when the host starts them, and the device may be elsewhere. The file is
a pickle that the job's user can write: the reader accepts only the steps that build plain data, so that nothing in it
can name, import or call anything. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp
(version 2.10 of the dump, PyTorch 2.13).
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, ClassVar

from ...findings.visible import visible

# Upper bound for a dump, in bytes: the 2,000 collectives with stacks that are recorded by default take 2 to 3 MiB.
MAX_BYTES = 8 << 20
# Upper bounds for the groups that are reported, and for the characters of the text.
MAX_GROUPS, MAX_TEXT = 3, 240
_PLAIN = (
    *(pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
    *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET),
    *(pickle.LONG_BINGET, pickle.MEMOIZE, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST),
    *(pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
)

# Errors of a dump that is cut off or forged.
_BROKEN = (pickle.UnpicklingError, struct.error, LookupError, TypeError, ValueError, AttributeError, EOFError)


# The reader in Python: the one in C allocates as many values as the file claims to have.
class _Reader(pickle._Unpickler):
    """Builds dictionaries, lists, tuples, texts and numbers; any other step of a pickle is refused."""

    dispatch: ClassVar = {step[0]: pickle._Unpickler.dispatch[step[0]] for step in _PLAIN}

    def find_class(self, module: str, name: str) -> Any:
        """Refuse to import anything."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read(content: bytes) -> str:
    """Return in which collective a rank is, for each group of ranks. Raises ValueError where this is no dump."""
    try:
        entries = _Reader(io.BytesIO(content)).load()["entries"]
        found: dict[str, tuple[bool, str]] = {}
        for each in entries:
            name, described = each["process_group"]
            group = str(described or name)
            number = each["p2p_seq_id" if each.get("is_p2p") else "collective_seq_id"]
            done = each["state"] == "completed" or bool(each["retired"])
            # Entries are in order: report the first that has not ended, else the last.
            if found.get(group, (True, ""))[0]:
                found[group] = done, f"{each['profiling_name']}, number {int(number)} of {group}"
    except _BROKEN as error:
        raise ValueError(f"no dump of the flight recorder: {type(error).__name__}: {error}") from None
    # Groups with something open first.
    first = sorted(found.values(), key=lambda each: each[0])[:MAX_GROUPS]
    texts = [f"ended {text}, and began no other" if done else f"in {text}" for done, text in first]
    return visible("; ".join(texts))[:MAX_TEXT]
