# SPDX-License-Identifier: Apache-2.0
"""The table of job variables: type, default, range and meaning of each.

`make generate` writes from it the defaults and argument_specs of the role `job`, the entry `job` in those of the
playbooks, and docs/job-variables.md. The checks of a job file read it directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..run.container_command import RUNTIMES
from . import mindspore_tls

MPI_PLACEMENTS = ("hostfile", "hosts")
ONEFLOW_STYLES = ("launch", "address_list")
_DAY, _YEAR = 86_400, 31_536_000  # seconds
_MAX_MIB = 1_000_000_000


# Signals that programs may handle, without those that have another meaning for ranks.
STOP_SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2")


@dataclass(frozen=True)
class Variable:
    """A job variable: `meaning` is Markdown, whose links are relative to docs/; the rest is as in argument_specs.

    A default of None means that there is none. A number lies between `least` and `most`, unless `most` is 0; one of
    type `raw` may also be its default or `auto`.
    """

    type: str
    meaning: str
    default: Any = None
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    elements: str = ""
    required: bool = False

    @property
    def range(self) -> str:
        """The least and the most that a number may be, in words."""
        return f"from {self.least} to {self.most}"


def _text(meaning: str, default: str | None = "", choices: tuple[str, ...] = (), required: bool = False) -> Variable:
    return Variable("str", meaning, None if required else default, choices=choices, required=required)


def _path(meaning: str, default: str | None = "") -> Variable:
    return Variable("path", meaning, default)


def _flag(meaning: str, default: bool = False) -> Variable:
    return Variable("bool", meaning, default)


def _number(meaning: str, default: int, least: int, most: int) -> Variable:
    return Variable("int", meaning, default, least, most)


def _raw(meaning: str, default: str, least: int = 0, most: int = 0) -> Variable:
    return Variable("raw", meaning, default, least, most)


def _mapping(meaning: str) -> Variable:
    return Variable("dict", meaning, {})


def _list(meaning: str, default: tuple[str, ...] = (), elements: str = "str", required: bool = False) -> Variable:
    return Variable("list", meaning, None if required else list(default), elements=elements, required=required)


# The value of job_ranks_per_node for commands that start their ranks themselves.
ONE_COPY = "node"
# The topic of variables that do not stand in a job file.
OUTSIDE = "Outside the job file"
# The setting that reads the variables of a topic.
READERS = {
    "Open MPI": ("job_launcher", ("mpirun",)),
    "MindSpore": ("job_launcher", ("mindspore", "msrun")),
    "Rank tables": ("job_launcher", ("rank_table",)),
    "OneFlow": ("job_launcher", ("oneflow",)),
    "Slurm": ("job_scheduler", ("slurm",)),
    "Kubernetes": ("job_scheduler", ("kubernetes",)),
}
ONLY = {topic: f"`{name}: {'` or `'.join(values)}`" for topic, (name, values) in READERS.items()}
TOPICS: Mapping[str, Mapping[str, Variable]] = {
    "The job": {
        "job_name": _text(
            "Name of the job: 1 to 40 lower-case letters, digits and hyphens, a letter first, no hyphen last. It "
            "begins the job id.",
            required=True,
        ),
        "job_command": _list(
            "Program and arguments of one rank, such as `[python, train.py, --epochs, 5]`. No shell reads it; if "
            "you need one, write `[bash, -c, '...']`. [Launchers](job-file.md#a-launcher-of-your-own).",
            required=True,
            elements="raw",
        ),
        "job_source": _text(
            "Folder on the controller that is sent to the nodes (over ssh at most 16 MiB packed); a copy of it is "
            "the working folder of every rank. A relative path is looked for beside the job file, then in the project. "
            "[Sources](job-file.md#what-of-job_source-is-sent)."
        ),
        "job_launcher": _text(
            "Program that starts the ranks: `torchrun`, `direct` (each rank alone, for programs that read `RANK` "
            "and `WORLD_SIZE`), `mpirun`, `mindspore` (a dynamic cluster), `msrun`, `rank_table` (Ascend NPUs) or "
            "`oneflow`. [Launchers](job-file.md#launchers).",
            default="torchrun",
        ),
        "job_scheduler": _text(
            "Scheduler that places the ranks: `ssh` (hosts of the inventory), `slurm` or `kubernetes`. "
            "[Schedulers](schedulers.md).",
            default="ssh",
        ),
        "job_wait": _flag("Watch the job until it ends. With `false`, return when it has started.", default=True),
        "job_timeout": _number(
            "Seconds after which a running job is stopped. Over ssh its stacks are saved first.", _DAY, 1, _YEAR
        ),
    },
    "Hosts and ranks": {
        "job_hosts": _text(
            "Inventory group whose hosts run the job. Ranks follow the order of the inventory.", default="compute"
        ),
        "job_rank_order": _text(
            "`inventory`, or `topology`: nodes at one switch follow one another. Their switches are those of "
            "`trainyard_topology`, else of the newest verification. [The order of ranks](verify.md#switches).",
            "inventory",
            ("inventory", "topology"),
        ),
        "job_nodes": _number(
            "Number of hosts to use, the first ones of the group. `0` means all except spares.", 0, 0, 1_000_000
        ),
        "job_ranks_per_node": _raw(
            "Ranks on each node. `auto` is one for each device, or one on a node without devices. Without "
            "devices, at most 16 for each processor. `node` is one copy of `job_command` on each node, with all "
            "devices, for a script that starts its own ranks; `auto` chooses it where the script clearly does so. "
            "[Start scripts](job-file.md#a-launcher-of-your-own).",
            "auto",
            1,
            1024,
        ),
        "job_devices": _raw(
            "Devices on each node: `auto` (all), `none` (CPU), a list such as `[0, 1]`, or a range such as "
            "`'[4,8)'` (4 to 7). Numbers are those of the vendor's tool. On Ascend 910 the set must be 1, 2, 4 or "
            "8 linked devices, and all 8 with several nodes.",
            "auto",
        ),
        "job_any_device_set": _flag(
            "Try 2 devices of an Ascend 910 that are not linked, such as `[0, 4]`, or fewer than 8 of each of "
            "several nodes: HCCL's documents forbid both, its parser does not. [Rules](rank-table.md#rules)."
        ),
        "job_spares": _number(
            "Number of spare hosts, the last of the group. A spare takes over the ranks of a lost or failing "
            "node. Needs `job_max_restarts`. [Spares](restarts.md#spares).",
            0,
            0,
            1000,
        ),
        "job_min_nodes": _number(
            "The least number of nodes with which the job goes on after nodes are lost and no spare is left. `0` means "
            "all. Needs `job_max_restarts`. [Fewer nodes](restarts.md#fewer-nodes).",
            0,
            0,
            1_000_000,
        ),
        "job_witness": _text(
            "One more host of the inventory, neither node nor spare, that only votes for a new head when the head is "
            "lost. With it, one of two nodes may take over. Needs `job_max_restarts`. "
            "[A witness](restarts.md#a-witness)."
        ),
    },
    "Environment and network": {
        "job_env": _mapping('Environment of every rank. Quote values that YAML would change (`"0123"`, `"yes"`).'),
        "job_secret_env": _mapping(
            "Environment that is in no plan and no argument list, and is masked in logs. Take the values from "
            "Ansible Vault. [Secrets in logs](secrets.md#secrets-in-logs)."
        ),
        "job_venv": _text(
            "Virtual environment: a name in the folder `venvs` of `trainyard_root`, a path on the nodes, or empty for "
            "the programs of the system.",
            default="pytorch",
        ),
        "job_network": _text(
            "Network between the ranks: a CIDR (`10.10.0.0/16`) or an interface (`eth1`). Empty means the network "
            "of the hosts' addresses. Name it if InfiniBand interfaces have only link-local IPv4 addresses."
        ),
        "job_port": _raw(
            "Port of the rendezvous on the head node. `auto` takes a free one. "
            "[Ports](firewall.md#ports-between-the-nodes).",
            "auto",
            1024,
            65535,
        ),
        "job_nccl_info": _flag("Run with `NCCL_DEBUG=INFO`, so that the report names the networks that NCCL chose."),
    },
    "Images": {
        "job_image": _text(
            "Image in which the ranks run: `docker://registry/name@sha256:...`, `oci-archive:/path` or "
            "`/path/image.sif` (paths on the nodes). Pods need one, with a digest or a fixed tag and without "
            "`docker://`. [Images](images.md), [Kubernetes](kubernetes.md)."
        ),
        "job_container": _text(
            f"Program that runs the image: `{'`, `'.join(RUNTIMES)}`. `auto` takes the first of these that a node has, "
            "and all nodes need the same. [Images](images.md).",
            "auto",
            ("auto", *RUNTIMES),
        ),
        "job_mounts": _list(
            "Folders of the nodes in the image: `source:target` or `source:target:ro`. The job's own folder and "
            "`job_data` are there anyway, under their own paths."
        ),
        "job_image_pull": _text(
            "When a node pulls the image: `missing` (it does not have it), `always` or `never`.",
            "missing",
            ("missing", "always", "never"),
        ),
        "job_image_copy": _text(
            "Host of the job from which the others copy the image over ssh, so that it is pulled once. Empty means "
            "that each node pulls it."
        ),
        "job_registry_auth": _mapping("Login of the registry: `username` and `password`. Take it from Ansible Vault."),
    },
    "Checks before the start": {
        "job_health_gate": _flag(
            "Each node must pass a health check (memory, network, devices, clock) before the job starts and "
            "before each restart. Only with `job_scheduler: ssh`. [Health check](restarts.md#health-check).",
            default=True,
        ),
        "job_binding": _text(
            "`auto`: each rank runs on the cores next to its device, if a node has several NUMA domains with as many "
            "ranks each. `none`: on all cores. [Cores](job-file.md#cores).",
            "auto",
            ("auto", "none"),
        ),
        "job_busy_devices": _text(
            "If somebody else uses the job's devices: `refuse` names who, `wait` also waits until they are free, in "
            "the order of the launches, and `share` starts beside them. Only with `job_scheduler: ssh`. "
            "[Busy devices](job-file.md#busy-devices).",
            "refuse",
            ("refuse", "wait", "share"),
        ),
        "job_wait_timeout": _number("Seconds that `job_busy_devices: wait` waits at most.", _DAY, 1, _YEAR),
        "job_packages": _list(
            "Python packages that must have the same version on all nodes; `numpy>=1.26,<3` also says which, with "
            "`job_scheduler: ssh`.",
            default=("torch",),
        ),
        "job_data": _list("Paths that must exist on every node."),
        "job_min_disk_mib": _number("Free space in MiB that the job's folder needs on every node.", 1024, 0, _MAX_MIB),
        "job_min_memory_mib": _number(
            "Available memory in MiB that the health check requires on every node.", 256, 0, _MAX_MIB
        ),
    },
    "Restarts and checkpoints": {
        "job_max_restarts": _number(
            "Number of restarts after failures. All ranks end, then start again together. "
            "[Restarts](restarts.md#restarts).",
            0,
            0,
            100,
        ),
        "job_restart_on": _text(
            "`auto` ends the job at once if the cause returns at every start: a missing module or file, a wrong "
            "option, the same error at the same place twice. `always` restarts after any failure. Only with "
            "`job_scheduler: ssh`. [Such causes](restarts.md#causes-that-a-restart-does-not-change).",
            "auto",
            ("auto", "always"),
        ),
        "job_stop_signal": _text(
            "Signal by which ranks are asked to end: when the job is stopped or fails, its time is up, its node "
            "shuts down, or all ranks start again. "
            "[Time to save](restarts.md#time-to-save).",
            "TERM",
            STOP_SIGNALS,
        ),
        "job_stop_grace": _number(
            "Seconds that ranks with a handler for this signal may then take to save. 0 ends them at once.", 30, 0, 3600
        ),
        "job_rejoin_timeout": _number("Seconds that a restart waits for a lost node to come back.", 300, 1, _DAY),
        "job_checkpoints": _text(
            "Folder in which rank 0 saves checkpoints, or a pattern that they match; absolute, or relative to the "
            "job's folder. [Checkpoints](restarts.md#checkpoints)."
        ),
        "job_checkpoint_rollback": _flag(
            "Set the newest checkpoint aside (it is renamed, never deleted) if attempts fail because of it, and go on "
            "from the one before. Needs `job_checkpoints` and `job_max_restarts`. "
            "[A bad checkpoint](restarts.md#a-bad-checkpoint)."
        ),
    },
    "Progress and hangs": {
        "job_progress_pattern": _text(
            "Regular expression with named groups that reads metrics from the output of the ranks. Empty means the "
            "built-in rules. [Progress](job-file.md#progress)."
        ),
        "job_hang_timeout": _raw(
            "Seconds without progress after which a job counts as hung: the stacks of all ranks are saved, and "
            "the job ends or restarts. `auto` shows the stacks once, after ten times the longest step of the run and "
            "at least 60 s, and ends nothing; `off` disables it. [Hangs](hangs.md).",
            "auto",
            5,
            _DAY,
        ),
        "job_hang_first_step": _number("Seconds until the first line of progress, in each attempt.", 1800, 5, _DAY),
        # An evaluation, or a save of a large model to a shared file system, takes many minutes. A limit that is too
        # short costs a healthy job, one that is too long only time.
        "job_hang_pause": _number("Seconds that an announced pause may take, such as an evaluation.", 1800, 5, _DAY),
        "job_hang_pause_pattern": _text(
            "Regular expression that finds the line before such a pause. Empty means lines "
            "about evaluating, validating, checkpoints or saving."
        ),
        "job_slow_ranks": _flag(
            "While the job runs, find a rank that the others wait for, and name it with its node. Only with "
            "`job_scheduler: ssh`. [Slow ranks](hangs.md#which-rank-the-others-wait-for).",
            default=True,
        ),
    },
    "Logs, events and metrics": {
        "job_log_limit_mib": _number("MiB that are collected from the end of each log.", 4, 1, 1024),
        "job_outputs": _list(
            "Files of the ranks that are brought to `runs/<job_id>/outputs` at the end, and by `logs.yml`: patterns "
            "such as `results/*.csv` below the ranks' working folder, or absolute ones. A folder stands for all files "
            "in it. A pod sends at most 4 MiB. [Outputs](job-file.md#outputs)."
        ),
        "job_outputs_limit_mib": _number("MiB of outputs that each node sends; three others are named.", 64, 1, 200),
        "job_events": _list(
            "Receivers of events while the job runs, each with one of `url` (a webhook; `form` is `json` or "
            "`slack`), `command` or `file`, and `only`, a list of events. Take addresses from Ansible Vault. "
            "[Events](events.md).",
            elements="",
        ),
        "job_events_secret": _text("Secret that signs events to webhooks (HMAC-SHA256). Take it from Ansible Vault."),
        "job_events_interval": _number("Seconds between two events of progress.", 600, 10, _DAY),
        "job_metrics_folder": _path(
            "Folder on every node for the textfile collector of node_exporter, writable by the training user. "
            "Empty means no metrics. [Metrics](events.md#metrics)."
        ),
    },
    "Open MPI": {
        "job_mpi_parameters": _mapping(
            "MCA parameters by their names in Open MPI 4, such as `btl_tcp_links: 2`. They win over those of the "
            "plan. [Open MPI](mpi.md#under-mpirun)."
        ),
        "job_mpi_placement": _text(
            "How mpirun learns the hosts: from a `hostfile`, or as its option `-H` (`hosts`).",
            default="hostfile",
            choices=MPI_PLACEMENTS,
        ),
    },
    "MindSpore": {
        "job_join_timeout": _number(
            "Seconds that the scheduler and the workers wait until all have joined.", 600, 1, _DAY
        ),
        "job_heartbeat_timeout": _number(
            "Seconds without a heartbeat after which the scheduler gives up a worker. From 128 devices on, use at "
            "least 900.",
            30,
            1,
            _DAY,
        ),
        "job_message_timeout": _number("Seconds that a worker waits for a message from another worker.", 300, 1, _DAY),
        "job_recovery": _flag(
            "The scheduler of `mindspore`, and its workers where MindSpore supports it, come back alone instead of "
            "with the whole job. Needs `job_max_restarts`; each return counts."
        ),
        "job_recovery_path": _path(
            "Folder on every node, writable by the training user, for MindSpore's recovery files "
            "(`MS_RECOVERY_PATH`); they stay after the job. Empty means the job's folder."
        ),
        "job_tls": _flag("Scheduler and workers authenticate each other by mutual TLS. [TLS](tls.md)."),
        "job_tls_ca_dir": _path(
            "Folder on the controller with the authority that signs the certificates of jobs. Keep a backup.",
            default="~/.trainyard/{{ trainyard_cluster }}/tls_ca",
        ),
        "job_tls_certificates": _mapping(
            "Files on the controller to use instead of generated certificates: `ca`, `server`, `client`, and "
            "`crl` if there is one. Their passwords are in `job_secret_env`."
        ),
        "job_tls_revoked": _list("Ids of jobs whose certificates are revoked."),
        "job_tls_ciphers": _list(
            "Cipher suites by OpenSSL's names, out of those that MindSpore supports.",
            default=mindspore_tls.DEFAULT_CIPHERS,
        ),
        "job_tls_warning_days": _number(
            "Warn if the authority or a given certificate expires within this number of days.",
            90,
            mindspore_tls.MIN_WARNING_DAYS,
            mindspore_tls.MAX_WARNING_DAYS,
        ),
    },
    "Rank tables": {
        "job_rank_table": _text(
            "Rank table on the controller, instead of the one that the launcher builds. A relative path is "
            "looked for beside the job file, then in the project. [Rank tables](ascend.md#by-a-rank-table)."
        )
    },
    "OneFlow": {
        "job_oneflow_style": _text(
            "`launch` starts OneFlow's launch module on each node, `address_list` one process on each node that "
            "configures itself from a list of addresses. [OneFlow](oneflow.md#with-oneflow).",
            default="launch",
            choices=ONEFLOW_STYLES,
        )
    },
    "Slurm": {
        "job_login_host": _text(
            "Host of the inventory that submits the job. Empty means the first host of the group slurm_login, or "
            "of `job_hosts`. [Slurm](slurm.md)."
        ),
        "job_partition": _text("Partition of the job. Empty means Slurm's default."),
        "job_account": _text("Account of the job."),
        "job_qos": _text("Quality of service of the job."),
        "job_folder": _path(
            "Folder of jobs on a file system that all nodes share. Empty means that each node keeps its own."
        ),
        "job_gres": _text(
            "Generic resources of each node, such as `gpu:h200:8`. `auto` follows `job_devices`.", default="auto"
        ),
        "job_sbatch_options": _list("Further options of sbatch, such as `--constraint=h200`."),
    },
    "Kubernetes": {
        "job_kubeconfig": _text("Path of the kubeconfig on the controller. Empty means kubectl's."),
        "job_kube_context": _text("Context of the kubeconfig. Empty means its current one."),
        "job_namespace": _text("Namespace of the job. Empty means that of the context."),
        "job_kubernetes": _mapping("Further settings of the pods. [Kubernetes](kubernetes.md)."),
    },
    OUTSIDE: {
        "job": _path("Path of a job file: `-e job=FILE` is the same as `-e @FILE`.", default=None),
        "job_id": _text("Chooses a run in the playbooks that work on existing jobs.", default=None),
        "job_node_env": _mapping(
            "Host variable: environment of the ranks on this host. It wins over `job_env`. Slurm's nodes are matched "
            "by their names."
        ),
    },
}
VARIABLES: Mapping[str, Variable] = {name: variable for topic in TOPICS.values() for name, variable in topic.items()}
# Variables of other topics that only jobs over ssh read.
_OVER_SSH = ("job_health_gate", "job_busy_devices", "job_wait_timeout", "job_restart_on", "job_slow_ranks",
              "job_rank_order")  # fmt: skip
_READERS = {name: READERS[topic] for topic in READERS for name in TOPICS[topic]}
_READERS |= dict.fromkeys(_OVER_SSH, ("job_scheduler", ("ssh",)))


def reader(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the setting that reads a variable and the values with which it does; None where all do."""
    return _READERS.get(name)
