# SPDX-License-Identifier: Apache-2.0
"""Placement: which ranks of a job run on which node, with which devices and over which interface.

Everything that depends on all nodes at once is decided here, from the facts of all nodes. The order of nodes, and so
of ranks, is the order of the inventory, but for launchers that demand another one. Facts are what each node
answers (`read_node`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...base.findings import Finding, counted
from ...base.majority import usual
from ...cluster.ports import is_unused
from ...cluster.unreachable import Answer, no_answers
from ...hardware.interfaces import SelectionError, behind_nat, nccl_ib_hca, network_of, select_interface
from ..file import mindspore_tls
from ..file.job import Job
from ..file.job_packages import fits
from ..record import folder_layout
from . import binding
from .process import File, Process, rank_log

Facts = Mapping[str, Any]

# The variable by which each vendor's runtime hides devices from a process.
VISIBLE_DEVICES = {"nvidia": "CUDA_VISIBLE_DEVICES", "ascend": "ASCEND_RT_VISIBLE_DEVICES"}

# Upper bound for the hosts that may lead a job, one after the other.
MAX_CANDIDATES = 5
# The variable with the number of ranks before any node was left out.
PLANNED = "TRAINYARD_PLANNED_WORLD_SIZE"
# Variables that number nodes and ranks, of launchers that start each rank themselves.
_NUMBERED = {
    **dict.fromkeys(("RANK", "RANK_ID"), "{rank}"),
    **dict.fromkeys(("WORLD_SIZE", "RANK_SIZE"), "{world_size}"),
    **dict.fromkeys(("GROUP_RANK", "NODE_RANK"), "{node_rank}"),
    "NNODES": "{nodes}",
}

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Member:
    """A host of the job: its facts, or the answer without them; `left_out` is the --limit that excludes it."""

    host: str
    address: str
    facts: Facts | None
    answer: Answer
    env: Mapping[str, str]
    left_out: str = ""


@dataclass(frozen=True)
class Node:
    """A host with its ranks and devices."""

    host: str
    node_rank: int
    address: str
    interface: str
    ib_hca: str
    vendor: str
    devices: tuple[int, ...]
    first_rank: int
    rank_count: int
    cpus: int
    env: Mapping[str, str]
    # Fingerprint of the facts behind these fields; preflight compares it with the node's present one.
    fingerprint: str = ""
    # Versions of job_packages, for launchers that differ by them.
    packages: Mapping[str, str] = field(default_factory=dict)
    # The network of `address` as CIDR, and `version` and `path` of the node's mpirun.
    network: str = ""
    mpi: Mapping[str, str] = field(default_factory=dict)
    # The fact `npu`: Ascend devices with their data for rank tables, empty without such devices.
    npu: Mapping[str, Any] = field(default_factory=dict)
    # For a spare that replaces a node: the node's address, which the rank table contains.
    known_as: str = ""
    # The fact `image` (plan/images.py): how this node runs the job's image, and what is in it; empty without one.
    image: Mapping[str, Any] = field(default_factory=dict)
    # The names of all interfaces with an address, and the CUDA toolkit that the role installed, or "".
    interfaces: tuple[str, ...] = ()
    cuda_home: str = ""
    # The cores of each rank (binding.py), "" where ranks may run on all.
    cores: str = ""

    @property
    def ranks(self) -> range:
        """Return the global ranks on this node."""
        return range(self.first_rank, self.first_rank + self.rank_count)


@dataclass(frozen=True)
class Placement:
    """All nodes of one job, and its `spares`. `job_dir` and `venv` are paths, equal on each node; nodes may share both.

    `venv` and `python` are paths in the job's image, if it has one.
    """

    job_id: str
    nodes: tuple[Node, ...]
    port: int
    monitor_port: int
    job_dir: str
    venv: str
    spares: tuple[Node, ...] = ()

    @property
    def node_dir(self) -> str:
        """Return the part of the job's folder that a node writes, with HOST for the node's name."""
        return folder_layout.node_dir(self.job_dir)

    @property
    def everyone(self) -> tuple[Node, ...]:
        """Return nodes and spares."""
        return (*self.nodes, *self.spares)

    @property
    def python(self) -> str:
        """Return the Python of the ranks; "" where a job without an image has no virtual environment."""
        if self.venv:
            return f"{self.venv}/bin/python"
        return str(self.head.image.get("python") or "python3") if self.head.image else ""

    def with_spares(self, count: int) -> Placement:
        """Return the placement with its last nodes as spares."""
        return replace(self, nodes=self.nodes[:-count], spares=self.nodes[-count:]) if count else self

    def with_spare(self, node: Node, spare: Node) -> Placement:
        """Return the placement after a spare has replaced a node."""
        there = replace(
            spare, node_rank=node.node_rank, first_rank=node.first_rank, known_as=node.known_as or node.address
        )
        changed = replace(self, nodes=(*self.nodes[: node.node_rank], there, *self.nodes[node.node_rank + 1 :]))
        # Each spare is planned in the place of each node, and these are made of all nodes. The other nodes keep their
        # files, which leave the same variables to each node.
        known = {"own_variables": self.own_variables}
        changed.__dict__.update(known, world_size=self.world_size - node.rank_count + spare.rank_count)
        return changed

    @property
    def head(self) -> Node:
        """Return the node of rank 0, where the rendezvous is."""
        return self.nodes[0]

    # Cached, as every rank reads it: planning time would otherwise grow with the square of the nodes.
    @cached_property
    def world_size(self) -> int:
        """Return the number of ranks over all nodes."""
        return sum(node.rank_count for node in self.nodes)

    @cached_property
    def own_variables(self) -> frozenset[str]:
        """Return the names of variables that job_node_env sets on some host."""
        return frozenset(name for node in self.everyone for name in node.env)


def compare_versions(job: Job, facts: Mapping[str, Facts]) -> list[Finding]:
    """Find nodes where a package of the job is missing or has another version than on most nodes."""
    findings: list[Finding] = []
    where = job.venv or "the system's Python"
    if job.image:
        where = f"the image, in {job.venv} or its own Python" if job.venv else "the image's own Python"
    # A node whose image is still to come has no packages yet.
    facts = {host: fact for host, fact in facts.items() if job.image is None or (fact.get("image") or {}).get("id")}
    for package in job.packages if facts else ():
        versions = {host: str((fact.get("packages") or {}).get(package) or "") for host, fact in facts.items()}
        most = usual(filter(None, versions.values()), "")
        expected, action = f"{package} {most}, as on the other nodes", "run site.yml to make them equal"
        if job.image:
            expected, action = f"{package} in the image", "take another image, or correct job_packages or job_venv"
        elif not most:
            expected = f"{package} installed on every node"
            action = "run site.yml, set job_venv to where it is, or take it out of job_packages"
        needed = job.package_versions.get(package, "")
        if most and not fits(most, needed):
            action = "install such a version (site.yml with it in the role's packages), or correct job_packages"
            found, expected = f"{package} {most} in {where}", f"{package} {needed}"
            findings += [Finding("versions", found, expected, action, host=host) for host in versions]
            continue
        for host, version in versions.items():
            found = f"{package} {version or 'missing'}" if most else f"no {package}"
            if version != most or not most:
                findings.append(Finding("versions", f"{found} in {where}", expected, action, host=host))
    return findings


def _shared(check: str, what: str, value_of: Mapping[str, str], expected: str, action: str) -> list[Finding]:
    """Find hosts with one value; `value_of` has it by host."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, value in value_of.items():
        hosts[value].append(host)
    return [
        Finding(
            check, f"{what} {value}, which {', '.join(o for o in sharing if o != host)} has too", expected, action, host
        )
        for value, sharing in hosts.items()
        if len(sharing) > 1
        for host in sharing
    ]


