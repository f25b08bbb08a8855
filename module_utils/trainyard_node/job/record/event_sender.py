# SPDX-License-Identifier: Apache-2.0
"""Tell who wants to know of a job, from the head's monitor: webhooks, commands, files.

A thread for each receiver takes events from a queue of its own, so that none waits for another one, and the monitor for
none: it only puts events in. What cannot be delivered is tried again later and later, and counted when it is lost. The
threads go with the monitor, which waits for them at the job's end for a short time.

A webhook's certificate must be that of its host, redirects are not followed, and proxies are those of the ranks'
environment. What is printed, into the monitor's log, names a receiver by its host alone.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from ....trainyard.job.record import events
from ....trainyard.job.record.events import Event, Waiting
from ....trainyard.job.run.messages import Message
from ...machine.json_files import read_json

# How long one try may take at most, in seconds: a webhook's answer, and a command.
ANSWER_S, COMMAND_S = 10.0, 60.0
# At the job's end: for how long what waits is tried, and for how long once the monitor itself is told to end, which
# systemd gives 5 s for; the longest wait between two tries then.
LAST_S, TOLD_S, LAST_WAIT_S = 10.0, 3.0, 0.5
# Commands have it in their environment, and do not count among the processes that a restart ends (processes.py).
MARK = "TRAINYARD_EVENT"

Deliver = Callable[[Message, Event], None]
Start = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]


class NotTakenError(Exception):
    """A receiver did not take an event; the text says why, and `again` whether it may later."""

    def __init__(self, why: str, again: bool = True) -> None:
        """Take why, in words that hold nothing secret."""
        super().__init__(why)
        self.again = again


class Sender:
    """What the head tells, and to whom."""

    def __init__(
        self, settings: Message, secrets: Mapping[str, str], deliver: Callable[[Message, Event], None]
    ) -> None:
        """Take the settings (event_receivers.settings) and what may stand in no text, and begin."""
        self._every_s, self._secrets = float(settings["every_s"]), [*secrets.values(), settings["secret"]]
        self._deliver = deliver
        self._changed = threading.Condition()
        self._last_until: float | None = None
        self._waiting = [Waiting(receiver["to"]) for receiver in settings["receivers"]]
        self._only = [receiver["only"] for receiver in settings["receivers"]]
        for waiting, receiver in zip(self._waiting, settings["receivers"]):
            threading.Thread(target=self._run, args=(waiting, receiver), daemon=True).start()

    def tell(self, before: Message | None, now: Message) -> None:
        """Tell what has happened between two states of the job (cluster.json); returns at once."""
        found = [
            events.event(each, now, time.time(), self._secrets) for each in events.between(before, now, self._every_s)
        ]
        if not found:
            return
        with self._changed:
            for said in found:
                for waiting, only in zip(self._waiting, self._only):
                    if not only or said["event"] in only:
                        waiting.add(said)
            self._changed.notify_all()

    def as_list(self) -> list[Message]:
        """Return how it stands with each receiver, for cluster.json."""
        with self._changed:
            return [waiting.as_dict() for waiting in self._waiting]

    def last_until(self, deadline: float) -> None:
        """Have what waits tried again at once, and until this time on the monotonic clock; the earliest counts."""
        with self._changed:
            self._last_until = min(deadline, self._last_until or deadline)
            self._changed.notify_all()

    def over(self) -> bool:
        """Tell whether nothing waits any more, or its time is up."""
        with self._changed:
            late = self._last_until is not None and time.monotonic() >= self._last_until
            return late or not any(waiting.events for waiting in self._waiting)

    def _run(self, waiting: Waiting, receiver: Message) -> None:
        tries = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting.events)
                said = waiting.events[0]
            try:
                self._deliver(receiver, said)
                why, again = "", False
            except NotTakenError as error:
                why, again = str(error), error.again
            except Exception as error:
                # Whatever goes wrong within a library says too much: an address stands in many a text.
                why, again = type(error).__name__, True
            tries += 1
            with self._changed:
                news = why and why != waiting.why
                if again and tries < events.MOST_TRIES:
                    waiting.why = why
                    self._wait(events.wait_s(tries))
                else:
                    waiting.done(said, why)
                    tries = 0
            if news:
                # Into the monitor's log.
                print(f"events to {waiting.to}: {why}", flush=True)

    def _wait(self, seconds: float) -> None:
        """Wait between two tries; at the job's end only shortly."""
        began = time.monotonic()

        def enough() -> bool:
            return time.monotonic() - began >= (seconds if self._last_until is None else min(seconds, LAST_WAIT_S))

        while not enough():
            left = seconds if self._last_until is None else min(seconds, LAST_WAIT_S)
            self._changed.wait(max(0.01, began + left - time.monotonic()))


