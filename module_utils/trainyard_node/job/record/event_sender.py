# SPDX-License-Identifier: Apache-2.0
"""Send the events of a job from the head's monitor to webhooks, commands and files.

Each receiver has a thread and a queue, so that no receiver delays another one or the monitor. Failed deliveries are
repeated with growing pauses, and counted when they are lost. At the job's end the monitor waits for the threads for a
short time.

A webhook's certificate must be that of its host, redirects are not followed, and proxies are those of the ranks'
environment. The monitor's log names a receiver by its host alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from ....trainyard.base.shapes import ByKind, Is, Message, Whole, misfit
from ....trainyard.job.record import events
from ....trainyard.job.record.events import FORMS, Event, Queue
from ...machine.json_files import read_json

# Time limits of one try, in seconds: for a webhook's answer, and for a command.
ANSWER_S, COMMAND_S = 10.0, 60.0
# At the job's end, in seconds: time for events that wait; the same once the monitor itself must end, for which systemd
# gives 5 s; the longest pause between two tries then.
LAST_S, STOPPED_S, LAST_PAUSE_S = 10.0, 3.0, 0.5
# Marks commands in their environment: a restart does not end them with the ranks (process_table.py).
MARK = "TRAINYARD_EVENT"
# The content of events.json.
_RECEIVER = ByKind(
    {"to": str, "only": [str]},
    {"url": {"url": str, "form": Is(FORMS), "ca_file": str}, "command": {"command": [str]}, "file": {"file": str}},
)
_SETTINGS = {"receivers": [_RECEIVER], "secret": str, "every_s": Whole(1 << 40)}

Deliver = Callable[[Message, Event], None]
Start = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]


class NotTakenError(Exception):
    """A receiver did not take an event; `again`: a later try may succeed."""

    def __init__(self, reason: str, again: bool = True) -> None:
        """Take the reason, without secrets."""
        super().__init__(reason)
        self.again = again


class Sender:
    """Sends the events of one job to its receivers."""

    def __init__(self, settings: Message, secrets: Mapping[str, str], deliver: Deliver) -> None:
        """Take the settings (event_receivers.settings) and the secrets to mask, and start the threads."""
        self._every_s, self._secrets = float(settings["every_s"]), [*secrets.values(), settings["secret"]]
        self._deliver = deliver
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._queues = [Queue(receiver["to"]) for receiver in settings["receivers"]]
        self._only = [receiver["only"] for receiver in settings["receivers"]]
        for queue, receiver in zip(self._queues, settings["receivers"]):
            threading.Thread(target=self._run, args=(queue, receiver), daemon=True).start()

    def send_changes(self, before: Message | None, now: Message) -> None:
        """Queue the events between two states of the job (cluster.json); returns at once."""
        changes = events.changes(before, now, self._every_s)
        self.send(events.event(each, now, time.time(), self._secrets) for each in changes)

    def send(self, made: Iterable[Event]) -> None:
        """Queue events; returns at once."""
        with self._changed:
            for event in made:
                for queue, only in zip(self._queues, self._only):
                    if not only or event["event"] in only:
                        queue.add(event)
                self._changed.notify_all()

    def as_list(self) -> list[Message]:
        """Return the entry of each receiver in cluster.json."""
        with self._changed:
            return [queue.as_dict() for queue in self._queues]

    def finish_by(self, deadline: float) -> None:
        """Retry at once what waits, until this time of the monotonic clock; the earliest deadline counts."""
        with self._changed:
            self._deadline = min(deadline, self._deadline or deadline)
            self._changed.notify_all()

    def finished(self) -> bool:
        """Return whether no event waits any more, or the deadline has passed."""
        with self._changed:
            late = self._deadline is not None and time.monotonic() >= self._deadline
            return late or not any(queue.events for queue in self._queues)

    def _run(self, queue: Queue, receiver: Message) -> None:
        tries, tried = 0, None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: queue.events)
                event = queue.events[0]
            # A newer event may have replaced the one that was tried, and has all its tries.
            tries, tried = tries if event is tried else 0, event
            try:
                self._deliver(receiver, event)
                why, again = "", False
            except NotTakenError as error:
                why, again = str(error), error.again
            except Exception as error:
                # The text of a library's error may hold the address, which is secret.
                why, again = type(error).__name__, True
            tries += 1
            with self._changed:
                news = why and why != queue.why
                if again and tries < events.MAX_TRIES:
                    queue.why = why
                    self._pause(events.pause_s(tries))
                else:
                    queue.done(event, why)
            if news:
                # Into the monitor's log.
                print(f"events to {queue.to}: {why}", flush=True)

    def _pause(self, seconds: float) -> None:
        """Wait between two tries; only briefly at the job's end."""
        began = time.monotonic()

        def left() -> float:
            return began + (seconds if self._deadline is None else min(seconds, LAST_PAUSE_S)) - time.monotonic()

        while (remaining := left()) > 0:
            self._changed.wait(remaining)


