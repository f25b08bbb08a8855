# SPDX-License-Identifier: Apache-2.0
"""This process's place in OneFlow's cluster, in either style, before OneFlow is imported.

OneFlow joins its cluster when it is imported, from MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and LOCAL_RANK. Its
launch module sets them (style `launch`); a script that is handed a list of machines works them out (`address_list`).
"""

from __future__ import annotations

from collections.abc import Mapping

LISTED = ("ONEFLOW_MACHINES", "ONEFLOW_CTRL_PORT", "ONEFLOW_DEVICE_NUM")
NAMES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")


class PlaceError(Exception):
    """The environment says no place; the text says what was found and what to do."""


def place(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which OneFlow joins, for a process with this environment; none: it trains alone."""
    if "ONEFLOW_MACHINES" in environment:
        return _of_machines(environment)
    missing = [name for name in NAMES if not environment.get(name)]
    if missing and len(missing) < len(NAMES):
        raise PlaceError(f"{', '.join(missing)} not set: the launcher must set all of {', '.join(NAMES)}, or none")
    return {name: environment[name] for name in NAMES} if not missing else {}


def machines(environment: Mapping[str, str]) -> tuple[list[str], int, int]:
    """Return what a script before OneFlow 0.5 hands over: all machines, the master first, the port, devices of each."""
    missing = [name for name in LISTED if not environment.get(name)]
    if missing:
        raise PlaceError(f"{', '.join(missing)} not set: start the script with job_oneflow_style: address_list")
    addresses, port, devices = (environment[name] for name in LISTED)
    return addresses.split(","), int(port), int(devices)


def _of_machines(environment: Mapping[str, str]) -> dict[str, str]:
    machines = environment["ONEFLOW_MACHINES"].split(",")
    missing = [name for name in ("ONEFLOW_MACHINE_ID", "ONEFLOW_CTRL_PORT") if not environment.get(name)]
    if missing:
        raise PlaceError(f"{', '.join(missing)} not set beside ONEFLOW_MACHINES: start the script by its launcher")
    devices, machine = int(environment.get("ONEFLOW_DEVICE_NUM") or 1), int(environment["ONEFLOW_MACHINE_ID"])
    if devices != 1:
        raise PlaceError(
            f"ONEFLOW_DEVICE_NUM is {devices}: a process of OneFlow 0.5 and newer uses one device; set "
            "job_ranks_per_node: 1, or job_oneflow_style: launch (older ones use all: global_function.py)"
        )
    if machine not in range(len(machines)):
        raise PlaceError(f"ONEFLOW_MACHINE_ID is {machine}, but ONEFLOW_MACHINES has {len(machines)} machines")
    return {
        # The first machine is the master.
        "MASTER_ADDR": machines[0],
        "MASTER_PORT": environment["ONEFLOW_CTRL_PORT"],
        "WORLD_SIZE": str(len(machines)),
        "RANK": str(machine),
        "LOCAL_RANK": "0",
    }
