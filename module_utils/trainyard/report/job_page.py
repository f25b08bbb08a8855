# SPDX-License-Identifier: Apache-2.0
"""The content of report.html of a job (templates/report/job.html.j2), from plan.json, summary.json and metrics.jsonl.

In the order of the page: how it ended and why, the next command, the end of the log that explains it, tiles, a
timeline, nodes, curves, ranks, and how the job was run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from ..base.findings import counted, grouped, host_list, some_of
from ..base.redaction import safe, safe_text
from ..job.run.decide.remaining_nodes import history_text, world_sizes_text
from ..job.run.logs.progress import clock, not_a_number_text
from ..job.run.measure import checkpoints, goodput
from ..job.run.measure.checkpoints import file_size
from . import job_processes, job_stacks, job_traffic
from .curves import curves
from .job_text import Story, size_text
from .log_end import error_of_rank
from .text import shown, utc

Data = Mapping[str, Any]
Series = Sequence[Mapping[str, float]]

# Steps behind which the time of the rest is estimated, and the rate is smoothed.
RECENT = 20
# Groups of nodes that are named below the cells.
MAX_NAMED = 6
# Rows of ranks that need attention; the others are folded.
MAX_ROWS = 100
# Outputs that are links, and those of them that are not folded.
MAX_OUTPUTS, MAX_SEEN = 500, 20
_WORDS = {"failed": "Failed", "timed_out": "Timed out", "lost": "Lost"}
_EXPECTED = frozenset({"succeeded", "stopped"})


@dataclass(frozen=True)
class OutputFile:
    """A file of a job in outputs/ of its run: the host that sent it, its name below the host's folder, its bytes."""

    host: str
    name: str
    size: int


def job_content(
    summary: Data, series: Series, story: Story, launch: Data, reload_s: float = 0.0, files: Sequence[OutputFile] = ()
) -> dict[str, Any]:
    """Return what stands in templates/report/job.html.j2. `launch` is that of plan.json, `files` are the outputs.

    The page of a running job reloads itself every `reload_s`, unless that is 0, as it is written again and again.
    """
    summary, launch, story = safe(summary), safe(launch), Story(**safe(asdict(story)))
    lost = summary["loss_not_a_number"]
    running = summary["state"] in ("running", "pending")
    rows = job_processes.rows(summary)
    stacks = job_stacks.content(summary)
    nodes = _nodes(summary)
    expected = _EXPECTED | ({"running"} if running else set())
    shown_rows = [row for row in rows if row["first"] or row["filtered"] not in expected][:MAX_ROWS]
    folded = [row for row in rows if row not in shown_rows and row["filtered"] is not None]
    return {
        "title": f"{summary['state']}: job {summary['job_id']}",
        "state": shown("unknown" if lost and lost["since"] and summary["state"] == "succeeded" else summary["state"]),
        "state_of_job": shown(summary["state"]),
        "job_id": summary["job_id"],
        "rank_log": summary["rank_log"],
        "headline": headline(summary, story),
        "about": _size_and_start(summary),
        "next": story.next_step,
        "happened": _joined(job_stacks.others(story.happened, stacks)),
        "stacks": stacks,
        "left": [*story.left, *(line.strip() for line in story.notes)],
        "tail": {"lines": story.tail, "log": f"logs/{story.log}", "host": story.host, "hint": story.hint},
        "outputs": outputs(files, story.outputs),
        "tiles": tiles(summary, series),
        "lost": not_a_number_text(lost) if lost else "",
        "timeline": timeline(summary, series),
        "nodes": nodes,
        "nodes_about": _about(nodes),
        "curves": curves(series, lost, [each["elapsed_s"] for each in summary["restarts"] if each["elapsed_s"]]),
        "rows": shown_rows,
        "folded": {"text": _folded_text(folded), "rows": job_processes.folded(folded, summary["rank_log"])},
        "traffic": [text for text in (job_traffic.nccl_text(summary), job_traffic.ports_text(summary)) if text],
        "launch": _launch(launch),
        "reload_s": round(reload_s) if running else 0,
        "since": "" if summary["elapsed_s"] is None else clock(summary["elapsed_s"]),
    }