class Delivery:
    """Delivers an event to a receiver of any kind. Raises NotTakenError where that fails."""

    def __init__(
        self, job_dir: Path, secret: str, env: Mapping[str, str], own_env: Mapping[str, str], start: Start
    ) -> None:
        """Take the environments of the ranks and of a login, and a function that starts a child beside the ranks."""
        self._job_dir, self._secret, self._env, self._own_env, self._start = job_dir, secret, env, own_env, start
        self.answer_s, self.command_s = ANSWER_S, COMMAND_S

    def __call__(self, receiver: Message, event: Event) -> None:
        """Deliver an event."""
        if receiver["kind"] == "url":
            self._post(receiver, events.body(event, receiver["form"]))
        elif receiver["kind"] == "command":
            self._call(receiver["command"], event)
        else:
            _append(receiver["file"], events.body(event) + b"\n")

    def _post(self, receiver: Message, content: bytes) -> None:
        import http.client

        headers = {"Content-Type": "application/json", "User-Agent": "trainyard"}
        if self._secret and receiver["form"] == "json":
            timestamp = str(int(time.time()))
            headers["X-Trainyard-Timestamp"] = timestamp
            headers["X-Trainyard-Signature"] = events.signature(self._secret, timestamp, content)
        try:
            connection, target, more = self._connection(receiver)
            # The time limit of a socket counts for each read: a server that drips bytes would hold it forever.
            guard = threading.Timer(self.answer_s, _cut, (connection,))
            guard.daemon = True
            guard.start()
            try:
                connection.request("POST", target, content, {**headers, **more})
                # The status suffices. The body is not read: where the answer ends with the connection, the library
                # releases the socket here, and nothing could end a body that drips.
                answer = connection.getresponse()
            finally:
                guard.cancel()
                connection.close()
        except (socket.timeout, TimeoutError):
            raise NotTakenError(f"no answer within {self.answer_s:g} s") from None
        except http.client.HTTPException:
            raise NotTakenError("no answer that is HTTP, or none in time") from None
        except OSError as error:
            # An error of a certificate says what is wrong with it.
            why = getattr(error, "verify_message", "") or error.strerror or type(error).__name__
            raise NotTakenError(f"not reached: {why}"[:200]) from None
        if 300 <= answer.status < 400:
            raise NotTakenError(f"answered {answer.status}, and redirects are not followed", again=False)
        if not 200 <= answer.status < 300:
            raise NotTakenError(f"answered {answer.status}", again=events.may_retry(answer.status))

    def _connection(self, receiver: Message) -> tuple[Any, str, dict[str, str]]:
        """Return a connection to the receiver or its proxy, the request target, and headers for the proxy."""
        import base64
        import http.client
        import ssl
        from urllib import request
        from urllib.parse import unquote, urlsplit

        url = urlsplit(receiver["url"])
        secure = url.scheme == "https"
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        where = (url.hostname or "", url.port or (443 if secure else 80))
        env = {name.lower(): value for name, value in self._env.items() if value}
        proxy = urlsplit(env.get(f"{url.scheme}_proxy", ""))
        # `no_proxy` is that of the ranks; a proxy without a host does not count.
        exempt = request.proxy_bypass_environment(url.netloc, {"no": env.get("no_proxy", "")})  # type: ignore[attr-defined]
        direct = not proxy.hostname or exempt
        at = where if direct else (proxy.hostname or "", proxy.port or 3128)
        headers: dict[str, str] = {}
        if not direct and proxy.username:
            credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            headers = {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode()}"}
        if secure:
            context = ssl.create_default_context(cafile=receiver["ca_file"] or self._env.get("SSL_CERT_FILE") or None)
            connection = http.client.HTTPSConnection(*at, timeout=self.answer_s, context=context)
            if not direct:
                connection.set_tunnel(*where, headers=headers)
            return connection, target, {}
        plain = http.client.HTTPConnection(*at, timeout=self.answer_s)
        if direct:
            return plain, target, {}
        return plain, f"http://{url.netloc}{target}", {**headers, "Host": url.netloc}

    def _log(self) -> IO[bytes]:
        """Open the log for the output of commands; on a full disk the output is lost."""
        try:
            return (self._job_dir / "logs" / "events.log").open("ab")
        except OSError:
            return Path(os.devnull).open("ab")

    def _call(self, argv: list[str], event: Event) -> None:
        env = {"PATH": os.defpath, **self._own_env, MARK: event["event"], "TRAINYARD_JOB_ID": event["job_id"]}

        def start() -> subprocess.Popen[bytes]:
            with self._log() as log:
                return subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, cwd="/", start_new_session=True
                )

        try:
            child = self._start(start)
        except OSError as error:
            raise NotTakenError(f"cannot be started: {error.strerror}") from None
        try:
            child.communicate(events.body(event) + b"\n", timeout=self.command_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise NotTakenError(f"took longer than {self.command_s:g} s", again=False) from None
        if child.returncode:
            raise NotTakenError(f"ended with status {child.returncode}")


def _cut(connection: Any) -> None:
    """End a connection while another thread reads from it."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _append(path: str, line: bytes) -> None:
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640
        )
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotTakenError("is no regular file", again=False)
            if os.write(descriptor, line) != len(line):
                raise NotTakenError("no room", again=False)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NotTakenError(f"cannot be written: {error.strerror}") from None


def of_job(job_dir: Path, node_plan: Message, start: Start) -> Sender | None:
    """Return the sender of a job on its head; None without receivers."""
    settings = read_json(job_dir / "events.json")
    wrong = misfit(settings, _SETTINGS) if settings else ""
    if wrong:
        print(f"trainyard: {job_dir / 'events.json'} is damaged, so no events are sent: {wrong}", flush=True)
    if wrong or not settings or not settings["receivers"]:
        return None
    ranks = node_plan["processes"][0]["env"] if node_plan["processes"] else {}
    env = {**ranks, **node_plan["secret_env"]}
    return Sender(
        settings, node_plan["secret_env"], Delivery(job_dir, settings["secret"], env, node_plan["base_env"], start)
    )
