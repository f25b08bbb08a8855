#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one more node costs the controller over real ssh: many sshd on this machine, each a node; prints JSON.

ssh_cost.py 8 48            CPU seconds of a playbook that asks 8 and 48 nodes what a job's plan needs of them

A visit to a node whose connection is open is told apart from one that has to log in first, by ssh's own key exchange
and by the cheaper one (curve25519, docs/architecture.md). CPU is that of ansible-playbook and of all ssh clients, those
that keep connections too; sshd and what it starts are the nodes' own.
"""

from __future__ import annotations

import ctypes
import getpass
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scale import PROJECT, cpu_seconds

PR_SET_CHILD_SUBREAPER = 36
SSHD = Path("/usr/sbin/sshd")
PLAY = [
    {
        "name": "Ask",
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {
                "name": "Ask",
                "fan_out": {
                    "question": "probe",
                    "hosts": "{{ groups['compute'] }}",
                    "shared": {
                        "venv": None, "packages": [], "user": getpass.getuser(),
                        "mpi_prefix": "/nowhere",
                    },
                    "required": True,
                },
            }
        ],
    }
]  # fmt: skip


def keys(folder: Path) -> None:
    """Make the nodes' host key and the controller's key."""
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def nodes(folder: Path, count: int) -> Iterator[list[int]]:
    """Run this many sshd on ports of loopback; yields the ports."""
    if not SSHD.exists():
        raise SystemExit(f"{SSHD} is not here; expected: a server for ssh. Install it: apt-get install openssh-server")
    Path("/run/sshd").mkdir(exist_ok=True)
    running, ports = [], []
    for _ in range(count):
        ports.append(free_port())
        options = {
            "HostKey": folder / "host", "AuthorizedKeysFile": folder / "mine.pub", "StrictModes": "no",
            "UsePAM": "no", "PidFile": "none", "ListenAddress": f"127.0.0.1:{ports[-1]}", "MaxStartups": 100,
        }  # fmt: skip
        argv = [str(SSHD), "-D", "-q", "-f", "/dev/null"]
        argv += [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        running.append(subprocess.Popen(argv))
    try:
        for port in ports:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
        yield ports
    finally:
        for sshd in running:
            sshd.terminate()


def masters(folder: Path) -> list[int]:
    """Return the process ids of the ssh clients that keep connections for runs with this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"ssh: ") and str(folder / "cp").encode() in line:
                found.append(int(entry.name))
    return found


def visit(folder: Path, count: int) -> float:
    """Run the playbook over this many nodes; returns CPU seconds of it, and of all ssh clients."""
    before = sum(map(cpu_seconds, masters(folder)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = ["ansible-playbook", "-i", str(folder / f"{count}.json"), str(folder / "play.json"), "-f", "50"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=PROJECT, env=environment(folder))
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    clients = sum(map(cpu_seconds, masters(folder))) - before
    return after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime + clients


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of ansible-playbook: the project's settings, and connections in a folder of their own."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    return {**env, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp")}


def hang_up(folder: Path) -> None:
    """End all kept connections."""
    for pid in masters(folder):
        os.kill(pid, signal.SIGTERM)
    while masters(folder):
        time.sleep(0.05)


def measure(few: int, many: int) -> dict[str, Any]:
    """Return CPU seconds for `few` and `many` nodes, and milliseconds for each further one."""
    # ssh clients that keep connections leave their parent: this process becomes it, so none outlives it unseen.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A short path, as that of a socket has 108 bytes at most.
    with tempfile.TemporaryDirectory(prefix="ssh-", dir="/tmp") as name:
        folder = Path(name)
        keys(folder)
        (folder / "play.json").write_text(json.dumps(PLAY))
        found: dict[str, Any] = {"nodes": [few, many]}
        with nodes(folder, many) as ports:
            known = (folder / "host.pub").read_text().split()[:2]
            (folder / "known").write_text("".join(f"[127.0.0.1]:{port} {' '.join(known)}\n" for port in ports))
            for exchange, extra in (("ssh's own", ""), ("curve25519", " -o KexAlgorithms=curve25519-sha256")):
                for count in (few, many):
                    hosts = {f"n{number}": {"ansible_port": port} for number, port in enumerate(ports[:count])}
                    shared = {
                        "ansible_host": "127.0.0.1", "ansible_python_interpreter": "/usr/bin/python3",
                        "ansible_ssh_private_key_file": str(folder / "mine"),
                        "ansible_ssh_extra_args": f"-F none -o UserKnownHostsFile={folder}/known{extra}",
                    }  # fmt: skip
                    inventory = {"compute": {"hosts": hosts, "vars": shared}}
                    (folder / f"{count}.json").write_text(json.dumps(inventory))
                # Ansible's own caches, and the agent on the node.
                visit(folder, few)
                costs = {}
                for count in (few, many):
                    hang_up(folder)
                    costs[count] = {"new": visit(folder, count), "open": visit(folder, count)}
                hang_up(folder)
                found[exchange] = {
                    kind: {
                        "CPU s": [round(costs[count][kind], 2) for count in (few, many)],
                        "ms per node": round(1000 * (costs[many][kind] - costs[few][kind]) / (many - few), 1),
                    }
                    for kind in ("new", "open")
                }
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
