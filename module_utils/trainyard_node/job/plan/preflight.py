# SPDX-License-Identifier: Apache-2.0
"""Preflight: find what would stop a job on this node. Read-only; every problem becomes a finding."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from ....trainyard.findings.findings import Finding
from ...cluster.ssh_logins import reach
from ...machine import as_user
from ...machine.as_user import JobError
from ...machine.tree import open_file
from ..run import folders, processes
from . import imports

Spec = dict[str, Any]
# A first packet that is lost is sent again after 1 s, a second one after 2 s more.
CONNECT_TIMEOUT_S = 10
# Each login goes to another node, so no server's limit on new connections is met.
SSH_PARALLEL = 32
# How long a Python may take to say whether it has a package, and its status where it has none.
PYTHON_S, _NOT_FOUND = 20, 3
# Looks for the file of a module in its package: find_spec would import the package.
_FIND = f"""
import importlib.util, os, sys
package, *rest = sys.argv[1].split(".")
found = importlib.util.find_spec(package)
if found and rest:
    places = found.submodule_search_locations or ()
    found = any(os.path.exists(os.path.join(place, *rest) + ".py") for place in places)
sys.exit(0 if found else {_NOT_FOUND})
"""
# By launcher: the framework that brings what starts the ranks, and from which release on.
_BRINGS = {
    "torchrun": ("pytorch", "PyTorch"),
    "msrun": ("mindspore", "MindSpore 2.3 or newer"),
    "oneflow": ("oneflow", "OneFlow 0.5 or newer"),
}
# What lies here is the distribution's: updates differ from node to node and change no result.
_OF_THE_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/")
# Programs and scripts are compared up to this size, in bytes, and so long are all of them read, in seconds.
MOST_PROGRAM, PROGRAMS_S = 1 << 30, 60.0
_PROC = Path(processes.PROC)


def owner_of_port(port: int, proc: Path = _PROC) -> str:
    """Name the process that listens on a TCP port: ` by sshd (pid 12)`, or "" when it is hidden from us."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        sockets |= {f[9] for f in fields if f[1].endswith(f":{port:04X}") and f[3] == "0A"}
    targets = {f"socket:[{inode}]" for inode in sockets}
    for entry in proc.iterdir():
        if entry.name.isdigit() and not targets.isdisjoint(_descriptors(entry)):
            return f" by {processes.command_line(int(entry.name), proc).split(' ')[0]} (pid {entry.name})"
    return ""


def _descriptors(process: Path) -> list[str]:
    """Return what a process has open; nothing if it has ended or is hidden from us."""
    links = []
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                links.append(str(descriptor.readlink()))
    return links


def port_findings(spec: Spec, jobs: Path) -> list[Finding]:
    """Find on the head that the rendezvous or the monitor port is in use, or planned for a job that starts.

    A job that was launched a moment ago may not listen yet.
    """
    others = [folder for folder in folders.of_jobs(jobs) if folder.name != spec["job_id"]]
    held = as_user.in_each(others, folders.held_ports)
    promised = {port: folder.name for folder, ports in held.items() for port in ports}
    findings = []
    for port, what, action in (
        (spec["port"], "rendezvous port", "set job_port: auto, or another port, or end that process"),
        (spec["monitor_port"], "monitor port", "start the job again: it takes another port"),
    ):
        found = _taken(spec["head_address"], port)
        if port in promised and not found:
            found = f"{port} is that of job {promised[port]}"
        if found:
            findings.append(Finding(what, found, "a free TCP port on the head node", action, host=spec["host"]))
    return findings


