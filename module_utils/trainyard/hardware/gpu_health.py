# SPDX-License-Identifier: Apache-2.0
"""Parse the health of NVIDIA GPUs: `nvidia-smi -q -x`, and Xid lines of the kernel log.

Element names differ by driver: throttle reasons became event reasons in 535, ECC errors are counted by memory (sram,
dram) from Ampere on and by number of bits before, where whole pages were retired. `N/A` or a missing value is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypedDict
from xml.etree import ElementTree

from .accelerators import pci_address

_NUMBER = re.compile(r"\d+")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?P<rest>.*)")
# Printed by the driver instead of a value, with or without brackets.
_RESET = "gpu requires reset"
_NO_ANSWER = frozenset(
    {"", "n/a", "unknown", "unknown error", "err!", "insufficient permissions", "not supported", "not found", "no data",
     "requested functionality has been deprecated", "function not found", "gpu is lost", _RESET}
)  # fmt: skip
# Those for a value that exists and could not be read; other fields cannot replace it.
_WITHHELD = frozenset({"unknown", "unknown error", "err!", "insufficient permissions", "gpu is lost", _RESET})
# Those for a value that the GPU does not have: consumer cards have neither ECC nor spare rows.
_HAS_NOT = frozenset({"n/a", "not supported"})
# Features that not every GPU has, and the driver's fields about them.
_FEATURES = {
    "ecc": ("ecc_mode/current_ecc",),
    "rows": (
        *("remapped_rows", "remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure"),
        *("retired_pages", "retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    ),
}
# Used where None already means that the feature does not exist.
UNREAD = "could not be read"
_REASON = re.compile(r"^clocks_(?:throttle|event)_reason_(?P<name>.+)$")


class Gpu(TypedDict):
    """One GPU. Errors are counts since the driver was loaded (volatile) or ever; link_gen is PCIe's generation.

    `lacks` names features that this GPU does not have: `ecc`, `rows` (replacement of memory rows).
    """

    index: int
    pci: str | None
    model: str
    vbios: str | None
    persistence: str | None
    ecc: str | None
    corrected: int | None
    uncorrected: int | None
    uncorrected_ever: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    remapped: int | None
    throttle: list[str] | None
    pstate: str | None
    link_gen: int | None
    link_gen_max: int | None
    link_width: int | None
    link_width_max: int | None
    replays: int | None
    recovery: str | None
    fabric: str | None
    lacks: list[str]


class Xid(TypedDict):
    """The messages of one code about one GPU: their count and the last text."""

    code: int
    pci: str
    count: int
    last: str


def _text(gpu: ElementTree.Element, path: str) -> str | None:
    text = (gpu.findtext(path) or "").strip()
    return None if text.strip("[] ").lower() in _NO_ANSWER else text


def _word(item: ElementTree.Element) -> str:
    return (item.text or "").strip("[] \n\t").lower()


def _withheld(*items: ElementTree.Element | None) -> bool:
    return any(item is not None and _word(item) in _WITHHELD for item in items)


def _lacks(gpu: ElementTree.Element) -> list[str]:
    """Return the features that the driver reports as missing."""
    values = {
        feature: {_word(item) for path in paths for item in gpu.findall(path)} - {""}
        for feature, paths in _FEATURES.items()
    }
    return [feature for feature, words in values.items() if words and words <= _HAS_NOT]


def _fabric(gpu: ElementTree.Element) -> str | None:
    """Return the state of the NVSwitch fabric, with its status where that contradicts a good state."""
    state, status = _text(gpu, "fabric/state"), _text(gpu, "fabric/status")
    if state in (None, "Completed") and _withheld(gpu.find("fabric/state"), gpu.find("fabric/status")):
        return UNREAD
    return state if state is None or status in (None, "Success") else f"{state}, status {status}"


def _recovery(gpu: ElementTree.Element) -> str | None:
    """Return the action that the driver requests. Other fields of a GPU that needs a reset show that as well."""
    needed = any(_word(item) == _RESET for item in gpu.iter())
    action = "gpu_recovery_action"
    return _text(gpu, action) or ("Reset" if needed else UNREAD if _withheld(gpu.find(action)) else None)


def _number(gpu: ElementTree.Element, path: str) -> int | None:
    match = _NUMBER.match(_text(gpu, path) or "")
    return int(match[0]) if match else None


def _yes(gpu: ElementTree.Element, *paths: str) -> bool | None:
    """Return whether one field is Yes; None without any answer, or if none is Yes and one could not be read."""
    answers = [answer.lower() for answer in (_text(gpu, path) for path in paths) if answer is not None]
    if "yes" not in answers and _withheld(*map(gpu.find, paths)):
        return None
    return "yes" in answers if answers else None


def _ecc(gpu: ElementTree.Element, when: str, kind: str, bits: str) -> int | None:
    """Add up the errors of `kind` (correctable, uncorrectable), or on older GPUs of this many `bits`."""
    items = [item for item in gpu.findall(f"ecc_errors/{when}/*") if re.match(rf"^[sd]ram_{kind}(_|$)", item.tag)]
    counts = [_number(gpu, f"ecc_errors/{when}/{item.tag}") for item in items]
    known = [count for count in counts if count is not None]
    if not any(known) and _withheld(*items):
        return None
    return sum(known) if known else _number(gpu, f"ecc_errors/{when}/{bits}/total")


def _throttle(gpu: ElementTree.Element) -> list[str] | None:
    """Return the reasons that slow the clocks down now, by the part of their names that all drivers share."""
    items = [
        item for group in ("clocks_event_reasons", "clocks_throttle_reasons") for item in gpu.findall(f"{group}/*")
    ]
    answers = {match["name"]: _word(item) for item in items if (match := _REASON.match(item.tag))}
    active = [name for name, text in answers.items() if text == "active"]
    withheld = not _WITHHELD.isdisjoint(answers.values())
    if withheld and not any("slowdown" in name for name in active):
        return None
    return active if {"active", "not active"} & set(answers.values()) else None


def _gpu(gpu: ElementTree.Element, index: int) -> Gpu:
    link = "pci/pci_gpu_link_info"
    pending = _yes(
        gpu, "remapped_rows/remapped_row_pending", "retired_pages/pending_retirement", "retired_pages/pending_blacklist"
    )
    remapped = [_number(gpu, f"remapped_rows/remapped_row_{kind}") for kind in ("corr", "unc")]
    return {
        "index": index,
        "pci": pci_address(gpu.get("id") or _text(gpu, "pci/pci_bus_id") or ""),
        "model": _text(gpu, "product_name") or "",
        "vbios": _text(gpu, "vbios_version"),
        "persistence": _text(gpu, "persistence_mode"),
        "ecc": _text(gpu, "ecc_mode/current_ecc"),
        "corrected": _ecc(gpu, "volatile", "correctable", "single_bit"),
        "uncorrected": _ecc(gpu, "volatile", "uncorrectable", "double_bit"),
        "uncorrected_ever": _ecc(gpu, "aggregate", "uncorrectable", "double_bit"),
        "remap_pending": pending or (None if _withheld(gpu.find("remapped_rows/remapped_row_failure")) else pending),
        "remap_failed": _yes(gpu, "remapped_rows/remapped_row_failure"),
        "remapped": sum(count or 0 for count in remapped) if any(count is not None for count in remapped) else None,
        "throttle": _throttle(gpu),
        "pstate": _text(gpu, "performance_state"),
        "link_gen": _number(gpu, f"{link}/pcie_gen/current_link_gen"),
        "link_gen_max": _number(gpu, f"{link}/pcie_gen/max_link_gen"),
        "link_width": _number(gpu, f"{link}/link_widths/current_link_width"),
        "link_width_max": _number(gpu, f"{link}/link_widths/max_link_width"),
        "replays": _number(gpu, "pci/replay_counter"),
        "recovery": _recovery(gpu),
        "fabric": _fabric(gpu),
        "lacks": _lacks(gpu),
    }


def parse_query(text: str) -> tuple[list[Gpu], str]:
    """Parse `nvidia-smi -q -x`; the second value says what is wrong with it, "" where nothing is."""
    start = text.find("<nvidia_smi_log")
    # A tool that warns before or after the document prints into the same stream.
    end = text.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0:
        return [], f"`nvidia-smi -q -x` printed no complete document: {' '.join(text.split())[:200] or 'nothing'}"
    try:
        root = ElementTree.fromstring(text[start : end + len("</nvidia_smi_log>")])  # noqa: S314 (a local root's tool)
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        return [], f"`nvidia-smi -q -x` printed no XML: {error}"
    gpus = [_gpu(gpu, index) for index, gpu in enumerate(root.findall("gpu"))]
    attached = _number(root, "attached_gpus")
    if attached is not None and attached != len(gpus):
        return gpus, f"`nvidia-smi -q -x` counts {attached} GPUs and describes {len(gpus)}: run it on the node"
    return gpus, ""


def parse_xids(lines: Iterable[str]) -> list[Xid]:
    """Return the Xid messages in lines of the kernel log, by GPU and code, in the order in which they first came."""
    found: dict[tuple[str, int], Xid] = {}
    for line in lines:
        match = _XID.search(line)
        if match is None:
            continue
        pci = pci_address(match["pci"] if "." in match["pci"] else match["pci"] + ".0") or match["pci"]
        code = int(match["code"])
        entry = found.setdefault((pci, code), {"code": code, "pci": pci, "count": 0, "last": ""})
        entry["count"] += 1
        entry["last"] = match["rest"].strip(" ,")[:160]
    return list(found.values())
