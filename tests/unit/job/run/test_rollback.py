"""Which checkpoint is set aside, and when it gets its name back: nodes report, the head decides, by a fake clock."""

import itertools
import json
import signal

import pytest
from ansible.module_utils.trainyard.job.file.restart_settings import parse
from ansible.module_utils.trainyard.job.file.values import Values
from ansible.module_utils.trainyard.job.run.decide import restarts, rollback
from ansible.module_utils.trainyard.job.run.decide.head_state import cluster_state
from ansible.module_utils.trainyard.job.run.decide.orders import Inform
from ansible.module_utils.trainyard.job.run.decide.restarts import Restarts, gave_up, restart_text
from ansible.module_utils.trainyard.job.run.decide.rollback import Rollback, own_failure
from ansible.module_utils.trainyard.job.run.measure import checkpoints, goodput
from ansible.module_utils.trainyard.job.run.measure.checkpoints import History, Sample
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard.job.schedulers import parse as parse_job
from ansible.module_utils.trainyard.report.job_text import cause
from simulated_job import SimulatedJob, failed

ASSERTION = {"error": "KeyError: 'optimizer'", "stack": "job/train.py:12 main"}


class Job(SimulatedJob):
    """A job whose first node keeps checkpoints, and sets aside and restores as the head orders."""

    def __init__(self, *names, max_restarts=9, checkpoint_rollback=True, **plan):
        self.names, self.obeyed, self.refuse = list(names), {}, ""
        self.incomplete = set()
        super().__init__(
            max_restarts=max_restarts, checkpoints="saved", checkpoint_rollback=checkpoint_rollback, **plan
        )
        self.run(2)

    def report(self, host):
        found = super().report(host)
        return {**found, "checkpoints": self.found()} if host == "n1" else found

    def found(self):
        history = History()
        samples = [
            Sample(name, float(self.names.index(name)), 5, 1, "cut" if name in self.incomplete else "", True)
            for name in self.names
            if name not in self.incomplete
        ]
        history.add(samples, 0, 0.0, True)
        samples = [
            Sample(name, float(at), 5, 1, "cut" if name in self.incomplete else "", name not in self.incomplete)
            for at, name in enumerate(self.names)
        ]
        state = {**history.add(samples, 0, 0.0, True), "problem": ""}
        return {**state, "aside": self.obeyed} if self.obeyed else state

    def decide(self):
        orders = super().decide()
        self.informed = Inform() in orders
        return orders

    def _follow(self, host, message):
        messages.check_from_head(message, [], 100)
        order = message.get("aside")
        if host == "n1" and order and order["attempt"] != self.obeyed.get("attempt"):
            # All ranks have ended by then.
            assert all(self.ready_for[each] == message["attempts"] for each in ("n1", "n2"))
            assert self.informed
            self.obeyed = {"attempt": order["attempt"], "problem": self.refuse if order["checkpoints"] else ""}
            gone = {each["name"] for each in order["checkpoints"]} if not self.refuse else set()
            self.names = [name for name in self.names if name not in gone]
        super()._follow(host, message)

    def die(self, **how):
        """Have a rank of the second node fail by itself, or as `how` says, and the job go on for a while."""
        how = {"exit_code": 1, "signal": None, "result": "exit-code", **how}
        self.kill(**how)
        return self.run(30)

    def losses(self, *losses, first=101):
        """Have rank 0 print these losses, one a step."""
        pace = None
        for at, loss in enumerate(losses):
            pace = goodput.follow(pace, {"step": float(first + at), "loss": loss}, self.now - 1000 + at)
            self.changes["n1"] = {"pace": pace, "metrics": {"step": first + at, "loss": loss}, "progress_rank": 0}
            self.run(0.5)
        return self.run(2)

    @property
    def aside(self):
        return [entry.get("set_aside") and entry["checkpoint"] for entry in self.history]

    def state_of(self):
        return cluster_state(self.state, self.time())["checkpoints"]


def test_two_attempts_that_end_before_their_first_step_set_the_checkpoint_aside():
    job = Job("step_90.pt", "step_100.pt").die()
    assert job.aside == [None] and job.starts == [1]
    job.die()
    assert job.aside == [None, "step_100.pt"] and job.names == ["step_90.pt"] and job.starts == [1, 2]
    assert job.state_of()["aside"] == ["step_100.pt"] and "restored" not in job.state_of()
    text = "; checkpoint step_100.pt is set aside (.set-aside): 2 attempts ended before their first step"
    assert restart_text(job.history[-1]).endswith(text)
    assert "step 90, " in checkpoints.checkpoint_line(job.state_of(), 100.0)
    assert checkpoints.checkpoint_line(job.state_of(), 100.0).endswith("(step_100.pt is set aside)")
    # A step ends the trial: the checkpoint stays aside.
    job.losses(0.5, 0.4)
    assert job.state.restarts.rollback.trial == []
    job.die()
    assert not job.end and job.history[-1]["checkpoint"] == "step_90.pt"


