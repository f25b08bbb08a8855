# SPDX-License-Identifier: Apache-2.0
"""What models of GPUs can do by their data sheets: dense matrix products in TFLOP/s (1e12 operations a second)."""

from __future__ import annotations

import re

# By model: fp32, tf32, bf16, fp16, 0 where it has none. NVIDIA prints twice as much first, for sparse matrices.
_PEAKS = {
    "V100": (15.7, 0, 0, 125),
    "V100 PCIE": (14, 0, 0, 112),
    "T4": (8.1, 0, 0, 65),
    "A10": (31.2, 62.5, 125, 125),
    "A30": (10.3, 82, 165, 165),
    "A100": (19.5, 156, 312, 312),
    "L4": (30.3, 60, 121, 121),
    "L40S": (91.6, 183, 362, 362),
    "H100 PCIE": (51, 378, 756, 756),
    "H100 NVL": (60, 418, 835, 835),
    "H100": (67, 494, 989, 989),
    "H200": (67, 494, 989, 989),
    "B200": (75, 1125, 2250, 2250),
    "GB200": (80, 1250, 2500, 2500),
    "RTX 4090": (82.6, 82.6, 165, 165),
    "RTX 5090": (105, 105, 210, 210),
    "RTX 6000 ADA": (91, 182, 364, 364),
    # Half of a card, as each of its two parts is a device.
    "MI250X": (23.9, 0, 191.5, 191.5),
    "MI300X": (163, 0, 1307, 1307),
}
KINDS = ("fp32", "tf32", "bf16", "fp16")
# The part of the peak below which something is wrong with a device: healthy ones were measured at 51 to 97 %. Cards of
# at most 150 W never reach their peak for long.
FLOOR, FLOOR_OF_SMALL, FLOOR_OF_AMD = 0.5, 0.35, 0.45
_SMALL = ("T4", "A10", "L4")
# A part of a device, or another one that bears the name of a model.
_OTHERS = re.compile(r"\b(MIG|LAPTOP|MAX Q)\b")


def floor(name: str, kind: str) -> float | None:
    """Return the least TFLOP/s of a healthy device by its name and the kind of numbers; None for an unknown one."""
    words = re.sub(r"[^A-Z0-9]+", " ", name.upper())
    if _OTHERS.search(words):
        return None
    model = max((each for each in _PEAKS if re.search(rf"\b{each}\b", words)), key=len, default="")
    peak = _PEAKS[model][KINDS.index(kind)] if model and kind in KINDS else 0
    part = FLOOR_OF_SMALL if model in _SMALL else FLOOR_OF_AMD if model.startswith("MI") else FLOOR
    return part * peak if peak else None
