"""The page of a job: how it ended, curves, the state of each process."""

import json
import math
import re
import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest
from ansible.module_utils.trainyard.report.job_page import thinned
from ansible.module_utils.trainyard_controller.pages import job_page, plotly_js
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "fixtures" / "reports"))
from composed_job import STARTED, series, summary

TOLD = "Job digits-1 failed.\n  rank 1 on n1 failed first\n    | token=hunter2 <img src=x onerror=alert(1)>"
LOST = {"exit_code": None, "signal": None, "result": "lost"}
FAILED = {"exit_code": 3, "signal": None, "result": "exit-code"}


def processes(content):
    """Process, state and how it ended, of each row of the table."""
    table = content[content.index('<table id="filtered"') :]
    rows = re.findall(r"<tr data-state.*?</tr>", table[: table.index("</table>")])
    plain = [re.sub(r"<span aria-hidden.*?</span>", "", row) for row in rows]
    cells = [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in plain]
    return [(each[0], each[3], each[4]) for each in cells]


def figures(content):
    held = re.search(r'<script type="application/json" id="figures">(.*?)</script>', content)
    return json.loads(held[1]) if held else []


def test_the_rank_that_failed_first_is_on_top():
    first, *others = processes(job_page(summary(2), [], TOLD, b""))
    assert first == ("rank1", "failed", "first: killed by SIGKILL (oom-kill)")
    assert others == [(f"rank{rank}", "stopped", "killed by SIGTERM after rank 1 failed") for rank in (0, 2, 3)]


def of_torchrun(ends, *, failure, exit):
    """A job of two agents with two ranks each; `ends` by rank, `exit` of each agent."""
    job = summary(2)
    logs = enumerate(job["nodes"])
    agents = [{"name": "agent", "ranks": node["ranks"], "log": f"agent_{at}.log"} for at, node in logs]
    for node, agent in zip(job["nodes"], agents):
        known = [{"rank": rank, **ends[rank]} for rank in node["ranks"] if rank in ends]
        node["processes"] = [{**agent, **exit.get(node["host"], {}), **({"ends": known} if known else {})}]
    failed = {"kind": "exit", "process": "agent", "exit_code": None, "signal": None, "result": "exit-code", **failure}
    return {**job, "launcher": "torchrun", "failure": {**failed, "ranks": [2, 3], "time": STARTED + 100}}


def end(at, exit_code=None, by_signal=None, **more):
    return {"exit_code": exit_code, "signal": by_signal, "result": "exit-code", "time": STARTED + at, **more}


def test_under_torchrun_ranks_are_named_and_the_first_is_on_top():
    ended = {0: end(100.5, 1), 3: end(100, 7)}
    ended.update({1: end(100.6, by_signal=15, by_agent=True), 2: end(100.1, by_signal=9, by_agent=True)})
    agents = {"n1": end(101, 1), "n2": end(101, 1)}
    job = of_torchrun(ended, failure={"host": "n2", "rank": 3, "exit_code": 7}, exit=agents)
    content = job_page(job, [], TOLD, b"")
    assert processes(content) == [
        ("rank3", "failed", "first: exit code 7"),
        ("rank0", "failed", "exit code 1 after rank 3 failed"),
        ("rank1", "stopped", "ended by torchrun after rank 3 failed"),
        ("rank2", "stopped", "ended by torchrun after rank 3 failed: killed by SIGKILL"),
    ]
    assert "logs/rank_3.log" in content and "agent_1.log" not in content


def test_an_agent_of_torchrun_that_was_killed_is_named_and_its_ranks_with_it():
    agents = {"n1": end(101, 1), "n2": end(100, by_signal=9)}
    ended = {0: end(100.5, 1), 1: end(100.6, 0, by_agent=True)}
    job = of_torchrun(ended, failure={"host": "n2", "rank": None}, exit=agents)
    assert processes(job_page(job, [], TOLD, b"")) == [
        ("agent", "failed", "first: killed by SIGKILL"),
        ("rank0", "failed", "exit code 1 after the agent on n2 failed"),
        ("rank1", "stopped", "ended by torchrun after the agent on n2 failed: exit code 0"),
        ("rank2", "stopped", "ended with its agent"),
        ("rank3", "stopped", "ended with its agent"),
    ]


@pytest.mark.parametrize(
    ("node", "exit", "state"),
    [
        ({"state": "unreachable", "why": "no route to host"}, {}, ("unreachable", "no route to host")),
        ({"state": "running", "why": ""}, {}, ("running", "")),
        # A node that knows nothing of its process.
        ({"state": "ended", "why": ""}, {}, ("unknown", "")),
        ({"state": "ended", "why": ""}, LOST, ("failed", "no exit code, systemd says lost")),
        ({"state": "ended", "why": ""}, FAILED, ("failed", "exit code 3")),
    ],
)
def test_processes_without_an_end(node, exit, state):
    one = summary(1, 1)
    one["failure"] = None
    process = {"name": "rank0", "ranks": [0], "log": "rank_0.log", **exit}
    one["nodes"][0].update(node, processes=[process])
    assert processes(job_page(one, [], TOLD, b""))[0][1:] == state


def test_a_text_is_shown_without_secrets_and_escaped():
    content = job_page(summary(2), [], TOLD, b"")
    assert "token=(hidden) &lt;img src=x onerror=alert(1)&gt;" in content and "hunter2" not in content
    assert "0:00:40   rank 3 on n2: exit code 1, so the whole job starts again" in content


def test_a_page_has_curves_of_loss_rate_and_other_metrics():
    points = [{**point, "accuracy": point["step"] / 200} for point in series(200)]
    content = job_page(summary(2), points, TOLD, plotly_js())
    drawn = figures(content)
    assert [figure["data"][0]["name"] for figure in drawn] == ["loss", "rate", "accuracy"]
    assert drawn[0]["data"][0]["x"] == list(range(1, 201)) and drawn[0]["layout"]["xaxis"]["title"]["text"] == "step"
    assert drawn[0]["data"][0]["y"].count(None) == 1
    assert "<p>loss was not a number at step 67.</p>" in content
    for figure in drawn:
        go.Figure(data=figure["data"], layout=figure["layout"])


def test_steps_that_begin_again_are_drawn_over_time():
    points = [{"elapsed_s": float(n), "step": n % 3, "loss": 1.0} for n in range(9)]
    (figure,) = figures(job_page(summary(1), points, TOLD, b"library"))
    assert figure["data"][0]["x"] == list(range(9))
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds since the start"


@pytest.mark.parametrize("points", [[], [{"elapsed_s": 1.0, "step": 1.0, "loss": 2.0}], [{"loss": math.nan}] * 5])
def test_a_job_without_a_curve_has_a_small_page(points):
    content = job_page(summary(2), points, TOLD, plotly_js())
    assert figures(content) == [] and len(content) < 30_000


@given(st.lists(st.floats(), min_size=1, max_size=500), st.integers(min_value=4, max_value=50))
def test_thinning_keeps_ends_extremes_and_breaks(values, most):
    points = [(float(place), value) for place, value in enumerate(values)]
    kept = thinned(points, most)
    assert set(map(str, kept)) <= set(map(str, points)) and str(kept[0]) == str(points[0])
    assert str(kept[-1]) == str(points[-1]) and [place for place, _ in kept] == sorted(place for place, _ in kept)
    finite = [value for value in values if math.isfinite(value)]
    drawn = [value for _, value in kept if math.isfinite(value)]
    if finite:
        assert (min(drawn), max(drawn)) == (min(finite), max(finite))
    assert len(kept) - len(drawn) == len(values) - len(finite)
