# SPDX-License-Identifier: Apache-2.0
"""Run the job on a host of an allocation, where a scheduler has started the program (trainyard_node/allocated.py).

The first host plans for all (launch.py); from then on each host has its monitor, as over ssh, and nothing knows the
scheduler. The program ends when its monitor has ended: after the last process of a step, Slurm kills what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from ....trainyard.job.record.folder_layout import HOST
from ....trainyard.job.run.logs.failure_kinds import failure_kind
from ....trainyard.job.schedulers.kubernetes import pod_log
from ....trainyard.slurm.allocation import UNFIT
from ...machine.json_files import read_object, write_json
from ..run import job_folder
from ..run.ranks import process_table
from . import pod, private_file
from .answering import Answering, Here
from .meeting import First, Other
from .place import Place, in_pod, own_place

# Exit statuses beside UNFIT: the job failed; another run may succeed on other hosts (EX_TEMPFAIL); it was stopped.
FAILED, AGAIN, STOPPED = 1, 75, 143
_POLL_S = 5.0
# Seconds between two times that a pod prints its logs.
_SHOW_S = 1.0
# At the end of a job all programs leave within this time, in seconds: a first host that left earlier was lost.
ALONE_S = 10.0
# The variable with the file in which the job's script reads how the job ended: srun's status is that of any host.
STATUS = "TRAINYARD_STATUS"


def run(here: Here) -> int:
    """Run the job's part of this host, which answers the agent's questions by `here`; return the exit status."""
    place = own_place()
    if in_pod():
        pod.name_python()

    def privately(question: str, arguments: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        return here(question, private_file.filled(question, arguments, place.token), limit_s)

    try:
        return asyncio.run(_run(place, Answering(privately)))
    finally:
        if not in_pod():
            shutil.rmtree(Path(sys.argv[0]).parent, ignore_errors=True)


async def _run(place: Place, answering: Answering) -> int:
    allocation = place.allocation
    ended = asyncio.Event()
    # At the end of a job's time Slurm sends SIGTERM twice, and the second one means the same.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    # The job's monitor becomes a child of this process.
    process_table.adopt()
    if allocation.place:
        return await _follow(Other(allocation.host, place.token, answering.answer), place, ended, answering)
    first = First(allocation.host, allocation.hosts[1:], place.token, answering.answer)
    await first.open(place.address, place.port)
    try:
        return await _lead(first, place, ended, answering)
    finally:
        first.close()


async def _before(ended: asyncio.Event, meeting: Coroutine[Any, Any, Any]) -> Any:
    """Meet the others; return None where this program is asked to end before."""
    met, stopped = asyncio.ensure_future(meeting), asyncio.ensure_future(ended.wait())
    await asyncio.wait({met, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if met.done():
        return met.result() or {}
    met.cancel()
    return None


async def _lead(first: First, place: Place, ended: asyncio.Event, answering: Answering) -> int:
    # Only here, and while the others start: it loads the rules of all launchers and schedulers.
    from . import launch

    allocation, request = place.allocation, launch.Request.read(sys.argv[0])
    if await _before(ended, first.meet(place.needed, place.patience_s)) is None:
        return STOPPED
    there = {**first.addresses(), allocation.host: place.address}
    # In the scheduler's order; the address of a host that is not there is not needed.
    addresses = {host: there.get(host, "") for host in allocation.hosts}
    try:
        request = pod.of_image(request) if in_pod() else request
        plan = await asyncio.to_thread(launch.begin, request, addresses, first.ask, allocation.run > 0, _show)
    except launch.CannotRunError as error:
        _show(str(error))
        first.tell({"over": True})
        return UNFIT
    job_dir = Path(plan.placement.node_dir.replace(HOST, allocation.host))
    made = launch.recorded(plan, allocation.run)
    write_json(job_dir / "plan.json", made)
    about: dict[str, Any] = {"job_dir": plan.placement.node_dir, "job_id": plan.placement.job_id}
    restarts = plan.job.restarts
    # The cluster starts no pod again: without another one, the job could not go on.
    about["goes_on"] = bool(restarts.spares or restarts.min_nodes)
    about |= {"outputs": list(plan.job.outputs), "outputs_mib": plan.job.outputs_limit_mib}
    first.tell({**about, "restarts": restarts.max_restarts})
    if in_pod():
        return await _stay_in_pod(job_dir, about, ended, answering, pod_log.record(pod_log.PLAN, made))
    answering.close()
    status = await _stay(job_dir, plan.placement.job_id, ended)
    with contextlib.suppress(KeyError, OSError):
        Path(os.environ[STATUS]).write_text(f"{status}\n")
    return status


def _show(text: str) -> None:
    """Write lines into the log of the job's script, which runs on this host, or of the pod."""
    pod.show(f"{pod_log.TEXT}{line}" for line in text.splitlines())


