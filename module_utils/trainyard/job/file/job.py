# SPDX-License-Identifier: Apache-2.0
"""The types of a job: what a job file requests, checked. Names that end in `_s` are seconds.

A field says once how far its value travels: with IN_PLAN into plan.json, with TO_NODES into each node plan, too, and
otherwise no further than the plan that is made of it. Addresses, secrets and large texts do not travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from ...ascend.given_rank_table import GivenTable
from .variables import VARIABLES

# A node without a report for so many seconds is given up; a healthy one reports every second.
SILENT_AFTER_S = 15
_HERE, IN_PLAN, TO_NODES = {"travels": 0}, {"travels": 1}, {"travels": 2}


def _option(variable: str, travels: Mapping[str, int] = _HERE) -> Any:
    """Return the field of a variable whose line in the table is its only rule (values.Values.declared)."""
    default = VARIABLES[variable].default
    default = tuple(default) if isinstance(default, list) else default
    return field(default=default, metadata={"variable": variable, **travels})


@dataclass(frozen=True)
class Restarts:
    """Restarts after a failure. `checkpoints` is a folder below the job's folder, or an absolute path."""

    max_restarts: int = field(default=0, metadata=TO_NODES)
    # `auto`: causes that return every time end the job; `always`: any failure is answered by a restart.
    restart_on: str = _option("job_restart_on", TO_NODES)
    spares: int = 0
    # The least number of nodes with which the job goes on; 0 where it needs all of them.
    min_nodes: int = 0
    # The host that only votes when the head is lost, "" for none.
    witness: str = ""
    rejoin_s: int = _option("job_rejoin_timeout", TO_NODES)
    checkpoints: str = field(default="", metadata=TO_NODES)
    # Whether a checkpoint from which attempts fail is set aside.
    checkpoint_rollback: bool = field(default=False, metadata=TO_NODES)
    # MindSpore's own recovery of single processes, and where its records lie.
    recovery: bool = False
    recovery_path: str = ""


@dataclass(frozen=True)
class Stop:
    """How ranks are asked to end: a signal's name without SIG, and how long they may then take to save."""

    signal: str = _option("job_stop_signal")
    grace_s: int = _option("job_stop_grace")


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
    events_s: int = _option("job_events_interval", IN_PLAN)
    metrics_folder: str = field(default="", metadata=TO_NODES)


@dataclass(frozen=True)
class Mpi:
    """Options of mpirun: its MCA parameters, and whether a hostfile or -H names the hosts."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    placement: str = "hostfile"


@dataclass(frozen=True)
class Slurm:
    """Options for Slurm. `folder` is on a file system that all nodes share; "" where there is none."""

    partition: str = _option("job_partition")
    account: str = _option("job_account")
    qos: str = _option("job_qos")
    gres: str = _option("job_gres")
    options: tuple[str, ...] = ()
    folder: str = _option("job_folder")


@dataclass(frozen=True)
class Image:
    """The image in which the ranks run: `kind` is registry, archive or sif.

    `runtimes` are the container programs that may run it, the preferred one first. A mount is its source on the node,
    its target, and `ro` or `rw`. With `copy_from` the other nodes copy the image from this one. With `has_login` there
    is a login for its registry (job_registry_auth), which is no part of a job.
    """

    reference: str
    kind: str
    runtimes: tuple[str, ...]
    mounts: tuple[tuple[str, str, str], ...] = ()
    pull: str = "missing"
    copy_from: str = ""
    has_login: bool = False


@dataclass(frozen=True)
class Kubernetes:
    """Options for Kubernetes as the job file has them; schedulers/kubernetes/settings.py checks them."""

    image: str = _option("job_image")
    kubeconfig: str = _option("job_kubeconfig")
    context: str = _option("job_kube_context")
    namespace: str = _option("job_namespace")
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
    source: str = _option("job_source")
    nodes: int = _option("job_nodes")
    hosts: str = _option("job_hosts")
    rank_order: str = _option("job_rank_order")
    # Which nodes are at which switch (cluster/switches.py), once it has been read; None where it is not known.
    topology: Mapping[str, Any] | None = None
    ranks_per_node: int | None = None
    # What starts ranks by itself, such as run.sh: one copy of it runs on each node, with all devices. "" for nothing.
    one_copy: str = ""
    devices: tuple[int, ...] | None = None
    any_device_set: bool = _option("job_any_device_set")
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: tuple[str, ...] = field(default=(), metadata=IN_PLAN)
    network: str = _option("job_network")
    port: int | None = None
    timeout_s: int = _option("job_timeout", TO_NODES)
    join_timeout_s: int = _option("job_join_timeout")
    heartbeat_timeout_s: int = _option("job_heartbeat_timeout")
    message_timeout_s: int = _option("job_message_timeout")
    venv: str = ""
    # Names of packages, and the versions that the job needs of some, such as >=1.26.
    packages: tuple[str, ...] = ()
    package_versions: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = _option("job_data", TO_NODES)
    outputs: tuple[str, ...] = field(default=(), metadata=IN_PLAN)
    outputs_limit_mib: int = _option("job_outputs_limit_mib", IN_PLAN)
    min_disk_mib: int = _option("job_min_disk_mib", TO_NODES)
    min_memory_mib: int = _option("job_min_memory_mib", TO_NODES)
    health_gate: bool = _option("job_health_gate", TO_NODES)
    # `auto`: ranks run on the cores next to their device.
    binding: str = _option("job_binding")
    # The launch refuses, waits for or shares devices that somebody else uses; it waits at most so many seconds.
    busy_devices: str = _option("job_busy_devices", TO_NODES)
    wait_timeout_s: int = _option("job_wait_timeout")
    slow_ranks: bool = _option("job_slow_ranks", TO_NODES)
    progress_pattern: str = field(default="", metadata=TO_NODES)
    restarts: Restarts = Restarts()
    stop: Stop = field(default=Stop(), metadata=TO_NODES)
    # None where the check is off.
    hang: Hang | None = field(default=None, metadata=TO_NODES)
    events: Events = Events()
    tls: bool = False
    mpi: Mpi = Mpi()
    oneflow_style: str = _option("job_oneflow_style")
    # Path of a rank table on the controller, and its content once it has been read.
    rank_table: str = ""
    given_table: GivenTable | None = None
    # None without a job_image, and for pods.
    image: Image | None = None
    slurm: Slurm = Slurm()
    kubernetes: Kubernetes = Kubernetes()


def options(record: Any, least: Mapping[str, int] = IN_PLAN) -> dict[str, Any]:
    """Return what travels of a job or a part of it, at least so far, by its name in plan.json and node plans."""
    found: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if each.metadata.get("travels", 0) >= least["travels"]:
            value = list(value) if isinstance(value, tuple) else value
            found[each.name] = asdict(value) if isinstance(value, (Stop, Hang)) else value
        elif is_dataclass(value):
            found.update(options(value, least))
    return found


# The options of a job without settings, as in plan.json and as in a node plan.
PLAN_OPTIONS: Mapping[str, Any] = options(Job("", ()))
NODE_OPTIONS: Mapping[str, Any] = options(Job("", ()), TO_NODES)
# Keys of plan.json that each node plan has; its `files` are sent once for all nodes.
SHARED_KEYS = (
    *("job_id", "launcher", "job_dir", "rank_log", "venv", "venvs", "monitor_port", "silent_after_s", "world_size"),
    *NODE_OPTIONS,
)
