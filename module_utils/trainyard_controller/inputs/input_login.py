# SPDX-License-Identifier: Apache-2.0
"""Ask the hosts for the user who logs in, whose defaults hold where Ansible does not become root.

The first host that answers is enough: playbooks/validate.yml and the check before a job find those that differ.
"""

from __future__ import annotations

import contextlib
import getpass
import inspect
import os
import pwd
import queue
import select
import shlex
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.template import Templar, trust_as_template

from ...trainyard.inputs import login
from ...trainyard.inputs.login import Login
from ..nodes import host_connection
from .input_run import InputRun

_MANAGES, _BECOME = "trainyard_manage_system", "trainyard_become"
# Playbooks that read files of the controller alone.
_WITHOUT_HOSTS = ("compare.yml",)
# The hosts that are tried, the seconds until the next one is tried as well, and those for all.
_MAX_HOSTS, _NEXT_S, _LIMIT_S = 8, 1.0, 15.0


def defaults(run: InputRun, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that replace the documented ones; none where Ansible becomes root, or logs in as root.

    `given` are the variables that the user has written. Hosts are asked only if a default depends on their login.
    """
    hosts = list(run.compute().values())
    if not hosts or any(_truth(run, host, _BECOME) for host in (hosts[0], *_with_own(run, hosts))):
        return {}
    visits = not (run.is_of_project and run.playbook.name in _WITHOUT_HOSTS)
    known = _login(run, hosts, visits=visits) if login.needed(given) else None
    # Root can manage the system without sudo; its jobs are the training user's. This machine may be used as root.
    if known and not known.uid and not (_is_local(run, hosts[0]) and not _truth(run, hosts[0], _MANAGES)):
        return {}
    values, templates = login.defaults(known or Login("", -1, ""))
    found = {**values, **{name: trust_as_template(text) for name, text in templates.items()}}
    return {name: value for name, value in found.items() if name not in given}


def _with_own(run: InputRun, hosts: list[Any]) -> list[Any]:
    """Return the hosts that may have their own value of trainyard_become, as each value takes milliseconds to read."""
    if _BECOME in run.extra:
        return []
    written = (entity for entity, filed in run.entities if _BECOME in entity.vars or _BECOME in filed)
    own = {host for entity in written if entity.name not in ("all", "compute") for host in run.hosts_of(entity)}
    return [host for host in hosts if host in own]


def _truth(run: InputRun, host: Any, name: str) -> bool:
    """Return a switch of a host; one that is no boolean, or not yet known, is on, as is its documented default."""
    try:
        return bool(boolean(run.value(host, name)))
    except (AnsibleError, KeyError, TypeError):
        return True


def _login(run: InputRun, hosts: list[Any], *, visits: bool) -> Login:
    """Return the login of the first host that answers, otherwise the one by which Ansible tries to log in."""
    if _is_local(run, hosts[0]):
        return Login(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), str(Path.home()))
    selected = set(run.inventory.get_hosts("compute"))
    hosts = [host for host in hosts if host in selected] or hosts
    answer = login.read(_in_child(lambda: _first(run, hosts[:_MAX_HOSTS]))) if visits else None
    if answer:
        return answer
    variables = run.variables(hosts[0])
    user = ""
    with contextlib.suppress(AnsibleError):
        user = str(Templar(run.loader, variables).template(variables.get("ansible_user") or "") or "")
    user = user or str(run.play.remote_user or "") or getpass.getuser()
    return Login(user, -1, f"/home/{user}")


def _is_local(run: InputRun, host: Any) -> bool:
    try:
        kind = run.value(host, "ansible_connection")
    except (AnsibleError, KeyError):
        kind = run.play.connection
    return str(kind).rpartition(".")[2] == "local"


def _first(run: InputRun, hosts: list[Any]) -> str:
    """Return what the first host printed that answers; a host that hangs delays the next one by a second."""
    answers: queue.Queue[str] = queue.Queue()
    waiting, running = deque(hosts), 0
    context = PlayContext(play=run.play, passwords=_passwords())
    while waiting or running:
        if waiting:
            with contextlib.suppress(AnsibleError, ValueError):
                ask = _visit(run, waiting.popleft(), context)
                threading.Thread(target=lambda ask=ask: answers.put(ask()), daemon=True).start()
                running += 1
        with contextlib.suppress(queue.Empty):
            answer = answers.get(timeout=_NEXT_S) if running else ""
            running -= 1 if running else 0
            if login.read(answer):
                return answer
    return ""


def _visit(run: InputRun, host: Any, context: PlayContext) -> Callable[[], str]:
    """Prepare a connection, for a thread that will use it: Ansible's loaders and templates are for one thread."""
    variables = run.variables(host)
    templar = Templar(run.loader, variables)
    kind = templar.template(variables.get("ansible_connection") or run.play.connection)
    context = context.copy()
    context.remote_addr = str(templar.template(variables.get("ansible_host") or host.name))
    connection, _ = host_connection.opened(kind, None, variables, templar, run.play.dump_attrs(), context)

    def ask() -> str:
        try:
            _, printed, _ = connection.exec_command(f"/bin/sh -c {shlex.quote(login.QUERY)}", sudoable=False)
        except Exception:
            # Any failure is a finding of the playbook itself.
            return ""
        return str(printed.decode(errors="replace"))

    return ask


def _passwords() -> dict[str, Any]:
    """Return the passwords that ansible-playbook has asked for, which it gives to no callback plugin."""
    frame = inspect.currentframe()
    while frame:
        found = getattr(frame.f_locals.get("self"), "passwords", None)
        if isinstance(found, dict):
            return found
        frame = frame.f_back
    return {}


def _in_child(function: Callable[[], str]) -> str:
    """Return what a function returns in a process without a terminal, as Ansible's tasks have: ssh must not ask there.

    All its processes are killed when it has an answer, or its time is over.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.write(writing, function().encode()[-2000:])
        finally:
            os._exit(0)
    os.close(writing)
    printed, until = b"", time.monotonic() + _LIMIT_S
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            part = pipe.read(2000)
            if not part:
                break
            printed += part
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return printed.decode(errors="replace")
