# SPDX-License-Identifier: Apache-2.0
"""Preflight over all nodes: compare them, check the environment between them, and join the findings of each node."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.findings import Finding, counted
from ...base.majority import usual
from ...cluster.clocks import MAX_APART_S, clocks_apart
from ...cluster.unreachable import no_answers
from ...hardware.interfaces import chooses_none, leads_nowhere, named_interfaces
from ..file.job import Job
from ..file.job_command import scripts
from ..placement.placement import Placement, common_environment, left_out

Answer = Mapping[str, Any]
# The variables of every process of each host (placement.common_environment).
Environments = Mapping[str, Mapping[str, str]]

# gRPC, curl, Python and Go read these; gRPC the first of its own.
PROXIES = ("grpc_proxy", "http_proxy", "https_proxy", "all_proxy")
NO_PROXY = ("no_grpc_proxy", "no_proxy")
# Variables by which ranks choose their interface; each plan sets the first two.
_PLANNED = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
INTERFACE_VARIABLES = (*_PLANNED, "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
# With more nodes no_proxy gets their networks, which current programs understand, too.
MAX_ADDRESSES = 8
# Upper bound for processes on each processor, without devices: a few are tests of a program, more starve each other.
MAX_PER_CPU = 16
# Digits of a digest, and interfaces, that a finding shows.
_SHOWN = 12


def own_scripts(job: Job) -> list[str]:
    """Return the scripts that a job's command names by their path on the nodes, besides its program."""
    return [word for word in scripts(job.command[1:]) if word.startswith("/")]


class _Exempted(NamedTuple):
    """The addresses and networks that a no_proxy exempts; names of hosts and domains exempt no address."""

    addresses: frozenset[tuple[int, int]]
    networks: frozenset[Any]


def _key(ip: Any) -> tuple[int, int]:
    """Return the version and number of an address, without its zone."""
    return ip.version, int(ip)


