"""Goodput and the cost of restarts: against simulated runs whose truth is known."""

import json
import sys
from pathlib import Path

from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.measure import goodput
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard.report import job_page
from ansible.module_utils.trainyard.report.job_text import explain, tell
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "fixtures" / "reports"))
from composed_job import summary


def simulated(attempts, stride, step_s, start_s, down_s):
    """Run attempts (resumed after step, died after step), each printing every `stride`th; their paces and the truth."""
    now, paces, done_s = 0.0, [], {}
    for resumed, died in attempts:
        now += start_s
        pace = None
        for step in range(resumed + 1, died + 1):
            now += step_s
            done_s[step] = step_s
            if step % stride == 0:
                pace = goodput.follow(pace, {"step": float(step), "loss": 0.5}, now)
        paces.append(pace)
        # The next attempt repeats the lost steps.
        now += down_s
    useful = sum(taken for step, taken in done_s.items() if step <= attempts[-1][1])
    return paces, useful, now - down_s


@st.composite
def runs(draw):
    """A run whose attempts begin at a checkpoint that an earlier one has reached, and print all their steps in time."""
    stride = draw(st.sampled_from([1, 5, 10]))
    attempts, at = [], 0
    for _ in range(draw(st.integers(1, 5))):
        resumed = draw(st.integers(0, at // stride)) * stride
        died = resumed + stride * draw(st.integers(2, 12))
        attempts.append((resumed, died))
        at = died
    return attempts, stride, draw(st.sampled_from([0.1, 0.5, 3.0]))


@given(runs(), st.floats(0, 60), st.floats(0, 60))
def test_goodput_is_the_truth_of_runs_whose_steps_take_alike(run, start_s, down_s):
    attempts, stride, step_s = run
    paces, useful_s, elapsed_s = simulated(attempts, stride, step_s, start_s, down_s)
    found = goodput.goodput(paces, elapsed_s)
    assert abs(found["share"] - useful_s / elapsed_s) < 0.001
    assert found["steps"] == attempts[-1][1]
    lost = [max(0, died - resumed) for (_, died), (resumed, _) in zip(attempts, attempts[1:])]
    history = [{"step": died} for _, died in attempts[:-1]]
    costs = goodput.with_costs(history, paces)
    assert [cost["lost_steps"] for cost in costs] == lost
    for cost, steps in zip(costs, lost):
        assert abs(cost["lost_s"] - (start_s + down_s + steps * step_s)) < 0.2
    assert all(not misfit(pace, messages._PACE) for pace in paces)


def test_an_attempt_that_prints_its_first_step_out_of_turn_begins_just_before_it():
    """As training/pytorch/train.py prints: the first step of an attempt, then each tenth."""
    old, new = None, None
    for step in (1, 10, 20, 30, 40, 50, 60):
        old = goodput.follow(old, {"step": float(step)}, 10 + step / 100)
    for step in (57, 60, 70, 80):
        new = goodput.follow(new, {"step": float(step)}, 20 + step / 100)
    assert goodput.cost(old, new)["lost_steps"] == 4
    found = goodput.goodput([old, new], 30)
    assert (found["steps"], found["lost_steps"]) == (80, 4)


NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), max_size=4), st.floats(0, 1e9))
def test_goodput_of_any_output_is_a_share_or_unknown(attempts, elapsed_s):
    paces, now = [], 0.0
    for lines in attempts:
        pace = None
        for step, epoch in lines:
            now += 0.5
            pace = goodput.follow(pace, {"step": step, "epoch": epoch}, now)
        paces.append(pace)
    found = goodput.goodput(paces, elapsed_s)
    assert found is None or 0 <= found["share"] <= 1
    for cost in goodput.with_costs([{"step": 1}] * len(paces), paces):
        assert all(cost[name] is None or cost[name] >= 0 for name in ("lost_steps", "lost_s"))


def pace(*lines):
    found = None
    for step, epoch, at in lines:
        found = goodput.follow(found, {"step": step, "epoch": epoch}, at)
    return found


@given(st.builds(dict, **dict.fromkeys(("first", "last", "first_s", "last_s"), st.floats(-1e11, 1e11)),
                 first_epoch=NUMBERS, last_epoch=NUMBERS, lines=st.integers(0, 1 << 32), rising=st.booleans(),
                 over=st.booleans()), st.floats(0.01, 1e9))  # fmt: skip
def test_any_pace_of_a_node_is_json_or_refused(pace, elapsed_s):
    assert not misfit(pace, messages._PACE)
    costs = goodput.with_costs([{"step": 1}], [pace, pace])
    json.dumps([goodput.goodput([pace, pace], elapsed_s), costs], allow_nan=False)
    assert misfit({**pace, "last": 1e300}, messages._PACE) and misfit({**pace, "first_s": None}, messages._PACE)


