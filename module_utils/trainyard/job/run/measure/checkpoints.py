# SPDX-License-Identifier: Apache-2.0
"""Find the newest complete checkpoint of a job, its step, and incomplete ones, from outside the program.

A file or folder is complete if its format shows it (the end of a zip archive, which torch.save writes; the sizes in the
header of safetensors; `.metadata`, which torch.distributed.checkpoint writes last; `latest` of DeepSpeed or
`latest_checkpointed_iteration.txt` of Megatron-LM, written after all else; `trainer_state.json` of Hugging Face's
Trainer, likewise), if a later one of the same attempt follows it, or if two polls found it unchanged while the ranks
ran. A checkpoint that an attempt was writing as it ended may be incomplete. Sources of the formats:
torch/distributed/checkpoint/filesystem.py, deepspeed/runtime/engine.py (save_checkpoint), transformers/trainer.py
(_save_checkpoint), the header of safetensors (8 bytes of length, then JSON with data_offsets). Times are seconds since
the epoch.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.late_pattern import late_pattern
from ..logs.progress import number

# How many of the newest checkpoints are inspected.
MAX_INSPECTED = 4
# Upper bounds for the end of a file and the header of safetensors that are read, in bytes.
TAIL_BYTES, HEADER_BYTES = 4096, 8 << 20

_TEMPORARY = late_pattern(r"^[.~]|(?:^|[._-])(?:tmp|temp|partial|incomplete|writing)(?:[._-]|\d*$)|~$", re.IGNORECASE)
# epoch=3-step=1000.ckpt, global_step100, step-1000, iter_0000100, checkpoint-500; epoch-0007-00300.ckpt; net-2_300.ckpt
_STEP = late_pattern(
    r"(?:^|[^a-z])(?:global_?step|step|iter(?:ation)?|checkpoint|ckpt)[-_=]?(\d{1,15})(?!\d)", re.IGNORECASE
)
_EPOCH = late_pattern(r"(?:^|[^a-z])epoch[-_=]?(\d{1,9})(?:-(\d{1,15}))?(?!\d)", re.IGNORECASE)
_MINDSPORE = late_pattern(r"-(\d{1,9})_(\d{1,15})\.ckpt$")
_DIGITS = late_pattern(r"\d{1,15}")
_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".tar", ".npz", ".of")
# Lines about loading a checkpoint, or having none to load: Hugging Face, Lightning, DeepSpeed, Megatron-LM, and scripts
# themselves. Pretrained weights are no checkpoint of a job.
_LOADS = late_pattern(
    r"\b(?:resum|restor|re-?load|load|continu)(?:e[ds]?|ing|s)?\b.{0,200}"
    r"(?:checkpoint|ckpt|\.pth?\b|\.safetensors\b|global_?step)"
    r"|\b(?:resum|restor|continu)(?:e[ds]?|ing)\b.{0,100}\bfrom\b"
    r"|\bno (?:\w+ )?checkpoints?\b|\bfrom scratch\b|\bnot load any checkpoint",
    re.IGNORECASE,
)
_LOADS_OTHER = late_pattern(r"pre-?trained|\bshards\b|\bdata ?(?:set|loader)|tokenizer", re.IGNORECASE)
# Files that name the newest folder beside them, written when it is complete.
MARKERS = ("latest", "latest_checkpointed_iteration.txt")
# The file that Hugging Face's Trainer writes last into a checkpoint.
STATE_FILE = "trainer_state.json"
# Why a folder that a marker does not name counts as incomplete; a program that follows the marker does not load it.
NOT_NAMED = "the file that names the newest one does not name it yet"
# Why a checkpoint may be incomplete though nothing shows that it is: it was the last one that was written.
_AS_ATTEMPT_ENDED, _AS_RANKS_ENDED = "it was being written as an attempt ended", "it was written as the ranks ended"
# How the names of checkpoints that were set aside (rollback.py) end.
SUFFIX = ".set-aside"
_ASIDE = late_pattern(r"\.set-aside(?:-\d{1,4})?$")


class Sample(NamedTuple):
    """One reading of a checkpoint: its newest file's time, bytes, files; its problem, or that it is complete."""

    name: str
    time: float
    size: int
    files: int
    problem: str = ""
    complete: bool = False


