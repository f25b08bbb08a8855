# SPDX-License-Identifier: Apache-2.0
"""What is told of a job while nobody watches: events, as they follow from two states of it, one after the other.

A state is what the head writes to cluster.json. A fact that is not there, or not known yet, makes no event, so whoever
adds one to cluster.json adds a rule here and nothing else. What an event may say is listed (`event`): it goes to people
and programs outside of the cluster. Times are seconds; `time` is since the epoch. docs/events.md describes each field.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...findings.visible import visible
from ..run.failure import text as failure_text
from ..run.progress import clock, is_number, metrics_text, not_a_number_text, number, strict
from ..run.restarts import restart_text
from ..run.slow_ranks import text as slow_rank_text
from .secrets import LEAST

Event = dict[str, Any]
State = Mapping[str, Any]
# Kind, text for people, and what it says besides.
Told = tuple[str, str, Mapping[str, Any]]

KINDS = (
    "started",
    "first_step",
    "progress",
    "checkpoint",
    "not_a_number",
    "hang",
    "restart",
    "spare",
    "slow_rank",
    "ended",
)
# Of these only the newest is of interest to who has not heard of the ones before.
_SUPERSEDED = ("progress", "checkpoint")
FORMS = ("json", "slack")
# Characters of a text; texts of failures name folders and hosts, which can be long.
MOST_TEXT = 500
# What an event says besides, where it is known: texts, whole numbers, numbers.
_TEXTS = ("reason", "host", "kind", "restarted", "checkpoint", "spare", "replaced")
_WHOLES, _NUMBERS = ("rank", "exit_code", "signal"), ("wait_s", "after_s", "step")
# Events that wait for one receiver at most; how often one is tried; the first wait and the longest, in seconds.
MOST_WAITING, MOST_TRIES, FIRST_WAIT_S, MOST_WAIT_S = 64, 20, 1.0, 60.0


# ---- what has happened


def between(before: State | None, now: State, every_s: float) -> Iterator[Told]:
    """Tell what has happened between two states of a job, of progress every so often; None: there was none before."""
    earlier = before or {}
    for rule in RULES:
        yield from rule(earlier, now)
    yield from _progress(earlier, now, every_s)
    yield from _ended(earlier, now)


def _begun(state: State) -> bool:
    return state.get("state", "starting") not in ("", "starting")


def _started(before: State, now: State) -> Iterator[Told]:
    if _begun(now) and not _begun(before) and not (now["end"] and not now["ranks_running"]):
        nodes = _nodes(now)
        yield "started", f"{_ranks(now)} on {nodes} {'node' if nodes == 1 else 'nodes'}", {}


def _first_step(before: State, now: State) -> Iterator[Told]:
    # Rank 0 may be there before the monitors of all nodes are.
    step, known = now["metrics"].get("step"), (before.get("metrics") or {}).get("step")
    if step is not None and _begun(now) and (known is None or not _begun(before)):
        yield "first_step", f"step {number(step)} after {clock(now['elapsed_s'])}", {}


def _not_a_number(before: State, now: State) -> Iterator[Told]:
    lost = now.get("loss_not_a_number") or {}
    if lost.get("since") and not (before.get("loss_not_a_number") or {}).get("since"):
        yield "not_a_number", not_a_number_text(lost), {}


def _checkpoint(before: State, now: State) -> Iterator[Told]:
    newest = (now.get("checkpoints") or {}).get("newest") or {}
    known = (before.get("checkpoints") or {}).get("newest") or {}
    if newest.get("name") and (newest["name"], newest["time"]) != (known.get("name"), known.get("time")):
        step = newest.get("step")
        reached = "" if step is None else f", step {number(step)}"
        yield "checkpoint", f"checkpoint {newest['name']}{reached}", {"checkpoint": newest["name"], "step": step}


def _restarts(before: State, now: State) -> Iterator[Told]:
    known = len((before.get("restarts") or {}).get("history", ()))
    for restart in now["restarts"]["history"][known:]:
        failure = restart.get("failure") or {}
        yield from _hang(failure)
        yield "restart", restart_text({**restart, "elapsed_s": None}), {**failure, **restart}


def _spares(before: State, now: State) -> Iterator[Told]:
    # A spare may be taken later than the restart for which it is.
    known = (before.get("restarts") or {}).get("replaced") or {}
    for lost, spare in (now["restarts"].get("replaced") or {}).items():
        if lost not in known:
            why = ((now["restarts"].get("refused") or {}).get(lost) or {}).get("reason", "")
            text = f"{spare} takes the place of {lost}" + (f": {why}" if why else "")
            yield "spare", text, {"replaced": lost, "spare": spare, "reason": why or None}


def _slow_ranks(before: State, now: State) -> Iterator[Told]:
    known = {(each["host"], each["found_s"]) for each in before.get("slow_ranks") or ()}
    for named in now.get("slow_ranks") or ():
        if (named["host"], named["found_s"]) not in known:
            text = slow_rank_text(named)
            one = {"rank": named["ranks"][0]} if len(named["ranks"]) == 1 else {}
            yield "slow_rank", text, {"host": named["host"], "reason": text, **one}


def _hang(failure: Mapping[str, Any]) -> Iterator[Told]:
    if failure.get("kind") == "hung":
        yield "hang", failure_text(failure), {**failure, "reason": failure_text(failure)}


# One for each fact of cluster.json, in the order in which they are told.
RULES: list[Callable[[State, State], Iterable[Told]]] = [
    _started,
    _first_step,
    _checkpoint,
    _not_a_number,
    _restarts,
    _spares,
    _slow_ranks,
]


def _progress(before: State, now: State, every_s: float) -> Iterator[Told]:
    turn, last = now["elapsed_s"] // every_s, before.get("elapsed_s", 0.0) // every_s
    if turn > last and now["metrics"] and not now["end"]:
        metrics = metrics_text(now["metrics"], now.get("loss_not_a_number"))
        yield "progress", f"{clock(now['elapsed_s'])}   {_ranks(now)}   {metrics}", {}


def _ended(before: State, now: State) -> Iterator[Told]:
    end = now["end"]
    if not end or before.get("end"):
        return
    failure = end.get("failure") or {}
    yield from _hang(failure)
    reached = metrics_text(now["metrics"], now.get("loss_not_a_number"))
    text = f"{end['state'].replace('_', ' ')} after {clock(now['elapsed_s'])}"
    text += f": {failure_text(failure)}" if failure else f" on {end['host']}" if end.get("host") else ""
    facts = {**failure, **({"reason": failure_text(failure)} if failure else {})}
    yield "ended", text + (f"   {reached}" if reached else ""), facts


def _nodes(state: State) -> int:
    # Without spares that stand by.
    return len(state["restarts"].get("members") or state["nodes"])


def _ranks(state: State) -> str:
    return f"{state['ranks_running']}/{state['world_size']} ranks running"


# ---- how it is said


def event(told: Told, state: State, time: float, secrets: Iterable[str] = ()) -> Event:
    """Return an event as it leaves the cluster: these fields and no others, with no word that is secret in a text."""
    kind, text, facts = told
    hidden = [secret for secret in secrets if len(secret) >= LEAST]
    said: Event = {
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
    said.update({name: _plain(facts[name], hidden) for name in _TEXTS if isinstance(facts.get(name), str)})
    said.update({name: facts[name] for name in _WHOLES if type(facts.get(name)) is int})
    said.update({name: facts[name] for name in _NUMBERS if is_number(facts.get(name))})
    return said


def _plain(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "(secret)")
    text = visible(" ".join(text.split("\n")))
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def body(said: Event, form: str = "json") -> bytes:
    """Write an event: whole, or as Slack and its like take a message, where &, < and > have a meaning."""
    if form == "slack":
        text = said["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return json.dumps({"text": text}).encode()
    return json.dumps(said, allow_nan=False).encode()


def signature(secret: str, timestamp: str, content: bytes) -> str:
    """Sign a body: HMAC-SHA256 over timestamp, a point and the body, with the timestamp in seconds since the epoch."""
    signed = timestamp.encode() + b"." + content
    return f"sha256={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


# ---- what waits


def wait_s(tries: int) -> float:
    """Return for how long to wait after so many tries, in seconds."""
    return min(MOST_WAIT_S, FIRST_WAIT_S * 2.0 ** max(0, min(tries, 30) - 1))


def tried_again(status: int) -> bool:
    """Tell whether what a receiver answers may be another answer later (RFC 9110, 15.5 and 15.6)."""
    return status in (408, 425, 429) or status >= 500


class Waiting:
    """Events that wait for one receiver, the oldest first, and a count of what became of the others.

    A new word of progress, or of a checkpoint, takes the place of one that waits. Where too many wait, the oldest is
    lost.
    """

    def __init__(self, to: str) -> None:
        """Take the receiver's name as it may be shown."""
        self.to, self.why = to, ""
        self.sent = self.lost = 0
        self.events: list[Event] = []

    def add(self, said: Event) -> None:
        """Take one more."""
        if said["event"] in _SUPERSEDED:
            self.events = [other for other in self.events if other["event"] != said["event"]]
        self.events.append(said)
        if len(self.events) > MOST_WAITING:
            self.lost += 1
            del self.events[0]

    def done(self, said: Event, why: str = "") -> None:
        """Note that one was sent, or why it is lost."""
        self.events = [other for other in self.events if other is not said]
        self.why = why
        if why:
            self.lost += 1
        else:
            self.sent += 1

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in cluster.json."""
        return {"to": self.to, "sent": self.sent, "waiting": len(self.events), "lost": self.lost, "why": self.why}


def undelivered(receivers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which receivers lack events, and why."""
    lines = []
    for each in receivers:
        lacking = each["lost"] + each["waiting"]
        if lacking:
            why = f": {each['why']}" if each["why"] else ""
            lines.append(f"events: {lacking} of {lacking + each['sent']} did not reach {each['to']}{why}")
    return lines
