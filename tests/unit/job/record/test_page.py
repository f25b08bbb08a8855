"""The page of a job: how it ended, curves, the state of each process."""

import math
import re
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs.stacks import MAX_LINES
from ansible.module_utils.trainyard.report import job_page as page
from ansible.module_utils.trainyard.report.curves import curves, thinned
from ansible.module_utils.trainyard.report.job_text import Story, tell
from ansible.module_utils.trainyard.report.plot import BOTTOM, LEFT, RIGHT, TOP
from ansible.module_utils.trainyard_controller.runs.pages import job_page
from hypothesis import example, given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "fixtures" / "reports"))
from composed_job import STARTED, hung, series, summary

STORY = Story("failed.", ["rank 1 on n1 failed first"], [])
LAUNCH = {"command": "ansible-playbook launch.yml -e @x.yml", "inventory": "-i mine", "job": {"job_name": "x"}}
LOST = {"exit_code": None, "signal": None, "result": "lost"}
FAILED = {"exit_code": 3, "signal": None, "result": "exit-code"}


def processes(summary):
    """Process, state and how it ended, of each row: those that need attention, and those that are folded."""
    made = page.job_content(summary, [], STORY, {})
    rows = [(row["name"], row["state"]["state"], row["text"]) for row in made["rows"]]
    for _host, first, last, name, state, text, _after, _log in made["folded"]["rows"]:
        rows += [(name or f"rank{rank}", state, text) for rank in range(first, last + 1)]
    return rows


def test_the_rank_that_failed_first_is_on_top():
    first, *others = processes(summary(2))
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
    assert processes(job) == [
        ("rank3", "failed", "first: exit code 7"),
        ("rank0", "failed", "exit code 1 after rank 3 failed"),
        ("rank1", "stopped", "ended by torchrun after rank 3 failed"),
        ("rank2", "stopped", "ended by torchrun after rank 3 failed: killed by SIGKILL"),
    ]
    content = job_page(job, [], STORY, {})
    assert "logs/rank_3.log" in content and "agent_1.log" not in content


def test_an_agent_of_torchrun_that_was_killed_is_named_and_its_ranks_with_it():
    agents = {"n1": end(101, 1), "n2": end(100, by_signal=9)}
    ended = {0: end(100.5, 1), 1: end(100.6, 0, by_agent=True)}
    job = of_torchrun(ended, failure={"host": "n2", "rank": None}, exit=agents)
    assert processes(job) == [
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
        ({"state": "ended", "why": ""}, LOST, ("failed", "no exit code (lost)")),
        ({"state": "ended", "why": ""}, FAILED, ("failed", "exit code 3")),
    ],
)
def test_processes_without_an_end(node, exit, state):
    one = summary(1, 1)
    one["failure"] = None
    process = {"name": "rank0", "ranks": [0], "log": "rank_0.log", **exit}
    one["nodes"][0].update(node, processes=[process])
    assert processes(one)[0][1:] == state


def test_texts_are_shown_without_secrets_and_escaped():
    story = Story("failed.", ["token=hunter2 <img src=x>"], [], ["password=hunter2"], "rank_1.log", "n1")
    content = job_page(summary(2), [], story, {"command": "x -e api_key=hunter2"})
    assert "token=(hidden) &lt;img src=x&gt;" in content and "hunter2" not in content
    job = summary(2)
    restart = "0:00:40   rank 3 on n2: exit code 1, so the whole job starts again"
    assert job_page(job, [], tell(job, "runs/x", "", []), {}).count(restart) == 1


TAIL = ["[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: learning rate must be positive"]


@pytest.mark.parametrize(
    ("job", "tail", "line"),
    [
        (summary(2), TAIL, "Failed: rank 1 on n1, ValueError: learning rate must be positive"),
        (summary(2), [], "Failed: rank 1 on n1 failed first: killed by SIGKILL (oom-kill)"),
        (summary(2, failed=False), [], "Succeeded in 0:01:42: 4 ranks on 2 nodes"),
        (summary(2, failed=False, state="running"), [], "Running: 0:01:42 0/4 ranks running step 200 loss 0.04"),
        (summary(2, failed=False, state="stopped"), [], "Stopped after 0:01:42"),
    ],
)
def test_the_first_line_names_state_and_cause(job, tail, line):
    assert page.headline(job, tell(job, "runs/x", "", tail)) == line


