# SPDX-License-Identifier: Apache-2.0
"""Find the rank that failed first, and word its failure.

Times are seconds since the epoch on the node. Sources: the report that torchrun prints (torch.distributed.elastic,
ChildFailedError), the messages of Open MPI 4 and 5, the exit status that systemd hands to ExecStopPost, wait(2).
"""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ....base.late_pattern import late_pattern
from ....base.shapes import TIME, misfit
from ....base.spans import named_ranks
from ....base.visible import ESCAPE_SEQUENCE
from .failure_kinds import failure_kind

Failure = dict[str, Any]

STARTED_AGAIN = "--- started again"

# One field of torchrun's report; `[0]:` entries stand under "Failures:" and "Root Cause (first observed failure):".
_FIELD = late_pattern(r"^\s*(?P<key>time|host|rank|exitcode)\s*:\s*(?P<value>.+?)\s*$")
_RANK = late_pattern(r"\b(?P<rank>\d{1,9}) \(local_rank: \d+\)")
_EXIT = late_pattern(r"(?<!\d)(?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,9})\)")
# Lines that the agent logs after a rank failed: first that it ends the others, then which one failed.
_SEEN = late_pattern(
    r"^[WE](?P<day>\d{4}) (?P<clock>\d\d:\d\d:\d\d\.\d{1,6})\d* [^\]\n]{1,200}\] "
    r"(?:Sending process \d+ closing signal|failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: (?P<pid>\d+)\))",
    re.MULTILINE,
)
# msrun of MindSpore 2.10; older ones do not say with which status.
_MSRUN_EXIT = late_pattern(r"Worker process (?P<pid>\d{1,9}) exit with exception\. Error code: (?P<status>-?\d{1,3})\b")
# MindSpore's scheduler, 2.10: each worker that joins, and one whose heartbeats stopped.
_MS_JOINED = late_pattern(
    r"The new node: (?P<rank>\d{1,9})\(role: MS_WORKER\)[^\n]{0,400}expected node number: (?P<expected>\d{1,6})\b"
)
_MS_LOST = late_pattern(r"The node: (?P<rank>\d{1,9}) is timed out")
# torchrun writes its report after the other ranks have ended, for which it waits 30 s.
_REPORT_DELAY_S = 40.0

# Open MPI 4 writes a process as [[4711,1],3], Open MPI 5 as [prterun-n1-4711@1,3]. Lines may be broken anywhere.
_MPI_EXIT = late_pattern(r"Process name:\s+\[\S{1,200},(?P<rank>\d{1,9})\]\s+Exit code:\s+(?P<code>\d{1,9})")
_MPI_SIGNAL = late_pattern(
    r"process\s+rank\s+(?P<rank>\d{1,9})\s+with\s+PID\s+\d{1,9}\s+on\s+node\s+\S{1,255}\s+exited\s+on\s+signal\s+(?P<signal>\d{1,3})"
)
# A program that ends all others by MPI_Abort.
_MPI_ABORT = late_pattern(
    r"MPI_ABORT was invoked on rank (?P<rank>\d{1,9}) in communicator MPI_COMM_WORLD\s+(?:Proc: \S{1,200}\s+)?"
    r"(?:with errorcode|Errorcode:)\s+(?P<code>\d{1,9})"
)
# The start script of a rank prints these into mpirun's log, with signals as a shell counts them.
_MPI_STATUS = late_pattern(r"^trainyard: rank (?P<rank>\d{1,9}) ended with status (?P<status>\d{1,3})$", re.MULTILINE)
_MPI_WELL = late_pattern(r"^trainyard: rank (?P<rank>\d{1,9}) ended well$", re.MULTILINE)
# It holds the exit back from its launcher (held_exit.py).
_HELD = late_pattern(r"^trainyard: rank (?P<rank>\d{1,9}) holds its exit back$", re.MULTILINE)
_MPI_PEER = late_pattern(r"^trainyard: rank (?P<rank>\d{1,9}) lost its peer: (?P<line>[^\n]{1,600})$", re.MULTILINE)
# The start script prints how a rank's log ends (restart_rules.evidence).
_MPI_EVIDENCE = late_pattern(
    r"^trainyard: rank (?P<rank>\d{1,9}) (?P<name>error|stack|doubt): (?P<text>[^\n]{1,600})$", re.MULTILINE
)
# How many processes of the job on the rank's node the OOM killer ended.
_MPI_OOM = late_pattern(r"^trainyard: rank (?P<rank>\d{1,9}) oom kills: (?P<kills>\d{1,9})$", re.MULTILINE)
_MPI_NO_START = late_pattern(r"unable to reliably start one or more daemons|lost communication with a remote daemon")
_MPI_LOST = late_pattern(r"Remote daemon: \S{1,200} on node (?P<node>\S{1,255})")
# The script that takes the place of ssh prints this, as mpirun does not always name a lost daemon.
_MPI_DAEMON = late_pattern(
    r"^trainyard: the daemon on (?P<node>\S{1,255}) ended with status (?P<status>\d{1,3})$", re.MULTILINE
)
# A node that is killed closes the connection of its daemon, which may be noticed first.
_MPI_CLOSED = late_pattern(r"^Connection to (?P<node>\S{1,255}) closed by remote host", re.MULTILINE)
# Messages of ssh, or of the shell that starts a daemon, before that; not mpirun's own warnings about ssh.
_MPI_SSH = late_pattern(
    r"^(?!\[[^\]\n]{1,300}\] plm:)(?:ssh: |Host key verification failed|kex_exchange"
    r"|[^\n]{0,300}(?:Permission denied|Connection (?:closed|reset)|not found|No such file or directory))[^\n]{0,300}$",
    re.MULTILINE,
)