def _taken(address: str, port: int) -> str:
    """Say why nobody can listen there; "" where one can."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"{port} is in use{owner_of_port(port)}"
            return f"{address}:{port} cannot be bound: {error.strerror}"
    return ""


def reach_findings(spec: Spec) -> list[Finding]:
    """On the other nodes: the head's address answers on the rendezvous port.

    Nothing listens there yet, so the answer of a reachable head is `connection refused`; silence is the fault.
    """
    where = f"{spec['head_address']}:{spec['port']}"
    try:
        socket.create_connection((spec["head_address"], spec["port"]), CONNECT_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return []
    except OSError as error:
        # socket.timeout is a TimeoutError from Python 3.10 on only.
        why = (
            f"no answer within {CONNECT_TIMEOUT_S} s"
            if isinstance(error, (TimeoutError, socket.timeout))
            else (error.strerror or str(error))
        )
        return [
            Finding(
                "head",
                f"{where}: {why}",
                f"the head {spec['head_host']} answers on the job's network",
                f"check routes and firewall between {spec['host']} and {spec['head_host']}, or set job_network",
                host=spec["host"],
            )
        ]
    return []


def ssh_findings(spec: Spec, user: str) -> list[Finding]:
    """On the head of a launcher that starts the others by ssh: the training user gets in there, unasked."""
    peers = {peer["address"]: peer["host"] for peer in spec["ssh_peers"]}
    if os.geteuid() != 0:
        # Then the job runs as who we are, too.
        user = pwd.getpwuid(os.geteuid()).pw_name
    where = "the other nodes"
    try:
        attempts = reach(user, list(peers), CONNECT_TIMEOUT_S, SSH_PARALLEL) if peers else []
        failed = [f"{peers[attempt.peer]}: {attempt.reason}" for attempt in attempts if attempt.reason]
    except KeyError:
        return []  # no such user, which is a finding of its own
    except OSError as error:
        failed, where = [f"ssh cannot be started: {error.strerror}"], "the head"
    return [
        Finding(
            "ssh",
            text,
            (
                f"{user} logs in from {spec['host']} to every node by its address on the job's network, without a "
                "password and with a known host key"
            ),
            (
                f"run site.yml (role ssh_mesh) on {where}; an address that ansible_host does not give them belongs "
                "into their ssh_mesh_extra_principals"
            ),
            host=spec["host"],
        )
        for text in failed
    ]


def path_findings(spec: Spec, user: str) -> list[Finding]:
    """The training user, the Python environment, the data and the program of the job exist."""
    host, findings = spec["host"], []
    try:
        pwd.getpwnam(user)
    except KeyError:
        findings.append(Finding("user", f"no user {user}", "the training user", "run site.yml", host=host))
    if spec["venv"] and not Path(spec["venv"], "bin", "python").exists():
        findings.append(
            Finding(
                "python",
                f"no {spec['venv']}/bin/python",
                "the job's virtual environment",
                "run site.yml, or set job_venv",
                host=host,
            )
        )
    findings += [
        Finding(
            "data",
            f"no {path}",
            "the job's data on every node (job_data)",
            "run site.yml with that data set in `dataset_sets`, or correct job_data",
            host=host,
        )
        for path in spec["data"]
        if not Path(path).exists()
    ]
    findings += [
        Finding(
            "program",
            f"no {path}",
            "the script that job_command names by its path, on every node",
            "copy it there, or give the script to job_source, which is sent to all nodes",
            host=host,
        )
        for path in spec["scripts"]
        if not Path(path).is_file()
    ]
    findings += starter_findings(spec, user)
    program, path = spec["program"], spec["program_path"]
    source = spec["source_files"]
    if not shutil.which(program, path=path) and program.replace("./", "", 1) not in source:
        findings.append(
            Finding(
                "program",
                f"no {program} in {path.split(':')[0]} or the system's folders",
                "the program of job_command",
                f"{_install(program, spec['venv'])}, or correct job_command or job_venv",
                host=host,
            )
        )
    elif spec.get("module") and _lacks(program, spec["module"], path, user):
        python = shutil.which(program, path=path)
        findings.append(
            Finding(
                "program",
                f"no module {spec['module']} for {python}",
                "the module that job_command runs with -m, installed or in job_source",
                f"install it ({python} -m pip install {spec['module']}), or correct job_command or job_venv",
                host=host,
            )
        )
    return findings


def _install(program: str, venv: str) -> str:
    """Say how a program gets there."""
    return f"install it ({venv}/bin/python -m pip install pytest)" if venv and program == "pytest" else "install it"


def _lacks(python: str, module: str, path: str, user: str) -> bool:
    """Tell whether a Python surely finds no such module. The training user asks it: what it runs is the user's."""
    program = shutil.which(python, path=path)
    try:
        status = as_user.run(as_user.named(user), _status, [program or python, "-c", _FIND, module])
    except (JobError, OSError):
        return False
    return bool(status == _NOT_FOUND)


def _status(argv: list[str]) -> int:
    """Return with which status a command ends that prints nothing of interest; -1 where it does not end in time."""
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, cwd="/", check=False, timeout=PYTHON_S
        )
    except subprocess.TimeoutExpired:
        return -1
    return done.returncode


def starter_findings(spec: Spec, user: str) -> list[Finding]:
    """Find that the job's environment lacks what starts the ranks: the launch module, or its package."""
    starter, venv, launcher = spec.get("starter", ""), spec["venv"], spec.get("launcher", "")
    python = f"{venv}/bin/python"
    if not starter or not Path(python).exists():
        # An environment that is not there is a finding of its own.
        return []
    if starter.partition(".")[0] in {str(name).replace("-", "_") for name in spec.get("packages", ())}:
        # Its version is compared over all nodes, and that it is there.
        lacking = ""
    else:
        lacking = f"no {starter} in {venv}" if _lacks(python, starter, "", user) else ""
    if not lacking:
        return []
    framework, release = _BRINGS[launcher]
    return [
        Finding(
            "job_launcher",
            lacking,
            f"{release} in the job's virtual environment, for job_launcher: {launcher}",
            f"run site.yml with {framework} in trainyard_frameworks, or set job_venv to where it is",
            host=spec["host"],
        )
    ]