def headline(summary: Data, story: Story) -> str:
    """Return how the job ended in one line: `Failed: rank 1 on n2, ValueError: learning rate must be positive`."""
    if summary["state"] == "running" and story.progress:
        return f"Running: {' '.join(story.progress[0].split())}"
    text = story.headline.removeprefix("is ").removeprefix("was ").rstrip(".:")
    word, error = _WORDS.get(summary["state"]), error_of_rank(summary, story.tail, story.log)
    if word and error:
        return f"{word}: rank {summary['failure']['rank']} on {story.host}, {error}"
    cause = next((line for line in story.happened if not line.startswith(" ")), "") if word else ""
    return f"{word}: {cause}" if cause else text[:1].upper() + text[1:]


def tiles(summary: Data, series: Series) -> list[tuple[str, str, str]]:
    """Return the figures on top of the page: name, value, remark."""
    metrics, found = summary["metrics"] or {}, []
    step, steps = metrics.get("step"), metrics.get("steps")
    if step is not None and steps:
        # Many programs do not print their last step.
        share = 1.0 if summary["state"] == "succeeded" else min(step / steps, 1)
        found.append(("progress", f"{share:.0%}", f"step {step:g} of {steps:g}"))
    elif step is not None or metrics.get("epoch") is not None:
        name = "step" if step is not None else "epoch"
        found.append(("progress", f"{name} {metrics[name]:g}", ""))
    if summary.get("left_s") is not None and summary["state"] == "running":
        found.append(("time left", clock(summary["left_s"]), "at the pace of the steps so far"))
    if metrics.get("loss") is not None:
        found.append(("loss", f"{metrics['loss']:.4g}", "the last one"))
    rates = [point["rate"] for point in series[-RECENT:] if isinstance(point.get("rate"), (int, float))]
    if rates:
        found.append(("rate", f"{statistics.median(rates):.4g}", "median of the last lines"))
    if summary["elapsed_s"] is not None:
        found.append(("time", clock(summary["elapsed_s"]), utc(summary["finished"]) or "so far"))
    if summary.get("goodput"):
        found.append(("goodput", f"{summary['goodput']['share']:.0%}", goodput.text(summary["goodput"])))
    if summary["max_restarts"]:
        sizes = world_sizes_text(summary.get("world_sizes") or ())
        found += [("ranks", str(summary["world_size"]), sizes)] if sizes else []
        found.append(("restarts", str(len(summary["restarts"])), f"of at most {summary['max_restarts']}"))
    saved = (summary.get("checkpoints") or {}).get("newest")
    if saved:
        texts = checkpoints.texts(summary["checkpoints"], summary["finished"])
        found.append(("checkpoint", str(saved["name"]), "; ".join(texts)))
    return [(name, safe_text(value), safe_text(remark)) for name, value, remark in found]


def outputs(files: Sequence[OutputFile], about: Sequence[str]) -> dict[str, Any] | None:
    """Return the files that were brought home as links from the page, and lines `about` others; None without any.

    Nodes chose the names: one that cannot be shown as it is has no link of its own.
    """
    if not files and not about:
        return None
    rows = []
    for file in files[:MAX_OUTPUTS]:
        path = f"{file.host}/{file.name}".lstrip("/")
        href = f"outputs/{quote(path)}" if safe_text(path) == path else ""
        rows.append(
            {"name": safe_text(file.name), "href": href, "host": safe_text(file.host), "size": file_size(file.size)}
        )
    total = f"{counted(len(files), 'file')}, {file_size(sum(file.size for file in files))}"
    return {
        "about": [line for line in about if not line.startswith("outputs ")],
        "total": total if files else "",
        "hosts": len({file.host for file in files}) > 1,
        "rows": rows[:MAX_SEEN],
        "folded": rows[MAX_SEEN:],
        "more": len(files) - len(rows),
    }


