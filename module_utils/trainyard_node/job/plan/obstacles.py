# SPDX-License-Identifier: Apache-2.0
"""Find what would stop a job on this node. Read-only. The caller adds the host to the findings."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ....trainyard.base.findings import Finding
from ....trainyard.cluster.ssh_options import CONNECT_TIMEOUT_S
from ....trainyard.job.plan import busy_devices
from ...cluster.ssh_logins import reach
from ...machine import as_user, open_folders, users
from ...machine.as_user import JobError
from ...machine.tree import open_file
from ..run.evidence import device_holders, port_holder
from ..run.ranks import folders
from . import import_check, tickets

NodePlan = dict[str, Any]
BUSY = busy_devices.CHECK
# Each login goes to another node, so no server's limit on new connections is met.
SSH_PARALLEL = 32
# By launcher: the framework that brings what starts the ranks, and from which release on.
_BRINGS = {
    "torchrun": ("pytorch", "PyTorch"),
    "msrun": ("mindspore", "MindSpore 2.3 or newer"),
    "oneflow": ("oneflow", "OneFlow 0.5 or newer"),
}
# What lies here is the distribution's: updates differ from node to node and change no result.
_OF_THE_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/")
# Upper bounds: of a program or script that is compared, in bytes, and for reading them all, in seconds.
MAX_PROGRAM, PROGRAMS_S = 1 << 30, 60.0


def _other_jobs(node_plan: NodePlan) -> list[Path]:
    jobs = folders.of_jobs(folders.jobs_of(node_plan["job_dir"]))
    return [folder for folder in jobs if folders.id_of(folder) != node_plan["job_id"]]


def port_findings(node_plan: NodePlan) -> list[Finding]:
    """Find that the rendezvous or the monitor port is in use on a node that leads, or planned for a job that starts.

    A job that was launched a moment ago may not listen yet. Another node than the head opens them if it takes over.
    """
    address = node_plan["address" if node_plan["node_rank"] else "head_address"]
    held = as_user.in_each(_other_jobs(node_plan), folders.held_ports)
    promised = {port: folders.id_of(folder) for folder, ports in held.items() for port in ports}
    findings = []
    for key, check, action in (
        ("port", "rendezvous port", "set job_port: auto, or another port, or end that process"),
        ("monitor_port", "monitor port", "start the job again: it takes another port"),
    ):
        port = node_plan[key]
        found = _bind_error(address, port)
        if port in promised and not found:
            found = f"{port} is that of job {promised[port]}"
        if found:
            findings.append(Finding(check, found, f"a free TCP port on {_leading(node_plan)}", action))
    return findings


def _leading(node_plan: NodePlan) -> str:
    return "every node that may take over from the head" if node_plan["node_rank"] else "the head node"


def _bind_error(address: str, port: int) -> str:
    """Return why no process can listen there; "" where one can."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"{port} is in use{port_holder.named(port)}"
            return f"{address}:{port} cannot be bound: {error.strerror}"
    return ""


def reach_findings(node_plan: NodePlan) -> list[Finding]:
    """Find on another node that the head's address does not answer on the rendezvous port."""
    where, head = (node_plan["head_address"], node_plan["port"]), node_plan["head_host"]
    reason = _connect_error(where)
    action = f"check routes and firewall between {node_plan['host']} and {head}, or set job_network"
    found, expected = f"{where[0]}:{where[1]}: {reason}", f"the head {head} answers on the job's network"
    return [Finding("head", found, expected, action)] if reason else []


