#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check this process's place in the rank table, and with all other ranks that the table's ranks are complete.

Reads what Ascend programs read: RANK_TABLE_FILE, RANK_SIZE, RANK_ID, DEVICE_ID, DEVICE_NUM, HCCL_IF_IP; besides
MASTER_ADDR and MASTER_PORT. The ranks meet by gloo on the CPUs, so it needs no device and runs before any network of
devices is trusted. Each rank prints one line, `rank 3 of 16 on n1: server 10.0.0.1 device 3, table 1a2b3c4d5e6f right`,
and every fault on a line of its own.

Exit status: 0 right, 1 wrong or failed, 2 no rank table, or no place to join the others from.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

# Upper bound for one rank's message, in bytes.
_REPORT = 512


class Place(NamedTuple):
    """Where a rank stands in the table."""

    server: str
    host_ip: str
    device: int
    devices_of_server: int


def places(table: Mapping[str, Any]) -> dict[int, Place]:
    """Return the place of each rank in a table. Raises KeyError, TypeError or ValueError for what is no table."""
    found = {}
    for server in table["server_list"]:
        for device in server["device"]:
            host_ip = server.get("host_ip", server["server_id"])
            place = Place(server["server_id"], host_ip, int(device["device_id"]), len(server["device"]))
            found[int(device["rank_id"])] = place
    return found


def place_faults(env: Mapping[str, str], table: Mapping[str, Any]) -> list[str]:
    """Say where this process's environment and the table disagree."""
    faults = []
    if table.get("status") != "completed":
        faults.append(f"the table's status is {table.get('status')!r}, expected 'completed'")
    if not env["RANK_TABLE_FILE"].endswith(".json"):
        faults.append(f"RANK_TABLE_FILE is {env['RANK_TABLE_FILE']}, expected a name that ends in .json")
    by_rank, rank = places(table), int(env["RANK_ID"])
    if sorted(by_rank) != list(range(int(env["RANK_SIZE"]))):
        faults.append(f"RANK_SIZE is {env['RANK_SIZE']}, but the table has {len(by_rank)} ranks: {_span(by_rank)}")
    place = by_rank.get(rank)
    if place is None:
        return [*faults, f"RANK_ID is {rank}, which the table does not have"]
    expected = {
        "DEVICE_ID": str(place.device),
        "DEVICE_NUM": str(place.devices_of_server),
        "HCCL_IF_IP": place.host_ip,
        "ASCEND_RT_VISIBLE_DEVICES": None,
    }
    for name, value in expected.items():
        if env.get(name) != value:
            faults.append(f"{name} is {env.get(name)}, expected {value}, as the table has it for rank {rank}")
    return faults


def _span(ranks: Mapping[int, Place]) -> str:
    return f"{min(ranks)} to {max(ranks)}" if ranks else "none"


def address_fault(address: str) -> str:
    """Say why an address is not one of this machine's; "" when it is."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return f"HCCL_IF_IP is {address}, which is no address of {socket.gethostname()}: {error.strerror}"
    return ""


def census_faults(reports: Sequence[Mapping[str, Any]], own: int, table: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with the ranks that came: each must hold its place in one and the same table."""
    faults = []
    by_rank = places(table)
    came = [report["rank"] for report in reports]
    if sorted(came) != sorted(by_rank):
        missing = sorted(set(by_rank) - set(came))
        faults.append(f"ranks {sorted(came)} came, expected those of the table; missing: {missing or 'none'}")
    digest = reports[own]["table"]
    for report in reports:
        place = by_rank.get(report["rank"])
        if report["table"] != digest:
            faults.append(f"rank {report['rank']} on {report['host']} has table {report['table']}, expected {digest}")
        elif place and (report["server"], report["device"]) != (place.host_ip, place.device):
            faults.append(
                f"rank {report['rank']} is on {report['server']} with device {report['device']}, "
                f"expected {place.host_ip} with device {place.device}"
            )
    return faults


def gather(report: Mapping[str, Any], rank: int, ranks: int, timeout_s: int) -> list[dict[str, Any]]:
    """Return the report of every rank, in the order in which the collective gave them."""
    # Late, as it takes seconds: what is wrong with the environment is said before.
    import torch
    import torch.distributed as dist

    text = json.dumps(report).encode().ljust(_REPORT)
    received = [torch.zeros(_REPORT, dtype=torch.uint8) for _ in range(ranks)]
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_s))
    dist.all_gather(received, torch.frombuffer(bytearray(text), dtype=torch.uint8))
    # The first rank that fails ends all of them: each must have received everything before.
    dist.barrier()
    dist.destroy_process_group()
    return [json.loads(bytes(each.tolist())) for each in received]


def main() -> int:
    """Check, and return the exit status."""
    parser = argparse.ArgumentParser(description="Ranks of a rank table, checked by each of them.")
    parser.add_argument("--timeout", type=int, default=120, help="seconds to wait for the other ranks")
    timeout_s = parser.parse_args().timeout
    try:
        content = Path(os.environ["RANK_TABLE_FILE"]).read_bytes()
        table = json.loads(content)
        rank, ranks = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])
        faults = place_faults(os.environ, table)
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        print(f"no rank table, or no place in it: {type(error).__name__} {error}", flush=True)
        return 2
    server, device = os.environ.get("HCCL_IF_IP", ""), os.environ.get("DEVICE_ID", "")
    fault = address_fault(server) if server else ""
    faults += [fault] if fault else []
    report = {
        "rank": rank,
        "host": socket.gethostname(),
        "server": server,
        "device": int(device) if device.isdecimal() else None,
        "table": hashlib.sha256(content).hexdigest()[:12],
    }
    faults += census_faults(gather(report, rank, ranks, timeout_s), rank, table)
    for fault in faults:
        print(f"rank {rank} wrong: {fault}")
    outcome = f"wrong, {len(faults)} faults" if faults else "right"
    place = f"server {server} device {device}, table {report['table']}"
    print(f"rank {rank} of {ranks} on {report['host']}: {place} {outcome}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    status = main()
    # The interpreter's own exit may abort while threads of the process group end.
    os._exit(status)