def distinct_names(facts: Mapping[str, Facts]) -> list[Finding]:
    """Find nodes with one kernel host name: launchers and frameworks count local ranks by it."""
    names = {host: repr(str(fact.get("hostname"))) for host, fact in facts.items()}
    expected, action = "a different host name on every node", "set it with hostnamectl set-hostname"
    return _shared("names", "host name", names, expected, action)


def missing_devices(host: str, present: Sequence[int], devices: Sequence[int], action: str) -> list[Finding]:
    """Find that a node does not have all of these devices."""
    if set(devices) <= set(present):
        return []
    found = f"{', '.join(map(str, present)) or 'no device'} on the node"
    expected = f"device{'s' if len(devices) > 1 else ''} {', '.join(map(str, devices))}"
    return [Finding("devices", found, expected, action, host=host)]


def choose_devices(job: Job, host: str, facts: Facts) -> tuple[tuple[int, ...], int, list[Finding]]:
    """Choose the devices of one node and the number of ranks there: one for each device, or one copy with all."""
    accelerators = facts.get("accelerators") or {}
    present = tuple(int(device["index"]) for device in accelerators.get("devices") or ())
    if job.devices:
        wrong = missing_devices(host, present, job.devices, "correct job_devices, or set it to auto")
        return job.devices, 1 if job.one_copy else len(job.devices), wrong
    if job.devices == ():
        return (), job.ranks_per_node or 1, []
    action = "repair the driver, or set job_devices: none to run on the CPU"
    problems = accelerators.get("problems") or ()
    findings = [Finding("devices", str(each), "devices that answer", action, host=host) for each in problems]
    if job.one_copy:
        return present, 1, findings
    ranks = job.ranks_per_node or len(present) or 1
    if present and ranks > len(present):
        expected, action = f"{ranks}, one for each process", "lower job_ranks_per_node or leave the node out"
        findings.append(Finding("devices", counted(len(present), "device"), expected, action, host=host))
    return present[:ranks], ranks, findings


