"""Which device is slow, or computes other bits than its equals, by the lines of training/benchmark/device.py."""

from __future__ import annotations

import copy
import json
import random

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.hardware.peaks import floor
from ansible.module_utils.trainyard.verify import collectives, compute

H200 = {"kind": "cuda", "name": "NVIDIA H200", "framework": "torch 2.13.0", "power": "700 W"}
CPU = {"kind": "cpu", "name": "Xeon", "framework": "torch 2.13.0"}
BITS = {"output of layer 0": "aa", "output of layer 1": "bb", "gradient of layer 0": "cc"}
# One real H200: bf16, copy inside its memory, copies to and from the host.
RATES, MEMORY, COPY = {"fp32": 51.0, "bf16": 661.0}, 4300.0, 56.0


def device(about=H200, speed=1.0, bits=BITS, **others):
    figures = {"memory": [MEMORY * speed] * 2, "to_device": [COPY] * 2, "from_device": [COPY] * 2}
    rates = {kind: [rate * speed] * 2 for kind, rate in RATES.items()}
    return {"device": about, "rates": rates, **figures, "bits": [bits] * 3, "load": {}, "error": "", **others}


def cluster(*devices, failure=""):
    """Return the checks of devices, two on each host."""
    return compute.verify([(f"n{at // 2}", at % 2, each) for at, each in enumerate(devices)], failure, "again")


def wrong(checks):
    return [(each.name, each.state, each.hosts) for each in checks if each.state not in ("pass", "skipped")]


def test_healthy_devices_pass_and_show_their_speed():
    speed, bits = cluster(*[device()] * 4)
    assert (speed.state, bits.state) == ("pass", "pass")
    assert "bf16 products 661 TFLOP/s" in speed.found and "memory 4300 GB/s" in speed.found
    assert bits.found.startswith("nothing found") and "4 devices" in bits.found


@pytest.mark.parametrize(("speed", "state"), [(0.97, ""), (0.93, "unknown"), (0.88, "fail"), (0.3, "fail")])
def test_a_slow_device_is_named_with_its_figures(speed, state):
    slow = device(speed=speed, load={"clock_mhz": "1200", "power_w": "310", "temperature_c": "86"})
    found = wrong(cluster(*[device()] * 7, slow))
    assert found == [
        (f"{kind} of device 1", state, ("n3",)) for kind in ("fp32 products", "bf16 products", "memory") if state
    ]
    if state:
        named = next(each for each in cluster(*[device()] * 7, slow) if each.state == state)
        assert "1200 MHz, 310 W, 86 °C" in named.found
        why = "of 8 equal devices, twice" if speed > 0.5 else "slower than a healthy NVIDIA H200"
        assert why in named.reason


def test_a_device_that_was_slow_once_is_not_named():
    disturbed = device()
    disturbed["rates"]["bf16"] = [300.0, 661.0]
    assert wrong(cluster(*[device()] * 3, disturbed)) == []


def test_a_device_without_a_figure_of_its_equals_is_slow_in_it():
    without = device()
    del without["memory"]
    assert wrong(cluster(*[device()] * 3, without)) == [("memory of device 1", "fail", ("n1",))]


def test_only_equal_devices_are_compared():
    lowered = {**H200, "power": "500 W"}
    found = cluster(*[device()] * 2, *[device(lowered, speed=0.8, bits={**BITS, "output of layer 0": "zz"})] * 2)
    assert wrong(found) == []


def test_a_known_model_has_a_floor_and_another_one_alone_is_unknown():
    assert wrong(cluster(device())) == []
    assert wrong(cluster(device(speed=0.4)))[0] == ("fp32 products of device 0", "fail", ("n0",))
    assert [each.state for each in cluster(device({**H200, "name": "Moore"}))] == ["unknown", "skipped"]
    assert (floor("NVIDIA H100 80GB HBM3", "bf16"), floor("NVIDIA H100 PCIe", "bf16")) == (494.5, 378)
    assert (floor("Tesla T4", "bf16"), floor("Tesla T4", "fp16"), floor("A1000", "fp32")) == (None, 22.75, None)


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090 Laptop GPU"])
def test_a_part_of_a_model_has_no_floor_of_the_whole(name):
    assert floor(name, "bf16") is None


