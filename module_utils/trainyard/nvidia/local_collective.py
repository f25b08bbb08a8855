# SPDX-License-Identifier: Apache-2.0
"""A small all-reduce over a job's GPUs of one node by nccl-tests: the command and its errors.

One process has all the GPUs, so it needs neither mpirun nor ssh. Every value is compared (-c 1), of few bytes and of as
many as all links get a share of; speed does not count. Sources: nccl-tests' common.cu, 2.10 to 2.19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.visible import visible
from . import nccl_tests_faults
from .nccl_tests_output import parse_text

# Time limit in seconds: eight GPUs without a persistence daemon need half of it to start.
LIMIT_S = 45.0
# 1 KiB and 16 MiB; fewest rounds.
_OPTIONS = ("-b", "1K", "-e", "16M", "-f", "16384", "-w", "1", "-n", "2", "-c", "1")
# NCCL's settings but those that write files, have it wait for others, or are nccl-tests' own.
_PASSED_ON = re.compile(r"NCCL_(?!DEBUG|COMM_ID|TESTS_|.*DUMP).*")
# From here on the program has its GPUs in hand; before that it may have met a library or MPI that is not well.
_BEGUN = re.compile(r"#\s+(?:nThread \d|Using devices)")
_MAX_TEXT = 240


def command(program: str, devices: Sequence[int], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return `argv` and `env` of a run over these GPUs, {} for less than two or without a program.

    `environment` is that of the job's processes there, with the settings that NCCL needs on this node.
    """
    if not program or len(devices) < 2:
        return {}
    return {
        "argv": [program, *_OPTIONS, "-g", str(len(devices))],
        "env": {
            **{name: environment[name] for name in sorted(environment) if _PASSED_ON.fullmatch(name)},
            # Numbers are nvidia-smi's.
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)),
        },
    }


def fault(status: int | None, text: str, devices: int) -> str:
    """Return what is wrong by a run over so many GPUs, "" for nothing. `status` None: it was ended after LIMIT_S.

    A program that ended before it used its GPUs, or one whose form of success is unknown here, shows no fault of them.
    """
    output = parse_text(text)
    if status is None:
        return f"no end within {LIMIT_S:g} s{_last(text)}"
    found = [*nccl_tests_faults.values(output), nccl_tests_faults.ranks(output, devices if output.ranks else None)]
    if status and _BEGUN.search(text):
        how = f"signal {-status}" if status < 0 else f"status {status}"
        found += [*output.errors, f"it ended with {how}{_last(text)}"]
    return visible(next((each for each in found if each), ""))[:_MAX_TEXT]


def _last(text: str) -> str:
    lines = [line.strip(" #") for line in text.splitlines() if line.strip(" #")]
    return visible(f"; it said last: {lines[-1]}")[: _MAX_TEXT // 2] if lines else ""
