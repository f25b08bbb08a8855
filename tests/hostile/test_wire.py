"""The monitors' wire, where somebody else is on the network, or knows the token and says what no monitor says."""

import asyncio
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import Each, misfit
from ansible.module_utils.trainyard.job.run.logs.failure_kinds import KINDS
from ansible.module_utils.trainyard.job.run.wire import guests, messages
from ansible.module_utils.trainyard_node.job.run.monitor import connections as wire
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from job_cluster import PATIENCE_S, Cluster, free_port, wait_for

TOKEN = "the token of this job"  # noqa: S105
REPORT = {
    "host": "n2",
    "ranks_running": 1,
    "done": False,
    "idle": False,
    "rankless": 0,
    "failures": [],
    "metrics": {"step": 3, "loss": None},
    "loss_not_a_number": None,
    "attempts": {"": 0},
    "ready_for": None,
    "cannot_write": None,
}
FAILURE = {
    "kind": "exit",
    "host": "n2",
    "process": "rank1",
    "ranks": [1],
    "rank": 1,
    "recover_after_s": None,
    "exit_code": 1,
    "signal": None,
    "result": "exit-code",
    "time": 1790000000.0,
}
DEEP = b'{"report":' * 100000


@pytest.fixture
def head(tmp_path):
    """A head of two nodes, whose other one has not come yet."""
    job = Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=PATIENCE_S)
    with job:
        job.head.start()
        wait_for(job.state, "the head")
        yield job.head


def bad_reports():
    for name, values in {
        "host": ["n1", None, 7],
        "ranks_running": [-1, 3, 1.5, True, "1", None],
        "done": [1, None, "no"],
        "idle": [[]],
        "rankless": [-1, 1 << 40],
        "failures": [{}, None, [None], [[]], [{}], [{**FAILURE, "host": "n1"}], [{**FAILURE, "kind": {}}],
                     [{**FAILURE, "process": "../x"}], [{**FAILURE, "ranks": [2]}], [{**FAILURE, "ranks": None}],
                     [{**FAILURE, "rank": "1"}], [{**FAILURE, "time": "now"}], [{**FAILURE, "signal": 1e400}],
                     [{**FAILURE, "result": "\ud800"}], [{**FAILURE, "reason": "x" * 5000}], [{**FAILURE, "more": 1}],
                     [{**FAILURE, "kind": "not_joined"}]],
        "metrics": [[], {"step": "3"}, {"loss": [1]}, {"x" * 100: 1}, {str(number): 1 for number in range(100)}],
        "loss_not_a_number": [1, {}, {"since": None, "first": {}, "last": {}, "stretches": 1, "steps": None}],
        "attempts": [None, {}, {"": -1}, {"": 1}, {"": 0, "/etc": 0}, {"": True}],
        "ready_for": [0, {"": "0"}],
    }.items():  # fmt: skip
        yield from ({"report": {**REPORT, name: value}} for value in values)
    yield from ({"report": {key: value for key, value in REPORT.items() if key != name}} for name in REPORT)
    yield from ({"report": None}, {"report": []}, {"stopped": 1.5}, {"more": 1}, {"report": REPORT, "stopped": True})
    yield {"report": {**REPORT, "more": 1}}


def test_what_is_right_passes_and_whatever_else_is_refused():
    messages.check_from_node({"report": {**REPORT, "failures": [FAILURE]}}, "n2", 2, 0)
    refused = 0
    for message in bad_reports():
        with pytest.raises(messages.BadMessage):
            messages.check_from_node(message, "n2", 2, 0)
        refused += 1
    assert refused > 50


def test_a_name_with_a_question_mark_hides_no_value():
    """A question mark means an optional field in a shape alone."""
    assert misfit({"?loss": {"deep": 1}}, Each(float)) == "?loss is an object, expected a number"


@pytest.mark.parametrize("message", [
    {"end": None}, {"end": {}}, {"end": {"state": "won", "finished": 1}}, {"end": {"state": "failed", "finished": "x"}},
    {"end": {"state": "failed", "finished": 1, "failure": {"kind": "new"}}},
    {"end": {"state": "failed", "finished": 1, "failure": {"kind": "exit", "x": {}}}},
    *({"end": {"state": "failed", "finished": 1, "failure": {"kind": kind}}} for kind in KINDS),
    {"end": {"state": "failed", "finished": 1, "self": 1}}, {"attempts": {"": 0}}, {"go": True},
    {"attempts": {"": 0, "rank7": 1}, "go": True}, {"attempts": {"": 2}, "go": True}, {"attempts": {"": 0}, "go": 1},
    {"x": 1}, {"end": {"state": "stopped", "finished": 1}, "go": True},
    *({"attempts": {"": 0}, "go": True, "moved": moved} for moved in (
        None, [], {"10.0.0.2": None}, {"n2": "10.0.0.4"}, {"10.0.0.2": "10.0.0.4 slots=9"}, {"10.0.0.2\n": "10.0.0.4"},
        {f"10.0.{number >> 8}.{number & 255}": "10.1.0.1" for number in range(1001)},
    )),
])  # fmt: skip
def test_a_node_takes_no_other_orders(message):
    messages.check_from_head({"attempts": {"": 1, "rank1": 0}, "go": False}, ["rank1"], 1)
    moved = {"10.0.0.2": "10.0.0.4", "fe80::2%eth0": "fd00::4"}
    messages.check_from_head({"attempts": {"": 1}, "go": False, "moved": moved}, ["rank1"], 1)
    end = {"state": "failed", "finished": 1.5, "failure": FAILURE, "failures": [FAILURE]}
    messages.check_from_head({"end": end}, ["rank1"], 1)
    with pytest.raises(messages.BadMessage):
        messages.check_from_head(message, ["rank1"], 1)


