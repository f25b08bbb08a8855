# SPDX-License-Identifier: Apache-2.0
"""The systemd units, or the line for cron, that verify a cluster again and again. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ..base.findings import Finding

# The phases that run no jobs, and so disturb none.
LIGHT = ("software", "drift", "reach", "devices", "counters")


def unit_name(cluster: str) -> str:
    """Return the name of the units of a cluster, without their ending."""
    return f"trainyard-verify-{re.sub('[^A-Za-z0-9_.-]', '-', cluster)[:100]}"


def findings(user: str, weak: str, systemd: bool) -> list[Finding]:
    """Return what prevents the schedule: a place that others can change (`weak`, "" for none), or no `systemd`."""
    found = []
    if weak:
        expected = f"files that only {user} and root can change, as nobody watches what is run"
        action = "take the rights of others away (namei -l shows the owners; chmod go-w), or move it"
        found.append(Finding("schedule", f"{weak} can be changed by others", expected, action))
    if not systemd:
        action = "have the line for cron printed: -e trainyard_become=false"
        found.append(Finding("schedule", "no systemd on this controller", "systemd", action))
    return found


def units(name: str, user: str, folder: str, command: str, every: str) -> dict[str, str]:
    """Return the files of the service, which runs a command (quoted for systemd) in a folder, and of its timer."""
    # One that hangs ends; meanwhile systemd starts no second one beside it.
    service = f"""[Unit]
Description={name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={user}
WorkingDirectory={folder.replace("%", "%%")}
Environment=LANG=C.UTF-8
ExecStart={command}
TimeoutStartSec=6h
"""
    # A controller that was off at that time verifies when it is on again.
    timer = f"[Timer]\nOnCalendar={every}\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n"
    return {f"{name}.service": service, f"{name}.timer": f"[Unit]\nDescription={name}\n\n{timer}"}


def cron_line(folder: str, command: Sequence[str], every: str) -> str:
    """Return the line of a crontab, in which % has a meaning (crontab(5))."""
    return f"@{every} cd {shlex.quote(folder)} && {shlex.join(command)} >/dev/null".replace("%", "\\%")
