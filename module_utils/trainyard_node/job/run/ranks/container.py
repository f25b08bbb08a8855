# SPDX-License-Identifier: Apache-2.0
"""Run a process of a job in its image, and leave no container behind.

This process waits for the container program and adopts what that leaves (Podman's conmon, which then runs the rank),
so that a monitor finds and ends all of it as with any process. It ends as the process in the image did.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from .....trainyard.job.run import container_command
from ....machine.json_files import read_json
from ...record.node_plan import plan_path, source_of
from . import process_table
from .execute import end_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ....machine.json_files import AnyPath

# Where container programs and their helpers are.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How long the removal of containers may take, in seconds.
REMOVE_S = 30.0
# Signals that the container program passes on to the process in the image.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Names of the processes between us and the rank, which start it and wait for it, and of those beside it that serve its
# files: without them it could not save.
BETWEEN = frozenset(
    (
        *("podman", "conmon", "docker", "starter", "starter-suid", "apptainer", "catatonit"),
        *("squashfuse", "squashfuse_ll", "fuse-overlayfs", "fuse2fs", "gocryptfs"),
    )
)


def program_environment(home: str) -> dict[str, str]:
    """Return what a container program needs of a login: its user's storage, and the folder of running containers."""
    found = {"PATH": _PATH, "HOME": home}
    runtime_dir = f"/run/user/{os.getuid()}"
    if os.path.isdir(runtime_dir):
        found["XDG_RUNTIME_DIR"] = runtime_dir
    return found


def run(job_dir: str, name: str, *argv: str) -> int:
    """Run a process in the image of its job; return its status, or end by its signal."""
    end_with_parent()
    process_table.adopt()
    node_plan = _with_image(job_dir)
    if node_plan is None:
        print(f"trainyard: {plan_path(job_dir)} is damaged: it has no image", file=sys.stderr)
        return 1
    env = dict(os.environ)
    record = with_home(node_plan["container"], job_dir, env.get("HOME", ""))
    if record["path"]:
        env["PATH"] = record["path"]
    command = container_command.command(record, node_plan["job_id"], name, argv, env, source_of(job_dir))
    if record["runtime"] == "docker" and env.get("TRAINYARD_ATTEMPT", "0") != "0":
        # Podman replaces a container that a killed attempt has left.
        remove_of_process(job_dir, name)
    status = _wait(
        command, {**container_command.environment(record, env), **program_environment(node_plan["base_env"]["HOME"])}
    )
    if status < 0 or status == 128 + signal.SIGKILL:
        # Podman was killed, or all of it: what is left of the container would be in the way of the next one.
        remove_of_process(job_dir, name)
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        _end_by(number)
    return status


def with_home(record: Mapping[str, Any], job_dir: str, home: str) -> dict[str, Any]:
    """Return a record with a home that lies in the job's folder, as the one of the user is not in the image."""
    mounts = [mount for mount in record["mounts"] if home and mount[1] != home]
    own = [[f"{job_dir}/home", home, "rw"]] if home else []
    for place, _, mode in record["mounts"]:
        if mode == "rw":
            # Checkpoints may be the first ones.
            with contextlib.suppress(OSError):
                os.makedirs(place, exist_ok=True)
    return {**record, "mounts": [*own, *mounts]}


def _wait(command: list[str], env: Mapping[str, str]) -> int:
    """Run the container program to its end; return its status, or a signal's number below 0."""
    try:
        child = subprocess.Popen(command, env=dict(env))
    except OSError as error:
        print(f"trainyard: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _frame: child.send_signal(number))
    while True:
        with contextlib.suppress(InterruptedError):
            return child.wait()


def _end_by(number: int) -> None:
    """End as the process in the image did, without a core file of our own."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _with_image(job_dir: AnyPath) -> Mapping[str, Any] | None:
    """Return the node plan of a job with an image; None for another one, and a damaged one.

    Each rank in an image starts through this module, and loading the checks of shapes would double its time.
    """
    node_plan = read_json(plan_path(job_dir))
    record = node_plan.get("container") if isinstance(node_plan, dict) else None
    if not isinstance(record, dict) or not isinstance(node_plan.get("base_env"), dict):
        return None
    texts = [*map(record.get, ("runtime", "program")), node_plan.get("job_id"), node_plan["base_env"].get("HOME")]
    return node_plan if all(isinstance(each, str) and each.isprintable() for each in texts) else None


def remove_named(node_plan: Mapping[str, Any], names: list[str]) -> None:
    """Remove containers by name; those that are not there are no error."""
    record = node_plan["container"]
    if record["runtime"] in container_command.NAMED and names:
        _quietly(container_command.removal(record, names), node_plan)


def remove_of_process(job_dir: AnyPath, name: str) -> None:
    """Remove what is left of the container of a process, if its job has an image."""
    node_plan = _with_image(job_dir)
    if node_plan:
        remove_named(node_plan, [container_command.container_name(node_plan["job_id"], name)])


def remove_all(job_dir: AnyPath) -> int:
    """Remove what is left of the containers of a job on this node; return how many there were."""
    node_plan = _with_image(job_dir)
    if node_plan is None or node_plan["container"]["runtime"] not in container_command.NAMED:
        return 0
    names = _quietly(container_command.listing(node_plan["container"], node_plan["job_id"]), node_plan).split()
    remove_named(node_plan, names)
    return len(names)


def remove_left(job_dir: AnyPath) -> None:
    """Remove the containers of a job of which nothing runs here any more."""
    node_plan = _with_image(job_dir)
    if node_plan and not process_table.of_job(node_plan["job_id"]):
        remove_all(job_dir)


def _quietly(command: list[str], node_plan: Mapping[str, Any]) -> str:
    """Run a command of a container program; return what it prints, "" where it fails."""
    env = {**program_environment(node_plan["base_env"]["HOME"]), process_table.OWN_TOOL: "1"}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env, "cwd": "/"}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=REMOVE_S, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
