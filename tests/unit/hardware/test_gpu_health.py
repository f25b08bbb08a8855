"""A value of a GPU that could not be read is no pass, whatever stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.hardware.gpu_health import parse_query
from ansible.module_utils.trainyard.hardware.gpu_rules import check_gpus

MACHINE = (Path(__file__).resolve().parents[2] / "fixtures/verify/gpu2.tree").read_text()
SOUND = re.search(r"<nvidia_smi_log>.*?</nvidia_smi_log>", MACHINE, re.DOTALL)[0]
# Each value of the first GPU that is checked, and a faulty value.
JUDGED = {
    **{"persistence_mode": ("Enabled", "Disabled"), "current_ecc": ("Enabled", "Disabled")},
    **{"max_link_gen": ("5", "5"), "max_link_width": ("16x", "16x"), "current_link_width": ("16x", "8x")},
    **{f"clocks_event_reason_{name}_slowdown": ("Not Active", "Active") for name in ("hw", "hw_thermal", "sw_thermal")},
    **{"sram_uncorrectable_parity": ("0", "1"), "dram_uncorrectable": ("0", "2")},
    **{"remapped_row_pending": ("No", "Yes"), "remapped_row_failure": ("No", "Yes")},
    **{
        "gpu_recovery_action": ("None", "Reset"),
        "state": ("Completed", "In Progress"),
        "status": ("Success", "Failure"),
    },
}
WITHHELD = ("[Unknown Error]", "Unknown Error", "Insufficient Permissions", "ERR!", "GPU is lost", "GPU requires reset")


def states(text):
    gpus, wrong = parse_query(text)
    assert (len(gpus), wrong) == (2, "")
    reading = {"vendor": "nvidia", "problems": [], "gpus": gpus, "xids": []}
    return {check.name: check.state for check in check_gpus({"n1": reading}, "", ())}


def saying(name, was, word, text=SOUND):
    assert f"<{name}>{was}</{name}>" in text
    return text.replace(f"<{name}>{was}</{name}>", f"<{name}>{word}</{name}>", 1)


def test_the_machine_is_sound():
    assert set(states(SOUND).values()) == {"pass"}


@pytest.mark.parametrize("word", WITHHELD)
@pytest.mark.parametrize("name", JUDGED)
def test_one_value_that_could_not_be_read_is_no_pass(name, word):
    found = states(saying(name, JUDGED[name][0], word))
    assert {"unknown", "fail"} & set(found.values()), found


@pytest.mark.parametrize("name", [name for name, (was, fault) in JUDGED.items() if was != fault])
def test_a_fault_is_one_whatever_could_not_be_read_beside_it(name):
    was, fault = JUDGED[name]
    ill = saying(name, was, fault)
    wrong = {check for check, state in states(ill).items() if state != "pass"}
    assert wrong
    for other, (value, _) in JUDGED.items():
        if other != name:
            found = states(saying(other, value, "[Unknown Error]", ill))
            assert all(found[check] != "pass" for check in wrong), (other, found)


def test_a_slow_link_in_an_unknown_power_state_is_unknown():
    assert states(saying("performance_state", "P8", "[Unknown Error]"))["GPU PCIe generation"] == "unknown"


def test_what_a_gpu_does_not_have_is_no_fault():
    assert states(saying("status", "Success", "N/A", saying("state", "Completed", "N/A")))["NVSwitch fabric"] == "pass"
    assert states(saying("sram_uncorrectable_parity", "0", "N/A"))["GPU ECC errors"] == "pass"


def test_a_feature_that_no_gpu_of_the_model_has_is_skipped():
    """A consumer card: N/A for ECC and for rows that are replaced."""
    text = re.sub(r"<current_ecc>\w+<", "<current_ecc>N/A<", SOUND)
    text = re.sub(r"<remapped_rows>.*?</remapped_rows>", "<remapped_rows>N/A</remapped_rows>", text, flags=re.DOTALL)
    found = states(text)
    assert {name for name, state in found.items() if state == "skipped"} == {"GPU ECC errors", "GPU remapped rows"}
    assert set(found.values()) == {"pass", "skipped"}
    # A GPU that alone lacks a feature of its model is unknown, and so is one without an answer.
    assert states(saying("current_ecc", "Enabled", "N/A"))["GPU ECC errors"] == "unknown"
    assert states(text.replace("<current_ecc>N/A<", "<current_ecc>Unknown Error<"))["GPU ECC errors"] == "unknown"
    # Disabled ECC could be enabled and checked.
    assert states(text.replace("<current_ecc>N/A<", "<current_ecc>Disabled<"))["GPU ECC errors"] == "unknown"
