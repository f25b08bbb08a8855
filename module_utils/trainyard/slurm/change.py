# SPDX-License-Identifier: Apache-2.0
"""Find changes of a Slurm cluster's configuration that would cost jobs or the state of slurmctld.

slurmctld ends the jobs of a node that leaves the configuration, rejects the state of a cluster with another name, and
starts without the existing jobs on another host. Slurm does not warn of any of this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings.findings import Finding, host_list

# The first line of a slurm.conf that the role has written starts with this.
SIGN = "# Written by trainyard (role slurm)"
_BUSY = re.compile(r"^(alloc|mixed|compl|draining)")
_DEVICES = re.compile(r"\b(gpu|npu):(\d+)")
_VERSION = re.compile(r"(\d\d)\.(\d\d)\b")
# slurmctld works with slurmd of some earlier releases, by its release notes 24.11 with 23.02 and newer. A newer slurmd
# never registers.
_MONTHS = 21


@dataclass(frozen=True)
class Present:
    """The content of a slurm.conf: name of the cluster, host of slurmctld, devices by node."""

    cluster: str
    controller: str
    devices: Mapping[str, str] = field(default_factory=dict)


def read_conf(text: str) -> Present:
    """Parse a slurm.conf of this role."""

    def value(name: str) -> str:
        found = re.search(rf"^{name}=([^\s(]+)", text, re.MULTILINE)
        return found[1] if found else ""

    devices = re.findall(r"^NodeName=(\S+).*\bGres=(\S+)", text, re.MULTILINE)
    return Present(value("ClusterName"), value("SlurmctldHost"), dict(devices))


def _release(text: str) -> int | None:
    found = _VERSION.search(text)
    return int(found[1]) * 12 + int(found[2]) if found else None


def change_findings(cluster: str, controller: str, nodes: Sequence[Mapping[str, Any]], states: str) -> list[Finding]:
    """Find obstacles to a cluster with this name, these nodes, and slurmctld on this host.

    A node is {host, conf (its present slurm.conf)}; `states` is the output of `sinfo --Node --format "%N %T"`.
    """
    findings = [finding for node in nodes for finding in _conf_findings(cluster, controller, node)]
    staying = {str(node["host"]) for node in nodes}
    pairs = [line.split() for line in states.splitlines()]
    busy = sorted({pair[0] for pair in pairs if len(pair) == 2 and pair[0] not in staying and _BUSY.match(pair[1])})
    if busy:
        names = ",".join(busy)
        found = f"{host_list(busy)} {'has' if len(busy) == 1 else 'have'} jobs and would leave"
        action = f"scontrol update nodename={names} state=drain reason=leaves, and wait; or scancel --nodelist={names}"
        findings.append(Finding("slurm_hosts", found, "no job on a node that leaves, as Slurm would end it", action))
    return findings


def _conf_findings(cluster: str, controller: str, node: Mapping[str, Any]) -> list[Finding]:
    conf, host = str(node.get("conf") or ""), node["host"]
    if conf and not conf.startswith(SIGN):
        found = "/etc/slurm/slurm.conf, which trainyard has not written"
        action = "use that cluster as it is (job_scheduler: slurm), or move the file away"
        return [Finding("slurm.conf", found, "none, or one of this role", action, host=host)]
    present, findings = read_conf(conf), []
    if present.cluster not in ("", cluster):
        expected = f"{cluster}, as slurmctld does not take jobs and state of another name"
        action = f"set slurm_cluster: {present.cluster}; or end its jobs, stop slurmctld, move away "
        action += f"/etc/slurm/slurm.conf on all nodes and /var/lib/slurm/slurmctld on {present.controller}"
        findings.append(Finding("slurm_cluster", f"the cluster {present.cluster}", expected, action, host=host))
    if present.controller not in ("", controller):
        found, expected = f"slurmctld on {present.controller}", f"a slurmctld on {controller} without running jobs"
        action = f"set slurm_controller: {present.controller}; or end the jobs, stop slurmctld there, and move away "
        action += "/etc/slurm/slurm.conf on all nodes"
        findings.append(Finding("slurm_controller", found, expected, action, host=host))
    return findings


def node_findings(controller: str, nodes: Sequence[Mapping[str, Any]], devices: Mapping[str, str]) -> list[Finding]:
    """Find nodes with an incompatible release of Slurm or with missing devices.

    A node is {host, hostname, conf, version (output of slurmd -V)}; `devices` is the present Gres of each.
    """
    return [*_release_findings(controller, nodes), *_device_findings(controller, nodes, devices)]


def _release_findings(controller: str, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    versions = {str(node["hostname"]): str(node.get("version") or "").strip() for node in nodes}
    newest = _release(versions.get(controller, ""))
    for node in nodes:
        version = versions[str(node["hostname"])]
        release = _release(version)
        if newest is not None and release is not None and not 0 <= newest - release <= _MONTHS:
            expected = f"the release of slurmctld ({versions[controller]}) or one of the {_MONTHS} months before it"
            action = "upgrade slurmctld first, then slurmd; take the same distribution for all nodes"
            yield Finding("slurmd", version, expected, action, host=node["host"])


def _device_findings(
    controller: str, nodes: Sequence[Mapping[str, Any]], devices: Mapping[str, str]
) -> Iterator[Finding]:
    conf = next((str(node.get("conf") or "") for node in nodes if node["hostname"] == controller), "")
    hosts = {str(node["host"]) for node in nodes}
    for host, before in read_conf(conf).devices.items():
        had, has = (dict(_DEVICES.findall(gres)) for gres in (before, devices.get(host, "")))
        fewer = [f"{has.get(kind, 0)} of {count}" for kind, count in had.items() if int(has.get(kind, 0)) < int(count)]
        if host in hosts and fewer:
            found = f"{', '.join(fewer)} devices of the present configuration"
            expected = "all devices, or the configuration would lose them"
            action = "check nvidia-smi or npu-smi info; if devices are gone for good, take Gres of "
            action += f"{host} out of /etc/slurm/slurm.conf on {controller}"
            yield Finding("devices", found, expected, action, host=host)
