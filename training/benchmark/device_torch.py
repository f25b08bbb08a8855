# SPDX-License-Identifier: Apache-2.0
"""A CPU, an NVIDIA or AMD GPU (torch.cuda), or an Ascend NPU (torch_npu), as PyTorch uses it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import device  # first, as it sets what cuBLAS reads when it starts
import over_torch
import torch

_COPY_BYTES = 256 << 20


class Device:
    """The device of one rank."""

    def __init__(self, local_rank: int) -> None:
        """Take it. Raises RuntimeError where there is none."""
        self._device = over_torch.device_of(over_torch.choose("auto"), local_rank)
        self.kind = self._device.type
        self._runtime = {"cuda": torch.cuda, "npu": getattr(torch, "npu", None)}.get(self.kind)

    def synchronize(self, _: object) -> None:
        """Wait until the device has done what it was given."""
        if self._runtime is not None:
            self._runtime.synchronize()

    def about(self) -> dict[str, str]:
        """Return what two devices must share before they are compared."""
        found = {"kind": self.kind, "framework": f"torch {torch.__version__}"}
        if self._runtime is None:
            threads = f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
            return {**found, "name": device.processor()[0], "software": threads}
        properties = self._runtime.get_device_properties(self._device)
        found["name"] = str(properties.name)
        if self.kind == "cuda":
            capability = ".".join(map(str, torch.cuda.get_device_capability(self._device)))
            version = torch.version.cuda or torch.version.hip
            found["software"] = f"CUDA {version}, cuDNN {torch.backends.cudnn.version()}"
            found["capability"] = capability
            found["memory"] = f"{properties.total_memory >> 30} GiB"
            limit = self.load().get("power_limit")
            found["power"] = f"{limit} W" if limit else ""
        return found

    def load(self) -> dict[str, str]:
        """Return clock, power and temperature of an NVIDIA GPU, as nvidia-smi says them; {} without it."""
        properties = torch.cuda.get_device_properties(self._device) if self.kind == "cuda" else None
        if not hasattr(properties, "pci_bus_id"):
            return {}
        where = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        return device.nvidia_load(where)

    def work(self) -> dict[str, tuple[float, Callable[[], None]]]:
        """Return by figure what one operation counts, in 1e12 operations or 1e9 bytes, and the operation."""
        edge, _, size = device.sizes(self.kind)
        figures: dict[str, tuple[float, Callable[[], None]]] = {}
        for name, kind, allowed in self._kinds():
            figures[f"rates.{name}"] = (2 * edge**3 / 1e12, self._product(edge, kind, allowed))
        if self.kind == "cuda":
            size = min(size, torch.cuda.mem_get_info(self._device)[0] // 8)
        source = torch.empty(size, dtype=torch.uint8, device=self._device).fill_(1)
        target = torch.empty_like(source)
        figures["memory"] = (2 * size / 1e9, lambda: target.copy_(source))
        if self._runtime is not None:
            host = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=self.kind == "cuda").fill_(1)
            own = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=self._device)
            figures["to_device"] = (_COPY_BYTES / 1e9, lambda: own.copy_(host, non_blocking=True))
            figures["from_device"] = (_COPY_BYTES / 1e9, lambda: host.copy_(own, non_blocking=True))
        return figures

    def _kinds(self) -> list[tuple[str, torch.dtype, bool]]:
        """Return name, type of the elements, and whether tf32 may stand for fp32."""
        kinds = [("fp32", torch.float32, False)]
        if self.kind == "cuda":
            major = torch.cuda.get_device_capability(self._device)[0]
            # AMD's GPUs compute fp32 either way.
            kinds += [("tf32", torch.float32, True)] if major >= 8 and not torch.version.hip else []
            kinds += [("bf16", torch.bfloat16, False)] if major >= 8 else []
            kinds += [("fp16", torch.float16, False)] if major >= 7 else []
        if self.kind == "npu":
            kinds = [("fp16", torch.float16, False)]
        return kinds

    def _product(self, edge: int, kind: torch.dtype, tf32: bool) -> Callable[[], None]:
        # Constant data would need less power than a training.
        first, second = (_numbers(edge, seed, self._device).to(kind) for seed in (1, 2))
        product = torch.empty_like(first)

        def run() -> None:
            if self.kind == "cuda":
                torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.matmul(first, second, out=product)

        return run

    def bits(self) -> dict[str, str]:
        """Return digests of a seeded training step, layer by layer: outputs, gradients, weights."""
        threads = torch.get_num_threads()
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        # The sum of several threads depends on their number.
        torch.set_num_threads(1)
        try:
            return self._step()
        finally:
            torch.set_num_threads(threads)

    def _step(self) -> dict[str, str]:
        _, width, _ = device.sizes(self.kind)
        weights = [_numbers(width, seed, self._device).requires_grad_() for seed in range(3, 3 + device.LAYERS)]
        value = _numbers(width, 100, self._device)
        found = {}
        for number, weight in enumerate(weights):
            value = torch.nn.functional.layer_norm(torch.tanh(value @ weight) + value, (width,))
            found[f"output of layer {number}"] = _digest(value)
        loss = torch.nn.functional.cross_entropy(value, torch.arange(width, device=self._device) % 10)
        loss.backward()
        found["loss"] = _digest(loss)
        for number, weight in reversed(list(enumerate(weights))):
            found[f"gradient of layer {number}"] = _digest(weight.grad)
        with torch.no_grad():
            for number, weight in enumerate(weights):
                found[f"weights of layer {number}"] = _digest(weight - 0.01 * weight.grad)
        return found


def _numbers(edge: int, seed: int, where: torch.device) -> torch.Tensor:
    """Return a square of numbers from -0.5 to 0.5 that are exactly the same on every device."""
    mixed = device.mixed(torch.arange(edge * edge, dtype=torch.int64, device=where), seed)
    return (mixed.to(torch.float32) / 65536 - 0.5).reshape(edge, edge)


def _digest(tensor: torch.Tensor) -> str:
    own = tensor.detach().to("cpu").contiguous()
    return device.digest(ctypes.string_at(own.data_ptr(), own.numel() * own.element_size()))
