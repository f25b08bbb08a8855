# SPDX-License-Identifier: Apache-2.0
"""Build and run `trainyard.pyz`, the program that runs a job on a node: a zip of these modules.

Ansible sends the modules to the node with each module call, so the runtime needs no installation and has the version of
the controller.

    python trainyard.pyz exec JOB_DIR NAME       become a process of the job
    python trainyard.pyz agent MODULE ARGV...    be an agent that starts ranks, as `python -m MODULE` would
    python trainyard.pyz rank ARGV...            become a rank under an agent
    python trainyard.pyz mpi-rank NAMES ARGV...  become a rank under mpirun, with these variables
    python trainyard.pyz script ARGV...          run a start script, and wait for its background processes
    python trainyard.pyz record JOB_DIR NAME     write down how a unit ended (systemd's ExecStopPost)
    python trainyard.pyz monitor JOB_DIR         run this node's monitor
"""

from __future__ import annotations

import sys

_PARTS = (
    "trainyard",
    "trainyard.findings",
    "trainyard.findings.spans",
    "trainyard.findings.visible",
    "trainyard.job",
    "trainyard.job.file",
    "trainyard.job.file.start_scripts",
    "trainyard.job.record",
    "trainyard.job.record.events",
    "trainyard.job.record.metrics",
    "trainyard.job.record.secrets",
    "trainyard.job.run",
    "trainyard.job.run.attempt_watch",
    "trainyard.job.run.causes",
    "trainyard.job.run.checkpoints",
    "trainyard.job.run.cluster_state",
    "trainyard.job.run.failure",
    "trainyard.job.run.failure_kinds",
    "trainyard.job.run.flight_recorder",
    "trainyard.job.run.goodput",
    "trainyard.job.run.hang",
    "trainyard.job.run.hang_watch",
    "trainyard.job.run.head_state",
    "trainyard.job.run.messages",
    "trainyard.job.run.node_reports",
    "trainyard.job.run.orders",
    "trainyard.job.run.progress",
    "trainyard.job.run.progress_forms",
    "trainyard.job.run.rank_connections",
    "trainyard.job.run.restarts",
    "trainyard.job.run.shapes",
    "trainyard.job.run.silence",
    "trainyard.job.run.slow_ranks",
    "trainyard.job.run.spare_choice",
    "trainyard.job.run.stacks",
    "trainyard_node",
    "trainyard_node.hardware",
    "trainyard_node.hardware.rdma_traffic",
    "trainyard_node.job",
    "trainyard_node.job.record",
    "trainyard_node.job.record.event_sender",
    "trainyard_node.job.record.metrics_file",
    "trainyard_node.job.record.secrets",
    "trainyard_node.job.run",
    "trainyard_node.job.run.agent_ranks",
    "trainyard_node.job.run.checkpoint_poll",
    "trainyard_node.job.run.connections",
    "trainyard_node.job.run.device_holders",
    "trainyard_node.job.run.disk_space",
    "trainyard_node.job.run.evidence",
    "trainyard_node.job.run.execute",
    "trainyard_node.job.run.rank_exits",
    "trainyard_node.job.run.failures",
    "trainyard_node.job.run.head_loop",
    "trainyard_node.job.run.log_tail",
    "trainyard_node.job.run.monitor",
    "trainyard_node.job.run.next_attempt",
    "trainyard_node.job.run.node_loop",
    "trainyard_node.job.run.node_runner",
    "trainyard_node.job.run.oom_kills",
    "trainyard_node.job.run.processes",
    "trainyard_node.job.run.rank_connections",
    "trainyard_node.job.run.restart_check",
    "trainyard_node.job.run.runtime",
    "trainyard_node.job.run.slow_node",
    "trainyard_node.job.run.slow_ranks",
    "trainyard_node.job.run.stacks",
    "trainyard_node.job.run.start_script",
    "trainyard_node.job.run.supervisors",
    "trainyard_node.job.run.units",
    "trainyard_node.machine",
    "trainyard_node.machine.json_files",
    "trainyard_node.machine.private",
    "trainyard_node.machine.regex_limit",
    "trainyard_node.machine.tree",
)
# Modules for restarts (health_gate.py) and jobs with `direct` (rank_connections.py), as text: compiled when needed.
_LATE = (
    "trainyard.ascend",
    "trainyard.ascend.rank_table_servers",
    "trainyard.ascend.rank_table_view",
    "trainyard.ascend.software",
    "trainyard.cluster",
    "trainyard.cluster.clocks",
    "trainyard.findings.adhoc",
    "trainyard.findings.checks",
    "trainyard.findings.findings",
    "trainyard.hardware",
    "trainyard.hardware.accelerators",
    "trainyard.hardware.device_checks",
    "trainyard.hardware.device_health",
    "trainyard.hardware.gpu_health",
    "trainyard.hardware.gpu_links",
    "trainyard.hardware.gpu_rules",
    "trainyard.hardware.interfaces",
    "trainyard.hardware.node_health",
    "trainyard.hardware.npu",
    "trainyard.hardware.pasted",
    "trainyard.hardware.port_counters",
    "trainyard.job.file.launcher_programs",
    "trainyard.job.run.moved_addresses",
    "trainyard.nvidia",
    "trainyard.nvidia.local_collective",
    "trainyard.nvidia.nccl_tests_faults",
    "trainyard.nvidia.nccl_tests_output",
    "trainyard_node.hardware.accelerators",
    "trainyard_node.hardware.counters",
    "trainyard_node.hardware.device_health",
    "trainyard_node.hardware.interfaces",
    "trainyard_node.hardware.npu",
    "trainyard_node.job.run.health_gate",
    "trainyard_node.nvidia",
    "trainyard_node.nvidia.local_collective",
)
_MAIN = b"import sys\nfrom runtime.trainyard_node.job.run.runtime import main\nsys.exit(main(sys.argv[1:]))\n"


