"""Whether a job can be drilled, and what the drill changes in its job file."""

import pytest
from ansible.module_utils.trainyard.job.drill import drill_settings, goal
from drill_samples import GIVEN, JOB, drill

ID = "20261126-101500-3f9c"


def found(job, **given):
    return drill_settings.read({**JOB, **job}, {**GIVEN, **given}, ID)[1]


@pytest.mark.parametrize(
    ("job", "check", "part"),
    [
        ({"job_scheduler": "slurm"}, "job_scheduler", "slurm"),
        ({"job_scheduler": "kubernetes"}, "job_scheduler", "kubernetes"),
        ({"job_checkpoints": ""}, "job_checkpoints", "none"),
        ({"job_checkpoints": "saved"}, "job_checkpoints", "below the folder of each run"),
        ({"job_checkpoints": "/shared/other"}, "job_checkpoints", "neither job_command nor job_env names it"),
        ({"job_command": ["python", "train.py", "--checkpoints=/shared/mine2"]}, "job_checkpoints", "neither"),
        ({"job_command": ["python", "train.py", "--data=/shared/mine/data"]}, "job_checkpoints", "neither"),
        ({"job_checkpoints": "/mine", "job_command": ["train", "/"]}, "job_checkpoints", "neither"),
    ],
)
def test_a_job_that_cannot_be_drilled_is_one_finding(job, check, part):
    [finding] = found(job)
    assert finding.check == check and part in finding.found and finding.expected and finding.action


def test_wrong_settings_are_findings_with_those_of_the_job():
    given = {"drill_steps": 3, "drill_timeout": 0, "drill_args": "--steps 20", "drill_checkpoints": "here"}
    names = [finding.check for finding in found({"job_checkpoints": ""}, **given)]
    assert names == ["drill_steps", "drill_timeout", "drill_args", "drill_checkpoints", "job_checkpoints"]
    assert [finding.check for finding in found({}, drill_steps=True, drill_args=[["a"]])] == [
        "drill_steps",
        "drill_args",
    ]


@pytest.mark.parametrize(
    ("place", "word", "moved", "checkpoints"),
    [
        ("/shared/mine", "--dir=/shared/mine", "--dir={}", "{}"),
        ("/shared/mine/", "/shared/mine/", "{}/", "{}/"),
        ("/shared/mine/step_*.pt", "/shared/mine", "{}", "{}/step_*.pt"),
        # Each rank has a folder of its own, and the program gets the one above.
        ("/shared/mine/rank_0", "--checkpoints=/shared/mine", "--checkpoints={}", "{}/rank_0"),
        ("/shared/mine", "a=/shared/mine,b=/shared/mine", "a={0},b={0}", "{0}"),
    ],
)
def test_the_program_gets_a_folder_of_the_drill(place, word, moved, checkpoints):
    job = {**JOB, "job_checkpoints": place, "job_command": ["python", "train.py", word, 5], "job_env": {"A": "1"}}
    made, _ = drill_settings.read(job, {**GIVEN, "drill_args": ["--steps", 20]}, ID)
    changed = drill_settings.changes(made, job, "rank")
    folder = f"/shared/mine.drill-{ID}/rank"
    assert changed["job_command"] == ["python", "train.py", moved.format(folder), 5, "--steps", 20]
    assert changed["job_checkpoints"] == checkpoints.format(folder)
    assert changed["job_max_restarts"] == 1 and changed["job_timeout"] == 1800
    assert drill_settings.FOLDER.search(made.instead)


def test_a_folder_in_the_environment_is_moved_too_and_others_stay():
    job = {**JOB, "job_command": ["train"], "job_env": {"DIR": "/shared/mine", "N": 1, "OTHER": "/shared/mine-not"}}
    made, _ = drill_settings.read(job, GIVEN, ID)
    env = drill_settings.changes(made, job, "resumed")["job_env"]
    assert env == {"DIR": f"/shared/mine.drill-{ID}/stopped", "N": 1, "OTHER": "/shared/mine-not"}


def test_runs_have_folders_of_their_own_but_a_resumed_one_has_that_of_the_stopped():
    places = [drill_settings.changes(drill(), JOB, run)["job_checkpoints"] for run in drill_settings.RUNS]
    assert places[1] == places[2] and len(set(places)) == 4


def test_another_place_can_be_chosen():
    made = drill(drill_checkpoints="/scratch/me/")
    assert made.instead == f"/scratch/me/drill-{ID}"


def state(step=None, saved=False, **more):
    newest = {"name": "a"} if saved else None
    return {"metrics": {} if step is None else {"step": step}, "checkpoints": {"newest": newest}, "end": None, **more}


def test_a_run_without_a_kill_is_done_at_its_step():
    assert [goal.of_run(run, drill()) for run in ("stopped", "resumed")] == [(10, "", 0), (20, "", 0)]
    stopped = goal.of_run("stopped", drill())
    asked = [state(), state(9), state(10), state(3, end={"state": "failed"})]
    assert [goal.decide(stopped, each, False) for each in asked] == ["wait", "wait", "done", "done"]


def test_a_kill_needs_a_checkpoint_and_ends_when_the_next_attempt_has_made_its_steps():
    rank = goal.of_run("rank", drill())
    asked = [state(saved=True), state(9), state(4, True), state(5, True), state(20, True)]
    assert [goal.decide(rank, each, False) for each in asked] == ["wait", "wait", "wait", "kill", "done"]
    again = {"restarts": {"history": [{"first_step": 9.0}]}}
    none = {"restarts": {"history": [{"first_step": None}]}}
    asked = [state(21, True), state(21, True, **none), state(12, True, **again), state(20, True, **again)]
    assert [goal.decide(rank, each, True) for each in asked] == ["wait", "wait", "wait", "done"]


def test_a_program_of_which_nothing_is_read_is_noticed():
    assert goal.unread(state(printing={"unread": True, "text": ""}))
    assert not goal.unread(state(3, printing={"unread": True}))
    assert not goal.unread(state(printing=None))
