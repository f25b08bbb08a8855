# SPDX-License-Identifier: Apache-2.0
"""Events of a job, derived from two successive states of it.

A state is what the head writes to cluster.json. A missing fact makes no event. To report a new fact of cluster.json,
add a rule to RULES. Events leave the cluster, so `event` lists the fields that they may have. Times are seconds; `time`
is since the epoch. docs/events.md describes each field.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...base.visible import visible
from ..run.decide.remaining_nodes import size_text
from ..run.decide.restarts import restart_text
from ..run.logs.failures import failure_text
from ..run.logs.hang import noted_text
from ..run.logs.progress import clock, is_number, metrics_text, not_a_number_text, number, strict
from ..run.measure.slow_ranks import slow_rank_text
from .masking import MIN_LENGTH

Event = dict[str, Any]
State = Mapping[str, Any]
# Kind, text for people, and further facts.
Change = tuple[str, str, Mapping[str, Any]]

KINDS = (
    *("started", "first_step", "progress", "checkpoint", "not_a_number"),
    *("hang", "apart", "restart", "spare", "left_out", "taken_back", "slow_rank", "ended"),
)
# A receiver that missed earlier events of these kinds needs only the newest.
_SUPERSEDED = ("progress", "checkpoint")
FORMS = ("json", "slack")
# Upper bound for a text, in characters; failures name folders and hosts, which can be long.
MAX_TEXT = 500
# Optional fields of an event: texts, whole numbers, numbers.
_TEXTS = ("reason", "host", "kind", "restarted", "checkpoint", "spare", "replaced")
_WHOLES, _NUMBERS = ("rank", "exit_code", "signal"), ("wait_s", "after_s", "step")
# Upper bounds for the events that wait for a receiver and for the tries of one; first and longest pause, in seconds.
MAX_WAITING, MAX_TRIES, FIRST_WAIT_S, MAX_WAIT_S = 64, 20, 1.0, 60.0


# ---- changes


def changes(before: State | None, now: State, every_s: float) -> Iterator[Change]:
    """Yield the changes between two states of a job, and progress every `every_s`; `before` is None at the start."""
    earlier = before or {}
    for rule in RULES:
        yield from rule(earlier, now)
    yield from _progress(earlier, now, every_s)
    yield from _ended(earlier, now)


def _part(state: State, *names: str) -> Any:
    """Return a nested part of a state, or {} where it is missing."""
    for name in names:
        state = state.get(name) or {}
    return state


def _begun(state: State) -> bool:
    return state.get("state", "starting") not in ("", "starting")


def _started(before: State, now: State) -> Iterator[Change]:
    if _begun(now) and not _begun(before) and not (now["end"] and not now["ranks_running"]):
        nodes = _nodes(now)
        yield "started", f"{_ranks(now)} on {nodes} {'node' if nodes == 1 else 'nodes'}", {}


def _first_step(before: State, now: State) -> Iterator[Change]:
    # Another head does not know the steps that the lost one has seen, only that there were some.
    stepped = before["restarts"].get("stepped") if before else False
    step, previous = now["metrics"].get("step"), _part(before, "metrics").get("step")
    # Rank 0 may train before the monitors of all nodes have reported.
    if step is not None and _begun(now) and ((previous is None and not stepped) or not _begun(before)):
        yield "first_step", f"step {number(step)} after {clock(now['elapsed_s'])}", {}


def _not_a_number(before: State, now: State) -> Iterator[Change]:
    lost = _part(now, "loss_not_a_number")
    if lost.get("since") and not _part(before, "loss_not_a_number").get("since"):
        yield "not_a_number", not_a_number_text(lost), {}


def _checkpoint(before: State, now: State) -> Iterator[Change]:
    newest, previous = (_part(state, "checkpoints", "newest") for state in (now, before))
    # Without one that was set aside or deleted, an older one is the newest.
    older = bool(newest and previous) and newest["time"] < previous["time"]
    if newest.get("name") and not older and newest != previous:
        step = newest.get("step")
        reached = "" if step is None else f", step {number(step)}"
        yield "checkpoint", f"checkpoint {newest['name']}{reached}", {"checkpoint": newest["name"], "step": step}


def _restarts(before: State, now: State) -> Iterator[Change]:
    for restart in now["restarts"]["history"][len(_part(before, "restarts", "history")) :]:
        failure = restart.get("failure") or {}
        yield from _hang(failure)
        yield "restart", restart_text({**restart, "elapsed_s": None}), {**failure, **restart}


def _spares(before: State, now: State) -> Iterator[Change]:
    # A spare may be chosen later than the restart that needs it.
    for lost, spare in _part(now, "restarts", "replaced").items():
        if lost not in _part(before, "restarts", "replaced"):
            why = _part(now, "restarts", "excluded", lost).get("reason") or None
            text = f"{spare} takes the place of {lost}" + (f": {why}" if why else "")
            yield "spare", text, {"replaced": lost, "spare": spare, "reason": why}


def _fewer_nodes(before: State, now: State) -> Iterator[Change]:
    # A node may be left out later than the restart that does without it begins.
    out, earlier = _part(now, "restarts", "left_out"), _part(before, "restarts", "left_out")
    size = size_text(now["world_size"], _nodes(now))
    for host in (host for host in out if host not in earlier):
        why = _part(now, "restarts", "excluded", host).get("reason") or None
        text = f"the job goes on without {host}, with {size}" + (f": {why}" if why else "")
        yield "left_out", text, {"host": host, "reason": why}
    for host in (host for host in earlier if host not in out):
        yield "taken_back", f"{host} takes part again, with {size}", {"host": host}


def _slow_ranks(before: State, now: State) -> Iterator[Change]:
    previous = {(each["host"], each["found_s"]) for each in _part(before, "slow_ranks")}
    for named in _part(now, "slow_ranks"):
        if (named["host"], named["found_s"]) not in previous:
            text = slow_rank_text(named)
            one = {"rank": named["ranks"][0]} if len(named["ranks"]) == 1 else {}
            yield "slow_rank", text, {"host": named["host"], "reason": text, **one}


def _no_progress(before: State, now: State) -> Iterator[Change]:
    noted = _part(now, "no_progress")
    if noted and not _part(before, "no_progress"):
        yield "hang", noted_text(noted), {**noted, "reason": noted_text(noted)}


def _apart(before: State, now: State) -> Iterator[Change]:
    found = _part(now, "apart")
    if found and not _part(before, "apart"):
        yield "apart", found["text"], {"host": found["hosts"][0], "reason": found["action"]}


def _hang(failure: Mapping[str, Any]) -> Iterator[Change]:
    if failure.get("kind") == "hung":
        yield "hang", failure_text(failure), {**failure, "reason": failure_text(failure)}


# One rule for each fact of cluster.json, in the order of the events.
RULES: tuple[Callable[[State, State], Iterable[Change]], ...] = (
    *(_started, _first_step, _checkpoint, _not_a_number),
    *(_restarts, _spares, _fewer_nodes, _slow_ranks, _no_progress, _apart),
)


def _progress(before: State, now: State, every_s: float) -> Iterator[Change]:
    turn, last = now["elapsed_s"] // every_s, before.get("elapsed_s", 0.0) // every_s
    if turn > last and now["metrics"] and not now["end"]:
        metrics = metrics_text(now["metrics"], now.get("loss_not_a_number"))
        left = "" if now.get("left_s") is None else f"   {clock(now['left_s'])} left"
        yield "progress", f"{clock(now['elapsed_s'])}   {_ranks(now)}   {metrics}{left}", {}


def _ended(before: State, now: State) -> Iterator[Change]:
    end = now["end"]
    if not end or before.get("end"):
        return
    failure = end.get("failure") or {}
    yield from _hang(failure)
    reached = metrics_text(now["metrics"], now.get("loss_not_a_number"))
    text = f"{end['state'].replace('_', ' ')} after {clock(now['elapsed_s'])}"
    text += f": {failure_text(failure)}" if failure else f" on {end['host']}" if end.get("host") else ""
    facts = {**failure, "reason": failure_text(failure)} if failure else {}
    yield "ended", text + (f"   {reached}" if reached else ""), facts


def _nodes(state: State) -> int:
    # Spares on standby do not count.
    return len(state["restarts"].get("members") or state["nodes"])


def _ranks(state: State) -> str:
    return f"{state['ranks_running']}/{state['world_size']} ranks running"


# ---- events as they are sent


def event(change: Change, state: State, time: float, secrets: Iterable[str] = ()) -> Event:
    """Return an event as it leaves the cluster: these fields and no others, with `secrets` masked in its texts."""
    kind, text, facts = change
    hidden = [secret for secret in secrets if len(secret) >= MIN_LENGTH]
    made: Event = {
        "event": kind,
        "id": f"{state['job_id']}-{kind}-{round(float(state['elapsed_s']) * 1000)}",
        "time": round(time, 3),
        "job_id": state["job_id"],
        "text": _plain(f"{state['job_id']}: {text}", hidden),
        "state": state["state"],
        "elapsed_s": state["elapsed_s"],
        "nodes": _nodes(state),
        "world_size": state["world_size"],
        "ranks_running": state["ranks_running"],
        "restarts": len(state["restarts"]["history"]),
        "metrics": strict(state["metrics"]),
    }
    made.update({name: _plain(facts[name], hidden) for name in _TEXTS if isinstance(facts.get(name), str)})
    made.update({name: facts[name] for name in _WHOLES if type(facts.get(name)) is int})
    made.update({name: facts[name] for name in _NUMBERS if is_number(facts.get(name))})
    return made


def _plain(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "(secret)")
    text = visible(" ".join(text.split("\n")))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def body(event: Event, form: str = "json") -> bytes:
    """Write an event as JSON, or as a message of Slack, in which &, < and > have a meaning."""
    if form == "slack":
        text = event["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return json.dumps({"text": text}).encode()
    return json.dumps(event, allow_nan=False).encode()


def signature(secret: str, timestamp: str, content: bytes) -> str:
    """Return the HMAC-SHA256 over timestamp, a point and the body; the timestamp is in seconds since the epoch."""
    signed = timestamp.encode() + b"." + content
    return f"sha256={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


# ---- delivery


def pause_s(tries: int) -> float:
    """Return the pause after so many tries, in seconds."""
    return min(MAX_WAIT_S, FIRST_WAIT_S * 2.0 ** max(0, min(tries, 30) - 1))


def may_retry(status: int) -> bool:
    """Return whether a later try may get another status (RFC 9110, 15.5 and 15.6)."""
    return status in (408, 425, 429) or status >= 500


class Queue:
    """The events that wait for one receiver, the oldest first, and counts of those sent and lost.

    New progress, or a new checkpoint, replaces the one that waits. If too many wait, the oldest is lost.
    """

    def __init__(self, to: str) -> None:
        """Take the receiver's name without secrets."""
        self.to, self.why = to, ""
        self.sent = self.lost = 0
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        """Add an event."""
        if event["event"] in _SUPERSEDED:
            self.events = [other for other in self.events if other["event"] != event["event"]]
        self.events.append(event)
        if len(self.events) > MAX_WAITING:
            self.lost += 1
            del self.events[0]

    def done(self, event: Event, why: str = "") -> None:
        """Note that an event was sent, or why it is lost."""
        self.events = [other for other in self.events if other is not event]
        self.why = why
        self.lost += bool(why)
        self.sent += not why

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of cluster.json."""
        return {"to": self.to, "sent": self.sent, "waiting": len(self.events), "lost": self.lost, "why": self.why}


def undelivered(receivers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each receiver that missed events."""
    lines = []
    for each in receivers:
        missed, why = each["lost"] + each["waiting"], f": {each['why']}" if each["why"] else ""
        if missed:
            lines.append(f"events: {missed} of {missed + each['sent']} did not reach {each['to']}{why}")
    return lines
