# SPDX-License-Identifier: Apache-2.0
"""Answer the controller's fan-out on a node: one question, one answer, both JSON.

The controller sends these modules once and calls `answer`; the node needs nothing of Ansible. Imports are late, so that
a question costs only what it needs.
"""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class OutOfTimeError(Exception):
    """The question exceeded its time limit."""


def probe(
    *, venv: str | None, packages: list[str], user: str, mpi_prefix: str, image: dict[str, Any] | None = None
) -> Answer:
    """Return `node`: what a job's plan needs to know of this machine (node.read_node)."""
    from .cluster.node_identity import read_node
    from .machine.tree import Tree

    if image is None:
        return {"node": read_node(Tree(), packages=packages, venv=venv, user=user, mpi_prefix=mpi_prefix)}
    from .job.plan.image_inspection import with_image
    from .machine import as_user

    node = read_node(Tree(), packages=[], venv=None, user=user, mpi_prefix=mpi_prefix)
    return {"node": with_image(node, image, venv or "", packages, as_user.named(user))}


def bring_image(*, image: dict[str, Any], fact: dict[str, Any], user: str, wait_s: float) -> Answer:
    """Bring a job's image here, for at most `wait_s`: `done`, `problem`, `line`, `id` (image_transfer.bring)."""
    from .job.plan.image_fetch import bring
    from .machine import as_user

    return dict(as_user.run(as_user.named(user), bring, image, fact, wait_s))


def preflight(*, node_plan: dict[str, Any], user: str, sharing: dict[str, Any] | None = None, **facts: Any) -> Answer:
    """Return what would stop the job here, and where its facts are no longer true, `node` (node_check.check).

    `facts` are the arguments of `probe`.
    """
    from .job.plan.node_check import check

    return check(node_plan, user, sharing, lambda: probe(user=user, **facts)["node"])


def forget_tokens(**arguments: Any) -> Answer:
    """Remove the tokens by which hosts know that they share folders (shared_folders.forget)."""
    from .machine.shared_folders import forget

    return forget(**arguments)


def busy(**arguments: Any) -> Answer:
    """Return `findings` on devices of a job that somebody else has here (preflight.busy)."""
    from .job.plan import obstacles

    return obstacles.busy(**arguments)


def start(
    *,
    node_plan: dict[str, Any],
    files: list[dict[str, Any]],
    source_archive: str,
    user: str,
    token: str,
    secret_env: dict[str, Any],
    secret_files: dict[str, str],
    again: bool = False,
) -> Answer:
    """Start a job's processes here; source and secret files in base64. `taken`: another launch has this id.

    `again`: a scheduler starts a job in the folder that it has already.
    """
    from ..trainyard.job.record.folder_layout import HOST
    from .job.run import job_life

    node_plan = {
        **node_plan,
        "files": [*files, *node_plan.get("files", ())],
        "token": token,
        "secret_env": {key: str(value) for key, value in secret_env.items()},
    }
    own = HOST.encode(), str(node_plan["host"]).encode()
    # Files of MindSpore's TLS name others of this node.
    private = {name: base64.b64decode(content).replace(*own) for name, content in secret_files.items()}
    job_dir = Path(node_plan["job_dir"])
    try:
        job_life.start(job_dir, node_plan, base64.b64decode(source_archive), user, private, again)
    except job_life.TakenError as error:
        return {"failed": True, "msg": str(error), "taken": True}
    return {"changed": True, **job_life.status(job_dir, node_plan["job_id"])}


def state(*, job_id: str, job_dir: str, wait_s: float = 0) -> Answer:
    """Return the state of a job on this node, at its end or after `wait_s`; on the head with a line for people."""
    from ..trainyard.job.run.decide.restarts import watched_texts
    from ..trainyard.job.run.lead import leader
    from ..trainyard.job.run.logs.hang import PATTERN_NOTE, noted_text
    from .job.run import job_life
    from .job.run.monitor import state_line

    folder = Path(job_dir)
    job_life.wait(folder, wait_s)
    result = job_life.status(folder, job_id)
    cluster = result["cluster"]
    if cluster and not leader.has_led(result):
        result |= {"line": state_line.line(cluster), "lasting": state_line.lasting(cluster)}
        printing, noted = cluster.get("printing"), cluster.get("no_progress")
        if noted:
            result["note"] = noted_text(noted)
        elif printing and not cluster["end"]:
            result["note"] = PATTERN_NOTE if printing["unread"] else ""
        lost = (result["monitor"] or {}).get("lost_logs")
        if lost and not cluster["end"] and not result.get("note"):
            result["note"] = f"on this node, the head: {lost}"
        history = cluster["restarts"]["history"]
        result["restarts"] = [text for each in history for text in watched_texts(each)]
    return result


