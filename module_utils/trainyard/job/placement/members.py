# SPDX-License-Identifier: Apache-2.0
"""Join what is known of the hosts that may take part in a job."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.findings import Finding
from ...cluster.ports import draw_ports
from ..file.given_environment import node_environment
from .placement import Member

# Ports per job: the rendezvous, the monitor, and others in case job_port is among them, or a host that may lead the job
# uses some.
_PORTS = 8
_DRAWN = random.SystemRandom()


@dataclass(frozen=True)
class Host:
    """A requested host: its inventory name, its address, and the unchecked value of its variable job_node_env."""

    name: str
    address: str
    env: Any = None


def joined(
    hosts: Iterable[Host], facts: Mapping[str, Any], silent: Mapping[str, dict[str, Any]], limit: str = ""
) -> tuple[list[Member], list[Finding]]:
    """Join the facts, the variables, and the answer of each host without facts; `limit` left out those without both."""
    members, findings = [], []
    for host in hosts:
        env, wrong = node_environment(host.env, host.name)
        findings += wrong
        own = facts.get(host.name)
        if own:
            # New ports for each plan, as earlier ones may be taken.
            own = {**own, "free_ports": draw_ports(own["unused_ports"], _PORTS, _DRAWN)}
        answer = {} if own else silent.get(host.name) or {}
        members.append(Member(host.name, host.address, own, answer, env, "" if own or answer else limit))
    return members, findings
