# SPDX-License-Identifier: Apache-2.0
"""Names of users and groups by their numbers, also from a directory service (NSS)."""

from __future__ import annotations

import grp
import pwd


def user_name(uid: int) -> str:
    """Return the name of a user, "" where the number has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def group_name(gid: int) -> str:
    """Return the name of a group, "" where the number has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
