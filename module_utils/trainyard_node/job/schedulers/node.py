# SPDX-License-Identifier: Apache-2.0
"""Run the job on a host of an allocation, where a scheduler has started the program (trainyard_node/allocated.py).

The first host plans for all (launch.py); from then on each host has its monitor, as over ssh, and nothing knows the
scheduler. The program ends when its monitor has ended: after the last process of a step, Slurm kills what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ....trainyard.job.run.failure_kinds import OF_HOSTS
from ....trainyard.slurm.allocation import HOST, Allocation, of_slurm
from ...machine.json_files import read_object, write_json
from ..run import folder as job_folder
from ..run import processes
from . import launch
from .meeting import First, Other

# The variable with the address, the port and the token by which the hosts of an allocation meet. No rank gets it.
MEETING = "TRAINYARD_MEETING"
# Exit statuses: the job failed; it cannot run here (EX_CONFIG); another run may succeed on other hosts (EX_TEMPFAIL).
FAILED, UNFIT, AGAIN, STOPPED = 1, 78, 75, 143
_POLL_S = 5.0
# At the end of a job all programs leave within this time, in seconds: a first host that left earlier was lost.
ALONE_S = 10.0
# The variable with the file in which the job's script reads how the job ended: srun's status is that of any host.
STATUS = "TRAINYARD_STATUS"
_DISCARD_PORT = 9


def run() -> int:
    """Run the job's part of this host; return the exit status."""
    try:
        return asyncio.run(_run())
    finally:
        shutil.rmtree(Path(sys.argv[0]).parent, ignore_errors=True)


def meeting(hosts: list[str]) -> str:
    """Return an address of this host that the next one reaches, a free port there, and a new token."""
    address = "127.0.0.1"
    if len(hosts) > 1:
        family, kind, _, _, where = socket.getaddrinfo(hosts[1], _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # It sends nothing: the kernel chooses the address by the route.
            probe.connect(where)
            address = probe.getsockname()[0]
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        port = probe.getsockname()[1]
    return f"{address} {port} {secrets.token_urlsafe(30)}"


async def _run() -> int:
    address, port, token = os.environ.pop(MEETING).split()
    allocation = of_slurm(os.environ)
    ended = asyncio.Event()
    # At the end of a job's time Slurm sends SIGTERM twice, and the second one means the same.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # The job's monitor becomes a child of this process.
    processes.adopt()
    if allocation.place:
        return await _follow(Other(allocation.host, token), (address, int(port)), allocation.run, ended)
    others = allocation.hosts[1:]
    first = First(allocation.host, others, token)
    await first.open(address, int(port))
    try:
        return await _lead(first, allocation, address, ended)
    finally:
        first.close()


async def _lead(first: First, allocation: Allocation, address: str, ended: asyncio.Event) -> int:
    request = launch.Request.read(Path(sys.argv[0]))
    there = {**first.addresses(), allocation.host: address}
    # In the scheduler's order; the address of a host that is not there is not needed.
    addresses = {host: there.get(host, "") for host in allocation.hosts}
    try:
        plan = await asyncio.to_thread(launch.begin, request, addresses, first.ask, allocation.run > 0, _show)
    except launch.CannotRunError as error:
        _show(str(error))
        first.tell({"over": True})
        return UNFIT
    job_dir = Path(plan.placement.job_dir.replace(HOST, allocation.host))
    write_json(job_dir / "plan.json", launch.recorded(plan, allocation.run))
    first.tell({"job_dir": plan.placement.job_dir, "job_id": plan.placement.job_id})
    status = await _stay(job_dir, plan.placement.job_id, ended)
    with contextlib.suppress(KeyError, OSError):
        Path(os.environ[STATUS]).write_text(f"{status}\n")
    return status


def _show(text: str) -> None:
    """Write lines into the log of the job's script, which runs on this host."""
    for line in text.splitlines():
        print(f"trainyard: {line}", flush=True)


async def _follow(other: Other, where: tuple[str, int], run: int, ended: asyncio.Event) -> int:
    told: dict[str, Any] = {}
    try:
        told = await other.attend(*where)
    except (OSError, asyncio.TimeoutError) as error:
        _show(f"the first host does not answer at {where[0]}:{where[1]}: {error or 'no answer in time'}")
    if "job_dir" not in told:
        return UNFIT
    status = await _stay(Path(told["job_dir"].replace(HOST, other.host)), told["job_id"], ended)
    most = int(launch.Request.read(Path(sys.argv[0])).job.get("job_max_restarts") or 0)
    command = leaving(status, other.lost_s, time.monotonic(), run < most, os.environ.get("SLURM_JOB_ID", ""))
    if command:
        # The last act: Slurm ends this program with the job.
        with contextlib.suppress(OSError):
            await (await asyncio.create_subprocess_exec(*command)).wait()
    return status


def leaving(status: int, lost_s: float | None, now_s: float, may_again: bool, engine_id: str) -> list[str]:
    """Return the command that ends the allocation after its first host was lost, `lost_s` on the monotonic clock.

    With that host the job's script and srun are gone, and Slurm would let the job run until its time is up (--no-kill).
    """
    if lost_s is None or now_s - lost_s < ALONE_S or not engine_id:
        return []
    return ["scontrol", "requeue", engine_id] if status == AGAIN and may_again else ["scancel", engine_id]


async def _stay(job_dir: Path, job_id: str, ended: asyncio.Event) -> int:
    """Wait for the end of this host's monitor; return the exit status for how the job ended."""
    _let_go_of_output()
    # By this program the job's hosts answer questions from the login host, in steps of their own.
    with contextlib.suppress(OSError):
        shutil.copy(Path(sys.argv[0]).with_suffix(".zip"), job_dir)
    asked = False
    while processes.monitor_alive(job_dir):
        if ended.is_set() and not asked:
            asked = True
            _end(processes.monitor_of(job_dir))
        waiting = asyncio.ensure_future(asyncio.to_thread(job_folder.wait, job_dir, _POLL_S))
        stopping = asyncio.ensure_future(ended.wait())
        await asyncio.wait({waiting} if asked else {waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
    # A monitor that was killed has left its ranks.
    processes.end(job_id)
    processes.reap_adopted(())
    return status_of(read_object(job_dir / "monitor.json").get("end") or {})


def _end(monitor: tuple[int, int] | None) -> None:
    """Ask the monitor to end, which gives the ranks their time to save."""
    if monitor:
        with contextlib.suppress(ProcessLookupError):
            os.kill(monitor[0], signal.SIGTERM)


def _let_go_of_output() -> None:
    """Close the output: srun ends all of a step where its connection for output breaks, as when one host is lost."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def status_of(end: dict[str, Any]) -> int:
    """Return the exit status for how a job ended; AGAIN where other hosts might mend it.

    A host that another has replaced says nothing about the job.
    """
    state, kind = end.get("state"), (end.get("failure") or {}).get("kind")
    if state == "succeeded" or kind == "replaced":
        return 0
    if state == "stopped":
        return STOPPED
    return AGAIN if kind in OF_HOSTS else FAILED
