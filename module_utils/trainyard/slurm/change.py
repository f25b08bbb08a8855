# SPDX-License-Identifier: Apache-2.0
"""What a Slurm cluster that is there says to a new configuration: whether its jobs and its state outlive the change.

slurmctld ends the jobs of a node that its configuration no longer has, refuses a state that another cluster's name has
left, and on another host begins without the jobs of the first. None of this is said before it happens, so it is here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings.findings import Finding, host_list

# First line of a slurm.conf that the role has written begins so.
SIGN = "# Written by trainyard (role slurm)"
_BUSY = re.compile(r"^(alloc|mixed|compl|draining)")
_DEVICES = re.compile(r"\b(gpu|npu):(\d+)")
_VERSION = re.compile(r"(\d\d)\.(\d\d)\b")
# slurmctld works with the slurmd of some releases before it: by its release notes that of 24.11 back to 23.02. A newer
# slurmd never registers.
_MONTHS = 21


@dataclass(frozen=True)
class Present:
    """What a slurm.conf says: name of the cluster, host of slurmctld, devices by node."""

    cluster: str
    controller: str
    devices: Mapping[str, str] = field(default_factory=dict)


def read_conf(text: str) -> Present:
    """Read a slurm.conf of this role."""

    def value(name: str) -> str:
        found = re.search(rf"^{name}=([^\s(]+)", text, re.MULTILINE)
        return found[1] if found else ""

    devices = re.findall(r"^NodeName=(\S+).*\bGres=(\S+)", text, re.MULTILINE)
    return Present(value("ClusterName"), value("SlurmctldHost"), dict(devices))


def _release(text: str) -> int | None:
    """Return the release that `slurmd -V` prints, in months."""
    found = _VERSION.search(text)
    return int(found[1]) * 12 + int(found[2]) if found else None


def judge_change(cluster: str, controller: str, nodes: Sequence[Mapping[str, Any]], states: str) -> list[Finding]:
    """Return what speaks against a cluster of this name, with these nodes and slurmctld on this host.

    A node is {host, conf (its slurm.conf of now)}; `states` is the output of `sinfo --Node --format "%N %T"`.
    """
    findings = []
    for node in nodes:
        conf = str(node.get("conf") or "")
        present = read_conf(conf)
        if conf and not conf.startswith(SIGN):
            findings.append(
                Finding(
                    "slurm.conf",
                    "/etc/slurm/slurm.conf, which trainyard has not written",
                    "none, or one of this role",
                    "use that cluster as it is (job_scheduler: slurm), or move the file away",
                    host=node["host"],
                )
            )
            continue
        if present.cluster not in ("", cluster):
            findings.append(
                Finding(
                    "slurm_cluster",
                    f"the cluster {present.cluster}",
                    f"{cluster}, as slurmctld does not take jobs and state of another name",
                    (
                        f"set slurm_cluster: {present.cluster}; or end its jobs, stop slurmctld, and move away "
                        f"/etc/slurm/slurm.conf on all nodes and /var/lib/slurm/slurmctld on {present.controller}"
                    ),
                    host=node["host"],
                )
            )
        if present.controller not in ("", controller):
            findings.append(
                Finding(
                    "slurm_controller",
                    f"slurmctld on {present.controller}",
                    f"slurmctld on {controller}, which knows none of the jobs that run",
                    (
                        f"set slurm_controller: {present.controller}; or end the jobs, stop slurmctld there, and move "
                        "away /etc/slurm/slurm.conf on all nodes"
                    ),
                    host=node["host"],
                )
            )
    staying = {str(node["host"]) for node in nodes}
    pairs = [line.split() for line in states.splitlines()]
    busy = sorted({pair[0] for pair in pairs if len(pair) == 2 and pair[0] not in staying and _BUSY.match(pair[1])})
    if busy:
        names = ",".join(busy)
        findings.append(
            Finding(
                "slurm_hosts",
                f"{host_list(busy)} {'has' if len(busy) == 1 else 'have'} jobs and would leave",
                "no job on a node that leaves, as Slurm ends it",
                (
                    f"scontrol update nodename={names} state=drain reason=leaves, and wait; or scancel "
                    f"--nodelist={names}"
                ),
            )
        )
    return findings


def judge_nodes(controller: str, nodes: Sequence[Mapping[str, Any]], devices: Mapping[str, str]) -> list[Finding]:
    """Return what speaks against the nodes as they are: another release of Slurm, devices that are missing.

    A node is {host, hostname, conf, version (output of slurmd -V)}; `devices` is the Gres of each now.
    """
    findings = []
    versions = {str(node["hostname"]): str(node.get("version") or "").strip() for node in nodes}
    wanted = _release(versions.get(controller, ""))
    for node in nodes:
        found = str(node.get("version") or "").strip()
        release = _release(found)
        if wanted is not None and release is not None and not 0 <= wanted - release <= _MONTHS:
            findings.append(
                Finding(
                    "slurmd",
                    found,
                    f"a release of the {_MONTHS} months up to that of slurmctld ({versions[controller]})",
                    "upgrade slurmctld first, then slurmd; take the same distribution for all nodes",
                    host=node["host"],
                )
            )
    conf = next((str(node.get("conf") or "") for node in nodes if node["hostname"] == controller), "")
    hosts = {str(node["host"]) for node in nodes}
    for host, before in read_conf(conf).devices.items():
        had, has = (dict(_DEVICES.findall(gres)) for gres in (before, devices.get(host, "")))
        fewer = [
            f"{has.get(kind, 0)} of {number}" for kind, number in had.items() if int(has.get(kind, 0)) < int(number)
        ]
        if host in hosts and fewer:
            findings.append(
                Finding(
                    "devices",
                    f"{', '.join(fewer)} devices of the configuration that is there",
                    "every device answers, or a fault would become the configuration",
                    (
                        f"see nvidia-smi or npu-smi info; for devices that are gone for good, take Gres of {host} out "
                        f"of /etc/slurm/slurm.conf on {controller}"
                    ),
                    host=host,
                )
            )
    return findings
