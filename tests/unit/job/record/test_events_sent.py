"""Events reach real receivers, a server that is slow, down, hangs or answers 500 among them; the job waits for none."""

import contextlib
import http.server
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time

import pytest
from ansible.module_utils.trainyard.job.file import event_receivers
from ansible.module_utils.trainyard.job.record import events
from ansible.module_utils.trainyard_node.job.record import event_sender as sender
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import free_port, wait_for
from test_events import state
from test_monitor_spares import lose_head

SECRET = " ".join(["a secret", "of some length"])
HINT = "/services/hunter2"


class Receiver:
    """A web server on this machine: it answers with `statuses` in turn, then with 200; `held` ones get none."""

    def __init__(self):
        self.requests, self.statuses, self.headers = [], [], {}
        self.held, self.free = 0, threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                if receiver.held:
                    receiver.held -= 1
                    receiver.free.wait()
                    return
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._handler = Handler
        self.port = free_port()
        self.server = None

    def up(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), self._handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def down(self):
        self.free.set()
        if self.server:
            self.server.shutdown()
            self.server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}{HINT}"

    def events(self):
        return [json.loads(body) for _, _, body in self.requests]

    def kinds(self):
        return [said["event"] for said in self.events()]


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setattr(events, "FIRST_WAIT_S", 0.05)
    made = Receiver()
    yield made
    made.down()


@pytest.fixture
def sending(tmp_path):
    """Make a sender to receivers as a job file has them; its job has started, and perhaps ended."""
    (tmp_path / "logs").mkdir()

    def make(*receivers, env=None, answer_s=5.0, ends=False, starts=True, **given):
        settings = event_receivers.settings({"job_events": list(receivers), "job_events_secret": SECRET, **given})
        assert len(settings["receivers"]) == len(receivers)
        deliver = sender.Delivery(tmp_path, SECRET, env or {}, {"HOME": str(tmp_path)}, lambda start: start())
        deliver.answer_s = deliver.command_s = answer_s
        made.append(sender.Sender(settings, {"TOKEN": "hunter2"}, deliver))
        for changes in [(None, state())] * starts + [(state(), ended())] * ends:
            made[-1].send_changes(*changes)
        return made[-1]

    made = []
    yield make
    # Threads that still try would print into the output of later tests.
    for each in made:
        each._deliver = lambda *_: None


def ended(job_state="failed"):
    return state(state=job_state, end={"state": job_state, "finished": 1.0})


def stands(found, **expected):
    """Wait until it stands so with the one receiver."""
    wait_for(lambda: {**found.as_list()[0], **expected} == found.as_list()[0], f"{expected}, found {found.as_list()}")


def test_a_webhook_gets_signed_events(receiver, sending):
    told = sending({"url": receiver.up().url}, ends=True)
    stands(told, sent=2, waiting=0, lost=0, why="")
    assert receiver.kinds() == ["started", "ended"]
    path, headers, body = receiver.requests[0]
    assert (path, headers["Content-Type"]) == (HINT, "application/json")
    assert headers["X-Trainyard-Signature"] == events.signature(SECRET, headers["X-Trainyard-Timestamp"], body)
    slack = sending({"url": receiver.url, "form": "slack", "only": ["ended"]}, ends=True)
    stands(slack, sent=1, waiting=0)
    _, headers, body = receiver.requests[2]
    assert json.loads(body) == {"text": "digits-20261123-051500: failed after 0:00:10"}
    assert "X-Trainyard-Signature" not in headers


def test_a_receiver_that_hangs_or_answers_500_gets_the_same_event_again(receiver, sending, capfd):
    receiver.statuses = [500, 503, 429]
    told = sending({"url": receiver.up().url})
    stands(told, sent=1, waiting=0, lost=0)
    assert len({said["id"] for said in receiver.events()}) == 1 and len(receiver.events()) == 4
    out = capfd.readouterr().out
    assert "events to webhook 127.0.0.1: answered 500\n" in out and "hunter2" not in out
    receiver.held = 1
    slow = sending({"url": receiver.url}, answer_s=0.3)
    stands(slow, sent=1, waiting=0)
    assert len(receiver.requests) == 6


def test_a_receiver_that_was_down_gets_all_events(receiver, sending, capfd):
    told = sending({"url": receiver.url}, ends=True)
    stands(told, waiting=2, why="not reached: Connection refused")
    receiver.up()
    stands(told, sent=2, waiting=0, why="")
    assert receiver.kinds() == ["started", "ended"]
    assert capfd.readouterr().out.count("events to") == 1


