"""The folder of a drill on a node, and the watching of its runs by the controller."""

import zipfile
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.job.drill import drill_result
from ansible.module_utils.trainyard.job.drill.goal import Goal
from ansible.module_utils.trainyard_controller.job import drilling
from ansible.module_utils.trainyard_node.job.run import drill
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from drill_samples import PLAN

NAME = "mine.drill-20261126-101500-3f9c"
JOB = {**PLAN, "created": "2026-11-26T10:15:00+0000", "timeout_s": 1800, "job_dir": "/jobs/mine-1",
       "nodes": [{"host": "n1"}, {"host": "n2"}], "spares": [], "checkpoints": "/shared/x"}  # fmt: skip


def test_the_folder_of_a_drill_is_made_and_removed(tmp_path):
    folder = tmp_path / NAME
    assert drill.make(str(folder / "rank")) and not drill.make(str(folder / "rank"))
    assert drill.remove(str(folder)) and not folder.exists() and not drill.remove(str(folder))
    (tmp_path / "file").write_text("x")
    with pytest.raises(JobError, match="cannot be made: "):
        drill.make(str(tmp_path / "file" / NAME))


@pytest.mark.parametrize("name", ["mine", f"{NAME}/../mine", f"{NAME}/..", "drill"])
def test_no_other_folder_is_ever_removed(tmp_path, name):
    for each in ("mine", "drill", NAME):
        (tmp_path / each).mkdir()
    with pytest.raises(JobError, match="no folder of a drill"):
        drill.remove(f"{tmp_path}/{name}")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_link_in_its_place_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / NAME).symlink_to(tmp_path / "mine")
    assert not drill.remove(str(tmp_path / NAME)) and (tmp_path / "mine").exists()


def test_the_newest_checkpoints_are_named_without_torn_ones(tmp_path):
    assert drill.newest(str(tmp_path / "none")) == []
    for step in (4, 8):
        with zipfile.ZipFile(tmp_path / f"step_{step}.pt", "w") as archive:
            archive.writestr("x", "y")
    (tmp_path / "step_12.pt").write_bytes((tmp_path / "step_8.pt").read_bytes()[:-30])
    (tmp_path / "step_16.tmp").write_text("x")
    assert sorted(drill.newest(str(tmp_path))) == ["step_4.pt", "step_8.pt"]


def test_newer_checkpoints_on_other_nodes_are_found():
    names = {"n1": ["step_8.pt"], "n2": ["step_8.pt", "step_12.pt"], "n3": ["step_4.pt"], "n4": []}
    assert drill_result.elsewhere(names, "n1") == {"n2": "step_12.pt"}
    assert drill_result.elsewhere({"n1": [], "n2": ["epoch-0003.pt"]}, "n1") == {"n2": "epoch-0003.pt"}


class Nodes:
    """Answers queries with states of the head, one after the other; the last one stays."""

    def __init__(self, *states, **answers):
        self.states, self.answers, self.asked = list(states), answers, []

    def __call__(self, question, own, shared=None, limit_s=0):
        self.asked.append((question, own))
        if question == "state":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return dict.fromkeys(own, state)
        return dict.fromkeys(own, self.answers[question])


def state(step=None, alive=True, **cluster):
    metrics = {} if step is None else {"step": step}
    return {"known": True, "monitor_alive": alive, "line": f"step {step}", "cluster": {"metrics": metrics, **cluster}}


def watched(nodes, goal, interrupted=lambda: False):
    lines = []
    return drilling.watch(JOB, goal, nodes, lines.append, interrupted), lines


def test_a_run_is_watched_until_its_step_or_its_end():
    assert watched(Nodes(state(), state(3), state(10)), Goal(10))[0] == {"killed": None, "why": ""}
    assert watched(Nodes(state(3, alive=False)), Goal(10))[0] == {"killed": None, "why": ""}


def test_an_interrupt_ends_the_watching():
    assert watched(Nodes(state(3)), Goal(10), lambda: True)[0]["why"] == "interrupted"


def test_a_silent_head_is_asked_as_long_as_the_run_may_live(monkeypatch):
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=lambda s: passed.append(passed.pop() + s))
    monkeypatch.setattr(drilling, "time", clock)
    monkeypatch.setattr(drilling, "may_live_until", lambda plan: float(plan["timeout_s"]))
    silent = {"msg": "no route"}
    assert watched(Nodes(*[silent] * 99, state(10)), Goal(10))[0] == {"killed": None, "why": ""}
    assert watched(Nodes(silent), Goal(10))[0]["why"] == "no answer of n1: no route" and passed[0] > 1800


def test_a_program_of_which_nothing_is_read_is_given_up(monkeypatch):
    monkeypatch.setattr(drilling, "UNREAD_S", -1.0)
    found = watched(Nodes(state(printing={"unread": True, "text": ""})), Goal(10))[0]
    assert found["why"] == "no progress is read of what the program prints"


def test_ranks_of_the_last_node_are_killed_once_there_is_a_checkpoint():
    saved = {"checkpoints": {"newest": {"name": "a"}}}
    again = {**saved, "restarts": {"history": [{"first_step": 5.0}]}}
    nodes = Nodes(
        state(6), state(6, **saved), state(7, **saved), state(20, **again), kill={"ranks": [2, 3], "processes": 5}
    )
    found, lines = watched(nodes, Goal(20, "node", 5))
    assert found == {"killed": {"host": "n2", "ranks": [2, 3], "processes": 5}, "why": ""}
    assert [own for question, own in nodes.asked if question == "kill"] == [
        {"n2": {"job_id": "mine-1", "job_dir": "/jobs/mine-1", "every": True}}
    ]
    assert "  killed on n2: 5 processes (ranks 2, 3)" in lines


def test_a_kill_that_finds_no_rank_ends_the_run():
    saved = {"checkpoints": {"newest": {"name": "a"}}}
    found = watched(Nodes(state(6, **saved), kill={"ranks": [], "processes": 0}), Goal(20, "rank", 5))[0]
    assert found == {"killed": None, "why": "no rank was found on n2"}


def test_a_folder_that_cannot_be_made_is_a_finding_of_its_node():
    nodes = Nodes({}, make_folder={"failed": True, "msg": "/x cannot be made: Permission denied"})
    findings = drilling.make_folder(JOB, "/x", "train", nodes)
    assert [(finding.host, finding.found) for finding in findings] == [
        (host, "/x cannot be made: Permission denied") for host in ("n1", "n2")
    ]
    assert drilling.remove_folder(JOB, "/x", "train", Nodes({}, remove_folder={"msg": "no"})) == ["n1: no", "n2: no"]
