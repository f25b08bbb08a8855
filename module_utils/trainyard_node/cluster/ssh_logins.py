# SPDX-License-Identifier: Apache-2.0
"""Log in from this node to its peers by ssh as the training user, many at a time.

Every test is a real login with the node's own configuration, strict host-key checking, no questions and no shared
connection. Times are in seconds.
"""

from __future__ import annotations

import os
import pwd
import random
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ...trainyard.cluster.ssh_peers import failure_records, ssh_reason
from ..machine.as_user import JobError

# Added to ssh's own time-out, for a peer that accepts the connection and then sends nothing.
_GRACE_S = 15
# Number of attempts with a server that sends no greeting, and by how much each pause grows.
_TRIES, _PAUSE_S = 4, 1.0


class LoginsError(JobError):
    """No login can be tested, for the reason in the text."""


class Attempt(NamedTuple):
    """One login: the peer, the name or address that was used, and ssh's reason, "" for success."""

    peer: str
    target: str
    reason: str


def targets(peer: str, addresses: Collection[str] = ()) -> list[str]:
    """Return the peer's name, and its address if `addresses` has it, as launchers use both."""
    if not addresses:
        return [peer]
    try:
        address = str(socket.getaddrinfo(peer, 22, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return [peer]
    return list(dict.fromkeys([peer, address])) if address in addresses else [peer]


def ssh_command(user: str, target: str, connect_timeout: int) -> list[str]:
    """Return the command of one login."""
    options = (
        *("BatchMode=yes", f"ConnectTimeout={connect_timeout}", "StrictHostKeyChecking=yes", "LogLevel=ERROR"),
        *("ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no"),
    )
    return ["ssh", *(flag for option in options for flag in ("-o", option)), "-l", user, "--", target, "true"]


def as_user(user: str) -> dict[str, Any]:
    """Return the arguments with which subprocess runs as this user. Raises PermissionError if that is impossible."""
    entry = pwd.getpwnam(user)
    path = os.environ.get("PATH", "/usr/bin:/bin")
    # The agent of the connecting user must not make logins succeed that the mesh does not allow.
    environment = {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user, "LC_ALL": "C", "PATH": path}
    settings = {"env": environment, "cwd": "/"}
    if os.geteuid() == entry.pw_uid:
        return settings
    if os.geteuid() != 0:
        raise PermissionError(f"uid {os.geteuid()} cannot act as {user}; connect as {user}, or as root")
    groups = os.getgrouplist(user, entry.pw_gid)
    return {**settings, "user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def try_login(user: str, peer: str, target: str, connect_timeout: int) -> Attempt:
    """Log in once. A server too busy to greet (sshd's MaxStartups) is tried again after growing pauses."""
    settings = as_user(user)
    reason = ""
    for number in range(_TRIES):
        # All nodes test at the same time, so those that were rejected must not return together.
        time.sleep(number * random.uniform(_PAUSE_S / 2, _PAUSE_S))  # noqa: S311 (no secret)
        try:
            done = subprocess.run(
                ssh_command(user, target, connect_timeout),
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=connect_timeout + _GRACE_S,
                **settings,
            )
        except subprocess.TimeoutExpired:
            return Attempt(peer, target, f"no answer within {connect_timeout + _GRACE_S} s")
        if done.returncode == 0:
            return Attempt(peer, target, "")
        reason = ssh_reason(done.stdout.decode("utf-8", "replace"), done.returncode)
        if not reason.startswith("kex_exchange_identification"):
            break
    return Attempt(peer, target, reason)


def reach(
    user: str,
    peers: Sequence[str],
    connect_timeout: int,
    parallel: int,
    login: Callable[[str, str, str, int], Attempt] = try_login,
    addresses: Collection[str] = (),
) -> list[Attempt]:
    """Log in to all peers by name and by their `addresses`, `parallel` at a time; keep the order of the peers."""
    tries = [(peer, target) for peer in peers for target in targets(peer, addresses)]
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        return list(pool.map(lambda each: login(user, each[0], each[1], connect_timeout), tries))


def logins(
    host: str, nodes: Sequence[str], user: str, connect_timeout: int, parallel: int, addresses: Collection[str] = ()
) -> dict[str, Any]:
    """Return `row` (whether each peer was reached), the number of `logins`, and `failures`.

    `host` is this node's inventory name, `addresses` are those of nodes in the inventory. Raises LoginsError where no
    login can be tested.
    """
    try:
        as_user(user)
        attempts = reach(user, nodes, max(1, connect_timeout), max(1, parallel), addresses=addresses)
    except KeyError as error:
        raise LoginsError(f"{host}: there is no user {user}; run the role node_baseline first.") from error
    except (OSError, ValueError) as error:
        raise LoginsError(f"{host}: ssh could not be tested: {error}") from error
    failed = [attempt for attempt in attempts if attempt.reason]
    return {
        "row": {peer: not any(attempt.peer == peer for attempt in failed) for peer in nodes},
        "logins": len(attempts),
        "failures": failure_records(host, failed),
    }
