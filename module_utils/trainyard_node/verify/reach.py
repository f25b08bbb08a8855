# SPDX-License-Identifier: Apache-2.0
"""Listen as the processes of a job would, and connect from this node to all others that do. Times are seconds.

Two ports on the node's address of the job network: one outside the ephemeral range, where rendezvous and monitor of a
job listen, and one that the kernel gives, as Gloo and NCCL take for their data. A peer that connects is sent a token
and enough bytes for packets of every size up to 9,000 octets: a switch port with a smaller MTU lets the connection
through, and then nothing.

The listener outlives the question by a double fork, and ends by itself: alarm(2) is set before it serves anything.
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

from ..cluster.node import free_port
from ..job.run import processes
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
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


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
        return {"ports": found, "pid": pid, "start_time": processes.start_time(pid)}
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


def stop_listener(pid: int, start_time: int | None) -> bool:
    """End a listener; return whether it still ran. Its start time makes sure that the process id is not another's."""
    if start_time is None or processes.start_time(pid) != start_time:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


class _Try:
    """One connection on its way."""

    def __init__(self, peer: Peer, way: str, began: float) -> None:
        self.peer, self.way, self.began = peer, way, began
        self.received = b""
        self.connected = False
        family = socket.AF_INET6 if ":" in peer.address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)

    def reason(self, token: str) -> str:
        """Return what is wrong with what a finished connection received; "" where nothing is."""
        if len(self.received) >= _PAYLOAD_BYTES and self.received.startswith(f"{token} {self.peer.host}\n".encode()):
            return ""
        first = self.received.split(b"\n", 1)[0].decode("ascii", "replace")[:80]
        if first.startswith(token):
            other = first.partition(" ")[2]
            return f"answered by {other}" if other != self.peer.host else f"ended after {len(self.received)} bytes"
        return f"something else answers: {first!r}" if first else "ended without a word"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def connect_all(
    peers: Sequence[Peer], token: str, timeout_s: float, parallel: int = 128
) -> tuple[int, list[dict[str, str]]]:
    """Connect to every peer on each of its ports, many at a time; returns the number of tries and the failures."""
    todo = [(peer, way) for way in (RENDEZVOUS, DATA) for peer in peers]
    waiting = list(reversed(todo))
    chooser = selectors.DefaultSelector()
    failures: list[dict[str, str]] = []
    running: set[_Try] = set()

    def finish(one: _Try, reason: str) -> None:
        running.discard(one)
        with contextlib.suppress(KeyError, ValueError):
            chooser.unregister(one.socket)
        one.socket.close()
        if reason:
            failures.append({"host": one.peer.host, "way": one.way, "reason": reason})

    while waiting or running:
        while waiting and len(running) < parallel:
            peer, way = waiting.pop()
            try:
                one = _Try(peer, way, time.monotonic())
            except OSError as error:
                failures.append({"host": peer.host, "way": way, "reason": _reason(error)})
                continue
            running.add(one)
            status = one.socket.connect_ex((peer.address, peer.ports[way]))
            if status not in (0, errno.EINPROGRESS):
                finish(one, os.strerror(status).lower())
                continue
            chooser.register(one.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
        for key, events in chooser.select(0.2):
            one = key.data
            if events & selectors.EVENT_WRITE and not one.connected:
                status = one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if status:
                    finish(one, os.strerror(status).lower())
                    continue
                one.connected = True
                chooser.modify(one.socket, selectors.EVENT_READ, one)
            if events & selectors.EVENT_READ and one in running:
                try:
                    part = one.socket.recv(65536)
                except BlockingIOError:
                    continue
                except OSError as error:
                    finish(one, _reason(error))
                    continue
                one.received += part
                if not part or len(one.received) >= _PAYLOAD_BYTES:
                    finish(one, one.reason(token))
        late = time.monotonic() - timeout_s
        for one in [one for one in running if one.began < late]:
            finish(one, _silence(one, timeout_s))
    order = {(peer.host, way): number for number, (peer, way) in enumerate(todo)}
    return len(todo), sorted(failures, key=lambda failure: order[failure["host"], failure["way"]])


def _silence(one: _Try, timeout_s: float) -> str:
    if not one.connected:
        return f"no answer within {timeout_s:g} s"
    got = f"connected, then only {len(one.received)} of {_PAYLOAD_BYTES} bytes within {timeout_s:g} s"
    return f"{got}: large packets may vanish (MTU)"


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
