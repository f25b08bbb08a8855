"""stop.yml at each moment of a launch: the launch ends, nothing of the job runs, and both say so."""

import json
import os

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard_controller.job import run_choice as known_runs
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible_run import without_slow_lines
from job_cluster import PATIENCE_S, wait_for
from job_samples import saved_plan
from test_interrupts import launch, play  # noqa: F401 (a fixture)


class Stop:
    """stop.yml in the background, for the job of a launch."""

    def __init__(self, run, *options, **named):
        given = {"trainyard_runs": str(run.runs), "trainyard_state": str(run.state), **named}
        self._screen = run.folder / "screen-of-stop"
        self.process = play("playbooks/stop.yml", run.folder / "inventory.yml", self._screen, given, *options)

    @property
    def said(self):
        return without_slow_lines(self._screen.read_text())

    def end(self):
        """Its exit status, and what it said."""
        return self.process.wait(PATIENCE_S), self.said


def of_launch(run):
    """The id of the job that is being launched, and its name."""
    [folder] = [path for path in run.runs.iterdir() if path.is_dir()]
    return folder.name, folder.name.rsplit("-", 3)[0]


def test_a_stopped_launch_that_checks_its_nodes_starts_nothing(launch):  # noqa: F811
    run = launch("true")
    wait_for(run.held.exists, "the first visit")
    job_id, name = of_launch(run)
    begin, end = f"Job {job_id} is not started yet: its launch", "before it starts anything."
    told = f"{begin} would be told, and end {end} next the same without --check"
    assert Stop(run, "--check", job_name=name).end() == (0, told)
    assert Stop(run, job_name=name).end() == (0, f"{begin} has been told, and ends {end}")
    run.hold.unlink()
    assert run.end() == 2
    assert f"Job {job_id} was stopped (playbooks/stop.yml) before anything of it was started." in run.said
    assert not run.state.exists() and process_table.of_job(job_id) == []
    # It is no run: nobody means it by the newest.
    with pytest.raises(UnusableError, match="No run at all"):
        known_runs.find(run.runs)
    with pytest.raises(UnusableError, match=f"No run {job_id} was started from"):
        known_runs.find(run.runs, job_id=job_id, must_name=True)


def test_while_nodes_start_the_job_stop_waits_and_ends_it(launch, tmp_path):  # noqa: F811
    runs = f"{tmp_path}/runs/*"
    run = launch(f"ls {runs}/plan.json >/dev/null 2>&1 && ! ls {runs}/not-started >/dev/null 2>&1")
    wait_for(run.held.exists, "the visit that starts the job")
    stop = Stop(run, job_name=of_launch(run)[1])
    waits = f"Job {run.job_id} is being started: waiting until its nodes have answered."
    wait_for(lambda: waits in stop.said, "a word of what it waits for")
    run.hold.unlink()
    status, said = stop.end()
    assert status == 0, said
    assert f"Job {run.job_id} was stopped after" in said and "no process of the job is left on here" in said
    assert run.end() == 2
    assert f"Job {run.job_id} was stopped after" in run.said
    assert process_table.of_job(run.job_id) == []


@pytest.fixture
def runs(tmp_path):
    def begun(number, **changes):
        folder = tmp_path / f"digits-2026112{number}-101500-3f9c"
        folder.mkdir()
        run_folder.prepare(folder, "digits", "launch.yml")
        mark = json.loads((folder / "not-started").read_text())
        (folder / "not-started").write_text(json.dumps({**mark, **changes}))
        return folder

    begun.folder = tmp_path
    return begun


def test_a_killed_launch_does_not_count(runs):
    runs(1, pid=2, start_time=-1)
    assert run_folder.launches(runs.folder) == []
    here = runs(2)
    # Whether it lives on another machine nobody can tell here.
    there = runs(3, pid=2, start_time=-1, machine="another")
    assert [each["job_id"] for each in run_folder.launches(runs.folder)] == [here.name, there.name]
    os.utime(there / "not-started", (0, 0))
    assert [each["job_id"] for each in run_folder.launches(runs.folder)] == [here.name]


def test_nothing_is_stopped_where_one_job_runs_and_another_starts(runs):
    with_plan = runs(1)
    plan = saved_plan(with_plan.name, {"n1": [0]}, created="2026-11-20T10:15:00+0000")
    (with_plan / "plan.json").write_text(json.dumps(plan))
    with run_folder.starting(with_plan):
        pass
    launched = runs(2)

    def ask(question, own, **_):
        assert (question, list(own)) == ("running", ["n1"])
        return {"n1": {"running": {with_plan.name: "2/2 ranks running"}}}

    with pytest.raises(UnusableError) as refused:
        known_runs.find(runs.folder, job_name="digits", must_name=True, ask=ask)
    assert f"{with_plan.name} runs since 2026-11-20T10:15:00+0000 on n1, 2/2 ranks running" in str(refused.value)
    assert f"{launched.name} is being launched since" in str(refused.value)
    found = known_runs.find(runs.folder, job_id=launched.name, must_name=True, ask=ask)
    assert (found["job_id"], found["launching"]) == (launched.name, True)
    # Only who stops means it.
    assert known_runs.find(runs.folder, job_name="digits", ask=ask)["job_id"] == with_plan.name


def test_the_first_of_start_and_stop_counts(runs):
    folder = runs(1)
    with run_folder.starting(folder):
        assert run_folder.launches(runs.folder) == []
    assert run_folder.stop_launch(folder) is False
    folder = runs(2)
    assert run_folder.stop_launch(folder) is True
    with pytest.raises(run_folder.StoppedError), run_folder.starting(folder):
        raise AssertionError("it starts all the same")
    assert (folder / "not-started").exists()
