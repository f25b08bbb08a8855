# SPDX-License-Identifier: Apache-2.0
"""The monitor: one on each node of a job, as the training user, for the life of the job.

It makes a set of processes on many nodes live and die as one, without the controller: a laptop that is closed, or a
job started with job_wait: false, changes nothing.

- Every monitor follows the processes of its own node and reports to the head's monitor once a second, at once when
  one ends, which the kernel tells. The head answers; so each side notices when the other has gone silent.
- The head decides: all ranks ended well (succeeded), one did not (failed), a node is silent or never came
  (failed), the time is up (timed_out), somebody stopped a node (stopped). It tells all others, and each ends.
  A process without ranks, such as a scheduler, keeps no job alive and spoils none whose ranks have ended well.
- With a budget of restarts a failure is answered by a restart (../trainyard/job/restarts.py) as long as it lasts: all
  nodes end their part, say so, and start again together. A node that was lost has `rejoin_s` to come back for that.
- A monitor that ends takes the processes of its node with it: systemd units are bound to the monitor's unit; without
  systemd the processes are its children. A node that was cut off ends its processes the same way when it has not
  heard from the head for `silent_after_s`.

The monitors speak over TCP on the job's network, after each has proved that it knows the job's token (wire.py). Times
are seconds; `time` is since the epoch, all waiting is on the monotonic clock.

Files in the job's folder: job.json (input, 0600), exits/*.json, monitor.json (this node), cluster.json (head only, all
nodes), metrics.jsonl (the node of rank 0), attempts.json (with restarts: what runs, and survives a reboot), attempt/
(what belongs to one attempt of the whole job; emptied before the next).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from ...trainyard.job import causes, messages
from ...trainyard.job import failure as failures
from ...trainyard.job.messages import Message
from ...trainyard.job.restarts import WHOLE, Restarts
from . import units, wire
from .execute import redirect
from .exits import forget_secrets, keep_json, read_json, write_json
from .node_part import NEWS, TICK_S, NodePart
from .wire import Door, Line

REPORT_S = 1.0
# Failures that arrive within this time of the first one are looked at together: the cause may be reported second.
GRACE_S = 1.0
# How long nodes may take to start one after another before a missing one counts as absent.
JOIN_S = 120.0
RETRY_S = 0.2
# Files that the head has open beside the connections of its nodes, with room to spare.
OWN_FILES = 256
# How long processes without ranks may take to end after the last rank did.
RANKLESS_S = 15.0


class Monitor(NodePart):
    """The monitor of one node; on the head node also the one of the whole job."""

    def __init__(self, job_dir: Path) -> None:
        """Read job.json."""
        super().__init__(job_dir)
        self.is_head = self.spec["node_rank"] == 0
        self.silent_after_s = float(self.spec["silent_after_s"])
        # When the head was heard last, and how long it may be silent.
        self.heard, self.patience = self.started, JOIN_S
        # Head only: last report and time of contact of each node.
        self.reports: dict[str, Message] = {}
        self.seen: dict[str, float] = {}
        self.door: Door | None = None
        self.first_failure_at: float | None = None
        self.ranks_done_at: float | None = None
        self.budget, self.rejoin_s = int(self.spec.get("max_restarts", 0)), float(self.spec.get("rejoin_s", 0))
        known = (read_json(job_dir / "cluster.json") or {}) if self.is_head else {}
        self.restarts = Restarts(self.budget, self.rejoin_s, known.get("restarts"))
        self.resumed = (job_dir / "attempts.json").exists()
        # Told to end because the node goes down, not because somebody stopped the job.
        self.leaving = False
        # When this node last stood still, and for how long.
        self.woke, self.stood_still_s = 0.0, 0.0

    # ---- the head

    async def _open(self) -> Door:
        hosts = [host for host in self.spec["hosts"] if host != self.host]
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
            if any(report[key] != known.get(key) for key in NEWS):
                self.news.set()
            self.reports[host] = report
        if "stopped" in message:
            self.finish("stopped", host=host)
        line.tell({"end": self.end_record} if self.end_record else self._orders(host))

    def _orders(self, host: str) -> Message:
        return {"attempts": self.restarts.attempts(host), "go": self.restarts.go}

    def fail(self, failure: Message, found: Sequence[Message] = ()) -> None:
        """Answer a failure: by a restart while the budget lasts, else by the end of the job."""
        now = time.monotonic()
        if not self.budget:
            self.finish("failed", failure=failure, **({"failures": list(found[:64])} if found else {}))
        elif self.restarts.take(found or [failure], now, now - self.started, self._metrics(), failure):
            self.first_failure_at = self.ranks_done_at = None
        else:
            failure = {**failure, "fruitless": self.restarts.fruitless}
            self.finish("failed", failure=failure, **({"failures": list(found[:64])} if found else {}))

    def judge(self, now: float) -> None:
        """Decide whether the job is over, or has to be started again."""
        self.reports[self.host], self.seen[self.host] = self.report, now
        # What a node says of an attempt that is over is of no interest any more.
        reports = {
            host: report
            for host, report in self.reports.items()
            if report.get("attempts", {WHOLE: 0}) == self.restarts.attempts(host)
        }
        ranks_done = len(reports) == len(self.spec["hosts"]) and all(report.get("done") for report in reports.values())
        found = [record for report in reports.values() for record in report.get("failures", ())]
        rankless = sum(report.get("rankless", 0) for report in reports.values())
        if ranks_done:
            found = [record for record in found if record["ranks"]]
        if found:
            self.first_failure_at = self.first_failure_at or now
            well = [report["well"] for report in reports.values() if report.get("well")]
            cause = causes.blame(found, well, self.gone()) or {}
            all_told = ranks_done and not rankless
            if all_told or failures.is_beyond_doubt(cause) or now - self.first_failure_at >= GRACE_S:
                self.fail(cause, found)
        elif ranks_done:
            self.ranks_done_at = self.ranks_done_at or now
            if not rankless or now - self.ranks_done_at >= RANKLESS_S:
                self.finish("succeeded")
        else:
            self.first_failure_at = self.ranks_done_at = None
            self._judge_absence(now)
        stuck = next(filter(None, (report.get("cannot_write") for report in self.reports.values())), None)
        if stuck:
            self.finish("failed", failure=stuck)
        late = self.restarts.gather(self.spec["hosts"], self.reports, now)
        if late:
            after_s = round(self.restarts.rejoin_s)
            self.finish("failed", failure={"kind": "not_back", "host": late[0], "hosts": late, "after_s": after_s})
        self.wanted, self.go = self.restarts.attempts(self.host), self.restarts.go
        if now - self.started > self.spec["timeout_s"]:
            self.finish("timed_out", after_s=self.spec["timeout_s"])

    def gone(self) -> list[str]:
        """Return the nodes whose monitors were here and are no longer: they have closed their connections."""
        here = {self.host, *(self.door.lines if self.door else ())}
        free = {host for host, report in self.reports.items() if report.get("done") and not report.get("idle")}
        return [host for host in self.spec["hosts"] if host in self.seen and host not in here | free]

    def _judge_absence(self, now: float) -> None:
        """Find nodes that are not there. While all gather for a restart, a node may be away for `rejoin_s`."""
        for host in self.spec["hosts"] if self.restarts.gathering_since is None else ():
            # A node whose ranks all ended well is free to go.
            if self.reports.get(host, {}).get("done") and not self.reports[host].get("idle"):
                continue
            if host not in self.seen:
                if now - self.started > JOIN_S:
                    self.finish("failed", failure={"kind": "absent", "host": host, "after_s": round(JOIN_S)})
            elif now - self.seen[host] > self.silent_after_s:
                if self.seen[host] <= self.woke + REPORT_S and self.stood_still_s > self.silent_after_s - 2 * REPORT_S:
                    # The node gave this one up meanwhile; all that came from it had been waiting to be read.
                    self._fail_frozen(self.stood_still_s)
                    return
                silent = {
                    "kind": "silent",
                    "host": host,
                    "after_s": round(now - self.seen[host]),
                    "ranks_running": self.reports.get(host, {}).get("ranks_running"),
                }
                self.fail(silent)
                return

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

    def save_cluster(self) -> None:
        """Write the state of the whole job."""
        now = time.monotonic()
        lost = next(filter(None, (report.get("loss_not_a_number") for report in self.reports.values())), None)
        waiting = len(self.seen) < len(self.spec["hosts"])
        keep_json(
            self.job_dir / "cluster.json",
            {
                "job_id": self.spec["job_id"],
                "state": self.end_record.get("state") or ("starting" if waiting else "running"),
                "started": self.started_at,
                "elapsed_s": round(now - self.started, 2),
                "metrics": self._metrics(),
                "loss_not_a_number": lost,
                "world_size": self.spec["world_size"],
                "ranks_running": sum(report.get("ranks_running", 0) for report in self.reports.values()),
                "nodes": {
                    host: {
                        "ranks_running": self.reports.get(host, {}).get("ranks_running"),
                        "silent_s": round(now - self.seen[host], 1) if host in self.seen else None,
                    }
                    for host in self.spec["hosts"]
                },
                "restarts": self.restarts.as_dict(),
                "end": self.end_record or None,
            },
        )

    async def run_head(self, door: Door) -> None:
        """Judge and keep cluster.json until the job is over; then tell everybody."""
        last, saved = time.monotonic(), 0.0
        while not self.ended.is_set():
            changed = self.look()
            now = time.monotonic()
            self.notice_sleep(last, now)
            last = now
            orders = self.restarts.go, len(self.restarts.history)
            self.judge(now)
            if orders != (self.restarts.go, len(self.restarts.history)):
                for host, line in door.lines.items():
                    line.tell(self._orders(host))
                self.news.set()
            if changed or now - saved >= REPORT_S or self.end_record:
                saved = now
                self.save_cluster()
                self.save()
            await self.pause()
        if self.leaving:
            return
        self.save_cluster()
        for line in door.lines.values():
            line.tell({"end": self.end_record})
        door.close()

    # ---- any other node

    async def run_node(self) -> None:
        """Report to the head until it says that the job is over, or is no longer heard."""
        self.heard = time.monotonic()
        where = self.spec["head_address"], self.spec["monitor_port"]
        while not self.ended.is_set():
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                calling = wire.call(self.spec["token"], self.host, where, self.hear_head, lambda _: self.news.set())
                await self._report(await calling)
            await self._wait_without_head()

    async def _wait_without_head(self) -> None:
        self._look_and_save()
        self._give_up()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ended.wait(), RETRY_S)

    async def _report(self, line: Line) -> None:
        # From now on the head is there, and knows that this node is.
        self.heard, self.patience = time.monotonic(), self.silent_after_s
        sent = 0.0
        while not self.ended.is_set() and line.open:
            if self._look_and_save() or time.monotonic() - sent >= REPORT_S:
                sent = time.monotonic()
                line.tell({"report": self.report})
            await self.pause()
            self._give_up()
        if self.end_record.get("state") == "stopped" and "host" not in self.end_record:
            line.tell({"stopped": True})
        line.close()

    def hear_head(self, line: Line, message: Message) -> None:
        """Take what the head says. Raises BadMessage."""
        del line
        messages.check_from_head(message, [process["name"] for process in self.spec["processes"]], self.budget)
        self.heard = time.monotonic()
        if "end" in message:
            self.finish(**message["end"])
        orders = message.get("attempts", self.wanted), message.get("go", self.go)
        if orders != (self.wanted, self.go):
            self.wanted, self.go = orders
            self.news.set()

    def _look_and_save(self) -> bool:
        changed = self.look()
        if changed:
            self.save()
        return changed

    def _give_up(self) -> None:
        now, patience = time.monotonic(), self.patience
        silence = now - self.heard
        if silence > patience and self.budget:
            # The head has given this node up by now: what still runs here would be in the way of the next attempt.
            self._ended_all(now)
            patience += self.rejoin_s
        if silence > patience and not self.end_record:
            self.finish(
                "failed",
                failure={
                    "kind": "head_silent",
                    "host": self.spec["head_host"],
                    "seen_by": self.host,
                    "after_s": round(silence),
                },
            )

    # ---- both

    async def run(self) -> int:
        """Run until the job is over. Returns 0: how the job ended is in monitor.json and cluster.json."""
        if (read_json(self.job_dir / "monitor.json") or {}).get("end") or not self.spec["token"]:
            # A process that systemd starts again in the very moment of the job's end brings up its monitor, too.
            return 0
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._told_to_end)
        # Before anything is started: without its port a head is none.
        door = self.door = await self._open() if self.is_head else None
        try:
            self.supervisor.start()
            if self.budget:
                write_json(self.job_dir / "attempts.json", self.attempts)
            if self.resumed and self.is_head:
                self.fail({"kind": "rebooted", "host": self.host})
            self.look()
            self.save()
            if self.unsaved and not (self.job_dir / "monitor.json").exists():
                # Nobody could ever tell how the job is.
                raise OSError(f"{self.job_dir} cannot be written: {self.unsaved}")
            await (self.run_head(door) if door else self.run_node())
        finally:
            if not self.leaving:
                self._leave()
        return 0

    def _leave(self) -> None:
        """End what runs here, and forget what was secret: it is of no use any more; the folder stays for its logs."""
        if self.end_record:
            self.save()
        self.supervisor.end()
        forget_secrets(self.job_dir)
        if self.unsaved:
            # What has ended may have left room.
            self.save()

    def _told_to_end(self) -> None:
        if self.budget and self.spec["supervision"] == "systemd" and units.node_goes_down():
            self.leaving = True
            self.ended.set()
            self.news.set()
        else:
            self.finish("stopped")


def make_room(files: int) -> None:
    """Let this process have this many files open, as far as it may: without systemd it inherits a limit of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < files:
        # Into the monitor's log.
        print(f"may open {allowed} files, expected {files} for its nodes: raise the hard limit of open files")


def run(job_dir: Path) -> int:
    """Run the monitor of the job in `job_dir`."""
    node_rank = json.loads((job_dir / "job.json").read_text())["node_rank"]
    redirect(str(job_dir / "logs" / f"monitor_{node_rank}.log"))

    async def main() -> int:
        return await Monitor(job_dir).run()

    return asyncio.run(main())