@pytest.mark.parametrize("text", [
    b"", b"[]", b"{", b"\xff", b'{"a":NaN}', b'{"a":' + b"9" * 5000 + b"}", DEEP, b'{"a":' + b"[" * 100000,
])  # fmt: skip
def test_what_is_no_message_is_refused(text):
    with pytest.raises(messages.BadMessage):
        messages.read(text)


async def connect(head, token=TOKEN, host="n2"):
    heard, over = [], asyncio.Event()
    where = head.spec["head_address"], head.spec["monitor_port"]
    line = await wire.connect(token, host, where, lambda _, message: heard.append(message), lambda _: over.set())
    return line, heard, over


def test_bad_messages_of_one_who_knows_the_token_end_a_connection_and_never_the_head(head):
    async def all_of_them():
        for message in bad_reports():
            line, heard, over = await connect(head)
            text = json.dumps(message).encode()
            line._write(line._next_mac("node", text) + text)
            await asyncio.wait_for(over.wait(), PATIENCE_S)
            assert heard == []
        line, heard, over = await connect(head)
        line.update({"report": REPORT})
        while len(heard) < 1:
            await asyncio.sleep(0.01)
        line.update({"report": REPORT})
        while len(heard) < 2:
            await asyncio.sleep(0.01)
        # Nothing was new the second time.
        assert heard == [{"attempts": {"": 0}, "go": True, "stacks": 0}, {}]
        wait_for(lambda: head.read("cluster.json")["state"] == "running", "the node to count")
        line.abort()

    asyncio.run(asyncio.wait_for(all_of_them(), PATIENCE_S))
    assert head.monitor.poll() is None and head.read("cluster.json")["end"] is None
    assert "connection with n2 ended: report.failures[0].host is 'n1', expected 'n2'" in head.log()


def frame(content):
    return len(content).to_bytes(4, "big") + content


def take(stream):
    return stream.read(int.from_bytes(stream.read(4), "big"))


@pytest.mark.parametrize("hello", [
    b"x" * 64 + b"n2", b"x" * 64 + b"\xed\xa0\x80", b"x" * 10, b"", b'{"host": "n2", "mac": "0"}',
])  # fmt: skip
def test_whoever_cannot_authenticate_itself_is_not_heard(head, hello):
    with socket.create_connection(("127.0.0.1", head.spec["monitor_port"]), PATIENCE_S) as stranger:
        stream = stranger.makefile("rb")
        assert len(take(stream)) == 32
        stranger.sendall(frame(hello))
        assert stream.read() == b""
    assert head.monitor.poll() is None and head.read("cluster.json")["end"] is None
    head.signal(signal.SIGTERM)
    assert wait_for(lambda: head.read("cluster.json")["end"], "the end")["state"] == "stopped"
    head.monitor.wait(PATIENCE_S)
    # A stranger fills no logs.
    assert not head.log()


def memory_kib(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])


def test_strangers_take_neither_memory_nor_places(head):
    before = memory_kib(head.monitor.pid)
    strangers = []
    for _ in range(300):
        stranger = socket.create_connection(("127.0.0.1", head.spec["monitor_port"]), PATIENCE_S)
        strangers.append(stranger)
        # A frame that would be 8 MiB long, and some of it.
        try:
            stranger.sendall((8 << 20).to_bytes(4, "big") + b"x" * 100000)
        except OSError:
            continue  # it has hung up already
    silent = [socket.create_connection(("127.0.0.1", head.spec["monitor_port"]), PATIENCE_S) for _ in range(300)]

    def sockets():
        return len(list(Path(f"/proc/{head.monitor.pid}/fd").iterdir()))

    wait_for(lambda: sockets() < guests.MORE + 40, "most strangers to be sent away")
    assert memory_kib(head.monitor.pid) - before < 8 << 10

    async def come():
        line, heard, _ = await connect(head)
        line.update({"report": REPORT})
        while not heard:
            await asyncio.sleep(0.01)
        line.abort()

    asyncio.run(asyncio.wait_for(come(), PATIENCE_S))
    for one in strangers + silent:
        one.close()


def test_a_stranger_that_says_nothing_has_to_go(head):
    with socket.create_connection(("127.0.0.1", head.spec["monitor_port"]), PATIENCE_S) as stranger:
        stream = stranger.makefile("rb")
        assert len(take(stream)) == 32
        assert stream.read() == b""


# ---- between the two ends


