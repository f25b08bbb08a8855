# SPDX-License-Identifier: Apache-2.0
"""The sbatch script of a job: what it asks of Slurm, how nodes are prepared, how srun starts the ranks.

Everything that depends on the nodes is asked in the allocation, as nobody knows before which ones they are. The script
needs bash, coreutils, tar and iproute2 on the nodes, and Slurm's own commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ..placement import SYSTEM_PATH
from ..specification import Job
from .records import HandedPlan

SCRIPT = "job.sbatch"
# The packed source follows this line.
SOURCE_MARK = "#SOURCE"

# Prints the version of each package on this node.
_VERSIONS = """
import importlib.metadata, os, sys
for name in sys.argv[1:]:
    try:
        print(name, importlib.metadata.version(name), os.environ["SLURMD_NODENAME"])
    except importlib.metadata.PackageNotFoundError:
        print("trainyard: no", name, "on", os.environ["SLURMD_NODENAME"], "(job_packages)")
        sys.exit(66)
"""
# Compares what all nodes have printed.
_COMPARE = """
{key = $1 " " $2; if (!(key in on)) found++; on[key] = on[key] " " $3}
END {
    if (found <= packages) exit 0
    print "trainyard: versions differ between the nodes (job_packages):"
    for (key in on) print "    " key " on" on[key]
    exit 1
}
"""

# What every task of the job goes through, on its node: its own address and interface, its place, its log, its end.
_TASK = r"""
#!/bin/bash
# Starts one task of the job on its node: $1 is rank, agent, sched or worker, the rest is the command.
role=$1; shift
@NODE_ENV@
own=$(ip -4 -o addr show to "$MASTER_ADDR/32" | head -n 1)
if [ -z "$own" ]; then
    route=$(ip -4 -o route get "$MASTER_ADDR" | head -n 1)
    interface=$(sed -n 's/.* dev \([^ ]*\).*/\1/p' <<<"$route")
    address=$(sed -n 's/.* src \([^ ]*\).*/\1/p' <<<"$route")
else
    interface=$(awk '{print $2}' <<<"$own")
    address=$MASTER_ADDR
fi
# An address of the head itself leads over lo, which no other node reaches.
export TRAINYARD_ADDRESS=$address GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$interface}
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-=$interface} MS_WORKER_IP=$address
case $role in
rank)
    export RANK=${RANK:-$SLURM_PROCID} LOCAL_RANK=${LOCAL_RANK:-$SLURM_LOCALID}
    export WORLD_SIZE=${WORLD_SIZE:-$TRAINYARD_RANKS} LOCAL_WORLD_SIZE=${LOCAL_WORLD_SIZE:-$TRAINYARD_PER_NODE}
    export GROUP_RANK=${GROUP_RANK:-$SLURM_NODEID}
    name=rank_$RANK ;;
worker)
    export MS_ROLE=MS_WORKER MS_NODE_ID=$SLURM_PROCID
    export RANK=$SLURM_PROCID
    name=worker_$RANK ;;
sched)
    export MS_ROLE=MS_SCHED MS_NODE_ID=sched
    name=scheduler ;;
agent)
    name=agent_$SLURM_NODEID ;;
