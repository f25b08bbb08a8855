# SPDX-License-Identifier: Apache-2.0
"""How a job ended, out of its summary (docs/summary.md): the text that a user reads.

States: succeeded, failed, timed_out, stopped, running (not over yet), lost (no node answered). Times are
seconds since the epoch.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..base.adhoc import playbook
from ..base.findings import connection_reason, counted, grouped, host_list
from ..base.spans import named_ranks
from ..job.file import mindspore_tls
from ..job.record.events import undelivered
from ..job.record.folder_layout import HOST, common_dir
from ..job.run.decide.remaining_nodes import world_sizes_text
from ..job.run.decide.restarts import gave_up, restart_text, went_on_text
from ..job.run.lead.succession import witness_texts
from ..job.run.logs import hang, kernel_messages
from ..job.run.logs.failure_kinds import failure_kind
from ..job.run.logs.failures import Words, exit_text, killed_by, missed, well
from ..job.run.logs.headline import advice, last_line, plain
from ..job.run.logs.progress import clock, metrics_text, not_a_number_text, progress_line
from ..job.run.measure import checkpoints, goodput, rank_connections, saving, slow_ranks
from . import job_traffic
from .log_end import MAX_ERROR, error_of_log, error_of_rank, other_rank, telling_log
from .next_step import next_step

Data = Mapping[str, Any]
TAIL_LINES = 15


def _where(summary: Data) -> str:
    """Name the host with the log of the failure: that of the rank, which mpirun may have started from another host."""
    failure: Data = summary.get("failure") or {}
    holder = _holder(summary, failure.get("rank"))
    # A process without ranks, such as MindSpore's scheduler, names the rank of another process.
    ranks = failure.get("ranks")
    elsewhere = not ranks or len(ranks) > max(len(node["ranks"]) for node in summary["nodes"])
    return str(holder if holder and elsewhere else failure.get("host") or summary["nodes"][0]["host"])


def _holder(summary: Data, rank: int | None) -> str:
    return next((str(node["host"]) for node in summary["nodes"] if rank in node["ranks"]), "")


def _killed(summary: Data, failure: Data, host: str) -> list[str]:
    """Say whether the OOM killer ended it; the sender of SIGKILL is unknown."""
    advice = "more memory, fewer processes on the node, or smaller batches"
    count = kernel_messages.counted_text(failure, host)
    if killed_by(failure) != signal.SIGKILL:
        return [f"{count}: {advice}"] if count and failure["oom_kills"] else []
    killed = "SIGKILL" if failure.get("signal") else f"exit code {failure['exit_code']} is SIGKILL, which"
    ended = kernel_messages.ended_process(summary.get("kernel") or (), host, summary.get("job_id", ""))
    if ended:
        return [f"{ended}: {advice}"]
    if failure.get("result") == "oom-kill":
        return [f"the kernel's OOM killer ended it: {advice}"]
    if count and failure["oom_kills"]:
        return [f"{count}: {advice}"]
    if count:
        return [f"{killed} comes from outside: a person or a program sent it, as {count}"]
    in_kubernetes = (summary.get("engine") or {}).get("kind") == "kubernetes"
    command = f"kubectl describe pod {host}" if in_kubernetes else f"journalctl -k on {host}"
    outside = f"the kernel's OOM killer, for want of memory ({command} tells)"
    return [f"{killed} comes from outside: mostly {outside}, else a person"]


class _Failed(NamedTuple):
    """A failed job: its summary and failure, the host of the failure with its ranks, and the error in the log."""

    summary: Data
    failure: Data
    host: str
    on_node: str
    error: str = ""
    tail: Sequence[str] = ()


def cause(summary: Data, job_dir: str, tail: Sequence[str] = (), log: str | None = None) -> list[str]:
    """Say in a line or two why a job ended as it did; nothing where it succeeded or the reason is not known.

    `tail` is the end of `log`, by default the one of `telling_log`.
    """
    failure: Data = summary.get("failure") or {}
    kind = str(failure.get("kind"))
    if kind not in _CAUSES and not failure_kind(failure).causes:
        return []
    host = failure.get("host", "")
    hosts = failure.get("hosts") or [host]
    ranks = [rank for node in summary["nodes"] if node["host"] in hosts for rank in node["ranks"]]
    on_node = named_ranks(ranks) if ranks else "its ranks"
    if kind not in _CAUSES:
        return _worded(summary, {"host": "", **failure}, on_node, job_dir)
    other, error = other_rank(summary, log), error_of_rank(summary, tail, log)
    if other is None:
        # A launcher without a rank to blame.
        error = error or ("" if failure.get("rank") is not None or failure.get("reason") else error_of_log(tail))
    job = _Failed(summary, failure, host, on_node, error, tail if other is None else ())
    lines = _CAUSES[kind](job)
    if other is not None or (kind == "hung" and error_of_log(tail, True)):
        error, rank = error_of_log(tail), failure.get("rank") if other is None else other
        lines.append(f"the log of rank {rank} on {_holder(summary, rank) or host} tells: {error}")
    known = advice(error) if error else ""
    return [*lines, known] if known else lines


def _exit(job: _Failed) -> list[str]:
    failure, host, rank = job.failure, job.host, job.failure.get("rank")
    alone = failure["process"] == "agent" and rank is None
    name = f"{job.summary['launcher']}'s agent" if alone else failure["process"]
    if rank is not None:
        name, host = f"rank {rank}", _where(job.summary)
    reason = [failure["reason"]] if failure.get("reason") else []
    if well(failure):
        return [f"{name} on {host} ended first, with exit code 0, while others still ran", *reason]
    if missed(failure):
        return [f"{name} on {host} failed first: {failure['reason']}"]
    first = f"{name}{f' of {job.on_node}' if alone else ''} on {host} failed first: {exit_text(failure)}"
    if alone and failure.get("signal"):
        first = f"{name} on {host} was {exit_text(failure)}, and {job.on_node} ended with it"
    if failure.get("result") == "oom-kill":
        first += " (oom-kill)"
    if job.error:
        first += f", {job.error}"
    elif not reason and not killed_by(failure):
        last = last_line(line.text for line in plain(job.tail))
        first += f"; its log ends with: {last[:MAX_ERROR]}" if last else ""
    return [first, *reason, *_killed(job.summary, failure, host)]


def _worded(summary: Data, failure: Data, on_node: str, job_dir: str) -> list[str]:
    """Return the lines of a failure's kind."""
    roles = [node.get("role") or "" for node in summary["nodes"]]
    spares_used = any(role.endswith("took its place") for role in roles) and "spare" not in roles
    names = ("they_are", "monitors_end", "they_run", "machines")
    more = ("they are", "their monitors end", "they run", "nodes")
    silent = more if failure.get("hosts") else ("it is", "its own monitor ends", "it runs", "node")
    words = Words(
        failure,
        on_node=on_node,
        node_dir=job_dir.replace(HOST, failure["host"]),
        waited=f" within {failure['after_s']} s (job_rejoin_timeout)" if failure.get("after_s") else "",
        no_spare="no spare was left for it: raise job_spares where more nodes may be lost at a time" * spares_used,
        engine=(summary.get("engine") or {}).get("kind", ""),
        where=f"{failure['host']}: " if failure["host"] else "",
        **dict(zip(names, silent)),
    )
    return [line for line in (cause.format_map(words) for cause in failure_kind(failure).causes.split("\n")) if line]


