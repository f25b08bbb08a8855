# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a job, seen from outside: which is the newest complete one, its step, and which one is half written.

What is complete is judged conservatively. A file or folder counts where its own form proves it whole (the end of a zip
archive, which torch.save writes; the sizes in the header of safetensors; `.metadata`, which
torch.distributed.checkpoint writes last; `latest` of DeepSpeed or `latest_checkpointed_iteration.txt` of Megatron-LM,
written after all else), or where two looks found it unchanged while the ranks that write it ran. What an attempt was
writing as it ended is not known to be whole. Forms: torch/distributed/checkpoint/filesystem.py,
deepspeed/runtime/engine.py (save_checkpoint), the header of safetensors (8 bytes of length, then JSON with
data_offsets). Times are seconds since the epoch.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .progress import number

# How many of the newest are looked into.
MOST_LOOKED_AT = 4
# The end of a file, and the header of safetensors, that are read at most, in bytes.
TAIL_BYTES, HEADER_BYTES = 4096, 8 << 20

_TEMPORARY = re.compile(r"^[.~]|(?:^|[._-])(?:tmp|temp|partial|incomplete|writing)(?:[._-]|\d*$)|~$", re.IGNORECASE)
# epoch=3-step=1000.ckpt, global_step100, step-1000, iter_0000100, checkpoint-500; epoch-0007-00300.ckpt; net-2_300.ckpt
_STEP = re.compile(
    r"(?:^|[^a-z])(?:global_?step|step|iter(?:ation)?|checkpoint|ckpt)[-_=]?(\d{1,15})(?!\d)", re.IGNORECASE
)
_EPOCH = re.compile(r"(?:^|[^a-z])epoch[-_=]?(\d{1,9})(?:-(\d{1,15}))?(?!\d)", re.IGNORECASE)
_MINDSPORE = re.compile(r"-(\d{1,9})_(\d{1,15})\.ckpt$")
_DIGITS = re.compile(r"\d{1,15}")
_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".tar", ".npz", ".of")
# A line in which a program says what it loads, or that it has nothing to load: Hugging Face, Lightning, DeepSpeed,
# Megatron-LM, and what scripts print themselves. Weights that others have trained are no checkpoint of a job.
_LOADS = re.compile(
    r"\b(?:resum|restor|re-?load|load|continu)(?:e[ds]?|ing|s)?\b.{0,200}"
    r"(?:checkpoint|ckpt|\.pth?\b|\.safetensors\b|global_?step)"
    r"|\b(?:resum|restor|continu)(?:e[ds]?|ing)\b.{0,100}\bfrom\b"
    r"|\bno (?:\w+ )?checkpoints?\b|\bfrom scratch\b|\bnot load any checkpoint",
    re.IGNORECASE,
)
_LOADS_OTHER = re.compile(r"pre-?trained|\bshards\b|\bdata ?(?:set|loader)|tokenizer", re.IGNORECASE)
# Files that name the newest folder beside them, written when it is complete.
MARKERS = ("latest", "latest_checkpointed_iteration.txt")


class Look(NamedTuple):
    """What one look found of a checkpoint: its newest file's time, bytes, files; why it is not whole, or that it is."""

    name: str
    time: float
    size: int
    files: int
    fault: str = ""
    whole: bool = False


def place_fault(place: str) -> tuple[str, str] | None:
    """Say what is wrong with a folder or pattern of checkpoints, and what is expected; None where nothing is."""
    parts = place.split("/")
    if "{" in place:
        return place, "what rank 0 saves, as its node is the one that looks: rank_0 in place of {rank}"
    if "**" in place or ".." in parts:
        return place, "a folder, or a pattern whose * stand for names between two slashes; no ** and no .."
    if len(place) > 1000 or "\0" in place or place.strip("/") != place.strip("/").strip():
        return repr(place[:100]), "a path, absolute or from the job's folder, of at most 1000 characters"
    return None


def place_of(name: str) -> dict[str, int | None]:
    """Return the step and the epoch that a name says for sure; None where it does not."""
    found = _MINDSPORE.search(name)
    if found:
        return {"step": int(found[2]), "epoch": int(found[1])}
    step, epoch = _STEP.search(name), _EPOCH.search(name)
    if step is None and epoch is None and _DIGITS.fullmatch(name.partition(".")[0]):
        return {"step": int(name.partition(".")[0]), "epoch": None}
    at = step[1] if step else epoch[2] if epoch else None
    return {"step": int(at) if at else None, "epoch": int(epoch[1]) if epoch else None}


def tells_start(line: str) -> bool:
    """Tell whether a line of a program says from which checkpoint it starts, or that it starts without one."""
    return bool(_LOADS.search(line)) and not _LOADS_OTHER.search(line)


def is_temporary(name: str) -> bool:
    """Tell whether a name says that what bears it is being written."""
    return bool(_TEMPORARY.search(name))


def looks_like_one(name: str) -> bool:
    """Tell whether an entry of a folder of checkpoints is one, by its name."""
    return name not in MARKERS and (any(place_of(name).values()) or name.lower().endswith(_SUFFIXES))


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key under which step 1000 comes after step 200."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def file_fault(name: str, size: int, head: bytes, tail: bytes) -> tuple[str, bool]:
    """Judge a file by its form: why it is not whole, or "", and whether that is proved.

    `head` is how it begins (of safetensors the whole header), `tail` its last TAIL_BYTES.
    """
    if not size:
        return "it is empty", True
    if head.startswith(b"PK\x03\x04"):
        return ("", True) if b"PK\x05\x06" in tail[-TAIL_BYTES:] else ("its archive has no end: it was cut off", True)
    if not name.endswith(".safetensors"):
        return "", False
    length = struct.unpack("<Q", head[:8])[0] if len(head) >= 8 else 0
    if length > HEADER_BYTES:
        return "", False
    try:
        header = json.loads(head[8 : 8 + length])
        ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "its header cannot be read", True
    return ("", True) if size >= wanted else (f"it has {size} of {wanted} bytes: it was cut off", True)


