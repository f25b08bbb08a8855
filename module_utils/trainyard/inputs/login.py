# SPDX-License-Identifier: Apache-2.0
"""The cluster's defaults on hosts where Ansible does not become root: all belongs to the user who logs in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

# A shell's question and the line that answers it. It has no newline and no `!`, as the login shell may be csh.
QUERY = 'printf "trainyard-login:%s:%s:%s\\n" "$(id -un)" "$(id -u)" "$HOME"'
# The home becomes part of paths; a host must not be able to write a template into them.
_ANSWER = re.compile(
    r"^trainyard-login:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,254}\$?):(?P<uid>[0-9]{1,10}):"
    r"(?P<home>/[^\x00-\x1f\x7f:{}]{0,1000})\r?$",
    re.MULTILINE,
)
# Which values of the login these variables have; the others follow from them.
_ASKED = ("trainyard_user", "trainyard_uid", "trainyard_root", "trainyard_manage_system")


class Login(NamedTuple):
    """The user who logs in on the hosts; `uid` is -1 where no host answered."""

    user: str
    uid: int
    home: str


def read(printed: str) -> Login | None:
    """Return the login that a host printed, None where it printed no valid one."""
    match = _ANSWER.search(printed)
    return Login(match["user"], int(match["uid"]), match["home"].rstrip("/")) if match else None


def needed(given: Mapping[str, Any]) -> bool:
    """Tell whether a default depends on the login; `given` are the variables that the user has written."""
    return any(name not in given for name in _ASKED)


def defaults(login: Login) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of variables, and templates of others, that hold where nobody has written them."""
    values = {
        "trainyard_manage_system": False,
        "trainyard_user": login.user,
        **({"trainyard_uid": login.uid} if login.uid >= 0 else {}),
        "trainyard_root": f"{login.home}/.local/share/trainyard",
        # Environments bring their own CUDA. The driver is the administrator's, and only verified.
        "trainyard_nvidia": ["nvidia_driver"],
        "nvidia_driver_provider": "none",
    }
    templates = {
        # A disk of the host is faster than the home, and its locks and space are its own.
        "trainyard_state": "/var/tmp/trainyard-{{ trainyard_user | regex_replace('[^A-Za-z0-9_.@-]', '_') }}",  # noqa: S108
        # Hosts may share trainyard_state, and each has records of its own.
        "trainyard_records": "{{ trainyard_state }}/records/{{ inventory_hostname }}",
    }
    return values, templates
