# SPDX-License-Identifier: Apache-2.0
"""Connect each node's monitor to the head's: one TCP connection, authenticated on both sides with the job's token.

A frame is its length (4 bytes, big-endian) and that many bytes. The first three shake hands, H and N are nonces:

    head    H (32 bytes)
    node    N (32 bytes), proof of the node (32 bytes), its name
    head    proof of the head (32 bytes)

A proof is HMAC-SHA256, with the job's token as its key, over the sender, H, N and the node's name. Each side's key for
this connection is made in the same way. Every later frame is a MAC (HMAC-SHA256 by the sender's key over the number of
the frame and the message) and the message (trainyard/job/run/wire/messages.py). A frame that was changed, left out,
repeated, sent again on another connection or back to its sender ends the connection. Nothing is encrypted: there is
nothing secret in it.

A connection has HELLO_S seconds and MAX_HELLO bytes for its handshake. Strangers may open thousands of connections a
second: the head takes them all out of the kernel's queue, where those of nodes wait, too, closes those without a place
(trainyard/job/run/wire/guests.py) at once, and begins a handshake only with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import resource
import secrets
import socket
from collections.abc import Callable, Collection, Iterable
from typing import cast

from .....trainyard.base.shapes import Message
from .....trainyard.job.run.wire.guests import Guests
from .....trainyard.job.run.wire.messages import BadMessage, read, write

# Longest message: a node's report names each failed process with its ranks.
MAX_MESSAGE = 8 << 20
MAX_HELLO = 1024
HELLO_S = 10.0
_SIZE, _MAC = 4, 32
Receive = Callable[["Connection", Message], None]
Closed = Callable[["Connection"], None]
# The kernel's queue of new connections, which may be shorter (net.core.somaxconn). A full queue keeps nodes out, too.
BACKLOG = 4096
# Most connections that are taken out of that queue at once, and seconds until the next ones are: handshakes are the
# most expensive part, and an address begins few of them each time.
ACCEPT, PAUSE_S = 1024, 0.01
# Files that the head has open besides a connection and a place for each of its nodes, with room to spare.
OWN_FILES = 320


class Connection(asyncio.Protocol):
    """One end of a connection. `receive` gets each message of the other side, `closed` is called once at the end."""

    _me, _other = "", ""

    def __init__(self, token: str, receive: Receive, closed: Closed) -> None:
        """Take the job's token. Raises ValueError without one: an empty token would authenticate anybody."""
        if not token:
            raise ValueError("a job without a token")
        self.host, self.open = "", True
        self._sent: Message = {}
        # How the handshake ended.
        self.authenticated: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._token, self._receive, self._closed = token.encode(), receive, closed
        self._buffer, self._nonce, self._nonces = bytearray(), secrets.token_bytes(_MAC), b""
        self._keys, self._numbers = {"head": b"", "node": b""}, {"head": 0, "node": 0}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the time for the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=2 * MAX_MESSAGE)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self.abort)

    @property
    def peer(self) -> str:
        """Return the address of the other side."""
        return str(self._transport.get_extra_info("peername")[0])

    def keep_alive(self) -> None:
        """Have the kernel end the connection some 25 s after the other side vanished, though nobody sends anything."""
        here = self._transport.get_extra_info("socket")
        here.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            here.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that this connection has ended."""
        del error
        self._timer.cancel()
        self.open = False
        if not self.authenticated.done():
            self.authenticated.set_result(False)
        self._closed(self)

    def pause_writing(self) -> None:
        """End the connection: the other side does not read."""
        self.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, frame by frame."""
        self._buffer += data
        try:
            while self.open:
                frame = self._frame()
                if frame is None:
                    return
                if self._keys[self._me]:
                    self._receive(self, self._authentic(frame))
                else:
                    self._shake(frame)
        except Exception as error:
            # A message may end its connection, but never the monitor.
            if self.authenticated.done():
                reason = str(error) if isinstance(error, BadMessage) else f"{type(error).__name__}: {error}"
                # Into the monitor's log.
                print(f"connection with {self.host or 'the head'} ended: {reason}", flush=True)
            self.abort()

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _SIZE:
            return None
        end = _SIZE + int.from_bytes(self._buffer[:_SIZE], "big")
        if end > _SIZE + (MAX_MESSAGE if self.authenticated.done() else MAX_HELLO):
            raise BadMessage("a frame that is too long")
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_SIZE:end])
        del self._buffer[:end]
        return frame

    def _shake(self, frame: bytes) -> None:
        """Take one frame of the handshake. Raises BadMessage where the other side has no proof."""
        raise NotImplementedError

    def _mac(self, purpose: str) -> bytes:
        text = purpose.encode() + b"\0" + self._nonces + self.host.encode("utf-8", "surrogatepass")
        return hmac.digest(self._token, text, "sha256")

    def _check_proof(self, proof: bytes) -> None:
        """Make the keys of this connection if the other side's proof holds. Raises BadMessage if not."""
        if not hmac.compare_digest(proof, self._mac(f"proof of the {self._other}")):
            raise BadMessage("no proof")
        self._keys = {side: self._mac(f"key of the {side}") for side in self._keys}
        self._timer.cancel()

    def _next_mac(self, side: str, message: bytes) -> bytes:
        """Return the MAC of the next message that this side sends."""
        number = self._numbers[side]
        self._numbers[side] += 1
        return hmac.digest(self._keys[side], number.to_bytes(8, "big") + message, "sha256")

    def _authentic(self, frame: bytes) -> Message:
        mac, message = frame[:_MAC], frame[_MAC:]
        if not hmac.compare_digest(mac, self._next_mac(self._other, message)):
            raise BadMessage("a message with a wrong MAC")
        return read(message)

    def _write(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(len(frame).to_bytes(_SIZE, "big") + frame)

    def send(self, message: Message) -> None:
        """Send a message to the authenticated other side; do nothing where the connection has ended."""
        text = write(message)
        self._write(self._next_mac(self._me, text) + text)

    def update(self, message: Message) -> None:
        """Send a state: in full where it has changed, else an empty message."""
        self.send(message if message != self._sent else {})
        self._sent = message

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self.open = False
        self._transport.abort()


class NodeConnection(Connection):
    """The node's end."""

    _me, _other = "node", "head"

    def __init__(self, token: str, receive: Receive, closed: Closed, host: str) -> None:
        """Take the node's name, too."""
        super().__init__(token, receive, closed)
        self.host = host

    def _shake(self, frame: bytes) -> None:
        if self._nonces:
            self._check_proof(frame)
            self.authenticated.set_result(True)
        elif len(frame) == _MAC:
            self._nonces = frame + self._nonce
            self._write(self._nonce + self._mac("proof of the node") + self.host.encode())
        else:
            raise BadMessage("no nonce")


class HeadConnection(Connection):
    """The head's end."""

    _me, _other = "head", "node"

    def __init__(self, token: str, receive: Receive, server: Server, accepted: socket.socket | None = None) -> None:
        """Take the server, and the socket that it has `accepted` until the handshake begins."""
        super().__init__(token, receive, server.closed)
        self._server, self._accepted = server, accepted

    async def begin(self) -> None:
        """Begin the handshake."""
        loop = asyncio.get_running_loop()
        try:
            if self._accepted is not None:
                await loop.connect_accepted_socket(lambda: self, self._accepted)
        finally:
            if self._accepted is not None:
                # It broke before.
                self.abort()
                self._closed(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the nonce of the handshake."""
        super().connection_made(transport)
        self._accepted = None
        self._write(self._nonce)

    def abort(self) -> None:
        """End the connection at once, also before its handshake."""
        if self._accepted is None:
            super().abort()
        else:
            self.open = False
            self._accepted.close()

    def _shake(self, frame: bytes) -> None:
        self._nonces = self._nonce + frame[:_MAC]
        try:
            self.host = frame[2 * _MAC :].decode()
        except UnicodeDecodeError:
            raise BadMessage("no name") from None
        self._check_proof(frame[_MAC : 2 * _MAC])
        if self.host not in self._server.hosts:
            raise BadMessage("not a node of this job")
        self._write(self._mac("proof of the head"))
        self.authenticated.set_result(True)
        self._server.authenticated(self)


class Server:
    """The head's side of all connections. `connections` are those of authenticated nodes, by host."""

    def __init__(self, token: str, hosts: Collection[str], receive: Receive, addresses: Iterable[str] = ()) -> None:
        """Take the job's token, its nodes but the head, what receives their messages, and the addresses of hosts."""
        self.hosts = frozenset(hosts)
        self.connections: dict[str, HeadConnection] = {}
        self._token, self._receive = token, receive
        self._guests: Guests[HeadConnection] = Guests(addresses)

    async def open(self, address: str, port: int) -> None:
        """Accept connections of this job's nodes, all at the same time if need be."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, where = found[0]
        self._socket = socket.create_server(where, family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self._accepting = loop.create_task(self._accept())

    def close(self) -> None:
        """Accept no more connections; those that exist stay."""
        self._accepting.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        """Accept connections, and begin a handshake with those that have a place, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            new: list[HeadConnection] = []
            # The queue is empty, or no more files may be open for now.
            with contextlib.suppress(OSError):
                new.append(self._admit(*await loop.sock_accept(self._socket)))
                while len(new) < ACCEPT:
                    new.append(self._admit(*self._socket.accept()))
            await asyncio.gather(*(each.begin() for each in new if each.open), return_exceptions=True)
            await asyncio.sleep(PAUSE_S)

    def _admit(self, accepted: socket.socket, address: tuple[str, int]) -> HeadConnection:
        """Return a new connection; the one without a place is closed, which may be this one."""
        connection = HeadConnection(self._token, self._receive, self, accepted)
        goes = self._guests.admit(connection, address[0], len(self.hosts) - len(self.connections))
        if goes is not None:
            goes.abort()
        return connection

    def authenticated(self, connection: HeadConnection) -> None:
        """Use the connection of a node in place of an earlier one, which may have broken without notice."""
        self._guests.leave(connection)
        before = self.connections.get(connection.host)
        self.connections[connection.host] = connection
        if before:
            before.abort()

    def closed(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._guests.leave(cast(HeadConnection, connection))
        if self.connections.get(connection.host) is connection:
            del self.connections[connection.host]


async def connect(token: str, host: str, where: tuple[str, int], receive: Receive, closed: Closed) -> NodeConnection:
    """Connect a node to the head. Raises OSError, asyncio.TimeoutError where no head of this job answers."""
    made = asyncio.get_running_loop().create_connection(lambda: NodeConnection(token, receive, closed, host), *where)
    _, connection = await asyncio.wait_for(made, HELLO_S)
    if not await connection.authenticated:
        raise ConnectionRefusedError("no head of this job answers there")
    return connection


def make_room(files: int) -> None:
    """Raise the limit of open files as far as allowed: without systemd a process inherits one of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < files:
        # Into the monitor's log.
        print(f"may open {allowed} files, expected {files} for its nodes: raise the hard limit of open files")
