# SPDX-License-Identifier: Apache-2.0
"""The types of a job: what a job file requests, checked. Names that end in `_s` are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ascend.given_rank_table import GivenTable


@dataclass(frozen=True)
class Restarts:
    """Restarts after a failure. `checkpoints` is a folder below the job's folder, or an absolute path."""

    most: int = 0
    # `auto`: causes that return every time end the job; `always`: any failure is answered by a restart.
    restart_on: str = "auto"
    spares: int = 0
    # The least number of nodes with which the job goes on; 0 where it needs all of them.
    min_nodes: int = 0
    # The host that only votes when the head is lost, "" for none.
    witness: str = ""
    rejoin_s: int = 300
    checkpoints: str = ""
    # Whether a checkpoint from which attempts fail is set aside.
    rolls_back: bool = False
    # MindSpore's own recovery of single processes, and where its records lie.
    recovery: bool = False
    recovery_path: str = ""


@dataclass(frozen=True)
class Stop:
    """How ranks are asked to end: a signal's name without SIG, and how long they may then take to save."""

    signal: str = "TERM"
    grace_s: int = 30


@dataclass(frozen=True)
class Hang:
    """Times without progress after which a job counts as hung; `after_s` is None for auto, which ends nothing."""

    after_s: int | None
    first_s: int
    pause_s: int
    pause_pattern: str


@dataclass(frozen=True)
class Events:
    """Notifications and metrics. `receivers` hold what may be shown; addresses and arguments go to the head alone."""

    receivers: tuple[Mapping[str, Any], ...] = ()
    interval_s: int = 600
    metrics_folder: str = ""


@dataclass(frozen=True)
class Mpi:
    """Options of mpirun: its MCA parameters, and whether a hostfile or -H names the hosts."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    placement: str = "hostfile"


@dataclass(frozen=True)
class Slurm:
    """Options for Slurm. `folder` is on a file system that all nodes share; "" where there is none."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    gres: str = "auto"
    options: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class Image:
    """The image in which the ranks run: `kind` is registry, archive or sif.

    `runtimes` are the container programs that may run it, the preferred one first. A mount is its source on the node,
    its target, and `ro` or `rw`. With `copy_from` the other nodes copy the image from this one.
    """

    reference: str
    kind: str
    runtimes: tuple[str, ...]
    mounts: tuple[tuple[str, str, str], ...] = ()
    pull: str = "missing"
    copy_from: str = ""


@dataclass(frozen=True)
class Kubernetes:
    """Options for Kubernetes as the job file has them; schedulers/kubernetes/settings.py checks them."""

    image: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    options: Any = None


@dataclass(frozen=True)
class Job:
    """One job as requested. `None` in ranks_per_node, devices and port means that the plan chooses.

    `nodes` is 0 for every host that is no spare; `hosts` is a group or pattern of the inventory.
    """

    name: str
    command: tuple[str, ...]
    scheduler: str = "ssh"
    launcher: str = "torchrun"
    source: str = ""
    nodes: int = 0
    hosts: str = ""
    ranks_per_node: int | None = None
    # What starts ranks by itself, such as run.sh: one copy of it runs on each node, with all devices. "" for nothing.
    one_copy: str = ""
    devices: tuple[int, ...] | None = None
    any_device_set: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    network: str = ""
    port: int | None = None
    timeout_s: int = 86_400
    join_timeout_s: int = 600
    heartbeat_timeout_s: int = 30
    message_timeout_s: int = 300
    venv: str = ""
    # Names of packages, and the versions that the job needs of some, such as >=1.26.
    packages: tuple[str, ...] = ()
    package_versions: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    outputs_limit_mib: int = 64
    min_disk_mib: int = 1024
    min_memory_mib: int = 256
    health_gate: bool = True
    # The launch refuses, waits for or shares devices that somebody else uses; it waits at most so many seconds.
    busy_devices: str = "refuse"
    wait_timeout_s: int = 86_400
    slow_ranks: bool = True
    progress_pattern: str = ""
    restarts: Restarts = Restarts()
    stop: Stop = Stop()
    # None where the check is off.
    hang: Hang | None = None
    events: Events = Events()
    tls: bool = False
    mpi: Mpi = Mpi()
    oneflow_style: str = "launch"
    # Path of a rank table on the controller, and its content once it has been read.
    rank_table: str = ""
    given_table: GivenTable | None = None
    # None without a job_image, and for pods.
    image: Image | None = None
    slurm: Slurm = Slurm()
    kubernetes: Kubernetes = Kubernetes()
