# SPDX-License-Identifier: Apache-2.0
"""The data sets of the example training: their files, what they come from, and made-up records in CIFAR-10's format.

A CIFAR-10 binary record is one label byte and 3 x 32 x 32 bytes: the red, green and blue plane, row by row. The
archives and their layout are those of CIFAR-10's home page; the digits are the file that scikit-learn's wheel holds.
Sizes are bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import Finding
from .requirements import is_sha256, source

KINDS = ("digits", "cifar10", "generated")
FORMATS = ("binary", "python")
RECORD = 1 + 3 * 32 * 32
CLASSES = 10
BATCHES = 5
# Records of each file of CIFAR-10. MindSpore's Cifar10Dataset reads exactly as many of each: it fails on a shorter file
# and leaves the rest of a longer one (cifar_op.cc; tried with 2.10.0).
BATCH_RECORDS = 10_000
GENERATED_TRAIN, GENERATED_TEST = BATCHES * BATCH_RECORDS, BATCH_RECORDS
# Written last into a data set's folder.
MANIFEST = "manifest.json"
DIGITS_FILE = "digits.csv.gz"
DIGITS_MEMBER = "sklearn/datasets/data/digits.csv.gz"
DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"

# The vendor's archives. Their sums have been the same for years, as many projects pin them.
VENDOR = {
    "binary": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "python": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
}
MIN_TRAIN, MIN_TEST = 50, 10

# A class is a coarse pattern of 8 x 8 squares, dark enough that adding noise of the other half never overflows a byte.
_SQUARE = 8
_HALF = 0x7F


class Layout(NamedTuple):
    """The content of an archive of CIFAR-10: its folder, the required and the optional files."""

    folder: str
    needed: tuple[str, ...]
    optional: tuple[str, ...]


def layout(archive_format: str) -> Layout:
    """Return the layout of CIFAR-10's archive in the `binary` or `python` format."""
    folder, suffix, meta = ("bin", ".bin", ".txt") if archive_format == "binary" else ("py", "", "")
    batches = [f"data_batch_{number}{suffix}" for number in range(1, BATCHES + 1)]
    needed = (*batches, f"test_batch{suffix}")
    return Layout(f"cifar-10-batches-{folder}", needed, (f"batches.meta{meta}", "readme.html"))


def wrong_size(archive_format: str, name: str, size: int) -> str:
    """Return in words what is wrong with the size of a file of CIFAR-10, nothing when it is right."""
    if archive_format == "binary" and name.endswith(".bin") and (size == 0 or size % RECORD):
        return f"{name} has {size} bytes, expected a multiple of {RECORD}, the length of a record"
    return ""


