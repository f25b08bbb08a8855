# SPDX-License-Identifier: Apache-2.0
"""Write commands that people paste into a shell; `inventory` is the text of inventory_options()."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

# A text that `-e name=value` hands over as it is. Others go as JSON, which also keeps lists, numbers and blanks.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
# `trainyard.cluster` in the collection that `make collection` builds, "" in a checkout.
COLLECTION = ".".join(__name__.split(".")[1:3]) if __name__.startswith("ansible_collections.") else ""
# With more hosts, the command names the group `compute`.
_MAX_HOSTS = 20


def ansible(hosts: Sequence[str], inventory: str, module: str, arguments: str = "", *, become: bool = False) -> str:
    """Write `ansible HOSTS -i INVENTORY -m MODULE -a ARGUMENTS`."""
    pattern = ",".join(hosts) if 0 < len(hosts) <= _MAX_HOSTS else "compute"
    words = ["ansible", shlex.quote(pattern), inventory, "-b" if become else "", "-m", module]
    return " ".join(filter(None, [*words, f"-a {shlex.quote(arguments)}" if arguments else ""]))


def without_root(record: Any) -> Any:
    """Return a record with these commands as they are for hosts on which Ansible does not become root."""
    if isinstance(record, dict):
        return {name: without_root(value) for name, value in record.items()}
    if isinstance(record, list):
        return [without_root(value) for value in record]
    return record.replace(" -b -m ", " -m ") if isinstance(record, str) else record


def shell(hosts: Sequence[str], inventory: str, line: str, *, become: bool = False) -> str:
    """Write the ad-hoc command that runs a shell line on hosts."""
    return ansible(hosts, inventory, "ansible.builtin.shell", line, become=become)


def from_here(path: str, here: str) -> str:
    """Return a path relative to the folder `here` where it is inside, otherwise as it is."""
    return path.removeprefix(here.rstrip("/") + "/")


def inventory_options(sources: Iterable[str]) -> str:
    """Write inventories as options: `-i inventories/mine`."""
    return " ".join(f"-i {shlex.quote(source)}" for source in sources)


def extra_vars(variables: Mapping[str, Any]) -> str:
    """Write variables as options `-e`, so that Ansible gets the values that they have here."""
    plain = {name: value for name, value in variables.items() if isinstance(value, str) and _PLAIN.fullmatch(value)}
    others = {name: value for name, value in variables.items() if name not in plain}
    words = [
        *(f"{name}={value}" for name, value in plain.items()),
        *([shlex.quote(json.dumps(others))] if others else []),
    ]
    return " ".join(f"-e {word}" for word in words)


def playbook(book: str, inventory: str, variables: Mapping[str, Any] | None = None, *, limit: str = "") -> str:
    """Write `ansible-playbook BOOK -i INVENTORY --limit LIMIT -e NAME=VALUE`."""
    book = f"{COLLECTION}.{PurePosixPath(book).stem}" if COLLECTION else book
    limited = f"--limit {shlex.quote(limit)}" if limit else ""
    words = ["ansible-playbook", shlex.quote(book), inventory, limited, extra_vars(variables or {})]
    return " ".join(filter(None, words))
