# SPDX-License-Identifier: Apache-2.0
"""Plan the files that describe a cluster to other programs: a rank table, a hostfile; and read one as an inventory.

A node is a record with its `name`, its `ansible_host` if it has one, and results of modules:
`__asked_devices` (npu_info or accelerator_info) and `__asked_networks` (network_info).
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...ascend.rank_table import Server
from ...base.findings import Finding, counted, faults
from ...cluster.hosts import can_name_a_node
from ...cluster.unreachable import no_answers
from ...hardware.interfaces import SelectionError, select_interface
from ...software.file_differences import taken
from ..file.values import parse_devices
from . import job_rank_table
from .hostfile import FLAVORS, MpiHost
from .placement import Node, Placement, distinct_addresses, missing_devices

Record = Mapping[str, Any]

# The server_id of a single server, as usual generators write it.
LOOPBACK = "127.0.0.1"
_RANGE = 'auto, a list such as [0, 1], or a range such as "[4,8)"'
# Names that need no quotes: YAML reads the excluded words, and numbers, as other values than texts.
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z][a-z0-9.-]*|\d+\.\d+\.\d+\.\d+", re.IGNORECASE)


def plan_rank_table(nodes: Sequence[Record], settings: Record) -> dict[str, Any]:
    """Return `findings`, `chip` and the `servers` of a rank table of these nodes.

    `settings`: `devices` as in job_devices, `network` as in job_network, `server_ip` of a single server, `path`,
    `folder`, whether there is a folder for it, and `any_device_set` as job_any_device_set.
    """
    found = [*_no_folder(settings, "rank_table_path"), *_silent(nodes)]
    try:
        chosen: tuple[int, ...] | None = parse_devices(settings["devices"])
    except (ValueError, TypeError):
        chosen = ()
    if chosen == ():
        found.append(Finding("devices", repr(settings["devices"]), _RANGE, "correct rank_table_devices"))
    found += _server_ip(str(settings["server_ip"]), len(nodes) == 1)
    placed: list[Node] = []
    for record in filter(_answered, nodes):
        npu = record["__asked_devices"]["npu"]
        devices = chosen or tuple(int(device["index"]) for device in npu.get("devices") or ())
        own = _device_findings(record["name"], npu, devices)
        if len(nodes) == 1:
            address = str(settings["server_ip"]) or LOOPBACK
        else:
            address, wrong = _address(record, str(settings["network"]), "rank_table", False)
            own += wrong
        found += own
        if not own:
            node = Node(
                record["name"], len(placed), address, "", "", "ascend", devices, 0, len(devices), 0, {}, npu=npu
            )
            placed.append(node)
    if found or not placed:
        return {"findings": [finding.as_dict() for finding in found], "chip": "", "servers": []}
    placement = Placement("", tuple(placed), 0, 0, "", "")
    problems = job_rank_table.chip_findings(placement) or [
        *distinct_addresses(placed),
        *job_rank_table.device_findings(placement),
        *faults(job_rank_table.device_set_findings(placement, overruled=bool(settings.get("any_device_set")))),
        *job_rank_table.table_findings(placement, None),
    ]
    return {
        "findings": [_named(finding, "rank_table").as_dict() for finding in problems],
        "chip": job_rank_table.chip(placement),
        "servers": [_server(server) for server in job_rank_table.servers(placement)],
    }


def _server(server: Server) -> dict[str, Any]:
    # Every node is 127.0.0.1 to itself: it is a name, and no address of the server.
    return {**asdict(server), "host_ip": "" if server.host_ip == LOOPBACK else server.host_ip}


def _server_ip(address: str, alone: bool) -> list[Finding]:
    if not address:
        return []
    if not alone:
        expected = "it for a single server; several are known by their addresses on rank_table_network"
        action = "leave rank_table_server_ip out, or choose one host with rank_table_hosts"
        return [Finding("rank_table_server_ip", address, expected, action)]
    try:
        ipaddress.ip_address(address)
    except ValueError:
        found, action = repr(address), "correct rank_table_server_ip"
        return [Finding("rank_table_server_ip", found, "an IPv4 or IPv6 address", action)]
    return []


def _device_findings(host: str, npu: Record, devices: Sequence[int]) -> list[Finding]:
    present = [int(device["index"]) for device in npu.get("devices") or ()]
    if not present:
        found = "; ".join(npu.get("problems") or ()) or "no Ascend device"
        action = "install driver and firmware, or leave the host out of rank_table_hosts"
        return [Finding("devices", found, "Ascend devices that npu-smi lists", action, host=host)]
    return missing_devices(host, present, devices, "correct rank_table_devices, or set it to auto")


def plan_hostfile(nodes: Sequence[Record], settings: Record) -> dict[str, Any]:
    """Return `findings` and the `hosts` of a hostfile of these nodes, each with its `name` and `slots`.

    `settings`: `slots`, a number or auto for the number of devices, `network` as in job_network, `flavor`, `path`, and
    `folder`, whether there is a folder for it.
    """
    found, hosts = [*_no_folder(settings, "hostfile_path"), *_silent(nodes)], []
    flavor, slots = settings["flavor"], _slots(settings["slots"])
    if flavor not in FLAVORS:
        expected = f"one of {', '.join(FLAVORS)}"
        found.append(Finding("hostfile_flavor", repr(flavor), expected, "correct hostfile_flavor"))
    if slots is None:
        expected = "auto, or a whole number from 1 on"
        found.append(Finding("hostfile_slots", repr(settings["slots"]), expected, "correct hostfile_slots"))
    expected, action = (
        "devices that answer, whose number is that of the slots",
        "repair the driver, or set hostfile_slots",
    )
    for record in filter(_answered, nodes):
        accelerators = record["__asked_devices"]["accelerators"]
        problems = accelerators.get("problems") or () if slots == 0 else ()
        found += [Finding("devices", str(each), expected, action, host=record["name"]) for each in problems]
        address, wrong = _address(record, str(settings["network"]), "hostfile", len(nodes) == 1)
        found += wrong
        hosts.append({"name": address, "slots": slots or len(accelerators.get("devices") or ()) or 1})
    return {"findings": [finding.as_dict() for finding in found], "hosts": hosts}


def _slots(value: Any) -> int | None:
    """Return the number of slots, 0 for auto; None for anything else."""
    if value == "auto":
        return 0
    return int(value) if not isinstance(value, bool) and re.fullmatch(r"[1-9]\d{0,5}", str(value)) else None


def _no_folder(settings: Record, variable: str) -> list[Finding]:
    if settings["folder"]:
        return []
    found, expected = f"{settings['path']}, in no folder that is there", "a file in a folder on the controller"
    return [Finding(variable, found, expected, f"make the folder, or correct {variable}")]


def _silent(nodes: Sequence[Record]) -> list[Finding]:
    silent = {record["name"]: _failure(record) for record in nodes if not _answered(record)}
    return no_answers(silent, {record["name"]: _connect(record) for record in nodes})


def _failure(record: Record) -> Mapping[str, Any]:
    answers = [record.get("__asked_devices") or {}, record.get("__asked_networks") or {}]
    return next((answer for answer in answers if answer.get("failed") or answer.get("unreachable")), {})


def _answered(record: Record) -> bool:
    return bool(record.get("__asked_devices") and record.get("__asked_networks")) and not _failure(record)


def _connect(record: Record) -> str:
    return str(record.get("ansible_host") or record["name"])


def _address(record: Record, network: str, prefix: str, alone: bool) -> tuple[str, list[Finding]]:
    """Return the address by which a node takes part, or why it has none."""
    interfaces = record["__asked_networks"]["networks"].get("interfaces") or ()
    try:
        return select_interface(interfaces, network, _connect(record), alone=alone)[1], []
    except SelectionError as error:
        return "", [_named(error.finding.on(record["name"]), prefix)]


def _named(finding: Finding, prefix: str) -> Finding:
    """Return a finding about a job as one about a file: with the names of the variables that the playbook has."""

    def own(text: str) -> str:
        text = text.replace(", or job_ranks_per_node", "").replace("the job has several nodes", "it has several")
        return re.sub(r"\bjob_(devices|any_device_set|hosts|network)\b", rf"{prefix}_\1", text)

    return replace(finding, found=own(finding.found), expected=own(finding.expected), action=own(finding.action))


def plan_inventory(read: Record, settings: Record) -> dict[str, Any]:
    """Return `findings`, the `text` of an inventory with the hosts of a hostfile, and whether slots are `differing`.

    `read` is the result of mpi_hostfile, without hosts if the file is missing. `settings`: `hostfile` and `path` name
    both files, `folder` tells whether the latter has a folder, `existing` is its content or "", and `overwrite`.
    """
    hostfile = str(settings["hostfile"])
    hosts = [MpiHost(host["name"], host["slots"], host["max_slots"]) for host in read.get("hosts", ())]
    findings = [*_hostfile_findings(read, hosts, hostfile), *_no_folder(settings, "hostfile_path")]
    text = _inventory(hosts, hostfile) if "hosts" in read else ""
    if settings["existing"] not in ("", text) and not settings["overwrite"] and not findings:
        findings.append(taken(str(settings["path"]), "inventory"))
    differing = len({host.slots for host in hosts}) > 1
    return {"findings": [finding.as_dict() for finding in findings], "text": text, "differing": differing}


def _hostfile_findings(read: Record, hosts: Sequence[MpiHost], hostfile: str) -> list[Finding]:
    if "hosts" not in read:
        expected = "a hostfile on the controller"
        return [Finding("hostfile_from", f"no file {hostfile}", expected, "correct hostfile_from")]
    lines = [f"line {each['line']} of {hostfile}: {each['text']}" for each in read["problems"]]
    names = [f"host {host.name!r} in {hostfile}" for host in hosts if not _is_host(host.name)]
    a_line, a_name = (
        "a line for each host, such as `10.0.0.1 slots=8`",
        "names of letters, digits and . _ -, or addresses",
    )
    findings = [
        *(Finding("hostfile", found, a_line, "correct the hostfile") for found in lines),
        *(Finding("hostfile", found, a_name, "give the host another name") for found in names),
    ]
    if not hosts and not findings:
        action = "name a hostfile that has hosts"
        return [Finding("hostfile", f"no host in {hostfile}", "at least one host", action)]
    return findings


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or can_name_a_node(name)
    return True


def _inventory(hosts: Sequence[MpiHost], hostfile: str) -> str:
    slots = {host.slots for host in hosts}
    same = next(iter(slots)) if len(slots) == 1 else None
    lines = ["---", f"# The hosts of {hostfile}, in its order, which is that of the ranks.", "compute:", "  hosts:"]
    for host in hosts:
        name = host.name if _PLAIN.fullmatch(host.name) else json.dumps(host.name)
        comment = f"  # {counted(host.slots, 'slot')}" if host.slots and not same else ""
        lines.append(f"    {name}:{comment}")
        if host.name == "localhost":
            lines.append("      ansible_connection: local")
    if same:
        lines += ["  vars:", f"    job_ranks_per_node: {same}"]
    return "\n".join([*lines, ""])