# In place of an answer, within its headers, as its body, which says nothing new; within the handshake of TLS.
@pytest.mark.parametrize(("scheme", "begin", "sent", "why"), [
    ("http", b"", 0, "no answer that is HTTP, or none in time"),
    ("http", b"HTTP/1.1 200 OK\r\nA: ", 1, ""),
    ("http", b"HTTP/1.0 200 OK\r\n\r\n", 1, ""),
    ("http", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4000\r\n\r\n", 1, ""),
    ("https", b"\x16\x03\x03\x40\x00", 0, "no answer within 2 s"),
])  # fmt: skip
def test_a_receiver_that_drips_bytes_is_given_up(sending, monkeypatch, scheme, begin, sent, why):
    monkeypatch.setattr(events, "FIRST_WAIT_S", 0.05)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begin)
                while not over.wait(0.05):
                    connection.sendall(b"H")

        threading.Thread(target=drip, daemon=True).start()
        told = sending({"url": f"{scheme}://127.0.0.1:{server.getsockname()[1]}/"}, answer_s=2.0)
        wait_for(lambda: told.as_list()[0]["sent"] == sent and told.as_list()[0]["why"].startswith(why), "the end")
        wait_for(lambda: sent or told.as_list()[0]["why"], "why not")
        over.set()


def test_one_receiver_waits_for_no_other(receiver, sending, tmp_path):
    receiver.held = 1
    told = sending({"url": receiver.up().url}, {"file": str(tmp_path / "events.jsonl")}, answer_s=60.0, ends=True)
    wait_for(lambda: told.as_list()[1]["sent"] == 2, "the file")
    assert told.as_list()[0]["sent"] == 0 and told.as_list()[0]["waiting"] == 2
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["started", "ended"]
    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) & 0o137 == 0


def test_an_event_that_replaces_another_one_has_all_its_tries(receiver, sending, monkeypatch):
    monkeypatch.setattr(events, "MAX_TRIES", 3)
    monkeypatch.setattr(events, "pause_s", lambda tries: 0.05 if tries < 2 else 1.0)
    told = sending({"url": receiver.up().url}, starts=False)
    receiver.statuses = [500] * 4
    queue = told._queues[0]
    for number in (1, 2):
        with told._changed:
            queue.add({"event": "progress", "id": str(number), "text": ""})
            told._changed.notify_all()
        wait_for(lambda number=number: len(receiver.requests) == 2 * number, "two tries")
    stands(told, sent=1, waiting=0, lost=0)
    assert [said["id"] for said in receiver.events()] == ["1", "1", "2", "2", "2"]


def test_a_refusal_and_a_redirect_are_final(receiver, sending):
    elsewhere = Receiver().up()
    receiver.statuses, receiver.headers = [404, 307], {"Location": elsewhere.url}
    told = sending({"url": receiver.up().url})
    stands(told, lost=1, waiting=0, why="answered 404")
    told.send_changes(state(), ended())
    stands(told, lost=2, waiting=0, why="answered 307, and redirects are not followed")
    elsewhere.down()
    assert elsewhere.requests == []


def test_an_unknown_certificate_is_not_trusted(sending, monkeypatch, tmp_path):
    monkeypatch.setattr(events, "FIRST_WAIT_S", 0.05)
    pair = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-keyout", str(pair[0]), "-out", str(pair[1])]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    secure = Receiver()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair[1], pair[0])
    secure.up()
    secure.server.socket = context.wrap_socket(secure.server.socket, server_side=True)
    url = f"https://localhost:{secure.port}/"
    told = sending({"url": url})
    wait_for(lambda: "certificate" in told.as_list()[0]["why"], f"a refusal: {told.as_list()}")
    assert secure.requests == []
    known = sending({"url": url, "ca_file": str(pair[1])})
    stands(known, sent=1, waiting=0)
    secure.down()


def test_the_proxy_of_the_ranks_and_its_exceptions(receiver, sending):
    proxy = receiver.up()
    env = {"http_proxy": f"http://me:word@127.0.0.1:{proxy.port}", "NO_PROXY": "inside.example.org"}
    told = sending({"url": "http://hooks.example.org/in?a=1"}, env=env)
    stands(told, sent=1, waiting=0)
    path, headers, _ = proxy.requests[0]
    assert (path, headers["Host"]) == ("http://hooks.example.org/in?a=1", "hooks.example.org")
    assert headers["Proxy-Authorization"] == "Basic bWU6d29yZA=="
    exempt = sending({"url": "http://127.0.0.1:1/"}, env={**env, "NO_PROXY": "127.0.0.1"})
    wait_for(lambda: exempt.as_list()[0]["why"] == "not reached: Connection refused", "the receiver itself")
    assert len(proxy.requests) == 1


