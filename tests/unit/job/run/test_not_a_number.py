"""A loss that is not a number: told wherever somebody looks, beside how the job ended."""

import json
import re

import pytest
from ansible.module_utils.trainyard.base.spans import stretches
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.logs import progress
from ansible.module_utils.trainyard_controller.job import reporting
from ansible.module_utils.trainyard_controller.job.schedulers.kubernetes_run import job_logs
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_node import agent
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import Cluster
from job_samples import make_job, make_plan, member, submitted

NAN, INF = float("nan"), float("inf")
SINCE = "loss is not a number since step 11 (of 25)"


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def read_json(path):
    return json.loads(path.read_text(), parse_constant=no_constant)


def points(*losses, **more):
    return [{"step": float(step), "steps": 25.0, "loss": loss, **more} for step, loss in enumerate(losses, start=1)]


def at(epoch, step, loss):
    return {"epoch": float(epoch), "step": float(step), "loss": loss}


@pytest.mark.parametrize(
    ("series", "text"),
    [
        (points(*[0.5] * 10, *[NAN] * 15), SINCE),
        (points(*[0.5] * 10, *[None] * 15), SINCE),
        (points(*[0.5] * 10, INF, NAN, -INF), SINCE),
        (points(NAN), "loss is not a number since step 1 (of 25)"),
        (points(0.5, NAN, 0.4), "loss was not a number at step 2 (of 25)"),
        (points(*[0.5] * 10, *[NAN] * 4, 0.4), "loss was not a number from step 11 to 14 (of 25)"),
        (points(0.5, NAN, 0.4, INF, 0.3), "loss was not a number off and on from step 2 to 4 (of 25)"),
        (points(0.5, NAN, 0.4, NAN), "loss is not a number since step 4 (of 25); before that, too, first at step 2"),
        # MindSpore's steps count from 1 in each epoch.
        ([at(1, 2, 1.0), at(2, 1, NAN)], "loss is not a number since step 1, epoch 2"),
        ([at(1, 2, NAN), at(2, 1, NAN), {"loss": 1.0}], "loss was not a number from step 2 to step 1 of epoch 2"),
        ([{"elapsed_s": 62.0, "loss": NAN}], "loss is not a number since 0:01:02"),
        ([{"loss": NAN}], "loss is not a number since a line without a step"),
    ],
)
def test_where_the_loss_was_not_a_number(series, text):
    found = progress.followed(series)
    assert progress.not_a_number_text(found) == text
    json.dumps(found, allow_nan=False)


@given(st.lists(st.one_of(st.just(NAN), st.just(INF), st.just(0.5), st.none()), max_size=12))
def test_any_series_has_its_stretches(losses):
    found = progress.followed(points(*losses))
    lost = [step for step, loss in enumerate(losses, start=1) if not progress.is_number(loss)]
    assert bool(found) == bool(lost)
    if found:
        assert (" is not " in progress.not_a_number_text(found)) == (not progress.is_number(losses[-1]))
        assert (found["first"]["step"], found["last"]["step"]) == (lost[0], lost[-1])
        runs = stretches(step - 1 for step in lost)
        assert found["stretches"] == len(runs)
        assert lost == [at + 1 for first, last in runs for at in range(first, last + 1)]


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf", "Infinity", "-nan"])
@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (progress.DEFAULT_PATTERN, "step 11/25 loss {}"),
        (progress.DEFAULT_PATTERN, "epoch: 1 step: 11, loss is {}"),
        # Patterns that know digits only: that of docs/job-file.md, one with a loss that may be missing, JSON.
        (r"iter (?P<step>\d+): ppl (?P<ppl>[\d.]+), loss (?P<loss>[\d.]+)", "iter 11: ppl 1.5, loss {}"),
        (r"step (?P<step>\d+)(?:.*loss (?P<loss>\d+\.\d+))?", "step 11: loss {}, rate 3"),
        (r'"step": (?P<step>\d+), "loss": (?P<loss>\d+\.\d{4})', '{{"step": 11, "loss": {}}}'),
        # An exponent, as Megatron-LM prints it, and other numbers of decimals.
        (r"iteration +(?P<step>\d+)/.* lm loss: (?P<loss>\d\.\d+E[+-]\d+)", "iteration  11/  25 | lm loss: {} |"),
        (r"step (?P<step>\d+) loss (?P<loss>\d\.\d{2}e[+-]\d\d)", "step 11 loss {}"),
        (r"step (?P<step>\d+): (?P<loss>\d+\.\d{6}) ppl (?P<ppl>[\d.]+)", "step 11: {} ppl 1.5"),
        (r"step (?P<step>\d+) loss (?P<loss>\d+\.\d{3}),", "step 11 loss {}, rate 3"),
    ],
)
def test_each_way_to_print_it_is_read_with_any_pattern(pattern, line, word):
    found = progress.parse_line(line.format(word), progress.compile_pattern(pattern))
    assert found["step"] == 11 and not progress.is_number(found["loss"])
    assert found.get("ppl", 1.5) == 1.5


