# SPDX-License-Identifier: Apache-2.0
"""The rank table of a job: built from what the nodes are, or given by the user and compared with them.

A server's id is the node's address on the job's network, a device's id its physical id.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ascend import rank_table
from ...ascend.given_rank_table import GivenTable, host_ip
from ...ascend.rank_table_view import ServerView
from ...findings.findings import Finding, faults, host_list
from .placement import Node, Placement

CHECK = "rank table"


def devices_of(node: Node) -> list[Mapping[str, Any]]:
    """Return what is known of the job's devices on a node, in the order of their ranks."""
    known = {device["index"]: device for device in node.npu.get("devices") or ()}
    return [known[index] for index in node.devices if index in known]


def physical_ids(node: Node) -> list[int]:
    """Return the physical ids of the job's devices on a node, in the order of their ranks."""
    return [int(device["physical_id"]) for device in devices_of(node)]


def chip(placement: Placement) -> str:
    """Return the chip of the job, that of most nodes; empty where it is none that has rank tables."""
    chips = Counter(str(node.npu.get("chip") or "") for node in placement.nodes)
    return chips.most_common(1)[0][0]


def chip_findings(placement: Placement) -> list[Finding]:
    """Find nodes whose chip is not that of the others, or none that has rank tables."""
    usual = chip(placement)
    known = usual in rank_table.CHIPS
    return [
        Finding(
            "devices",
            f"chip {node.npu['chip'] or 'of no known kind'}",
            f"{usual}, as on the other nodes" if known else f"one of {', '.join(rank_table.CHIPS)}",
            "use nodes of one kind (job_hosts): a rank table is for one",
            host=node.host,
        )
        for node in placement.nodes
        if node.npu["chip"] != usual or not known
    ]


def servers(placement: Placement) -> list[rank_table.Server]:
    """Return the servers of the table as the nodes' facts have them."""
    return [
        rank_table.Server(
            server_id=node.known_as or node.address,
            host_ip=node.address,
            super_pod_id=str(node.npu.get("super_pod_id") or "0"),
            devices=tuple(
                rank_table.Device(int(device["physical_id"]), str(device["device_ip"]), str(device["super_device_id"]))
                for device in devices_of(node)
            ),
        )
        for node in placement.nodes
    ]


def build(placement: Placement, of_chip: str = "") -> rank_table.Table:
    """Build the table from the nodes' facts, for the chip that most of them have, or another one.

    Raises ValueError where that is none that has rank tables.
    """
    return rank_table.build(servers(placement), of_chip or chip(placement))


def table_findings(placement: Placement, given: GivenTable | None, mindspore: bool = False) -> list[Finding]:
    """Return what is wrong with the job's table: the rules of HCCL and MindSpore, and whether a given one fits.

    In a given table, what HCCL accepts stays a warning. In one that is built from the nodes it is the nodes' fault.
    """
    if given is None:
        problems = [rank_table.refused(each) for each in _problems(build(placement), chip(placement))]
        findings = _as_findings(problems, {node.address: node.host for node in placement.nodes}, "")
        return [*findings, *_spare_findings(placement, problems)]
    hosts = {}
    for node in placement.nodes:
        place = given.place(node.address)
        if place is not None:
            hosts[given.servers[place].server_id] = node.host
    problems = [
        _of_mindspore(each) if mindspore and each.check == "rank_order" else each
        for each in _problems(given.table, chip(placement))
    ]
    return [*_as_findings(problems, hosts, f" of {given.path}"), *_fit_findings(placement, given)]


def _problems(table: object, of_chip: str) -> list[Finding]:
    # device_set_findings reports the sets of devices, whatever the launcher is.
    return [each for each in rank_table.validate(table, of_chip) if each.check != "device_set"]


def _of_mindspore(problem: Finding) -> Finding:
    return replace(rank_table.refused(problem), expected=f"{problem.expected}, as MindSpore demands")


def _spare_findings(placement: Placement, known: Sequence[Finding]) -> list[Finding]:
    """Find spares with which HCCL would refuse the table, each tried in the last place."""
    findings, last = [], placement.nodes[-1]
    for spare in placement.spares:
        changed = placement.with_spare(last, spare)
        new = [each for each in faults(_problems(build(changed), chip(changed))) if each not in known]
        findings += _as_findings(new, {last.address: spare.host}, f" with {spare.host} in its place")
    return findings


def spare_tables(placement: Placement) -> dict[str, rank_table.Table]:
    """Return of each spare the table that it would have alone, by its address."""
    return {
        spare.address: build(replace(placement, nodes=(spare,), spares=()), chip(placement))
        for spare in placement.spares
    }


def _as_findings(problems: Iterable[Finding], hosts: Mapping[str, str], of: str) -> list[Finding]:
    findings = []
    for problem in problems:
        # Where a fault is begins with the server that has it, if one has.
        server = problem.host.partition(", ")[0].removeprefix("server ")
        found = f"{problem.host}{of}: {problem.found}"
        findings.append(replace(problem, host=hosts.get(server, ""), check=CHECK, found=found))
    return findings


