#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm's HealthCheckProgram on a node: drain it when it is sick, resume it when it is well again.

Only what this program drained itself is resumed: its reasons begin with `trainyard:`. slurmd runs it as root.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

SIGN = "trainyard:"
SETTINGS = "/etc/trainyard-slurm-health.json"


def call(*argv):
    """Return exit status and output of a command; 127 where there is none."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return 127, ""
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout


def this_node():
    """Return Slurm's name of this node and its record."""
    name = os.environ.get("SLURMD_NODENAME", "")
    if not name:
        _, said = call("scontrol", "show", "aliases", socket.gethostname().split(".")[0])
        name = said.split()[0] if said.split() else socket.gethostname().split(".")[0]
    status, record = call("scontrol", "show", "node", name, "-o")
    return name, record if status == 0 else ""


def problems(settings, record):
    """Return what is wrong with the node, each in a few words."""
    found = []
    room = os.statvfs(settings["folder"])
    free = room.f_bavail * room.f_frsize >> 20
    if free < settings["min_disk_mib"]:
        found.append(f"{free} MiB free in {settings['folder']}")
    if room.f_flag & os.ST_RDONLY:
        found.append(f"{settings['folder']} is read-only")
    gpus = re.search(r"\bGres=\S*?gpu:(?:[^:,( ]+:)?(\d+)", record)
    if gpus:
        status, said = call("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
        there = len(said.split()) if status == 0 else 0
        if status == 124:
            found.append("nvidia-smi hangs")
        elif there < int(gpus[1]):
            found.append(f"{there} of {gpus[1]} GPUs answer")
    return found


def main():
    """Check the node, and tell Slurm where that changes anything."""
    settings = json.loads(Path(SETTINGS).read_text())
    name, record = this_node()
    if not record:
        return 0
    drained = "DRAIN" in re.search(r"\bState=(\S*)", record)[1]
    reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\])?(?: Comment=.*)?$", record.strip())
    ours = drained and reason is not None and reason[1].startswith(SIGN)
    found = problems(settings, record)
    if found and not drained:
        call("scontrol", "update", "nodename=" + name, "state=drain", f"reason={SIGN} {'; '.join(found)}")
    elif not found and ours:
        call("scontrol", "update", "nodename=" + name, "state=resume")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