def test_auto_does_not_end_the_job_before_and_does_without_rollback():
    job = Job("step_90.pt", "step_100.pt").die(**ASSERTION).die(**ASSERTION)
    assert not job.end and job.aside == [None, "step_100.pt"]
    job = Job("step_90.pt", "step_100.pt", checkpoint_rollback=False).die(**ASSERTION).die(**ASSERTION)
    assert "two attempts in a row" in job.end["failure"]["not_restarted"]
    (advice,) = (line for line in checkpoints.texts(job.state_of(), None) if "job_checkpoint_rollback" in line)
    assert advice.startswith("2 attempts in a row ended before their first step after checkpoint step_100.pt")
    assert advice.endswith("goes on from the one before, step_90.pt") and job.names == ["step_90.pt", "step_100.pt"]


def test_attempts_that_end_alike_without_it_end_the_job_and_restore_the_names():
    job = Job("step_80.pt", "step_90.pt", "step_100.pt")
    for _ in range(4):
        assert not job.end
        job.die(**ASSERTION)
    assert job.end["failure"]["rolled_back"] == "step_100.pt" and len(job.history) == 3
    (line,) = gave_up({"failure": job.end["failure"], "restarts": job.history, "max_restarts": 9})
    why = "attempts failed alike without checkpoint step_100.pt, which is not the cause"
    assert line == f"not started again: {why}"
    state = job.state_of()
    assert (state.get("aside"), state["restored"]) == (None, ["step_100.pt"])
    assert "has its name back" in checkpoints.texts(state, None)[-1]


def test_the_names_come_back_when_the_job_ends_before_a_step():
    job = Job("step_90.pt", "step_100.pt", max_restarts=2).die().die().die()
    assert job.end["state"] == "failed" and job.state_of()["restored"] == ["step_100.pt"]
    job = Job("step_90.pt", "step_100.pt").die().die()
    job.send("n2", {"stopped": True})
    assert job.state_of()["restored"] == ["step_100.pt"]
    job = Job("step_90.pt", "step_100.pt").die().die().losses(0.5)
    job.send("n2", {"stopped": True})
    assert "restored" not in job.state_of() and job.state_of()["aside"] == ["step_100.pt"]


def test_without_a_restart_left_nothing_is_set_aside():
    job = Job("step_90.pt", "step_100.pt", max_restarts=1).die().die()
    assert job.end and job.names == ["step_90.pt", "step_100.pt"] and not job.state.restarts.rollback.trial


def test_attempts_without_progress_end_the_job_only_when_no_checkpoint_is_suspect():
    killed = {"exit_code": None, "signal": int(signal.SIGKILL), "result": "signal"}
    job = Job("step_90.pt", "step_100.pt").die(**killed).die(**killed).die().die()
    assert not job.end and job.aside == [None, None, None, "step_100.pt"]
    # They are counted anew without it.
    job.die(**killed).die(**killed)
    assert not job.end
    assert job.die(**killed).end["failure"]["fruitless"] == 3


def test_a_rank_that_comes_back_alone_is_no_attempt():
    book = Restarts(9, 300.0, rolls_back=True)
    book.rollback.note({"last": {"name": "b", "time": 2.0, "size": 1, "complete": True, "before": "a"}})
    for at in (1.0, 2.0, 3.0):
        assert book.take([failed("n2", 1, recover_after_s=1)], at, at)
    assert not book.rollback.trial and not book.rollback.ended


def test_a_checkpoint_from_which_a_step_was_made_is_never_a_candidate():
    job = Job("step_90.pt", "step_100.pt").losses(0.5, 0.4).die()
    for _ in range(3):
        job.die()
    assert set(job.aside) == {None} and job.end and "restored" not in job.state_of()
    # Neither is it after a reboot of the head.
    job = Job("step_90.pt", "step_100.pt").losses(0.5, 0.4).die()
    saved = json.loads(json.dumps(cluster_state(job.state, job.time())))
    again = Rollback(True, saved["restarts"]["rollback"])
    assert again.began["name"] == "step_100.pt" and not again._may_go_back(False)


def test_a_program_that_loads_for_long_counts_if_it_printed_steps_before(monkeypatch):
    monkeypatch.setattr(restarts, "SHORT_S", 20.0)
    for losses, aside in (((), [None, None]), ((0.5,), [None, None, "step_110.pt"])):
        job = Job("step_90.pt", "step_100.pt").losses(*losses)
        job.names.append("step_110.pt")
        job.run(2)
        if losses:
            job.die()
        for _ in range(2):
            job.run(30).die()
        assert job.aside == aside