def _fit_findings(placement: Placement, given: GivenTable) -> list[Finding]:
    """Compare servers, devices and their number with those of the job."""
    findings = []
    used = set()
    for node in placement.nodes:
        place = given.place(node.address)
        if place is None:
            found = f"no server {node.address} in {given.path}"
            expected = "a server for every node of the job, with the node's address on the job's network as server_id"
            action = "choose the table's nodes with job_hosts, job_nodes and job_network, or correct the table"
            findings.append(Finding(CHECK, found, expected, action, host=node.host))
        else:
            used.add(place)
            server = given.servers[place]
            if host_ip(server) and not _same_addresses(host_ip(server), node.address):
                found = f"host_ip {host_ip(server)} of {server.where} in {given.path}"
                expected = f"{node.address}, the node's address on the job's network"
                action = "set job_network to the network of host_ip, or correct the table"
                findings.append(Finding(CHECK, found, expected, action, host=node.host))
            findings += _device_findings(node, server, given.path)
    strangers = [server.server_id for place, server in enumerate(given.servers) if place not in used]
    if strangers:
        expected = f"only nodes of the job: {host_list([node.address for node in placement.nodes])}"
        action = "run the job on these servers, too (job_hosts, job_nodes), or take them out of the table"
        findings.append(Finding(CHECK, f"server {host_list(strangers)} in {given.path}", expected, action))
    ranks = sum(len(server.entries) for server in given.servers)
    if ranks != placement.world_size:
        found = f"{_count(ranks, 'rank')} on {_count(len(given.servers), 'server')} in {given.path}"
        expected = f"{_count(placement.world_size, 'rank')} on {_count(len(placement.nodes), 'node')}, as the job has"
        action = "correct the table, or leave job_rank_table out: the launcher then builds it"
        findings.append(Finding(CHECK, found, expected, action))
    return findings


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _device_findings(node: Node, server: ServerView, path: str) -> list[Finding]:
    in_table = {device.device_id: device.data for device in server.devices}
    ids = sorted(device_id for device_id in in_table if device_id is not None)
    if ids != sorted(physical_ids(node)):
        expected = f"devices {_listed(physical_ids(node))}, as the job has on this node"
        action = f"set job_devices: {ids}, or correct the table"
        return [Finding(CHECK, f"devices {_listed(ids)} in {path}", expected, action, host=node.host)]
    findings = []
    for device in devices_of(node):
        entry = in_table[int(device["physical_id"])]
        for name, same in (("device_ip", _same_addresses), ("super_device_id", str.__eq__)):
            stated, real = str(entry.get(name) or ""), str(device[name])
            if stated and real and not same(stated, real):
                found = f"device {device['physical_id']} with {name} {stated} in {path}"
                action = "generate the table again, or leave job_rank_table out: the launcher then builds it"
                findings.append(Finding(CHECK, found, f"{real}, which the device has", action, host=node.host))
    return findings


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _same_addresses(stated: str, real: str) -> bool:
    """Tell whether one of the addresses in a `device_ip`, which may hold several with commas, is the real one."""
    try:
        return ipaddress.ip_address(real) in [ipaddress.ip_address(each.strip()) for each in stated.split(",")]
    except ValueError:
        return False


def device_findings(placement: Placement) -> list[Finding]:
    """Find devices of the job that HCCL cannot use: ill ones, and between nodes those whose link is down."""
    findings = []
    for node in placement.nodes:
        for device in devices_of(node):
            name = f"device {device['physical_id']}"
            if device["health"] not in ("OK", ""):
                found = f"{name} with health {device['health']}"
                action = "look at npu-smi info -t health, or leave the device out with job_devices"
                findings.append(Finding("devices", found, "devices whose health is OK", action, host=node.host))
            if device["link"] == "down" and len(placement.nodes) > 1:
                expected = "a link that is up, since the job has several nodes"
                action = "look at cable, optical module and switch port, or leave the device out with job_devices"
                findings.append(Finding("devices", f"{name} with its link down", expected, action, host=node.host))
    return findings


def device_set_findings(placement: Placement) -> list[Finding]:
    """Find sets of devices that the chip's own wiring does not join, whatever the launcher.

    What HCCL accepts all the same, such as 0 and 4 of a 910, is a warning.
    """
    findings = []
    for node in placement.nodes:
        if node.devices and node.npu.get("chip") in rank_table.CHIPS:
            findings += [
                replace(
                    problem,
                    host=node.host,
                    check="devices",
                    found=f"{problem.found} (chip {node.npu['chip']})",
                    action=f"{problem.action}: set job_devices, or job_ranks_per_node",
                )
                for problem in rank_table.device_set_problems(
                    physical_ids(node), node.npu["chip"], len(placement.nodes)
                )
            ]
    return findings
