# SPDX-License-Identifier: Apache-2.0
"""Build and run `trainyard.pyz`, the program that runs a job on a node: a zip of these modules.

Ansible sends the modules to the node with each module call, so the runtime needs no installation and has the version of
the controller.

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
    import zipfile
    from collections.abc import Callable

# Modules by package, as text and compiled.
_COMPILED = {
    "trainyard.findings": "shapes spans visible",
    "trainyard.job.file": "launcher_programs start_scripts",
    "trainyard.job.record": "events metrics secrets",
    "trainyard.job.run": (
        "attempt_watch causes checkpoints containers daemons failure failure_kinds fewer_nodes flight_recorder "
        "framework_log goodput guests hang hang_watch head_state headline messages node_reports orders progress "
        "progress_forms progress_reader rank_connections restart_rules restarts rollback saving slow_ranks stacks "
        "succession take_over worlds"
    ),
    "trainyard.software": "container_flags",
    "trainyard_node.hardware": "rdma_traffic",
    "trainyard_node.job.record": "event_sender metrics_file node_plan secrets",
    "trainyard_node.job.run": (
        "agent_ranks checkpoint_aside checkpoint_poll connections container daemons device_holders disk_space evidence "
        "execute failures head_loop held_exits log_tail monitor next_attempt node_loop node_runner oom_kills open_log "
        "port_holder processes rank_connections rank_exits restart_check runtime seat slow_node slow_ranks stacks "
        "start_script stop_grace supervisor units"
    ),
    "trainyard_node.machine": "as_user json_files mounts open_folders private programs regex_limit tree users",
}
# Modules for restarts (health_gate.py), as text: compiled when needed.
_TEXT_ONLY = {
    "trainyard.ascend": "rank_table_servers rank_table_view software",
    "trainyard.cluster": "clocks",
    "trainyard.findings": "adhoc checks findings",
    "trainyard.hardware": (
        "accelerators device_checks device_health device_processes gpu_health gpu_links gpu_rules interfaces "
        "node_health npu pasted port_counters"
    ),
    "trainyard.job.run": "moved_addresses node_numbers",
    "trainyard.nvidia": "local_collective nccl_tests_faults nccl_tests_output",
    "trainyard_node.hardware": "accelerators counters device_health interfaces npu",
    "trainyard_node.job.run": "health_gate",
    "trainyard_node.nvidia": "local_collective",
}
_MAIN = b"import sys\nfrom runtime.trainyard_node.job.run.runtime import main\nsys.exit(main(sys.argv[1:]))\n"


def pack() -> bytes:
    """Build trainyard.pyz from the modules that this process runs with, as text and compiled.

    The compiled code is for the present Python; another one, such as one of a virtual environment, uses the text.
    """
    import io
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        archive.writestr("runtime/__init__.py", b"")
        for name in _names(_COMPILED):
            _add(archive, name, compiled=True)
        for name in sorted(set(_names(_TEXT_ONLY)) - set(_names(_COMPILED))):
            _add(archive, name, compiled=False)
    return content.getvalue()


def _names(modules: dict[str, str]) -> list[str]:
    """Return the names of modules and of all packages above them."""
    names = {f"{package}.{module}" for package, listed in modules.items() for module in listed.split()}
    for package in modules:
        while package:
            names.add(package)
            package = package.rpartition(".")[0]
    return sorted(names)


def _add(archive: zipfile.ZipFile, module: str, compiled: bool) -> None:
    import marshal
    from importlib import util

    # The parent package differs between Ansible's side and the agent's.
    name = f"{__name__.rsplit('.', 4)[0]}.{module}"
    found = util.find_spec(name)
    if found is None or found.loader is None:
        raise FileNotFoundError(f"{module} is not part of what was sent")
    text = found.loader.get_source(name)  # type: ignore[attr-defined]
    path = f"runtime/{module.replace('.', '/')}{'/__init__' if found.submodule_search_locations is not None else ''}"
    archive.writestr(f"{path}.py", text)
    if compiled:
        # PEP 552; flag 1: used without a check of the source.
        head = util.MAGIC_NUMBER + (1).to_bytes(4, "little") + util.source_hash(text.encode())
        archive.writestr(f"{path}.pyc", head + marshal.dumps(found.loader.get_code(name)))  # type: ignore[attr-defined]


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
