# SPDX-License-Identifier: Apache-2.0
"""Run `trainyard.pyz`, the program that runs a job on a node (packing.py).

Commands:
    python trainyard.pyz exec JOB_DIR NAME       become a process of the job
    python trainyard.pyz agent MODULE ARGV...    be an agent that starts ranks, as `python -m MODULE` would
    python trainyard.pyz rank ARGV...            become a rank under an agent
    python trainyard.pyz mpi-rank NAMES ARGV...  become a rank under mpirun, with these variables
    python trainyard.pyz mpi-end JOB_DIR RANK STATUS  print why a rank under mpirun ended
    python trainyard.pyz container JOB_DIR NAME ARGV...  run a process in the job's image
    python trainyard.pyz script ARGV...          run a start script, and wait for its background processes
    python trainyard.pyz remove-containers JOB_DIR  remove what a killed monitor has left (systemd's ExecStopPost)
    python trainyard.pyz monitor JOB_DIR         run this node's monitor
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main(argv: list[str]) -> int:
    """Run one subcommand; return its exit status. Imports are late: `exec` runs once for each rank."""
    command, *rest = argv
    run: Callable[..., int | None] | None
    if command == "monitor":
        from .monitor import monitor

        run = monitor.run
    elif command == "script":
        from .ranks import start_script

        run = start_script.run
    elif command == "container":
        from .ranks import container

        run = container.run
    elif command == "remove-containers":
        from .ranks import container

        run = container.remove_left
    elif command == "agent":
        from .ranks import agent_process

        run = agent_process.run_agent
    else:
        from .ranks import execute

        commands: dict[str, Callable[..., int | None]] = {
            "exec": execute.run_process,
            "rank": execute.run_rank,
            "mpi-rank": execute.run_mpi_rank,
            "mpi-end": execute.print_end,
        }
        run = commands.get(command)
    if run is None:
        print(f"trainyard: unknown command {command!r}", file=sys.stderr)
        return 64
    return run(*rest) or 0
