# SPDX-License-Identifier: Apache-2.0
"""Preflight over all nodes: what only shows when nodes are compared, and what a job's environment does between them.

What one node finds on itself is in trainyard_node/job/plan/preflight.py. Here all of it becomes one list.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...cluster.clocks import MOST_APART_S
from ...cluster.clocks import apart as clocks_apart
from ...cluster.unreachable import findings as no_answers
from ...findings.findings import Finding, counted
from ...hardware.interfaces import leads_nowhere, named_interfaces
from ..file.command import scripts
from ..file.job import Job
from ..placement.placement import Placement, common_environment, left_out

Answer = Mapping[str, Any]

# gRPC, curl, Python and Go read these; gRPC the first of its own.
PROXIES = ("grpc_proxy", "http_proxy", "https_proxy", "all_proxy")
NO_PROXY = ("no_grpc_proxy", "no_proxy")
# Where a job's ranks look up which interface to use.
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
# With more nodes no_proxy gets their networks, which current programs understand, too.
MOST_ADDRESSES = 8
# On the CPU: a few for each processor are tests of a program; beyond this they starve each other.
MOST_PER_CPU = 16
# A script or program is known by so much of its digest.
_SHOWN = 12


def own_scripts(job: Job) -> list[str]:
    """Return the scripts that a job's command names by their path on the nodes, besides its program."""
    return [word for word in scripts(job.command[1:]) if word.startswith("/")]


def exempt(address: str, no_proxy: str) -> bool:
    """Tell whether no_proxy exempts an address: `*`, the address itself, or a network with it."""
    ip = ipaddress.ip_address(address)
    for part in (part.strip().strip("[]") for part in no_proxy.split(",")):
        if part == "*":
            return True
        try:
            if ip in ipaddress.ip_network(part, strict=False):
                return True
        except ValueError:
            continue  # a domain
    return False


def proxy_findings(job: Job, placement: Placement) -> list[Finding]:
    """Find proxies in the environment of ranks that do not exempt the nodes: their traffic would go through them.

    A rank gets the planned environment alone. The values of secret variables are unknown here.
    """
    addresses = [node.address for node in placement.nodes]
    entries = addresses
    if len(addresses) > MOST_ADDRESSES:
        entries = list(dict.fromkeys(node.network or node.address for node in placement.nodes))
    findings = []
    for node in placement.nodes:
        env = {**dict.fromkeys(job.secret_env, "secret"), **common_environment(job, placement, node)}
        proxies = [name for name in env if name.lower() in PROXIES and env[name]]
        if not proxies:
            continue
        no_proxy = ",".join(
            value for name, value in env.items() if name.lower() in NO_PROXY and name not in job.secret_env
        )
        missing = [address for address in addresses if not exempt(address, no_proxy)]
        if missing:
            more = f" and {len(missing) - MOST_ADDRESSES} more" if len(missing) > MOST_ADDRESSES else ""
            found = (
                f"{', '.join(proxies)} in the job's environment, and no_proxy without "
                f"{', '.join(missing[:MOST_ADDRESSES])}{more}"
            )
            action = f"set no_proxy: {','.join(entries)} in job_env, or remove the proxy"
            findings.append(Finding("proxy", found, "no proxy between the nodes", action, host=node.host))
    return findings


def interface_findings(job: Job, placement: Placement) -> list[Finding]:
    """Find variables of the job that send its ranks to an interface which reaches no other node."""
    if len(placement.nodes) < 2:
        return []
    findings = []
    for node in placement.nodes:
        env = common_environment(job, placement, node)
        for variable in INTERFACE_VARIABLES:
            for name in named_interfaces(env.get(variable, "")):
                why = leads_nowhere(name)
                if why:
                    found = f"{variable}={env[variable]}: {name} ({why})"
                    expected = "an interface that reaches the other nodes"
                    action = f"remove {variable} from job_env or job_node_env: the plan sets it for each node"
                    findings.append(Finding("interface", found, expected, action, host=node.host))
    return findings


def crowded(placement: Placement) -> list[Finding]:
    """Find nodes without devices that would run more processes than their processors can."""
    return [
        Finding(
            "job_ranks_per_node",
            f"{counted(node.rank_count, 'process', 'processes')} on {counted(node.cpus, 'processor')}",
            f"at most {MOST_PER_CPU} for each processor, {MOST_PER_CPU * node.cpus} here, where there is no device",
            "lower job_ranks_per_node, or use more nodes",
            host=node.host,
        )
        for node in placement.nodes
        if not node.devices and node.rank_count > MOST_PER_CPU * node.cpus
    ]


def environment_findings(job: Job, placement: Placement) -> list[Finding]:
    """Find what in the environment of a job's ranks would keep them from each other."""
    return proxy_findings(job, placement) + interface_findings(job, placement)


def compare_programs(answers: Mapping[str, Answer]) -> list[Finding]:
    """Find nodes whose own copy of the job's program or script differs from that of most nodes.

    `answers` are what job_preflight returned, by host. Programs for different processors are not compared.
    """
    copies: dict[tuple[str, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    for host, answer in answers.items():
        for name, program in (answer.get("programs") or {}).items():
            copies[name, program["form"]][host] = program
    findings = []
    for (name, _), by_host in copies.items():
        counts = Counter(program["sha256"] for program in by_host.values())
        usual, number = counts.most_common(1)[0]
        example = next(host for host, program in by_host.items() if program["sha256"] == usual)
        findings += [
            Finding(
                "scripts",
                f"{program['path']} sha256 {program['sha256'][:_SHOWN]}",
                (
                    f"one {name} on all nodes: sha256 {usual[:_SHOWN]}, as on {example}"
                    + (f" and {number - 1} more" if number > 1 else "")
                ),
                "copy the same file to all nodes, or put it into job_source, which is sent to all nodes",
                host=host,
            )
            for host, program in by_host.items()
            if program["sha256"] != usual
        ]
    return findings


def clock_findings(answers: Mapping[str, Answer]) -> list[Finding]:
    """Find nodes whose clocks are off, as far as a visit tells (clock.of_visit)."""
    clocks = {host: answer["clock"] for host, answer in answers.items() if "clock" in answer}
    if len(clocks) < 2:
        return []
    apart, odd, _ = clocks_apart(clocks, MOST_APART_S)
    return [
        Finding(
            "clock",
            f"{apart[host]:+.0f} s from the median of the nodes",
            f"within {MOST_APART_S:g} s",
            "see what keeps the time there (timedatectl, chronyc sources); job_health_gate: false starts all the same",
            host=host,
        )
        for host in odd
    ]


def _unanswered(answers: Mapping[str, Answer], limit: str) -> list[Finding]:
    """Say why nodes that should have been checked were not."""
    silent = {host: answer for host, answer in answers.items() if "findings" not in answer or answer.get("unreachable")}
    findings = [left_out(host, limit) for host, answer in silent.items() if not answer and limit]
    return findings + no_answers({host: answer for host, answer in silent.items() if answer or not limit}, {})


def join(planned: Sequence[Finding], answers: Mapping[str, Answer], limit: str = "") -> list[Finding]:
    """Put together what the plan and all nodes found.

    `answers` are the results of job_preflight by host, {} for a host that was not asked; `limit` is what --limit was.
    """
    findings = [*planned, *_unanswered(answers, limit)]
    for answer in answers.values():
        findings += [Finding.from_dict(finding) for finding in answer.get("findings") or ()]
    return findings + compare_programs(answers)
