# SPDX-License-Identifier: Apache-2.0
"""The program that runs a job on a node: `trainyard.pyz`, a zip of these very modules.

Ansible brings the modules to the node inside the module call anyway, so the runtime needs no installation, has the
version of the controller, and outlives the call.

    python trainyard.pyz exec JOB_DIR NAME       become a process of the job
    python trainyard.pyz agent MODULE ARGV...    be an agent that starts ranks, as `python -m MODULE` would
    python trainyard.pyz rank ARGV...            become a rank under an agent
    python trainyard.pyz mpi-rank NAMES ARGV...  become a rank under mpirun, with these variables
    python trainyard.pyz script ARGV...          run a start script, and wait for what it leaves in the background
    python trainyard.pyz record JOB_DIR NAME     write down how a unit ended (systemd's ExecStopPost)
    python trainyard.pyz monitor JOB_DIR         watch this node's processes and keep in touch with the head
"""

from __future__ import annotations

import sys

_PARTS = (
    "trainyard",
    "trainyard.findings",
    "trainyard.findings.visible",
    "trainyard.job",
    "trainyard.job.causes",
    "trainyard.job.checkpoints",
    "trainyard.job.events",
    "trainyard.job.failure",
    "trainyard.job.failure_kinds",
    "trainyard.job.flight_recorder",
    "trainyard.job.goodput",
    "trainyard.job.hang",
    "trainyard.job.known_secrets",
    "trainyard.job.meeting",
    "trainyard.job.messages",
    "trainyard.job.progress",
    "trainyard.job.progress_forms",
    "trainyard.job.prometheus",
    "trainyard.job.restarts",
    "trainyard.job.shapes",
    "trainyard.job.silence",
    "trainyard.job.stacks",
    "trainyard.job.start_scripts",
    "trainyard.job.stragglers",
    "trainyard_node",
    "trainyard_node.hardware",
    "trainyard_node.hardware.rdma_traffic",
    "trainyard_node.job",
    "trainyard_node.job.agent_ranks",
    "trainyard_node.job.checkpoint_watch",
    "trainyard_node.job.oom_kills",
    "trainyard_node.job.device_holders",
    "trainyard_node.job.evidence",
    "trainyard_node.job.execute",
    "trainyard_node.job.ends",
    "trainyard_node.job.exits",
    "trainyard_node.job.gate_watch",
    "trainyard_node.job.hang_watch",
    "trainyard_node.job.head",
    "trainyard_node.job.held_up",
    "trainyard_node.job.log_secrets",
    "trainyard_node.job.meeting",
    "trainyard_node.job.monitor",
    "trainyard_node.job.node_part",
    "trainyard_node.job.processes",
    "trainyard_node.job.runtime",
    "trainyard_node.job.room",
    "trainyard_node.job.sender",
    "trainyard_node.job.stacks",
    "trainyard_node.job.start_script",
    "trainyard_node.job.supervisors",
    "trainyard_node.job.tail",
    "trainyard_node.job.textfile",
    "trainyard_node.job.units",
    "trainyard_node.job.waits",
    "trainyard_node.job.wire",
    "trainyard_node.machine",
    "trainyard_node.machine.patience",
    "trainyard_node.machine.private",
    "trainyard_node.machine.tree",
)
# What restarts (gate.py) and jobs with `direct` (meeting.py) alone need, as text: the monitor compiles it once.
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
    "trainyard.nvidia",
    "trainyard.nvidia.local_collective",
    "trainyard.nvidia.nccl_tests_faults",
    "trainyard.nvidia.nccl_tests_output",
    "trainyard.job.accelerate",
    "trainyard.job.moved",
    "trainyard.job.starter_programs",
    "trainyard.job.starters",
    "trainyard_node.hardware.accelerators",
    "trainyard_node.hardware.counters",
    "trainyard_node.hardware.device_health",
    "trainyard_node.hardware.interfaces",
    "trainyard_node.hardware.npu",
    "trainyard_node.job.gate",
    "trainyard_node.nvidia",
    "trainyard_node.nvidia.local_collective",
)
_MAIN = b"import sys\nfrom runtime.trainyard_node.job.runtime import main\nsys.exit(main(sys.argv[1:]))\n"


def pack() -> bytes:
    """Build trainyard.pyz from the modules that this process runs with, text and code.

    The code is for its Python, and has been compiled before where the modules stay on the node. Another Python, such as
    one of a virtual environment, takes the text.
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

    # What trainyard_node is part of, on Ansible's side or the agent's.
    name = f"{__name__.rsplit('.', 3)[0]}.{part}"
    spec = util.find_spec(name)
    text = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
    if spec is None or text is None:
        raise FileNotFoundError(f"{part} is not part of what was sent")
    path = part.replace(".", "/") + ("/__init__" if spec.submodule_search_locations is not None else "")
    if not compiled:
        return path, text.encode(), b""
    # PEP 552; flag 1: to be taken as it is.
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
        from .exits import record_unit

        record_unit(rest[0], rest[1])
        return 0
    if command == "monitor":
        from pathlib import Path

        from .monitor import run

        return run(Path(rest[0]))
    print(f"trainyard: unknown command {command!r}", file=sys.stderr)
    return 64
