"""The next head of a job after the last one was lost, and heads that leave it to others, on a clock of our own."""

import json

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.decide.head_state import HeadState
from ansible.module_utils.trainyard.job.run.lead.succession import (
    SETTLE_S,
    Caller,
    Search,
    copy_shape,
    is_majority,
    voters,
    wins,
)
from ansible.module_utils.trainyard.job.run.lead.take_over import Hold, take_over
from ansible.module_utils.trainyard.job.run.wire import messages
from hypothesis import given
from hypothesis import strategies as st
from simulated_job import SimulatedJob

PATIENCE_S = 15
LOST = {"kind": "rebooted", "host": "n1"}


def simulated(nodes=3, spares=1, **settings):
    hosts = [f"n{number}" for number in range(1, nodes + spares + 1)]
    candidates = [[host, f"127.0.0.{number}"] for number, host in enumerate(hosts, 1)]
    return SimulatedJob(nodes, spares=spares, candidates=candidates, **{"max_restarts": 3, **settings})


def called(job, *hosts, term=0, at=0.0):
    return {host: Caller({**job.report(host), "term": term}, term, job.now + at) for host in hosts}


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20), min_size=1))
def test_two_majorities_always_share_a_voter(one, other, of):
    if is_majority(one, of) and is_majority(other, of):
        assert one & other & of


@pytest.mark.parametrize(
    ("callers", "term", "at", "leads"),
    [
        (("n3", "n4"), 0, -1.0, True),
        (("n3",), 0, -1.0, False),
        # They have called and left again, or one has followed a head that this node has never heard.
        (("n3", "n4"), 0, -8.0, False),
        (("n3", "n4"), 1, -1.0, False),
        # A replaced node votes no more.
        (("n3", "n9"), 0, -1.0, False),
    ],
)
def test_a_candidate_leads_once_a_majority_calls_that_knows_no_newer_head(callers, term, at, leads):
    job = simulated()
    copy = job.state.copy()
    assert voters(copy["restarts"]) == {"n1", "n2", "n3", "n4"}
    report = {host: Caller({}, term, job.now + at) for host in callers}
    assert wins("n2", copy, report, job.now, PATIENCE_S) is leads


def test_a_node_calls_the_candidates_in_turn_and_begins_anew_with_the_first():
    search = Search(["n1", "n2", "n3"])
    turns = []
    for _ in range(4):
        turns.append(search.target)
        search.go_on()
    assert turns == ["n1", "n2", "n3", "n1"] and search.target == "n2"
    search.begin()
    assert search.target == "n1"


def led_by(job, host, *callers, silent_s=16.0, **how):
    """The job as the new head has it, which has only what was sent to it."""
    copy = json.loads(json.dumps(job.state.copy()))
    assert not misfit(copy, copy_shape(job.hosts, 3))
    messages.check_from_head({**job.state.message_for(host, job.time())}, [], 3, job.hosts)
    job.silent.add(copy["head"])
    job.state = HeadState({**job.plan, "host": host, "node_rank": 1}, job.time(), copy)
    take_over(job.state, copy, called(job, *callers), silent_s, job.time(), **how)
    job.connected = set(callers)
    return job


def test_the_new_head_replaces_the_lost_one_and_starts_nothing_at_first():
    job = simulated().run(5)
    began = job.now
    job = led_by(job, "n2", "n3", "n4")
    assert job.state.term == 1
    job.run(SETTLE_S - 1)
    assert job.starts == [] and job.state.restarts.members == ["n4", "n2", "n3"]
    job.run(3)
    assert job.starts == [1] and job.now - began <= SETTLE_S + 3
    (restart,) = job.history
    assert restart["failure"] == {"kind": "silent", "host": "n1", "after_s": 16} and restart["spare"] == "n4"
    end = job.state.message_for("n1", job.time())["end"]
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", "n4")


