# SPDX-License-Identifier: Apache-2.0
"""The environment of the training user's ssh sessions, composed of the pieces of several roles.

sshd takes the first SetEnv line that applies to a user and ignores all others, in any file, so two roles cannot both
set PATH. Therefore one file holds the pieces of all roles as comments, and one SetEnv line that combines them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..base.shapes import Each, misfit
from ..base.state_format import loads

_MARK = "# piece "
# The PATH that sshd on Debian and Red Hat gives a session without a login shell.
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_HEAD = (
    "# Ansible managed: the environment of ssh sessions of the training user.\n"
    "# sshd takes the first SetEnv line only, so the one below combines the pieces of all roles.\n"
)

Piece = Mapping[str, Any]
_PIECE = {"?path": [str], "?libraries": [str], "?variables": Each(str)}


def read_pieces(text: str | None) -> dict[str, dict[str, Any]]:
    """Return the pieces by name. Raises ValueError for a piece that cannot be read."""
    pieces = {}
    for line in (text or "").splitlines():
        if line.startswith(_MARK):
            name, _, content = line[len(_MARK) :].partition(" ")
            found = loads(content)
            if wrong := misfit(found, _PIECE):
                raise ValueError(f"{name[:60]!r}: {wrong}")
            pieces[name] = found
    return pieces


def quoted(assignment: str) -> str:
    """Return NAME=VALUE as sshd and systemd both read it, in double quotes if it has white space."""
    return f'"{assignment}"' if any(letter.isspace() for letter in assignment) else assignment


def assignments(pieces: Mapping[str, Piece], base: str = _SYSTEM_PATH) -> list[str]:
    """Return NAME=VALUE of all pieces together, in the order of their names: PATH, LD_LIBRARY_PATH, then the others."""
    ordered = [pieces[name] for name in sorted(pieces)]
    folders = {
        name: ":".join(dict.fromkeys(folder for piece in ordered for folder in piece.get(name, [])))
        for name in ("path", "libraries")
    }
    found = [f"PATH={folders['path']}:{base}"] if folders["path"] else []
    found += [f"LD_LIBRARY_PATH={folders['libraries']}"] if folders["libraries"] else []
    variables: dict[str, str] = {}
    for piece in ordered:
        variables.update(piece.get("variables", {}))
    return found + [f"{name}={value}" for name, value in variables.items()]


def render(pieces: Mapping[str, Piece], user: str) -> str:
    """Return the text of the file for sshd_config.d, or "" for no file if there are no pieces."""
    if not pieces:
        return ""
    marks = [f"{_MARK}{name} {json.dumps(pieces[name], sort_keys=True)}\n" for name in sorted(pieces)]
    return f"{_HEAD}{''.join(marks)}Match User {user}\n    SetEnv {' '.join(map(quoted, assignments(pieces)))}\n"


def effective(text: str) -> dict[str, str]:
    """Return the variables that `sshd -T` shows, one or several in each line `setenv NAME=VALUE`."""
    found = {}
    for line in text.splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword.lower() == "setenv":
            # Split at white space outside double quotes.
            for assignment in re.findall(r'(?:"[^"]*"?|[^\s"])+', rest):
                name, _, value = assignment.replace('"', "").partition("=")
                found[name] = value
    return found


def fault(piece: Piece) -> str:
    """Return what of a piece would end its assignment or its line in sshd's file; "" for none."""
    variables = piece.get("variables") or {}
    wrong = [str(name) for name in variables if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name))]
    values = [*(piece.get("path") or ()), *(piece.get("libraries") or ()), *variables.values()]
    wrong += [str(value) for value in values if re.search(r'[\x00-\x1f\x7f"]', str(value))]
    return f"{wrong[0][:100]!r} may not stand in SetEnv" if wrong else ""


def rewrite(text: str, user: str, name: str, piece: Mapping[str, Any]) -> str:
    """Return the file with this piece (path, libraries, variables) as `name`, or without it if the piece is empty.

    Raises ValueError where a piece in the text cannot be read, or this one cannot be written.
    """
    if wrong := fault(piece):
        raise ValueError(wrong)
    pieces = read_pieces(text)
    pieces.pop(name, None)
    filled = {key: piece[key] for key in ("path", "libraries", "variables") if piece.get(key)}
    if filled:
        pieces[name] = filled
    return render(pieces, user)
