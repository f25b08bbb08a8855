"""How a job goes on: nodes report, and the head decides. No process, no socket, no real time."""

import json
import signal

from ansible.module_utils.trainyard.job.run.decide import attempt_watch
from ansible.module_utils.trainyard.job.run.decide.attempt_watch import GRACE_S, JOIN_S
from ansible.module_utils.trainyard.job.run.decide.head_state import cluster_state
from ansible.module_utils.trainyard.job.run.decide.orders import End, Inform, PollCheckpoints
from ansible.module_utils.trainyard.job.run.logs.failures import failure_text
from ansible.module_utils.trainyard.job.run.wire import messages
from simulated_job import EPOCH_S, SimulatedJob, failed
from test_stacks import record as stack_record

ENDED = {"done": True, "ranks_running": 0}
HANG = {"after_s": 20, "first_s": 20, "pause_s": 20, "pause_pattern": ""}


# ---- the end of a job


def test_a_job_ends_once_all_ranks_have_ended_well():
    job = SimulatedJob().run(10)
    job.changes["n2"] = ENDED
    # A node whose ranks have ended may leave.
    job.silent.add("n2")
    job.step()
    job.send("n2", {"report": job.report("n2")})
    assert not job.run(60).end
    job.changes["n1"] = ENDED
    assert job.run(1).end["state"] == "succeeded"
    assert job.orders == [End(job.end)]


def test_a_process_without_ranks_keeps_no_job_alive_and_spoils_none():
    job = SimulatedJob().run(1)
    job.changes["n1"], job.changes["n2"] = {**ENDED, "rankless": 1}, ENDED
    assert not job.run(attempt_watch.RANKLESS_S - 1).end
    assert job.run(3).end["state"] == "succeeded"
    job = SimulatedJob().run(1)
    scheduler = failed("n1", 0, process="scheduler", ranks=[], rank=None)
    job.changes["n1"], job.changes["n2"] = {**ENDED, "failures": [scheduler]}, ENDED
    assert job.run(1).end["state"] == "succeeded"
    # While ranks run, its failure ends the job.
    job = SimulatedJob().run(1)
    job.changes["n1"] = {"failures": [scheduler]}
    assert job.run(3).end["failure"]["process"] == "scheduler"


def test_the_first_reason_of_an_end_stays():
    job = SimulatedJob().run(1)
    job.send("n2", {"stopped": True})
    job.send("n1", {"stopped": True, "goes_down": True})
    assert job.decide() == [End({"state": "stopped", "finished": job.time().epoch_s, "host": "n2"})]
    assert job.state.message_for("n2", job.time()) == {"end": job.end}
    job = SimulatedJob().run(1)
    job.send("n2", {"stopped": True, "goes_down": True})
    assert job.end["failure"] == {"kind": "rebooted", "host": "n2"}
    assert failure_text(job.end["failure"]) == "node n2: shut down or restarted"


def test_a_job_whose_time_is_up_ends_with_stacks_unless_it_restarts():
    job = SimulatedJob(timeout_s=50).run(60)
    assert (job.end["state"], job.end["after_s"], job.end["failure"]["limit"]) == ("timed_out", 50, "job_timeout")
    assert job.orders == [Inform(), End(job.end)]
    job = SimulatedJob(timeout_s=50, max_restarts=1).run(1)
    job.kill()
    job.stuck.add("n2")
    assert job.run(60).end == {"state": "timed_out", "finished": EPOCH_S + 50.5, "after_s": 50}


# ---- failures


