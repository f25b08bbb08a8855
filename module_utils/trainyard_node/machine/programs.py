# SPDX-License-Identifier: Apache-2.0
"""Decide with whose rights root runs a program that is named by its path: never its own if others can exchange it.

A request or an inventory may name a Python or a compiler anywhere, such as a conda of a user.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import as_user
from .as_user import Owner
from .private import Place, weak_place

# The overflow user and group of the kernel, which own nothing.
NOBODY = 65534
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Upper bound for pyvenv.cfg, in bytes.
_MAX_BYTES = 64 << 10


def weak(program: str) -> Place | None:
    """Return what others than root can exchange of a program: itself, a link or folder on its way, or its packages.

    It is None for users other than root, who have no rights to lose, and where there is no such program.
    """
    found = program if "/" in program else shutil.which(program)
    if os.geteuid() or found is None:
        return None
    try:
        return next(filter(None, map(weak_place, _loaded(Path(found).absolute()))), None)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        # A user's file system may shut root out.
        return Place(Path(found), NOBODY, 0)


def weak_folder(folder: Path) -> Place | None:
    """Return what others than root can exchange of a folder, or of the one in which it is to be made."""
    if os.geteuid():
        return None
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    place = weak_place(there)
    if place is None and there != folder and there.stat().st_mode & stat.S_IWOTH:
        # In a sticky folder anybody may make it first.
        return Place(there, 0, there.stat().st_mode)
    return place


def _loaded(program: Path) -> Iterator[Path]:
    """Yield a program, and from where it would load code if it is a Python: its packages, and those of its venv."""
    yield program
    for prefix in dict.fromkeys((program.parent.parent, program.resolve().parent.parent)):
        config = prefix / "pyvenv.cfg"
        if config.exists():
            yield config
            with config.open(encoding="utf-8", errors="replace") as file:
                home = re.search(r"^\s*home\s*=\s*(/\S.*?)\s*$", file.read(_MAX_BYTES), re.MULTILINE)
            if home and Path(home[1]).exists():
                yield Path(home[1])
        for library in ("lib", "lib64"):
            for folder in (prefix / library).glob("python3*"):
                yield folder
                yield from folder.glob("*-packages")


def rights(program: str) -> Owner | None:
    """Return whose rights root gives a program: its own (None), or those of the user who can exchange it.

    A program of root that anybody can write gets those of nobody.
    """
    place = weak(program)
    if place is None:
        return None
    owner = as_user.owner_of(place.path) if place.uid not in (0, NOBODY) else None
    return owner if owner and owner.uid else Owner(NOBODY, NOBODY, [])


def settings(program: str) -> dict[str, Any]:
    """Return the arguments of subprocess for a program: none for one of root's, else a user and a bare environment."""
    owner = rights(program)
    if owner is None:
        return {}
    return {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups, "cwd": "/", "env": bare(owner.uid)}


def english(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment, by default our own, in which a program prints English, so that its output can be read."""
    # LANGUAGE goes before LC_ALL unless that is C, with which some programs print no umlaut.
    return {**(os.environ if env is None else env), "LC_ALL": "C.UTF-8", "LANGUAGE": ""}


def bare(uid: int) -> dict[str, str]:
    """Return the environment for a program of a user, without anything of root's."""
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        home = "/"
    return {"PATH": _PATH, "HOME": home, "LC_ALL": "C.UTF-8"}