def test_without_one_before_it_nothing_is_set_aside():
    job = Job("step_100.pt")
    for _ in range(3):
        job.die()
    assert set(job.aside) == {None} and job.end["failure"]["fruitless"] == 3
    assert "suspect" not in job.state_of()


@pytest.mark.parametrize(
    "how",
    [
        {"exit_code": None, "signal": int(signal.SIGKILL), "result": "signal"},
        {"exit_code": 143},
        {"oom_kills": 1},
        {"lost": "Connection closed by peer"},
        {"full": True},
        {"exit_code": 0, "result": "success"},
        {"ranks": [], "process": "scheduler", "rank": None},
    ],
)
def test_a_failure_that_is_not_the_programs_own_breaks_the_row(how):
    assert not own_failure(failed("n2", 1, **how))
    book = Rollback(True)
    book.note({"last": {"name": "b", "time": 2.0, "size": 1, "complete": True, "before": "a"}})
    assert book.answer(failed("n2", 1), True, True) == rollback.AGAIN
    assert book.answer(failed("n2", 1, **how), True, True) == "" and book.ended == 0
    assert book.answer(failed("n2", 1), True, True) == rollback.AGAIN
    assert book.answer(failed("n2", 1), True, True) == rollback.BACK


def test_a_program_may_die_of_a_bad_checkpoint_by_a_signal():
    for how in ({"exit_code": None, "signal": int(signal.SIGSEGV)}, {"exit_code": 134}):
        assert own_failure(failed("n2", 1, **how))
    for kind in ("silent", "gone", "hung", "rebooted", "excluded"):
        assert not own_failure({"kind": kind, "host": "n2"})


def test_a_new_checkpoint_between_two_failures_begins_a_new_row():
    job = Job("step_90.pt", "step_100.pt").die()
    job.names.append("step_110.pt")
    job.run(2)
    job.die()
    assert job.aside == [None, None]
    job.die().die()
    assert job.aside == [None, None, None, "step_110.pt"]


def test_losses_that_are_no_numbers_set_the_checkpoint_aside_while_the_program_runs():
    job = Job("step_80.pt", "step_90.pt", "step_100.pt").losses(None, None)
    assert not job.history
    job.losses(None, None, None).run(20)
    assert job.aside == ["step_100.pt"] and job.history[0]["failure"]["kind"] == "not_a_number"
    assert job.history[0]["reason"] == "no loss after checkpoint step_100.pt is a number"
    # It may have saved several such.
    job.losses(None, None, None).run(20)
    assert job.aside == ["step_100.pt", "step_90.pt"] and job.names == ["step_80.pt"]
    job.losses(0.5, None, None, None).run(20)
    assert len(job.history) == 2 and job.state_of()["aside"] == ["step_100.pt", "step_90.pt"]


def test_one_attempt_that_ends_after_a_loss_that_is_no_number_is_enough():
    job = Job("step_90.pt", "step_100.pt").losses(None).die(exit_code=3)
    assert job.aside == ["step_100.pt"] and not job.end
    # A first line may have no mean as yet.
    job = Job("step_90.pt", "step_100.pt").losses(None, 0.5).die(exit_code=3)
    assert job.aside == [None]


def test_if_no_earlier_checkpoint_has_a_loss_that_is_a_number_all_get_their_names_back():
    names = [f"step_{number}0.pt" for number in range(1, 7)]
    job = Job(*names)
    for _ in range(rollback.MAX_ASIDE + 1):
        assert not job.end
        job.losses(None, None, None).run(20)
    assert job.end["failure"]["kind"] == "not_a_number"
    lines = cause({"failure": job.end["failure"], "nodes": []}, "/job")
    assert lines[0] == "no loss after checkpoint step_30.pt was a number"
    assert job.state_of()["restored"] == ["step_60.pt", "step_50.pt", "step_40.pt"]
    messages.check_from_head({"end": job.end}, [], 9)


def test_without_rollback_such_a_job_goes_on_and_the_report_advises_it():
    job = Job("step_90.pt", "step_100.pt", checkpoint_rollback=False).losses(None, None, None, None).run(20)
    assert not job.end and not job.history
    assert "no loss was a number after checkpoint step_100.pt" in checkpoints.texts(job.state_of(), None)[-1]
    job = Job("step_90.pt", "step_100.pt", max_restarts=0).losses(None, None, None, None).run(20)
    assert not job.end


