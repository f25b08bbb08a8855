# SPDX-License-Identifier: Apache-2.0
"""Query many hosts at once, over Ansible's own connection and become plugins.

A host is reached as any task would reach it: by its inventory variables, with the passwords of the command line,
through the connection and become plugins that it names. As many hosts as `forks` are visited at once. Each visit has
its own time limit, so a host that hangs delays no other.

An answer is what the node's agent returned, or why there is none, in the fields of Ansible's task results
(`unreachable`, `failed`, `msg`, `rc`, `module_stdout`, `module_stderr`); cluster/unreachable.py finds the cause. A host
that --limit leaves out has the answer {}.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import queue
import secrets
import shlex
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.inventory.manager import split_host_pattern
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar
from ansible.utils.display import Display

from ...trainyard.base.findings import Finding, counted, host_list
from ...trainyard.cluster import unreachable
from ...trainyard.job.record.folder_layout import HOST, named, on_host
from ...trainyard.job.run.wire.answers import checked
from . import agent_code, host_connection
from .clock_offset import CLOCK, of_visit, read_clock

Answer = dict[str, Any]

display = Display()
# Time limit of an answer, and the shortest interval of the lines of progress, in seconds. The callback shows a longer
# silence.
LIMIT_S = 120.0
_PROGRESS_S = 7.0
# The step that the lines of progress name, by question: the counts of two steps are not those of one. None: no lines,
# as whoever asks again and again has lines of its own.
_STEPS: Mapping[str, str | None] = {
    **dict.fromkeys(("state", "follow", "busy", "bring_image", "progress"), None),
    **dict.fromkeys(("probe", "verify", "running", "baseline", "folders", "in_use"), "reading the nodes"),
    "preflight": "checking the nodes before the start",
    "forget_tokens": "removing what tells shared folders",
    "start": "starting the ranks",
    "collect": "bringing the logs",
    "stacks": "taking the stacks",
    "journal": "reading the journals",
    "listen": "opening ports to try the network",
    "connect": "connecting each node with each other one",
    "unlisten": "closing these ports",
    "try_ports": "trying ports with those of other nodes",
    "logins": "trying ssh from each node to each other one",
    "storage": "measuring the storage",
    "ssh_keys": "reading the ssh keys",
    "can_install": "checking what can be installed",
    "keep_record": "recording what the nodes are",
    "removal": "removal",
    "slurm_logs": "bringing the logs of Slurm",
}
# The exit status of a shell that does not find a command.
_NO_COMMAND = 127
# Ansible's loaders and templates are for one thread.
_connecting = threading.Lock()


@dataclass
class _Host:
    """How one host is reached, and with which Python."""

    name: str
    connection: Any
    command: str
    no_python: str
    become: bool


@dataclass
class FanOut:
    """Connections to hosts of the inventory, for an action plugin. Each is made once and used again.

    Several threads may query different hosts: a connection and its become plugin know one command at a time.
    """

    action: ActionBase
    task_vars: Mapping[str, Any]
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _limited: frozenset[str] | None = None
    # How often each step was visited.
    _visits: Counter[str | None] = field(default_factory=Counter)

    def ask(
        self,
        question: str,
        own: Mapping[str, Mapping[str, Any]],
        shared: Mapping[str, Any] | None = None,
        limit_s: float = LIMIT_S,
    ) -> dict[str, Answer]:
        """Send a query (agent.QUESTIONS) to the agent of each host in `own`; return the answers by host, in its order.

        `own` has the arguments of each host, `shared` those of all; HOST in them becomes the name of the host. A node
        may take `limit_s` for its answer.
        """
        common = json.dumps(shared or {})
        varies = HOST in common

        def visit(host: _Host) -> Answer:
            sent = (named(common, host.name) if varies else common).encode()
            return _visit(host, question, sent, on_host(own[host.name], host.name), limit_s)

        return self._all(own, visit, limit_s, _STEPS.get(question, "asking the nodes"))

    def clocks(self, hosts: Iterable[str], limit_s: float = LIMIT_S) -> dict[str, Answer]:
        """Return the offset of each host's clock, as clock.read_clock does, or why there is none."""
        return self._all(list(hosts), _clock, limit_s, "reading the clocks")

    def _all(
        self, names: Collection[str], visit: Callable[[_Host], Answer], limit_s: float, step: str | None
    ) -> dict[str, Answer]:
        answers: dict[str, Answer] = {name: {} for name in names}
        hosts = []
        with _connecting:
            for name in filter(self.allowed, names):
                try:
                    if name not in self._hosts:
                        self._hosts[name] = self._connect(name, self._variables(name))
                    hosts.append(self._hosts[name])
                except (AnsibleError, ValueError) as error:
                    answers[name] = {"failed": True, "msg": str(error)}
        window = max(1, int(self.task_vars.get("ansible_forks") or C.DEFAULT_FORKS))
        # Ansible's `timeout` is for one connection and to become root; a node that lacks the agent is visited twice.
        around_s = 2.0 * self.action._play_context.timeout
        return {**answers, **side_by_side(hosts, visit, window, limit_s + around_s, self.named(step))}

    def named(self, step: str | None) -> str | None:
        """Return the name of a step for its next visit: its counts begin again, so a second one has another name."""
        self._visits[step] += 1
        return f"{step}, visit {self._visits[step]}" if step and self._visits[step] > 1 else step

    def allowed(self, host: str) -> bool:
        """Tell whether --limit leaves this host in."""
        limit = self.task_vars.get("ansible_limit")
        if not limit:
            return True
        if self._limited is None:
            lookup = lookup_loader.get(
                "ansible.builtin.inventory_hostnames", loader=self.action._loader, templar=self.action._templar
            )
            self._limited = frozenset(lookup.run([_limit_pattern(str(limit))], variables=dict(self.task_vars)))
        return host in self._limited

    def ready(self, host: str) -> bool:
        """Prepare the connection to a host, for a thread that will use it; return whether that was possible."""
        with _connecting, contextlib.suppress(AnsibleError, ValueError):
            if self.allowed(host):
                self._hosts[host] = self._hosts.get(host) or self._connect(host, self._variables(host))
        return host in self._hosts

    def forget(self, host: str) -> None:
        """Close the connection to a host that did not answer: the next query opens another one."""
        previous = self._hosts.pop(host, None)
        if previous is not None:
            with contextlib.suppress(AnsibleError, OSError):
                previous.connection.reset()

    def knows(self, host: str) -> bool:
        """Tell whether a host is in the inventory."""
        return host in self.task_vars["hostvars"]

    def _variables(self, host: str) -> dict[str, Any]:
        """Return the variables of a host in the inventory, with their templates."""
        if not self.knows(host):
            raise AnsibleError(f"{host} is not in the inventory")
        found: dict[str, Any] = self.task_vars["hostvars"].raw_get(host)
        return found

    def values(self, host: str, *names: str) -> list[Any]:
        """Return variables of a host, None for each that is not set. Raises AnsibleError.

        The connection for later queries is made with them, as Ansible takes long to collect the variables of a host.
        """
        variables = self._variables(host)
        templar = Templar(loader=self.action._loader, variables=variables)
        found = [templar.template(variables.get(name)) for name in names]
        # The query itself tells why that is not possible.
        with _connecting, contextlib.suppress(AnsibleError, ValueError):
            if host not in self._hosts and self.allowed(host):
                self._hosts[host] = self._connect(host, variables)
        return found

    def address(self, host: str) -> str:
        """Return the address by which Ansible reaches a host. Raises AnsibleError."""
        return str(self.values(host, "ansible_host")[0] or host)

    def silent_findings(self, answers: Mapping[str, Answer]) -> list[Finding]:
        """Return the findings for hosts without an answer."""
        silent = {host: answer for host, answer in answers.items() if is_silent(answer)}
        # Not templated, because a template may have caused the failure.
        addresses = {host: str(self._variables(host).get("ansible_host") or host) for host in silent}
        return unreachable.no_answers(silent, addresses)

    def _connect(self, name: str, variables: Mapping[str, Any]) -> _Host:
        """Make the connection of a host, as Ansible's own executor of tasks does."""
        templar = Templar(loader=self.action._loader, variables=variables)
        task, context = self.action._task, copy.copy(self.action._play_context)
        # The task's own connection may have become the one that it got (ansible-core 2.21): that of localhost.
        kind = templar.template(variables.get("ansible_connection") or task._parent.connection)
        becomes = variables.get("ansible_become")
        method = None
        if task.become if becomes is None else boolean(templar.template(becomes)):
            method = templar.template(variables.get("ansible_become_method") or task.become_method)
        connection, become = host_connection.opened(kind, method, variables, templar, task.dump_attrs(), context)
        pythons = _pythons(variables, templar)
        return _Host(
            name,
            connection,
            agent_code.command(tuple(pythons)),
            agent_code.NO_PYTHON.format(pythons[0]),
            become is not None and _other_user(connection, become, context),
        )


