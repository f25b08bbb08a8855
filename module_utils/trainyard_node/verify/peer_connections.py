# SPDX-License-Identifier: Apache-2.0
"""Listen as the processes of a job would, and connect from this node to all others that do. Times are seconds.

A node listens on two ports of its address on the job network: one outside the ephemeral range, as rendezvous and
monitor do, and one that the kernel gives, as Gloo and NCCL do. A peer that connects gets a token and enough bytes for
packets of every size up to 9,000 octets: a switch port with a smaller MTU lets only the connection through.

The listener is forked twice to outlive its module, and ends by itself: alarm(2) is set before it serves anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ..cluster.node_identity import free_port
from ..job.run.ranks import process_table
from ..machine.tree import Tree

RENDEZVOUS, DATA = "rendezvous port", "port of the kernel's"
# More than two packets of the largest frames in use.
_PAYLOAD_BYTES = 24000
_BACKLOG = 4096
_NAME_THREADS = 16


class Peer(NamedTuple):
    """Where a node listens: its ports by way; and the addresses to which its host name may lead."""

    host: str
    address: str
    ports: dict[str, int]
    hostname: str
    addresses: list[str]


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_BACKLOG)


def greeting(token: str, host: str) -> bytes:
    """Return what a listener sends: a line that names its host, then filling."""
    line = f"{token} {host}\n".encode()
    return line + b"." * max(0, _PAYLOAD_BYTES - len(line))


def _serve(listeners: Sequence[socket.socket], token: str, host: str) -> None:
    """Answer all connections until the alarm. One process, no thread: a peer that reads nothing blocks nobody."""
    chooser = selectors.DefaultSelector()
    text = greeting(token, host)
    for listener in listeners:
        listener.setblocking(False)
        chooser.register(listener, selectors.EVENT_READ, (listener, None))
    while True:
        for key, _ in chooser.select():
            one, rest = key.data
            if rest is None:
                with contextlib.suppress(OSError):
                    caller, _ = one.accept()
                    caller.setblocking(False)
                    chooser.register(caller, selectors.EVENT_WRITE, (caller, memoryview(text)))
                continue
            try:
                rest = rest[one.send(rest) :]
            except BlockingIOError:
                continue
            except OSError:
                rest = rest[:0]
            if rest:
                chooser.modify(one, selectors.EVENT_WRITE, (one, rest))
            else:
                chooser.unregister(one)
                one.close()


def start_listener(address: str, host: str, token: str, life_s: int) -> dict[str, Any]:
    """Listen on both ports for at most so long; returns ports, pid and start_time. Raises OSError."""
    port = free_port(Tree(), token + host)
    if port is None:
        raise OSError(errno.EADDRNOTAVAIL, "no free port from 10000 on outside the ephemeral range")
    listeners = [_bound(address, port), _bound(address, 0)]
    found = dict(zip((RENDEZVOUS, DATA), (int(listener.getsockname()[1]) for listener in listeners)))
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as answer:
            pid = int(answer.read() or 0)
        os.waitpid(child, 0)
        for listener in listeners:
            listener.close()
        if not pid:
            raise OSError(errno.ECHILD, "the process that was to listen ended at once")
        return {"ports": found, "pid": pid, "start_time": process_table.start_time(pid)}
    # In the child the agent must not go on: it would print a second answer.
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(life_s)
        null = os.open(os.devnull, os.O_RDWR)
        keep = {listener.fileno() for listener in listeners} | {writer, null}
        # The controller waits for the end of the streams that it gave to the agent.
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            if int(name) > 2 and int(name) not in keep:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        os.write(writer, str(os.getpid()).encode())
        os.close(writer)
        _serve(listeners, token, host)
    finally:
        os._exit(1)


def listen(*, host: str, address: str, addresses: list[str], token: str, life_s: int) -> dict[str, Any]:
    """Start a listener: its `endpoint` for others (Peer), `pid` and `start_time`; or `failed` with `msg`."""
    try:
        found = start_listener(address, host, token, max(1, life_s))
    except OSError as error:
        problem = f"{host}: nothing can listen on {address}: {error.strerror or error}"
        action = "expected an address of this node on the job network, see `ip address`."
        return {"failed": True, "msg": f"{problem}; {action}"}
    endpoint = Peer(host, address, found.pop("ports"), socket.gethostname(), addresses)._asdict()
    return {"endpoint": endpoint, **found}


def stop_listener(pid: int, start_time: int | None) -> bool:
    """End a listener; return whether it still ran. Its start time makes sure that the process id is not another's."""
    if start_time is None or process_table.start_time(pid) != start_time:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _try(peer: Peer, way: str, token: str, timeout_s: float) -> str:
    """Connect to a peer and read its greeting; return what is wrong, "" where nothing is."""
    deadline = time.monotonic() + timeout_s
    connected, received = False, b""
    try:
        with socket.create_connection((peer.address, peer.ports[way]), timeout_s) as connection:
            connected = True
            while len(received) < _PAYLOAD_BYTES:
                # A timeout of 0 would mean a socket that does not block.
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                part = connection.recv(65536)
                if not part:
                    break
                received += part
    except socket.timeout:
        if not connected:
            return f"no answer within {timeout_s:g} s"
        got = f"connected, then only {len(received)} of {_PAYLOAD_BYTES} bytes within {timeout_s:g} s"
        return f"{got}: large packets may vanish (MTU)"
    except OSError as error:
        return _reason(error)
    if len(received) >= _PAYLOAD_BYTES and received.startswith(f"{token} {peer.host}\n".encode()):
        return ""
    first = received.split(b"\n", 1)[0].decode("ascii", "replace")[:80]
    if first.startswith(token):
        other = first.partition(" ")[2]
        return f"answered by {other}" if other != peer.host else f"ended after {len(received)} bytes"
    return f"something else answers: {first!r}" if first else "ended without a word"


