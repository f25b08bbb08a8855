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

from ..base.findings import Finding, host_list
from .slurm_words import NAME, VERSION, fits, shown, word_findings

# The first line of a slurm.conf that the role has written starts with this.
SIGN = "# Written by trainyard (role slurm)"
_BUSY = re.compile(r"^(alloc|mixed|compl|draining)")
_DEVICES = re.compile(r"\b(gpu|npu):([0-9]{1,4})\b")
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
    values: dict[str, str] = {}
    devices: dict[str, str] = {}
    for line in text.split("\n"):
        words = [word.partition("=")[::2] for word in line.split()]
        name, value = words[0] if words else ("", "")
        if name in ("ClusterName", "SlurmctldHost"):
            values.setdefault(name, value.partition("(")[0])
        elif name == "NodeName" and dict(words).get("Gres"):
            devices[value] = dict(words)["Gres"]
    return Present(values.get("ClusterName", ""), values.get("SlurmctldHost", ""), devices)


def _release(version: str) -> int | None:
    found = VERSION.pattern.fullmatch(version)
    return int(found[1]) * 12 + int(found[2]) if found else None


def change_findings(cluster: str, controller: str, nodes: Sequence[Mapping[str, Any]], states: str) -> list[Finding]:
    """Find obstacles to a cluster with this name, these nodes, and slurmctld on the host `controller`.

    A node is {host, hostname, conf (its present slurm.conf)}; `states` is the output of
    `sinfo --Node --format "%N %T"` on the controller.
    """
    hostname = next((node.get("hostname") for node in nodes if node["host"] == controller), None)
    findings = [finding for node in nodes for finding in _conf_findings(cluster, hostname, node)]
    staying = {str(node["host"]) for node in nodes}
    pairs = [line.split() for line in states.splitlines()]
    leaving = {pair[0] for pair in pairs if len(pair) == 2 and pair[0] not in staying and _BUSY.match(pair[1])}
    odd = sorted(name for name in leaving if not fits(name, NAME))
    if odd:
        found = f"the node {shown(odd[0])} in the output of sinfo"
        findings.append(Finding("slurm_hosts", found, NAME.expected, "check slurmctld there", host=controller))
    busy = sorted(leaving - {*odd})
    if busy:
        names = ",".join(busy)
        found = f"{host_list(busy)} {'has' if len(busy) == 1 else 'have'} jobs and would leave"
        action = f"scontrol update nodename={names} state=drain reason=leaves, and wait; or scancel --nodelist={names}"
        expected = "no job on a node that leaves, as Slurm would end it"
        findings.append(Finding("slurm_hosts", found, expected, action, host=controller))
    return findings


def _conf_findings(cluster: str, controller: Any, node: Mapping[str, Any]) -> list[Finding]:
    """Compare a node's present slurm.conf with the new one; `controller` is the host name of slurmctld's host."""
    conf, host = str(node.get("conf") or ""), node["host"]
    if conf and not conf.startswith(SIGN):
        found = "/etc/slurm/slurm.conf, which trainyard has not written"
        action = "use that cluster as it is (job_scheduler: slurm), or move the file away"
        return [Finding("slurm.conf", found, "none, or one of this role", action, host=host)]
    present, findings = read_conf(conf), []
    for name, value in (("ClusterName", present.cluster), ("SlurmctldHost", present.controller)):
        if value and not fits(value, NAME):
            found = f"{name}={shown(value)} in /etc/slurm/slurm.conf"
            return [Finding("slurm.conf", found, NAME.expected, "move the file away there", host=host)]
    if present.cluster not in ("", cluster):
        expected = f"{cluster}, as slurmctld does not take jobs and state of another name"
        action = "set slurm_cluster to that name; or end its jobs, stop slurmctld, move away /etc/slurm/slurm.conf on "
        action += "all nodes and /var/lib/slurm/slurmctld on the host of slurmctld"
        findings.append(Finding("slurm_cluster", f"the cluster {present.cluster}", expected, action, host=host))
    if present.controller not in ("", controller) and controller is not None:
        found, expected = f"slurmctld on {present.controller}", f"a slurmctld on {controller} without running jobs"
        action = "set slurm_controller to that host; or end the jobs, stop slurmctld there, and move away "
        action += "/etc/slurm/slurm.conf on all nodes"
        findings.append(Finding("slurm_controller", found, expected, action, host=host))
    return findings


def node_findings(controller: str, nodes: Sequence[Mapping[str, Any]], devices: Mapping[str, str]) -> list[Finding]:
    """Find nodes with an incompatible release of Slurm or with missing devices.

    A node is {host, conf, version (output of slurmd -V)}; `devices` is the present Gres of each.
    """
    return [*_release_findings(controller, nodes), *_device_findings(controller, nodes, devices)]


def _release_findings(controller: str, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    versions = {str(node["host"]): str(node.get("version") or "").strip() for node in nodes}
    newest = _release(versions.get(controller, ""))
    for host, version in versions.items():
        release = _release(version)
        if release is None:
            yield from word_findings("slurmd", version, VERSION, host)
        elif newest is not None and not 0 <= newest - release <= _MONTHS:
            expected = f"the release of slurmctld ({versions[controller]}) or one of the {_MONTHS} months before it"
            action = "upgrade slurmctld first, then slurmd; take the same distribution for all nodes"
            yield Finding("slurmd", version, expected, action, host=host)


def _device_findings(
    controller: str, nodes: Sequence[Mapping[str, Any]], devices: Mapping[str, str]
) -> Iterator[Finding]:
    """Compare the devices with those in the controller's slurm.conf: a node that was installed anew has none.

    The controller says what others had, so the finding is the controller's.
    """
    conf = next((str(node.get("conf") or "") for node in nodes if node["host"] == controller), "")
    hosts = {str(node["host"]) for node in nodes}
    for host, before in read_conf(conf).devices.items():
        had, has = (dict(_DEVICES.findall(gres)) for gres in (before, devices.get(host, "")))
        fewer = [f"{has.get(kind, 0)} of {count}" for kind, count in had.items() if int(has.get(kind, 0)) < int(count)]
        if host in hosts and fewer:
            found = f"{', '.join(fewer)} devices of {host} in its slurm.conf"
            expected = "all devices, or the configuration would lose them"
            action = f"check nvidia-smi or npu-smi info on {host}; if devices are gone for good, take Gres of {host} "
            yield Finding("devices", found, expected, f"{action}out of /etc/slurm/slurm.conf here", host=controller)