def test_the_cause_may_be_reported_second():
    job = SimulatedJob().run(1)
    later, cause = failed("n1", 0, 10.2), failed("n2", 1, 10.0)
    job.changes["n1"] = {"failures": [later]}
    job.run(GRACE_S - 0.5)
    assert not job.end
    job.changes["n2"] = {"failures": [cause]}
    assert job.run(1).end["failure"] == cause
    assert sorted(each["rank"] for each in job.end["failures"]) == [0, 1]
    # When no rank runs, the head waits only for MindSpore's scheduler: it may name the worker that it misses.
    job = SimulatedJob().run(1)
    job.changes["n1"] = {**ENDED, "failures": [later], "rankless": 1}
    job.changes["n2"] = {**ENDED, "failures": [cause]}
    job.step()
    assert not job.end
    job.changes["n1"]["rankless"] = 0
    job.step()
    assert job.end["failure"] == cause


def test_a_node_that_went_off_is_the_cause_of_those_that_lose_its_ranks():
    """Its connection stays open, and its ranks' peers fail long before it counts as silent."""
    for more in ({"lost": "gloo: Connection reset by peer"}, {"error": "OSError: No route to host"}, {}):
        for budget in (0, 1):
            job = SimulatedJob(3, max_restarts=budget).run(5)
            job.silent.add("n3")
            job.run(3)
            job.changes["n1"] = {"failures": [failed("n1", 0, **more)], **ENDED}
            job.run(3)
            assert not job.end and not job.history
            job.run(15)
            cause = job.history[-1]["failure"] if budget else job.end["failure"]
            assert (cause["kind"], cause["host"]) == ("silent", "n3")
            assert cause["reason"].startswith("rank 0 on n1 then lost its peer: ")
    # A rank's own error needs no node's report; and a node that reports again was not the cause.
    job = SimulatedJob().run(5)
    job.silent.add("n2")
    job.run(3).changes["n1"] = {"failures": [failed("n1", 0, error="ValueError: no picture")]}
    assert job.run(3).end["failure"]["host"] == "n1"
    job = SimulatedJob().run(5)
    job.silent.add("n2")
    job.run(3).changes["n1"] = {"failures": [failed("n1", 0, lost="gloo: Connection reset by peer")]}
    job.run(3).silent.clear()
    assert job.run(3).end["failure"]["host"] == "n1"


def test_only_a_rank_that_was_killed_from_outside_is_blamed_at_once():
    """Survivors die of SIGABRT, and perhaps of SIGSEGV; an agent knows of no rank."""
    agent = {"rank": None, "ranks": [0, 1]}
    for number, changes in ((signal.SIGKILL, {}), (signal.SIGABRT, {}), (signal.SIGSEGV, {}), (signal.SIGKILL, agent)):
        job = SimulatedJob().run(1)
        job.changes["n1"] = {"failures": [failed("n1", 0, 10.0)]}
        job.changes["n2"] = {"failures": [failed("n2", 1, 10.1, exit_code=None, signal=int(number), **changes)]}
        job.step()
        assert bool(job.end) == (number == signal.SIGKILL and not changes)


# ---- nodes that are not there


def test_a_node_that_never_came_is_absent():
    job = SimulatedJob()
    job.silent.add("n2")
    assert not job.run(JOIN_S - 1).end
    assert job.run(2).end["failure"] == {"kind": "absent", "host": "n2", "after_s": 120}


def test_nodes_that_freeze_together_are_all_named_and_shown_before_they_are_given_up():
    job = SimulatedJob(5).run(10)
    for host in ("n2", "n3", "n5"):
        job.silent.add(host)
        job.run(0.5)
    job.run(12)
    assert job.held() == "no report from n2, n3, n5 for 12 to 14 s"
    failure = job.run(5).end["failure"]
    assert (failure["host"], failure["hosts"], failure["after_s"]) == ("n2", ["n2", "n3", "n5"], 16)
    assert failure_text(failure).startswith("nodes n2, n3, n5: ")
    messages.check_from_head({"end": job.end}, [], 0)


