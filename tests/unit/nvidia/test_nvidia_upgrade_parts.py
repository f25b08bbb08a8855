"""What uses the driver (CUDA programs, NCCL, cuDNN) in an upgrade: what worked before it and does not after it."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import upgrade
from driver_upgrades import NEW, OLD, driver, entry, node, planned, settled, states
from filters import FILTERS

PROGRAM = {"build": "pass", "run": "pass", "detail": "the sum over 8 processes is right", "with": ["nccl"]}
LIBRARY = {"kind": "ours", "error": "", "unloaded": ""}
TOO_OLD = "CUDA driver version is insufficient for CUDA runtime version"


def parts(programs, **libraries):
    return FILTERS["nvidia_upgrade_parts"](programs, {name: {**LIBRARY, **given} for name, given in libraries.items()})


def test_what_uses_the_driver_is_asked_and_what_is_of_somebody_else_is_not():
    programs = {
        "/a": PROGRAM,
        "/b": {**PROGRAM, "run": "skipped", "detail": "no device: none"},
        "/c": {**PROGRAM, "run": "fail", "detail": TOO_OLD},
        "/d": {**PROGRAM, "build": "fail", "run": "unknown", "detail": "nvcc: no\n  g++"},
    }
    errors = {"/a": "", "/b": "", "/c": TOO_OLD, "/d": "nvcc: no g++"}
    driver_missing = "libcudnn.so.9 cannot be loaded: libcuda.so.1: cannot open"
    assert parts(programs, nccl={}, cudnn={"unloaded": driver_missing}) == {
        **{f"CUDA program of {home}": error for home, error in errors.items()},
        **{"NCCL": "", "cuDNN": driver_missing},
    }
    assert parts({}, nccl={"kind": "none"}, cudnn={"kind": "foreign"}) == {}
    assert parts({}, nccl={"error": "no answer"}) == {"NCCL": "no answer"}


@pytest.mark.parametrize(
    ("before", "now", "state", "why"),
    [
        ({"NCCL": "", "cuDNN": ""}, {"NCCL": "", "cuDNN": ""}, "upgraded", ""),
        ({"NCCL": "", "cuDNN": ""}, {"NCCL": "", "cuDNN": TOO_OLD}, "going back", f"cuDNN: {TOO_OLD}"),
        ({"NCCL": ""}, {}, "going back", "NCCL: it is no longer there"),
        # It failed before as well, for example without a compiler or GPU.
        ({"NCCL": "no"}, {"NCCL": "no"}, "upgraded", "not compared, failed before as well: NCCL"),
        ({"NCCL": "no"}, {"NCCL": ""}, "upgraded", "not compared, failed before as well: NCCL"),
        ({}, {"NCCL": "no"}, "upgraded", ""),
    ],
)
def test_only_what_worked_with_the_old_driver_judges_the_new_one(before, now, state, why):
    found = settled(driver(version=NEW), before=upgrade.previous(driver(), "", before), parts=now)
    assert (found["state"], found["why"]) == (state, why)
    assert bool(found["back"]) == (state == "going back")


def test_what_waits_for_its_reboot_waits_for_its_programs_too_and_they_are_tried_after_it():
    before = FILTERS["nvidia_upgrade_before"](driver(), parts={"NCCL": ""})
    due = driver(version=NEW, loaded=OLD, reboot_due=["the old module runs"])
    assert settled(due, reboots=False, before=before, parts={"NCCL": ""})["state"] == "reboot due"
    # Rebooted by hand: the driver is as it should be, and goes into a batch all the same, in which NCCL is asked.
    found = planned([node(version=NEW), node("n2")], {"n1": entry("reboot due", before=before)})
    assert (found["table"]["n1"]["before"], found["batches"]) == (before, [["n1"], ["n2"]])
    sick = FILTERS["nvidia_upgrade_before"](driver(), parts={"NCCL": "no"})
    assert states(planned([node(version=NEW)], {"n1": entry("reboot due", before=sick)}))["n1"] == "upgraded"