def test_a_device_whose_power_was_lowered_is_not_compared_with_its_data_sheet():
    lowered = device(speed=0.4, load={"power_limit": "300.00", "power_default": "700.00"})
    assert [each.state for each in cluster(lowered)] == ["unknown", "skipped"]


def test_few_processors_are_measured_and_not_judged():
    speed, bits = cluster(device(CPU), device(CPU, speed=0.6), device(CPU))
    assert (speed.state, bits.state) == ("skipped", "pass")
    assert "busy" in speed.reason
    assert wrong(cluster(*[device(CPU)] * 5, device(CPU, speed=0.6))) == []
    assert wrong(cluster(*[device(CPU)] * 5, device(CPU, speed=0.3)))[0][1:] == ("fail", ("n2",))


def test_the_odd_one_of_three_and_its_layer_are_named_and_of_two_both():
    bad = device(bits={**BITS, "output of layer 1": "b0", "gradient of layer 0": "c0"})
    (named,) = [each for each in cluster(device(), bad, device()) if each.state == "fail"]
    assert (named.hosts, named.name) == (("n0",), "bits of a seeded step on device 1")
    assert "2 equal devices, first in the output of layer 1" in named.reason
    (pair,) = [each for each in compute.verify([("a", 0, device()), ("b", 0, bad)], "", "") if each.state == "fail"]
    assert pair.hosts == ("a", "b") and "none of them more than half" in pair.reason


def test_a_device_that_differs_from_itself_is_named_alone():
    torn = device()
    torn["bits"] = [BITS, BITS, {**BITS, "gradient of layer 0": "c1"}]
    (named,) = [each for each in cluster(device(), torn) if each.state == "fail"]
    assert named.hosts == ("n0",) and "on the same device, first in the gradient of layer 0" in named.reason


def test_a_device_without_a_measurement_is_unknown_with_the_reason():
    found = cluster(device(), device(error="RuntimeError: no device"), None, failure="the job timed out")
    assert [(each.hosts, each.reason) for each in found if each.state == "unknown"] == [
        (("n0",), "RuntimeError: no device"), (("n1",), "the job timed out"),
    ]  # fmt: skip
    finding = Finding("venv", "none", "one", "make it", host="n1")
    check = collectives.refused("devices", [finding], "again", "compute")
    assert (check.state, check.hosts) == ("fail", ("n1",))


@pytest.mark.parametrize(
    "change", [{"rates": {"fp32": "fast"}}, {"bits": [1]}, {"device": {}}, {"memory": [None]}, {"error": 3}]
)
def test_a_line_that_no_device_prints_is_none(change):
    line = "device " + json.dumps(device())
    assert compute.read(f"beside\n{line}\n") == device()
    assert compute.read("device " + json.dumps({**device(), **change})) is None
    assert compute.read(line[:60]) is None
    assert compute.read("device " + json.dumps({**device(), "error": "x" * 70_000})) is None


def test_what_a_device_prints_stays_on_one_line_of_the_report():
    found = cluster(device({**H200, "name": "H200\nfail: n9"}), device(error="a\x1b[31m\nb"))
    assert all(
        "\n" not in text and "\x1b" not in text for each in found for text in (each.name, each.found, each.reason)
    )


@pytest.mark.parametrize("deviation", [0.005, 0.015, 0.025])
@pytest.mark.parametrize("count", [2, 4, 8, 64, 512])
def test_healthy_clusters_raise_no_alarm(count, deviation):
    """1,000 clusters in all: the figures of a device differ in both passes alike, as silicon and cooling do."""
    chance = random.Random(count * 1000 + int(deviation * 1000))  # noqa: S311
    runs = max(4, min(200, 4000 // count))
    alarms = 0
    for _ in range(runs):
        speeds = [max(0.5, chance.gauss(1, deviation)) for _ in range(count)]
        alarms += any(each.state == "fail" for each in cluster(*[device(speed=speed) for speed in speeds]))
    assert alarms == 0


def test_the_devices_given_are_not_changed():
    given = [device(), device(speed=0.2)]
    before = copy.deepcopy(given)
    cluster(*given)
    assert given == before
