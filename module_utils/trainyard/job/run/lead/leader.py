# SPDX-License-Identifier: Apache-2.0
"""Find the host that leads a job in the answers of the hosts that may lead it (`candidates` in plan.json).

The planned head leads first, with term 0. When it is lost, another candidate takes over with a higher term. The
cluster.json of an earlier head stays on its disk. An answer is that of a node to `state` or `collect`: `known`,
`monitor_alive`, `monitor` (monitor.json) and `cluster` (cluster.json); one without `known` says why there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ..logs.failure_kinds import failure_kind

Data = Mapping[str, Any]
Answers = Mapping[str, Data]

# The phases of a job, by the answers of its candidates.
LED, ELECTION, OVER, SILENT = "led", "election", "over", "silent"


class Leader(NamedTuple):
    """The host that leads or led a job, "" if it is not known, and its cluster.json."""

    host: str
    cluster: Data


def hosts(plan: Data) -> list[str]:
    """Return the hosts that may lead a job, the planned head first."""
    return list(plan.get("candidates") or [plan["head"]["host"]])


def others(plan: Data) -> list[str]:
    """Return the hosts that run ranks or may have to, and may not lead: they speak where too few others answer."""
    taking_part = (node["host"] for node in (*plan.get("nodes", ()), *plan.get("spares", ())))
    return [host for host in taking_part if host not in hosts(plan)]


def ends_job(end: Data | None) -> bool:
    """Return whether the end in a node's record is that of the whole job where the head can be replaced."""
    return bool(end) and not failure_kind((end or {}).get("failure") or {}).of_part


def ends_for_all(plan: Data, end: Data | None) -> bool:
    """Return whether no other host goes on after the end in the record of a node that does not lead."""
    may_go_on = plan.get("candidates") or plan.get("min_nodes")
    return ends_job(end) if may_go_on else bool(end)


def end_of_job(plan: Data, end: Data | None) -> Data | None:
    """Return the end in a node's record if it is that of the whole job."""
    return end if end and (not plan.get("candidates") or ends_job(end)) else None


def follows(answer: Data, by_default: str = "") -> str:
    """Return the head that a node follows; "" while it looks for one."""
    monitor = answer.get("monitor") or {}
    return str(monitor["follows"] or "") if "follows" in monitor else by_default


def has_led(answer: Data) -> bool:
    """Return whether the cluster.json of a node is that of an earlier head: the node follows another one, or none."""
    cluster = answer.get("cluster") or {}
    return bool(cluster.get("head")) and follows(answer, cluster["head"]) != cluster["head"]


def leads(plan: Data, host: str, answer: Data) -> bool:
    """Return whether a host leads the job, or ended it, by its own answer alone."""
    return _has_state(plan, host, answer) and _holds(plan, answer)


def find(plan: Data, answers: Answers) -> Leader:
    """Return the leader: the state of the highest term holds, and of equal ones that of a monitor that runs or ended.

    A node speaks only for itself, so a state counts only where its head wrote it.
    """
    states = {host: answers[host] for host in hosts(plan) if _has_state(plan, host, answers.get(host) or {})}
    host = max(states, key=lambda name: (_term(states[name]), _holds(plan, states[name])), default="")
    followed = max((int((answer.get("monitor") or {}).get("term") or 0) for answer in answers.values()), default=0)
    if not host or (len(hosts(plan)) > 1 and followed > _term(states[host]) and not _holds(plan, states[host])):
        # Some node has followed a later head, which does not answer.
        return Leader("", {})
    return Leader(host, states[host].get("cluster") or {})


def phase(plan: Data, answers: Answers) -> str:
    """Return what the answers say about the job: those of candidates, or of `others` where too few of them answered.

    LED: the leader's monitor runs. ELECTION: monitors run, and none of those that answered leads. OVER: the job has
    ended, or no monitor can go on. SILENT: too few answered to know, so it may go on.
    """
    head, known = find(plan, answers).host, _known(hosts(plan), answers)
    if has_ended(plan, answers):
        return OVER
    if head and answers[head]["monitor_alive"]:
        return LED
    if any(answer["monitor_alive"] for answer in known):
        return ELECTION
    if suffice(plan, known) or not _may_lead_elsewhere(plan, answers):
        return OVER
    rest = _known(others(plan), answers)
    if any(answer["monitor_alive"] for answer in rest):
        return ELECTION
    return OVER if any(ends_for_all(plan, _end(answer)) for answer in rest) else SILENT


def has_ended(plan: Data, answers: Answers) -> bool:
    """Return whether the head recorded the end of the job or, where no head is there, told it to some candidate."""
    host, cluster = find(plan, answers)
    if host and answers[host]["monitor_alive"]:
        return end_of_job(plan, cluster.get("end")) is not None
    records = [cluster, *((answers.get(name) or {}).get("monitor") or {} for name in hosts(plan))]
    return any(end_of_job(plan, record.get("end")) for record in records)


def suffice(plan: Data, known: Collection[object]) -> bool:
    """Return whether so many candidates answered that none of the others can lead: most of them, or the only one."""
    return len(known) > len(hosts(plan)) // 2


def election_text(plan: Data, host: str, answers: Answers) -> str:
    """Return why there is no progress while no host leads; `host` led last."""
    known = {name: answer for name, answer in answers.items() if "known" in answer}
    followed = {follows(answer) for answer in known.values() if answer["monitor_alive"]} - {"", *known}
    elsewhere = sorted(followed.intersection(hosts(plan)) - {host})
    if elsewhere:
        return f"{elsewhere[0]} leads the job now, and gives no answer; the job goes on"
    alive = [name for name, answer in known.items() if answer["monitor_alive"]]
    if alive and not set(alive).intersection(hosts(plan)):
        return f"{host} gives no answer; {alive[0]} still takes part in the job"
    if host in known and known[host]["monitor_alive"]:
        return f"{host} no longer leads the job; the nodes choose a new head"
    if host in known or not followed:
        return f"{host} is lost; the other nodes choose a new head"
    return f"{host} gives no answer; if it is lost, the other nodes choose a new head"


def _known(names: Collection[str], answers: Answers) -> list[Data]:
    return [answers[host] for host in names if "known" in (answers.get(host) or {})]


def _end(answer: Data) -> Data | None:
    end: Data | None = (answer.get("monitor") or {}).get("end")
    return end


def _may_lead_elsewhere(plan: Data, answers: Answers) -> bool:
    """Return whether a majority of those that vote may go on with a head that gives no answer.

    A host that has ended its part does not, nor does a witness that looks for a head, or has ended.
    """
    witness = (plan.get("witness") or {}).get("host", "")
    away = [answer for answer in _known(hosts(plan), answers) if _end(answer)]
    away += [answer for answer in _known([witness], answers) if _end(answer) or not follows(answer)]
    voters = len(hosts(plan)) + bool(witness)
    return voters - len(away) > voters // 2


def _has_state(plan: Data, host: str, answer: Data) -> bool:
    cluster = answer.get("cluster") or {}
    # The planned head writes its first state a moment after it has begun.
    exists = bool(cluster) or (host == hosts(plan)[0] and bool(answer.get("monitor_alive")))
    return exists and cluster.get("head", host) == host and follows(answer, host) == host


def _holds(plan: Data, answer: Data) -> bool:
    return bool(answer.get("monitor_alive") or end_of_job(plan, (answer.get("cluster") or {}).get("end")))


def _term(answer: Data) -> int:
    return int((answer.get("cluster") or {}).get("term") or 0)