def place_problem(place: str) -> tuple[str, str] | None:
    """Return what is wrong with a folder or pattern of checkpoints, and what is expected; None if it is valid."""
    parts = place.split("/")
    if "{" in place:
        return place, "what rank 0 saves, as its node is the one that looks: rank_0 in place of {rank}"
    if "**" in place or ".." in parts:
        return place, "a folder, or a pattern whose * stand for names between two slashes; no ** and no .."
    if len(place) > 1000 or "\0" in place or place.strip("/") != place.strip("/").strip():
        return repr(place[:100]), "a path, absolute or from the job's folder, of at most 1000 characters"
    return None


def place_of(name: str) -> dict[str, int | None]:
    """Return the step and the epoch in a name, each None where the name has none."""
    found, stem = _MINDSPORE.search(name), name.partition(".")[0]
    if found:
        return {"step": int(found[2]), "epoch": int(found[1])}
    step, epoch = _STEP.search(name), _EPOCH.search(name)
    if step is None and epoch is None and _DIGITS.fullmatch(stem):
        return {"step": int(stem), "epoch": None}
    at = step[1] if step else epoch[2] if epoch else None
    return {"step": int(at) if at else None, "epoch": int(epoch[1]) if epoch else None}


def names_start(line: str) -> bool:
    """Return whether a line says from which checkpoint the program starts, or that it starts without one."""
    return bool(_LOADS.search(line)) and not _LOADS_OTHER.search(line)


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a file or folder that is still being written."""
    return bool(_TEMPORARY.search(name))


def written_last(reason: str) -> bool:
    """Return whether this reason is only that a checkpoint was the last one before an end."""
    return reason in (_AS_ATTEMPT_ENDED, _AS_RANKS_ENDED)


def shown_name(name: str) -> str:
    """Return the name of a file as text that can be sent."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")[:255]


def is_aside(name: str) -> bool:
    """Return whether a name is that of a checkpoint that was set aside."""
    return bool(_ASIDE.search(name))


def group(name: str) -> tuple[int | None, int | None] | str:
    """Return what the files of one checkpoint have in common: step and epoch, or the name where it has none."""
    place = place_of(name)
    return (place["step"], place["epoch"]) if any(value is not None for value in place.values()) else name


def is_checkpoint_name(name: str) -> bool:
    """Return whether an entry of a folder of checkpoints is a checkpoint, by its name."""
    return name not in MARKERS and (any(place_of(name).values()) or name.lower().endswith(_SUFFIXES))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts step 1000 after step 200."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def file_problem(name: str, size: int, head: bytes, tail: bytes) -> tuple[str, bool]:
    """Return why a file is incomplete, or "", and whether its format shows that for sure.

    `head` is its beginning (the complete header of safetensors), `tail` its last TAIL_BYTES.
    """
    if not size:
        return "it is empty", True
    if head.startswith(b"PK\x03\x04"):
        return "" if b"PK\x05\x06" in tail[-TAIL_BYTES:] else "its archive has no end: it was cut off", True
    if name.rpartition("/")[2] == STATE_FILE:
        return "" if tail.rstrip().endswith(b"}") else "it was cut off", True
    if not name.endswith(".safetensors"):
        return "", False
    length = struct.unpack("<Q", head[:8])[0] if len(head) >= 8 else 0
    if length > HEADER_BYTES:
        return "", False
    try:
        header = json.loads(head[8 : 8 + length])
        ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
        required = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "its header cannot be read", True
    return "" if size >= required else f"it has {size} of {required} bytes: it was cut off", True


