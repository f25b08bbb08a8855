# SPDX-License-Identifier: Apache-2.0
"""Programs that start ranks, with their options: those of PyTorch, MindSpore, OneFlow, Paddle, MPI, Slurm and others.

Their options are listed as far as they only place ranks. With any other a command cannot be rewritten for sure, as what
it says may matter to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from . import accelerate


@dataclass(frozen=True)
class Starter:
    """One of these programs.

    `options` are its own, by their names without leading hyphens and with `-` for `_`: how many words follow each.
    `several_nodes` are those by which one process on each node learns that it is one of several; without any it
    starts ranks on other hosts by itself. `joins` are the options that join one process on each node of the launcher
    `direct` to the others.
    """

    name: str
    options: Mapping[str, int]
    several_nodes: tuple[str, ...] = ()
    # Its options with the number of ranks on a node.
    per_node: tuple[str, ...] = ()
    # It starts a script with Python, not a program.
    takes_script: bool = False
    joins: str = ""
    # Launchers of ours (job_launcher) that start what it starts; empty: all of them.
    launchers: tuple[str, ...] = ()
    # The variables that its ranks need of it besides their place, and those that its options become.
    variables: tuple[str, ...] = ()
    become: Mapping[str, str] = field(default_factory=dict)
    # Further options that only tell the script something: how many words follow each (None: no such option), and the
    # variables that they become.
    words_after: Callable[[str], int | None] = lambda _: None
    environment: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {}
    # Its ranks find each other by what it alone tells them.
    alone: bool = False
    # Its options may also stand behind the script, and those that it does not know are the script's.
    anywhere: bool = False


def _options(flags: str, valued: str) -> dict[str, int]:
    return {**dict.fromkeys(flags.split(), 0), **dict.fromkeys(valued.split(), 1)}


_MASTER = "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"

_TORCHRUN = Starter(
    "torchrun",
    _options(
        "standalone m module no-python use-env",
        "nnodes nproc-per-node node-rank rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval "
        "start-method role log-dir r redirects t tee local-ranks-filter master-addr master-port local-addr",
    ),
    ("nnodes",),
    ("nproc-per-node",),
    takes_script=True,
    joins=f"--nnodes=$NNODES --node-rank=$NODE_RANK {_MASTER}",
)
# A file of settings (config-file) is not read here, so with it a command is not sure.
_ACCELERATE = Starter(
    "accelerate",
    _options(
        "multi-gpu same-network m module no-python q quiet",
        "num-processes num-machines machine-rank main-process-ip main-process-port gpu-ids rdzv-backend rdzv-conf "
        "max-restarts monitor-interval t tee log-dir role mpirun-hostfile deepspeed-hostfile "
        "deepspeed-exclusion-filter deepspeed-inclusion-filter deepspeed-multinode-launcher",
    ),
    ("num-machines", "config-file"),
    takes_script=True,
    joins="--num_machines=$NNODES --machine_rank=$NODE_RANK --main_process_ip=$MASTER_ADDR "
    "--main_process_port=$MASTER_PORT",
    words_after=accelerate.words_after,
    environment=accelerate.environment,
)
# It hands torchrun these options, and the script the others in variables.
_FABRIC = Starter(
    "fabric",
    _options("", "accelerator strategy devices num-nodes node-rank main-address main-port precision"),
    ("num-nodes",),
    ("devices",),
    takes_script=True,
    anywhere=True,
    joins="--num-nodes=$NNODES --node-rank=$NODE_RANK --main-address=$MASTER_ADDR --main-port=$MASTER_PORT",
    launchers=("torchrun",),
    variables=("LT_CLI_USED=1", "LT_DEVICES=$LOCAL_WORLD_SIZE", "LT_NUM_NODES=$GROUP_WORLD_SIZE"),
    become={"accelerator": "LT_ACCELERATOR", "strategy": "LT_STRATEGY", "precision": "LT_PRECISION"},
)
_COMPOSER = Starter(
    "composer",
    _options(
        "v verbose m module-mode c command-mode",
        "n nproc stdout stderr world-size base-rank node-rank master-addr master-port",
    ),
    ("world-size",),
    ("nproc", "n"),
    takes_script=True,
    # What torchrun and `direct` set otherwise has the same names.
    variables=("NODE_RANK=$GROUP_RANK",),
)
# It logs in to all hosts that it is given, and starts torchrun there.
_COLOSSALAI = Starter(
    "colossalai",
    _options(
        "m",
        "H host hostfile include exclude num-nodes nproc-per-node master-port master-addr extra-launch-args ssh-port",
    ),
    per_node=("nproc-per-node",),
    takes_script=True,
    anywhere=True,
)
_PADDLE = Starter(
    "paddle.distributed.launch",
    _options(
        "",
        "master legacy rank log-level log-overwrite sort-ip enable-gpu-log nnodes nproc-per-node log-dir run-mode "
        "job-id devices gpus npus xpus host ips start-port auto-parallel-config auto-cluster-config auto-tuner-json "
        "servers trainers trainer-num server-num gloo-port with-gloo max-restart elastic-level elastic-timeout",
    ),
    ("nnodes", "ips"),
    takes_script=True,
    joins="--nnodes=$NNODES --rank=$NODE_RANK --master=$MASTER_ADDR:$MASTER_PORT",
    alone=True,
)
# It hands a command to a Ray cluster, whose workers it starts by itself.
_RAY = Starter("ray", {}, alone=True)
_DEEPSPEED = Starter(
    "deepspeed",
    _options(
        "no-ssh no-ssh-check module no-python no-local-rank force-multi",
        "H hostfile i include e exclude num-nodes num-gpus master-addr master-port node-rank launcher",
    ),
    ("node-rank",),
    ("num-gpus",),
    takes_script=True,
)
_MSRUN = Starter(
    "msrun",
    _options(
        "", "worker-num local-worker-num master-addr master-port node-rank log-dir join cluster-time-out bind-core"
    ),
    ("node-rank",),
    ("local-worker-num",),
    takes_script=True,
    launchers=("msrun", "mindspore"),
)
_ONEFLOW = Starter(
    "oneflow.distributed.launch",
    _options(
        "m module no-python redirect-stdout-and-stderr",
        "nnodes node-rank nproc-per-node master-addr master-port logdir",
    ),
    ("nnodes",),
    ("nproc-per-node",),
    takes_script=True,
    joins=f"--nnodes=$NNODES --node_rank=$NODE_RANK {_MASTER.replace('-a', '_a').replace('-p', '_p')}",
    launchers=("oneflow",),
)
_MPIRUN = Starter(
    "mpirun",
    {
        **_options(
            "allow-run-as-root oversubscribe nooversubscribe bynode byslot tag-output report-bindings v q",
            "n np c N npernode ppr H host hostfile machinefile f ppn x map-by rank-by bind-to wdir prefix output",
        ),
        "mca": 2,
        "prtemca": 2,
        "genv": 2,
    },
    launchers=("mpirun",),
)
_SRUN = Starter(
    "srun",
    _options(
        "exclusive overlap l label u unbuffered v verbose Q quiet kill-on-bad-exit",
        "n ntasks N nodes ntasks-per-node c cpus-per-task p partition A account q qos t time J job-name gres G gpus "
        "gpus-per-node gpus-per-task mem mem-per-cpu o output e error w nodelist x exclude mpi export cpu-bind m "
        "distribution D chdir jobid",
    ),
    per_node=("ntasks-per-node",),
)
_HOROVODRUN = Starter(
    "horovodrun",
    _options("gloo mpi verbose", "np num-proc H hosts hostfile p ssh-port start-timeout network-interfaces log-level"),
    launchers=("mpirun",),
)

PROGRAMS: Mapping[str, Starter] = {
    "torchrun": _TORCHRUN,
    "accelerate-launch": _ACCELERATE,
    **dict.fromkeys(("deepspeed", "deepspeed.pt", "ds"), _DEEPSPEED),
    "composer": _COMPOSER,
    "fleetrun": _PADDLE,
    "msrun": _MSRUN,
    "srun": _SRUN,
    "horovodrun": _HOROVODRUN,
    **dict.fromkeys(
        (
            *("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"),
            *("mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra"),
        ),
        _MPIRUN,
    ),
}
# Programs that start ranks by one of their commands.
COMMANDS: Mapping[tuple[str, ...], Starter] = {
    ("accelerate", "launch"): _ACCELERATE,
    ("fabric", "run", "model"): _FABRIC,
    ("fabric", "run"): _FABRIC,
    ("lightning", "run", "model"): _FABRIC,
    ("colossalai", "run"): _COLOSSALAI,
    ("ray", "job", "submit"): _RAY,
}
MODULES: Mapping[str, Starter] = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
    "deepspeed.launcher.launch": _DEEPSPEED,
    "mindspore.parallel.cluster.run": _MSRUN,
    "oneflow.distributed.launch": _ONEFLOW,
    "horovod.runner.launch": _HOROVODRUN,
    "composer.cli.launcher": _COMPOSER,
    **dict.fromkeys(("paddle.distributed.launch", "paddle.distributed.launch.main"), _PADDLE),
}
