# SPDX-License-Identifier: Apache-2.0
"""How a job ended, out of its summary (docs/summary.md): the text that a user reads.

States: succeeded, failed, timed_out, stopped, running (not over yet), lost (nobody knows: no node answered). Times are
seconds since the epoch.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.adhoc import playbook
from ..findings.findings import connection_reason, counted, host_list
from ..job.file import tls
from ..job.record.events import undelivered
from ..job.run import checkpoints, goodput, hang, kernel_messages, silence, slow_ranks
from ..job.run import rank_connections as meeting
from ..job.run.failure import exit_text, missed, well
from ..job.run.progress import clock, metrics_text, not_a_number_text, progress_line
from ..job.run.restarts import gave_up, restart_text, went_on_text
from ..job.run.stacks import spans
from . import job_traffic

Data = Mapping[str, Any]
TAIL_LINES = 15


def telling_log(summary: Data) -> str | None:
    """Name the log whose end tells how the job ended: a rank's, or that of what starts ranks; None where none does."""
    failure = summary.get("failure") or {}
    if summary["state"] in ("succeeded", "running", "timed_out"):
        return str(summary["rank_log"]).replace("{rank}", str(failure.get("rank") or 0))
    if failure.get("kind") == "engine" and summary["engine"]["kind"] == "slurm":
        return "slurm.log" if summary["nodes"] else None
    if failure.get("kind") == "hung" and failure.get("rank") is None:
        return None
    if failure.get("kind") not in ("exit", "not_joined", "hung"):
        return None
    # Where several ranks share a log, it is that of what started them.
    if failure.get("rank") is not None and ("{rank}" in summary["rank_log"] or not failure.get("process")):
        return str(summary["rank_log"]).replace("{rank}", str(failure["rank"]))
    logs = {
        (node["host"], process["name"]): process["log"] for node in summary["nodes"] for process in node["processes"]
    }
    return logs.get((failure["host"], failure["process"]))


def starter_log(summary: Data) -> str:
    """Name the log of what started the rank that failed; "" where nothing did, or no rank failed."""
    failure = summary.get("failure") or {}
    logs = [
        str(process["log"])
        for node in summary["nodes"]
        for process in node["processes"]
        if (node["host"], process["name"]) == (failure.get("host"), failure.get("process"))
    ]
    return logs[0] if failure.get("kind") == "exit" and logs else ""


def _where(summary: Data) -> str:
    """Name the host whose log tells of the failure: that of the rank, which mpirun may have started from another one.

    An agent names its own ranks.
    """
    failure: Data = summary.get("failure") or {}
    holders = [node["host"] for node in summary["nodes"] if failure.get("rank") in node["ranks"]]
    if not failure.get("ranks"):
        # What has no ranks, MindSpore's scheduler, names one of another process.
        return str(holders[0] if holders else failure.get("host") or summary["nodes"][0]["host"])
    spread = len(failure["ranks"]) > max(len(node["ranks"]) for node in summary["nodes"])
    return str(holders[0] if holders and spread else failure.get("host") or summary["nodes"][0]["host"])


def _killed(summary: Data, failure: Data, host: str) -> list[str]:
    """Say whether the OOM killer was it; SIGKILL comes from outside, and does not tell from whom."""
    advice = "more memory, fewer processes on the node, or smaller batches"
    count = kernel_messages.counted_text(failure, host)
    # What a shell or a container says of a process of theirs that was killed: 128 + 9.
    if failure.get("signal") != signal.SIGKILL and failure.get("exit_code") != 128 + signal.SIGKILL:
        return [f"{count}: {advice}"] if failure.get("oom_kills") else []
    who = "SIGKILL" if failure.get("signal") else f"exit code {failure['exit_code']} is SIGKILL, which"
    took = kernel_messages.took(summary.get("kernel") or (), host, summary.get("job_id", ""))
    if took:
        return [f"{took}: {advice}"]
    if failure.get("result") == "oom-kill":
        return [f"the kernel's OOM killer ended it: {advice}"]
    if failure.get("oom_kills"):
        return [f"{count}: {advice}"]
    if count:
        return [f"{who} comes from outside: a person or a program sent it, as {count}"]
    cluster = (summary.get("engine") or {}).get("kind") == "kubernetes"
    look = f"kubectl describe pod {host}" if cluster else f"journalctl -k on {host}"
    outside = f"the kernel's OOM killer, for want of memory ({look} tells)"
    return [f"{who} comes from outside: mostly {outside}, else a person"]