# Failures whose text depends on more than fields.
_CAUSES: Mapping[str, Callable[[_Failed], list[str]]] = {
    "exit": _exit,
    **dict.fromkeys(("hung", "timed_out"), lambda job: hang.cause(job.failure)),
}


def _lost_logs(summary: Data) -> list[str]:
    """Say which logs shrank, or were removed or replaced, while their ranks ran."""
    return [f"{node['host']}: {node['lost_logs']}" for node in summary["nodes"] if node.get("lost_logs")]


def _unwritten(summary: Data, job_dir: str) -> list[str]:
    """Say where the folder of the job could not be written, so that its record has gaps."""
    hosts = grouped((node["unwritten"], node["host"]) for node in summary["nodes"] if node.get("unwritten"))
    folder = common_dir(job_dir) if job_dir else "the job's folder"
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
    if "unreachable" in states:
        return "no node that could be asked tells whether it still runs"
    return "no node knows of it any more"


_HEADLINES = {
    "succeeded": "succeeded in {took}: {size}.",
    "pending": "is pending: {why}.",
    "running": "is running.",
    "failed": "failed after {took}.",
    "timed_out": "was ended after {took}: its time (job_timeout) was up.",
    "stopped": "was stopped after {took}.",
    "lost": "is lost: {lost}.",
}


