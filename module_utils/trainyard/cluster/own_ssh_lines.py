# SPDX-License-Identifier: Apache-2.0
"""Logins among hosts by a user's own key, where nobody may change the settings of sshd.

Lines of ours in the user's files end with a mark, by which they are replaced and removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.shapes import Is
from .ssh_mesh import PRINCIPAL
from .ssh_names import declared_names

# The files in ~/.ssh with lines of ours. By its own defaults ssh reads the second one beside known_hosts.
AUTHORIZED, KNOWN = "authorized_keys", "known_hosts2"
# A public key without its comment. A host must not be able to add options or another line.
_KEY = re.compile(r"(?:ssh-|ecdsa-|sk-)[a-z0-9@.-]{1,60} [A-Za-z0-9+/]{40,16000}={0,3}")


def key(value: Any) -> None:
    """a public key without comment"""
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise ValueError(value)


# The answer of the module own_ssh, and how the inventory names the host (ssh_names.NAMED_BY).
ANSWER = {
    "?__ssh_mesh_own": {"?user_key": (key, Is(("",))), "?host_keys": [key]},
    "?ansible_host": object,
    "?ssh_mesh_extra_principals": object,
}


def mark(cluster: str) -> str:
    """Return the last word of each line of ours."""
    return f"trainyard:{cluster}"


def lines(nodes: Sequence[Mapping[str, Any]], cluster: str) -> dict[str, list[str]]:
    """Return the lines that every host has for the logins from all of them, by file.

    A host vouches only for the names that the inventory gives it.
    """
    names, end = declared_names(nodes), mark(cluster)
    answers = {str(node["name"]): node.get("__ssh_mesh_own") or {} for node in nodes}
    known = [
        f"{','.join(name for name in names[host] if PRINCIPAL.fullmatch(name))} {each} {end}"
        for host, answer in answers.items()
        for each in answer.get("host_keys", ())
    ]
    keys = dict.fromkeys(answer["user_key"] for answer in answers.values() if answer.get("user_key"))
    return {AUTHORIZED: [f"{each} {end}" for each in keys], KNOWN: sorted(known)}


def with_lines(text: str, own: Iterable[str]) -> str:
    """Return the text of a file with lines of ours: those that are there by themselves are not repeated.

    A line of ours for the same hosts and kind of key is replaced; other lines stay.
    """
    there, new = text.splitlines(), list(own)
    without = {line: line.rpartition(" ")[0] for line in new}
    heads = {line.rpartition(" ")[2]: set[str]() for line in new}
    for line in new:
        heads[line.rpartition(" ")[2]].add(_head(line))
    kept = [line for line in there if line in new or _head(line) not in heads.get(line.rpartition(" ")[2], ())]
    # Those of another cluster go with it.
    bare = [line for line in kept if not line.rpartition(" ")[2].startswith(mark(""))]
    missing = [line for line in new if line not in kept and not any(without[line] in each for each in bare)]
    if kept == there and not missing:
        return text
    return "".join(f"{line}\n" for line in [*kept, *missing])


def _head(line: str) -> str:
    """Return the hosts and the kind of key of a line of known hosts; a line of an authorized key itself."""
    words = line.split()
    return " ".join(words[:2]) if len(words) > 3 else line
