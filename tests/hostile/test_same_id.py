"""Two controllers that know nothing of each other launch in the same second: neither ends what the other started."""

import itertools
import json
import re

import pytest
from ansible.module_utils.trainyard_controller.job import collecting
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_samples import make_job, make_plan, member
from test_job_folders import ask, job_id, start  # noqa: F401 (a fixture)


def test_two_controllers_make_different_ids_that_sort_by_time(tmp_path, monkeypatch):
    stamps = itertools.chain(["20261120-101500"] * 20, ["20261120-101501"] * 20)
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: next(stamps))
    made = [run_folder.new_run(tmp_path / f"controller{number % 2}", "digits")[0] for number in range(40)]
    # By chance two of them are equal once in 170 times; then the one that starts second is refused (below).
    assert len(set(made)) >= 38
    assert all(re.fullmatch(r"digits-20261120-10150[01]-[0-9a-f]{4}", each) for each in made)
    assert [each[:22] for each in sorted(made)] == [each[:22] for each in made]


@pytest.fixture
def winner(place, job_id):  # noqa: F811
    """The folder of a job that another launch has started here."""
    assert start(place, job_id)["monitor_alive"]
    yield place.jobs / job_id
    ask("remove", job_id=job_id, job_dir=place.jobs / job_id)


def launched(run_dir, place, job_dir, answers):
    """Have a launch collect at its end, whose nodes gave these answers when it started its job."""
    plan = make_plan(make_job(), [member(number) for number in range(len(answers))]).as_dict()
    plan = json.loads(
        json.dumps({**plan, "job_id": job_dir.name, "job_dir": str(job_dir), "created": "2026-11-20T10:15:00+0000"})
    )
    not_started = {host: answer for host, answer in answers.items() if "known" not in answer}
    asked = []

    def visit(question, own, **_):
        asked.extend(own)
        return {host: ask(question, **arguments) for host, arguments in own.items()}

    run_dir.mkdir()
    (run_dir / "plan.json").write_text(json.dumps(plan))
    wanted = collecting.Request(log_limit=1 << 20, purpose="end", stop=True, user=place.user, not_started=not_started)
    return asked, collecting.collect(plan, run_dir, visit, wanted)["answers"]


def test_a_launch_whose_id_is_taken_ends_nothing(place, winner, tmp_path):
    refused = start(place, winner.name)
    assert refused["failed"] and refused["taken"]
    assert refused["msg"] == (
        f"{winner}/hosts/n1 is another launch's, or its processes run here: expected a new job id; launch again"
    )
    # n2 has not answered: what it runs may as well be the other launch's.
    gone = {"unreachable": True, "msg": "timed out"}
    asked, answers = launched(tmp_path / "run", place, winner, {"n1": refused, "n2": gone})
    assert asked == []
    assert answers == {"n1": refused, "n2": gone}
    assert job_life.all_alive([winner / "hosts/n1"])
    assert len(process_table.of_job(winner.name)) == 2


def test_a_launch_ends_what_it_started_itself(place, winner, tmp_path):
    taken = {"failed": True, "msg": "it is another launch's", "taken": True}
    asked, answers = launched(tmp_path / "run", place, winner, {"n1": {"known": True}, "n2": taken})
    assert asked == ["n1"]
    assert (answers["n1"]["changed"], answers["n1"]["left"], answers["n2"]) == (True, 0, taken)
    assert process_table.of_job(winner.name) == []


def test_a_launch_ends_what_silent_nodes_may_have_started(place, winner, tmp_path):
    """No node says that the id is taken."""
    asked, _ = launched(tmp_path / "run", place, winner, {"n1": {"failed": True, "msg": "no answer within 180 s"}})
    assert asked == ["n1"]
    assert process_table.of_job(winner.name) == []


def test_processes_of_another_launch_below_another_folder_are_not_ended(place, winner):
    """Units and environments know a job by its id alone, whatever trainyard_state is."""
    other = place.state / "other" / "jobs"
    place.does(lambda: other.mkdir(parents=True))
    given = json.loads((winner / "hosts/n1/node_plan.json").read_text())
    part = {**given, "job_dir": str(other / winner.name)}
    empty = {"source_archive": "", "secret_env": {}, "secret_files": {}, "token": "t", "files": []}
    answer = ask("start", node_plan=part, user=place.user, **empty)
    assert answer["failed"] and answer["taken"]
    assert not (other / winner.name).exists()
    assert job_life.all_alive([winner / "hosts/n1"])