def recovery_findings(spec: Spec, user: str) -> list[Finding]:
    """The training user can make its folder where MindSpore is to keep its records (job_recovery_path)."""
    records = (process.get("env", {}).get("MS_RECOVERY_PATH", "") for process in spec.get("processes", ()))
    # Those of a job are in a folder of its own, and each process has one there.
    folders = {str(Path(path).parents[1]) for path in records if path and not path.startswith(spec["job_dir"] + "/")}
    findings = []
    for folder in sorted(folders):
        there = next(above for above in (Path(folder), *Path(folder).parents) if above.exists())
        if not _may(user, str(there), os.W_OK | os.X_OK):
            found = f"{there} cannot be written by {user}" + ("" if str(there) == folder else f", and has no {folder}")
            expected = "a folder in which the training user may write, shared by all nodes"
            do = f"make it and give it to {user}, or correct job_recovery_path"
            check = "job_recovery_path"
            findings.append(Finding(check, found, expected, do, host=spec["host"]))
    return findings


def telling_findings(spec: Spec, user: str) -> list[Finding]:
    """The training user may write where the job's metrics and events go; the programs that are told are there."""
    host, findings = spec["host"], []
    folders = [("job_metrics_folder", spec["metrics_folder"])] if spec["metrics_folder"] else []
    folders += [("job_events", str(Path(each["file"]).parent)) for each in spec["events"] if "file" in each]
    for name, folder in folders:
        if not _may(user, folder, os.W_OK | os.X_OK):
            found = f"{folder} cannot be written by {user}" if Path(folder).is_dir() else f"no folder {folder}"
            do = f"make it, as root: install -d -m 1775 -o root -g $(id -gn {user}) {folder}"
            expected = "a folder in which the training user may write"
            findings.append(Finding(name, found, expected, do, host=host))
    for name, mode, what in (("program", os.X_OK, "a program"), ("ca_file", os.R_OK, "a file of certificates")):
        for path in filter(None, (each.get(name) for each in spec["events"])):
            if not (_may(user, path, mode) and Path(path).is_file()):
                found, expected = f"no {path} for {user}", f"{what} on the head node, for the training user"
                do = "put it there, or correct job_events"
                findings.append(Finding("job_events", found, expected, do, host=host))
    return findings


def _may(user: str, path: str, mode: int) -> bool:
    """Tell whether the training user has these rights; one that is not there is found elsewhere."""
    try:
        return bool(as_user.run(as_user.named(user), os.access, path, mode))
    except JobError:
        return True


def device_findings(spec: Spec, jobs: Path) -> list[Finding]:
    """No other job of ours runs on the same devices of this node."""
    wanted, findings = set(spec["devices"]), []
    others = [folder for folder in folders.of_jobs(jobs) if folder.name != spec["job_id"]] if wanted else []
    for folder, held in as_user.in_each(others, folders.held_devices).items():
        shared = sorted(wanted.intersection(held))
        if shared:
            findings.append(
                Finding(
                    "devices",
                    f"device {', '.join(map(str, shared))} in use by job {folder.name}",
                    "devices that no other job has",
                    (
                        "choose others with job_devices, wait, or stop that job: playbooks/stop.yml with job_id "
                        f"{folder.name}"
                    ),
                    host=spec["host"],
                )
            )
    return findings


def _digest(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, and for which processor it is: `elf-62`, or `script`. Raises OSError."""
    content = hashlib.sha256()
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_PROGRAM:
            raise OSError(f"{path} has more than {MOST_PROGRAM >> 20} MiB")
        head = file.read(20)
        # Two bytes in the byte order that the sixth byte names; see elf(5), e_machine.
        machine = int.from_bytes(head[18:20], "big" if head[5:6] == b"\2" else "little")
        form = f"elf-{machine}" if head[:4] == b"\x7fELF" else "script"
        content.update(head)
        for block in iter(lambda: file.read(1 << 20), b""):
            content.update(block)
    return {"sha256": content.hexdigest(), "form": form}


def programs(spec: Spec, user: str) -> dict[str, dict[str, str]]:
    """Return the programs of job_command that did not come with the job, by their names in job_command.

    The user's rights read them, as the user may own them. Programs of the venv are compared by the versions of their
    packages, and job_source is the same everywhere. Unreadable files, or larger ones than MOST_PROGRAM, are left out.
    """
    try:
        found: dict[str, dict[str, str]] = as_user.run(as_user.named(user), _programs, spec, limit_s=PROGRAMS_S)
    except JobError:
        return {}
    return found


def _programs(spec: Spec) -> dict[str, dict[str, str]]:
    found = {}
    for name in (spec["program"], *spec["scripts"]):
        path = Path(shutil.which(name, path=spec["program_path"]) or name)
        real = str(path.resolve())
        of_venv = bool(spec["venv"]) and str(path).startswith(f"{spec['venv']}/")
        if path.is_absolute() and not of_venv and not real.startswith(_OF_THE_SYSTEM):
            with contextlib.suppress(OSError):
                found[name] = {"path": str(path), **_digest(path)}
    return found


def preflight(spec: Spec, user: str) -> list[Finding]:
    """Check this node for the job."""
    jobs = Path(spec["job_dir"]).parent
    findings = port_findings(spec, jobs) if spec["node_rank"] == 0 else reach_findings(spec)
    findings += ssh_findings(spec, user)
    return [
        *findings,
        *path_findings(spec, user),
        *imports.findings(spec, user),
        *recovery_findings(spec, user),
        *telling_findings(spec, user),
        *device_findings(spec, jobs),
    ]