def _exempted(no_proxy: str) -> _Exempted:
    """Read a no_proxy; `*` is the networks of all addresses."""
    addresses: set[tuple[int, int]] = set()
    networks: set[Any] = set()
    for part in (part.strip().strip("[]") for part in no_proxy.split(",")):
        if part == "*":
            networks.update(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0")))
            continue
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(part, strict=False)
            if network.num_addresses == 1:
                addresses.add(_key(network.network_address))
            else:
                networks.add(network)
    return _Exempted(frozenset(addresses), frozenset(networks))


def not_exempted(addresses: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the function from a no_proxy to those of these addresses that it does not exempt.

    Each node may have a no_proxy of its own, and is compared with the addresses of all: what networks exempt is found
    once for all nodes with the same networks.
    """
    parsed = {address: ipaddress.ip_address(address) for address in addresses}

    @functools.cache
    def outside(networks: frozenset[Any]) -> list[str]:
        return [address for address, ip in parsed.items() if not any(ip in network for network in networks)]

    def missing(no_proxy: str) -> list[str]:
        exempted = _exempted(no_proxy)
        return [address for address in outside(exempted.networks) if _key(parsed[address]) not in exempted.addresses]

    return missing


def proxy_findings(job: Job, placement: Placement, environments: Environments) -> list[Finding]:
    """Find proxies in the environment of ranks that do not exempt the nodes; secret values are unknown here."""
    addresses = [node.address for node in placement.nodes]
    entries = addresses
    if len(addresses) > MAX_ADDRESSES:
        entries = list(dict.fromkeys(node.network or node.address for node in placement.nodes))
    action = f"set no_proxy: {','.join(entries)} in job_env, or remove the proxy"
    findings, without = [], not_exempted(addresses)
    for node in placement.nodes:
        env = {**dict.fromkeys(job.secret_env, "secret"), **environments[node.host]}
        proxies = [name for name in env if name.lower() in PROXIES and env[name]]
        if not proxies:
            continue
        missing = without(
            ",".join(env[name] for name in env if name.lower() in NO_PROXY and name not in job.secret_env)
        )
        if missing:
            more = f" and {len(missing) - MAX_ADDRESSES} more" if len(missing) > MAX_ADDRESSES else ""
            found = f"{', '.join(proxies)} in the job's environment, and no_proxy without "
            found += f"{', '.join(missing[:MAX_ADDRESSES])}{more}"
            findings.append(Finding("proxy", found, "no proxy between the nodes", action, host=node.host))
    return findings


def interface_findings(placement: Placement, environments: Environments) -> list[Finding]:
    """Find variables of the job that send its ranks to an interface which is not there, or reaches no other node."""
    findings = []
    for node in placement.nodes:
        env = environments[node.host]
        for variable in INTERFACE_VARIABLES:
            value, expected = env.get(variable, ""), "an interface that reaches the other nodes"
            reasons = [(name, leads_nowhere(name)) for name in named_interfaces(value)]
            found = [f"{name} ({why})" for name, why in reasons if why and len(placement.nodes) > 1]
            if node.interfaces and chooses_none(variable, value, node.interfaces):
                found, expected = ["the node has no such interface"], f"one of {', '.join(node.interfaces[:_SHOWN])}"
            for text in found:
                instead = ": the plan sets it for each node" if variable in _PLANNED else ""
                action = f"remove {variable} from job_env or job_node_env" + instead
                findings.append(Finding("interface", f"{variable}={value}: {text}", expected, action, host=node.host))
    return findings


def crowded(placement: Placement) -> list[Finding]:
    """Find nodes without devices that would run more processes than their processors can."""
    findings = []
    for node in placement.nodes:
        most = MAX_PER_CPU * node.cpus
        if not node.devices and node.rank_count > most:
            found = f"{counted(node.rank_count, 'process', 'processes')} on {counted(node.cpus, 'processor')}"
            expected = f"at most {MAX_PER_CPU} for each processor, {most} here, where there is no device"
            action = "lower job_ranks_per_node; job_nodes or job_hosts bring more nodes for as many ranks"
            findings.append(Finding("job_ranks_per_node", found, expected, action, host=node.host))
    return findings


def environment_findings(job: Job, placement: Placement) -> list[Finding]:
    """Find what in the environment of a job's ranks would keep them from each other."""
    environments = {node.host: common_environment(job, placement, node) for node in placement.nodes}
    return proxy_findings(job, placement, environments) + interface_findings(placement, environments)


def compare_programs(answers: Mapping[str, Answer]) -> list[Finding]:
    """Find nodes with another copy of the job's program or script than most nodes with the same kind of processor."""
    copies: dict[tuple[str, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    for host, answer in answers.items():
        for name, program in (answer.get("programs") or {}).items():
            copies[name, program["form"]][host] = program
    findings = []
    action = "copy the same file to all nodes, or put it into job_source, which is sent to all nodes"
    for (name, _), by_host in copies.items():
        most = usual((program["sha256"] for program in by_host.values()), "")
        example, *others = (host for host, program in by_host.items() if program["sha256"] == most)
        more = f" and {len(others)} more" if others else ""
        expected = f"one {name} on all nodes: sha256 {most[:_SHOWN]}, as on {example}{more}"
        for host, program in by_host.items():
            if program["sha256"] != most:
                found = f"{program['path']} sha256 {program['sha256'][:_SHOWN]}"
                findings.append(Finding("scripts", found, expected, action, host=host))
    return findings


def clock_findings(answers: Mapping[str, Answer]) -> list[Finding]:
    """Find nodes whose clocks are off, as far as a visit shows (clock.of_visit)."""
    clocks = {host: answer["clock"] for host, answer in answers.items() if "clock" in answer}
    if len(clocks) < 2:
        return []
    apart, odd, _ = clocks_apart(clocks, MAX_APART_S)
    expected = f"within {MAX_APART_S:g} s"
    action = (
        "check what keeps the time there (timedatectl, chronyc sources); job_health_gate: false starts all the same"
    )
    return [
        Finding("clock", f"{apart[host]:+.0f} s from the median of the nodes", expected, action, host=host)
        for host in odd
    ]


def _unanswered(answers: Mapping[str, Answer], limit: str) -> list[Finding]:
    silent = {host: answer for host, answer in answers.items() if "findings" not in answer or answer.get("unreachable")}
    findings = [left_out(host, limit) for host, answer in silent.items() if not answer and limit]
    return findings + no_answers({host: answer for host, answer in silent.items() if answer or not limit}, {})


def join(planned: Sequence[Finding], answers: Mapping[str, Answer], limit: str = "") -> list[Finding]:
    """Return all findings; `answers` of job_preflight are by host, {} for none, `limit` is the value of --limit."""
    findings = [*planned, *_unanswered(answers, limit)]
    for answer in answers.values():
        findings += [Finding.from_dict(finding) for finding in answer.get("findings") or ()]
    return findings + compare_programs(answers)