esac
cd "$TRAINYARD_JOB_DIR/source" || exit 1
exec >>"$TRAINYARD_JOB_DIR/logs/$name.log" 2>&1 </dev/null
[ "$TRAINYARD_ATTEMPT" = 0 ] || echo "--- started again, attempt $((TRAINYARD_ATTEMPT + 1)) ---"
args=()
for word in "$@"; do
    word=${word//@NODE_RANK@/$SLURM_NODEID}
    word=${word//@ADDRESS@/$address}
    args+=("$word")
done
# The processes that the kernel has killed here for want of memory: of a task's own cgroup v1 or v2, if Slurm made one.
ooms() {
    grep -hs "^oom_kill " "/sys/fs/cgroup/memory$(sed -n "s/^[0-9]*:memory://p" /proc/self/cgroup)/memory.oom_control" \
        "/sys/fs/cgroup$(sed -n "s/^0:://p" /proc/self/cgroup)/memory.events"
}
before=$(ooms)
# A process group of its own: what a killed rank leaves behind goes with it, also where Slurm tracks no cgroup.
set -m
"${args[@]}" &
child=$!
# A shell that waits passes nothing on by itself.
trap 'kill -TERM -- -$child 2>/dev/null' TERM INT
wait $child
status=$?
while kill -0 $child 2>/dev/null; do wait $child; status=$?; done
kill -KILL -- -$child 2>/dev/null
oom=
[ "$status" = 0 ] || [ "$(ooms)" = "$before" ] || oom=oom-kill
printf '%s %s %s %s %s %s\n' "$name" "$SLURMD_NODENAME" "$SLURM_NODEID" "$status" "$(date +%s.%N)" "$oom" \
    >"$TRAINYARD_JOB_DIR/exits/$name.exit"
exit $status
"""


def quoted(word: str) -> str:
    """Quote a word for bash, on one line: a line of its own could end a here-document or begin the source."""
    if "\n" not in word and "\r" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"$'{escaped}'"


def joined(words: Iterable[str]) -> str:
    """Quote words for bash, all on one line."""
    return " ".join(map(quoted, words))


def script(plan: HandedPlan, given: Mapping[str, Any], archive: str, node_env: Mapping[str, Mapping[str, str]]) -> str:
    """Return the sbatch script. `archive` is the source as tar.gz in base64, `node_env` is by name of the node."""
    job = plan.job
    lines = [
        "#!/bin/bash",
        f"# Job {plan.job_id}, written by trainyard; submitted with sbatch from {' '.join(plan.submit_host.split())}.",
        *(f"#SBATCH {option}" for option in options(plan, given)),
        "",
        "export LC_ALL=C.UTF-8",
        f"export TRAINYARD_JOB_ID={plan.job_id}",
        f"export TRAINYARD_JOB_DIR={quoted(plan.job_dir)}",
        f"export TRAINYARD_RANKS={plan.world_size} TRAINYARD_PER_NODE={plan.processes_per_node}",
        "export TRAINYARD_ATTEMPT=${SLURM_RESTART_COUNT:-0}",
        *_environment(job),
        "",
        "# For the job's user and root alone.",
        'mkdir -p -m 750 "$TRAINYARD_JOB_DIR" || exit 73',
        'mkdir -p "$TRAINYARD_JOB_DIR/source" "$TRAINYARD_JOB_DIR/logs" "$TRAINYARD_JOB_DIR/exits" || exit 73',
        'exec >>"$TRAINYARD_JOB_DIR/logs/slurm.log" 2>&1',
        'echo "trainyard: job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, attempt $((TRAINYARD_ATTEMPT + 1))"',
        "",
        "# The rendezvous is on the first node of the allocation.",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"MASTER_ADDR=$({_head_address(job)})",
        f'[ -n "$MASTER_ADDR" ] || {{ echo "trainyard: $head has no IPv4 address "{quoted(job.network)}; exit 78; }}',
        *_port(job),
        "export MASTER_ADDR MASTER_PORT",
        "",
        "# Every node gets the source and the script by which tasks start.",
        "task=$(cat <<'TRAINYARD_TASK'",
        *_TASK.strip().replace("@NODE_ENV@\n", _node_environment(node_env)).splitlines(),
        "TRAINYARD_TASK",
        ")",
        "export task",
        *_prepare(plan),
        "",
        *_start(plan),
        "status=$?",
        "",
        'echo "trainyard: ended with status $status"',
        *_again(job),
        'printf "%s %s\\n" "$status" "$(date +%s.%N)" >"$TRAINYARD_JOB_DIR/exits/job"',
        "exit $status",
        SOURCE_MARK,
        *(archive[at : at + 76] for at in range(0, len(archive), 76)),
    ]
    return "\n".join(lines) + "\n"


def options(plan: HandedPlan, given: Mapping[str, Any]) -> list[str]:
    """Return the options of sbatch."""
    job = plan.job
    gres = gres_option(job, given)
    chosen = [
        f"--job-name={job.name}",
        f"--comment=trainyard:{plan.job_id}",
        f"--nodes={plan.nodes}",
        f"--ntasks-per-node={plan.processes_per_node}",
        # Slurm counts minutes.
        f"--time={-(-job.timeout_s // 60)}",
        "--requeue" if job.max_restarts else "--no-requeue",
        # Nothing of the login host's environment; what the script itself sets goes on to srun.
        "--export=NONE",
        # The script opens its log itself, as it makes the folder for it.
        "--output=/dev/null",
    ]
    for name in ("partition", "account", "qos"):
        if given.get(f"job_{name}"):
            chosen.append(f"--{name}={given[f'job_{name}']}")
    if gres:
        chosen.append(f"--gres={gres}")
    return chosen + [str(option) for option in given.get("job_sbatch_options") or ()]


def gres_option(job: Job, given: Mapping[str, Any]) -> str:
    """Return what --gres asks of each node; "" for nothing. With job_devices: auto Slurm's nodes are not known yet."""
    gres = str(given.get("job_gres") or "auto")
    if gres != "auto":
        return "" if gres == "none" else gres
    return f"gpu:{len(job.devices)}" if job.devices else ""


def _environment(job: Job) -> list[str]:
    path = f"{job.venv}/bin:{SYSTEM_PATH}" if job.venv else SYSTEM_PATH
    lines = ["unset SLURM_EXPORT_ENV", f"export PATH={quoted(path)} LANG=C.UTF-8 PYTHONUNBUFFERED=1"]
    if job.venv:
        lines.append(f"export VIRTUAL_ENV={quoted(job.venv)}")
    # Half of the logical CPUs that a task may use, as hyper-threads do not help dense arithmetic.
    lines.append("threads=$((SLURM_CPUS_ON_NODE / (2 * TRAINYARD_PER_NODE)))")
    lines.append("export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))")
    return lines + [f"export {name}={quoted(value)}" for name, value in job.env.items()]


def _node_environment(node_env: Mapping[str, Mapping[str, str]]) -> str:
    """Return the lines that give a task what only its node has. They come first: the rest leaves it as it is."""
    hosts: dict[str, list[str]] = {}
    for host, env in node_env.items():
        if env:
            words = " ".join(f"{name}={quoted(value)}" for name, value in env.items())
            hosts.setdefault(words, []).append(quoted(host))
    cases = [f"{' | '.join(names)}) export {words} ;;" for words, names in hosts.items()]
    return "\n".join(["case $SLURMD_NODENAME in", *cases, "esac", ""]) if cases else ""


def _head_address(job: Job) -> str:
    if not job.network:
        # /etc/hosts of a Debian node names itself by 127.0.1.1.
        return """getent ahostsv4 "$head" | awk '$1 !~ /^127\\./ {print $1; exit}'"""
    where = f"to {quoted(job.network)}" if "/" in job.network else f"dev {quoted(job.network)}"
    return f'ip -4 -o addr show {where} | awk \'{{sub("/.*", "", $4); print $4; exit}}\''


def _port(job: Job) -> list[str]:
    if job.port is not None:
        return [f"MASTER_PORT={job.port}"]
    return [
        "# Below the ports that the kernel hands out; jobs that share a node differ by their number.",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID * 10 % 10000))",
        'while ss -Hltn "sport = :$MASTER_PORT" | grep -q .; do MASTER_PORT=$((MASTER_PORT + 1)); done',
    ]