def left_out(host: str, limit: str) -> Finding:
    """Return the finding for a host that --limit excludes: all ranks run, or none."""
    action = "launch without --limit; job_hosts and job_nodes choose the hosts"
    return Finding("limit", f"left out by --limit {limit}", "every host of the job", action, host=host)


def _reach(members: Sequence[Member]) -> list[Finding]:
    lost = [member for member in members if member.facts is None]
    findings = [left_out(member.host, member.left_out) for member in lost if member.left_out and not member.answer]
    silent = [member for member in lost if member.answer or not member.left_out]
    return findings + no_answers(
        {member.host: member.answer for member in silent}, {member.host: member.address for member in silent}
    )


def reachable_containers(job: Job, members: Sequence[Member], nodes: Sequence[Node]) -> list[Finding]:
    """Find containers without host networking in a job over several machines, unless job_network spans these."""
    facts = {member.host: member.facts for member in members if member.facts is not None}
    # Containers have the boot id of their machine.
    if job.network or len({fact.get("boot_id") for fact in facts.values()}) < 2:
        return []
    inventory = {member.host: member.address for member in members}
    findings = []
    for node in nodes:
        fact = facts[node.host]
        interfaces = (fact.get("networks") or {}).get("interfaces") or ()
        sign = behind_nat(interfaces, node.interface, node.address, inventory[node.host])
        if fact.get("container") and sign:
            found = f"{node.interface} {node.address} of a {fact['container']} container: {sign}"
            expected = "an address that the other machines reach"
            action = "run the container with host networking (--network host), or set job_network to a network that "
            action += "spans the machines"
            findings.append(Finding("container", found, expected, action, host=node.host))
    return findings


def distinct_addresses(nodes: Sequence[Node]) -> list[Finding]:
    """Find nodes with one address: that of a network for each node's own guests, or of a copied machine."""
    action = "set job_network to the network between the nodes, or give each node its own address"
    addresses = {node.host: node.address for node in nodes}
    return _shared("network", "address", addresses, "a different address for every node", action)


def same_count(placement: Placement, action: str) -> list[Finding]:
    """Find nodes with more processes than others, for launchers that take one number for all nodes."""
    least = min(node.rank_count for node in placement.nodes)
    expected, action = f"{least}, as many as on every other node", f"set job_ranks_per_node: {least}, or {action}"
    return [
        Finding("devices", counted(node.rank_count, "device"), expected, action, host=node.host)
        for node in placement.nodes
        if node.rank_count != least
    ]