def test_the_last_host_that_votes_leads_alone():
    """All others were replaced, so nobody calls it."""
    job = simulated(1, spares=2).run(5)
    for lost in ("n1", "n2"):
        job.state.restarts.history.append({"reason": "", "restarted": "", "elapsed_s": 1.0, "failure": LOST})
        assert job.state.restarts.replace(lost, {"n2", "n3"}, "lost", 1.0)
    assert wins("n3", job.state.copy(), {}, job.now, PATIENCE_S)
    assert led_by(job, "n3").state.term == 1


def test_nodes_that_call_later_are_not_taken_for_lost():
    job = led_by(simulated(4).run(5), "n2", "n3", "n5")
    job.silent.add("n4")
    job.run(2)
    job.silent.discard("n4")
    job.connected.add("n4")
    assert job.run(10).state.restarts.members == ["n5", "n2", "n3", "n4"] and job.starts == [1]


def test_without_a_spare_the_others_wait_for_the_node_that_led():
    job = led_by(simulated(3, spares=0, rejoin_s=60).run(5), "n2", "n3")
    assert job.run(30).starts == [] and not job.end
    job.silent.discard("n1")
    job.connected.add("n1")
    assert job.run(3).starts == [1]


def test_a_restart_that_the_lost_head_had_begun_as_it_was_replaced_goes_on():
    """A head without a place leads on until its ranks have ended, so nothing but its seat is lost."""
    job = simulated().run(5)
    job.kill("n1", 0)
    job.stuck = set(job.hosts)
    job.run(2)
    assert job.state.restarts.replace("n1", {"n4"}, "devices not free", 1.0)
    job.stuck.clear()
    job = led_by(job, "n2", "n3", "n4")
    job.run(SETTLE_S + 2)
    assert len(job.history) == 1 and job.starts == [1]


def test_what_the_nodes_run_counts_more_than_an_old_copy():
    job = simulated().run(5)
    job.attempts = {host: {"": 2} for host in job.hosts}
    job = led_by(job, "n2", "n3", "n4")
    job.run(SETTLE_S + 3)
    assert job.starts == [3]


@pytest.mark.parametrize(
    ("rebooted", "failure"),
    [(True, {"kind": "rebooted", "host": "n1"}), (False, {"kind": "no_majority", "host": "n1", "after_s": 16})],
)
def test_a_head_that_comes_back_leads_again(rebooted, failure):
    job = simulated(rejoin_s=60).run(5)
    job = led_by(job, "n1", "n2", "n3", rebooted=rebooted)
    job.silent.clear()
    job.run(SETTLE_S + 3)
    assert [each["failure"] for each in job.history] == [failure] and job.state.restarts.replaced == {}
    assert job.state.term == 1 and job.starts == [1]


def test_a_head_that_hears_no_majority_any_more_leads_no_more():
    job = simulated(4, spares=1).run(5)
    hold = Hold(job.state, job.now)
    assert not hold.lost(job.now)
    job.silent.update(("n4", "n5"))
    for _ in range(40):
        job.run(0.5)
        assert not hold.lost(job.now), "three of five are a majority"
    job.silent.add("n3")
    lost = []
    for _ in range(40):
        job.run(0.5)
        lost.append(hold.lost(job.now))
    assert lost.index(True) * 0.5 == pytest.approx(PATIENCE_S, abs=1.0) and all(lost[lost.index(True) :])


def test_a_head_whose_nodes_have_not_all_come_yet_leads_on():
    job = simulated()
    job.silent.update(("n2", "n3", "n4"))
    hold = Hold(job.state, job.now)
    job.run(60)
    assert not hold.lost(job.now)


def test_a_head_that_was_suspended_leads_no_more():
    job = simulated().run(5)
    hold = Hold(job.state, job.now)
    assert not hold.lost(job.now) and not hold.lost(job.now + 14)
    assert hold.lost(job.now + 14 + 16)


def test_a_head_that_cannot_be_replaced_never_leaves_its_place():
    job = SimulatedJob(2, max_restarts=1).run(5)
    hold = Hold(job.state, job.now)
    job.silent.add("n2")
    assert not any(hold.lost(job.run(1).now) for _ in range(30))
