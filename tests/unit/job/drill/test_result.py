"""The result of a drill: what a job survives, and the name of each defect that was planted."""

import dataclasses

import pytest
from ansible.module_utils.trainyard.job.drill import drill_result, series, survival
from drill_samples import PLAN, SIGNAL, checkpoint, drill, killed, losses, run, runs, saving

LAST = {**checkpoint(0), "name": "last.pt", "step": None}
AS_RANKS_ENDED = "it was written as the ranks ended"


def found(of_runs, **settings):
    return drill_result.of_runs(drill(**settings), PLAN, of_runs)


def states(of_runs):
    return {each["name"]: each["state"] for each in found(of_runs)["checks"]}


def text(of_runs, check, fault="stopped"):
    cases = next(each["cases"] for each in found(of_runs)["checks"] if each["name"] == check)
    return next(case["text"] for case in cases if case["fault"] == fault)


def test_a_healthy_job_survives_and_a_killed_node_has_a_cost():
    made = found(runs())
    assert set(states(runs()).values()) == {"pass"}
    assert (made["state"], made["noise"]) == ("pass", 0)
    assert made["headline"] == "survives: yes, a killed node costs 38 s and 12 steps"
    assert text(runs(), "step") == "step 13 follows step_000012.pt of step 12"
    assert text(runs(), "signal") == "2 ranks handled SIGTERM; the last one left after 0.4 s"
    assert text(runs(), "loss", "node") == "steps 9 to 20: the losses of the undisturbed run"


def test_without_a_fixed_seed_the_order_of_data_is_not_comparable_and_the_rest_is():
    noisy = runs(resumed=losses(13, 20, seed=0.3), again=losses(9, 20, seed=0.4))
    for each in noisy[1:]:
        each["points"] = [
            {**point, "loss": point["loss"] * (1.05 if point["step"] % 2 else 0.97)} for point in each["points"]
        ]
    assert states(noisy) == {"signal": "pass", "saves": "pass", "step": "pass", "loss": "pass", "data": "unknown"}
    assert "as without a fixed seed" in text(noisy, "data")
    assert found(noisy)["headline"].endswith("12 steps; data order not comparable")


def test_no_is_explained_where_the_job_resumed_correctly_and_lost_one_step():
    """It saves every step but nothing at the signal: the next launch goes on right, one step behind."""
    state = {"newest": checkpoint(11, -0.4), "unfinished": None}
    lost = found(runs({"checkpoints": state, "saving": saving("step_000011.pt")}, losses(12, 20)))
    assert lost["headline"] == "survives: no, missing: saves"
    answer = lost["answer"]
    assert answer["why"].startswith("After every fault the job went on correctly: at the right step, with the losses")
    assert answer["why"].endswith("it left no complete checkpoint of its last step when it was stopped.")
    assert answer["lost"].startswith("stopped and launched again: 1 step; a rank killed: 12 steps and 38 s; ")
    assert answer["lost"].endswith("a stop at another moment loses all steps since the checkpoint before it")
    assert len(answer["do"]) == 1 and "save in the handler of the stop signal" in answer["do"][0]
    assert found(runs())["answer"] is None


@pytest.mark.parametrize(("of_runs", "why", "do"), [
    (runs(resumed=losses(1, 20), again=losses(1, 20)),
     "It did not go on at the step after its checkpoint, and its loss did not go on where it was.",
     ["save the number of the step", "save and load the whole state"]),
    (runs(resumed=losses(13, 20, batch=1), again=losses(9, 20, batch=1)),
     "It went on with other data than without the fault.", ["save the position in the data"]),
    ([*runs()[:3], run("rank", losses(1, 20)), run("node", losses(1, 20))],
     "It had no complete checkpoint when it was killed.", ["save more often"]),
])  # fmt: skip
def test_each_failed_check_has_a_reason_and_an_action(of_runs, why, do):
    answer = found(of_runs)["answer"]
    assert answer["why"] == why
    assert [action[: len(start)] for action, start in zip(answer["do"], do, strict=True)] == do


def test_a_missing_handler_is_named():
    missing = runs({"saving": None, "checkpoints": {"newest": checkpoint(8, -0.8), "unfinished": None}}, losses(9, 20))
    assert {name for name, state in states(missing).items() if state == "fail"} == {"signal", "saves"}
    assert text(missing, "signal") == "no rank handles SIGTERM (job_stop_signal): all ended at once by it"
    assert found(missing)["headline"] == "survives: no, missing: reacts to the signal, saves"
    assert text(missing, "saves") == "nothing was saved at the signal: the newest checkpoint is step_000008.pt"