def connect_all(
    peers: Sequence[Peer], token: str, timeout_s: float, parallel: int = 128
) -> tuple[int, list[dict[str, str]]]:
    """Connect to every peer on each of its ports, many at a time; return the number of tries and the failures."""
    tries = [(peer, way) for way in (RENDEZVOUS, DATA) for peer in peers]
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        reasons = list(pool.map(lambda each: _try(each[0], each[1], token, timeout_s), tries))
    return len(tries), [
        {"host": peer.host, "way": way, "reason": reason} for (peer, way), reason in zip(tries, reasons) if reason
    ]


def wrong_names(peers: Sequence[Peer]) -> tuple[int, list[dict[str, str]]]:
    """Resolve every peer's host name as a program would; return how many there were, and those that lead elsewhere."""
    named = [peer for peer in peers if peer.hostname]

    def resolve(peer: Peer) -> dict[str, str] | None:
        try:
            infos = socket.getaddrinfo(peer.hostname, None, type=socket.SOCK_STREAM)
            found = sorted({str(info[4][0]) for info in infos})
        except OSError as error:
            return _name(peer, f"nothing ({_reason(error)})")
        return None if set(found) <= set(peer.addresses) else _name(peer, ", ".join(found))

    with ThreadPoolExecutor(max_workers=_NAME_THREADS) as pool:
        answers = list(pool.map(resolve, named))
    return len(named), [answer for answer in answers if answer is not None]


def _name(peer: Peer, found: str) -> dict[str, str]:
    expected = peer.address or (peer.addresses[0] if peer.addresses else "an address of the node")
    return {"host": peer.host, "name": peer.hostname, "found": found, "expected": expected}


def read_peers(records: Sequence[dict[str, Any]]) -> list[Peer]:
    """Read the listeners' endpoints as the controller has collected them. Raises ValueError for anything else."""
    try:
        return [Peer(**record) for record in records]
    except TypeError as error:
        raise ValueError(f"peers are not as listeners returned them: {error}") from None


def connect(host: str, records: Sequence[dict[str, Any]], token: str, timeout_s: float, names: bool) -> dict[str, Any]:
    """Connect from `host` to the listeners of all others: `tried`, `failures`, `resolved`, `names`, or `failed`."""
    try:
        known = read_peers(records)
    except ValueError as error:
        return {"failed": True, "msg": f"{host}: connections could not be tried: {error}"}
    others = [peer for peer in known if peer.host != host]
    tried, failures = connect_all(others, token, max(0.1, timeout_s))
    resolved, wrong = wrong_names(known) if names else (0, [])
    return {"tried": tried, "failures": failures, "resolved": resolved, "names": wrong}
