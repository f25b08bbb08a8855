# SPDX-License-Identifier: Apache-2.0
"""A CPU, an NVIDIA GPU or an Ascend NPU, as MindSpore uses it, from 1.7 on."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

import device
import mindspore
import numpy as np
from mindspore import Tensor, ops

# By the variable that shows a process its devices: kind and target.
_TARGETS = {"CUDA_VISIBLE_DEVICES": ("cuda", "GPU"), "ASCEND_RT_VISIBLE_DEVICES": ("npu", "Ascend")}
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class Device:
    """The device of one rank."""

    def __init__(self, local_rank: int) -> None:
        """Take it; whether it works shows at the first operation."""
        visible = next((name for name in _TARGETS if os.environ.get(name)), "")
        self.kind, target = _TARGETS.get(visible, ("cpu", "CPU"))
        self._gpu = os.environ[visible].split(",")[local_rank] if self.kind == "cuda" else ""
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        # MindSpore takes these before its first operation only.
        if hasattr(mindspore, "set_device"):  # from 2.5 on
            mindspore.set_deterministic(True)
            mindspore.set_device(target, local_rank)
        else:
            setting = {"deterministic": "ON"} if mindspore.__version__ > "2" else {}
            mindspore.set_context(device_target=target, device_id=local_rank, **setting)
            self.deterministic = bool(setting) or self.kind != "npu"

    def synchronize(self, result: Tensor) -> None:
        """Wait for a result: the device works in order, so all before it are there, too."""
        result[0].asnumpy()

    def about(self) -> dict[str, str]:
        """Return what two devices must share before they are compared."""
        found = {"kind": self.kind, "framework": f"mindspore {mindspore.__version__}"}
        if self.kind == "npu":
            return {**found, "name": self._npu(), "software": f"CANN {device.cann()}"}
        if self.kind == "cuda":
            load = self.load()
            return {**found, "name": load.get("name", "GPU"), "power": load.get("power_limit", "")}
        name, instructions = device.processor()
        return {**found, "name": name, "software": f"{len(os.sched_getaffinity(0))} processors, {instructions}"}

    def _npu(self) -> str:
        # MindSpore tells it from 2.3 on, and is to stop; CANN's module tells it, too.
        hal = getattr(mindspore, "hal", None)
        return str(hal.get_device_name(0) if hal else import_module("acl").get_soc_name())

    def load(self) -> dict[str, str]:
        """Return clock, power and temperature of an NVIDIA GPU, {} of others."""
        return device.nvidia_load(self._gpu) if self._gpu else {}

    def work(self) -> dict[str, tuple[float, Callable[[], Tensor]]]:
        """Return by figure what one operation counts, in 1e12 operations or 1e9 bytes, and the operation."""
        edge, _, size = device.sizes(self.kind)
        kinds = device.npu_kinds(self._npu()) if self.kind == "npu" else ["fp32"] + ["fp16"] * bool(self._gpu)
        figures = {f"rates.{kind}": (2 * edge**3 / 1e12, self._product(edge, kind)) for kind in kinds}
        # Not all releases can copy a tensor; this reads and writes as much.
        same, source = ops.ReLU(), Tensor(np.ones(size // 4, np.float32))
        return {**figures, "memory": (2 * size / 1e9, lambda: same(source))}

    def _product(self, edge: int, kind: str) -> Callable[[], Tensor]:
        first, second = (ops.Cast()(_numbers(edge, seed), getattr(mindspore, _TYPES[kind])) for seed in (1, 2))
        product = ops.MatMul()
        return lambda: product(first, second)

    def bits(self) -> dict[str, str]:
        """Return digests of a seeded training step, layer by layer: outputs, gradients, weights."""
        _, width, _ = device.sizes(self.kind)
        back = ops.GradOperation(get_all=True, sens_param=True)(_layer)
        weights = [_numbers(width, seed) for seed in range(3, 3 + device.LAYERS)]
        values, found = [_numbers(width, 100)], {}
        for number, weight in enumerate(weights):
            values.append(_layer(values[-1], weight))
            found[f"output of layer {number}"] = _digest(values[-1])
        upstream = values[-1] - _numbers(width, 101)
        for number, weight in reversed(list(enumerate(weights))):
            upstream, gradient = back(values[number], weight, upstream)
            found[f"gradient of layer {number}"] = _digest(gradient)
            found[f"weights of layer {number}"] = _digest(weight - gradient * 0.01)
        return found


def _layer(value: Tensor, weight: Tensor) -> Tensor:
    # Without sums but those of the product: others may have another order each time, and so other bits.
    return ops.Tanh()(ops.MatMul()(value, weight) * 0.0625) + value


def _numbers(edge: int, seed: int) -> Tensor:
    mixed = device.mixed(np.arange(edge * edge), seed).reshape(edge, edge)
    return Tensor((mixed * 2.0**-16 - 0.5).astype(np.float32))


def _digest(tensor: Tensor) -> str:
    return device.digest(tensor.asnumpy().tobytes())
