# SPDX-License-Identifier: Apache-2.0
"""Find jobs whose nodes train each for itself, by the environments of the processes below their ranks.

A rank of the job may start a launcher of its own, whose processes have other numbers: an inner world. One inner world
of all nodes has each number once. Where two ranks of the job both have the process with the same number, each has a
world of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.shapes import Exact, Few, Is, Shape, Text, Whole
from ....base.spans import named_ranks

# The variables by which a process knows its number and the size of its world, by the first one's name.
SIZES = {
    "RANK": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK": "PMI_SIZE",
    "RANK_ID": "RANK_SIZE",
    "MS_NODE_ID": "MS_WORKER_NUM",
}
# Variables of job_env that tell a launcher the number of nodes; with 1 each node is to have a world of its own.
ONE_NODE = ("NNODES", "PET_NNODES")
# The number of a node that a launcher has among its options, and the hosts on which one starts ranks by itself.
NODE, HOSTS = "--node-rank", "--host"
_HOST_OPTIONS = ("H", "host", "hosts", "hostfile", "machinefile", "default-hostfile")
# Upper bounds: inner worlds that a node reports, and a number.
MAX_INNER, _MAX_NUMBER = 64, 1 << 32
# Seconds before the job ends: for which launchers have the same node rank, so that none finds the others; and for which
# nodes train apart after the first loss, as each samples the connections of the job's own ranks once more.
NODE_S, LOSS_S = 20.0, 15.0
# A node reports whether its ranks have a connection with the head by themselves, and its inner worlds, each with
# the rank of the job above it (`holder`) and the lowest number that it has here.
INNER: Shape = {
    **dict.fromkeys(("holder", "number", "size"), Whole(_MAX_NUMBER)),
    "by": Is((*SIZES, NODE, HOSTS)),
    "at": Text(255),
}
WORLDS = Exact({"met": bool, "inner": Few(Exact(INNER), MAX_INNER)})
# The finding in cluster.json.
APART: Shape = {"hosts": [str], "text": str, "action": str}


# Addresses of the node itself, and the options that accelerate may have in a file in place of its command.
_ITSELF = re.compile(r"localhost$|127\.|::1$")
_QUOTES = "'\""
_IN_FILE = re.compile(r"^(machine_rank|num_machines|main_process_ip|rdzv_backend): *(\S+)", re.MULTILINE)


class Place(NamedTuple):
    """The numbers of a process: number and size by variable, and its MASTER_ADDR and MASTER_PORT."""

    numbers: Mapping[str, tuple[int, int]]
    where: tuple[str, str]


class Inner(NamedTuple):
    """A number in an inner world, as a process has it."""

    by: str
    number: int
    size: int
    at: str


def place(environment: Mapping[str, str]) -> Place | None:
    """Return the numbers that a process has in its environment; None where it has none."""
    numbers = {
        name: (int(environment[name]), int(environment[size]))
        for name, size in SIZES.items()
        if all(re.fullmatch("[0-9]{1,9}", environment.get(each, "")) for each in (name, size))
    }
    where = _address(environment.get("MASTER_ADDR", "")), environment.get("MASTER_PORT", "")
    return Place(numbers, where) if numbers else None


def _address(text: str) -> str:
    """Return an address or a name of a host; "" for any other text."""
    return text if re.fullmatch(r"[\w.:%-]{1,255}", text, re.ASCII) else ""


def inner(own: Place, holder: Place) -> list[Inner]:
    """Return the numbers of a process that are not those of the rank above it, in worlds of more than one."""
    # Our mpirun sets RANK beside Open MPI's own.
    same = holder.numbers.values() if own.where == holder.where else ()
    return [
        Inner(name, number, size, own.where[0])
        for name, (number, size) in own.numbers.items()
        if size > 1 and not ((number, size) in same if name == "RANK" else holder.numbers.get(name) == (number, size))
    ]


def of_launcher(words: Sequence[str], knows_nodes: bool = True) -> list[Inner]:
    """Return the node's number that the options of a launcher fix; none where the launchers agree on it themselves.

    One that starts ranks on other hosts by itself is the first node of its world.
    """
    given = _options(words)
    hosts = next(filter(None, map(given.get, _HOST_OPTIONS)), "localhost")
    if not knows_nodes:
        return [] if re.match(r"localhost|127\.", hosts) else [Inner(HOSTS, 0, 2, "")]
    number = given.get("node-rank", given.get("machine-rank", ""))
    size = given.get("nnodes") or given.get("num-nodes") or given.get("num-machines") or ""
    agreed = given.get("rdzv-backend", "static") != "static" or "rdzv-endpoint" in given
    if agreed or not all(re.fullmatch("[0-9]{1,9}", each) for each in (number, size)) or int(size) < 2:
        return []
    address = _address(given.get("master-addr") or given.get("main-process-ip") or "")
    return [Inner(NODE, int(number), int(size), address)]


def _options(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for word, after in zip(words, (*words[1:], "")):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            given.setdefault(name.lstrip("-").replace("_", "-"), value if equals else after)
    return given


def settings_file(called: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the file in which accelerate has further options, from its working folder; "" for other launchers."""
    if not called.startswith("accelerate"):
        return ""
    caches = environment.get("HF_HOME") or f"{environment.get('HOME', '')}/.cache/huggingface"
    return _options(words).get("config-file") or f"{caches}/accelerate/default_config.yaml"