def test_a_head_that_was_suspended_does_not_take_the_others_for_silent():
    job = SimulatedJob().run(5)
    job.now += 14
    job.decide()
    assert not job.end
    # n2 reports again, then goes silent: now it is n2.
    job.run(2).silent.add("n2")
    assert job.run(17).end["failure"]["kind"] == "silent"
    # A node that left while the head was suspended is no cause.
    for suspended_s in (14, 16):
        job = SimulatedJob().run(5)
        job.silent.add("n2")
        job.now += suspended_s
        failure = job.run(20).end["failure"]
        assert (failure["kind"], failure["host"]) == ("frozen", "n1")


# ---- restarts


def test_a_failure_starts_the_whole_job_again_until_the_budget_is_used_up():
    job = SimulatedJob(max_restarts=2).run(5)
    for attempt in (1, 2):
        job.kill()
        job.changes["n1"] = {"metrics": {"step": attempt}}
        job.run(5)
        assert job.orders[-3:] == [PollCheckpoints(), Inform(), Inform()] and job.starts[-1] == attempt
        assert (job.history[-1]["restarted"], job.history[-1]["wait_s"]) == ("the whole job", 0)
    assert job.attempts == {"n1": {"": 2}, "n2": {"": 2}}
    record = job.kill()
    assert job.run(2).end["failure"] == {**record, "fruitless": 1}
    assert [entry["reason"] for entry in job.history] == ["rank 1 on n2: killed by SIGKILL"] * 2


def test_no_node_starts_before_all_have_ended_the_last_attempt():
    job = SimulatedJob(3, max_restarts=1).run(5)
    job.kill()
    job.stuck.add("n3")
    job.run(100)
    assert not job.starts and not job.end
    assert job.state.message_for("n1", job.time()) == {"attempts": {"": 1}, "go": False, "stacks": 0}
    job.stuck.clear()
    job.run(2)
    assert job.starts == [1] and job.state.restarts.gathering_since is None


def test_a_process_that_can_come_back_starts_again_alone():
    job = SimulatedJob(max_restarts=1).run(2)
    job.changes["n1"] = {"failures": [failed("n1", 0, process="scheduler", ranks=[], rank=None, recover_after_s=1)]}
    job.run(3)
    assert job.orders == [PollCheckpoints(), Inform()] and job.history[-1]["restarted"] == "scheduler"
    assert job.attempts == {"n1": {"": 0, "scheduler": 1}, "n2": {"": 0}}


def test_a_node_that_was_silent_may_come_back_for_a_restart_within_a_time():
    job, lost = (SimulatedJob(max_restarts=3, rejoin_s=100).run(2) for _ in range(2))
    for each in (job, lost):
        each.silent.add("n2")
        each.run(50)
        assert each.history[0]["failure"]["kind"] == "silent" and not each.end
    job.silent.clear()
    assert job.run(5).starts == [1]
    failure = lost.run(80).end["failure"]
    assert (failure["kind"], failure["hosts"], failure["after_s"]) == ("not_back", ["n2"], 100)


def test_a_head_that_rebooted_continues_from_its_record():
    job = SimulatedJob(spares=1, max_restarts=3, addresses={"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"})
    job.run(2).silent.add("n2")
    job.run(30)
    known = json.loads(json.dumps(cluster_state(job.state, job.time())))
    job = SimulatedJob(spares=1, max_restarts=3, addresses=job.plan["addresses"], previous=known)
    job.places["n3"] = 1
    job.silent.add("n2")
    job.connected.remove("n2")
    job.state.fail({"kind": "rebooted", "host": "n1"})
    job.run(8)
    assert job.orders == [PollCheckpoints(), Inform(), Inform()]
    assert (job.starts, job.history[-1]["wait_s"]) == ([2], 5.0)
    assert job.state.message_for("n3", job.time())["moved"] == {"10.0.0.2": "10.0.0.3"}


def test_a_node_that_cannot_write_what_a_restart_needs_ends_the_job():
    job = SimulatedJob(spares=1, max_restarts=1).run(2)
    job.silent.add("n2")
    job.stuck.add("n3")
    job.run(16)
    # A spare, before it has its place.
    problem = {"kind": "cannot_write", "host": "n3", "folder": "/jobs/x", "reason": "No space left on device"}
    job.changes["n3"] = {"cannot_write": problem}
    assert job.run(1).end["failure"] == problem