def folder_fault(folders: Mapping[str, Collection[str]]) -> tuple[str, bool]:
    """Judge a folder by the names in it and below, by folder: why it is not whole, or "", and whether it is sure."""
    proved = False
    for path, names in folders.items():
        temporary = next((name for name in names if is_temporary(name) and name != ".metadata"), None)
        if temporary:
            return f"{temporary} in it is being written", True
        if any(name.endswith(".distcp") for name in names):
            if ".metadata" not in names:
                return f"no .metadata in {path or 'it'}, which is written last", True
            proved = True
    return "", proved and all(not names or ".metadata" in names for names in folders.values())


def marked(names: Sequence[str], marker: str) -> tuple[set[str], set[str]]:
    """Return the folders that a marker's content proves whole, and those that it does not name yet."""
    said = marker.strip()
    if not said or len(said) > 200:
        return set(), set()
    at = int(said) if _DIGITS.fullmatch(said) else place_of(said)["step"]
    whole = {name for name in names if name == said or (at is not None and place_of(name)["step"] == at)}
    later = {name for name in names if at is not None and whole and (place_of(name)["step"] or 0) > at}
    return whole, later


class Book:
    """What is known of the checkpoints of one place, over several looks."""

    def __init__(self) -> None:
        """Know of none."""
        self._last: dict[str, Look] = {}
        self._complete: dict[str, Look] = {}
        self._ran = False

    def take(self, looks: Iterable[Look], attempt: int, began: float, running: bool) -> dict[str, Any]:
        """Take what a look found while this attempt, which began at this time, was `running` or not; say what is known.

        The newest complete one, and the newest of all where it is not known to be complete, with why.
        """
        found = sorted(looks, key=lambda look: look.time)
        reasons = {}
        for look in found:
            reasons[look.name] = reason = self._reason(look, attempt, began, running)
            if not reason:
                self._complete[look.name] = look
        self._last, self._ran = {look.name: look for look in found}, running
        self._complete = {name: look for name, look in self._complete.items() if name in self._last}
        whole = [look for look in found if not reasons[look.name]]
        newest = whole[-1] if whole else None
        last = found[-1] if found and reasons[found[-1].name] else None
        return {
            "newest": _said(newest) if newest else None,
            "unfinished": {**_said(last), "reason": reasons[last.name]} if last else None,
        }

    def _reason(self, look: Look, attempt: int, began: float, running: bool) -> str:
        """Return why a checkpoint does not count as complete, "" where it does."""
        if look.fault or look.whole or self._complete.get(look.name) == look:
            return look.fault
        if attempt and look.time < began:
            return "it was being written as an attempt ended"
        if self._last.get(look.name) != look:
            return "it was written just now" if running else "it was written as the ranks ended"
        return "" if running and self._ran else "it was written as the ranks ended"


def _said(look: Look) -> dict[str, Any]:
    return {"name": look.name, **place_of(look.name), "time": look.time, "size": look.size}


def further(checkpoint: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> bool:
    """Tell whether a checkpoint is of a later place than another: by steps where both say one, else by time."""
    if checkpoint is None or before is None:
        return checkpoint is not None
    places = [((each.get("epoch") or 0), (each.get("step") or 0)) for each in (checkpoint, before)]
    said = [each.get("step") is not None or each.get("epoch") is not None for each in (checkpoint, before)]
    return bool(places[0] > places[1] if all(said) else checkpoint["time"] > before["time"])


def size_text(size: float) -> str:
    """Write a number of bytes: 1.2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{number(round(size, 1))} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _age(seconds: float) -> str:
    seconds = max(0, round(seconds))
    return f"{seconds} s" if seconds < 180 else f"{seconds // 60} min" if seconds < 10800 else f"{seconds / 3600:.1f} h"


def line(known: Mapping[str, Any], now: float) -> str:
    """Write what the watcher adds to its line: `checkpoint step 100, 40 s ago`."""
    newest = known.get("newest")
    if newest is None:
        return "no checkpoint yet"
    at = f"step {newest['step']}" if newest.get("step") is not None else newest["name"]
    return f"checkpoint {at}, {_age(now - newest['time'])} ago"


def texts(known: Mapping[str, Any], end: float | None) -> list[str]:
    """Say what is known of a job's checkpoints, `end` seconds since the epoch, None where it still runs."""
    newest, unfinished = known.get("newest"), known.get("unfinished")
    said = []
    if newest:
        when = f", {_age(end - newest['time'])} before the end" if end else ""
        at = f"step {newest['step']}, " if newest.get("step") is not None else ""
        said.append(f"newest complete checkpoint: {newest['name']} ({at}{size_text(newest['size'])}{when})")
    else:
        said.append(f"no complete checkpoint in {known['place']} on {known['host']}")
    if unfinished:
        said.append(f"not known to be complete: checkpoint {unfinished['name']}: {unfinished['reason']}")
    if known.get("problem"):
        said.append(f"checkpoints were not watched all the time: {known['problem']}")
    return said