@dataclass(frozen=True)
class Story:
    """How a job ended, in parts: `tail` are the last lines of the file `log` of `host`, which `hint` explains.

    `left` is what still runs or gave no answer, `notes` are further lines about the run, `outputs` those about the
    files that were brought home.
    """

    headline: str
    happened: Sequence[str]
    progress: Sequence[str]
    tail: Sequence[str] = ()
    log: str = ""
    host: str = ""
    hint: str = ""
    left: Sequence[str] = ()
    notes: Sequence[str] = ()
    outputs: Sequence[str] = ()
    # What comes first, and the command (next_step.py).
    next_step: Sequence[str] = ("", "")


def tell(
    summary: Data,
    run_dir: str,
    job_dir: str,
    tail: Sequence[str],
    notes: Sequence[str] = (),
    log: str | None = None,
    inventory: str = "",
    launch: Data | None = None,
) -> Story:
    """Return how a job ended.

    `job_dir` is "" where the job has no folder on its nodes. `tail` are the last lines of `log`, by default the one of
    `telling_log`. With `launch`, that of plan.json, the story has the next step.
    """
    headline = _HEADLINES[summary["state"]].format(
        took=clock(summary["elapsed_s"] or 0),
        size=size_text(summary),
        why=summary.get("engine", {}).get("reason") or "in the queue",
        lost=_lost(summary["nodes"]),
    )
    return Story(
        headline,
        _what_happened(summary, run_dir, job_dir, tail, log),
        _how_far(summary),
        tail,
        (log or telling_log(summary) or "") if tail else "",
        (_holder(summary, other_rank(summary, log)) or _where(summary)) if tail else "",
        mindspore_tls.meaning(tail) if tail else "",
        _left_over(summary, inventory),
        notes,
        next_step=("", "") if launch is None else next_step(summary, launch, tail),
    )


def explain(summary: Data, run_dir: str, job_dir: str, tail: Sequence[str], **more: Any) -> str:
    """Write the text that the user reads at the end; the parameters are those of `tell`."""
    return text_of(summary, tell(summary, run_dir, job_dir, tail, **more), run_dir, job_dir)


def text_of(summary: Data, story: Story, run_dir: str, job_dir: str) -> str:
    """Write how a job ended as the text that a user reads in a terminal."""
    about = [*story.happened, *story.progress]
    if story.tail:
        # A pod's log is no file.
        folder = f"{job_dir.replace(HOST, story.host)}/logs/" if job_dir else ""
        about.append(f"last lines of {folder}{story.log} on {story.host}:")
        about += [f"  | {line}" for line in story.tail]
        about += [story.hint] if story.hint else []
    about += [*story.left, *story.notes, *story.outputs]
    if job_dir and "engine" not in summary:
        hosts = [node["host"] for node in summary["nodes"] if not node.get("role")]
        about.append(f"folder      {common_dir(job_dir)} on {host_list(hosts)}; files of the script are in its source/")
    about += [f"logs        {run_dir}/logs", f"summary     {run_dir}/summary.json"]
    about.append(f"report      {run_dir}/report.html")
    words, command = story.next_step
    about += [f"next        {words or command}"] if command else []
    about += [f"            {command}"] if words and command else []
    return "\n".join([f"Job {summary['job_id']} {story.headline}", *(f"  {line}" for line in about)])


