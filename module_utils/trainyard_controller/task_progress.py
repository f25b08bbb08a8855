# SPDX-License-Identifier: Apache-2.0
"""How far a task is on its hosts: the processes of the task ask for it, and the callback that prints reads it.

Ansible's folder for temporary files, which a command has for itself and removes at its end, has a file for each host.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible import constants as C

from ..trainyard_node.machine.json_files import MAX_STATE, read_json, write_json
from .fan_out import FanOut

# Seconds between two queries, and how long a host may take for an answer.
EVERY_S, LIMIT_S = 4.0, 30.0


def _file(host: str) -> Path:
    return Path(C.DEFAULT_LOCAL_TMP, f"progress-{quote(host, safe='')}.json")


def read(hosts: Collection[str]) -> dict[str, Any]:
    """Return the records of those of the hosts that have one."""
    found = {host: read_json(_file(host), MAX_STATE) for host in hosts}
    return {host: record for host, record in found.items() if record}


@contextlib.contextmanager
def asked(action: Any, variables: Mapping[str, Any], path: str, url: str = "") -> Iterator[None]:
    """Ask the host of a task's action again and again meanwhile how far it is, and keep the answers.

    The task installs into the environment at `path`, or downloads a URL into that folder.
    """
    stop, host = threading.Event(), variables["inventory_hostname"]
    nodes = FanOut(action, variables)

    def ask() -> None:
        last = None
        while not stop.wait(EVERY_S):
            asked_for = {"path": path, "url": url, "last": last}
            last = nodes.ask("progress", {host: asked_for}, limit_s=LIMIT_S)[host].get("progress")
            with contextlib.suppress(OSError):
                write_json(_file(host), last)

    # Ansible's templates are for one thread, so the connection is made here.
    if not action._task.check_mode and not action._task.delegate_to and nodes.ready(host):
        threading.Thread(target=ask, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        _file(host).unlink(missing_ok=True)