class Tap:
    """Stands between a node and the head and may change what goes to the head, frame by frame."""

    def __init__(self, head, change):
        self.port, self._head, self._change, self.over = free_port(), head, change, asyncio.Event()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self._head.spec["monitor_port"])
        self.back = writer
        ways = [self._pass(reader, there[1], self._change), self._pass(there[0], writer, lambda frames, new: [new])]
        await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        there[1].close()
        self.over.set()

    async def _pass(self, reader, writer, change):
        frames = []
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                new = await reader.readexactly(size)
                for one in change(frames, new):
                    writer.write(frame(one))
                frames.append(new)
        except (OSError, asyncio.IncompleteReadError):
            return


def flipped(frames, new):
    return [new] if len(frames) < 2 else [new[:-1] + bytes([new[-1] ^ 1])]


def repeated(frames, new):
    return [new] if len(frames) < 2 else [new, new]


def left_out(frames, new):
    return [] if len(frames) == 1 else [new]


def in_other_order(frames, new):
    return [] if len(frames) == 1 else [new, frames[1]] if len(frames) == 2 else [new]


@pytest.mark.parametrize("change", [flipped, repeated, left_out, in_other_order])
def test_a_message_that_was_tampered_with_ends_the_connection(head, change):
    async def told():
        async with Tap(head, change) as tap:
            over = asyncio.Event()
            line = await wire.connect(TOKEN, "n2", ("127.0.0.1", tap.port), lambda *_: None, lambda _: over.set())
            for number in range(3):
                line.update({"report": {**REPORT, "metrics": {"step": number}}})
            await over.wait()

    asyncio.run(asyncio.wait_for(told(), PATIENCE_S))
    assert "connection with n2 ended: a message with a wrong MAC" in head.log()
    assert head.monitor.poll() is None


def test_what_a_node_said_is_nothing_that_the_head_says(tmp_path):
    """Reflection: a frame goes back to its sender, under the same keys and with the right number."""

    async def reflected():
        loop, heard = asyncio.get_running_loop(), []
        line = wire.NodeConnection(TOKEN, lambda _, message: heard.append(message), lambda _: None, "n2")
        said = []

        class Transport(asyncio.Transport):
            def write(self, data):
                said.append(data)

            def abort(self):
                said.append("ended")

            def set_write_buffer_limits(self, high=None, low=None):
                pass

            def is_closing(self):
                return False

        line.connection_made(Transport())
        nonce = os.urandom(32)
        line.data_received(frame(nonce))
        other = wire.HeadConnection(TOKEN, lambda *_: None, wire.Server(TOKEN, ["n2"], lambda *_: None))
        other.host, other._nonces = "n2", nonce + said[0][4:36]
        # Not even the proof: that of the node is none of the head.
        assert said[0][36:68] != other._mac("proof of the head")
        line.data_received(frame(other._mac("proof of the head")))
        assert await line.authenticated
        line.send({"stopped": True})
        line.data_received(said[-1])
        assert (heard, said[-1]) == ([], "ended")
        del loop

    asyncio.run(reflected())


def test_a_fake_head_ends_nothing(tmp_path, monkeypatch):
    """A process at the head's address without the token once ended the ranks as succeeded."""
    job = Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=PATIENCE_S)
    with job, socket.create_server(("127.0.0.1", job.head.spec["monitor_port"])) as fake:
        fake.settimeout(PATIENCE_S)
        node = job.nodes[1]
        node.start()
        end = {"end": {"state": "succeeded", "finished": time.time()}}
        for answer in (os.urandom(32), b"", None):
            connection, _ = fake.accept()
            with connection, connection.makefile("rb") as stream:
                connection.sendall(frame(os.urandom(32)))
                hello = take(stream)
                # None: its own proof comes back.
                connection.sendall(frame(hello[32:64] if answer is None else answer))
                connection.sendall(frame(os.urandom(32) + json.dumps(end).encode()))
                assert stream.read() == b""
        connection, _ = fake.accept()
        with connection:
            connection.sendall(json.dumps({"nonce": "0" * 32}).encode() + b"\n" + json.dumps(end).encode() + b"\n")
            assert connection.makefile("rb").read() == b""
        assert node.monitor.poll() is None and node.end() is None and node.exits() == {}


def test_a_log_that_lies_cuts_nobody_off(tmp_path):
    """A rank may print what torchrun would, of ranks that there are not: the head would not take such a report."""
    log = tmp_path / "agent.log"
    log.write_text("Root Cause (first observed failure):\n rank : 999999999 (local_rank: 0)\n exitcode : 1 (pid: 7)\n")
    runner = NodeRunner(Cluster(tmp_path, ["wait"]).nodes[0].dir)
    process = {"name": "agent", "ranks": [0], "log": str(log)}
    told = runner.failure(process, {"exit_code": 1, "signal": None, "result": "exit-code", "time": 1.0})
    assert (told["rank"], told["exit_code"]) == (0, 1)
    told = runner.failure({**process, "name": "rank0"}, {"exit_code": [], "signal": None, "result": "x", "time": 1.0})
    assert (told["exit_code"], told["result"]) == (None, "unreadable")
    assert not misfit(told, messages.failure_shape("n1", 1))
