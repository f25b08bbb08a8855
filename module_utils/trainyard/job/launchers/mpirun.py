# SPDX-License-Identifier: Apache-2.0
"""Launcher `mpirun`: Open MPI's mpirun on the head node, which starts all ranks; monitors start its daemons.

For PyTorch, MindSpore on GPU and Ascend, and any MPI program. Each rank starts through a small script with the node's
own variables, and through our runtime, which adds its log, RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. The
hostfile has addresses: names may lead to another network, or nowhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from ...base.findings import Finding
from ...base.majority import usual
from ...cluster.ssh_options import UNATTENDED
from ..file.job import Job
from ..placement import binding
from ..placement.hostfile import MpiHost, render
from ..placement.placement import SYSTEM_PATH, VISIBLE_DEVICES, Node, Placement, common_environment, only_ipv4
from ..placement.process import File, Process, runtime
from ..record.folder_layout import node_dir
from .held_exit import HERE, hold_exit

HOSTFILE = "hostfile"
RANK_SCRIPT = "mpi_rank"
AGENT_SCRIPT, DAEMON_SCRIPT = "mpi_agent", "mpi_daemon"

# Variables that the plan derives from each node; all others but those of job_node_env are equal everywhere.
_OF_NODE = frozenset(
    {"GLOO_SOCKET_IFNAME", "GROUP_RANK", "HCCL_IF_IP", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS",
     binding.VARIABLE, *VISIBLE_DEVICES.values()}
)  # fmt: skip

# Open MPI 5 starts processes through PRRTE, where these parameters have other names.
_SINCE_5 = {
    "btl_vader": "btl_sm",
    "hwloc_base_binding_policy": "hwloc_default_binding_policy",
    "oob_tcp_if": "prte_if",
    "orte": "prte",
    "plm_rsh": "plm_ssh",
}
# Frameworks of PRRTE, whose parameters mpirun takes by another option.
_PRRTE = re.compile(r"(?:ess|filem|grpcomm|hwloc|iof|odls|oob|plm|prte|prteif|ras|rmaps|rml|routed|state)(?:_|$)")

# Writes a rank's exit to mpirun's log, as mpirun does not always name a rank that fails at once or leaves early, and
# the head has only its own ranks' logs, and counters of the OOM killer. The script then ends like the rank, without a
# core file of its own.
_REPORT_EXIT = """\
status=$?
if [ $status -eq 0 ]; then
    echo "trainyard: rank $OMPI_COMM_WORLD_RANK ended well" >&2
else
    echo "trainyard: rank $OMPI_COMM_WORLD_RANK ended with status $status" >&2
    [ $status -gt 128 ] && [ $status -ne 137 ] || {end} "$OMPI_COMM_WORLD_RANK" $status >&2
fi
{hold}if [ $status -gt 128 ]; then
    ulimit -c 0
    kill -$((status - 128)) $$ 2>/dev/null
fi
exit $status
"""
# Takes the place of ssh: leaves the address and the command of a daemon to the monitor of this node, and waits, with
# little memory and no CPU time, for how the daemon has ended (trainyard_node/job/run/ranks/daemons.py).
_AGENT = """\
#!/bin/sh
# mpirun runs this in place of ssh: the monitor of the node with this address starts the daemon.
mine=${0%/*}/attempt/daemons/$$
address=$1
shift
mkdir -p "${mine%/*}" && mkfifo "$mine" && printf '%s\\n%s' "$address" "$*" >"$mine.new" &&
    mv "$mine.new" "$mine.asked" || exit 1
{ read -r status; cat >&2; } <"$mine"
exit "${status:-1}"
"""
# The variable with the part of the job's folder that a node writes (ranks/execute.py): mpirun has one
# command for the ranks of all nodes.
# A daemon that ssh has started lacks it, and there the job's folder is on a disk of the node, so it has one part.
NODE_DIR = "TRAINYARD_NODE_DIR"
_START = 'exec "${{{name}:-$(echo {parts})}}/{script}" "$@"'
# Open MPI writes the command for the shell of its user.
_DAEMON = """\
#!/bin/sh
# Starts mpirun's daemon on {host}; its command is one argument.
export TRAINYARD_JOB_ID={job_id} PATH={path} {NODE_DIR}="${{0%/*}}"
case $SHELL in
    */csh | */tcsh) exec "$SHELL" -c "$1" ;;