def timeline(summary: Data, series: Series) -> dict[str, Any] | None:
    """Return what happened when, as marks on a line: percentages of the run, texts, and attempts as stretches."""
    total = summary["elapsed_s"] or 0.0
    if total <= 0:
        return None
    marks: list[tuple[float, str, str]] = [(0.0, "start", "start")]
    first = next((point.get("elapsed_s") for point in series if point.get("step") is not None), None)
    if first is not None:
        marks.append((first, "step", "first step"))
    saved = (summary.get("checkpoints") or {}).get("newest") or {}
    if saved.get("time") and summary["started"]:
        marks.append((saved["time"] - summary["started"], "checkpoint", f"checkpoint {saved['name']}"))
    begins = [0.0]
    for restart in summary["restarts"]:
        if restart["elapsed_s"] is None:
            continue
        spare = f"; {restart['spare']} takes the place of {restart['replaced']}" if restart.get("spare") else ""
        marks.append((restart["elapsed_s"], "restart", f"restart: {restart['reason']}{spare}{history_text(restart)}"))
        begins.append(restart["elapsed_s"] + (restart.get("restart_s") or 0.0))
    marks.append((total, "end", "now" if summary["state"] == "running" else summary["state"].replace("_", " ")))
    ends = [*(mark[0] for mark in marks if mark[1] == "restart"), total]

    def part(at: float) -> float:
        return round(100 * min(max(at, 0.0), total) / total, 2)

    return {
        "attempts": [(part(begin), max(0.3, part(end) - part(begin))) for begin, end in zip(begins, ends)],
        "marks": [
            {"at": part(at), "kind": kind, "clock": clock(max(at, 0.0)), "text": safe_text(text)}
            for at, kind, text in sorted(marks, key=lambda mark: mark[0])
        ],
    }


def _size_and_start(summary: Data) -> str:
    """Return the size of a job and its start; without nodes, as a scheduler has not placed it, only its ranks."""
    size = size_text(summary) if summary["nodes"] else counted(summary["world_size"], "rank")
    return ", ".join(filter(None, (f"{size} ({summary['launcher']})", utc(summary["started"]))))


def _nodes(summary: Data) -> list[dict[str, Any]]:
    """Return a cell for each node, what failed first, then what gave no answer."""
    failed = (summary.get("failure") or {}).get("host")
    hosts = set((summary.get("failure") or {}).get("hosts") or ())
    order = {"fail": 0, "unknown": 1}

    def cell(node: Data) -> dict[str, Any]:
        state = "failed" if node["host"] == failed or node["host"] in hosts else node["state"]
        if state == "ended" and summary["state"] == "succeeded":
            state = "succeeded"
        about = ", ".join(filter(None, (node.get("role"), node["why"])))
        return {"host": node["host"], "state": shown(state), "about": about}

    cells = [cell(node) for node in summary["nodes"]]
    return sorted(cells, key=lambda each: order.get(each["state"]["like"], 2))


def _about(cells: Sequence[Data]) -> list[tuple[Data, str]]:
    """Return the states of nodes with the names of those that need attention, and the number of the others."""
    by_state = grouped((cell["state"]["state"], cell) for cell in cells)
    found = []
    for group in by_state.values():
        hosts = grouped((cell["about"], cell["host"]) for cell in group)
        names = [f"{host_list(of)} ({about})" if about else host_list(of) for about, of in hosts.items()]
        attention = group[0]["state"]["like"] in ("fail", "unknown")
        found.append((group[0]["state"], ", ".join(some_of(names, MAX_NAMED)) if attention else str(len(group))))
    return found


def _folded_text(rows: Sequence[Data]) -> str:
    """Count the ranks that need no attention, by their state."""
    states: dict[str, int] = {}
    for row in rows:
        states[row["filtered"]] = states.get(row["filtered"], 0) + 1
    words = {"stopped": "stopped by the job", "running": "run"}
    return ", ".join(
        f"{counted(number, 'process', 'processes')} {words.get(state, state)}" for state, number in states.items()
    )


def _joined(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return lines with those that are indented below them."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and found:
            found[-1][1].append(line.strip())
        else:
            found.append((line.strip(), []))
    return found


def _launch(launch: Data) -> list[tuple[str, str, bool]]:
    """Return how the job was run: name, text, and whether that may have several lines."""
    names = {
        "command": "command",
        "folder": "in",
        "by": "by",
        "inventory": "inventory",
        "revision": "revision of job_source",
        "source_sha256": "sha256 of what was sent",
        "ansible": "ansible-core",
        "python": "Python of the controller",
        "folders": "folders on the nodes",
        "variables": "variables of the job",
    }
    blocks = ("folders", "variables")
    return [(title, str(launch[name]), name in blocks) for name, title in names.items() if launch.get(name)]