# ---- hangs


def prints(job, points, last="step 1 loss 0.5"):
    job.changes["n1"]["progress"] = {"lines": points, "points": points, "changes": 0, "pausing": False, "last": last}


def test_a_job_that_hangs_takes_stacks_and_then_fails_or_starts_again():
    for budget, end in ((0, "failed"), (1, None)):
        job = SimulatedJob(hang=HANG, max_restarts=budget).run(2)
        for points in range(1, 40):
            prints(job, points)
            job.run(1)
        assert Inform() not in job.orders
        job.run(25)
        assert Inform() in job.orders
        assert job.end.get("state") == end
        failure = job.history[0]["failure"] if budget else job.end["failure"]
        assert (failure["kind"], failure["after_s"]) == ("hung", 21)


def silence(job):
    return cluster_state(job.state, job.time())["silence"]


def test_a_silence_is_counted_until_the_job_ends_or_starts_again():
    for budget, then in ((0, "ends"), (1, "restarts")):
        job = SimulatedJob(hang=HANG, max_restarts=budget).run(2)
        # Steps take 2 s.
        for points in range(1, 6):
            prints(job, points)
            assert silence(job.run(2)) == ""
        told = {silence(job.run(1)) for _ in range(18)}
        assert told == {"", *(f"no new step for {number} s, {then} at 20 s" for number in range(10, 21))}
        # The nodes take the stacks of their ranks.
        job.stuck.update(job.hosts)
        assert silence(job.run(3)) == "no new step for 23 s, taking the stacks of all ranks"
        # It goes on.
        prints(job, 6)
        assert silence(job.run(1)) == ""
        job.changes["n1"] = job.changes["n2"] = ENDED
        assert silence(job.run(15)) == ""
    # Without the setting there is nothing to count to.
    job = SimulatedJob().run(2)
    prints(job, 1)
    assert silence(job.run(300)) == ""


def test_a_silence_before_the_first_step_counts_to_its_own_limit():
    job = SimulatedJob(hang={**HANG, "first_s": 600}).run(2)
    job.changes["n1"]["progress"] = {"lines": 1, "points": 0, "changes": 0, "pausing": False, "last": "Loading data"}
    assert silence(job.run(9)) == ""
    assert silence(job.run(25)) == "no step yet, no new line for 34 s, ends at 600 s"


def test_the_stacks_of_a_hang_are_kept_when_the_head_starts_again():
    job = SimulatedJob(hang=HANG).run(2)
    job.stuck.update(job.hosts)
    while not job.state.hang.number:
        job.run(1)
    assert cluster_state(job.state, job.time())["stacks"] is None
    for rank, host in enumerate(job.hosts):
        job.send(host, {"stacks": {"number": job.state.hang.number, "ranks": [stack_record(rank, "torch_all_reduce")]}})
    assert job.run(1).end
    known = cluster_state(job.state, job.time())
    assert [group["ranks"] for group in known["stacks"]["groups"]] == [[0, 1]]
    again = SimulatedJob(hang=HANG, previous={**known, "end": None})
    assert cluster_state(again.state, again.time())["stacks"] == known["stacks"]


def test_a_job_that_hangs_ends_without_the_stacks_of_a_stuck_node():
    job = SimulatedJob(hang=HANG).run(2)
    job.stuck.add("n2")
    job.run(35)
    assert job.state.hang.number == 1 and not job.end
    assert "no stacks within 20 s" in " ".join(job.run(10).end["failure"]["groups"])
    # Without the setting, no job hangs.
    assert not SimulatedJob().run(200).end


# ---- slow ranks


def counted(rank, **counts):
    return {"rank": rank, "device": "", "at": "", "looks": 0, "asleep": 0, "dumps": 0, "waited": 0, **counts}


