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
def asked(nodes: FanOut, host: str, question: str, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Have a host answer a question again and again meanwhile, and keep `progress` of the answers."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(EVERY_S):
            record = nodes.ask(question, {host: arguments}, limit_s=LIMIT_S)[host].get("progress")
            with contextlib.suppress(OSError):
                write_json(_file(host), record)

    # Ansible's templates are for one thread, so the connection is made here.
    if nodes.ready(host):
        threading.Thread(target=ask, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        _file(host).unlink(missing_ok=True)
