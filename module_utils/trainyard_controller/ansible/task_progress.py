# SPDX-License-Identifier: Apache-2.0
"""How far a task is on its hosts: the processes of the task ask for it, and the callback that prints reads it.

Ansible's folder for temporary files, which a command has for itself and removes at its end, has a file for each host.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible import constants as C
from ansible.plugins.action import ActionBase

from ...trainyard_node.machine.json_files import MAX_STATE, read_json, write_json
from ..nodes.fan_out import FanOut

# Seconds between two queries, and how long a host may take for an answer.
EVERY_S, LIMIT_S = 4.0, 30.0


def _file(host: str) -> Path:
    return Path(C.DEFAULT_LOCAL_TMP, f"progress-{quote(host, safe='')}.json")


def read(hosts: Collection[str]) -> dict[str, Any]:
    """Return the records of those of the hosts that have one."""
    found = {host: read_json(_file(host), MAX_STATE) for host in hosts}
    return {host: record for host, record in found.items() if record}


def forget() -> None:
    """Remove the records of the last task."""
    with contextlib.suppress(OSError):
        for file in Path(C.DEFAULT_LOCAL_TMP).glob("progress-*.json"):
            file.unlink(missing_ok=True)


def guard() -> None:
    """Ask hosts from now on how far their modules are, also in the processes of tasks.

    Ansible has no other place for that: its own actions call its modules for packages and commands.
    """
    raw = ActionBase._execute_module
    if getattr(raw, "asks", False):
        return

    @functools.wraps(raw)
    def execute(self: Any, module_name: Any = None, module_args: Any = None, *others: Any, **options: Any) -> Any:
        stop = threading.Event()
        # The task runs also where nobody can be asked.
        with contextlib.suppress(Exception):
            _ask(self, module_name or self._task.action, module_args or self._task.args, options["task_vars"], stop)
        try:
            return raw(self, module_name, module_args, *others, **options)
        finally:
            # A background task goes on, and this process waits for it.
            if not self._task.async_val:
                stop.set()

    execute.asks = True  # type: ignore[attr-defined]
    ActionBase._execute_module = execute


def subject(module: str, given: Mapping[str, Any], is_long: bool) -> tuple[str, dict[str, str]] | None:
    """Return the kind of a module's work and what to ask for (trainyard_node/software/program_progress.py), or None.

    `is_long` is true for a task in the background.
    """
    name = module.rpartition(".")[2]
    if name == "apt" or (name == "nvidia_repository" and given.get("step") == "install"):
        return "packages", {}
    if name == "python_environment":
        return "environment", {"path": str(given.get("path", ""))}
    if name == "get_url" and given.get("tmp_dest"):
        return "download", {"path": str(given["tmp_dest"]), "url": str(given.get("url", ""))}
    if name == "command" and is_long and given.get("chdir"):
        return "build", {"path": str(given["chdir"])}
    argv = given.get("argv") or []
    if name == "command" and argv[:3] == ["dkms", "install", "-m"]:
        return "build", {"path": f"/var/lib/dkms/{argv[3]}/{argv[5]}/build"}
    if name == "framework_image":
        path = (given.get("environment") or {}).get("path", "")
        return "image", {"path": str(path), "file": str(given.get("file", ""))}
    return None


def _ask(
    action: Any, module: str, given: Mapping[str, Any], variables: Mapping[str, Any], stop: threading.Event
) -> None:
    """Ask the host of a task's action again and again how far it is, and keep the answers, until the event is set."""
    task, host = action._task, variables["inventory_hostname"]
    found = subject(module, given, bool(task.async_val))
    if not found or task.check_mode or task.delegate_to:
        return
    kind, arguments = found
    nodes = FanOut(action, variables)

    def ask() -> None:
        last = None
        while not stop.wait(EVERY_S):
            asked_for = {"kind": kind, "arguments": arguments, "last": last}
            last = nodes.ask("progress", {host: asked_for}, limit_s=LIMIT_S)[host].get("progress")
            with contextlib.suppress(OSError):
                write_json(_file(host), last)

    # Ansible's templates are for one thread, so the connection is made here.
    if nodes.ready(host):
        threading.Thread(target=ask, daemon=True).start()