def signal_name(number: int) -> str:
    """Name a signal: 9 -> SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_text(failure: Mapping[str, Any]) -> str:
    """Return how a process ended: `exit code 1` or `killed by SIGKILL`."""
    if failure.get("signal"):
        return f"killed by {signal_name(int(failure['signal']))}"
    if failure.get("exit_code") is None:
        # A node without room for one more process or thread has none.
        return f"no exit code ({failure.get('result') or 'unknown'})"
    number = killed_by(failure)
    shown = f" ({-number}, {signal_name(number)})" if number and failure["exit_code"] == 256 - number else ""
    return f"exit code {failure['exit_code']}{shown}"


def killed_by(failure: Mapping[str, Any]) -> int:
    """Return the signal that ended a process or, by its exit code, one below it; 0 without one.

    A shell reports 128 and the number; a launcher that exits with the number below zero, as DeepSpeed's, 256 less it.
    """
    code = failure.get("exit_code") or 0
    ends = (signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
    return int(failure.get("signal") or next((each for each in ends if code in (128 + each, 256 - each)), 0))


def aborted(failure: Mapping[str, Any]) -> bool:
    """Return whether a process died of SIGABRT."""
    return killed_by(failure) == signal.SIGABRT


def well(failure: Mapping[str, Any]) -> bool:
    """Return whether the process exited with 0, only too early for the other ranks."""
    return failure.get("result") == "success"


def missed(failure: Mapping[str, Any]) -> bool:
    """Return whether MindSpore's scheduler ended because it lost a rank; its own exit status says nothing."""
    return failure.get("kind") == "exit" and failure.get("process") == "scheduler" and failure.get("rank") is not None


class Words(dict[str, Any]):
    """The fields of a failure, and what texts of its kind name beside them, which is made when a text needs it."""

    def __missing__(self, name: str) -> str:
        """Return what is made of the fields; "" where neither they nor this have the name."""
        return _MADE[name](self) if name in _MADE else ""


def failure_text(failure: Mapping[str, Any]) -> str:
    """Return in a few words what failed where."""
    if failure.get("kind") != "exit":
        return failure_kind(failure).text.format_map(Words(failure))
    if missed(failure):
        return f"scheduler on {failure['host']}: no word from rank {failure['rank']}"
    process = f"rank {failure['rank']}" if failure.get("rank") is not None else failure["process"]
    return f"{process} on {failure['host']}: {exit_text(failure)}" + (" before the others" if well(failure) else "")


def silent_nodes(failure: Mapping[str, Any]) -> str:
    """Return the names of the nodes that did not report."""
    # Few monitors ever need it, and all would load it.
    from ....base.findings import host_list

    hosts = failure.get("hosts") or ()
    return f"nodes {host_list(hosts)}" if hosts else f"node {failure['host']}"


def silent_for(failure: Mapping[str, Any]) -> str:
    """Return for how long nodes did not report: `15 to 16 s`."""
    least, most = failure.get("least_s", failure["after_s"]), failure["after_s"]
    return f"{most} s" if least == most else f"{least} to {most} s"


def silence_line(failure: Mapping[str, Any]) -> str:
    """Return the text for the progress line while nodes are late."""
    return "no report from {names} for {since}".format_map(Words(failure))


_MADE: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "nodes": silent_nodes,
    "names": lambda failure: silent_nodes(failure).partition(" ")[2],
    "since": silent_for,
    "because": lambda failure: f": {failure['reason']}" if failure.get("reason") else "",
}


