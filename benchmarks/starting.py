# SPDX-License-Identifier: Apache-2.0
"""Start a training through trainyard, and the same one without it, on the nodes of the lab."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
CACHE = PROJECT / ".cache/benchmarks"
LAB = os.environ.get("LAB", "bench")
LAB_STATE = PROJECT / ".cache/labs" / LAB
INVENTORY = Path(os.environ.get("LAB_INVENTORY", LAB_STATE / "inventory"))
FOLDER = "/var/lib/trainyard/benchmarks"  # prepare.yml brings the programs there
VENV = "/opt/trainyard/venvs/pytorch/bin"
DEEPSPEED = "/opt/deepspeed/bin/deepspeed"
NODES = int(os.environ.get("NODES") or 4)
LIMIT_S = 300  # for one command; several failures of launchers never end by themselves
TINY = ["tiny_ddp.py"]
ports = itertools.count(20000 + os.getpid() % 5000)


class BenchmarkError(Exception):
    """A variant did not do what is to be measured; the text is its output."""


def run(argv: list[str], env: dict[str, str] | None = None, status: int = 0, limit_s: float = LIMIT_S) -> str:
    """Run a command to its end and return what it printed."""
    process = subprocess.Popen(
        argv, cwd=PROJECT, env={**os.environ, **(env or {})}, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = f"{process.communicate()[0]}\nnot over after {limit_s} s"
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # Ctrl-C does not reach a session of its own
        raise
    if process.returncode != status:
        raise BenchmarkError(f"status {process.returncode}, expected {status}: {shlex.join(argv)}\n{output[-3000:]}")
    return output


def playbook(name: str, *arguments: str, status: int = 0, limit_s: float = LIMIT_S) -> str:
    """Run a playbook of the project on the lab."""
    return run(["ansible-playbook", name, "-i", str(INVENTORY), *arguments], status=status, limit_s=limit_s)


def node_names(count: int) -> list[str]:
    """Return the first nodes of the lab."""
    return [f"n{number + 1}" for number in range(count)]


class FirstNode:
    """The training user's shell on n1, where launchers other than Ansible are started."""

    def __init__(self) -> None:
        """Open one connection for all commands, as Ansible keeps its own open."""
        folder = tempfile.mkdtemp(prefix="bench-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._ssh = ["ssh", "-F", str(LAB_STATE / "ssh_config"), "-o", "ControlMaster=auto"]
        self._ssh += ["-o", f"ControlPath={folder}/%C", "-o", "ControlPersist=60", "n1"]

    def __call__(self, script: str) -> str:
        """Run a script."""
        return run([*self._ssh, shlex.join(["sudo", "-H", "-u", "train", "bash", "-c", f"cd {FOLDER}; {script}"])])


def ssh_loop(command: Callable[[int], str], nodes: int) -> str:
    """Return the script that runs a command on each node and fails when one fails."""
    scripts = [shlex.quote(f"cd {FOLDER}; {command(rank)}") for rank in range(nodes)]
    each = [f"ssh {name} {script} &" for name, script in zip(node_names(nodes), scripts)]
    return "\n".join([*each, "status=0; for job in $(jobs -p); do wait $job || status=1; done; exit $status"])


def bare(program: list[str], nodes: int) -> str:
    """Return the script that starts each rank by itself over ssh."""
    port = next(ports)
    env = f"OMP_NUM_THREADS=1 LOCAL_RANK=0 WORLD_SIZE={nodes} MASTER_ADDR=n1 MASTER_PORT={port}"
    return ssh_loop(lambda rank: f"{env} RANK={rank} {VENV}/python {shlex.join(program)}", nodes)


def torchrun(program: list[str], nodes: int) -> str:
    """Return the script that starts torchrun on each node over ssh."""
    options = f"--nnodes={nodes} --nproc-per-node=1 --master-addr=n1 --master-port={next(ports)}"
    return ssh_loop(
        lambda rank: f"OMP_NUM_THREADS=1 {VENV}/torchrun {options} --node-rank={rank} {shlex.join(program)}", nodes
    )


def sbatch(program: list[str], nodes: int) -> str:
    """Return the script that submits torchrun on each host of an allocation of Slurm, and waits for its end."""
    port = next(ports)
    options = f"--nnodes={nodes} --nproc-per-node=1 --master-addr=n1 --master-port={port}"
    step = f"OMP_NUM_THREADS=1 {VENV}/torchrun {options} --node-rank=$SLURM_NODEID {shlex.join(program)}"
    # `sbatch --wait` would notice the end seconds later.
    script, log = f"srun bash -c {shlex.quote(step)}; echo ended", f"/srv/shared/bench-{port}.log"
    submit = f"sbatch --nodes={nodes} --ntasks-per-node=1 --output={log} --wrap={shlex.quote(script)}"
    return f"{submit} && until grep -q ^ended {log}; do sleep 0.1; done; cat {log}; rm {log}"


def mpirun() -> str:
    """Return the script that starts the tiny training with Open MPI."""
    hosts = ",".join(f"{name}:1" for name in node_names(NODES))
    env = {"OMP_NUM_THREADS": 1, "LOCAL_RANK": 0, "WORLD_SIZE": NODES, "MASTER_ADDR": "n1", "MASTER_PORT": next(ports)}
    exported = " ".join(f"-x {name}={value}" for name, value in env.items())
    return f"mpirun -H {hosts} {exported} {VENV}/python {FOLDER}/{shlex.join(TINY)}"


def deepspeed() -> str:
    """Return the script that starts the tiny training with DeepSpeed's launcher."""
    options = f"--hostfile={FOLDER}/hostfile.{NODES} --master_port={next(ports)} --launcher=pdsh"
    path = f"{Path(DEEPSPEED).parent}:$PATH"
    return f"PATH={path} OMP_NUM_THREADS=1 DS_ACCELERATOR=cpu {DEEPSPEED} {options} {shlex.join(TINY)}"


def job(launcher: str, program: list[str], nodes: int, source: str, **more: Any) -> list[str]:
    """Return the arguments of launch.yml."""
    variables = {
        "job_name": "bench", "job_launcher": launcher, "job_nodes": nodes, "job_ranks_per_node": 1,
        "job_devices": "none", "job_source": source, "job_command": ["python", *program], "job_timeout": LIMIT_S,
        "job_env": {"OMP_NUM_THREADS": "1"}, "trainyard_runs": str(CACHE / "runs"), **more,
    }  # fmt: skip
    return ["-e", json.dumps(variables)]


def runs() -> set[Path]:
    """Return the folders of runs on the controller."""
    return {path.parent for path in (CACHE / "runs").glob("*/plan.json")}


def launched(launcher: str, program: list[str], nodes: int, source: str, **more: Any) -> str:
    """Run a job with launch.yml and return rank 0's log."""
    before = runs()
    playbook("launch.yml", *job(launcher, program, nodes, source, **more))
    (folder,) = runs() - before
    name = json.loads((folder / "plan.json").read_text())["rank_log"]
    return (folder / "logs" / name.replace("{rank}", "0")).read_text()


def machine() -> dict[str, Any]:
    """Return on what this was measured, and whether the machine was quiet."""
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": run(["git", "describe", "--always", "--dirty"]).strip(),
        "cores": os.cpu_count(),
        "memory_gib": -(-int(memory[1]) // (1 << 20)) if memory else None,
        "load_before": round(os.getloadavg()[0], 1),
    }