def test_a_checkpoint_that_is_not_complete_goes_first():
    job = Job("step_80.pt", "step_90.pt", "step_100.pt")
    job.incomplete.add("step_100.pt")
    job.names.append("step_110.pt")
    job.incomplete.add("step_110.pt")
    job.die()
    # An attempt began with it.
    job.die().die()
    assert job.aside[-1] == "step_110.pt"
    job.die().die()
    assert job.aside[-1] == "step_100.pt"
    job.die().die()
    assert job.aside[-1] == "step_90.pt" and job.names == ["step_80.pt"]


def test_the_restart_waits_until_it_is_set_aside_and_goes_on_where_that_is_not_possible():
    job = Job("step_90.pt", "step_100.pt").die()
    job.refuse = "Permission denied"
    job.die()
    assert job.starts == [1, 2] and job.history[-1]["not_set_aside"] == "Permission denied"
    assert restart_text(job.history[-1]).endswith("which could not be set aside: Permission denied")
    assert "aside" not in job.state_of()
    job.die().die().die()
    assert job.end["failure"]["fruitless"] == 3 and "restored" not in job.state_of()


def test_a_node_that_does_not_answer_the_order_ends_the_restart_in_time():
    job = Job("step_90.pt", "step_100.pt", rejoin_s=60).die()
    job.found = lambda: {"newest": None, "unfinished": None, "last": None, "problem": ""}
    job.die().run(100)
    assert (job.end["failure"]["kind"], job.end["failure"]["host"]) == ("not_back", "n1")


def test_a_reboot_of_the_head_keeps_the_trial():
    job = Job("step_90.pt", "step_100.pt").die().die()
    saved = json.loads(json.dumps(cluster_state(job.state, job.time())))
    book = Rollback(True, saved["restarts"]["rollback"])
    assert [each["name"] for each in book.trial] == ["step_100.pt"] and not book.moving
    assert book.prepare(7, True, {}, {}) is False and book.order()["aside"]["checkpoints"][0]["before"] == "step_90.pt"


def test_what_an_attempt_has_loaded_is_never_a_file_that_is_being_written():
    history = History()
    names = ("step_1.pt", "step_2.pt", "step_3.pt.tmp")
    samples = [Sample(name, float(at), 5, 1, "", "tmp" not in name) for at, name in enumerate(names)]
    last = history.add(samples, 0, 0.0, True)["last"]
    assert (last["name"], last["complete"], last["before"]) == ("step_2.pt", True, "step_1.pt")
    # Nor a folder that `latest` does not name yet.
    samples[1] = samples[1]._replace(problem=checkpoints.NOT_NAMED, complete=False)
    assert History().add(samples, 0, 0.0, True)["last"]["name"] == "step_1.pt"
    # Files of all ranks are one checkpoint.
    samples = [Sample(f"step_{step}_rank{rank}.pt", step, 5, 1, "", True) for step in (1, 2) for rank in (0, 1)]
    assert history.add(samples, 0, 0.0, True)["last"]["before"].startswith("step_1_rank")


# ---- the job file


def found_in(**variables):
    given = {"job_checkpoint_rollback": True, "job_checkpoints": "saved", "job_max_restarts": 3, **variables}
    values = Values({name: value for name, value in given.items() if value is not None})
    parsed = parse(values, "ssh", "direct", "")
    return parsed, [(finding.check, finding.found) for finding in values.findings]


def test_rollback_needs_checkpoints_and_restarts():
    parsed, findings = found_in()
    assert parsed.checkpoint_rollback and not findings
    wrong = ("job_checkpoint_rollback", "true with no job_checkpoints")
    assert found_in(job_checkpoints=None)[1] == [wrong]
    assert found_in(job_checkpoints=None, job_max_restarts=0)[1] == [wrong]
    assert found_in(job_max_restarts=0)[1] == [("job_checkpoint_rollback", "true with job_max_restarts: 0")]
    place = "/data/rank_0/net-*.ckpt"
    assert found_in(job_checkpoints=place)[1] == [("job_checkpoint_rollback", f"true with job_checkpoints: {place}")]
    assert not found_in(job_checkpoint_rollback=False, job_max_restarts=0)[1]


def test_an_operator_refuses_it():
    given = {
        "job_name": "a",
        "job_command": ["python", "a.py"],
        "job_scheduler": "kubernetes",
        "job_launcher": "mpirun",
    }
    found = [(each.check, each.found) for each in parse_job({**given, "job_checkpoint_rollback": True})[1]]
    assert ("job_checkpoint_rollback", "true with an MPIJob") in found


def test_each_order_fits_its_shape():
    for trial in itertools.islice(itertools.count(), rollback.MAX_ASIDE + 1):
        each = {"name": "a", "time": 1.0, "size": 1, "before": "b", "later": False}
        order = {"attempts": {"": 1}, "go": False, "aside": {"attempt": 1, "checkpoints": [each] * trial}}
        messages.check_from_head(order, [], 3)
