# SPDX-License-Identifier: Apache-2.0
"""The results of the test program of the role cuda_toolkit on a node, and their findings.

`build` and `run` each have a state: pass, fail, unknown (it did not finish), skipped (not asked for). A
node that declares no GPU has built a program that ends at the missing device; its all-reduce was not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..base.findings import Finding, counted

TIMED_OUT = 124
_SUM = re.compile(
    r"^trainyard-cuda rank (?P<rank>\d+) of (?P<size>\d+) on \S+ device (?P<device>\d+) (?P<name>.*): "
    r"sum (?P<sum>\S+) expected (?P<expected>\S+)\s*$",
    re.MULTILINE,
)
_NO_DEVICE = re.compile(r"^trainyard-cuda rank \d+ of (?P<size>\d+) on \S+: no device: (?P<why>.*?)\s*$", re.M)
_FAILED = re.compile(r"^trainyard-cuda failed: (?P<what>.*?)\s*$", re.MULTILINE)
_LAST_LINES = 6


def last_lines(output: str, count: int = _LAST_LINES) -> str:
    """Return the end of an output on one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -\t")]
    return " / ".join(lines[-count:]) or "nothing"


def compiler_error(output: str) -> str:
    """Return why a compiler or linker failed: its first errors, not the remarks that follow them."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [
        line for line in lines if "error" in line.lower() or "undefined reference" in line or "cannot find" in line
    ]
    return " / ".join(errors[:_LAST_LINES]) if errors else last_lines(output)


def read_run(status: int, output: str, seconds: int) -> dict[str, Any]:
    """Return `state`, `detail` and the number of `devices` that took part, from how the program ended.

    The state is `no device` where every rank found none: the inventory decides what that means.
    """
    sums, missing = list(_SUM.finditer(output)), list(_NO_DEVICE.finditer(output))
    if status == TIMED_OUT:
        return {"state": "unknown", "detail": f"it did not end within {seconds} s", "devices": 0}
    failed = _FAILED.search(output)
    wrong = [match for match in sums if match["sum"] != match["expected"]]
    if failed or wrong:
        what = failed["what"] if failed else f"rank {wrong[0]['rank']}: sum {wrong[0]['sum']}"
        return {"state": "fail", "detail": what, "devices": len(sums)}
    size = int((sums or missing)[0]["size"]) if sums or missing else 0
    if missing and len(missing) == size:
        return {"state": "no device", "detail": missing[0]["why"], "devices": 0}
    if status == 0 and sums and len(sums) == size:
        names = sorted({match["name"] for match in sums})
        text = f"the sum over {counted(size, 'process', 'processes')} is right on {', '.join(names)}"
        return {"state": "pass", "detail": text, "devices": size}
    return {"state": "fail", "detail": f"status {status}, it said: {last_lines(output)}", "devices": len(sums)}


def expected_gpus(declared: str, on_the_bus: int) -> int:
    """Return how many GPUs a node is to have: nvidia_gpus, or what PCI shows where it is auto."""
    return on_the_bus if declared == "auto" else int(declared)


def works(found: Mapping[str, Any]) -> bool:
    """Return whether a result of check_program asks nobody to do anything."""
    return bool(found["build"] == "pass" and found["run"] in ("pass", "skipped"))


def check_program(
    host: str, program: Mapping[str, Any], declared: str, on_the_bus: int
) -> tuple[dict[str, str], list[Finding]]:
    """Return the states `build` and `run` of a node with a `detail`, and what somebody has to do about it.

    `program` is the result of the node (trainyard_node/nvidia/cuda_test_program.py).
    """
    found = {"build": program["build"], "run": "unknown", "detail": program["detail"]}
    gpus, expected, action = expected_gpus(declared, on_the_bus), "", ""
    if program["build"] != "pass":
        expected = "a program that compiles and links with the toolkit"
        action = "repair the toolkit, MPI or NCCL it names; cuda_toolkit_verify_mpi, _nccl say which are tried"
        return found, [Finding("CUDA program", found["detail"], expected, action, host=host)]
    run = program["run"]
    found.update(run=run["state"], detail=run["detail"])
    expected = "no device, as nvidia_gpus is 0" if declared == "0" else f"a right sum on {gpus} GPUs"
    action = (
        "correct nvidia_gpus" if declared == "0" else "check the driver (nvidia-smi, dmesg), run playbooks/verify.yml"
    )
    if run["state"] == "no device":
        found["run"] = "skipped" if declared == "0" else "fail" if gpus else "unknown"
        found["detail"] = f"no device: {run['detail']}"
    elif run["state"] == "pass" and run["devices"] != gpus:
        found.update(run="fail", detail=f"{counted(run['devices'], 'device')} took part, expected {gpus}")
        # Otherwise the role nvidia_driver would find another number on the bus.
        action = "correct nvidia_gpus" if run["devices"] == on_the_bus else action
    if found["run"] == "unknown" and declared == "auto" and on_the_bus == 0:
        expected = "a GPU, as nvidia_gpus is auto"
        action = "set nvidia_gpus: 0 for a node that has none on purpose"
    return found, [] if works(found) else [Finding("CUDA program", found["detail"], expected, action, host=host)]