esac
exec sh -c "$1"
"""


def check(job: Job, placement: Placement) -> list[Finding]:
    """Find different releases of Open MPI, IPv6, and MindSpore on CPU, which cannot initialize under mpirun."""
    findings = []
    devices = any(node.devices for node in placement.nodes)
    if not devices and any(package.startswith("mindspore") for package in job.packages):
        expected = "a launcher that MindSpore works with on CPU; mpirun is for GPU and Ascend"
        findings.append(Finding("job_launcher", "mpirun for MindSpore on CPU", expected, "set job_launcher: mindspore"))
    found = {node.host: _described(node.mpi) for node in placement.nodes}
    most = usual(found.values(), "")
    for node in placement.nodes:
        if not node.mpi:
            expected, action = "Open MPI on every node", "run site.yml with openmpi in trainyard_frameworks"
        elif _major(node.mpi) < 4:
            expected, action = "Open MPI 4 or 5", "install a newer one: role openmpi"
        elif found[node.host] != most and most:
            expected, action = f"{most}, as on the other nodes", "run site.yml on all nodes"
        else:
            continue
        findings.append(Finding("mpi", found[node.host] or "no Open MPI", expected, action, host=node.host))
    return findings + only_ipv4(placement, "Open MPI chooses interfaces by IPv4 networks")


def _described(mpi: Mapping[str, str]) -> str:
    return f"Open MPI {mpi['version']} ({mpi['path']})" if mpi else ""


def _major(mpi: Mapping[str, str]) -> int:
    number = re.match(r"\d+", mpi.get("version", ""))
    return int(number[0]) if number else 4


def _exported(job: Job, env: Mapping[str, str]) -> list[str]:
    """Return the names of these variables, and of those that a process gets when it starts."""
    return sorted({*env, *(["TRAINYARD_ATTEMPT"] if job.restarts.max_restarts else [])})


def _environment(job: Job, placement: Placement, node: Node) -> dict[str, str]:
    env = {**common_environment(job, placement, node), "GROUP_RANK": str(node.node_rank)}
    prefix = PurePosixPath(node.mpi.get("path", "/usr/bin/mpirun")).parent.parent
    if f"{prefix}/bin" not in SYSTEM_PATH.split(":") and not job.image:
        # Programs that were linked to an Open MPI of its own do not always know where it is.
        libraries = node.mpi.get("lib") or f"{prefix}/lib"
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [libraries, env.get("LD_LIBRARY_PATH")]))
    return env


def parameters(job: Job, placement: Placement) -> dict[str, str]:
    """Return the MCA parameters by their names in Open MPI 4. Those of the job win."""
    networks = ",".join(dict.fromkeys(node.network for node in placement.everyone if node.network))
    # Daemons may get it, too, and end where its first word is not there; only this node has the script.
    ours = f"/bin/sh {placement.node_dir}/{AGENT_SCRIPT}"
    chosen = {
        "btl_tcp_if_include": networks,
        "oob_tcp_if_include": networks,
        # Threads are the framework's to place: bound to one core they would share it.
        "hwloc_base_binding_policy": "none",
        # One node alone needs none, yet mpirun ends where it is not found.
        "plm_rsh_agent": ours if len(placement.nodes) > 1 or job.restarts.min_nodes else "false",
        # The head's monitor has all daemons started: in a tree they would start each other.
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_num_concurrent": str(max(128, len(placement.everyone))),
    }
    if not all(node.ib_hca for node in placement.everyone):
        # With InfiniBand or RoCE Open MPI chooses by itself, UCX where it was built with it.
        chosen.update({"pml": "ob1", "btl": f"self,{'vader' if _old(placement) else 'sm'},tcp"})
    if job.image and _old(placement):
        # Each rank has a user namespace of its own, so none may read another's memory.
        chosen["btl_vader_single_copy_mechanism"] = "none"
    if job.restarts.max_restarts and _old(placement):
        # mpirun ends the other ranks on the head, then on the nodes, and on each waits these seconds before SIGTERM and
        # again before SIGKILL: 3 s with the default, 1, in which nothing trains. Open MPI 5 always waits 0.25 s.
        chosen["odls_base_sigkill_timeout"] = "0"
    agent = _own_agent(job)
    if agent:
        chosen["plm_rsh_agent"] = agent
        # The monitors find daemons that they have not started by the job's id.
        daemon = "orted" if _old(placement) else "prted"
        chosen["orte_launch_agent"] = f"env TRAINYARD_JOB_ID={placement.job_id} {daemon}"
        # Open MPI 5 (PRRTE 3.0.8) ends by SIGSEGV where plm_ssh_args is there and has no words.
        chosen.update({"plm_rsh_args": UNATTENDED} if agent == "ssh" else {})
    for name in job.mpi.parameters:
        # Open MPI refuses both lists at once.
        chosen.pop(re.sub(r"_exclude$", "_include", name), None)
    return {**chosen, **job.mpi.parameters}


def _own_agent(job: Job) -> str:
    """Return the program that the job names in place of our script: ssh where it has only arguments for it; or ""."""
    implied = "ssh" if "plm_rsh_args" in job.mpi.parameters else ""
    return job.mpi.parameters.get("plm_rsh_agent", implied)


def starts_by_ssh(job: Job, _: Placement) -> bool:
    """Tell whether mpirun uses ssh, which job_mpi_parameters may name."""
    return _own_agent(job) == "ssh"


def needs_head(job: Job, placement: Placement) -> bool:
    """Tell whether -H names the head in another way than the other nodes."""
    return job.mpi.placement == "hosts" and not _old(placement)


def _old(placement: Placement) -> bool:
    return _major(placement.head.mpi) < 5


def _options(job: Job, placement: Placement) -> list[str]:
    options = []
    for name, value in sorted(parameters(job, placement).items()):
        option = "--mca"
        if not _old(placement):
            old = next((old for old in _SINCE_5 if name == old or name.startswith(f"{old}_")), "")
            name = _SINCE_5.get(old, "") + name[len(old) :]
            option = "--prtemca" if _PRRTE.match(name) else "--mca"
        options += [option, name, value]
    return options


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return one mpirun with all ranks on the head; nothing on the others, whose monitors watch all the same."""
    if node is not placement.head:
        return []
    own = _OF_NODE | placement.own_variables
    env = {name: value for name, value in _environment(job, placement, node).items() if name not in own}
    # mpirun itself runs on the node; its ranks have the image's own PATH.
    own_path = {"PATH": SYSTEM_PATH} if job.image else {}
    path = PurePosixPath(node.mpi.get("path", "mpirun"))
    # By an absolute path mpirun would put its folder first in PATH and LD_LIBRARY_PATH of all nodes.
    mpirun = path.name if str(path.parent) in SYSTEM_PATH.split(":") else str(path)
    if job.mpi.placement == "hosts":
        # In -H, not in a hostfile, Open MPI 5 does not know its own node by an address (prrte, pull request 2258).
        own_name = node.address if _old(placement) else "localhost"
        hosts = [(own_name if each is node else each.address, each.rank_count) for each in placement.nodes]
        where = ["-H", ",".join(f"{name}:{slots}" for name, slots in hosts)]
    else:
        where = ["--hostfile", f"{placement.node_dir}/{HOSTFILE}"]
    # By slot, ranks fill one node after the other, in the order of the inventory.
    # The daemons stay children of the monitors.
    argv = [mpirun, *where, "-n", str(placement.world_size), "--map-by", "slot", "--leave-session-attached"]
    argv += _options(job, placement)
    for name in _exported(job, env):
        argv += ["-x", name]
    parts = node_dir(shlex.quote(placement.job_dir), "*")
    start = _START.format(name=NODE_DIR, parts=parts, script=RANK_SCRIPT)
    return [
        Process(
            name="mpirun",
            ranks=tuple(range(placement.world_size)),
            argv=(*argv, "/bin/sh", "-c", start, RANK_SCRIPT, *job.command),
            log=f"{placement.node_dir}/logs/mpirun.log",
            env={**env, **own_path},
            lists_nodes=("-H", "MASTER_ADDR") if job.mpi.placement == "hosts" else ("MASTER_ADDR",),
            numbered={"-n": "{world_size}"},
            on_host=job.image is not None,
        )
    ]