@pytest.mark.parametrize("line", ["nan", "iter nan: loss 0.5", "information: loss info", "nancy: iter 3 loss x"])
def test_words_that_are_no_loss(line):
    found = progress.parse_line(line, progress.compile_pattern(r"iter (?P<step>\d+)(?:: loss (?P<loss>[\d.]+))?"))
    assert found in (None, {"step": 3.0})


def test_a_lost_loss_is_in_state_summary_text_and_page(tmp_path):
    with Cluster(tmp_path / "cluster", ["diverge"]) as job:
        job.start()
        job.head.go()
        assert job.over()["state"] == "succeeded"
        job.all_ended()
        state = read_json(job.head.dir / "cluster.json")
        assert (state["metrics"]["loss"], state["loss_not_a_number"]["since"]["step"]) == (None, 11)
        told = agent.state(job_id=job.head.job_id, job_dir=str(job.head.dir))
        assert told["line"].endswith(f"   all ranks have ended   step 25/25   {SINCE}   rate 100.5")
        series = (job.head.dir / "metrics.jsonl").read_text()
    run = tmp_path / "digits-1"
    (run / "logs").mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps(make_plan(make_job(launcher="direct"), [member(0)]).as_dict()))
    (run / "metrics.jsonl").write_text(series)
    report = reporting.report(run, {"n1": told}, {})
    assert report.summary["state"] == "succeeded"
    headline, line, *_ = report.text.splitlines()
    assert headline.startswith("Job digits-20261120-101500 succeeded in ") and line == f"  {SINCE}"
    summary = read_json(run / "summary.json")
    assert (summary["state"], summary["metrics"]["loss"]) == ("succeeded", None)
    lost = summary["loss_not_a_number"]
    assert (lost["since"], lost["first"]["step"], lost["last"]["step"]) == (lost["first"], 11, 25)
    assert (lost["stretches"], lost["steps"]) == (1, 25)
    page = (run / "report.html").read_text()
    assert f'<p class="state unknown" id="lost">{SINCE}</p>' in page and 'data-state="unknown"' in page
    # Steps 11 to 25 of 1 to 25.
    gaps = set(re.findall(r'class="gap" x="([\d.]+)%" y="0" width="([\d.]+)%"', page))
    assert [tuple(round(float(text)) for text in gap) for gap in gaps] == [(42, 58)]


class OnePod:
    """A cluster with one pod of an MSJob, whose loss is lost."""

    def pods(self, name):
        return [{"metadata": {"name": f"{name}-worker-0"}}]

    def log(self, *_, **__):
        losses = {step: 0.5 if step < 11 else NAN for step in range(1, 26)}
        return "".join(f"2026-11-21T20:00:{step:02}Z step {step}/25 loss {loss}\n" for step, loss in losses.items())


def test_the_loss_of_an_operators_job_is_read_from_its_log(tmp_path):
    run = tmp_path / "digits-1"
    (run / "logs").mkdir(parents=True)
    plan = make_plan(make_job(launcher="direct"), [member(0)]).as_dict()
    plan |= {"engine": submitted("kubernetes")["engine"]}
    (run / "plan.json").write_text(json.dumps(plan))
    settings = {"name": "digits", "resource": "MSJob", "pods": 1, "ranks_per_pod": 1, "container": "ms"}
    run_folder.write_logs(run, job_logs(OnePod(), settings, 1 << 20, "")["logs"], keep=False)
    state = {"state": "succeeded", "started": 1000.0, "finished": 1010.0, "metrics": {"step": 25.0, "loss": None}}
    state["nodes"] = [{"host": "pod-0", "state": "ended", "ranks": [0], "processes": []}]
    report = reporting.report(run, {}, {}, job_state=state)
    assert report.text.splitlines()[1] == f"  {SINCE}"
    assert read_json(run / "summary.json")["metrics"] == {"step": 25, "loss": None}
    assert schedulers.summarize(plan, {**state, "metrics": {"loss": NAN}})["metrics"] == {"loss": None}
