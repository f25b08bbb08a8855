# SPDX-License-Identifier: Apache-2.0
"""The head's part of a job: what its monitor does beside following its own node. It hears all nodes, and decides.

Times are seconds; `time` is since the epoch, all waiting is on the monotonic clock.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from ....trainyard.job.record import metrics as prometheus
from ....trainyard.job.run import causes, goodput, messages, silence
from ....trainyard.job.run import failure as failures
from ....trainyard.job.run.messages import Message
from ....trainyard.job.run.restarts import WHOLE, Restarts, to_replace
from ....trainyard.job.run.slow_ranks import Watch as SlowRanks
from ...machine.json_files import read_object
from ..record import event_sender as sender
from .connections import OWN_FILES, Door, Line, make_room
from .hang_poll import HangWatch
from .node_part import NEWS, TICK_S, NodePart

REPORT_S = 1.0
# Where there are spares, no node has longer than this to get its devices free, or through the gate.
HELD_S = 30.0
# Failures that arrive within this time of the first one are looked at together: the cause may be reported second.
GRACE_S = 1.0
# So many reports of a node tell its clock.
CLOCKS = 10
# How long nodes may take to start one after another before a missing one counts as absent.
JOIN_S = 120.0
# How long a look at the checkpoints may take as an attempt ends, while all nodes wait for what follows.
LAST_LOOK_S = 0.5
# How long processes without ranks may take to end after the last rank did.
RANKLESS_S = 15.0


class HeadPart(NodePart):
    """A node's part of a job, and on the head node the whole job's."""

    def __init__(self, job_dir: Path) -> None:
        """Read node_plan.json, and on the head what an earlier monitor of it knew of restarts."""
        super().__init__(job_dir)
        self.is_head = self.spec["node_rank"] == 0
        self.silent_after_s = float(self.spec["silent_after_s"])
        # The last report and time of contact of each node.
        self.reports: dict[str, Message] = {}
        self.seen: dict[str, float] = {}
        # How far the clock of each node was from this one's when its last reports came, in s.
        self.clocks: dict[str, deque[float]] = {}
        self.door: Door | None = None
        self.first_failure_at: float | None = None
        self.ranks_done_at: float | None = None
        self.budget, self.rejoin_s = int(self.spec.get("max_restarts", 0)), float(self.spec.get("rejoin_s", 0))
        known = read_object(job_dir / "cluster.json") if self.is_head else {}
        self.restarts = Restarts(
            self.budget, self.rejoin_s, known.get("restarts"), self.spec["hosts"], self.spec.get("spares", ())
        )
        self._move_ranks()
        # Who is told of the job, and the state of which they know.
        self.sender = sender.of_job(job_dir, self.spec, self.supervisor.beside) if self.is_head else None
        self.told: Message | None = known or None
        self.over_at = 0.0
        self.hang = HangWatch(self.spec, self.restarts.members, self.started)
        self.slow_ranks = SlowRanks(self.spec.get("slow_ranks", False), self.started, known.get("slow_ranks") or ())
        # Told to end because the node goes down, not because somebody stopped the job.
        self.leaving = False
        # When this node last stood still, and for how long.
        self.woke, self.stood_still_s = 0.0, 0.0

    async def _open(self) -> Door:
        hosts = [host for host in (*self.spec["hosts"], *self.spec.get("spares", ())) if host != self.host]
        make_room(len(hosts) + OWN_FILES)
        door = Door(self.spec["token"], hosts, self.hear_node)
        await door.open(self.spec["head_address"], self.spec["monitor_port"])
        return door

    def hear_node(self, line: Line, message: Message) -> None:
        """Take what a node says and answer. Raises BadMessage."""
        host = line.host
        messages.check_from_node(message, host, self.spec["world_size"], self.budget)
        self.seen[host] = time.monotonic()
        if "report" in message:
            report, known = message["report"], self.reports.get(host, {})
            if any(report.get(key) != known.get(key) for key in NEWS):
                self.news.set()
            self.reports[host] = report
            if "time" in report:
                self.clocks.setdefault(host, deque(maxlen=CLOCKS)).append(report["time"] - time.time())
        if "stacks" in message:
            self.hang.hear(host, **message["stacks"])
            return
        if "waits" in message:
            if host in self.restarts.members:
                self.slow_ranks.hear(host, **message["waits"])
            return
        if "goes_down" in message:
            self.finish("failed", failure={"kind": "rebooted", "host": host})
        elif "stopped" in message:
            self.finish("stopped", host=host)
        line.tell(self._orders(host))

    def _orders(self, host: str) -> Message:
        if self.end_record:
            return {"end": self.end_record}
        by = self.restarts.replaced.get(host)
        if by:
            # It may come back, and has nothing to do here any more.
            replaced = {"kind": "replaced", "host": host, "by": by}
            return {"end": {"state": "failed", "finished": time.time(), "failure": replaced}}
        place = self.restarts.place(host)
        return {
            "attempts": self.restarts.attempts(host),
            "go": self.restarts.go,
            "stacks": self.hang.order(host),
            **({"closer": True} if self.slow_ranks.closer else {}),
            **({} if place is None else {"place": place}),
            **({"moved": self.moved} if self.moved else {}),
        }

    def fail(self, failure: Message, found: Sequence[Message] = ()) -> None:
        """Answer a failure: by a restart while the budget lasts, else by the end of the job."""
        if self.budget:
            self._see_last_saved()
            now = time.monotonic()
            if self.restarts.take(found or [failure], now, now - self.started, self._metrics(), failure, time.time()):
                self.first_failure_at = self.ranks_done_at = None
                self._replace(to_replace(failure, self.restarts.history[:-1]), now, failures.text(failure))
                return
            failure = {**failure, "fruitless": self.restarts.fruitless}
        self.finish("failed", failure=failure, **({"failures": list(found[:64])} if found else {}))

    def _see_last_saved(self) -> None:
        """Look at what the ranks have saved since the last look, or left half written."""
        self.checkpoints.look_again(LAST_LOOK_S)
        self.report["checkpoints"] = known = self.checkpoints.state()
        if known:
            self.restarts.saw(known["newest"])

    def _replace(self, lost: str, now: float, reason: str) -> None:
        """Have a spare take the place of a node, where there is one that is heard."""
        here = [host for host in self.door.lines if self._heard(host, now)] if self.door else ()
        if self.restarts.replace(lost, here, reason, time.time()):
            self._move_ranks()

    def _move_ranks(self) -> None:
        """Know where spares are that have taken places, and that ranks of mpirun are there."""
        addresses, ranks_of = self.spec.get("addresses") or {}, self.spec.get("ranks_of") or {}
        for lost, spare in self.restarts.replaced.items():
            if lost in ranks_of:
                ranks_of[spare] = ranks_of.pop(lost)
        self.moved = {addresses[old]: addresses[new] for old, new in self.restarts.replaced.items() if addresses}

    def _replace_unfit(self, now: float) -> None:
        """While all gather for a restart: replace who is lost, is not free, or does not pass the gate.

        What does not go away by itself ends the job at once where no spare is left for it.
        """
        waited = now - (self.restarts.gathering_since or now) > HELD_S
        for host in list(self.restarts.members):
            report = self.reports.get(host, {})
            refused = report.get("refused") or {}
            for_good = bool(refused) and not refused["waits"]
            if not self._heard(host, now):
                silent = {"kind": "silent", "host": host, "after_s": round(now - self.seen.get(host, self.started))}
                self._replace(host, now, failures.text(silent))
            elif for_good or (waited and (refused or report.get("held"))):
                self._replace(host, now, refused.get("reason") or f"devices not free: {report['held']}")
            if for_good and host in self.restarts.members and (host == self.host or not self.restarts.spares):
                self._fail_refused(host, refused["reason"], None)

    def _replace_suspects(self, now: float) -> None:
        """When all could start again: prefer spares to nodes that passed, but lost a link or have another time.

        Only where there are spares for all of these: a switch that was off is no fault of the nodes.
        """
        members = self.restarts.members
        if any(self.reports.get(host, {}).get("ready_for") != self.restarts.attempts(host) for host in members):
            return
        told = {host: str(self.reports[host].get("suspect") or "") for host in members[1:]}
        found = {**{host: text for host, text in told.items() if text}, **self._clocks_off()}
        for host, reason in found.items() if len(found) <= len(self.restarts.spares) else ():
            self._replace(host, now, reason)

    def _clocks_off(self) -> dict[str, str]:
        """Return whose clock is off; what was long on its way seems to be of an earlier time, so the latest counts."""
        if not self.spec.get("gate") or not self.restarts.spares:
            return {}
        from ....trainyard.cluster.clocks import MOST_APART_S, apart

        heard = {host: max(self.clocks[host]) for host in self.restarts.members if host in self.clocks}
        known = {host: {"offset_s": off, "margin_s": 0.0} for host, off in {self.host: 0.0, **heard}.items()}
        found = apart(known, MOST_APART_S)
        off = {host: f"clock: {found.apart[host]:+.0f} s from the median of the nodes" for host in found.odd}
        return {host: text for host, text in off.items() if host != self.host}

    def _fail_refused(self, host: str, reason: str, after_s: int | None) -> None:
        self.restarts.refuse(host, reason, time.time())
        self.finish("failed", failure={"kind": "refused", "host": host, "reason": reason, "after_s": after_s})

    def _heard(self, host: str, now: float) -> bool:
        return now - self.seen.get(host, self.started) <= self.silent_after_s

    def _of_members(self) -> dict[str, Message]:
        """Return the reports of those that take part; what a spare said before it had its place is of no interest."""
        heard = {host: self.reports[host] for host in self.restarts.members if host in self.reports}
        return {host: report for host, report in heard.items() if report.get("place") == self.restarts.place(host)}

    def judge(self, now: float) -> None:
        """Decide whether the job is over, or has to be started again."""
        self.reports[self.host], self.seen[self.host] = self.report, now
        if saved := self._checkpoints():
            self.restarts.saw(saved["newest"])
        # What a node says of an attempt that is over is of no interest any more.
        reports = {
            host: report
            for host, report in self._of_members().items()
            if report.get("attempts", {WHOLE: 0}) == self.restarts.attempts(host)
        }
        # The log of rank 0 is on one node.
        pace = next(filter(None, (report.get("pace") for report in reports.values())), None)
        resumed = next(filter(None, (report.get("resumed") for report in reports.values())), "")
        self.restarts.keep_pace(pace, now, resumed)
        all_told = len(reports) == len(self.restarts.members)
        ranks_done = all_told and all(report.get("done") for report in reports.values())
        found = [record for report in reports.values() for record in report.get("failures", ())]
        rankless = sum(report.get("rankless", 0) for report in reports.values())
        if ranks_done:
            found = [record for record in found if record["ranks"]]
        if found:
            self.first_failure_at = self.first_failure_at or now
            well = [report["well"] for report in reports.values() if report.get("well")]
            every = [*found, *self.ends.missed(found)]
            full = {host: report["full"] for host, report in reports.items() if report.get("full")}
            cause = causes.blame(every, well, self.gone(), self.spec.get("addresses"), full) or {}
            over = ranks_done and not rankless
            if over or failures.is_beyond_doubt(cause) or now - self.first_failure_at >= GRACE_S:
                self.fail(cause, found)
        elif ranks_done:
            self.ranks_done_at = self.ranks_done_at or now
            if not rankless or now - self.ranks_done_at >= RANKLESS_S:
                self.finish("succeeded")
        else:
            self.first_failure_at = self.ranks_done_at = None
            self._judge_absence(now)
            self._judge_progress(reports.values(), now)
        # Also of a spare that could not write down its place, so that it has none as yet.
        told = (self.reports.get(host, {}).get("cannot_write") for host in self.restarts.members)
        stuck = next(filter(None, told), None)
        if stuck:
            self.finish("failed", failure=stuck)
        if self.restarts.gathering_since is not None and not self.restarts.go:
            self._replace_unfit(now)
            self._replace_suspects(now)
        late = self.restarts.gather(self.restarts.members, self._of_members(), now, self._replaced_are_leaving(now))
        if late:
            after_s = round(self.restarts.rejoin_s)
            failure: Message = {"kind": "not_back", "host": late[0], "hosts": late, "after_s": after_s}
            host, kind, reason = self._in_the_way()
            if kind == "refused" and host in late:
                self._fail_refused(host, reason, after_s)
            elif kind and host in late:
                failure = {"kind": "held", "host": host, "reason": reason, "after_s": after_s}
            self.finish("failed", failure=failure)
        self.wanted, self.go = self.restarts.attempts(self.host), self.restarts.go
        if self._time_up(now) and not self.hang.asks:
            # Nothing runs of which one could say where it is.
            self.finish("timed_out", after_s=self.spec["timeout_s"])

    def _time_up(self, now: float) -> bool:
        return bool(now - self.started > self.spec["timeout_s"])

    def _replaced_are_leaving(self, now: float) -> bool:
        """Tell whether a replaced node is still here to end its ranks, and drop the connections of silent ones.

        A node that was frozen or cut off closes no connection; a restart must not wait until it is back.
        """
        lines = self.door.lines if self.door else {}
        staying = [host for host in self.restarts.replaced if host in lines]
        for host in staying:
            if not self._heard(host, now):
                lines[host].end()
        return any(self._heard(host, now) for host in staying)

    def _judge_progress(self, reports: Iterable[Message], now: float) -> None:
        """Find out for whom the others wait, and whether the job hangs: then all nodes tell first where ranks are."""
        reports, elapsed_s = list(reports), now - self.started
        if self.restarts.gathering_since is not None or any(host not in self.seen for host in self.restarts.members):
            self.hang.begin(now)
            self.slow_ranks.begin(now, elapsed_s)
            return
        waits = self.looker.told()
        if waits:
            self.slow_ranks.hear(self.host, **waits)
        known = [report["progress"] for report in reports if "progress" in report]
        pace = next(filter(None, (report.get("pace") for report in reports)), None)
        self.slow_ranks.judge(
            now, elapsed_s, points=sum(each["points"] for each in known), step_s=goodput.step_s(pace) if pace else None
        )
        self.looker.closer = self.slow_ranks.closer
        hung = self.hang.judge(reports, lambda number: self.taker.take(number), now, self._time_up(now))
        if hung and hung["kind"] == "timed_out":
            self.finish(
                "timed_out", after_s=self.spec["timeout_s"], failure={**hung, "step": self._metrics().get("step")}
            )
        elif hung:
            self.fail({**hung, "step": self._metrics().get("step")})

    def gone(self) -> list[str]:
        """Return the nodes whose monitors were here and are no longer: they have closed their connections."""
        here = {self.host, *(self.door.lines if self.door else ())}
        free = {host for host, report in self.reports.items() if report.get("done") and not report.get("idle")}
        return [host for host in self.restarts.members if host in self.seen and host not in here | free]

    def _silent_s(self, now: float) -> dict[str, float]:
        """Return how long each node did not report that takes part, but those whose ranks all ended well."""
        done = {host for host, report in self.reports.items() if report.get("done") and not report.get("idle")}
        return {host: now - self.seen[host] for host in self.restarts.members if host in self.seen and host not in done}

    def _judge_absence(self, now: float) -> None:
        """Find nodes that are not there. While all gather for a restart, a node may be away for `rejoin_s`."""
        if self.restarts.gathering_since is not None:
            return
        absent = next((host for host in self.restarts.members if host not in self.seen), None)
        if absent and now - self.started > JOIN_S:
            self.finish("failed", failure={"kind": "absent", "host": absent, "after_s": round(JOIN_S)})
        silent = silence.failure(self._silent_s(now), self.silent_after_s)
        if silent and not self.end_record:
            host = silent["host"]
            if self.seen[host] <= self.woke + REPORT_S and self.stood_still_s > self.silent_after_s - 2 * REPORT_S:
                # The node gave this one up meanwhile; all that came from it had been waiting to be read.
                self._fail_frozen(self.stood_still_s)
            else:
                self.fail({**silent, "ranks_running": self.reports.get(host, {}).get("ranks_running")})

    def notice_sleep(self, last: float, now: float) -> None:
        """See whether this node stood still between two looks: then it was not the others that were silent."""
        slept = now - last
        if slept > self.silent_after_s:
            self._fail_frozen(slept)
        elif slept > 4 * TICK_S:
            self.woke, self.stood_still_s = now, slept
            self.seen = {host: min(seen + slept, now) for host, seen in self.seen.items()}

    def _fail_frozen(self, slept: float) -> None:
        self.fail({"kind": "frozen", "host": self.host, "after_s": round(slept)})

    def _metrics(self) -> Message:
        """Return the last of each metric; they come from the node of rank 0."""
        return {name: value for report in self.reports.values() for name, value in report.get("metrics", {}).items()}

    def _checkpoints(self) -> Message | None:
        """Return what is known of the job's checkpoints, from the node of rank 0; None where nobody watches any."""
        place = str(self.spec.get("checkpoints") or "")
        told = ((host, report.get("checkpoints")) for host, report in self.reports.items() if place)
        host, found = next(((host, each) for host, each in told if each), ("", None))
        return {"place": place, "host": host, **found} if found else None

    def _in_the_way(self) -> tuple[str, str, str]:
        """Return a node that a restart waits for, `held` by its devices or `refused` by the gate, and why; else ""."""
        for host in self.restarts.members if self.restarts.gathering_since is not None else ():
            report = self.reports.get(host, {})
            if report.get("held") or report.get("refused"):
                held = str(report.get("held") or "")
                return (host, "held", held) if held else (host, "refused", str(report["refused"]["reason"]))
        return "", "", ""

    def save_cluster(self, all_ended: bool = False) -> Message:
        """Write the state of the whole job, and tell of it; of its end when nothing runs any more (monitor.py)."""
        now = time.monotonic()
        if self.end_record:
            # What comes after it is no part of the job's time.
            now = self.over_at = self.over_at or now
        lost = next(filter(None, (report.get("loss_not_a_number") for report in self.reports.values())), None)
        host, kind, reason = self._in_the_way()
        why = {"held": "waits for its devices", "refused": "does not pass the gate", "": ""}[kind]
        silent = silence.line(self._silent_s(now), self.silent_after_s)
        waiting = any(host not in self.seen for host in self.restarts.members)
        state: Message = {
            "job_id": self.spec["job_id"],
            "state": self.end_record.get("state") or ("starting" if waiting else "running"),
            "started": self.started_at,
            "elapsed_s": round(now - self.started, 2),
            "metrics": self._metrics(),
            "loss_not_a_number": lost,
            "checkpoints": self._checkpoints(),
            "held": f"{host} {why}: {reason}" if kind else silent or None,
            "goodput": self.restarts.goodput(now - self.started),
            "slow_ranks": self.slow_ranks.named,
            "printing": self.hang.printing,
            "world_size": self.spec["world_size"],
            "ranks_running": sum(report.get("ranks_running", 0) for report in self._of_members().values()),
            "nodes": {
                host: {
                    "ranks_running": self.reports.get(host, {}).get("ranks_running"),
                    "silent_s": round(now - self.seen[host], 1) if host in self.seen else None,
                }
                for host in (*self.restarts.members, *self.restarts.spares)
            },
            "restarts": self.restarts.as_dict(),
            "end": self.end_record or None,
            "events": self.sender.as_list() if self.sender else [],
        }
        self.keep("cluster.json", state)
        if self.sender and (all_ended or not self.end_record):
            # As it is read after a reboot; and nothing of it changes with the job.
            known, self.told = self.told, json.loads(json.dumps(state))
            self.sender.tell(known, self.told)
        return state

    def _news(self) -> tuple[bool, int, int, bool]:
        """Return what all nodes must know at once when it changes."""
        restarts = self.restarts
        return restarts.go, len(restarts.history), len(restarts.replaced), self.slow_ranks.closer

    def _samples(self, state: Message) -> prometheus.Samples:
        return prometheus.job_samples(state, self.host, self.spec["launcher"])

    async def run_head(self, door: Door) -> None:
        """Judge and keep cluster.json until the job is over; then tell everybody."""
        last, saved = time.monotonic(), 0.0
        while not self.ended.is_set():
            changed = self.look()
            if self.leaving:
                return
            now = time.monotonic()
            self.notice_sleep(last, now)
            last = now
            orders = self._news()
            self.judge(now)
            if orders != self._news():
                for host, line in list(door.lines.items()):
                    line.tell(self._orders(host))
                self.news.set()
            if changed or now - saved >= REPORT_S or self.end_record:
                saved = now
                state = self.save_cluster()
                self.save()
                self.write_metrics(changed, of_job=lambda state=state: self._samples(state))  # type: ignore[misc]
            await self.pause()
        if self.leaving:
            return
        self._see_last_saved()
        self.save_cluster()
        for line in door.lines.values():
            line.tell({"end": self.end_record})
        door.close()