def _connect_error(where: tuple[str, int]) -> str:
    """Return why a host does not answer there; "" where it does, or refuses, as nothing listens there yet."""
    try:
        socket.create_connection(where, CONNECT_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return ""
    except (TimeoutError, socket.timeout):
        # socket.timeout is a TimeoutError from Python 3.10 on only.
        return f"no answer within {CONNECT_TIMEOUT_S} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def witness_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find on a witness that it has no training user, or does not reach the hosts that may lead the job."""
    findings = _user_findings(user, "make that user there, or choose another job_witness")
    port = node_plan["monitor_port"]
    with ThreadPoolExecutor(len(node_plan["candidates"])) as side_by_side:
        reasons = side_by_side.map(lambda candidate: _connect_error((candidate[1], port)), node_plan["candidates"])
    for (host, address), reason in zip(node_plan["candidates"], reasons):
        if reason:
            found, expected = f"{address}:{port}: {reason}", f"{host}, which may lead the job, answers the witness"
            action = f"check routes and firewall from {node_plan['host']} to {host}, or choose another job_witness"
            findings.append(Finding("job_witness", found, expected, action))
    return findings


def _user_findings(user: str, action: str) -> list[Finding]:
    me = os.geteuid()
    login = users.user_name(me) or f"uid {me}"
    if me and login != user:
        found, expected = f"the login is {login}, trainyard_user is {user}", "one user, as trainyard_become is false"
        action = f"set ansible_user to {user} there, or trainyard_user to the login of all hosts"
        return [Finding("user", found, expected, action)]
    try:
        pwd.getpwnam(user)
    except KeyError:
        return [Finding("user", f"no user {user}", "the training user", action)]
    return []


def ssh_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find on a node that may start ranks by ssh where the training user cannot log in without a password."""
    peers = {peer["address"]: peer["host"] for peer in node_plan["ssh_peers"]}
    if os.geteuid() != 0:
        # Then the job runs as the present user, too.
        user = pwd.getpwuid(os.geteuid()).pw_name
    where = "the other nodes"
    try:
        attempts = reach(user, list(peers), CONNECT_TIMEOUT_S, SSH_PARALLEL) if peers else []
        failed = [f"{peers[attempt.peer]}: {attempt.reason}" for attempt in attempts if attempt.reason]
    except KeyError:
        # A user that does not exist is a finding of path_findings.
        return []
    except OSError as error:
        failed, where = [f"ssh cannot be started: {error.strerror}"], node_plan["host"]
    expected = (
        f"{user} logs in from {node_plan['host']} to every node by its address on the job's network, without a "
        "password and with a known host key"
    )
    action = (
        f"run site.yml (role ssh_mesh) on {where}; an address that ansible_host does not give them belongs into their "
        "ssh_mesh_extra_principals"
    )
    return [Finding("ssh", found, expected, action) for found in failed]


def path_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find that the training user, the Python environment, the data or the program of the job is missing."""
    # In an image, its own Python, programs and scripts count (image_inspection.py).
    in_image = "container" in node_plan
    venv, problems = node_plan["venv"], []
    if venv and not in_image and not Path(venv, "bin", "python").exists():
        expected = "the job's virtual environment"
        problems.append(("python", f"no {venv}/bin/python", expected, "run site.yml, or set job_venv"))
    expected = "the job's data on every node (job_data)"
    action = "run site.yml with that data set in `dataset_sets`, or correct job_data"
    problems += [("data", f"no {path}", expected, action) for path in node_plan["data"] if not Path(path).exists()]
    expected = "the script that job_command names by its path, on every node"
    action = "copy it there, or give the script to job_source, which is sent to all nodes"
    missing = [path for path in node_plan["scripts"] if not in_image and not Path(path).is_file()]
    problems += [("program", f"no {path}", expected, action) for path in missing]
    findings = [*_user_findings(user, "run site.yml"), *(Finding(*problem) for problem in problems)]
    return findings if in_image else [*findings, *_search_findings(node_plan, user)]


def _search_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find that the job's Python, its modules or its program are missing; each Python starts once."""
    venv, module = node_plan["venv"], str(node_plan.get("module") or "")
    starter, of_starter = str(node_plan.get("starter") or ""), f"{venv}/bin/python"
    # A missing environment is a finding of path_findings. Versions of these packages are compared over all nodes.
    packages = {name.replace("-", "_") for name in node_plan.get("packages", ())}
    run: dict[str, list[str]] = {}
    if starter and starter.partition(".")[0] not in packages and Path(of_starter).exists():
        run[of_starter] = [starter]
    python = shutil.which(node_plan["program"], path=node_plan["program_path"])
    if python and module:
        run[python] = [*run.get(python, ()), module]
    missing = import_check.missing(node_plan, user, run)
    return [
        *(starter_findings(node_plan, starter) if starter in missing.run.get(of_starter, ()) else ()),
        *_program_findings(node_plan, python, module if module in missing.run.get(python or "", ()) else ""),
        *import_check.findings(node_plan, missing.imports),
    ]


def _program_findings(node_plan: NodePlan, python: str | None, missing: str) -> list[Finding]:
    """Find that the program of job_command, or the module that it runs, is `missing`."""
    program, path, venv = (str(node_plan[key]) for key in ("program", "program_path", "venv"))
    if not python and program.replace("./", "", 1) not in node_plan["source_files"]:
        found = f"no {program} in {path.split(':')[0]} or the system's folders"
        expected = "the program of job_command"
        install = f" ({venv}/bin/python -m pip install pytest)" if venv and program == "pytest" else ""
    elif (starts := str(node_plan.get("interpreter") or "")) and not shutil.which(starts, path=path):
        found, install = f"no {starts}, which the first line of {program} names", ""
        expected = "the program that starts it"
    elif missing:
        found, expected = f"no module {missing} for {python}", "the module that job_command runs with -m"
        install = f" ({python} -m pip install {missing}), or add it to job_source"
    else:
        return []
    return [Finding("program", found, expected, f"install it{install}, or correct job_command or job_venv")]


def starter_findings(node_plan: NodePlan, starter: str) -> list[Finding]:
    """Return the finding for an environment that lacks what starts the ranks: the launch module, or its package."""
    framework, release = _BRINGS[node_plan["launcher"]]
    expected = f"{release} in the job's virtual environment, for job_launcher: {node_plan['launcher']}"
    action = f"run site.yml with {framework} in trainyard_frameworks, or set job_venv to where it is"
    return [Finding("job_launcher", f"no {starter} in {node_plan['venv']}", expected, action)]


def state_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find that somebody else has made the folder of our jobs, below one in which every user may make some."""
    try:
        place = open_folders.of_another(folders.jobs_of(node_plan["job_dir"]), as_user.named(user).uid)
    except JobError:
        # A user that does not exist is a finding of path_findings.
        return []
    if not place:
        return []
    return [Finding("trainyard_state", str(place), open_folders.EXPECTED, open_folders.action(place))]


def recovery_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find that the training user cannot make the folder of MindSpore's records (job_recovery_path)."""
    records = (process.get("env", {}).get("MS_RECOVERY_PATH", "") for process in node_plan.get("processes", ()))
    # Records of a job are in a folder of its own, where each process has one.
    ours = node_plan["job_dir"] + "/"
    recovery_folders = {str(Path(path).parents[1]) for path in records if path and not path.startswith(ours)}
    findings = []
    for folder in sorted(recovery_folders):
        there = next(above for above in (Path(folder), *Path(folder).parents) if above.exists())
        if not _may(user, str(there), os.W_OK | os.X_OK):
            found = f"{there} cannot be written by {user}" + ("" if str(there) == folder else f", and has no {folder}")
            expected = "a folder in which the training user may write, shared by all nodes"
            action = f"make it and give it to {user}, or correct job_recovery_path"
            findings.append(Finding("job_recovery_path", found, expected, action))
    return findings


def receiver_findings(node_plan: NodePlan, user: str) -> list[Finding]:
    """Find that the training user cannot write metrics and events, or use the programs and files of job_events."""
    findings = []
    folders = [("job_metrics_folder", node_plan["metrics_folder"])] if node_plan["metrics_folder"] else []
    folders += [("job_events", str(Path(each["file"]).parent)) for each in node_plan["events"] if "file" in each]
    for check, folder in folders:
        if not _may(user, folder, os.W_OK | os.X_OK):
            found = f"{folder} cannot be written by {user}" if Path(folder).is_dir() else f"no folder {folder}"
            action = f"make it, as root: install -d -m 1775 -o root -g $(id -gn {user}) {folder}"
            findings.append(Finding(check, found, "a folder in which the training user may write", action))
    for key, mode, what in (("program", os.X_OK, "a program"), ("ca_file", os.R_OK, "a file of certificates")):
        for path in filter(None, (each.get(key) for each in node_plan["events"])):
            if not (_may(user, path, mode) and Path(path).is_file()):
                expected = f"{what} on {_leading(node_plan)}, for the training user"
                action = "put it there, or correct job_events"
                findings.append(Finding("job_events", f"no {path} for {user}", expected, action))
    return findings


def _may(user: str, path: str, mode: int) -> bool:
    """Return whether the training user has these rights; a missing user is a finding of path_findings."""
    try:
        return bool(as_user.run(as_user.named(user), os.access, path, mode))
    except JobError:
        return True


def device_findings(node_plan: NodePlan) -> list[Finding]:
    """Find that somebody else uses the devices of this node: a job of ours, another program, or who waits for them."""
    devices, found = list(node_plan["devices"]), {}
    if not devices or node_plan.get("busy_devices") == busy_devices.SHARE:
        return []
    for folder, held in as_user.in_each(_other_jobs(node_plan), folders.held_devices).items():
        if shared := sorted(set(devices).intersection(held)):
            found[folders.id_of(folder)] = shared
    queue = busy_devices.ahead(node_plan["job_id"], devices, tickets.read(folders.jobs_of(node_plan["job_dir"])))
    return busy_devices.findings(
        found,
        device_holders.described(*device_holders.lasting(devices), without=(*found, node_plan["job_id"])),
        [job_id for job_id in queue if job_id not in found],
    )


def busy(node_plan: NodePlan, starts: bool) -> dict[str, Any]:
    """Renew the ticket of a launch that waits for devices of this node; return `findings` on who has them."""
    tickets.renew(folders.jobs_of(node_plan["job_dir"]), node_plan["job_id"], list(node_plan["devices"]), starts)
    return {"findings": [finding.on(node_plan["host"]).as_dict() for finding in device_findings(node_plan)]}


def _digest(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, and for which processor it is: `elf-62`, or `script`. Raises OSError."""
    content = hashlib.sha256()
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_PROGRAM:
            raise OSError(f"{path} has more than {MAX_PROGRAM >> 20} MiB")
        head = file.read(20)
        # Two bytes in the byte order that the sixth byte names; see elf(5), e_machine.
        machine = int.from_bytes(head[18:20], "big" if head[5:6] == b"\2" else "little")
        form = f"elf-{machine}" if head[:4] == b"\x7fELF" else "script"
        content.update(head)
        for block in iter(lambda: file.read(1 << 20), b""):
            content.update(block)
    return {"sha256": content.hexdigest(), "form": form}


def programs(node_plan: NodePlan, user: str) -> dict[str, dict[str, str]]:
    """Return the programs of job_command that did not come with the job, by their names in job_command.

    The user's rights read them, as the user may own them. Programs of the venv are compared by the versions of their
    packages, and job_source is the same everywhere. Unreadable files, or larger ones than MAX_PROGRAM, are left out.
    """
    if "container" in node_plan:
        return {}
    try:
        return dict(as_user.run(as_user.named(user), _programs, node_plan, limit_s=PROGRAMS_S))
    except JobError:
        return {}


def _programs(node_plan: NodePlan) -> dict[str, dict[str, str]]:
    found = {}
    for name in (node_plan["program"], *node_plan["scripts"]):
        path = Path(shutil.which(name, path=node_plan["program_path"]) or name)
        real = str(path.resolve())
        of_venv = bool(node_plan["venv"]) and str(path).startswith(f"{node_plan['venv']}/")
        if path.is_absolute() and not of_venv and not real.startswith(_OF_THE_SYSTEM):
            with contextlib.suppress(OSError):
                found[name] = {"path": str(path), **_digest(path)}
    return found


def preflight(node_plan: NodePlan, user: str) -> list[Finding]:
    """Check this node for the job."""
    leads, may_lead = node_plan["node_rank"] == 0, folders.may_lead(node_plan)
    return [
        *(port_findings(node_plan) if leads or may_lead else ()),
        *(() if leads else reach_findings(node_plan)),
        *ssh_findings(node_plan, user),
        *path_findings(node_plan, user),
        *state_findings(node_plan, user),
        *recovery_findings(node_plan, user),
        *receiver_findings(node_plan, user),
        *device_findings(node_plan),
    ]
