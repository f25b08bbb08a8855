#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the rank table of 10,000 servers with 8 NPUs each, in one of two ways, and print seconds and peak memory.

A process for each way: the peak of memory is the process's own.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).resolve().parent.parent / "module_utils"))
from ansible.module_utils.trainyard.ascend import rank_table
from ansible.module_utils.trainyard.job.placement import hostfile

SERVERS = 10_000
DEVICES = 8


def cluster() -> list[rank_table.Server]:
    """Return the servers, as facts of the nodes would give them."""
    return [
        rank_table.Server(
            f"10.{at // 250}.{at % 250}.1",
            tuple(rank_table.Device(npu, f"192.{at // 250}.{at % 250}.{npu + 1}") for npu in range(DEVICES)),
        )
        for at in range(SERVERS)
    ]


def with_trainyard(servers: list[rank_table.Server], folder: Path) -> float:
    """Build, validate and write the table and a hostfile; return the seconds."""
    began = time.perf_counter()
    table = rank_table.build(servers, "910b")
    problems = rank_table.validate(table, "910b")
    (folder / rank_table.file_name(table)).write_text(rank_table.dumps(table))
    hosts = [hostfile.MpiHost(server.server_id, len(server.devices)) for server in servers]
    (folder / "hostfile").write_text(hostfile.render(hosts, "openmpi"))
    seconds = time.perf_counter() - began
    if problems or json.loads((folder / rank_table.file_name(table)).read_text()) != table:
        raise SystemExit(f"not the table that was to be written: {problems[:3]}")
    return seconds


def with_json_dump(servers: list[rank_table.Server], folder: Path) -> float:
    """Write the same table, built before, with json.dump; return the seconds."""
    table = rank_table.build(servers, "910b")
    began = time.perf_counter()
    with (folder / "table.json").open("w") as stream:
        json.dump(table, stream)
    return time.perf_counter() - began


WAYS = {"trainyard": with_trainyard, "json.dump": with_json_dump}


def main() -> None:
    """Measure one way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    way = WAYS[parser.parse_args().way]
    servers = cluster()
    with tempfile.TemporaryDirectory() as folder:
        seconds = way(servers, Path(folder))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak MiB": peak_mib}))


if __name__ == "__main__":
    main()