def test_steps_that_begin_again_with_each_epoch_say_nothing():
    within = pace((10, 1, 1.0), (20, 1, 2.0), (10, 2, 3.0))
    assert goodput.goodput([within], 9.0) is None
    old, new = pace((10, 4, 1.0), (20, 4, 2.0)), pace((5, 3, 9.0), (15, 3, 10.0))
    assert goodput.cost(old, new) == {"lost_steps": None, "lost_s": None}
    # Seen to go on over the end of an epoch, they count through the run.
    through = pace((5, 2, 9.0), (15, 3, 10.0))
    assert goodput.cost(old, through)["lost_steps"] == 20
    assert goodput.cost(old, pace((15, 4, 9.0), (25, 4, 10.0)))["lost_steps"] == 15


def test_an_attempt_without_a_step_loses_none_and_the_one_before_it_all():
    paces = [pace((10, None, 1.0), (20, None, 2.0)), None, pace((20, None, 9.0), (30, None, 10.0))]
    first, second = goodput.with_costs([{"step": 20}, {"step": 20}], paces)
    assert (first["lost_steps"], first["lost_s"]) == (10, 7.0)
    assert (second["lost_steps"], second["lost_s"]) == (0, None)
    # A process that came back alone is no attempt.
    alone, all_ranks = goodput.with_costs([{"restarted": "scheduler"}, {"step": 2}], [paces[0], paces[2]])
    assert alone == {"restarted": "scheduler"} and "lost_steps" in all_ranks


def test_texts_and_page_of_goodput_costs_and_checkpoints():
    checkpoint = {"name": "step_190.pt", "step": 190, "epoch": None, "time": 1795291290.0, "size": 3 << 20}
    cut = {**checkpoint, "name": "step_200.pt", "step": 200, "reason": "its archive has no end: it was cut off"}
    found = {"share": 0.5, "productive_s": 51.0, "steps": 200.0, "lost_steps": 12.0}
    cost = {"detect_s": 0.4, "restart_s": 3.1, "step_s": 5.0, "lost_steps": 12.0, "lost_s": 14.6}
    job = summary(2, goodput=found)
    job["restarts"][0].update(cost)
    job["checkpoints"] = {"place": "saved", "host": "n1", "newest": checkpoint, "unfinished": cut, "problem": ""}
    job["kernel"] = [{"hosts": ["n2"], "time": 1795291299.0, "kind": "link", "text": "eth0: Link down"}]
    text = explain(job, "/runs/x", "/jobs/x", [])
    page = job_page.job_content(job, [], tell(job, "/runs/x", "/jobs/x", []), {})
    remarks = {name: remark for name, _, remark in page["tiles"]}
    for words in (
        "goodput 50.0 %: 51 s went into 200 steps that count, 12 steps were done again",
        "newest complete checkpoint: step_190.pt (step 190, 3 MiB, 12 s before the end)",
        "not known to be complete: checkpoint step_200.pt: its archive has no end: it was cut off",
    ):
        assert words in text and words in (remarks["goodput"], *remarks["checkpoint"].split("; "))
    again = "noticed after 0.4 s, all started again 3.1 s later, next step 5 s after that, 12 steps lost, 14.6 s"
    assert goodput.cost_text(cost) == f"{again} lost in all" and again in text and again in str(page["happened"])
    assert "the kernel of n2 said 3 s before: eth0: Link down" in text and "Link down" in str(page["happened"])
    assert (goodput.cost_text({}), goodput.cost_text({"lost_steps": 1.0})) == ("", "1 step lost")
    one = goodput.text({**found, "steps": 1.0, "lost_steps": 1.0})
    assert one.endswith("went into 1 step that counts, 1 step was done again")


def test_the_time_left_is_known_where_steps_count_through_the_run():
    def paced(*points):
        found = None
        for number, point in enumerate(points):
            found = goodput.follow(found, point, 10.0 * number)
        return found

    plain = paced({"step": 100.0}, {"step": 200.0})
    assert goodput.left_s(plain, 1000.0) == 80.0
    assert (goodput.left_s(plain, 100.0), goodput.left_s(plain, None), goodput.left_s(None, 9.0)) == (None, None, None)
    # In the first epoch the steps may be those of the epoch.
    first = paced({"step": 10.0, "epoch": 0.0}, {"step": 20.0, "epoch": 0.0})
    assert goodput.left_s(first, 100.0) is None
    through = goodput.follow(first, {"step": 30.0, "epoch": 1.0}, 20.0)
    assert goodput.left_s(through, 100.0) == 70.0
    again = goodput.follow(first, {"step": 10.0, "epoch": 1.0}, 20.0)
    assert goodput.left_s(again, 100.0) is None
