# SPDX-License-Identifier: Apache-2.0
"""The rank table of a job, built from the nodes' facts, or given by the user and compared with them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ascend import rank_table
from ...ascend.given_rank_table import GivenTable, host_ip
from ...ascend.rank_table_view import ServerView, View
from ...base.findings import Finding, Warned, counted, faults, host_list
from ...base.majority import usual
from .placement import Node, Placement

CHECK = "rank table"


def devices_of(node: Node) -> list[Mapping[str, Any]]:
    """Return the facts of the job's devices on a node, in the order of their ranks."""
    known = {device["index"]: device for device in node.npu.get("devices") or ()}
    return [known[index] for index in node.devices if index in known]


def physical_ids(node: Node) -> list[int]:
    """Return the physical ids of the job's devices on a node, in the order of their ranks."""
    return [int(device["physical_id"]) for device in devices_of(node)]


def chip(placement: Placement) -> str:
    """Return the chip of most nodes, or ""."""
    return usual((str(node.npu.get("chip") or "") for node in placement.nodes), "")


def chip_findings(placement: Placement) -> list[Finding]:
    """Find nodes with another chip than most nodes, or with one that has no rank tables."""
    most = chip(placement)
    known = most in rank_table.CHIPS
    expected = f"{most}, as on the other nodes" if known else f"one of {', '.join(rank_table.CHIPS)}"
    action = "use nodes of one kind (job_hosts): a rank table is for one"
    return [
        Finding("devices", f"chip {node.npu['chip'] or 'of no known kind'}", expected, action, host=node.host)
        for node in placement.nodes
        if node.npu["chip"] != most or not known
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
    """Build the table for this chip, or that of most nodes. Raises ValueError for a chip without rank tables."""
    return rank_table.build(servers(placement), of_chip or chip(placement))


def table_findings(placement: Placement, given: GivenTable | None, mindspore: bool = False) -> list[Finding]:
    """Return the problems of the job's table: the rules of HCCL and MindSpore, and whether a given one fits.

    In a given table, what HCCL accepts stays a warning. In a built one, it is a problem of the nodes.
    """
    if given is None:
        table = build(placement)
        hosts = {node.address: node.host for node in placement.nodes}
        problems = [rank_table.as_error(each) for each in _problems(table, chip(placement))]
        return [*_as_findings(problems, _places(table, hosts), ""), *_spare_findings(placement, problems)]
    places = {node.host: given.place(node.address) for node in placement.nodes}
    hosts = {given.servers[place].server_id: host for host, place in places.items() if place is not None}
    problems = [
        _of_mindspore(each) if mindspore and each.check == "rank_order" else each
        for each in _problems(given.table, chip(placement))
    ]
    findings = _as_findings(problems, _places(given.table, hosts), f" of {given.path}")
    return [*findings, *(_fit_findings(placement, given) if given.servers else ())]


def _problems(table: object, of_chip: str) -> list[Finding]:
    # device_set_findings reports the sets of devices, for every launcher.
    return [each for each in rank_table.validate(table, of_chip) if each.check != "device_set"]


def _of_mindspore(problem: Finding) -> Finding:
    return replace(rank_table.as_error(problem), expected=f"{problem.expected}, as MindSpore demands")


def _spare_findings(placement: Placement, known: Sequence[Finding]) -> list[Finding]:
    """Find spares with which HCCL would refuse the table, each tried in the last place."""
    findings, last = [], placement.nodes[-1]
    for spare in placement.spares:
        changed = placement.with_spare(last, spare)
        table = build(changed)
        new = [each for each in faults(_problems(table, chip(changed))) if each not in known]
        places = _places(table, {last.address: spare.host})
        findings += _as_findings(new, places, f" with {spare.host} in its place")
    return findings


def spare_tables(placement: Placement) -> dict[str, rank_table.Table]:
    """Return the table that each spare would have alone, by its address."""
    return {
        spare.address: build(replace(placement, nodes=(spare,), spares=()), chip(placement))
        for spare in placement.spares
    }


def _places(table: object, hosts: Mapping[str, str]) -> dict[str, str]:
    """Return the host of each place in a table that a problem can have; `hosts` has it by server_id."""
    servers = View(table).servers if isinstance(table, dict) else ()
    return {
        place: hosts[server.server_id] for server in servers if server.server_id in hosts for place in server.places
    }


def _as_findings(problems: Iterable[Finding], places: Mapping[str, str], of: str) -> list[Finding]:
    return [
        replace(each, host=places.get(each.host, ""), check=CHECK, found=f"{each.host}{of}: {each.found}")
        for each in problems
    ]


def _fit_findings(placement: Placement, given: GivenTable) -> list[Finding]:
    findings = []
    used = set()
    for node in placement.nodes:
        place = given.place(node.address)
        if place is None:
            found = f"no server {node.address} in {given.path}"
            expected = "a server for every node of the job, with the node's address on the job's network as server_id"
            action = "choose the table's nodes with job_hosts, job_nodes and job_network, or correct the table"
            findings.append(Finding(CHECK, found, expected, action, host=node.host))
            continue
        used.add(place)
        server = given.servers[place]
        if host_ip(server) and not _same_addresses(host_ip(server), node.address):
            found = f"host_ip {host_ip(server)} of {server.where} in {given.path}"
            expected = f"{node.address}, the node's address on the job's network"
            action = "set job_network to the network of host_ip, or correct the table"
            findings.append(Finding(CHECK, found, expected, action, host=node.host))
        findings += _device_findings(node, server, given.path)
    others = [server.server_id for place, server in enumerate(given.servers) if place not in used]
    if others:
        expected = f"only nodes of the job: {host_list([node.address for node in placement.nodes])}"
        action = "run the job on these servers, too (job_hosts, job_nodes), or take them out of the table"
        findings.append(Finding(CHECK, f"server {host_list(others)} in {given.path}", expected, action))
    ranks = sum(len(server.entries) for server in given.servers)
    if ranks != placement.world_size:
        found = f"{counted(ranks, 'rank')} on {counted(len(given.servers), 'server')} in {given.path}"
        expected = f"{counted(placement.world_size, 'rank')} on {counted(len(placement.nodes), 'node')}, as the job has"
        action = "correct the table, or leave job_rank_table out: the launcher then builds it"
        findings.append(Finding(CHECK, found, expected, action))
    return findings


def _device_findings(node: Node, server: ServerView, path: str) -> list[Finding]:
    in_table = {device.device_id: device.data for device in server.devices}
    ids, planned = sorted(each for each in in_table if each is not None), physical_ids(node)
    if ids != sorted(planned):
        found, expected = (f"devices {', '.join(map(str, each)) or 'none'}" for each in (ids, planned))
        action = f"set job_devices: {ids}, or correct the table"
        return [Finding(CHECK, f"{found} in {path}", f"{expected}, as the job has on this node", action, node.host)]
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


def _same_addresses(stated: str, real: str) -> bool:
    """Tell whether one of the addresses in a `device_ip`, which may hold several with commas, is the real one."""
    try:
        return ipaddress.ip_address(real) in [ipaddress.ip_address(each.strip()) for each in stated.split(",")]
    except ValueError:
        return False


def device_findings(placement: Placement) -> list[Finding]:
    """Find devices of the job that HCCL cannot use: unhealthy ones, and between nodes those whose link is down."""
    findings = []
    for node in placement.nodes:
        for device in devices_of(node):
            name = f"device {device['physical_id']}"
            if device["health"] not in ("OK", ""):
                found = f"{name} with health {device['health']}"
                action = f"check npu-smi info -t health, or {_without(node, device, placement)}"
                findings.append(Finding("devices", found, "devices whose health is OK", action, host=node.host))
            if device["link"] == "down" and len(placement.nodes) > 1:
                expected = "a link that is up, since the job has several nodes"
                action = f"check cable, optical module and switch port, or {_without(node, device, placement)}"
                findings.append(Finding("devices", f"{name} with its link down", expected, action, host=node.host))
    return findings


def _without(node: Node, device: Mapping[str, Any], placement: Placement) -> str:
    """Return how a job does without a device; the links of some chips do not join any others."""
    rest = [each for each in physical_ids(node) if each != int(device["physical_id"])]
    of_chip, servers = node.npu.get("chip"), len(placement.nodes)
    problems = rank_table.device_set_problems(rest, of_chip, servers) if of_chip in rank_table.CHIPS else ()
    if not problems:
        return "leave the device out with job_devices"
    return "leave the node out" if servers > 1 else f"choose others with job_devices: {problems[0].expected}"


def device_set_findings(placement: Placement, *, overruled: bool) -> list[Finding]:
    """Find sets of devices that HCCL's documents forbid, as the chip's wiring does not join them.

    Those that HCCL's parser takes all the same are a warning if job_any_device_set overrules these.
    """
    findings = []
    for node in placement.nodes:
        of_chip = node.npu.get("chip")
        if not node.devices or of_chip not in rank_table.CHIPS:
            continue
        for problem in rank_table.device_set_problems(physical_ids(node), of_chip, len(placement.nodes)):
            found = f"{problem.found} (chip {of_chip})"
            action = f"{problem.action}: set job_devices, or job_ranks_per_node"
            if isinstance(problem, Warned) and not overruled:
                problem = rank_table.as_error(problem)
                action += "; job_any_device_set: true tries it all the same"
            findings.append(replace(problem, host=node.host, check="devices", found=found, action=action))
    return findings