def test_tiles_show_progress_time_left_and_a_smooth_rate():
    points = [{**point, "steps": 400.0} for point in series(200)]
    job = {**summary(2, failed=False), "state": "running", "metrics": {"step": 200.0, "steps": 400.0, "loss": 0.04}}
    job["left_s"] = 100.0
    tiles = {name: value for name, value, _ in page.tiles(job, points)}
    assert (tiles["progress"], tiles["time left"], tiles["loss"]) == ("50%", "0:01:40", "0.04")
    assert 4900 < float(tiles["rate"]) < 5100
    assert page.tiles({**job, "state": "succeeded"}, points)[0] == ("progress", "100%", "step 200 of 400")


def test_the_timeline_has_attempts_and_marks():
    made = page.timeline(summary(2), series(200))
    assert [(mark["kind"], mark["clock"]) for mark in made["marks"]] == [
        ("start", "0:00:00"), ("step", "0:00:00"), ("restart", "0:00:40"), ("end", "0:01:42"),
    ]  # fmt: skip
    assert made["attempts"] == [(0.0, 39.22), (39.22, 60.78)]
    assert page.timeline({**summary(2), "elapsed_s": None}, []) is None


def test_thousands_of_ranks_are_folded():
    made = page.job_content(summary(1024, 8), [], STORY, {})
    assert made["folded"]["text"] == "8191 processes stopped by the job" and len(made["rows"]) == 1
    assert len(made["folded"]["rows"]) == 1025 and made["nodes"][0]["state"]["like"] == "fail"


def test_ranks_of_a_job_that_runs_are_folded():
    job = {**summary(128, 8, failed=False), "state": "running"}
    for node in job["nodes"]:
        node.update(state="running", processes=[{"name": "rank0", "ranks": node["ranks"], "log": "rank_0.log"}])
    made = page.job_content(job, [], STORY, {})
    assert (made["rows"], made["folded"]["text"]) == ([], "128 processes run")


def test_nodes_that_need_attention_are_named_below_their_cells():
    job = summary(9)
    job["nodes"][8].update(state="unreachable", why="no route", role="n10 took its place")
    about = [(state["word"], text) for state, text in page.job_content(job, [], STORY, {})["nodes_about"]]
    assert about == [("failed", "n1"), ("unreachable", "n9 (n10 took its place, no route)"), ("ended", "7")]
    for node in job["nodes"]:
        node.update(state="unreachable", why="", role="")
    assert page.job_content(job, [], STORY, {})["nodes_about"][1][1] == "n2 to n9"
    for node in job["nodes"]:
        node["why"] = f"exit code {node['node_rank']}"
    named = page.job_content(job, [], STORY, {})["nodes_about"][1][1]
    assert named.startswith("n2 (exit code 1), n3 (exit code 2), ") and named.endswith("n7 (exit code 6), ... (2 more)")


def test_a_job_in_a_queue_has_no_empty_parts():
    queue = {"engine": {"kind": "slurm", "id": "7", "reason": "Resources", "submit_host": "login"}, "nodes": []}
    job = {**summary(2, failed=False), "state": "pending", "started": None, "finished": None, "elapsed_s": None}
    job = {**job, "metrics": {}, "restarts": [], **queue}
    content = job_page(job, [], tell(job, "runs/x", "", []), LAUNCH, 10.0)
    assert "Pending: Resources" in content and ": 4 ranks (direct)</p>" in content
    assert "Processes" not in content and "after its start" not in content and "reloads every 10 s" in content


