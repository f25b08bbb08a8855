"""When a job goes on with fewer nodes, and takes them back: nodes report, and the head decides."""

import json

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.record import events
from ansible.module_utils.trainyard.job.run.decide.head_state import HELD_S, HeadState, cluster_state
from ansible.module_utils.trainyard.job.run.decide.remaining_nodes import Fewer, world_sizes
from ansible.module_utils.trainyard.job.run.decide.restarts import restart_text, take_back
from ansible.module_utils.trainyard.job.run.lead.succession import copy_shape
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard.job.run.wire.messages import BadMessage
from simulated_job import SimulatedJob

ECC = {"reason": "GPU ECC errors: GPU 1", "temporary": False}
FULL = {"reason": "disk: 3 MiB free in /jobs", "temporary": True}


def lose(job, *hosts):
    """Have nodes vanish at the same time."""
    job.silent.update(hosts)
    job.connected -= {*hosts}


def state(job):
    return cluster_state(job.state, job.time())


def started(nodes=4, min_nodes=2, **settings):
    return SimulatedJob(nodes, min_nodes=min_nodes, max_restarts=5, **{"rejoin_s": 30, **settings}).run(2)


def test_a_job_goes_on_without_a_node_that_does_not_come_back_and_takes_it_back_at_the_next_restart():
    job = started()
    lose(job, "n3")
    job.run(40)
    assert job.starts == [] and job.held() == "no report from n3 for 40 s"
    job.run(15)
    assert job.starts == [1] and job.state.restarts.members == ["n1", "n2", "n4"]
    assert state(job)["world_size"] == state(job)["ranks_running"] == 3
    assert list(state(job)["nodes"]) == ["n1", "n2", "n4", "n3"]
    for host in ("n1", "n2", "n4"):
        assert job.state.message_for(host, job.time())["absent"] == [2]
    assert job.state.restarts.excluded["n3"]["reason"].startswith("node n3: no report for ")
    # It comes back, has nothing to run, and interrupts nothing.
    job.silent.clear()
    job.connected.add("n3")
    job.run(60)
    assert job.starts == [1] and job.left == {"n3"} and state(job)["ranks_running"] == 3
    job.kill("n2", 1)
    job.run(10)
    assert job.starts == [1, 2] and job.state.restarts.members == ["n1", "n2", "n3", "n4"]
    assert state(job)["world_size"] == state(job)["ranks_running"] == 4 and job.left == set()
    assert "absent" not in job.state.message_for("n3", job.time()) and job.state.restarts.excluded == {}
    first, second = job.history
    assert (first["left_out"], first["world_size"], first["nodes"]) == (["n3"], 3, 3)
    assert (second["back"], second["world_size"], second["nodes"]) == (["n3"], 4, 4)
    text = restart_text(first)
    assert "; the job goes on without n3: 3 ranks on 3 nodes (node n3: no report for " in text
    assert restart_text(second).endswith("; n3 takes part again: 4 ranks on 4 nodes")
    sizes = [(each["world_size"], each["nodes"]) for each in world_sizes(4, 4, job.history)]
    assert sizes == [(4, 4), (3, 3), (4, 4)]


def test_a_host_of_an_allocation_whose_program_has_ended_is_not_waited_for():
    """No scheduler starts it again; one that is frozen or cut off closes no connection, and may be back."""
    job = started(rejoin_s=300, started_once=True)
    lose(job, "n3")
    job.run(25)
    assert job.starts == [1] and job.history[0]["left_out"] == ["n3"]
    job.silent.add("n2")
    job.run(100)
    assert job.starts == [1] and job.held() == "no report from n2 for 100 s"
    # Where it is needed, a broken connection is not yet the end.
    needed = started(min_nodes=0, rejoin_s=300, started_once=True)
    lose(needed, "n3")
    assert not needed.run(100).end


def test_a_host_of_an_allocation_that_goes_down_is_left_out_once_it_has_left():
    job = started(rejoin_s=300, started_once=True)
    job.changes["n3"] = {"ready_for": None}
    job.stuck.add("n3")
    job.send("n3", {"stopped": True, "goes_down": True})
    job.run(1)
    assert not job.state.restarts.go and job.state.restarts.fewer.left_out == {}
    lose(job, "n3")
    job.run(1)
    assert list(job.state.restarts.fewer.left_out) == ["n3"]


def test_a_node_that_is_back_in_time_is_not_left_out():
    job = started()
    lose(job, "n3")
    job.run(30)
    job.silent.clear()
    job.connected.add("n3")
    job.run(20)
    assert job.starts == [1] and job.state.restarts.members == job.hosts and world_sizes(4, 4, job.history) == []


@pytest.mark.parametrize(("min_nodes", "goes_on"), [(0, False), (2, True), (3, False)])
def test_only_as_many_nodes_may_be_missing_at_a_time(min_nodes, goes_on):
    job = started(min_nodes=min_nodes)
    lose(job, "n2", "n4")
    job.run(60)
    if goes_on:
        assert job.starts == [1] and job.state.restarts.fewer.left_out == {"n2": 1, "n4": 3}
        assert job.history[0]["left_out"] == ["n2", "n4"]
    else:
        assert job.end["failure"]["kind"] == "not_back" and job.end["failure"]["hosts"] == ["n2", "n4"]


def test_the_last_nodes_count_over_several_restarts():
    job = started(min_nodes=3)
    lose(job, "n2")
    job.run(60)
    lose(job, "n3")
    assert job.run(60).end["failure"]["host"] == "n3" and job.starts == [1]


