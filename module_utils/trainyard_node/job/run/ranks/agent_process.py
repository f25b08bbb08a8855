# SPDX-License-Identifier: Apache-2.0
"""Be an agent that starts ranks (torchrun's, msrun), and note how each of them ended.

Ranks wait for it, so its imports are late, as in execute.py.
"""

from __future__ import annotations

import os
import sys

from .execute import note_process, own_dir, read_node_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run_agent(*argv: str) -> None:
    """Run a module as `python -m` does, and exit with its status as soon as it has ended.

    With torch loaded, the interpreter's own shutdown takes half a second of CPU, and garbage collection during the
    import a sixth of a second.
    """
    import contextlib
    import gc
    import importlib
    import runpy

    job_dir = own_dir()
    sys.path[0], sys.argv = os.getcwd(), list(argv)
    status = 1
    _note_ranks(job_dir)
    _append_to_logs(job_dir)
    gc.disable()
    try:
        importlib.import_module(argv[0].rpartition(".")[0])
        if argv[0] == "torch.distributed.run":
            sys.argv = _for_torch(getattr(sys.modules["torch"], "__version__", ""), sys.argv)
        gc.freeze()
        gc.enable()
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        if isinstance(ended.code, int) or ended.code is None:
            status = ended.code or 0
        else:
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # A full disk does not change how the agent ended.
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _for_torch(version: str, argv: list[str]) -> list[str]:
    """Return torchrun's command line in the form that this release of torch knows.

    Before 2.0 its options had underscores alone, and no --local-addr: there the master's address is that of the plan.
    """
    if version[:2] not in ("0.", "1."):
        return argv
    end = argv.index("--no-python") + 1 if "--no-python" in argv else len(argv)
    words = [word.replace("-", "_").replace("__", "--", 1) if word[:2] == "--" else word for word in argv[:end]]
    if "--local_addr" in words:
        at = words.index("--local_addr")
        del words[at : at + 2]
    return words + argv[end:]


def _note_ranks(job_dir: str) -> None:
    """Have this agent note how each of its ranks ended, see rank_exits.py.

    Its own status is 1 for any failed rank, and torchrun's waits for the ranks of all other nodes after its last rank
    has exited. A rank that the agent ends because another one has failed is noted as such, and gets the time to save:
    torchrun sends SIGTERM before SIGKILL, msrun SIGKILL alone.
    """
    import signal
    import subprocess

    from ....machine.json_files import keep_json
    from .rank_exits import from_status

    attempt = os.environ.get("TRAINYARD_ATTEMPT", "0")
    running: dict[Any, str] = {}
    ending: set[int] = set()

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if "RANK" in (options.get("env") or ()):
                running[self] = options["env"]["RANK"]
            elif os.environ.get("MS_ROLE") == "MS_WORKER" and hasattr(options.get("stdout"), "name"):
                # msrun starts a worker, which writes into a file, with its own environment; and tools, such as grep.
                running[self] = os.environ.get("RANK_ID", "")
                note_process(job_dir, running[self], self.pid)

        def poll(self) -> Any:
            return self.noted(super().poll())

        def wait(self, timeout: float | None = None) -> Any:
            return self.noted(super().wait(timeout))

        def noted(self, status: Any) -> Any:
            rank = "" if status is None else running.pop(self, "")
            if rank.isdecimal():
                ended = {**from_status(status), "attempt": int(attempt)}
                by_agent = {"by_agent": True} if self.pid in ending else {}
                keep_json(f"{job_dir}/exits/rank{rank}.json", {**ended, **by_agent})
            return status

    killpg = os.killpg

    def end_group(group: int, number: int) -> None:
        from . import stop_grace

        node_plan = read_node_plan(job_dir)
        ending.add(group)
        if number != signal.SIGKILL and stop_grace.ask_rank(job_dir, node_plan, group):
            return
        if number == signal.SIGKILL:
            # All at the same time, as msrun ends one rank after the other.
            ending.update(each.pid for each in running if stop_grace.ask_rank(job_dir, node_plan, each.pid))
            stop_grace.await_rank(job_dir, node_plan, group)
        killpg(group, number)

    # Both end a rank with all that the rank has started.
    os.killpg = end_group
    subprocess.Popen = Popen  # type: ignore[misc]


def _append_to_logs(job_dir: str) -> None:
    """Have msrun append to the logs of its workers.

    It opens them for writing. At a restart that would take what the attempt before has printed, and the monitor, which
    goes on where it has read to, would find no progress. The scheduler's log begins anew: msrun copies its errors.
    """
    import builtins
    import contextlib

    workers = f"{job_dir}/logs/worker_"
    opened = builtins.open

    def open_log(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode != "w" or not isinstance(file, str) or not file.startswith(workers):
            return opened(file, mode, *args, **options)
        log = opened(file, "a", *args, **options)
        if os.fstat(log.fileno()).st_size:
            # Without room on the disk the line is missing.
            with contextlib.suppress(OSError):
                os.write(log.fileno(), b"--- started again ---\n")
        return log

    builtins.open = open_log