_EACH_NODE = "srun --export=ALL --ntasks-per-node=1 --ntasks={nodes} --nodes={nodes} --cpu-bind=none"


def _look(job: Job) -> str:
    """Return what each node looks at before the ranks start: nobody knew before which node that is.

    It prints what is wrong, and the versions of job_packages, which the script compares.
    """

    def there(test: str, what: str, variable: str) -> str:
        word = quoted(what)
        said = f'"trainyard: no "{word}" on $SLURMD_NODENAME ({variable})"'
        return f"{test.format(word)} || {{ echo {said}; exit 66; }}"

    lines = ['cd "$TRAINYARD_JOB_DIR/source" || exit 74']
    if job.venv:
        lines.append(there("[ -x {} ]", f"{job.venv}/bin/python", "job_venv"))
    # msrun starts Python, also where the command begins with a script.
    program = {"msrun": "msrun"}.get(job.launcher, job.command[0])
    lines.append(there("command -v {} >/dev/null", program, "job_command"))
    lines += [there("[ -e {} ]", path, "job_data") for path in job.data]
    if job.min_disk_mib:
        lines.append(
            'room=$(df -Pm "$TRAINYARD_JOB_DIR" | tail -n 1 | awk "{print \\$4}"); '
            f'[ "$room" -ge {job.min_disk_mib} ] || {{ echo "trainyard: $room MiB free in $TRAINYARD_JOB_DIR on '
            f'$SLURMD_NODENAME, expected {job.min_disk_mib} (job_min_disk_mib)"; exit 74; }}'
        )
    if job.packages:
        python = "python" if job.venv else "python3"
        lines.append(f"{python} -c {shlex.quote(_VERSIONS.strip())} {joined(job.packages)}")
    return "\n".join(lines)


def _prepare(plan: HandedPlan) -> list[str]:
    every = _EACH_NODE.format(nodes=plan.nodes)
    unpack = (
        'cd "$TRAINYARD_JOB_DIR" && mkdir -p source logs exits && rm -f exits/* && printf "%s\\n" "$task" >task.sh'
        " && base64 -d | tar -xzf - -C source"
    )
    # One node unpacks where all have the folder; otherwise srun hands its input to a task on each node.
    begin = "bash -c" if plan.settings.get("shared") else f"{every} bash -c"
    make = unpack if plan.settings.get("shared") else f'mkdir -p -m 750 "$TRAINYARD_JOB_DIR" && {unpack}'
    packages = plan.job.packages
    compare = f'awk -v packages={len(packages)} {shlex.quote(_COMPARE.strip())} <<<"$said" || exit 65'
    return [
        f"sed '1,/^{SOURCE_MARK}$/d' \"$0\" | {begin} '{make}' || exit 74",
        "unset task",
        "",
        "# What preflight would say of the nodes.",
        f"said=$({every} bash -c {shlex.quote(_look(plan.job))})",
        '[ $? -eq 0 ] || { printf "%s\\n" "$said"; exit 66; }',
        *([compare] if packages else []),
    ]


