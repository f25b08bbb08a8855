# SPDX-License-Identifier: Apache-2.0
"""Build and run `trainyard.pyz`, the program that runs a job on a node: a zip of these modules.

The agent has the modules, so the runtime needs no installation and has the version of the controller.

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

_MAIN = b"import sys\nfrom runtime.trainyard_node.job.run.runtime import main\nsys.exit(main(sys.argv[1:]))\n"


def pack() -> bytes:
    """Build trainyard.pyz of this module and all that it imports, as text and compiled.

    The compiled code is for the present Python; another one, such as one of a virtual environment, uses the text.
    """
    import io
    import zipfile

    from ....trainyard.findings.own_imports import files_of

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        archive.writestr("runtime/__init__.py", b"")
        for path, text in files_of(["trainyard_node/job/run/runtime.py"], _source).items():
            archive.writestr(f"runtime/{path}", text)
            archive.writestr(f"runtime/{path}c", _compiled(path, text))
    return content.getvalue()


def packed() -> bytes:
    """Return trainyard.pyz, which an agent keeps beside its modules, where nobody else may write."""
    import contextlib
    from pathlib import Path

    from ...machine.json_files import write_bytes

    if not __name__.startswith("agent."):
        return pack()
    kept = Path(__file__).parents[4] / f"trainyard-{sys.implementation.cache_tag}.pyz"
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    made = pack()
    # Without room it is packed again.
    with contextlib.suppress(OSError):
        write_bytes(kept, made)
    return made


def _module(path: str) -> str:
    """Return the name of a module here: the parent package differs between Ansible's side and the agent's."""
    return f"{__name__.rsplit('.', 4)[0]}.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def _source(path: str) -> str | None:
    from importlib import util

    try:
        found = util.find_spec(_module(path))
    except ModuleNotFoundError:
        return None
    is_package = found is not None and found.submodule_search_locations is not None
    if found is None or found.loader is None or is_package != path.endswith("/__init__.py"):
        return None
    text: str | None = found.loader.get_source(found.name)  # type: ignore[attr-defined]
    return text


def _compiled(path: str, text: str) -> bytes:
    import marshal
    from importlib import util

    found = util.find_spec(_module(path))
    code = found.loader.get_code(found.name)  # type: ignore[union-attr]
    # PEP 552; flag 1: used without a check of the source.
    head = util.MAGIC_NUMBER + (1).to_bytes(4, "little") + util.source_hash(text.encode())
    return head + marshal.dumps(code)


def main(argv: list[str]) -> int:
    """Run one subcommand; return its exit status. Imports are late: `exec` runs once for each rank."""
    command, *rest = argv
    run: Callable[..., int | None] | None
    if command == "monitor":
        from . import monitor

        run = monitor.run
    elif command == "script":
        from . import start_script

        run = start_script.run
    elif command == "container":
        from . import container

        run = container.run
    elif command == "remove-containers":
        from . import container

        run = container.remove_left
    else:
        from . import execute

        commands: dict[str, Callable[..., int | None]] = {
            "exec": execute.run_process,
            "agent": execute.run_agent,
            "rank": execute.run_rank,
            "mpi-rank": execute.run_mpi_rank,
            "mpi-end": execute.print_end,
        }
        run = commands.get(command)
    if run is None:
        print(f"trainyard: unknown command {command!r}", file=sys.stderr)
        return 64
    return run(*rest) or 0