def _what_happened(summary: Data, run_dir: str, job_dir: str, tail: Sequence[str], log: str | None) -> list[str]:
    """Say why the job ended, which ranks were slow, and how often it was started again."""
    lost = summary["loss_not_a_number"]
    lines = [not_a_number_text(lost)] if lost else []
    lines += rank_connections.texts(summary["apart"]) if summary.get("apart") else []
    lines += cause(summary, job_dir or run_dir, tail, log) + _takeover(summary)
    lines += witness_texts(summary.get("witness_lost"))
    failed_at = (summary.get("failure") or {}).get("time") or summary["finished"]
    lines += kernel_messages.texts(summary.get("kernel") or (), failed_at)
    lines += saving.lines(summary.get("saving"), bool(summary.get("checkpoints")))
    for named in summary.get("slow_ranks") or ():
        lines += [slow_ranks.slow_rank_text(named), *(f"  {line}" for line in slow_ranks.details(named))]
    if summary["max_restarts"]:
        lines.append(f"started again {len(summary['restarts'])} of at most {counted(summary['max_restarts'], 'time')}")
        for restart in summary["restarts"]:
            lines.append(f"  {restart_text(restart)}")
            told = saving.lines(restart.get("saving"), bool(summary.get("checkpoints")))
            lines += [f"    {text}" for text in (*told, went_on_text(restart), goodput.cost_text(restart)) if text]
        sizes = world_sizes_text(summary.get("world_sizes") or ())
        lines += [f"world size: {sizes}"] if sizes else []
        lines += _moved_rendezvous(summary)
        lines += gave_up(summary)
    return [*lines, *_lost_logs(summary), *_unwritten(summary, job_dir), *undelivered(summary.get("events") or ())]


def _takeover(summary: Data) -> list[str]:
    """Say which host leads or led the job in the place of the planned head."""
    takeover = summary.get("takeover")
    if not takeover:
        return []
    led = "leads the job" if summary["state"] == "running" else "led the job at its end"
    often = f", the last of {takeover['count']} takeovers" if takeover["count"] > 1 else ""
    return [f"{takeover['head']} {led}: it took over from {takeover['planned']}{often}"]


def _moved_rendezvous(summary: Data) -> list[str]:
    """Say which host has or had the rendezvous in the place of the first node."""
    moved = summary.get("moved_rendezvous")
    if not moved:
        return []
    has, goes_on = ("has", "goes") if summary["state"] == "running" else ("had", "went")
    return [f"{moved['host']} {has} the rendezvous: the job {goes_on} on without {moved['without']}, its first node"]


def _how_far(summary: Data) -> list[str]:
    """Report progress, goodput, checkpoints and traffic."""
    lines = []
    if summary["state"] == "running":
        running, ranks, left_s = summary["ranks_running"], summary["world_size"], summary.get("left_s")
        lines.append(progress_line(running, ranks, summary["elapsed_s"] or 0, summary["metrics"], left_s=left_s))
    elif summary["metrics"]:
        lines.append(f"last progress: {metrics_text(summary['metrics'])}")
    # Without a restart, goodput says nothing new; the page has it.
    if summary.get("goodput") and summary["restarts"]:
        lines.append(goodput.text(summary["goodput"]))
    if summary.get("checkpoints"):
        lines += checkpoints.texts(summary["checkpoints"], summary["finished"])
    return lines if summary["state"] in ("running", "pending") else [*lines, *job_traffic.lines(summary)]


def _left_over(summary: Data, inventory: str) -> list[str]:
    """Say on which nodes something of the job still runs, on which nothing does, and which gave no answer."""
    nodes, lines = summary["nodes"], []
    running = [node["host"] for node in nodes if node["state"] == "running"]
    unreachable = [node for node in nodes if node["state"] == "unreachable"]
    if summary["state"] not in ("running", "pending"):
        ended = [node["host"] for node in nodes if node["state"] not in ("running", "unreachable")]
        # A scheduler's nodes were not asked.
        if summary["state"] != "succeeded" and ended and "engine" not in summary:
            lines.append(f"no process of the job is left on {host_list(ended)}")
        if running:
            stop = playbook("playbooks/stop.yml", inventory, {"job_id": summary["job_id"]})
            lines.append(f"STILL RUNNING on {host_list(running)}: {stop}")
    return lines + [f"{node['host']} could not be asked: {connection_reason(node['why'])}" for node in unreachable[:6]]