@pytest.mark.parametrize(("changes", "state"), [
    ({"newest": checkpoint(12, 0.001)}, "pass"),
    # A periodic save of the last step, which the poll before the signal had not seen yet.
    ({"newest": checkpoint(12, -0.001)}, "fail"), ({"newest": checkpoint(12, 0.0)}, "fail"),
    # One of an earlier step, which took until after the signal.
    ({"newest": checkpoint(8)}, "fail"),
    # The last one as the ranks ended, which the next launch has loaded.
    ({"newest": checkpoint(8, -9.0), "unfinished": checkpoint(12, reason=AS_RANKS_ENDED)}, "pass"),
    ({"newest": checkpoint(8, -9.0), "unfinished": checkpoint(12, -0.1, reason=AS_RANKS_ENDED)}, "fail"),
    # A file that is always written anew has the name that it had before the signal.
    ({"newest": LAST}, "pass"), ({"newest": {**LAST, "time": SIGNAL - 1}}, "fail"),
])  # fmt: skip
@pytest.mark.parametrize("handles", [saving("step_000012.pt"), saving("last.pt", before="last.pt"), None])
def test_only_a_checkpoint_that_was_finished_after_the_signal_counts(changes, state, handles):
    state_of = {"newest": None, "unfinished": None, **changes}
    assert states(runs({"checkpoints": state_of, "saving": handles}))["saves"] == state


@pytest.mark.parametrize(("summary", "why"), [
    ({"state": "succeeded"}, "the job had ended before the stop: succeeded"),
    ({"state": "running", "finished": None}, "it is not known when the job was stopped"),
])  # fmt: skip
def test_a_run_without_a_stop_tells_nothing_about_a_save_at_it(summary, why):
    assert states(runs(summary))["saves"] == "unknown" and text(runs(summary), "saves") == why


def test_a_save_by_the_wrong_rank_is_named_with_its_node():
    state = {"newest": checkpoint(8, -0.8), "unfinished": None}
    wrong = runs({"elsewhere": {"n2": "step_000012.pt"}, "checkpoints": state, "saving": saving(None)}, losses(9, 20))
    assert {name for name, state in states(wrong).items() if state == "fail"} == {"saves"}
    silent = runs({"checkpoints": state, "saving": saving("step_000008.pt")}, losses(9, 20))
    saved = "ranks handled the signal at step 12, but saved nothing: the newest checkpoint is step_000008.pt"
    assert text(silent, "saves") == saved
    assert text(wrong, "saves").startswith("a rank on n2 saved step_000012.pt, which n1, the node of rank 0, does not")


def test_a_torn_save_is_named_with_its_reason():
    torn = checkpoint(12, reason="its archive has no end: it was cut off")
    failure = {"kind": "exit", "host": "n1", "process": "rank0", "rank": 0, "ranks": [0], "exit_code": 1,
               "signal": None, "result": "exit-code", "error": "BadZipFile: no end"}  # fmt: skip
    of_runs = runs(
        {"checkpoints": {"newest": checkpoint(8), "unfinished": torn}, "saving": saving("step_000008.pt")}, []
    )
    of_runs[2]["summary"].update(state="failed", failure=failure)
    assert {name for name, state in states(of_runs).items() if state == "fail"} == {"saves", "step"}
    assert text(of_runs, "saves") == "step_000012.pt is not complete: its archive has no end: it was cut off"
    assert (
        text(of_runs, "step") == "after the next launch the job failed: rank 0 on n1: exit code 1: BadZipFile: no end"
    )


def test_a_lost_seed_is_named_as_other_data():
    """Weights and step are right, and the order of the data begins anew."""
    lost = runs(resumed=losses(13, 20, batch=1), again=losses(9, 20, batch=1))
    assert {name for name, state in states(lost).items() if state == "fail"} == {"data"}
    assert "though undisturbed runs are equal: other data than without the fault" in text(lost, "data")
    assert found(lost)["headline"] == "survives: no, missing: data order continues"


def test_a_lost_step_is_named_and_the_loss_is_compared_at_the_right_one():
    lost = runs(resumed=losses(1, 20, weight=13, batch=1), again=losses(1, 20, weight=9, batch=1))
    assert {name for name, state in states(lost).items() if state == "fail"} == {"step"}
    assert text(lost, "step") == "it began again at step 1, though step_000012.pt is of step 12"
    assert text(lost, "data").startswith("not comparable: it did not begin at the right step")


def test_a_lost_state_is_named_by_the_level_of_its_loss():
    lost = runs(resumed=losses(13, 20, weight=1), again=losses(9, 20, weight=1))
    assert {name for name, state in states(lost).items() if state == "fail"} == {"loss"}
    assert "back to the level of the first steps" in text(lost, "loss")


def test_a_job_that_loads_nothing_has_neither_step_nor_state():
    lost = runs(resumed=losses(1, 20), again=losses(1, 20))
    assert {name for name, state in states(lost).items() if state == "fail"} == {"step", "loss"}


def test_a_lost_state_of_the_optimizer_is_named_when_only_the_first_loss_is_equal():
    later = [{**point, "loss": point["loss"] * (1 + 0.01 * (at > 0))} for at, point in enumerate(losses(13, 20))]
    lost = runs(resumed=later)
    assert {name for name, state in states(lost).items() if state == "fail"} == {"loss"}
    assert text(lost, "loss").startswith("equal at step 13, and at step 14 ")
    assert "the state of the optimizer, learning rate or random numbers" in text(lost, "loss")


