# SPDX-License-Identifier: Apache-2.0
"""The monitors' wire: one TCP connection of each node to the head, on which both have proved that they know the token.

A frame is its length (4 bytes, big-endian) and that many bytes. The first three shake hands, H and N are nonces:

    head    H (32 bytes)
    node    N (32 bytes), proof of the node (32 bytes), its name
    head    proof of the head (32 bytes)

A proof is HMAC-SHA256, with the job's token as its key, over who speaks, H, N and the node's name. Each side's key for
this connection is made in the same way. Every later frame is an HMAC-SHA256 by the speaker's key over the number of the
frame and the message, and the message (trainyard/job/run/messages.py): what is changed, left out, repeated, sent again
on another connection or back to its sender ends the connection. Nothing is encrypted: there is nothing secret in it.

Who has not proved itself yet has HELLO_S seconds and MAX_HELLO bytes, and there are never more than GUESTS of them
beside the nodes that are missing: the oldest has to go.
"""

from __future__ import annotations

import asyncio
import hmac
import resource
import secrets
from collections.abc import Callable, Collection
from typing import cast

from ....trainyard.job.run.messages import BadMessage, Message, read, write

# Longest message: a node's report names each failed process with its ranks.
MAX_MESSAGE = 8 << 20
MAX_HELLO = 1024
HELLO_S = 10.0
GUESTS = 64
_SIZE, _MAC = 4, 32
Hear = Callable[["Line", Message], None]
Gone = Callable[["Line"], None]
# Nodes that a head must be able to let wait at the door, however few it has: those of a small job come back at once.
LEAST_BACKLOG = 100
# Files that the head has open beside the connections of its nodes, with room to spare.
OWN_FILES = 256