def pack() -> bytes:
    """Build trainyard.pyz from the modules that this process runs with, text and code.

    The code is for the present Python; another one, such as one of a virtual environment, uses the text.
    """
    import io
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("__main__.py", _MAIN)
        archive.writestr("runtime/__init__.py", b"")
        for part in (*_PARTS, *_LATE):
            path, text, code = _text_and_code(part, part in _PARTS)
            archive.writestr(f"runtime/{path}.py", text)
            if code:
                archive.writestr(f"runtime/{path}.pyc", code)
    return content.getvalue()


def _text_and_code(part: str, compiled: bool) -> tuple[str, bytes, bytes]:
    import marshal
    from importlib import util

    # The parent package differs between Ansible's side and the agent's.
    name = f"{__name__.rsplit('.', 4)[0]}.{part}"
    spec = util.find_spec(name)
    text = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if spec is None or text is None:
        raise FileNotFoundError(f"{part} is not part of what was sent")
    path = part.replace(".", "/") + ("/__init__" if spec.submodule_search_locations is not None else "")
    if not compiled:
        return path, text.encode(), b""
    # PEP 552; flag 1: used without a check of the source.
    head = util.MAGIC_NUMBER + (1).to_bytes(4, "little") + util.source_hash(text.encode())
    return path, text.encode(), head + marshal.dumps(spec.loader.get_code(name))  # type: ignore[union-attr]


def main(argv: list[str]) -> int:
    """Run one subcommand; returns its exit status. Imports are late: `exec` runs once for each rank."""
    command, *rest = argv
    if command == "exec":
        from .execute import run_process

        return run_process(rest[0], rest[1])
    if command == "agent":
        from .execute import run_agent

        run_agent(rest)
    if command == "rank":
        from .execute import run_rank

        return run_rank(rest)
    if command == "mpi-rank":
        from .execute import run_mpi_rank

        return run_mpi_rank(rest[0].split(","), rest[1:])
    if command == "script":
        from .start_script import run as run_script

        return run_script(rest)
    if command == "mpi-lost":
        from .execute import tell_lost_peer

        tell_lost_peer(*rest)
        return 0
    if command == "record":
        from .rank_exits import record_unit

        record_unit(rest[0], rest[1])
        return 0
    if command == "monitor":
        from pathlib import Path

        from .monitor import run

        return run(Path(rest[0]))
    print(f"trainyard: unknown command {command!r}", file=sys.stderr)
    return 64
