"""Rank tables for tests: built for a few servers, and with something changed in them."""

from __future__ import annotations

import copy

from ansible.module_utils.trainyard.ascend.rank_table import Device, Server, build


def server(number, devices=2, **more):
    ids = range(devices) if isinstance(devices, int) else devices
    members = tuple(Device(at, f"192.{at + 1}.0.{number}", str(number * 100 + at)) for at in ids)
    return Server(f"10.0.0.{number}", members, **more)


def a2(servers=2, devices=2):
    return build([server(number + 1, devices) for number in range(servers)], "910b")


def a3(pods=("0", "0")):
    return build([server(at + 1, host_ip=f"10.9.0.{at + 1}", super_pod_id=pod) for at, pod in enumerate(pods)], "a3")


def edit(table, path, value):
    """Return a copy with one field set, or taken out where the value is None."""
    changed = copy.deepcopy(table)
    *way, last = path
    inner = changed
    for step in way:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed


def host_ports(table, *ports):
    """Give the devices of the first server their ports on its own interface."""
    for index, port in enumerate(ports):
        table = edit(table, ["server_list", 0, "device", index, "host_port"], port)
    return table


FIRST = ("server_list", 0, "device", 0)
SECOND = ("server_list", 1, "device", 1)


def ranks(table, *numbers):
    """Number the devices anew."""
    table = copy.deepcopy(table)
    devices = [device for entry in table["server_list"] for device in entry["device"]]
    for device, number in zip(devices, numbers):
        device["rank_id"] = str(number)
    return table