def _start(plan: HandedPlan) -> list[str]:
    """Return the lines that start the ranks and wait for them."""
    job, task = plan.job, 'bash "$TRAINYARD_JOB_DIR/task.sh"'
    command = joined(job.command)
    agents = f"{_EACH_NODE.format(nodes=plan.nodes)} --kill-on-bad-exit=1"
    ranks = (
        f"srun --export=ALL --nodes={plan.nodes} --ntasks={plan.world_size} "
        f"--ntasks-per-node={plan.processes_per_node} --cpu-bind=none --kill-on-bad-exit=1"
    )
    port, address = '"$MASTER_PORT"', '"$MASTER_ADDR"'
    if job.launcher == "torchrun":
        return [
            f"{agents} {task} agent python -m torch.distributed.run --nnodes {plan.nodes} "
            f"--nproc-per-node {plan.processes_per_node} --rdzv-backend static --node-rank @NODE_RANK@ "
            f"--master-addr {address} --master-port {port} --local-addr @ADDRESS@ --no-python {task} rank {command}"
        ]
    if job.launcher == "oneflow":
        return [
            f"{agents} {task} agent python -m oneflow.distributed.launch --nnodes {plan.nodes} "
            f"--nproc_per_node {plan.processes_per_node} --node_rank @NODE_RANK@ --master_addr {address} "
            f"--master_port {port} --no_python {task} rank {command}"
        ]
    if job.launcher == "msrun":
        return [
            *_mindspore(plan, job.join_timeout_s),
            f"{agents} {task} agent msrun --worker_num={plan.world_size} --local_worker_num={plan.processes_per_node} "
            f"--master_addr={address} --master_port={port} --node_rank=@NODE_RANK@ "
            f'--log_dir="$TRAINYARD_JOB_DIR/logs" --join=True --cluster_time_out={job.join_timeout_s} {command}',
        ]
    if job.launcher == "mindspore":
        return [
            *_mindspore(plan, job.join_timeout_s),
            "export MS_SCHED_HOST=$MASTER_ADDR MS_SCHED_PORT=$MASTER_PORT",
            "# The scheduler shares the cores of the first node with its workers.",
            'srun --export=ALL --overlap --nodes=1 --ntasks=1 --nodelist="$head" --cpu-bind=none '
            f"{task} sched {command} &",
            "scheduler=$!",
            # The scheduler gives up first: it knows who is missing.
            f"export MS_TOPO_TIMEOUT={job.join_timeout_s + 30}",
            f"{ranks.replace('srun ', 'srun --overlap ', 1)} {task} worker {command}",
            "status=$?",
            "# It ends by itself when its workers have; where they failed it may wait for ever.",
            "[ $status -eq 0 ] || kill $scheduler 2>/dev/null",
            "wait $scheduler",
            "(exit $status)",
        ]
    if job.launcher == "mpirun":
        return [
            *(f"export {name}={quoted(value)}" for name, value in _mpi(job).items()),
            f"{ranks.replace('srun ', 'srun --mpi=pmix ', 1)} {task} rank {command}",
        ]
    return [f"{ranks} {task} rank {command}"]


def _mindspore(plan: HandedPlan, join_timeout_s: int) -> list[str]:
    job = plan.job
    return [
        f"export MS_WORKER_NUM={plan.world_size} MS_SERVER_NUM=0 MS_TOPO_TIMEOUT={join_timeout_s}",
        f"export MS_NODE_TIMEOUT={job.heartbeat_timeout_s} MS_RECEIVE_MSG_TIMEOUT={job.message_timeout_s}",
    ]


def _mpi(job: Job) -> dict[str, str]:
    """Return Open MPI's parameters as the environment variables that ranks read: there is no mpirun to be told."""
    chosen = {"btl_tcp_if_include": job.network} if job.network else {}
    return {f"OMPI_MCA_{name}": value for name, value in {**chosen, **job.mpi_parameters}.items()}


def _again(job: Job) -> list[str]:
    if not job.max_restarts:
        return []
    return [
        f'if [ $status -ne 0 ] && [ "$TRAINYARD_ATTEMPT" -lt {job.max_restarts} ]; then',
        '    echo "trainyard: requeued"',
        '    scontrol requeue "$SLURM_JOB_ID" && sleep infinity',
        "fi",
    ]