def only_ipv4(placement: Placement, reason: str) -> list[Finding]:
    """Find nodes with an IPv6 address, for launchers without IPv6."""
    expected, action = f"an IPv4 address: {reason}", "set job_network to an IPv4 network"
    ipv6 = [node for node in placement.nodes if ":" in node.address]
    return [Finding("network", f"address {node.address}", expected, action, host=node.host) for node in ipv6]


def candidates(max_restarts: int, hosts: Sequence[str], witness: str = "") -> list[str]:
    """Return the hosts that may lead a job, the planned head first; none where the head cannot be replaced.

    `hosts` are nodes and spares in their order. The `witness` votes, and never leads. Without restarts a lost node ends
    the job, and of two hosts that vote none can tell a lost head from a network that is cut.
    """
    return list(hosts[:MAX_CANDIDATES]) if max_restarts and len(hosts) + bool(witness) > 2 else []


def _ports(job: Job, host: str, head: Facts, others: Sequence[Facts]) -> tuple[list[int], list[Finding]]:
    """Choose the rendezvous and the monitor port among the ports that are free on the head node.

    Ports that are also free on the `others` that may lead the job come first.
    """
    free = [int(port) for port in head.get("free_ports") or () if port != job.port]
    unused = [str(facts["unused_ports"]) for facts in others if facts.get("unused_ports")]
    free.sort(key=lambda port: not all(is_unused(port, ranges) for ranges in unused))
    ports = ([] if job.port is None else [job.port]) + free
    if len(ports) >= 2:
        return ports[:2], []
    expected = "a free port on the head node for the rendezvous and one for the monitor"
    action = "end what holds the ports of the head node"
    return [], [Finding("ports", counted(len(free), "free TCP port"), expected, action, host=host)]


def _numbered(nodes: Sequence[Node], spares: int, order: Callable[[Node], Any] | None) -> list[Node]:
    """Sort nodes by the key `order` of their launcher, if it has one, and number their ranks; spares come last."""
    numbered: list[Node] = []
    first_rank, count = 0, max(0, len(nodes) - spares)
    for node in (*(sorted(nodes[:count], key=order) if order else nodes[:count]), *nodes[count:]):
        numbered.append(replace(node, node_rank=len(numbered), first_rank=first_rank))
        first_rank += node.rank_count
    return numbered


def place(
    job: Job, job_id: str, state_dir: str, members: Sequence[Member], order: Callable[[Node], Any] | None = None
) -> tuple[Placement | None, list[Finding]]:
    """Place the job on its members in their order, or by the key `order`; None where findings do not allow it."""
    findings = _reach(members)
    facts = {member.host: member.facts for member in members if member.facts is not None}
    findings += distinct_names(facts) + compare_versions(job, facts)
    nodes: list[Node] = []
    for member in members:
        if member.facts is None:
            continue
        node, wrong = _node(job, member, member.facts, alone=len(members) == 1)
        findings += wrong
        nodes += [node] if node else []
    nodes = _numbered(nodes, job.restarts.spares, order)
    unreachable = reachable_containers(job, members, nodes)
    named = {finding.host for finding in unreachable}
    findings += unreachable + distinct_addresses([node for node in nodes if node.host not in named])
    if len(nodes) < len(members) or not nodes:
        return None, findings
    others = candidates(job.restarts.max_restarts, [node.host for node in nodes], job.restarts.witness)[1:]
    ports, wrong = _ports(job, nodes[0].host, facts[nodes[0].host], [facts[host] for host in others])
    if wrong:
        return None, findings + wrong
    port, monitor_port = ports
    venv = job.venv if job.image is None or nodes[0].image.get("venv") else ""
    return Placement(job_id, tuple(nodes), port, monitor_port, f"{state_dir}/jobs/{job_id}", venv), findings