def folder_problem(folders: Mapping[str, Collection[str]]) -> tuple[str, bool]:
    """Return why a folder, with its names by subfolder, is incomplete, or "", and whether that is sure."""
    sure = False
    for path, names in folders.items():
        temporary = next((name for name in names if is_temporary(name) and name != ".metadata"), None)
        if temporary:
            return f"{temporary} in it is being written", True
        if any(name.endswith(".distcp") for name in names):
            if ".metadata" not in names:
                return f"no .metadata in {path or 'it'}, which is written last", True
            sure = True
    last = STATE_FILE in folders.get("", ())
    return "", last or (sure and all(not names or ".metadata" in names for names in folders.values()))


def marked(names: Sequence[str], marker: str) -> tuple[set[str], set[str]]:
    """Return the folders that a marker's content shows as complete, and those that it does not name yet."""
    text = marker.strip()
    if not text or len(text) > 200:
        return set(), set()
    at = int(text) if _DIGITS.fullmatch(text) else place_of(text)["step"]
    complete = {name for name in names if name == text or (at is not None and place_of(name)["step"] == at)}
    later = {name for name in names if at is not None and complete and (place_of(name)["step"] or 0) > at}
    return complete, later


def _may_be_loaded(sample: Sample) -> bool:
    """Return whether a program may take this for its newest checkpoint: not where it shows that it is being written."""
    return not is_temporary(sample.name) and sample.problem != NOT_NAMED


class History:
    """The checkpoints of one place over several polls."""

    def __init__(self) -> None:
        """Begin without checkpoints."""
        self._last: dict[str, Sample] = {}
        # When attempts began.
        self._begins: set[float] = set()
        self._complete: dict[str, Sample] = {}
        self._ran = False

    def add(
        self, samples: Iterable[Sample], attempt: int, began: float, running: bool, left_well: bool = False
    ) -> dict[str, Any]:
        """Add the samples of a poll, taken while the attempt that began at `began` was `running` or not.

        With `left_well` rank 0 has ended by itself, and so has written what it was writing.
        Returns the newest complete checkpoint, and the newest of all with the reason if that may be incomplete; `last`
        is the newest one that a program may load, with the name of the complete one `before` it.
        """
        found = {sample.name: sample for sample in sorted(samples, key=lambda sample: sample.time)}
        self._begins.add(began)
        reasons = {name: self._reason(sample, attempt, began, running, left_well) for name, sample in found.items()}
        for name, sample in found.items():
            if not sample.problem and any(self._follows(later, sample) for later in found.values()):
                reasons[name] = ""
        complete = {name: sample for name, sample in found.items() if not reasons[name]}
        before = {name: sample for name, sample in self._complete.items() if name in found}
        self._last, self._ran, self._complete = found, running, {**before, **complete}
        newest = next(reversed(complete.values()), None)
        last = next(reversed(found.values()), None)
        loaded = next((sample for sample in reversed(found.values()) if _may_be_loaded(sample)), None)
        unfinished = {**_record(last), "reason": reasons[last.name]} if last and reasons[last.name] else None
        return {
            "newest": _record(newest) if newest else None,
            "unfinished": unfinished,
            "last": self._newest(loaded, not reasons[loaded.name]) if loaded else None,
        }

    def _newest(self, last: Sample, complete: bool) -> dict[str, Any]:
        """Return the record of the newest checkpoint, with the name of the newest complete one before it."""
        others = [sample for sample in self._complete.values() if group(sample.name) != group(last.name)]
        before = max(others, key=lambda sample: sample.time).name if others else None
        return {**_record(last), "complete": complete, "before": before}

    def _follows(self, later: Sample, sample: Sample) -> bool:
        """Return whether the same writer, in the same attempt, began `later` after it had finished this one."""
        alike = _DIGITS.sub("", later.name) == _DIGITS.sub("", sample.name) and group(later.name) != group(sample.name)
        return alike and later.time > sample.time and not any(sample.time < at <= later.time for at in self._begins)

    def _reason(self, sample: Sample, attempt: int, began: float, running: bool, left_well: bool) -> str:
        """Return why a checkpoint does not count as complete, "" if it does."""
        if sample.problem or sample.complete or self._complete.get(sample.name) == sample:
            return sample.problem
        if attempt and sample.time < began:
            return _AS_ATTEMPT_ENDED
        if left_well:
            return ""
        if self._last.get(sample.name) != sample:
            seen = "it was there before the job, and seen once" if sample.time < began else "it was written just now"
            return seen if running else _AS_RANKS_ENDED
        return "" if running and self._ran else _AS_RANKS_ENDED


