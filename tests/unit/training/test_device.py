"""The measurement of a device, with a fake one, and what all frameworks share in it."""

from types import SimpleNamespace

import device
import numpy as np

BITS = {"output of layer 0": "aa"}


def test_bits_are_left_out_where_a_device_cannot_repeat_them(monkeypatch):
    monkeypatch.setattr(device, "sustained", lambda run, synchronize, seconds: seconds)
    fake = SimpleNamespace(kind="npu", synchronize=None, about=dict, load=dict, bits=lambda: BITS)
    fake.work = lambda: dict.fromkeys(("rates.fp16", "memory"), (1.0, None))
    for fake.deterministic in True, False:
        told = []
        device.measure(lambda: fake, lambda: None, 0.5, told.append)
        found = device.line(told, 60)
        assert (found["rates"], found["memory"], found["error"]) == ({"fp16": [0.5] * 2}, [0.5] * 2, "")
        assert found["bits"] == [BITS] * 3 * fake.deterministic


def test_the_numbers_of_the_step_are_the_same_in_every_framework():
    found = device.mixed(np.arange(4096), 3).tolist()
    assert found == [device.mixed(place, 3) for place in range(4096)]
    assert len(set(found)) > 3900


def test_what_an_npu_is_compared_by(tmp_path, monkeypatch):
    for name, there in {"910A": False, "910B": False, "910B2C": True, "910B4-1": True, "910_9391": True}.items():
        assert ("bf16" in device.npu_kinds(f"Ascend{name}")) == there
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    (tmp_path / "aarch64-linux").mkdir()
    (tmp_path / "aarch64-linux/ascend_toolkit_install.info").write_text("package_name=Ascend\nversion=8.0.RC1\n")
    assert device.cann() == "8.0.RC1"
