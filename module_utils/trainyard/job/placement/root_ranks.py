# SPDX-License-Identifier: Apache-2.0
"""Find ranks that would run as root: a job is other people's code."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.findings import Finding, Warned
from .placement import Member

_ROOT = ("root", "0")
_EXPECTED = "an ordinary user, as a job is other people's code"


def findings(user: str, becomes: bool) -> list[Finding]:
    """Find that Ansible would become root to start ranks as root."""
    if user not in _ROOT or not becomes:
        return []
    return [Finding("trainyard_user", user, _EXPECTED, "name the training user; site.yml makes it on every node")]


def warnings(user: str, members: Sequence[Member]) -> list[Warned]:
    """Return a warning for each host on which we are root already, and start ranks as root."""
    action = "call ansible-playbook as an ordinary user (over ssh: log in as one, with ansible_user)"
    as_root = [member.host for member in members if member.facts and member.facts.get("uid") == 0]
    return [Warned("ranks' user", "root", _EXPECTED, action, host=host) for host in as_root if user in _ROOT]