def test_a_job_that_hung_has_its_stacks_in_groups():
    job = hung(2)
    story = tell(job, "runs/x", "", [])
    made = page.job_content(job, [], story, {})
    odd, waiting = made["stacks"]["groups"]
    assert (odd["odd"], odd["open"], odd["size"], odd["hosts"]) == (True, True, "1 rank on 1 node", "n2")
    assert odd["frames"][0] == {"text": "load_batch (cap.py:7)", "own": True}
    assert (waiting["open"], waiting["size"], waiting["folded"]) == (False, "3 ranks on 2 nodes", False)
    assert made["stacks"]["after"] == "0:01:40"
    # The section replaces its lines in what happened; the terminal has them.
    lines = [line for line, _ in made["happened"]]
    assert lines[0].startswith("hung: no new progress for 23 s") and odd["text"] not in lines
    assert {odd["text"], waiting["text"]} <= set(story.happened)
    assert "Where the ranks were" in job_page(job, [], story, {})


def test_stacks_of_thousands_of_ranks_fold_their_hosts():
    job = hung(1024, 8)
    # Each group that a record may have names all hosts.
    job["stacks"]["groups"] = job["stacks"]["groups"][-1:] * MAX_LINES
    content = job_page(job, series(200), tell(job, "runs/x", "", []), {})
    assert "8191 ranks on 1024 nodes: n1 to n1024" in content and len(content.encode()) < 200_000


def test_steps_that_begin_again_are_drawn_over_time():
    points = [{"elapsed_s": float(n), "step": n % 3, "epoch": n // 3, "loss": 1.0} for n in range(9)]
    assert [curve.x_name for curve in curves(points, None)] == ["seconds since the start"]
    epochs = [{"elapsed_s": float(n), "epoch": n, "loss": 1.0} for n in range(9)]
    assert [curve.x_name for curve in curves(epochs, None)] == ["epoch"]


@given(
    st.lists(st.fixed_dictionaries({"elapsed_s": st.floats(0, 1e6), "loss": st.floats()}), max_size=50),
    st.lists(st.floats(0, 1e6), max_size=3),
)
@example([{"elapsed_s": 0.0, "loss": 0.0}, {"elapsed_s": 0.0, "loss": 2.3e-12}], [])
def test_any_series_is_drawn_within_its_frame(points, restarts):
    for curve in curves(points, None, restarts):
        for drawing in filter(None, (curve.linear, curve.logarithmic)):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", drawing.lines[0].path)]
            assert all(LEFT - 1 <= x <= RIGHT + 1 for x in numbers[::2])
            assert all(TOP - 1 <= y <= BOTTOM + 1 for y in numbers[1::2])


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


def listed(*names, hosts=("n1",), about=()):
    files = [page.OutputFile(host, name, 2048) for host in hosts for name in names]
    return page.outputs(files, about)


def test_outputs_are_links_in_a_section_of_their_own():
    files = [page.OutputFile("n1", "results/a b#1?.csv", 2048), page.OutputFile("n1", "<b>100 %</b>.txt", 3)]
    lines = ["outputs     runs/x/outputs: 2 files, 2 KiB", "not brought: n1: 'model.pt', 3 GiB"]
    story = Story("succeeded.", [], [], outputs=lines)
    made = job_page(summary(2, failed=False), [], story, {}, files=files)
    assert 'href="outputs/n1/results/a%20b%231%3F.csv"' in made and "<b>100" not in made
    assert 'href="outputs/n1/%3Cb%3E100%20%25%3C/b%3E.txt"' in made and "&lt;b&gt;100 %&lt;/b&gt;.txt</a>" in made
    section = made[made.index('<section id="outputs"') :]
    assert "2 files, 2 KiB" in section and "not brought: n1" in section and "runs/x" not in made
    assert 'id="left"' not in made


@pytest.mark.parametrize("name", ["a\u202eb", "a\ud800", "api_token=hunter2hunter2", "a\x1bb"])
def test_a_name_that_cannot_be_shown_as_it_is_has_no_link(name):
    [row] = listed(name)["rows"]
    assert row["href"] == "" and row["name"] != name