def test_a_node_that_stays_unfit_is_left_out_at_once_and_one_that_may_become_fit_after_a_while():
    job = started(rejoin_s=100)
    job.stuck = set(job.hosts)
    job.kill("n1", 0)
    job.run(1)
    job.changes.update(n1={}, n2={"excluded": ECC}, n3={"excluded": FULL}, n4={"held": "nvidia-smi: GPU is lost"})
    job.step()
    assert job.state.restarts.fewer.left_out == {"n2": 1}
    assert job.history[0]["why"] == "GPU ECC errors: GPU 1" and not job.end
    job.run(HELD_S + 10)
    assert not job.state.restarts.go
    job.changes["n4"] = {"ready_for": {"": 1}}
    job.changes["n1"] = {"ready_for": {"": 1}}
    job.run(100)
    assert job.state.restarts.fewer.left_out == {"n2": 1, "n3": 2} and job.starts == [1]
    assert job.history[0]["left_out"] == ["n2", "n3"]
    # n2 does not follow: it is not taken back by the next restart.
    job.changes["n2"] = {}
    job.stuck = {"n2", "n3"}
    job.run(2)
    job.kill("n4", 3)
    job.run(5)
    assert job.starts == [1, 2] and job.state.restarts.members == ["n1", "n4"]


def without_the_first(first):
    """A job whose first node does not pass the health check before a restart; `first` may be first instead of it."""
    job = started(rejoin_s=100, addresses={f"n{number}": f"10.0.0.{number}" for number in range(1, 5)})
    job.state.restarts.fewer = Fewer({**job.plan["fewer"], "first": first})
    job.stuck = set(job.hosts)
    job.kill("n2", 1)
    job.run(1)
    job.changes["n1"] = {"excluded": ECC}
    job.step()
    return job


def test_the_first_node_is_left_out_if_the_next_one_can_be_the_first():
    job = without_the_first(["n2"])
    assert job.state.restarts.members == ["n2", "n3", "n4"] and not job.end
    message = job.state.message_for("n3", job.time())
    assert (message["absent"], message["moved"]) == ([0], {"10.0.0.1": "10.0.0.2"})
    # Its monitor leads the job all the same.
    assert cluster_state(job.state, job.time())["head"] == "n1"
    take_back(job.state.restarts, ["n1"])
    message = job.state.message_for("n3", job.time())
    assert "absent" not in message and message["moved"] == {}


def test_a_first_node_that_no_other_can_follow_is_never_left_out():
    job = without_the_first(["n3"])
    assert (job.end["failure"]["kind"], job.end["failure"]["host"]) == ("excluded", "n1")


def test_spares_are_used_first_and_a_spare_is_left_out_as_any_other_node():
    job = started(3, min_nodes=1, spares=1)
    lose(job, "n2")
    job.run(20)
    assert job.state.restarts.replaced == {"n2": "n4"} and job.places["n4"] == 1
    lose(job, "n4")
    job.run(60)
    assert job.state.restarts.members == ["n1", "n3"] and job.state.restarts.fewer.left_out == {"n4": 1}
    # The places of others do not change by that.
    assert job.state.restarts.fewer.absent == [1] and job.starts == [1, 2]
    job.silent.discard("n4")
    job.connected.add("n4")
    # Without a new step, the third attempt would end the job.
    job.changes["n1"] = {"metrics": {"step": 1.0}}
    job.run(5)
    job.kill("n3", 2)
    job.run(5)
    assert job.state.restarts.members == ["n1", "n4", "n3"] and job.state.restarts.place("n4") == 1


def test_a_head_that_comes_back_knows_who_is_left_out():
    job = started()
    lose(job, "n3")
    job.run(60)
    again = SimulatedJob(4, previous=state(job), min_nodes=2, max_restarts=5)
    assert again.state.restarts.fewer.left_out == {"n3": 2} and again.state.restarts.members == ["n1", "n2", "n4"]
    assert state(again)["world_size"] == 3


def test_the_rest_has_its_time_after_a_node_was_left_out():
    """A step that a restart takes once all have ended must not fail because others took their time."""
    job = started(checkpoint_rollback=True)
    asked = []
    job.state.restarts.rollback.prepare = lambda attempt, ended, *_: asked.append(ended) or asked.count(True) > 5
    lose(job, "n3")
    job.run(60)
    assert job.starts == [1] and not job.end


def test_who_is_left_out_may_only_be_places_of_the_plan():
    orders = {"attempts": {"": 1}, "go": True}
    messages.check_from_head({**orders, "absent": [0, 3]}, [], 2)
    for absent in ([-1], ["n2"], 1, [1.5], [True]):
        with pytest.raises(BadMessage):
            messages.check_from_head({**orders, "absent": absent}, [], 2)


def test_events_and_metrics_have_the_present_size():
    job = started()
    lose(job, "n3")
    job.run(60)
    change = ("progress", "x", {})
    event = events.event(change, state(job), 1.0)
    assert (event["world_size"], event["nodes"]) == (3, 3)


def test_another_head_knows_who_is_left_out():
    job = started(candidates=[[f"n{number}", f"127.0.0.{number}"] for number in range(1, 5)])
    lose(job, "n3")
    job.run(60)
    copy = json.loads(json.dumps(job.state.copy()))
    assert copy["restarts"]["left_out"] == {"n3": 2} and not misfit(copy, copy_shape(job.hosts, 5))
    for wrong in ({"n9": 2}, {"n3": -1}, {"n3": "2"}, [2]):
        assert misfit({**copy, "restarts": {**copy["restarts"], "left_out": wrong}}, copy_shape(job.hosts, 5))
    assert HeadState({**job.plan, "host": "n2", "node_rank": 1}, job.time(), copy).restarts.fewer.absent == [2]