def files(job: Job, placement: Placement, node: Node) -> list[File]:
    """Return the scripts by which each rank of the node and mpirun's daemon start; on the head also the hostfile."""
    env, own = _environment(job, placement, node), _OF_NODE | placement.own_variables
    # Our runtime starts the image, if there is one.
    python = f"{placement.venv}/bin/python" if placement.venv and not job.image else "python3"
    ours = f'{shlex.quote(python)} -IS "{runtime("$here")}"'
    lines = [
        "#!/bin/sh",
        f"# Starts a rank on {node.host}. mpirun sets the variables that all nodes share (-x).",
        *(f"export {name}={shlex.quote(env[name])}" for name in sorted(own & env.keys())),
        HERE,
        f'{ours} mpi-rank {",".join(_exported(job, env))} "$@"',
        _REPORT_EXIT.replace("{end}", f'{ours} mpi-end "$here"').replace(
            "{hold}", hold_exit(job, "$OMPI_COMM_WORLD_RANK")
        ),
    ]
    of_rank = File(RANK_SCRIPT, "\n".join(lines), "0755", numbered=("export GROUP_RANK={node_rank}\n",))
    daemon = _DAEMON.format(host=node.host, job_id=placement.job_id, path=SYSTEM_PATH, NODE_DIR=NODE_DIR)
    scripts = [of_rank, File(AGENT_SCRIPT, _AGENT, "0755"), File(DAEMON_SCRIPT, daemon, "0755")]
    if node is not placement.head:
        return scripts
    # Findings refuse two nodes with one address, and IPv6; the plan is built all the same, to find what else is wrong.
    ipv4 = [each for each in placement.nodes if ":" not in each.address]
    hosts = {each.address: MpiHost(each.address, each.rank_count) for each in ipv4}
    return [*scripts, File(HOSTFILE, render(list(hosts.values()), "openmpi"), lists_nodes=True)]
