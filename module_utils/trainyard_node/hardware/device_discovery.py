# SPDX-License-Identifier: Apache-2.0
"""The accelerators of this machine, from the vendors' tools and the PCI bus. Memory in MiB.

No tool is started on a machine that has none installed, so a node without accelerators costs a few file reads.
"""

from __future__ import annotations

from ...trainyard.hardware import accelerators
from ..machine.tree import Tree

# Without persistence mode nvidia-smi initialises every GPU: several seconds on eight of them. A wedged driver never
# answers.
_TOOL_SECONDS = 60


def _on_the_bus(tree: Tree) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"nvidia": [], "ascend": []}
    for address in tree.names("/sys/bus/pci/devices"):
        device = f"/sys/bus/pci/devices/{address}"
        vendor = tree.text(f"{device}/vendor") or ""
        if vendor in accelerators.PCI_VENDORS:
            of_device = tree.text(f"{device}/device") or ""
            name = accelerators.pci_accelerator_vendor(vendor, tree.text(f"{device}/class") or "", of_device)
            if name is not None:
                found[name].append(address)
    return found


def _link(tree: Tree, pci: str) -> accelerators.PciLink:
    """Return what the GPU and the port above it can do; what they do now says little, as an idle GPU slows down."""
    ends = (f"/sys/bus/pci/devices/{pci}", f"/sys/bus/pci/devices/{pci}/..")
    return accelerators.pci_link(
        [tree.text(f"{end}/max_link_speed") for end in ends], [tree.text(f"{end}/max_link_width") for end in ends]
    )


def _nvidia(tree: Tree, on_the_bus: list[str]) -> accelerators.Accelerators | None:
    fields: tuple[str, ...] = accelerators.NVIDIA_FIELDS
    outcome = tree.command("nvidia-smi.query-gpu", _nvidia_query(fields), _TOOL_SECONDS)
    if outcome is None:
        return None
    if outcome.status != 0 and "is not a valid field to query" in outcome.output:
        fields = accelerators.NVIDIA_FIELDS_BEFORE_MIG
        outcome = tree.command("nvidia-smi.query-gpu-before-mig", _nvidia_query(fields), _TOOL_SECONDS) or outcome
    found = accelerators.parse_nvidia_query(outcome.output, fields)
    module_version = tree.text("/sys/module/nvidia/version")
    if outcome.status != 0:
        # The failure line explains itself better than its unparsed words do.
        found["problems"] = [accelerators.nvidia_failure(outcome.status, outcome.output, len(on_the_bus))]
        found["driver"] = found["driver"] or module_version
        return found
    if module_version and found["driver"] and module_version != found["driver"]:
        found["problems"].append(
            f"the running kernel module is {module_version} but the driver's user space is {found['driver']}: "
            "restart the node"
        )
    for device in found["devices"]:
        if device["pci"]:
            device.update(_link(tree, device["pci"]))  # type: ignore[typeddict-item]
    listed = {device["pci"] for device in found["devices"]}
    # A container sees every GPU on the PCI bus but only its own ones here, so only these must be in the list.
    driven = {accelerators.pci_address(address) or address for address in tree.names("/proc/driver/nvidia/gpus")}
    lost = sorted(driven - listed)
    if lost:
        found["problems"].append(
            f"nvidia-smi does not list {', '.join(lost)}, which the driver has: the GPU fell off the bus or was not "
            "initialised; look for `Xid` in the kernel log"
        )
    unlisted = sorted(set(on_the_bus) - listed - driven)
    if unlisted:
        found["notes"].append(f"on the PCI bus but not given to this system's driver: {', '.join(unlisted)}")
    return found


def _nvidia_query(fields: tuple[str, ...]) -> list[str]:
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _ascend(tree: Tree, on_the_bus: list[str]) -> accelerators.Accelerators | None:
    table = tree.command("npu-smi.info", ["npu-smi", "info"], _TOOL_SECONDS)
    if table is None:
        return None
    if table.status != 0:
        found = accelerators.no_accelerators("ascend")
        found["problems"] = [accelerators.npu_failure(table.status, table.output, len(on_the_bus))]
        return found
    mapping = tree.command("npu-smi.info-m", ["npu-smi", "info", "-m"], _TOOL_SECONDS)
    return accelerators.parse_npu_info(table.output, mapping.output if mapping and mapping.status == 0 else None)


def read_accelerators(tree: Tree) -> accelerators.Accelerators:
    """Return the accelerators of the machine; what is broken is in `problems`, never left out."""
    on_the_bus = _on_the_bus(tree)
    nvidia = _nvidia(tree, on_the_bus["nvidia"])
    ascend = _ascend(tree, on_the_bus["ascend"])
    found = [record for record in (nvidia, ascend) if record is not None]
    # A tool without devices (an image for both kinds of nodes) gives way to one with devices.
    found.sort(key=lambda record: not record["devices"])
    result = found[0] if found else accelerators.no_accelerators()
    if len(found) > 1 and found[1]["devices"]:
        result["problems"].append(
            f"the node has both {result['vendor']} and {found[1]['vendor']} devices; only the former are used"
        )
    for vendor, record in (("nvidia", nvidia), ("ascend", ascend)):
        if record is None and on_the_bus[vendor]:
            result["problems"].append(accelerators.missing_driver(vendor, on_the_bus[vendor]))
            if result["vendor"] == "none":
                result["vendor"] = vendor
    return result