def is_silent(answer: Answer) -> bool:
    """Tell whether this is the reason for a missing answer."""
    return bool(answer.get("failed") or answer.get("unreachable"))


def _limit_pattern(limit: str) -> str:
    """Return --limit as a pattern of hosts, with the contents of files that it names with @."""
    parts = [
        part
        for each in split_host_pattern(limit)
        for part in (Path(each[1:]).read_text(encoding="utf-8").split() if each.startswith("@") else [each])
    ]
    return ",".join(parts)


def _other_user(connection: Any, become: Any, context: PlayContext) -> bool:
    """Tell whether become changes the user, as Ansible decides it."""
    here = context.remote_user
    with contextlib.suppress(KeyError):
        here = connection.get_option("remote_user") or here
    if connection.transport == "local" and not here:
        here = getattr(connection, "default_user", None)
    there = become.get_option("become_user", playcontext=context)
    return bool(C.BECOME_ALLOW_SAME_USER or here != there or not (here or there))


def _pythons(variables: Mapping[str, Any], templar: Any) -> list[str]:
    """Return the Pythons to try on a host: the named one, or those that Ansible would try."""
    named = str(
        templar.template(
            variables.get("ansible_python_interpreter")
            or C.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        )
    )
    if named not in ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent"):
        return [named]
    found: Sequence[str] = C.config.get_config_value("INTERPRETER_PYTHON_FALLBACK", variables=variables)
    return [str(templar.template(each)) for each in found]