def of_last_attempt(log: str) -> str:
    """Return the part of a log from the last attempt: each attempt appends to the log."""
    return log.rpartition(STARTED_AGAIN)[2]


def root_cause(log: str) -> Failure | None:
    """Return the rank that failed first by the log of its launcher; None if the log does not say."""
    log = ESCAPE_SEQUENCE.sub("", of_last_attempt(log)).removeprefix("\ufeff")
    return torchrun_root_cause(log) or mpirun_root_cause(log) or msrun_root_cause(log) or scheduler_root_cause(log)


def _of_rank(rank: str | int, status: int, at: float | None = None) -> Failure:
    """Return the failure of a rank with an exit status, or a negative signal."""
    code, number = (status, None) if status >= 0 else (None, -status)
    return {"rank": int(rank), "exit_code": code, "signal": number, "time": at}


def torchrun_root_cause(agent_log: str) -> Failure | None:
    """Return the first failure in a torchrun agent's log; None without a report."""
    _, found, report = agent_log.rpartition("Root Cause (first observed failure):")
    if not found:
        return None
    fields: dict[str, str] = {}
    for line in report.splitlines()[:12]:
        match = _FIELD.match(line)
        if match:
            fields.setdefault(match["key"], match["value"])
    rank, code = _RANK.search(fields.get("rank", "")), _EXIT.search(fields.get("exitcode", ""))
    if rank is None or code is None:
        return None
    try:
        reported = time.mktime(time.strptime(fields.get("time", ""), "%Y-%m-%d_%H:%M:%S"))
    except (ValueError, OverflowError):
        reported = math.nan
    if misfit(reported, TIME):
        return _of_rank(rank["rank"], int(code["code"]))
    return _of_rank(rank["rank"], int(code["code"]), _first_seen(agent_log, code["pid"], reported))


def mpirun_root_cause(log: str) -> Failure | None:
    """Return the rank that failed first by mpirun's log; None if the log does not say.

    If mpirun failed and no rank, `reason` says why: a daemon did not start, or is lost.
    """
    # mpirun itself ends ranks by SIGTERM, and then SIGKILL, after another rank or a daemon was lost.
    by_itself = 128 + signal.SIGTERM
    daemons = [match for match in _MPI_DAEMON.finditer(log) if int(match["status"]) != by_itself]
    failed = min([*_MPI_NO_START.finditer(log), *daemons], key=re.Match.start, default=None)
    before = failed.start() if failed else len(log)
    reports = [match for pattern in (_MPI_EXIT, _MPI_SIGNAL, _MPI_ABORT) for match in pattern.finditer(log)]
    ended = list(_MPI_STATUS.finditer(log))
    causes = [match for match in ended if match.start() < before and int(match["status"]) != by_itself]
    if failed and not causes and not any(report.start() < before for report in reports):
        lost = _MPI_LOST.search(log, before) or next(iter(daemons), None) or _MPI_CLOSED.search(log, 0, before)
        reasons = [line.strip() for line in _MPI_SSH.findall(log, 0, before)[-1:]]
        if lost:
            reasons.append(f"mpirun lost its daemon on {lost['node']}: killed, or the node is lost")
        if reasons:
            return {"rank": None, "signal": None, "time": None, "reason": reasons[0]}
    if reports:
        fields = max(reports, key=re.Match.start).groupdict()
        return _of_rank(fields["rank"], int(fields["code"]) if "code" in fields else -int(fields["signal"]))
    for match in [*_without_lost_peer(log, causes), *causes, *ended][:1]:
        status = int(match["status"])
        return _of_rank(match["rank"], status if status <= 128 else 128 - status)
    return None