def _node(job: Job, member: Member, facts: Facts, alone: bool) -> tuple[Node | None, list[Finding]]:
    """Return a host of the job, not numbered yet, or None; and findings."""
    devices, rank_count, findings = choose_devices(job, member.host, facts)
    networks = facts.get("networks") or {}
    interfaces = networks.get("interfaces") or ()
    try:
        interface, address = select_interface(interfaces, job.network, member.address, alone=alone)
    except SelectionError as error:
        return None, [*findings, error.finding.on(member.host)]
    bound = binding.applies(job.binding, job.launcher, job.image is not None)
    node = Node(
        host=member.host,
        node_rank=0,
        address=address,
        interface=interface,
        interfaces=tuple(each["name"] for each in interfaces if each["addresses"]),
        cuda_home="" if job.image else str(facts.get("cuda_home") or ""),
        ib_hca=nccl_ib_hca(networks.get("rdma") or ()),
        vendor=str((facts.get("accelerators") or {}).get("vendor") or "none"),
        devices=devices,
        first_rank=0,
        rank_count=rank_count,
        cpus=int(facts.get("cpus") or 1),
        env=member.env,
        fingerprint=str(facts.get("fingerprint") or ""),
        packages={name: str(version) for name, version in (facts.get("packages") or {}).items() if version},
        network=network_of(interfaces, interface, address),
        mpi=facts.get("mpi") or {},
        npu=facts.get("npu") or {},
        image=facts.get("image") or {} if job.image else {},
        cores=binding.cores(facts.get("numa") or (), devices, rank_count) if bound else "",
    )
    return node, findings


def common_environment(job: Job, placement: Placement, node: Node) -> dict[str, str]:
    """Return the variables of every process of a node. Later entries win: job_env, then job_node_env."""
    path = node.image.get("path") or SYSTEM_PATH
    path = f"{node.cuda_home}/bin:{path}" if node.cuda_home else path
    env = {
        "PATH": path,
        "LANG": "C.UTF-8",
        # Progress is read from the log as the script prints it.
        "PYTHONUNBUFFERED": "1",
        # Half of the logical CPUs: hyper-threads do not help dense arithmetic. A copy starts a rank for each device.
        "OMP_NUM_THREADS": str(max(1, node.cpus // (2 * max(node.rank_count, len(node.devices))))),
        "GLOO_SOCKET_IFNAME": node.interface,
        # A bare eth1 would also match eth10.
        "NCCL_SOCKET_IFNAME": f"={node.interface}",
    }
    if placement.venv:
        env.update({"PATH": f"{placement.venv}/bin:{path}", "VIRTUAL_ENV": placement.venv})
    if node.ib_hca:
        env["NCCL_IB_HCA"] = node.ib_hca
    if node.cores:
        env[binding.VARIABLE] = node.cores
    if node.vendor in VISIBLE_DEVICES:
        env[VISIBLE_DEVICES[node.vendor]] = ",".join(map(str, node.devices))
    if node.vendor == "ascend" and node.devices:
        # Without these, HCCL takes the first network that it finds, and refuses servers that are in no list of its own.
        env.update({"HCCL_IF_IP": node.address, "HCCL_WHITELIST_DISABLE": "1"})
    return {
        **env,
        **job.env,
        **node.env,
        "MASTER_ADDR": placement.head.address,
        "MASTER_PORT": str(placement.port),
        "TRAINYARD_JOB_ID": placement.job_id,
        "TRAINYARD_JOB_DIR": placement.job_dir,
        **({PLANNED: str(placement.world_size)} if job.restarts.min_nodes else {}),
        **(mindspore_tls.environment(placement.node_dir) if job.tls else {}),
    }


def hosts_file(placement: Placement) -> File:
    """Return the file with the addresses of the nodes in the order of their ranks, from which TRAINYARD_HOSTS comes."""
    return File("hosts", "".join(f"{node.address}\n" for node in placement.nodes), lists_nodes=True)


def rank_process(job: Job, placement: Placement, node: Node, rank: int, env: Mapping[str, str]) -> Process:
    """Return the process of one rank of a node, with `env` and PyTorch's variables."""
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(placement.world_size),
        "LOCAL_RANK": str(rank - node.first_rank),
        "LOCAL_WORLD_SIZE": str(node.rank_count),
        "GROUP_RANK": str(node.node_rank),
    }
    return Process(
        name=f"rank{rank}",
        ranks=(rank,),
        argv=job.command,
        log=rank_log(placement.node_dir, rank),
        env={**env, **own},
        numbered=_NUMBERED,
        lists_nodes=("MASTER_ADDR",),
    )