def _visit(host: _Host, question: str, shared: bytes, own: Mapping[str, Any], limit_s: float) -> Answer:
    """Query one host; send the agent if it is missing there."""
    for with_agent in (False, True):
        mark = f"trainyard-{secrets.token_hex(8)}"
        message = agent_code.message(mark, question, shared, own, limit_s, with_agent)
        sent = time.time()
        try:
            status, printed, errors = _execute(host, message)
        except AnsibleError as error:
            return _failed(error)
        too_much = agent_code.too_much(question, printed)
        if too_much:
            return {"failed": True, "msg": too_much}
        answer, before = agent_code.read(mark, printed)
        if answer is None and status == _NO_COMMAND and host.no_python in errors:
            return {"failed": True, "msg": host.no_python, "rc": status}
        if answer is None or unreachable.brace_before(before):
            return {
                "failed": True,
                "msg": unreachable.UNREADABLE,
                "module_stdout": "\n".join(before if answer is None else [*before, "{"]),
                "module_stderr": errors,
                "rc": status,
            }
        if not answer.pop("agent_missing", False):
            answer = checked(question, answer, host.name)
            if "clock" in answer:
                answer["clock"] = of_visit(sent, time.time(), **answer["clock"])
            return answer
    return {"failed": True, "msg": "the agent that answers queries there can neither be kept nor read"}