def _none_left(summary: Data) -> list[str]:
    """Say that the spares were used up."""
    roles = [node.get("role") or "" for node in summary["nodes"]]
    used = any(role.endswith("took its place") for role in roles) and "spare" not in roles
    return ["no spare was left for it: raise job_spares where more nodes may be lost at a time"] if used else []


def cause(summary: Data, job_dir: str) -> list[str]:
    """Say in a line or two why a job ended as it did; nothing where it succeeded or nobody knows."""
    failure: Data = summary.get("failure") or {}
    kind, host = failure.get("kind"), failure.get("host", "")
    hosts = failure.get("hosts") or [host]
    ranks = [rank for node in summary["nodes"] if node["host"] in hosts for rank in node["ranks"]]
    on_node = f"{'rank' if len(ranks) == 1 else 'ranks'} {spans(ranks)}" if ranks else "its ranks"
    if kind == "exit":
        rank = failure.get("rank")
        alone = failure["process"] == "agent" and rank is None
        who = f"{summary['launcher']}'s agent" if alone else failure["process"]
        if rank is not None:
            who, host = f"rank {rank}", _where(summary)
        if well(failure):
            early = f"{who} on {host} ended first, with exit code 0, while others still ran"
            return [early, *filter(None, [failure.get("reason")])]
        if missed(failure):
            return [f"{who} on {host} failed first: {failure['reason']}"]
        first = f"{who}{f' of {on_node}' if alone else ''} on {host} failed first: {exit_text(failure)}"
        if alone and failure.get("signal"):
            first = f"{who} on {host} was {exit_text(failure)}, and {on_node} ended with it"
        return [
            first + (f" ({failure['result']})" if failure.get("result") in ("oom-kill", "timeout", "watchdog") else ""),
            *([failure["reason"]] if failure.get("reason") else []),
            *_killed(summary, failure, host),
        ]
    if kind == "not_joined":
        return [
            f"{failure['who']} never joined the cluster: the scheduler waited for job_join_timeout",
            "a worker that waits before it calls init(), is slow (a longer job_join_timeout), or does not reach the "
            f"scheduler on {host}",
        ]
    if kind == "gone":
        return [
            f"the monitor of {host} ended first, and {on_node} with it",
            failure["reason"],
            f"see what killed it: journalctl -k and {job_dir}/logs/monitor_*.log on {host}",
        ]
    if kind == "silent":
        who, _, since = silence.text(failure).partition(": ")
        if len(hosts) > 1:
            return [
                f"{who} with {on_node} went silent: {since}, so they are frozen, cut off or down",
                f"their monitors end {on_node} as soon as they run again; check the nodes, then start the job again",
            ]
        return [
            f"{who} with {on_node} went silent: {since}, so it is frozen, cut off or down",
            f"its own monitor ends {on_node} as soon as it runs again; check the node, then start the job again",
        ]
    if kind == "head_silent":
        return [
            f"head node {host} went silent: {failure['seen_by']} had no word from it for {failure['after_s']} s",
            "every other node has ended its ranks; check the head node, then start the job again",
        ]
    if kind == "frozen":
        return [
            f"head node {host} stood still for {failure['after_s']} s, and the other nodes gave it up",
            "check the machine (suspended, paused, out of memory), then start the job again",
        ]
    if kind == "rebooted":
        return [
            f"node {host} with {on_node} shut down or restarted while the job ran",
            f"see who did that: last -x, and journalctl -b -1 -e on {host}; with job_max_restarts a job goes on when "
            "the node is back",
        ]
    if kind in ("hung", "timed_out"):
        return hang.cause(failure)
    if kind == "cannot_write":
        return [
            f"{host} could not start its part again: {failure['folder']} cannot be written: {failure['reason']}",
            "make room there, or choose another folder with trainyard_state; then start the job again",
        ]
    if kind == "held":
        return [
            f"the devices of {host} were not free for the restart within {failure['after_s']} s (job_rejoin_timeout): "
            f"{failure['reason']}",
            f"see what that is (ps -fp PID on {host}) and end it, then start the job again",
        ]
    if kind == "refused":
        waited = f" within {failure['after_s']} s (job_rejoin_timeout)" if failure.get("after_s") else ""
        return [
            f"{host} did not pass the gate for the restart{waited}: {failure['reason']}",
            "repair it, or leave it out (job_hosts); with job_spares another host takes the place of any but the head; "
            "job_gate: false starts again all the same",
        ]
    if kind == "not_back":
        return [
            f"{host_list(failure['hosts'])} did not take part in the restart within {failure['after_s']} s "
            "(job_rejoin_timeout)",
            "check the machine, then start the job again; what it still runs ends as soon as it runs again",
            *_none_left(summary),
        ]
    if kind == "absent":
        return [
            f"node {host} never reported to the head within {failure['after_s']} s of the start",
            f"look at {job_dir}/logs/monitor_*.log on {host}, and at the firewall between the nodes",
        ]
    if kind == "engine":
        where = f"{host}: " if host else ""
        return [f"{summary['engine']['kind']} says: {where}{failure['reason']}"]
    if kind == "not_started":
        return [f"{host} could not start its part: {failure['text']}"]
    return []