def test_left_out_steps_are_named():
    assert text(runs(resumed=losses(15, 20)), "step") == "it began at step 15, and left out those after step 12"


def test_a_run_that_was_killed_without_a_checkpoint_tells_why():
    late = runs()
    late[3:] = [run("rank", losses(1, 20)), run("node", losses(1, 20))]
    assert states(late)["saves"] == "fail"
    assert text(late, "saves", "rank") == "no complete checkpoint within 20 steps: let the program save more often"
    assert text(late, "step", "node") == "not run"
    fast = runs()
    fast[3] = run("rank", losses(1, 20), checkpoints={"newest": checkpoint(8), "unfinished": None})
    assert text(fast, "saves", "rank") == "step 20 came before a checkpoint was seen: raise drill_steps"


def test_a_job_that_was_not_started_again_says_so():
    gone = runs()
    gone[3]["summary"]["restarts"] = []
    assert text(gone, "step", "rank") == "the job was not started again"
    assert states(gone)["step"] == "fail"


def test_a_missing_run_is_never_a_pass():
    cut = found(runs()[:3])
    assert cut["state"] == "unknown"
    assert (
        cut["headline"] == "survives: not known: saves, resumes at the right step, loss continues, data order continues"
    )


@pytest.mark.parametrize(
    ("job", "state", "text"),
    [
        ({"grace_s": 0.0}, "fail", "job_stop_grace is 0, which gives no rank time to save"),
        ({"stayed": {"n2": [3]}}, "fail", "rank 3 on n2 did not leave within 30 s (job_stop_grace)"),
    ],
)
def test_ranks_without_time_to_save(job, state, text):
    grace_s = job.get("grace_s", 30.0)
    assert survival.reacts(saving("x", stayed=job.get("stayed", {})), "TERM", grace_s) == (state, text)


def test_a_checkpoint_that_nothing_shows_as_complete_counts_when_it_was_loaded():
    last = checkpoint(12, reason="it was written as the ranks ended")
    state = {"newest": checkpoint(8), "unfinished": last}
    assert text(runs({"checkpoints": state}), "saves") == "step_000012.pt was saved at the signal, and loaded"
    assert states(runs({"checkpoints": state}))["saves"] == "pass"
    assert states(runs({"checkpoints": state}, losses(9, 20)))["saves"] == "unknown"


def test_a_program_that_prints_no_loss_leaves_two_checks_open():
    silent = runs()
    for each in silent:
        each["points"] = [{"step": point["step"]} for point in each["points"]]
    assert states(silent) == {"signal": "pass", "saves": "pass", "step": "pass", "loss": "unknown", "data": "unknown"}
    assert found(silent)["state"] == "unknown"


def test_the_job_file_is_reminded_of_restarts():
    assert not any("job_max_restarts" in note for note in found(runs())["notes"])
    none = dataclasses.replace(drill(), restarts=0)
    assert any("job_max_restarts" in note for note in drill_result.of_runs(none, PLAN, runs())["notes"])


@pytest.mark.parametrize(
    ("points", "why", "part"),
    [
        ([], "", "no step is recognized"),
        (losses(1, 5) + losses(1, 3), "", "steps that begin again"),
        (losses(1, 9), "it ran for 30 s", "came to step 9: it ran for 30 s"),
    ],
)
def test_an_undisturbed_run_without_usable_steps_is_a_finding(points, why, part):
    [finding] = drill_result.unusable(run("undisturbed", points, why=why), drill())
    assert part in finding.found and finding.action


def test_an_undisturbed_run_that_fails_is_a_finding_of_the_job():
    failed = run("undisturbed", losses(1, 9) + losses(8, 20), restarts=[{"reason": "rank 0 on n1: exit code 1"}])
    [finding] = drill_result.unusable(failed, drill())
    assert finding.found == "mine-undisturbed failed by itself: rank 0 on n1: exit code 1"


def test_attempts_are_split_by_their_first_steps():
    points = series.read([*losses(1, 10), *losses(9, 12), *losses(12, 20)])
    parts = series.attempts(points, [9.0, 12.0])
    assert [(part[0].step, part[-1].step) for part in parts] == [(1, 10), (9, 12), (12, 20)]
    assert [len(part) for part in series.attempts(points[:10], [None])] == [10, 0]


def test_a_stride_of_ten_steps_is_no_gap():
    tens = [point for point in losses(1, 100) if point["step"] % 10 == 0]
    of_runs = runs({"checkpoints": {"newest": checkpoint(57), "unfinished": None}})
    of_runs[0]["points"], of_runs[1]["points"] = tens, tens[:5]
    of_runs[2]["points"] = tens[5:]
    of_runs[3:] = [killed(name, tens[:4], tens[3:], 33) for name in ("rank", "node")]
    assert set(states(of_runs).values()) == {"pass"}
