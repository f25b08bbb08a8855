# SPDX-License-Identifier: Apache-2.0
"""The results of the test program of the role cuda_toolkit on a node, and their findings.

Pure. `build` and `run` each have a state: pass, fail, unknown (it did not finish), skipped (not asked for). A
node that declares no GPU has built a program that ends at the missing device; its all-reduce was not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..findings.findings import Finding, counted

TIMED_OUT = 124
NO_DEVICE = 2
_SUM = re.compile(
    r"^trainyard-cuda rank (?P<rank>\d+) of (?P<size>\d+) on \S+ device (?P<device>\d+) (?P<name>.*): "
    r"sum (?P<sum>\S+) expected (?P<expected>\S+)\s*$",
    re.MULTILINE,
)
_NO_DEVICE = re.compile(
    r"^trainyard-cuda rank (?P<rank>\d+) of (?P<size>\d+) on \S+: no device: (?P<why>.*?)\s*$", re.M
)
_FAILED = re.compile(r"^trainyard-cuda failed: (?P<what>.*?)\s*$", re.MULTILINE)
_LAST_LINES = 6


def last_lines(output: str) -> str:
    """Return the end of an output on one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -")]
    return " / ".join(lines[-_LAST_LINES:]) or "nothing"


def compiler_error(output: str) -> str:
    """Return why a compiler or linker failed: its first errors, not the remarks that follow them."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [
        line for line in lines if "error" in line.lower() or "undefined reference" in line or "cannot find" in line
    ]
    return " / ".join(errors[:_LAST_LINES]) if errors else last_lines(output)


def read_run(status: int, output: str, seconds: int) -> dict[str, Any]:
    """Return `state`, `detail` and the number of `devices` that took part, from how the program ended.

    state is `no device` where every rank found none: what that means is for the inventory to say.
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
        text = f"the sum over {size} {'process' if size == 1 else 'processes'} is right on {', '.join(names)}"
        return {"state": "pass", "detail": text, "devices": size}
    return {"state": "fail", "detail": f"status {status}, it said: {last_lines(output)}", "devices": len(sums)}


def expected_gpus(declared: str, on_the_bus: int) -> int:
    """Return how many GPUs a node is to have: nvidia_gpus, or what PCI shows where it is auto."""
    return on_the_bus if declared == "auto" else int(declared)


def outcome(program: Mapping[str, Any], declared: str, on_the_bus: int) -> dict[str, str]:
    """Return the states `build` and `run` of a node with a `detail`; `program` is what came of it there."""
    if program["build"] != "pass":
        return {"build": program["build"], "run": "unknown", "detail": program["detail"]}
    run = program["run"]
    expected = expected_gpus(declared, on_the_bus)
    if run["state"] == "no device":
        state = "skipped" if declared == "0" else "unknown" if expected == 0 else "fail"
        return {"build": "pass", "run": state, "detail": f"no device: {run['detail']}"}
    if run["state"] == "pass" and run["devices"] != expected:
        text = f"{counted(run['devices'], 'device')} took part, expected {expected}"
        return {"build": "pass", "run": "fail", "detail": text}
    return {"build": "pass", "run": run["state"], "detail": run["detail"]}


def works(found: Mapping[str, Any]) -> bool:
    """Tell whether an outcome asks nobody to do anything."""
    return bool(found["build"] == "pass" and found["run"] in ("pass", "skipped"))


def judge_program(host: str, found: Mapping[str, str], declared: str, on_the_bus: int) -> list[Finding]:
    """Find what an outcome asks somebody to do; pass and skipped ask nothing."""
    if works(found):
        return []
    if found["build"] != "pass":
        expected = "a program that compiles and links with the toolkit"
        action = "repair the toolkit, MPI or NCCL it names; cuda_toolkit_verify_mpi, _nccl say which are tried"
    elif found["run"] == "unknown" and declared == "auto" and on_the_bus == 0:
        expected = "a GPU, as nvidia_gpus is auto"
        action = "set nvidia_gpus: 0 for a node that has none on purpose"
    else:
        none = declared == "0"
        gpus = expected_gpus(declared, on_the_bus)
        expected = "no device, as nvidia_gpus is 0" if none else f"a right sum on {gpus} GPUs"
        action = "look at the driver (nvidia-smi, dmesg) and run playbooks/verify.yml"
        if none or "took part" in found["detail"]:
            action = "correct nvidia_gpus"
    return [Finding("CUDA program", found["detail"], expected, action, host=host)]
