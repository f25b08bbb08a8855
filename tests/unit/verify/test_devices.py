"""Counters of devices that grow, jump, are reset or cannot be read between two readings."""

import pytest
from ansible.module_utils.trainyard.hardware.port_counters import growth
from ansible.module_utils.trainyard.verify.devices import check_counters, verify
from device_readings import only
from hypothesis import given
from hypothesis import strategies as st

RDMA, NIC, GPU = "RDMA error counters", "NIC error counters", "GPU errors under load"


@pytest.mark.parametrize("trees", [[], ["gpu2_errors"]])
def test_counters_that_did_not_grow_pass(reading, trees):
    checks = check_counters({"n1": reading(*trees)}, {"n1": reading(*trees)})
    assert {check.name: check.state for check in checks} == dict.fromkeys((RDMA, NIC, GPU), "pass")


def test_each_counter_that_grew_is_named(reading):
    checks = check_counters({"n1": reading(), "n2": reading()}, {"n1": reading(), "n2": reading("gpu2_errors")})
    assert {(check.state, check.hosts) for check in checks} == {("fail", ("n2",))}
    assert {check.name: check.found for check in checks} == {
        RDMA: "n2: mlx5_0:1 link_downed +1, mlx5_0:1 out_of_sequence +88, mlx5_0:1 symbol_error +4708",
        NIC: "n2: ens6f0np0 carrier_down_count +1, ens6f0np0 rx_crc_errors +19",
        GPU: "n2: GPU 1 uncorrected ECC errors +2, GPU 1 PCIe replays +40, Xid 48 of 0000:43:00.0",
    }


def test_reset_and_unreadable_counters_are_unknown(reading):
    check = only(check_counters({"n1": reading()}, {"n1": reading("gpu2_reset")}), RDMA)
    assert (check.state, check.hosts) == ("unknown", ("n1",))
    assert check.found == (
        "n1: mlx5_0:1 link_downed was reset, mlx5_0:1 port_rcv_errors was reset, mlx5_0:1 symbol_error was reset, "
        "mlx5_3:1 link_downed not readable, mlx5_3:1 symbol_error not readable"
    )


def test_allowed_growth_is_no_fault(reading):
    allowed = {"symbol_error": 5000, "link_downed": 1, "out_of_sequence": 88}
    checks = check_counters({"n1": reading()}, {"n1": reading("gpu2_errors")}, allowed=allowed)
    assert only(checks, RDMA).state == "pass"


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("link_downed", 1, 1, (0, "")),
        ("link_downed", 1, 3, (2, "")),
        ("link_downed", 5, 2, (2, "was reset")),
        ("link_downed", 5, 0, (None, "was reset")),
        ("link_downed", 255, 255, (None, "stopped at its highest value, 255")),
        ("link_downed", 254, 255, (1, "")),
        ("rx_errors", 255, 255, (0, "")),
        ("symbol_error", None, 4, (None, "not readable")),
        ("symbol_error", 4, None, (None, "not readable")),
    ],
)
def test_growth(name, before, after, expected):
    assert growth(name, before, after) == expected


@given(st.integers(0, 2**64), st.integers(0, 2**64))
def test_growth_is_never_negative_and_never_silent_about_a_reset(before, after):
    more, why = growth("port_rcv_errors", before, after)
    assert more is None or more >= 0
    assert bool(why) == (after < before or after == before == 65535)


def test_a_restarted_node_is_named_and_its_counters_are_not_compared(reading):
    later = reading("gpu2_reset")
    later["boot_id"] = "another"
    checks = check_counters({"n1": reading()}, {"n1": later})
    assert only(checks, "restart").hosts == ("n1",)
    assert only(checks, RDMA).state == "skipped"


def test_a_node_that_does_not_answer_any_more_is_unknown(reading):
    checks = check_counters({"n1": reading(), "n2": reading()}, {"n1": reading()})
    check = only(checks, "error counters")
    assert (check.state, check.hosts) == ("unknown", ("n2",))


def test_a_device_that_is_gone_afterwards_fails(reading):
    later = reading()
    del later["gpus"][1], later["rdma"][0]
    checks = check_counters({"n1": reading()}, {"n1": later})
    assert only(checks, GPU).found == "n1: GPU 1 is gone"
    assert only(checks, RDMA).found == "n1: mlx5_0:1 is gone"


@pytest.mark.parametrize("between", [False, True])
def test_readings_of_all_nodes(reading, between):
    results = {"n1": {"devices": reading("gpu2_errors")}, "n2": {"unreachable": True, "msg": "lost"}}
    before = {"n1": {"devices": reading()}, "n2": {"devices": reading()}} if between else None
    checks = verify(results, before, groups={"all": ["n1"]}, allowed={"symbol_error": 10})
    assert ("error counters" in [check.name for check in checks]) is between
    assert "fail" in {check.state for check in checks}