def of_file(text: str) -> list[str]:
    """Return the options in accelerate's file as words of a command."""
    return [f"--{name}={value.strip(_QUOTES)}" for name, value in _IN_FILE.findall(text)]


def asked_for(node_plan: Mapping[str, Any]) -> bool:
    """Return whether the job's environment says that each node is to have a world of its own."""
    environments = [
        node_plan.get("base_env") or {},
        *(each.get("env") or {} for each in node_plan.get("processes", ())),
    ]
    return any(environment.get(name) == "1" for environment in environments for name in ONE_NODE)


def apart(reports: Mapping[str, Mapping[str, Any]], launcher: str) -> dict[str, Any] | None:
    """Return how nodes train each for itself, by the `worlds` in their reports; None where they may train together.

    `all` tells whether each node does, `fixed` whether they may never begin, so that no loss comes.
    """
    found = {host: report.get("worlds") or {} for host, report in reports.items()}
    groups: dict[tuple[str, int], list[tuple[str, Mapping[str, Any]]]] = {}
    for host, each in found.items():
        for entry in each.get("inner") or ():
            groups.setdefault((entry["by"], entry["size"]), []).append((host, entry))
    waiting = next(filter(None, map(_waiting, groups.values())), [])
    one_world = any(
        len({entry["number"] for _, entry in group}) == len(group) > 1 and not _waiting(group)
        for group in groups.values()
    )
    # Where the ranks of the job have met, or one world is that of several ranks, other worlds are helpers. But two
    # launchers that start ranks on all hosts make such a world each.
    together = one_world or any(each.get("met") for each in found.values())
    twice = [each for (by, _), group in groups.items() if by == HOSTS or not together for each in _twice(group)]
    if not twice and (together or not waiting):
        return None
    order = (*SIZES, NODE, HOSTS)
    first = min(twice, key=lambda each: (order.index(each[0][1]["by"]), -len(each)), default=waiting)
    hosts = list(dict.fromkeys(host for host, _ in first))
    return {
        "hosts": hosts,
        "text": _text(hosts, first, waits=not twice),
        "action": _action(first[0][1]["by"], launcher),
        "all": not together and all(each.get("inner") for each in found.values()),
        "fixed": not twice or first[0][1]["by"] == NODE,
    }


def _waiting(entries: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the entries of a world that wait on their own node for its first process, which is on another."""
    first = {host for host, entry in entries if entry["number"] == 0}
    return [
        (host, entry)
        for host, entry in entries
        if first and host not in first and entry["by"] in SIZES and _ITSELF.match(entry["at"])
    ]


def _twice(entries: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    """Yield the entries of each number that several ranks of the job have below them."""
    for number in sorted({entry["number"] for _, entry in entries}):
        same = [(host, entry) for host, entry in entries if entry["number"] == number]
        if len({(host, entry["holder"]) for host, entry in same}) > 1:
            yield same


def _text(hosts: Sequence[str], found: Sequence[tuple[str, Mapping[str, Any]]], waits: bool) -> str:
    # Few monitors ever need it, and all would load it.
    from ....base.findings import host_list

    entry = found[0][1]
    name, size = entry["by"], SIZES.get(entry["by"], "--nnodes")
    addresses = list(dict.fromkeys(entry["at"] for _, entry in found if entry["at"]))
    at = f" (MASTER_ADDR {host_list(addresses)})" if addresses else ""
    if len(hosts) == 1:
        who, has = f"{named_ranks(entry['holder'] for _, entry in found)} on {hosts[0]}", "below each is"
    else:
        who, has = host_list(hosts), "each has"
    if waits:
        wait = "waits for itself" if len(hosts) == 1 else "wait, each for itself"
        return (
            f"{host_list(hosts)} {wait}: a process with {name}={entry['number']} and {size}={entry['size']} "
            f"has MASTER_ADDR {entry['at']}, and number 0 is on another node"
        )
    if name == HOSTS:
        return f"{who} train each for itself: {has} a launcher that starts ranks on a list of hosts"
    if name == NODE:
        return f"{who} train each for itself: {has} a launcher with {name} {entry['number']} of {size} {entry['size']}"
    return f"{who} train each for itself: {has} a process with {name}={entry['number']} and {size}={entry['size']}{at}"


def _action(by: str, launcher: str) -> str:
    if launcher != "direct":
        return (
            f"job_launcher: {launcher} starts the ranks itself: write the script alone in job_command, such as "
            "[python, train.py], or keep its launcher with job_launcher: direct and job_ranks_per_node: node"
        )
    if by == HOSTS:
        return "start that launcher on one node alone: set job_nodes: 1, or call it where NODE_RANK is 0"
    how = (
        "--nnodes=$NNODES --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
        if by in ("RANK", NODE)
        else "the number of its node, NODE_RANK"
    )
    return (
        f"give the launcher or loop on each node {how}, and start it once on each node (job_ranks_per_node: node); if "
        "each node is to train for itself, set job_env: {NNODES: 1}"
    )