def _record(sample: Sample) -> dict[str, Any]:
    return {"name": sample.name, **place_of(sample.name), "time": sample.time, "size": sample.size}


def further(checkpoint: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> bool:
    """Return whether a checkpoint is further than another: by step if both have one, else by time."""
    if checkpoint is None or before is None:
        return checkpoint is not None
    places = [(each.get("epoch"), each.get("step")) for each in (checkpoint, before)]
    if (None, None) in places:
        return bool(checkpoint["time"] > before["time"])
    reached, reached_before = [(epoch or 0, step or 0) for epoch, step in places]
    return reached > reached_before


def file_size(size: float) -> str:
    """Format a number of bytes: 1.2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{number(round(size, 1))} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _age(seconds: float) -> str:
    seconds = max(0, round(seconds))
    return f"{seconds} s" if seconds < 180 else f"{seconds // 60} min" if seconds < 10800 else f"{seconds / 3600:.1f} h"


def checkpoint_line(state: Mapping[str, Any], now: float) -> str:
    """Return the text for the progress line: `checkpoint step 100, 40 s ago`."""
    newest = state.get("newest")
    if newest is None:
        unfinished = state.get("unfinished")
        return f"checkpoint {unfinished['name']} may be incomplete" if unfinished else "no checkpoint yet"
    at = f"step {newest['step']}" if newest.get("step") is not None else newest["name"]
    aside = f" ({state['aside'][-1]} is set aside)" if state.get("aside") else ""
    return f"checkpoint {at}, {_age(now - newest['time'])} ago{aside}"


def texts(state: Mapping[str, Any], end: float | None) -> list[str]:
    """Return lines on a job's checkpoints; `end` is in seconds since the epoch, None while the job runs."""
    newest, unfinished = state.get("newest"), state.get("unfinished")
    lines = [f"no complete checkpoint in {state['place']} on {state['host']}"]
    if newest:
        when = f", {_age(end - newest['time'])} before the end" if end else ""
        at = f"step {newest['step']}, " if newest.get("step") is not None else ""
        lines = [f"newest complete checkpoint: {newest['name']} ({at}{file_size(newest['size'])}{when})"]
    if unfinished:
        lines.append(f"not known to be complete: checkpoint {unfinished['name']}: {unfinished['reason']}")
    if state.get("problem"):
        lines.append(f"checkpoints were not watched all the time: {state['problem']}")
    return [*lines, *_aside_texts(state)]


def _aside_texts(state: Mapping[str, Any]) -> list[str]:
    """Return lines on checkpoints from which attempts failed (rollback.py)."""
    lines, suspect = [], state.get("suspect")
    if suspect:
        attempts = suspect["attempts"]
        how = f"{attempts} attempts in a row ended before their first step" if attempts else "no loss was a number"
        lines.append(
            f"{how} after checkpoint {suspect['name']}, which may be damaged: job_checkpoint_rollback: true (with "
            f"job_max_restarts) sets such a checkpoint aside and goes on from the one before, {suspect['before']}"
        )
    if state.get("restored"):
        names, why = ", ".join(state["restored"]), state.get("not_restored")
        has = (
            f"could not get its name back: {why}" if why else "has its name back, as no attempt without it made a step"
        )
        lines.append(f"checkpoint {names} {has}")
    return lines
