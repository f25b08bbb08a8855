# SPDX-License-Identifier: Apache-2.0
"""Ask the hosts that lead jobs over ssh, and find the new one where a head was replaced.

The head alone is asked while it leads. All hosts that may lead (`candidates` in plan.json) are asked when it does not
answer, ended without an end of the job, or follows another one. A few other nodes are asked where too few of these
answer: the controller may be cut off from a job that goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.run.lead import leader
from .schedulers.scheduler_clients import Answer, Ask

# Seconds that an answer may take beyond the requested wait: of the only host that may lead, and of one among several.
LIMIT_S, ONE_OF_MANY_S = 30.0, 10.0
# Seconds for which a host that gave no answer is not asked again while others answer.
SILENT_S = 10.0
# Upper bound for the nodes that are asked beside those that may lead.
MAX_OTHERS = 4


class Head:
    """The host that leads one job, as far as is known; `stalled` if it reported nothing since the last call."""

    def __init__(self, plan: Mapping[str, Any], ask: Ask, forget: Callable[[str], None] = lambda _: None) -> None:
        """Begin with the planned head. `forget` closes the connection to a host that gave no answer."""
        self._plan, self._ask, self._forget = plan, ask, forget
        self._hosts, self._others = leader.hosts(plan), leader.others(plan)[:MAX_OTHERS]
        self._alone = len(self._hosts) + len(self._others) == 1
        self.host = self._hosts[0]
        self._job = {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
        self._limit_s = LIMIT_S if self._alone else ONE_OF_MANY_S
        self._silent_until: dict[str, float] = {}
        self._reported: tuple[str, object] = "", None
        self.stalled = False

    def states(self, wait_s: float) -> dict[str, Answer]:
        """Return the answer of the head after `wait_s` or at its job's end; if it does not lead, of all candidates.

        Where too few of them answer, others are asked.
        They are also asked when the head is stalled: its monitor may have been suspended.
        """
        answers = self._of([self.host] if self._is_due(self.host) else [], wait_s)
        answer = answers.get(self.host) or {}
        self._note_report(answer)
        if leader.leads(self._plan, self.host, answer) and not self.stalled:
            return answers
        others = [host for host in self._hosts if host not in answers]
        answers.update(self._of([host for host in others if self._is_due(host)], 0.0))
        if leader.phase(self._plan, answers) == leader.SILENT:
            answers.update(self._of([host for host in self._others if self._is_due(host)], 0.0))
        if not any("known" in answer for answer in answers.values()):
            self._silent_until.clear()
        found = leader.find(self._plan, answers).host
        if found not in ("", self.host) and leader.leads(self._plan, found, answers[found]):
            self.host = found
            self._note_report(answers[found])
        return answers

    def _note_report(self, answer: Mapping[str, Any]) -> None:
        """Compare the time of the head's last report: a monitor that works writes another one every second."""
        cluster = answer.get("cluster") or {}
        reported = self.host, cluster.get("elapsed_s")
        ends = cluster.get("end") or not answer.get("monitor_alive")
        self.stalled = bool(reported[1] is not None and reported == self._reported and not ends)
        self._reported = reported

    def _is_due(self, host: str) -> bool:
        return time.monotonic() >= self._silent_until.get(host, 0.0)

    def _of(self, hosts: Sequence[str], wait_s: float) -> dict[str, Answer]:
        asked = {host: {**self._job, "wait_s": wait_s} for host in hosts}
        answers = dict(self._ask("state", asked, limit_s=wait_s + self._limit_s)) if asked else {}
        for host, answer in answers.items():
            if "known" not in answer and not self._alone:
                self._silent_until[host] = time.monotonic() + SILENT_S
                self._forget(host)
        return answers


def running(plans: Sequence[Mapping[str, Any]], ask: Ask) -> tuple[dict[str, str], dict[str, str]]:
    """Return the line of progress of each of these jobs that runs, and for others why that is not known.

    Each host is asked once for all its jobs.
    """
    found = _running(ask, [(plan, leader.hosts(plan)[0]) for plan in plans])
    others = [(plan, leader.hosts(plan)[1:]) for plan in plans if not _is_settled(plan["job_id"], found)]
    more = _running(ask, [(plan, host) for plan, hosts in others for host in hosts])
    lines: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for plan in plans:
        job_id = plan["job_id"]
        answers = {**found[job_id], **more.get(job_id, {})}
        known = {host: answer for host, answer in answers.items() if "running" in answer}
        here = [answer["running"][job_id] for answer in known.values() if job_id in answer["running"]]
        if _has_ended(job_id, known):
            # Other monitors may still end their part.
            continue
        if here:
            # Only the host that leads has a line.
            lines[job_id] = max(here, key=len)
        elif not leader.suffice(plan, known):
            host = next(host for host in answers if host not in known)
            unknown[job_id] = f"{host}: {reason(answers[host]) or 'no answer'}"
    return lines, unknown


def _running(ask: Ask, pairs: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, dict[str, Answer]]:
    """Return the answers about each job, by host."""
    jobs: dict[str, list[dict[str, str]]] = {}
    for plan, host in pairs:
        jobs.setdefault(host, []).append({name: plan[name] for name in ("job_id", "job_dir")})
    answers = ask("running", {host: {"jobs": of_host} for host, of_host in jobs.items()}) if jobs else {}
    found: dict[str, dict[str, Answer]] = {}
    for plan, host in pairs:
        found.setdefault(plan["job_id"], {})[host] = answers[host]
    return found


def _is_settled(job_id: str, found: Mapping[str, Mapping[str, Answer]]) -> bool:
    """Return whether the answer of the planned head is enough: it leads the job, or recorded its end."""
    (answer,) = found[job_id].values()
    return bool(answer.get("running", {}).get(job_id)) or _has_ended(job_id, {"": answer})


def _has_ended(job_id: str, answers: Mapping[str, Answer]) -> bool:
    return any(job_id in answer.get("ended", ()) for answer in answers.values())
