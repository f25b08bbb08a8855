# SPDX-License-Identifier: Apache-2.0
"""Read how a job continues after a failure: restarts, spares, recovery and checkpoints."""

from __future__ import annotations

import re

from ..run.measure import checkpoints
from .job import Restarts, Stop
from .operators import INSTEAD
from .values import Values

# A part of a path that is of rank 0 alone.
_OF_RANK = re.compile(r"rank[_-]?0+(?!\d)", re.IGNORECASE)


def parse(values: Values, scheduler: str, launcher: str, operator: str) -> Restarts:
    """Read the variables of restarts; an `operator` does without most of them."""
    most = values.number("job_max_restarts")
    recovery = values.flag("job_recovery")
    _check_recovery(values, recovery, launcher, most)
    folder = _checkpoints(values, operator)
    return Restarts(
        max_restarts=most,
        spares=_spares(values, operator, most),
        min_nodes=_min_nodes(values, operator, most, recovery),
        witness=_witness(values, scheduler, most),
        checkpoints=folder,
        checkpoint_rollback=_rolls_back(values, operator, folder, most),
        recovery=recovery,
        recovery_path=_recovery_path(values, recovery),
        **values.declared(Restarts),
    )


def parse_stop(values: Values, operator: str) -> Stop:
    """Read how ranks are asked to end."""
    stop = Stop(**values.declared(Stop))
    for key, value, default in (
        ("job_stop_signal", stop.signal, Stop.signal),
        ("job_stop_grace", stop.grace_s, Stop.grace_s),
    ):
        if operator and value != default:
            found = f"{value} with an {operator}, whose operator ends ranks by its own rules"
            values.wrong(key, found, INSTEAD, f"leave {key} out")
    return stop


def _check_recovery(values: Values, recovery: bool, launcher: str, restarts: int) -> None:
    if recovery and launcher != "mindspore":
        expected = "job_launcher: mindspore, whose scheduler and workers may come back alone"
        action = "leave job_recovery out: job_max_restarts starts the whole job again"
        values.wrong("job_recovery", f"true with job_launcher: {launcher}", expected, action)
    if recovery and not restarts:
        expected = "a number of restarts: each process that comes back is one"
        action = "set job_max_restarts, or leave job_recovery out"
        values.wrong("job_recovery", f"true with job_max_restarts: {restarts}", expected, action)


def _spares(values: Values, operator: str, restarts: int) -> int:
    spares = values.number("job_spares")
    if spares and operator:
        found = f"{spares} with an {operator}, whose operator starts all ranks itself"
        values.wrong("job_spares", found, INSTEAD, "leave job_spares out")
    elif spares and not restarts:
        expected = "a number of restarts: a spare replaces a lost node in one"
        action = "set job_max_restarts, or leave job_spares out"
        values.wrong("job_spares", f"{spares} with job_max_restarts: {restarts}", expected, action)
    return spares


def _min_nodes(values: Values, operator: str, restarts: int, recovery: bool) -> int:
    least, found, expected = values.number("job_min_nodes"), "", ""
    if operator:
        found, expected = f"an {operator}, whose operator starts all ranks itself", INSTEAD
    elif not restarts:
        found, expected = "job_max_restarts: 0", "a number of restarts: a job goes on with fewer nodes in one"
    elif recovery:
        found, expected = "job_recovery: true", "restarts of the whole job, as ranks get other numbers"
    if least and found:
        values.wrong("job_min_nodes", f"{least} with {found}", expected, "correct that, or leave job_min_nodes out")
    return least


def _witness(values: Values, scheduler: str, restarts: int) -> str:
    witness, found, expected = values.text("job_witness").strip(), "", ""
    if scheduler != "ssh":
        found, expected = f"job_scheduler: {scheduler}, which restarts jobs itself", "job_scheduler: ssh"
    elif not restarts:
        found, expected = "job_max_restarts: 0", "a number of restarts: another node leads a job from one of them on"
    if witness and found:
        values.wrong("job_witness", f"{witness} with {found}", expected, "correct that, or leave job_witness out")
    return witness


def _recovery_path(values: Values, recovery: bool) -> str:
    path = values.text("job_recovery_path").rstrip("/")
    if path and not recovery:
        expected = "job_recovery: true, whose records lie there"
        action = "set job_recovery, or leave job_recovery_path out"
        values.wrong("job_recovery_path", f"{path} without job_recovery", expected, action)
    elif path and not path.startswith("/"):
        expected = "an absolute path of a folder in which the training user may write, on every node"
        action = "write the absolute path, or leave job_recovery_path out: the records then lie in the job's folder"
        values.wrong("job_recovery_path", path, expected, action)
    return path


def _checkpoints(values: Values, operator: str) -> str:
    folder = values.text("job_checkpoints")
    problem = checkpoints.place_problem(folder)
    if not problem and folder and operator:
        problem = f"it with an {operator}", f"{INSTEAD}, whose monitors watch it"
    if problem:
        values.wrong("job_checkpoints", *problem, "correct it, or leave job_checkpoints out")
    return folder


def _rolls_back(values: Values, operator: str, folder: str, restarts: int) -> bool:
    rolls_back = values.flag("job_checkpoint_rollback")
    found = expected = ""
    if operator:
        found, expected = f"an {operator}", f"{INSTEAD}, whose monitors restart the job"
    elif not folder:
        found, expected = "no job_checkpoints", "job_checkpoints, which names the folder of the checkpoints"
    elif not restarts:
        found, expected = "job_max_restarts: 0", "a number of restarts: a checkpoint is set aside in one"
    elif _OF_RANK.search(folder):
        found = f"job_checkpoints: {folder}"
        expected = "a folder with the files of all ranks: the other ranks would go on from another step"
    if rolls_back and found:
        action = "correct that, or leave job_checkpoint_rollback out"
        values.wrong("job_checkpoint_rollback", f"true with {found}", expected, action)
    return rolls_back