def running(*, jobs: list[dict[str, str]]) -> Answer:
    """Return which of these jobs have a monitor that runs here, each with the line for people, and which have `ended`.

    A head that was lost knows no end of its job.
    """
    from .job.run import job_life

    folders = {each["job_id"]: Path(each["job_dir"]) for each in jobs}
    alive = job_life.all_alive(list(folders.values()))
    others = job_life.all_with_end([folder for folder in folders.values() if folder not in alive])
    return {
        "running": {
            name: state(job_id=name, job_dir=str(folder)).get("line", "")
            for name, folder in folders.items()
            if folder in alive
        },
        "ended": [name for name, folder in folders.items() if folder in others],
    }


def collect(
    *,
    job_id: str,
    job_dir: str,
    stop: bool,
    log_limit: int,
    grace_s: float = 0.0,
    check: bool = False,
    user: str = "",
    age_s: float = 0.0,
    outputs: Sequence[str] = (),
    outputs_limit: int = 0,
) -> Answer:
    """Return the state of a job on this node, with its logs and `outputs`; with `stop` end what is left of it first.

    Its ranks may take `grace_s` to save.
    Then `not_ended` names what its `user` began in the last `age_s` seconds, since the launch, outside of any job.
    """
    from .job.record import kernel_log
    from .job.record.output_reading import outputs_of
    from .job.run import job_life
    from .job.run.job_folder import read_logs
    from .machine.as_user import in_folder

    folder, changed = Path(job_dir), False
    if stop:
        changed = bool(job_life.running(folder, job_id)) if check else job_life.stop(folder, job_id, grace_s=grace_s)
    if not check:
        job_life.forget_what_is_over(folder, job_id)
    found = job_life.status(folder, job_id)
    when = kernel_log.window(found["monitor"], found["monitor_alive"], time.time())
    kernel = kernel_log.read(*when) if when else []
    answer = {"changed": changed, **found, "logs": in_folder(folder, {}, read_logs, log_limit), "kernel": kernel}
    if outputs and not check:
        answer["outputs"] = outputs_of(folder, outputs, outputs_limit)
    named = stop and user and not check
    return {**answer, "not_ended": job_life.not_ended(user, age_s)} if named else answer


def journal(*, job_id: str, job_dir: str) -> Answer:
    """Return the last `lines` in the journal of a job's unit here, and the `problem` of reading them, or ""."""
    from .job.run.unit_journal import read

    return read(job_id, Path(job_dir))


def follow(*, job_dir: str, offsets: dict[str, int | None]) -> Answer:
    """Return `logs`: what was added to each of these since `offsets`, see job_folder.follow."""
    from .job.run import job_folder
    from .machine.as_user import in_folder

    return {"logs": in_folder(Path(job_dir), {}, job_folder.follow, offsets)}


def stacks(*, job_dir: str, looks: int, **_: str) -> Answer:
    """Return the stacks of a job's ranks on this node: `ranks` (stack_samples.py), and all details as `text`."""
    from .job.run import job_life

    return job_life.take_stacks(Path(job_dir), looks)


def kill(*, job_dir: str, every: bool, **_: str) -> Answer:
    """Kill the last rank of a job here, or `every` process of its ranks, not the monitor: `ranks` and `processes`."""
    from .job.run import drill
    from .machine.as_user import in_folder

    nothing = {"ranks": [], "processes": 0}
    return in_folder(Path(job_dir), nothing, drill.kill, every) or nothing


def make_folder(*, path: str, user: str) -> Answer:
    """Make a folder of a drill, as the training user."""
    from .job.run import drill
    from .machine import as_user

    return {"changed": as_user.run(as_user.named(user), drill.make, path)}