def _unwritten(summary: Data, job_dir: str) -> list[str]:
    """Say where the folder of the job could not be written, so that its record has gaps."""
    hosts: dict[str, list[str]] = {}
    for node in summary["nodes"]:
        if node.get("unwritten"):
            hosts.setdefault(node["unwritten"], []).append(node["host"])
    folder = job_dir or "the job's folder"
    return [
        f"{host_list(found)}: {folder} could not be written ({why}); the job's record there is incomplete"
        for why, found in hosts.items()
    ]


def size_text(summary: Data) -> str:
    """Say how many ranks there are on how many nodes, without those that stand by or were replaced."""
    taking_part = [node for node in summary["nodes"] if not node.get("role")]
    return f"{counted(summary['world_size'], 'rank')} on {counted(len(taking_part), 'node')}"


def _lost(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Say what is known of a job whose end no monitor tells."""
    states = [node["state"] for node in nodes]
    if "running" in states:
        return "its processes run, but no monitor of it is known; it may have renamed its folder"
    if states and set(states) == {"unreachable"}:
        return "none of its nodes could be asked"
    return f"no node {'that could be asked ' if 'unreachable' in states else ''}knows of it any more"


def explain(
    summary: Data,
    run_dir: str,
    job_dir: str,
    tail: Sequence[str],
    notes: Sequence[str] = (),
    log: str | None = None,
    inventory: str = "",
) -> str:
    """Write what the user reads at the end.

    `job_dir` is "" where the job has no folder on its nodes (any more). `tail` are the last lines of the log that
    matters, by default that of `telling_log`; `notes` are what else is known of the run.
    """
    state, took = summary["state"], clock(summary["elapsed_s"] or 0)
    hosts = [node["host"] for node in summary["nodes"]]
    headline = {
        "succeeded": f"Job {summary['job_id']} succeeded in {took}: {size_text(summary)}.",
        "pending": f"Job {summary['job_id']} is pending: {summary.get('engine', {}).get('reason') or 'in the queue'}.",
        "running": f"Job {summary['job_id']} is running.",
        "failed": f"Job {summary['job_id']} failed after {took}.",
        "timed_out": f"Job {summary['job_id']} was ended after {took}: its time (job_timeout) was up.",
        "stopped": f"Job {summary['job_id']} was stopped after {took}.",
        "lost": f"Job {summary['job_id']} is lost: {_lost(summary['nodes'])}.",
    }[state]
    lines = [headline]
    if summary["loss_not_a_number"]:
        lines.append(f"  {not_a_number_text(summary['loss_not_a_number'])}")
    lines += [f"  {line}" for line in (meeting.texts(summary["apart"]) if summary.get("apart") else ())]
    lines += [f"  {line}" for line in cause(summary, job_dir or run_dir)]
    failed_at = (summary.get("failure") or {}).get("time") or summary["finished"]
    lines += [f"  {line}" for line in kernel_messages.texts(summary.get("kernel") or (), failed_at)]
    for named in summary.get("slow_ranks") or ():
        lines += [f"  {slow_ranks.text(named)}", *(f"    {line}" for line in slow_ranks.details(named))]
    if summary["max_restarts"]:
        lines += [f"  started again {len(summary['restarts'])} of at most {counted(summary['max_restarts'], 'time')}"]
        for restart in summary["restarts"]:
            lines.append(f"    {restart_text(restart)}")
            lines += [f"      {text}" for text in (went_on_text(restart), goodput.cost_text(restart)) if text]
        lines += [f"  {line}" for line in gave_up(summary)]
    lines += [f"  {line}" for line in _unwritten(summary, job_dir)]
    lines += [f"  {line}" for line in undelivered(summary.get("events") or ())]
    if state == "running":
        lines.append(
            "  "
            + progress_line(
                summary["ranks_running"], summary["world_size"], summary["elapsed_s"] or 0, summary["metrics"]
            )
        )
    elif summary["metrics"]:
        lines.append(f"  last progress: {metrics_text(summary['metrics'])}")
    # Of a job that was never started again it says nothing new; the page has it.
    if summary.get("goodput") and summary["restarts"]:
        lines.append(f"  {goodput.text(summary['goodput'])}")
    if summary.get("checkpoints"):
        lines += [f"  {line}" for line in checkpoints.texts(summary["checkpoints"], summary["finished"])]
    if state not in ("running", "pending"):
        lines += [f"  {line}" for line in job_traffic.lines(summary)]
    if tail:
        # A pod's log is no file.
        folder = f"{job_dir}/logs/" if job_dir else ""
        lines.append(f"  last lines of {folder}{log or telling_log(summary)} on {_where(summary)}:")
        lines += [f"    | {line}" for line in tail]
        lines += [f"  {text}" for text in [tls.meaning(tail)] if text]
    running = [node["host"] for node in summary["nodes"] if node["state"] == "running"]
    unreachable = [node for node in summary["nodes"] if node["state"] == "unreachable"]
    if state not in ("running", "pending"):
        ended = [host for host in hosts if host not in running and host not in [node["host"] for node in unreachable]]
        # Of a scheduler's nodes nobody has looked whether that is so.
        if state != "succeeded" and ended and "engine" not in summary:
            lines.append(f"  nothing of the job is left on {host_list(ended)}")
        if running:
            stop = playbook("playbooks/stop.yml", inventory, {"job_id": summary["job_id"]})
            lines.append(f"  STILL RUNNING on {host_list(running)}: {stop}")
    lines += [f"  {node['host']} could not be asked: {connection_reason(node['why'])}" for node in unreachable[:6]]
    lines += [f"  {note}" for note in notes]
    lines += [f"  logs        {run_dir}/logs", f"  summary     {run_dir}/summary.json"]
    lines.append(f"  report      {run_dir}/report.html")
    return "\n".join(lines)
