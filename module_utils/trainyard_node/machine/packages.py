# SPDX-License-Identifier: Apache-2.0
"""Find missing packages of the operating system. No package list is fetched for it."""

from __future__ import annotations

from collections.abc import Sequence

from .tree import Tree

_TIMEOUT_S = 60.0


def missing_packages(tree: Tree, manager: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` that are not installed; `manager` is Ansible's fact pkg_mgr.

    A name with a version or an architecture counts as missing, as do all where the packages cannot be listed.
    """
    if not names:
        return []
    if manager == "apt":
        query = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", "--", *names]
    else:
        query = ["rpm", "--query", "--queryformat", "%{NAME} installed\n", "--", *names]
    answer = tree.command(query[0], query, _TIMEOUT_S)
    lines = answer.output.splitlines() if answer else []
    return [name for name in names if f"{name} installed" not in lines]