def generated_files(train_records: int, test_records: int) -> dict[str, int]:
    """Return the records of each file: batches as long as CIFAR-10's where that fits, else five; and a test batch."""
    batches = BATCHES if train_records % BATCH_RECORDS else max(1, train_records // BATCH_RECORDS)
    share, rest = divmod(train_records, batches)
    files = {f"data_batch_{number + 1}.bin": share + (number < rest) for number in range(batches)}
    return {**files, "test_batch.bin": test_records}


def generated_records(seed: int, name: str, count: int) -> Iterator[bytes]:
    """Yield the records of one file: the same for the same seed on every machine and every Python.

    SHAKE-256 gives the bytes, because the sequence of a random generator may change with the version of Python.
    """
    patterns = [_pattern(seed, label) for label in range(CLASSES)]
    mask = int.from_bytes(bytes([_HALF]) * (RECORD - 1), "big")
    for index in range(count):
        stream = hashlib.shake_256(f"{seed} {name} {index}".encode()).digest(RECORD)
        label = stream[0] % CLASSES
        noise = int.from_bytes(stream[1:], "big") & mask
        yield bytes([label]) + (patterns[label] + noise).to_bytes(RECORD - 1, "big")


def _pattern(seed: int, label: int) -> int:
    squares = 32 // _SQUARE
    levels = hashlib.shake_256(f"{seed} class {label}".encode()).digest(3 * squares * squares)
    pixels = bytearray()
    for plane in range(3):
        for row in range(32):
            line = levels[plane * squares**2 + row // _SQUARE * squares :][:squares]
            pixels += b"".join(bytes([level & _HALF]) * _SQUARE for level in line)
    return int.from_bytes(pixels, "big")


def plan(requests: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return the data sets with all defaults filled in, and the findings on the list."""
    stated = [{key: value for key, value in entry.items() if value is not None} for entry in requests]
    sets = [_complete(entry) for entry in stated]
    findings = [finding for entry, done in zip(stated, sets) for finding in _findings(set(entry), done)]
    for name, count in Counter(entry["name"] for entry in sets).items():
        if count > 1:
            action = "give one of them another name and kind"
            findings.append(_finding(f"{count} data sets have the name {name}", "one", action))
    return sets, findings


def sources(sets: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return where each planned data set comes from, to check it before anything is touched; generated ones have none.

    `unless` is a file below the folder of all data sets that is there when the set is.
    """
    urls = {"cifar10": "url", "digits": "dataset_index_url,"}
    return [
        source(f"data set {name}", f"{name}/{MANIFEST}", f"{urls[kind]} or local_file of {name} in dataset_sets", entry)
        for entry in sets
        for name, kind in [(entry["name"], entry["kind"])]
        if kind in urls
    ]


def _complete(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a data set with nothing left open. `min_free_mb` is in 10^6 bytes."""
    kind = str(entry.get("kind", entry["name"]))
    archive_format = str(entry.get("format", FORMATS[0]))
    url, sha256 = VENDOR[archive_format] if kind == "cifar10" and archive_format in VENDOR else ("", "")
    train, test = int(entry.get("train_records", GENERATED_TRAIN)), int(entry.get("test_records", GENERATED_TEST))
    local_file = str(entry.get("local_file", ""))
    return {
        "name": str(entry["name"]),
        "kind": kind,
        "format": archive_format,
        "url": "" if local_file else str(entry.get("url", url)),
        "local_file": local_file,
        "sha256": str(entry.get("sha256", sha256)).lower(),
        "seed": int(entry.get("seed", 1)),
        "train_records": train,
        "test_records": test,
        # CIFAR-10: the archive and what it holds; the others: what is written, with some room.
        "min_free_mb": {"cifar10": 500, "generated": 10 + (train + test) * RECORD // 10**6}.get(kind, 10),
    }


def _findings(stated: set[str], done: Mapping[str, Any]) -> Iterator[Finding]:
    name, kind, train, test = (done[field] for field in ("name", "kind", "train_records", "test_records"))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        expected = "a folder name of letters, digits, dot, dash and underscore"
        yield _finding(f"a data set has the name {name!r}", expected)
    if kind not in KINDS:
        action = "correct it; a set with a name of its own needs its kind"
        yield _finding(f"{name}: kind is {kind!r}", ", ".join(KINDS), action)
        return
    if kind != "cifar10" and stated & {"url", "sha256", "format"}:
        yield _finding(f"{name}: {kind} has a url, sha256 or format", "these for cifar10 alone")
    if {"url", "local_file"} <= stated:
        yield _finding(f"{name} has a url and a local_file", "one of them")
    if done["sha256"] and not is_sha256(done["sha256"]):
        yield _finding(f"{name}: sha256 is {done['sha256']!r}", "64 hexadecimal digits")
    if train < MIN_TRAIN or test < MIN_TEST:
        found = f"{name}: {train} train_records and {test} test_records"
        yield _finding(found, f"at least {MIN_TRAIN} and {MIN_TEST}")


def _finding(found: str, expected: str, action: str = "correct it") -> Finding:
    return Finding("dataset_sets", found, expected, action)