class Line(asyncio.Protocol):
    """One end of a connection. `hear` gets each message of the other side, `gone` is called once at the end."""

    _me, _other = "", ""

    def __init__(self, token: str, hear: Hear, gone: Gone) -> None:
        """Take the job's token. Raises ValueError without one: then anybody could prove anything."""
        if not token:
            raise ValueError("a job without a token")
        self.host, self.open = "", True
        self._told: Message = {}
        # How the handshake ended.
        self.authenticated: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._token, self._hear, self._gone = token.encode(), hear, gone
        self._buffer, self._nonce, self._nonces = bytearray(), secrets.token_bytes(_MAC), b""
        self._keys, self._numbers = {"head": b"", "node": b""}, {"head": 0, "node": 0}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the time within which the other side has to prove itself."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=2 * MAX_MESSAGE)
        self._timer = asyncio.get_running_loop().call_later(HELLO_S, self.end)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell that this connection is over."""
        del error
        self._timer.cancel()
        self.open = False
        if not self.authenticated.done():
            self.authenticated.set_result(False)
        self._gone(self)

    def pause_writing(self) -> None:
        """End the connection: the other side does not read what it is told."""
        self.end()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, frame by frame."""
        self._buffer += data
        try:
            while self.open:
                frame = self._frame()
                if frame is None:
                    return
                if self._keys[self._me]:
                    self._hear(self, self._unsealed(frame))
                else:
                    self._shake(frame)
        except Exception as error:
            # Whatever a message does, it ends its connection, and never the monitor.
            if self.authenticated.done():
                said = str(error) if isinstance(error, BadMessage) else f"{type(error).__name__}: {error}"
                # Into the monitor's log.
                print(f"connection with {self.host or 'the head'} ended: {said}", flush=True)
            self.end()

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
        """Take one frame of the handshake. Raises BadMessage where the other side does not prove itself."""
        # The two sides take turns, each in its own order: both classes below have theirs.
        raise NotImplementedError

    def _mac(self, what: str) -> bytes:
        said = what.encode() + b"\0" + self._nonces + self.host.encode("utf-8", "surrogatepass")
        return hmac.digest(self._token, said, "sha256")

    def _believe(self, seal: bytes) -> None:
        """Make the keys of this connection, if the other side's proof holds. Raises BadMessage if not."""
        if not hmac.compare_digest(seal, self._mac(f"proof of the {self._other}")):
            raise BadMessage("no proof")
        self._keys = {who: self._mac(f"key of the {who}") for who in self._keys}
        self._timer.cancel()

    def _sealed(self, who: str, message: bytes) -> bytes:
        """Return the seal of the next message that `who` sends."""
        number = self._numbers[who]
        self._numbers[who] += 1
        return hmac.digest(self._keys[who], number.to_bytes(8, "big") + message, "sha256")

    def _unsealed(self, frame: bytes) -> Message:
        seal, message = frame[:_MAC], frame[_MAC:]
        if not hmac.compare_digest(seal, self._sealed(self._other, message)):
            raise BadMessage("a message with a wrong seal")
        return read(message)

    def _write(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(len(frame).to_bytes(_SIZE, "big") + frame)

    def send(self, message: Message) -> None:
        """Say something to the other side, which has proved itself; nothing where the connection is over."""
        text = write(message)
        self._write(self._sealed(self._me, text) + text)

    def tell(self, message: Message) -> None:
        """Say how things are: in full where that has changed, else that nothing is new."""
        self.send(message if message != self._told else {})
        self._told = message

    def close(self) -> None:
        """End the connection after what is still to be written."""
        self._transport.close()

    def end(self) -> None:
        """End the connection at once."""
        self.open = False
        self._transport.abort()


class NodeLine(Line):
    """The node's end."""

    _me, _other = "node", "head"

    def __init__(self, token: str, hear: Hear, gone: Gone, host: str) -> None:
        """Take the node's name, too."""
        super().__init__(token, hear, gone)
        self.host = host

    def _shake(self, frame: bytes) -> None:
        if self._nonces:
            self._believe(frame)
            self.authenticated.set_result(True)
        elif len(frame) == _MAC:
            self._nonces = frame + self._nonce
            self._write(self._nonce + self._mac("proof of the node") + self.host.encode())
        else:
            raise BadMessage("no nonce")


class HeadLine(Line):
    """The head's end; `door` counts those that come."""

    _me, _other = "head", "node"

    def __init__(self, token: str, hear: Hear, door: Door) -> None:
        """Take the door through which the node comes."""
        super().__init__(token, hear, door.left)
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask whoever comes for a proof."""
        super().connection_made(transport)
        self._door.arrived(self)
        self._write(self._nonce)

    def _shake(self, frame: bytes) -> None:
        self._nonces = self._nonce + frame[:_MAC]
        try:
            self.host = frame[2 * _MAC :].decode()
        except UnicodeDecodeError:
            raise BadMessage("no name") from None
        self._believe(frame[_MAC : 2 * _MAC])
        if self.host not in self._door.hosts:
            raise BadMessage("not a node of this job")
        self._write(self._mac("proof of the head"))
        self.authenticated.set_result(True)
        self._door.entered(self)


class Door:
    """Where the nodes come to the head. `lines` are the connections of those that have proved themselves."""

    def __init__(self, token: str, hosts: Collection[str], hear: Hear) -> None:
        """Take the job's token, its nodes but the head, and what hears them."""
        self.hosts = frozenset(hosts)
        self.lines: dict[str, HeadLine] = {}
        self._token, self._hear = token, hear
        # The oldest first.
        self._guests: dict[HeadLine, None] = {}

    async def open(self, address: str, port: int) -> None:
        """Let come in who can prove that it is a node of this job; all may come in the same moment."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HeadLine(self._token, self._hear, self), address, port, backlog=max(len(self.hosts), LEAST_BACKLOG)
        )

    def close(self) -> None:
        """Let nobody come any more; who is in, stays."""
        self._server.close()

    def arrived(self, line: HeadLine) -> None:
        """Let somebody stand at the door, and the one go that has stood there longest where they are too many."""
        if len(self._guests) >= len(self.hosts) - len(self.lines) + GUESTS:
            oldest = next(iter(self._guests))
            del self._guests[oldest]
            oldest.end()
        self._guests[line] = None

    def entered(self, line: HeadLine) -> None:
        """Take the connection of a node, in place of an earlier one: that may have broken without a word."""
        self._guests.pop(line, None)
        before = self.lines.get(line.host)
        self.lines[line.host] = line
        if before:
            before.end()

    def left(self, line: Line) -> None:
        """Forget a connection that is over."""
        self._guests.pop(cast(HeadLine, line), None)
        if self.lines.get(line.host) is line:
            del self.lines[line.host]


async def call(token: str, host: str, where: tuple[str, int], hear: Hear, gone: Gone) -> NodeLine:
    """Connect a node to the head. Raises OSError, asyncio.TimeoutError where nobody there proves to be the head."""
    made = asyncio.get_running_loop().create_connection(lambda: NodeLine(token, hear, gone, host), *where)
    _, line = await asyncio.wait_for(made, HELLO_S)
    if not await line.authenticated:
        raise ConnectionRefusedError("nobody there that proves to be the head of this job")
    return line


def make_room(files: int) -> None:
    """Let this process have this many files open, as far as it may: without systemd it inherits a limit of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < files:
        # Into the monitor's log.
        print(f"may open {allowed} files, expected {files} for its nodes: raise the hard limit of open files")