async def _follow(other: Other, place: Place, ended: asyncio.Event, answering: Answering) -> int:
    told: dict[str, Any] | None = {}
    try:
        told = await _before(ended, other.attend(place.address, place.port, place.patience_s))
    except (OSError, asyncio.TimeoutError) as error:
        _show(f"the first host does not answer at {place.address}:{place.port}: {error or 'no answer in time'}")
    if not told or "job_dir" not in told:
        # The first host says why with its own status.
        return STOPPED if told is None else FAILED
    job_dir = Path(told["job_dir"].replace(HOST, other.host))
    if in_pod():
        return await _stay_in_pod(job_dir, told, ended, answering, [])
    answering.close()
    status = await _stay(job_dir, told["job_id"], ended)
    may_again = place.allocation.run < int(told.get("restarts") or 0)
    command = leaving(status, other.lost_s, time.monotonic(), may_again, os.environ.get("SLURM_JOB_ID", ""))
    if command:
        # The last act: Slurm ends this program with the job.
        with contextlib.suppress(OSError):
            await (await asyncio.create_subprocess_exec(*command)).wait()
    return status


async def _stay_in_pod(
    job_dir: Path, job: Mapping[str, Any], ended: asyncio.Event, answering: Answering, plan: list[str]
) -> int:
    """Stay until the end of this pod's monitor, and print its logs; in the end all that is to know of it."""
    job_id, signal_number = job["job_id"], process_table.GOES_DOWN if job["goes_on"] else signal.SIGTERM
    printer = pod.Printer(job_dir)

    async def show_logs() -> None:
        while True:
            await asyncio.to_thread(printer.show)
            await asyncio.sleep(_SHOW_S)

    pod.show(plan)
    showing = asyncio.ensure_future(show_logs())
    try:
        status = await _stay(job_dir, job_id, ended, signal_number)
    finally:
        showing.cancel()
        await asyncio.wait({showing})
    printer.show(last=True)
    about = {"job_id": job_id, "job_dir": str(job_dir), "stop": False, "log_limit": 1}
    if job["outputs"]:
        # By themselves: an answer that is too long is none.
        limit = min(job["outputs_mib"] << 20, pod_log.MAX_OUTPUTS)
        asked = {**about, "outputs": job["outputs"], "outputs_limit": limit}
        outputs = (await answering.answer("collect", asked, pod.COLLECT_S)).get("outputs")
        pod.show(pod_log.record(pod_log.OUTPUTS, outputs) if outputs else ())
    found = await answering.answer("collect", about, pod.COLLECT_S)
    found["logs"] = pod.kept(job_dir)
    # The cluster may have dropped the first lines.
    pod.show([*plan, *pod_log.record(pod_log.ANSWER, found)])
    return status


def leaving(status: int, lost_s: float | None, now_s: float, may_again: bool, engine_id: str) -> list[str]:
    """Return the command that ends the allocation after its first host was lost, `lost_s` on the monotonic clock.

    With that host the job's script and srun are gone, and Slurm would let the job run until its time is up (--no-kill).
    """
    if lost_s is None or now_s - lost_s < ALONE_S or not engine_id:
        return []
    return ["scontrol", "requeue", engine_id] if status == AGAIN and may_again else ["scancel", engine_id]


async def _stay(job_dir: Path, job_id: str, ended: asyncio.Event, signal_number: int = signal.SIGTERM) -> int:
    """Wait for the end of this host's monitor, which gets this signal if its host ends; return the exit status."""
    if not in_pod():
        _let_go_of_output()
    asked = False
    while process_table.monitor_alive(job_dir):
        if ended.is_set() and not asked:
            asked = True
            _end(process_table.monitor_of(job_dir), signal_number)
        waiting = asyncio.ensure_future(asyncio.to_thread(job_folder.wait, job_dir, _POLL_S))
        stopping = asyncio.ensure_future(ended.wait())
        await asyncio.wait({waiting} if asked else {waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        # Orphans of a pod come to its first process.
        process_table.reap_adopted(())
    # A monitor that was killed has left its ranks.
    process_table.end(job_id)
    process_table.reap_adopted(())
    return status_of(read_object(job_dir / "monitor.json").get("end") or ({"state": "stopped"} if asked else {}))


def _end(monitor: tuple[int, int] | None, signal_number: int) -> None:
    """Ask the monitor to end, which gives the ranks their time to save."""
    if monitor:
        with contextlib.suppress(ProcessLookupError):
            os.kill(monitor[0], signal_number)


def _let_go_of_output() -> None:
    """Close the output: srun ends all of a step where its connection for output breaks, as when one host is lost."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def status_of(end: dict[str, Any]) -> int:
    """Return the exit status for how a job ended; AGAIN where other hosts might mend it.

    A host that another has replaced says nothing about the job.
    """
    state, failure = end.get("state"), end.get("failure") or {}
    if state == "succeeded" or failure.get("kind") == "replaced":
        return 0
    if state == "stopped":
        return STOPPED
    return AGAIN if failure_kind(failure).of_host else FAILED