TELL = """
import json, os, sys
said = json.load(sys.stdin)
with open(sys.argv[1], "a") as told:
    told.write(json.dumps({"event": said["event"], "env": sorted(os.environ), "argv": sys.argv[2:]}) + "\\n")
print("heard", said["event"])
sys.exit(int(sys.argv[2]))
"""


def test_a_command_gets_the_event_and_no_shell(sending, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(events, "MAX_TRIES", 2)
    (tmp_path / "tell.py").write_text(TELL)
    tell = [sys.executable, str(tmp_path / "tell.py"), str(tmp_path / "told")]
    told = sending({"command": [*tell, "0", "$HOME; x"]})
    stands(told, sent=1, waiting=0)
    heard = json.loads((tmp_path / "told").read_text())
    assert (heard["event"], heard["argv"]) == ("started", ["0", "$HOME; x"])
    assert {"HOME", "PATH", "TRAINYARD_EVENT", "TRAINYARD_JOB_ID"} <= set(heard["env"])
    assert (tmp_path / "logs/events.log").read_text() == "heard started\n"
    failing = sending({"command": [*tell, "3"]})
    stands(failing, lost=1, waiting=0, why="ended with status 3")
    absent = sending({"command": ["/proc/nowhere/tell"]})
    stands(absent, lost=1, waiting=0, why="cannot be started: No such file or directory")


def test_a_command_that_takes_too_long_is_killed_with_its_children(sending, tmp_path):
    slow = "import os, pathlib, sys, time\nos.fork()\npathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
    slow += "time.sleep(600)"
    (tmp_path / "pids").mkdir()
    told = sending({"command": [sys.executable, "-c", slow, str(tmp_path / "pids")]}, answer_s=5.0)
    stands(told, lost=1, waiting=0, why="took longer than 5 s")
    pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    assert pids
    for pid in pids:
        # A zombie has no start time either.
        wait_for(lambda pid=pid: process_table.start_time(pid) is None, f"the end of {pid}")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_written(kind, sending, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MAX_TRIES", 1)
    path, victim = tmp_path / "events.jsonl", tmp_path / "victim"
    victim.touch()
    {"link": lambda: path.symlink_to(victim), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    told = sending({"file": str(path)})
    stands(told, lost=1, waiting=0)
    assert victim.read_text() == ""


def test_the_last_event_has_a_short_time(receiver, sending, monkeypatch):
    monkeypatch.setattr(sender, "LAST_PAUSE_S", 0.05)
    monkeypatch.setattr(events, "FIRST_WAIT_S", 60.0)
    told = sending({"url": receiver.url}, starts=False, ends=True)
    stands(told, waiting=1, why="not reached: Connection refused")
    assert not told.finished()
    receiver.up()
    # The long wait is over at once, as it is the last time.
    told.finish_by(time.monotonic() + 60.0)
    wait_for(told.finished, "the last word")
    assert receiver.kinds() == ["ended"]
    receiver.held = 9
    told.send_changes(state(), ended())
    assert not told.finished()
    told.finish_by(time.monotonic())
    assert told.finished()


# ---- a whole job


def with_receivers(job, *receivers):
    settings = event_receivers.settings({"job_events": list(receivers), "job_events_secret": SECRET})
    for node in job.nodes[: max(1, len(job.head.spec.get("candidates", ())))]:
        write_json(node.dir / "events.json", settings, mode=0o600)
        node.spec["secret_files"] = ["events.json"]
        write_json(node.dir / "node_plan.json", node.spec)
    return job


def test_the_next_head_sends_the_events_from_then_on(cluster, receiver):
    job = cluster(["train"], ["train"], max_restarts=1, spares=1)
    with_receivers(job, {"url": receiver.up().url}).start()
    wait_for(lambda: receiver.kinds() == ["started"], "the start")
    lose_head(job, job.nodes[1])
    wait_for(lambda: "restart" in receiver.kinds(), "the event of the restart")
    for node in job.nodes[1:]:
        node.go()
    wait_for(lambda: "ended" in receiver.kinds(), "the event of the end")
    assert receiver.kinds() == ["started", "restart", "spare", "first_step", "ended"]


def test_a_receiver_that_is_down_delays_no_end(cluster, receiver):
    job = with_receivers(cluster(["exit3"], ["wait"]), {"url": receiver.url}).start()
    job.head.go()
    assert job.over()["state"] == "failed"
    # The end is visible at once, and the ranks end before any receiver is waited for.
    wait_for(lambda: not job.nodes[1].left(), "the end of the other rank")
    job.head.signal(15)
    job.head.monitor.wait()
    (stood,) = job.state()["events"]
    assert (stood["waiting"] + stood["lost"], stood["sent"]) == (2, 0)
    assert stood["why"] == "not reached: Connection refused"
    assert job.head.log() == "events to webhook 127.0.0.1: not reached: Connection refused\n"