def remove_folder(*, path: str, user: str) -> Answer:
    """Remove a folder of a drill with its checkpoints, as the training user."""
    from .job.run import drill
    from .machine import as_user

    return {"changed": as_user.run(as_user.named(user), drill.remove, path)}


def checkpoints(*, pattern: str, user: str) -> Answer:
    """Return the `names` of the newest checkpoints in a folder, or that match a pattern, oldest first."""
    from .job.run import drill
    from .machine import as_user

    return {"names": as_user.run(as_user.named(user), drill.newest, pattern)}


def remove(*, job_id: str, job_dir: str, check: bool = False) -> Answer:
    """Remove what a job has left here, after ending it."""
    from .job.run import job_life

    folder = Path(job_dir)
    changed = bool(job_life.running(folder, job_id)) or folder.is_dir() if check else job_life.remove(folder, job_id)
    return {"changed": changed, **job_life.status(folder, job_id)}


def folders(*, state_dir: str, of_schedulers: list[str]) -> Answer:
    """List the folders of jobs here; `of_schedulers` are those that a scheduler's jobs may have."""
    from .job.run import job_life

    return {"folders": job_life.list_folders(Path(state_dir, "jobs"), [Path(folder) for folder in of_schedulers])}


def rdma_traffic(*, host: str) -> Answer:
    """Return what the RDMA ports of this machine have carried so far, with the name by which it is known."""
    from .hardware.rdma_traffic import read_traffic
    from .machine.tree import Tree

    return {"traffic": {"host": host, "ports": read_traffic(Tree())}}


def slurm_probe(*, user: str, folder: str, shared: bool) -> Answer:
    """Return `facts` of the cluster of Slurm whose login host this is, or none with `findings`."""
    from .slurm.slurm_facts import probe

    return probe(user, folder, shared)


def slurm_submit(*, script: str, user: str, secrets: dict[str, dict[str, Any]]) -> Answer:
    """Submit a script to Slurm; return `engine_id`, the number of the job. `secrets` are files for its hosts."""
    from .job.schedulers.slurm_job import submit

    return {"engine_id": submit(script, user, secrets)}


def slurm_state(**job: Any) -> Answer:
    """Return the state of a job of Slurm (slurm.job_state)."""
    from .job.schedulers.slurm_job import job_state

    return job_state(job)


def planned(*, job_dir: str, log_limit: int) -> Answer:
    """Return the `plan` of a job that the first host of its allocation made, null where none was; and its `logs`."""
    from .job.run.job_folder import read_logs, read_plan
    from .machine.as_user import in_folder

    folder = Path(job_dir)
    return {"plan": in_folder(folder, None, read_plan), "logs": in_folder(folder, {}, read_logs, log_limit)}


def slurm_ask(
    *, engine_id: str, user: str, question: str, arguments: dict[str, dict[str, Any]], limit_s: float
) -> Answer:
    """Ask hosts of a job of Slurm that share its folder with this one: the JSON of their `answers` by host."""
    from .job.schedulers.slurm_job import ask_hosts

    job = {"engine_id": engine_id, "user": user}
    return {"answers": ask_hosts(job, question, arguments, limit_s, QUESTIONS[question])}


def slurm_end(*, engine_id: str, user: str, check: bool, secrets: str) -> Answer:
    """Cancel a job of Slurm, wait until it has ended, and remove its file of `secrets`, if any."""
    from .job.schedulers.slurm_job import end, forget

    changed = end(engine_id, user, check=check)
    if secrets and not check:
        forget(secrets, user)
    return {"changed": changed}


def verify(*, tree: str, address: str, **options: Any) -> Answer:
    """Return what the verification of a cluster compares and checks of this machine (facts.read_machine)."""
    from .machine.tree import Tree
    from .verify.facts import read_machine

    return read_machine(Tree(tree), host_address=address, **options)


def storage(**arguments: Any) -> Answer:
    """Return how fast folders are written and read here: `paths`, and who shares them: `folders` (storage.measure)."""
    from .verify.folder_speed import measure

    return measure(**arguments)


def listen(**arguments: Any) -> Answer:
    """Listen on the job network for others to `connect`: `endpoint` (reach.Peer), and what ends it."""
    from .verify import peer_connections

    return peer_connections.listen(**arguments)