def _failed(error: AnsibleError) -> Answer:
    if isinstance(error, AnsibleConnectionFailure):
        return {"unreachable": True, "msg": str(error)}
    return {"failed": True, "msg": f"Task failed: {error}"}


def _clock(host: _Host) -> Answer:
    def read() -> tuple[str, str]:
        _, printed, errors = host.connection.exec_command(f"/bin/sh -c {shlex.quote(CLOCK)}", sudoable=False)
        return printed.decode(errors="replace"), errors.decode(errors="replace")

    try:
        return read_clock(read)
    except AnsibleError as error:
        return _failed(error)


def _execute(host: _Host, message: bytes) -> tuple[int, bytes, str]:
    connection, command = host.connection, host.command
    if host.become:
        command = connection.become.build_become_command(command, connection._shell)
    if connection.allow_executable:
        command = f"/bin/sh -c {shlex.quote(command)}"
    status, printed, errors = connection.exec_command(command, in_data=message, sudoable=host.become)
    return status or 0, printed, agent_code.beside(errors)


def side_by_side(
    hosts: Iterable[_Host], visit: Callable[[_Host], Answer], window: int, limit_s: float, step: str | None
) -> dict[str, Answer]:
    """Visit all hosts, `window` at a time, each for at most `limit_s` seconds; return the answers by host.

    Processes of a visit are killed when its time is over. A thread that does not return even then is abandoned, and
    another one replaces it. Progress of the `step` is shown when it has changed, every few seconds.
    """
    waiting = deque(hosts)
    names = [host.name for host in waiting]
    total, shown = len(names), ""
    done: queue.Queue[tuple[str, Answer]] = queue.Queue()
    # By host: its thread, and the end of its time.
    under_way: dict[str, tuple[int, float]] = {}
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                host = waiting.popleft()
                under_way[host.name] = threading.get_native_id(), time.monotonic() + limit_s
            try:
                answer = visit(host)
            except Exception as error:
                answer = {"failed": True, "msg": f"{type(error).__name__}: {error}"}
            late = host.name not in under_way
            done.put((host.name, answer))
            if late:
                return

    def more() -> None:
        threading.Thread(target=work, daemon=True).start()

    for _ in range(min(window, total)):
        more()
    answers: dict[str, Answer] = {}
    silent: set[str] = set()
    shown_at = time.monotonic()
    while len(answers) < total:
        with contextlib.suppress(queue.Empty):
            name, answer = done.get(timeout=1.0)
            under_way.pop(name, None)
            if answers.setdefault(name, answer).get("unreachable"):
                silent.add(name)
        now = time.monotonic()
        for name, (thread, until) in list(under_way.items()):
            if until < now:
                answers[name] = {"failed": True, "msg": f"no answer within {limit_s:g} s"}
                silent.add(name)
                del under_way[name]
                _kill(_children(thread))
                more()
        if step and total > 1 and now - shown_at > _PROGRESS_S:
            text = _progress(step, names, answers, len(silent))
            if text != shown:
                display.display(text)
                shown, shown_at = text, now
    return answers


def _progress(step: str, names: Sequence[str], answers: Collection[str], silent: int) -> str:
    """Return the step, how many nodes have answered, and which have not yet."""
    others = f", {silent} gave no answer" if silent else ""
    left = [name for name in names if name not in answers]
    waits = f"; waiting for {host_list(left)}" if left else ""
    return f"  {step}: {len(answers) - silent} of {counted(len(names), 'node')} have answered{others}{waits}"


def end_visits() -> None:
    """Kill the processes of all visits, as nobody waits for them any more."""
    for task in Path("/proc/self/task").iterdir():
        _kill(_children(int(task.name)))


def _children(thread: int) -> Iterator[int]:
    """Return the running processes that a thread of this process has started, and their descendants."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/self/task/{thread}/children").read_text().split():
            yield from _with_descendants(int(child))


def _with_descendants(process: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _with_descendants(int(child))
    yield process


def _kill(processes: Iterable[int]) -> None:
    for process in list(processes):
        # Processes of another user end with the connection.
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