def test_stacks_are_sampled_before_a_slow_rank_is_named():
    job = SimulatedJob(slow_ranks=True).run(2)
    while not job.state.slow_ranks.current and job.now < 1400:
        sampled = {"dumps": 4, "waited": 3} if job.state.slow_ranks.sample_stacks else {}
        slow = counted(1, looks=10, asleep=1, at="is in load (train.py:8)", **{**sampled, "waited": 0})
        job.send("n1", {"samples": {"ranks": [counted(0, looks=10, asleep=6, **sampled)], "node": []}})
        job.send("n2", {"samples": {"ranks": [slow], "node": ["load 9.1 (processors: 2)"]}})
        sampled = job.state.message_for("n2", job.time()).get("sample_stacks", False)
        assert sampled == job.state.slow_ranks.sample_stacks
        job.run(5)
    assert job.orders[:2] == [Inform(), Inform()]
    (named,) = cluster_state(job.state, job.time())["slow_ranks"]
    assert (named["host"], named["ranks"], named["node"]) == ("n2", [1], ["load 9.1 (processors: 2)"])


def test_a_spare_without_a_place_does_not_count():
    job = SimulatedJob(spares=1, slow_ranks=True).run(2)
    job.send("n3", {"samples": {"ranks": [counted(1, looks=20)], "node": []}})
    job.changes["n3"] = {"done": True, "failures": [failed("n3", 1)]}
    assert not job.run(5).end
    assert job.state.slow_ranks._sums.of == {}


def test_only_checkpoints_that_the_job_names_are_in_its_state():
    found = {"newest": None, "unfinished": None, "problem": "x"}
    for place, expected in (("", None), ("saved", {"place": "saved", "host": "n1", **found})):
        job = SimulatedJob(checkpoints=place)
        job.changes["n1"] = {"checkpoints": found}
        assert cluster_state(job.run(1).state, job.time())["checkpoints"] == expected


def test_orders_without_fields_differ():
    assert PollCheckpoints() != Inform()


# ---- progress


def progress(rank, points, step):
    counts = {"lines": points, "points": points, "changes": 0, "pausing": False, "last": ""}
    return {"progress": counts, "progress_rank": rank, "metrics": {"step": step}}


def test_the_lowest_of_the_ranks_that_print_progress_counts():
    job = SimulatedJob(nodes=3).run(1)
    job.changes["n3"] = progress(2, 9, 90)
    job.changes["n1"] = progress(0, 1, 7)
    job.run(1)
    state = cluster_state(job.state, job.time())
    assert (state["metrics"], state["progress_rank"]) == ({"step": 90}, 2)
    job.changes["n2"] = progress(1, 8, 80)
    job.run(1)
    assert cluster_state(job.state, job.time())["progress_rank"] == 1


def test_the_last_metrics_of_a_node_that_has_another_rank_now_hide_nobody():
    """n2 was rank 0 while n1 was left out, and prints nothing as rank 1."""
    job = SimulatedJob(nodes=3).run(1)
    job.changes["n2"] = progress(None, 0, 193)
    assert cluster_state(job.run(1).state, job.time())["metrics"] == {"step": 193}
    job.changes["n1"] = progress(0, 30, 200)
    state = cluster_state(job.run(1).state, job.time())
    assert (state["metrics"], state["progress_rank"]) == ({"step": 200}, 0)


def test_the_last_metrics_stay_while_a_spare_has_not_printed_any():
    job = SimulatedJob(nodes=2, spares=1, max_restarts=1).run(1)
    job.changes["n2"] = progress(1, 9, 90)
    job.run(1)
    job.silent.add("n2")
    job.connected.discard("n2")
    job.run(60)
    assert job.state.restarts.replaced == {"n2": "n3"}
    assert cluster_state(job.state, job.time())["metrics"] == {"step": 90}
    job.changes["n3"] = progress(1, 1, 91)
    job.run(1)
    assert cluster_state(job.state, job.time())["metrics"] == {"step": 91}