def connect(*, host: str, peers: list[dict[str, Any]], token: str, timeout_s: float, names: bool) -> Answer:
    """Connect to the listeners of `peers`, of which this node is one (reach.connect)."""
    from .verify import peer_connections

    return peer_connections.connect(host, peers, token, timeout_s, names)


def unlisten(*, pid: int, start_time: int | None) -> Answer:
    """End a listener; return whether it had `lived` until now."""
    from .verify.peer_connections import stop_listener

    return {"lived": stop_listener(pid, start_time)}


def try_ports(*, step: str, **arguments: Any) -> Answer:
    """Do a step of trying RDMA ports and NPUs with those of others: serve, ping or close (port_pings.STEPS)."""
    from .verify.port_pings import STEPS

    return STEPS[step](**arguments)


def in_use(*, state_dir: str, services: list[str]) -> Answer:
    """Return what `uses` this node, as texts, its name in `slurm` or "", and whether it has a kubelet."""
    from .job.plan.in_use import has_kubelet, read_uses

    uses, node = read_uses(Path(state_dir, "jobs"), services)
    return {"uses": uses, "slurm": node, "kubernetes": has_kubelet()}


def baseline(**arguments: Any) -> Answer:
    """Return what this node lacks of what all nodes have in common, or that it has all (hosts.baseline)."""
    from .cluster import baseline_check

    return baseline_check.baseline(**arguments)


def ssh_keys(**arguments: Any) -> Answer:
    """Return this node's public ssh keys and what is set up of the mesh (ssh_keys.read_ssh_keys)."""
    from .cluster.ssh_keys import read_ssh_keys

    return read_ssh_keys(**arguments)


def logins(**arguments: Any) -> Answer:
    """Return to which peers the training user can log in from here, and why not (ssh_logins.logins)."""
    from .cluster import ssh_logins

    return ssh_logins.logins(**arguments)


def can_install(**arguments: Any) -> Answer:
    """Return what would keep software from being installed here (can_install.can_install); nothing is changed."""
    from .software import can_install

    return can_install.can_install(**arguments)


def pytorch_offer(**arguments: Any) -> Answer:
    """Return what decides about the build of PyTorch here (pytorch_offer.pytorch_offer); nothing is changed."""
    from .software import pytorch_offer

    return pytorch_offer.pytorch_offer(**arguments)


def progress(**arguments: Any) -> Answer:
    """Return the `progress` of an installation, build or download (program_progress.of_task); null where none runs."""
    from .software.program_progress import of_task

    return {"progress": of_task(**arguments)}


def keep_record(*, settings: dict[str, Any], begin: bool) -> Answer:
    """Record what this node is before a run of site.yml, or after it (removal/questions.py)."""
    from .removal import questions

    return questions.keep_record(settings, begin=begin)


def removal(*, settings: dict[str, Any], data: bool, change: bool) -> Answer:
    """Return what takes trainyard off this node, and what stays; do it with `change` (removal/questions.py)."""
    from .removal import questions

    return questions.removal(settings, data=data, change=change)


QUESTIONS: dict[str, Callable[..., Answer]] = {
    function.__name__: function
    for function in (
        *(probe, bring_image, preflight, busy, start, state, running, follow, stacks, collect, remove, folders),
        *(rdma_traffic, journal, kill, make_folder, remove_folder, checkpoints, verify, listen, connect, unlisten),
        *(storage, try_ports, slurm_probe, slurm_submit, slurm_state, slurm_ask, slurm_end, planned, forget_tokens),
        *(baseline, ssh_keys, logins, can_install, pytorch_offer, progress, in_use, keep_record, removal),
    )
}


def answer(question: str, arguments: Mapping[str, Any], limit_s: float) -> Answer:
    """Return the answer to a question, or `failed` with `msg`. Other output goes to standard error."""
    # Only answers may go to standard output.
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)

    def end(_number: int, _frame: Any) -> None:
        raise OutOfTimeError(f"no answer within {limit_s:g} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        return QUESTIONS[question](**arguments)
    except Exception as error:
        from .machine.as_user import JobError
        from .slurm.slurm_commands import SlurmError

        if isinstance(error, (JobError, OutOfTimeError, SlurmError)):
            return {"failed": True, "msg": str(error)}
        return {"failed": True, "msg": f"{type(error).__name__}: {error}", "exception": traceback.format_exc()}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
