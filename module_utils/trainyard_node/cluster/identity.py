# SPDX-License-Identifier: Apache-2.0
"""Read the identity of a node: kernel host name, addresses, training user, limits that it can grant.

Limits are in the units of getrlimit(2), None for unlimited. They come from /proc/1/limits and /proc/1/status, as sshd
and services inherit these. Users come from NSS, so a directory service counts, too.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import resource
from typing import Any

from ..machine.tree import Tree
from ..machine.users import group_name, user_name

_CAP_SYS_RESOURCE = 1 << 24
_TIMEOUT_S = 20.0


def parse_hard_limits(text: str) -> dict[str, int | None]:
    """Parse the hard limits of memlock (bytes) and nofile in /proc/PID/limits. Raises ValueError for anything else."""
    found: dict[str, int | None] = {}
    for title, name in (("Max locked memory", "memlock"), ("Max open files", "nofile")):
        match = re.search(rf"^{title} +\S+ +(unlimited|\d+)", text, re.MULTILINE)
        if not match:
            raise ValueError(f"/proc/1/limits has no line '{title}'")
        found[name] = None if match[1] == "unlimited" else int(match[1])
    return found


def parse_addresses(text: str) -> list[str]:
    """Parse the global addresses, IPv4 first, of `ip -j addr show`. Raises ValueError for anything else."""
    try:
        found = [
            (entry["family"], entry["local"])
            for link in json.loads(text or "[]")
            for entry in link.get("addr_info", [])
            if entry.get("scope") == "global" and "local" in entry and not entry.get("temporary")
        ]
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no answer of `ip -j addr show`: {text[:200]}") from error
    return [address for family in ("inet", "inet6") for kind, address in found if kind == family]


def default_address(tree: Tree, addresses: list[str]) -> str:
    """Return the address of the interface with the default route, or ""."""
    routes = tree.command("ip-route", ["ip", "-j", "route", "show", "default"], _TIMEOUT_S)
    if routes is None or routes.status != 0:
        return ""
    for route in json.loads(routes.output or "[]"):
        if route.get("prefsrc") in addresses:
            return str(route["prefsrc"])
        outcome = tree.command("ip-addr-dev", ["ip", "-j", "addr", "show", "dev", str(route.get("dev"))], _TIMEOUT_S)
        if outcome is not None and outcome.status == 0:
            found = parse_addresses(outcome.output)
            if found:
                return found[0]
    return ""


def read_addresses(tree: Tree) -> tuple[list[str], str]:
    """Return the global addresses and the default route's one. Raises OSError when ip(8) does not answer."""
    shown = tree.command("ip-addr", ["ip", "-j", "addr", "show"], _TIMEOUT_S)
    if shown is None or shown.status != 0:
        raise OSError(f"`ip -j addr show` failed: {shown.output if shown else 'ip is not installed'}")
    addresses = parse_addresses(shown.output)
    return addresses, default_address(tree, addresses)


def own_limits() -> dict[str, dict[str, int | None]]:
    """Return the limits of this process."""
    found = {}
    for name, number in (("memlock", resource.RLIMIT_MEMLOCK), ("nofile", resource.RLIMIT_NOFILE)):
        soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(number))
        found[name] = {"soft": soft, "hard": hard}
    return found


def _user(name: str) -> dict[str, Any] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return {"name": name, "uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir, "shell": entry.pw_shell}


def _group_gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def read_identity(tree: Tree, user: str, uid: int, group: str, gid: int) -> dict[str, Any]:
    """Return the node's record. Raises OSError or ValueError where it cannot be read."""
    addresses, default = read_addresses(tree)
    status = tree.text("/proc/1/status") or ""
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return {
        "hostname": os.uname().nodename,
        "addresses": addresses,
        "default_address": default,
        "user": _user(user),
        "uid_owner": user_name(uid),
        "gid_owner": group_name(gid),
        "group_gid": _group_gid(group),
        "hard_limits": parse_hard_limits(tree.text("/proc/1/limits") or ""),
        "own_limits": own_limits(),
        "can_raise_limits": bool(int(effective, 16) & _CAP_SYS_RESOURCE),
        "nr_open": tree.number("/proc/sys/fs/nr_open"),
    }