def _without_lost_peer(log: str, causes: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the ends of ranks that lost no peer, where the first rank to fail did; none that a monitor asked for.

    A rank that was killed may leave later than the ranks that miss it: its container ends after it.
    """
    lost = {match["rank"] for match in _MPI_PEER.finditer(log)}
    first = causes[0]["rank"] if causes else ""
    held = next((match.start() for match in _HELD.finditer(log) if match["rank"] == first), 0)
    return [match for match in causes if match["rank"] not in lost and match.start() < held]


def holds_exit(log: str) -> bool:
    """Return whether the rank that failed first by its launcher's log holds its exit back.

    Its script has then printed all that it knows of the failure.
    """
    held = {int(match["rank"]) for match in _HELD.finditer(of_last_attempt(log))}
    return bool(held) and (root_cause(log) or {}).get("rank") in held


def mpirun_lost_peer(log: str, rank: int) -> str:
    """Return the line in which a rank says that it lost a peer, as its script printed it; "" without one."""
    found = _MPI_PEER.finditer(of_last_attempt(log))
    return next((match["line"] for match in found if int(match["rank"]) == rank), "")


def mpirun_evidence(log: str, rank: int) -> dict[str, str]:
    """Return what a rank's log says of its end, as its script printed it; empty without that."""
    found = _MPI_EVIDENCE.finditer(of_last_attempt(log))
    return {match["name"]: match["text"] for match in found if int(match["rank"]) == rank}


def mpirun_oom_kills(log: str, rank: int) -> dict[str, Any]:
    """Return a failure's fields about kills by the OOM killer, as the rank's script printed; empty without it."""
    found = [int(match["kills"]) for match in _MPI_OOM.finditer(of_last_attempt(log)) if int(match["rank"]) == rank]
    return {"oom_kills": found[-1], "oom_of_job": True} if found else {}


def mpirun_left(log: str) -> list[int]:
    """Return the ranks that exited with 0 before any other failed, in that order."""
    log = of_last_attempt(log)
    first = _MPI_STATUS.search(log)
    return [int(match["rank"]) for match in _MPI_WELL.finditer(log, 0, first.start() if first else len(log))]


def msrun_root_cause(log: str) -> Failure | None:
    """Return the worker that failed first by msrun's log; None if the log does not say.

    msrun names a process; the output of its workers in the same log has the rank of each process.
    """
    ended = _MSRUN_EXIT.search(log)
    if ended is None:
        return None
    rank = re.search(rf"\({ended['pid']},[^\n]{{1,300}}\] This node \d+ rank id: (?P<rank>\d{{1,9}})\b", log)
    return _of_rank(rank["rank"], int(ended["status"])) if rank else None


def scheduler_root_cause(log: str) -> Failure | None:
    """Return the worker that MindSpore's scheduler lost, by its log; None if it lost none."""
    lost = _MS_LOST.search(log)
    if lost:
        reason = f"the scheduler had not heard rank {lost['rank']} for job_heartbeat_timeout: frozen, or cut off"
        return {"rank": int(lost["rank"]), "signal": None, "time": None, "reason": reason}
    if "Building networking for MS_SCHED failed" not in log:
        return None
    joined = [match.groupdict() for match in _MS_JOINED.finditer(log)]
    if not joined:
        return {"rank": None, "signal": None, "time": None, "reason": "no worker joined it within job_join_timeout"}
    missing = sorted(set(range(int(joined[-1]["expected"]))) - {int(worker["rank"]) for worker in joined})
    if not missing:
        return None
    return {"kind": "not_joined", "rank": missing[0], "signal": None, "time": None, "who": named_ranks(missing)}


def _first_seen(agent_log: str, pid: str, reported: float) -> float:
    """Return when the agent first saw that this process had failed.

    The time of the report has whole seconds, and is that after the other ranks were ended. Within one second, ranks of
    other nodes fail as well, so the agent's own log lines decide which one was first.
    """
    begun: re.Match[str] | None = None
    seen: re.Match[str] | None = None
    for match in _SEEN.finditer(agent_log):
        if match["pid"] is None:
            begun = begun or match
            continue
        if match["pid"] == pid:
            seen = begun or match
        begun = None
    if seen is None:
        return reported
    year = time.localtime(reported).tm_year
    try:
        at = datetime.strptime(f"{year}{seen['day']} {seen['clock']}", "%Y%m%d %H:%M:%S.%f").timestamp()
    except ValueError:
        return reported
    return at if reported - _REPORT_DELAY_S <= at < reported + 1 else reported


def order(failure: Failure) -> tuple[bool, bool, bool, bool, float]:
    """Return a sort key that puts the likely cause before its consequences.

    A rank that was killed from outside is a cause, and so is one that could not write (`full`). A rank with a report of
    its own precedes an agent that only says that something failed, and one that failed by itself precedes one that lost
    a peer. The survivors of a broken collective die of SIGABRT and SIGTERM.
    """
    number = failure.get("signal")
    killed = bool(number) and number not in (signal.SIGABRT, signal.SIGTERM)
    at = float(failure.get("time") or 0.0)
    return not killed, not failure.get("full"), failure.get("rank") is None, bool(failure.get("lost")), at


def is_beyond_doubt(failure: Failure) -> bool:
    """Return whether a failure is surely a cause: SIGKILL comes from outside, before anything else fails.

    Other signals may be consequences of lost peers.
    """
    return failure.get("rank") is not None and failure.get("signal") == signal.SIGKILL


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """Return the likely cause among failures of the same moment; None without any."""
    return min(failures, key=order, default=None)
