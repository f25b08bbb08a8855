#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Write the summary of a run; runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_report
short_description: Write the summary, the loss curve and the page of a run
description:
  - Reads the plan and the collected logs of a run's folder and what the nodes said, and writes C(summary.json),
    C(report.html) and, when there are metrics, C(loss.png) there.
  - A record of how the job ended is written once. Whatever the nodes say later, it stays; then only the text tells
    how they are now, and what clean.yml has removed there.
  - The page is one file that needs no network. It holds plotly.js where there are metrics to draw.
  - Runs once, on the controller, whose Python has matplotlib and plotly.
version_added: "0.1.0"
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  results:
    description: What M(job_process) or M(job_process_info) returned, by host, for the hosts that answered.
    type: dict
    required: true
  unreachable:
    description: What came back from the others, by host, as Ansible registers it.
    type: dict
    default: {}
  not_started:
    description: The same of hosts that could not start their part of the job.
    type: dict
    default: {}
  by_stop:
    description: Whether stop.yml asks, which has seen to it that nothing runs where a node knows of the job.
    type: bool
    default: false
  engine_state:
    description:
      - How the job is by its scheduler (C(JobState) of module_utils/trainyard/schedulers), instead of O(results).
      - Without C(state) the scheduler did not answer, and C(msg) says why. There has to be a record then.
    type: dict
attributes:
  check_mode:
    description: Can run in check mode; it writes no file then.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Write the summary of a run
  job_report:
    run_dir: runs/digits-20261120-101500
    results:
      n1: "{{ hostvars.n1.collected }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
state:
  description: How the job is, V(succeeded), V(failed), V(timed_out), V(stopped), V(running) or V(lost).
  returned: always
  type: str
left:
  description: Hosts that did not answer or where processes of the job still run.
  returned: always
  type: list
  elements: str
summary:
  description: What stands in C(summary.json).
  returned: always
  type: dict
text:
  description: The summary for reading; for a failed job with the rank, the host and the last lines of its log.
  returned: always
  type: str
"""

import contextlib
import fcntl
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import progress, record, schedulers
from ansible.module_utils.trainyard.job_page import MOST_STRETCHES, job_page
from ansible.module_utils.trainyard.no_answer import reason
from ansible.module_utils.trainyard.progress import not_a_number_text, not_numbers, strict
from ansible.module_utils.trainyard.report import TAIL_LINES, explain, summarize, telling_log
from ansible.module_utils.trainyard_node.exits import read_json
from ansible.module_utils.trainyard_node.plotly_js import MISSING, plotly_js
from ansible.module_utils.trainyard_node.run_folder import read_removed, write_whole


def read_series(path: Path) -> list[dict[str, float]]:
    """Read metrics.jsonl; a last line that is cut off is left out."""
    series = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            point = json.loads(line)
        except ValueError:
            continue
        # JSON has null for what is not a number.
        series.append({name: math.nan if value is None else value for name, value in point.items()})
    return series


def draw_loss(series: list[dict[str, float]], title: str, path: Path, lost: str = "") -> bool:
    """Draw loss over steps, or over time where steps start again each epoch. Returns whether there was anything.

    `lost` says where the loss was not a number; there the line is broken, and the ground is red.
    """
    points = [point for point in series if "loss" in point]
    if len(points) < 2:
        return False
    # Late: half a second that a run without metrics need not wait for.
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    steps = [point.get("step", math.nan) for point in points]
    rising = all(later > earlier for earlier, later in zip(steps, steps[1:]))
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    places = steps if rising else [point["elapsed_s"] for point in points]
    losses = [point["loss"] if math.isfinite(point["loss"]) else math.nan for point in points]
    axes.plot(places, losses, linewidth=1.4, marker="." if len(points) < 60 else None)
    for first, last in not_numbers(losses)[:MOST_STRETCHES]:
        axes.axvspan(places[first], places[last], color="tab:red", alpha=0.15, linewidth=1)
    if lost:
        axes.text(0.99, 0.97, lost, color="tab:red", ha="right", va="top", transform=axes.transAxes)
    axes.set_xlabel("step" if rising else "seconds since the start")
    axes.set_ylabel("loss")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def last_lines(path: Path) -> list[str]:
    """Return the last lines of a log."""
    return path.read_text(errors="replace").splitlines()[-TAIL_LINES:] if path.exists() else []


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Wait for others that report on this run: one that asked before the end must not write after it."""
    with (run_dir / "plan.json").open() as plan:
        fcntl.flock(plan, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "run_dir": {"type": "path", "required": True},
            "results": {"type": "dict", "required": True},
            "unreachable": {"type": "dict", "default": {}},
            "not_started": {"type": "dict", "default": {}},
            "by_stop": {"type": "bool", "default": False},
            "engine_state": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    with alone(Path(module.params["run_dir"])):
        report(module)


def report(module: AnsibleModule) -> None:
    """Write what is new, and tell."""
    params = module.params
    run_dir = Path(params["run_dir"])
    plan: dict[str, Any] = json.loads((run_dir / "plan.json").read_text())
    series = read_series(run_dir / "metrics.jsonl")
    known = record.read(read_json(run_dir / "summary.json"))
    removed = read_removed(run_dir)
    notes = record.removed_text(removed, [node["host"] for node in plan["nodes"]])
    if params["engine_state"] is None:
        silent, not_started = (
            {host: reason(answer) for host, answer in params[name].items()} for name in ("unreachable", "not_started")
        )
        answer = summarize(plan, params["results"], silent, not_started, params["by_stop"])
    else:
        state = params["engine_state"]
        if "state" not in state:
            notes.append(f"{plan['engine']['kind']} could not be asked: {reason(state) or 'no answer'}")
            state = {"state": "lost"}
        answer = schedulers.summarize(plan, state)
        # The scheduler's nodes have no monitor that notes progress: it is read from what was brought.
        found = series
        log_of_rank_0 = run_dir / "logs" / str(plan["rank_log"]).replace("{rank}", "0")
        if log_of_rank_0.exists():
            found = progress.read_lines(log_of_rank_0.read_text(errors="replace"), plan["progress_pattern"])
            series = list(progress.rising(found))
        answer["loss_not_a_number"] = progress.followed(found)
        answer["metrics"] = answer["metrics"] or strict(found[-1] if found else {})
    summary = record.settle(known, answer)
    written = record.is_final(known)
    told = record.with_nodes(summary, answer) if known and known["state"] in record.FINAL else summary
    log = telling_log(told)
    tail = last_lines(run_dir / "logs" / log) if log else []
    if told["state"] in ("succeeded", "running"):
        tail = tail[-3:]
    # What was removed is no longer where it was.
    job_dir = "" if removed else plan["job_dir"]
    page, picture = run_dir / "report.html", run_dir / "loss.png"
    new = not module.check_mode and not (written and page.exists())
    lost = summary["loss_not_a_number"]
    nan = not_a_number_text(lost) if lost else ""
    drawn = draw_loss(series, summary["job_id"], picture, nan) if new else picture.exists()
    text = explain(told, str(run_dir), job_dir, tail, drawn, notes)
    if new:
        library = plotly_js()
        if not library:
            module.warn(MISSING)
        write_whole(page, job_page(summary, series, text, library))
        # The record comes last: who finds it finds the rest.
        if not written:
            write_whole(run_dir / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    left = [node["host"] for node in told["nodes"] if node["state"] != "ended"]
    module.exit_json(
        changed=new,
        state=told["state"],
        left=left,
        summary=told,
        text=text,
    )


if __name__ == "__main__":
    main()