class Delivery:
    """How one event reaches a receiver of each kind. Raises NotTakenError where it does not."""

    def __init__(
        self, job_dir: Path, secret: str, env: Mapping[str, str], own_env: Mapping[str, str], start: Start
    ) -> None:
        """Take the environment of the ranks, what a login has, and how a child is started beside the ranks."""
        self._job_dir, self._secret, self._env, self._own_env, self._start = job_dir, secret, env, own_env, start
        self.answer_s, self.command_s = ANSWER_S, COMMAND_S

    def __call__(self, receiver: Message, said: Event) -> None:
        """Deliver an event."""
        if receiver["kind"] == "url":
            self._post(receiver, events.body(said, receiver["form"]))
        elif receiver["kind"] == "command":
            self._call(receiver["command"], said)
        else:
            _append(receiver["file"], events.body(said) + b"\n")

    def _post(self, receiver: Message, content: bytes) -> None:
        import http.client

        headers = {"Content-Type": "application/json", "User-Agent": "trainyard"}
        if self._secret and receiver["form"] == "json":
            timestamp = str(int(time.time()))
            headers["X-Trainyard-Timestamp"] = timestamp
            headers["X-Trainyard-Signature"] = events.signature(self._secret, timestamp, content)
        try:
            connection, target, more = self._connection(receiver)
            # The time limit of a socket is for each read: who sends a byte now and then would hold it for ever.
            guard = threading.Timer(self.answer_s, _cut, (connection,))
            guard.daemon = True
            guard.start()
            try:
                connection.request("POST", target, content, {**headers, **more})
                # The status says whether the event was taken. The rest is not read: where the answer ends with the
                # connection, the library lets go of the socket here, and nothing could end a body that drips.
                answer = connection.getresponse()
            finally:
                guard.cancel()
                connection.close()
        except (socket.timeout, TimeoutError):
            raise NotTakenError(f"no answer within {self.answer_s:g} s") from None
        except http.client.HTTPException:
            raise NotTakenError("no answer that is HTTP, or none in time") from None
        except OSError as error:
            # That of a certificate says what is wrong with it.
            why = getattr(error, "verify_message", "") or error.strerror or type(error).__name__
            raise NotTakenError(f"not reached: {why}"[:200]) from None
        if 300 <= answer.status < 400:
            raise NotTakenError(f"answered {answer.status}, and redirects are not followed", again=False)
        if not 200 <= answer.status < 300:
            raise NotTakenError(f"answered {answer.status}", again=events.tried_again(answer.status))

    def _connection(self, receiver: Message) -> tuple[Any, str, dict[str, str]]:
        """Return a connection to who is asked, what is asked for, and what a proxy wants to know."""
        import base64
        import http.client
        import ssl
        from urllib import request
        from urllib.parse import unquote, urlsplit

        url = urlsplit(receiver["url"])
        host, secure = url.hostname or "", url.scheme == "https"
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        env = {name.lower(): value for name, value in self._env.items() if value}
        proxy = urlsplit(env.get(f"{url.scheme}_proxy", ""))
        ca_file = receiver["ca_file"] or self._env.get("SSL_CERT_FILE") or None
        context = ssl.create_default_context(cafile=ca_file) if secure else None
        # The exceptions are the ranks'; a proxy without a host is none.
        exempt = request.proxy_bypass_environment(url.netloc, {"no": env.get("no_proxy", "")})  # type: ignore[attr-defined]
        direct = not proxy.hostname or exempt
        where = (host, url.port or (443 if secure else 80))
        at = where if direct else (proxy.hostname or "", proxy.port or 3128)
        pass_on: dict[str, str] = {}
        if not direct and proxy.username:
            words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            pass_on = {"Proxy-Authorization": f"Basic {base64.b64encode(words).decode()}"}
        if secure:
            connection = http.client.HTTPSConnection(*at, timeout=self.answer_s, context=context)
            if not direct:
                connection.set_tunnel(*where, headers=pass_on)
            return connection, target, {}
        plain = http.client.HTTPConnection(*at, timeout=self.answer_s)
        return (
            (plain, target, {}) if direct else (plain, f"http://{url.netloc}{target}", {**pass_on, "Host": url.netloc})
        )

    def _log(self) -> IO[bytes]:
        """Open the log of what commands print; on a full disk they have none."""
        try:
            return (self._job_dir / "logs" / "events.log").open("ab")
        except OSError:
            return Path(os.devnull).open("ab")

    def _call(self, argv: list[str], said: Event) -> None:
        env = {"PATH": os.defpath, **self._own_env, MARK: said["event"], "TRAINYARD_JOB_ID": said["job_id"]}

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
            child.communicate(events.body(said) + b"\n", timeout=self.command_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise NotTakenError(f"took longer than {self.command_s:g} s", again=False) from None
        if child.returncode:
            raise NotTakenError(f"ended with status {child.returncode}")


def _cut(connection: Any) -> None:
    """End a connection under the hands of who reads from it."""
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


def of_job(job_dir: Path, spec: Message, start: Start) -> Sender | None:
    """Return the sender of a job on its head; None where nobody is to be told."""
    settings = read_json(job_dir / "events.json")
    if not settings or not settings["receivers"]:
        return None
    ranks = spec["processes"][0]["env"] if spec["processes"] else {}
    env = {**ranks, **spec["secret_env"]}
    return Sender(settings, spec["secret_env"], Delivery(job_dir, settings["secret"], env, spec["base_env"], start))
