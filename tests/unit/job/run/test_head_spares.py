"""When spares replace nodes, and when a restart waits for nodes: nodes report, and the head decides."""

import pytest
from ansible.module_utils.trainyard.job.run.decide.head_state import HELD_S, cluster_state
from ansible.module_utils.trainyard.job.run.decide.orders import Disconnect, Replace
from ansible.module_utils.trainyard.job.run.lead.take_over import Hold
from ansible.module_utils.trainyard.job.run.wire import messages
from simulated_job import SimulatedJob, failed


def test_a_spare_takes_the_place_of_a_lost_node_whose_connection_ends():
    job = SimulatedJob(3, spares=1, max_restarts=2).run(2)
    job.silent.add("n2")
    job.run(20)
    replaced = [order for order in job.orders if isinstance(order, Replace)]
    assert [(each.lost, each.spare) for each in replaced] == [("n2", "n4")]
    # A frozen node closes no connection, and the restart does not wait for it.
    assert job.starts == [1] and Disconnect("n2") in job.orders
    assert (job.places["n4"], job.state.restarts.members) == (1, ["n1", "n4", "n3"])
    assert cluster_state(job.state, job.time())["ranks_running"] == 3
    # The lost node comes back and has nothing to do any more.
    end = job.state.message_for("n2", job.time())["end"]
    assert end["failure"] == {"kind": "replaced", "host": "n2", "by": "n4"}
    messages.check_from_head({"end": end}, [], 2)
    # Also in the moment in which the job ends.
    job.state.finish("succeeded", job.time())
    assert job.state.message_for("n2", job.time())["end"]["failure"]["kind"] == "replaced"
    assert job.state.message_for("n3", job.time())["end"]["state"] == "succeeded"


def test_a_node_whose_rank_fails_twice_in_a_row_is_replaced_and_ends_its_ranks_first():
    job = SimulatedJob(spares=1, max_restarts=3).run(2)
    for _ in range(2):
        job.kill()
        job.run(5)
    assert [each.get("replaced") for each in job.history] == [None, "n2"]
    # n2 still has its connection: it has not ended its ranks.
    assert job.starts == [1]
    job.connected.remove("n2")
    assert job.run(1).starts == [1, 2]


def test_the_second_lost_node_ends_the_job_where_one_spare_is_left():
    job = SimulatedJob(3, spares=1, max_restarts=3, rejoin_s=10).run(2)
    for host in ("n2", "n3"):
        job.silent.add(host)
        job.connected.remove(host)
        job.run(40)
    assert (job.end["failure"]["kind"], job.end["failure"]["host"]) == ("not_back", "n3")


def test_a_spare_that_is_lost_first_ends_nothing_and_is_not_taken():
    job = SimulatedJob(spares=1, max_restarts=1, rejoin_s=10).run(2)
    job.silent.add("n3")
    assert not job.run(60).end
    job.silent.add("n2")
    assert job.run(60).end["failure"]["kind"] == "not_back" and not job.state.restarts.replaced


def restarting(nodes=2, **settings):
    """A job whose nodes have ended an attempt, and wait: none is ready for the next one."""
    job = SimulatedJob(nodes, max_restarts=1, **settings).run(2)
    job.stuck = set(job.hosts)
    job.kill("n1", 0)
    job.run(1)
    job.changes["n1"] = {}
    return job


FULL = {"reason": "disk: 3 MiB free in /jobs", "temporary": True}


@pytest.mark.parametrize(
    ("problem", "held"),
    [
        ({"held": "nvidia-smi: GPU is lost"}, "waits for its devices: "),
        ({"excluded": FULL}, "does not pass the health check: disk: 3 MiB free in /jobs"),
    ],
)
def test_a_node_that_may_become_fit_is_replaced_after_a_while(problem, held):
    job = restarting(spares=1, rejoin_s=100)
    job.changes["n2"] = problem
    job.run(HELD_S - 2)
    assert not job.state.restarts.replaced
    assert job.held().startswith(f"n2 {held}")
    job.run(3)
    assert job.state.restarts.replaced == {"n2": "n3"}


def test_a_head_whose_own_node_is_replaced_starts_nothing_and_leaves_that_to_another():
    job = restarting(spares=1, rejoin_s=100, candidates=[["n1", "127.0.0.1"], ["n2", "127.0.0.2"]])
    hold = Hold(job.state, job.now)
    assert not hold.lost(job.now)
    job.stuck = {"n1"}
    job.changes["n1"] = {"excluded": FULL}
    job.run(HELD_S + 2)
    assert job.state.restarts.members == ["n3", "n2"] and hold.lost(job.now)
    assert not job.run(20).starts


def test_a_failure_of_mpirun_is_of_the_node_that_has_the_rank():
    job = SimulatedJob(spares=1, max_restarts=2, ranks_of={"n2": [1]}).run(2)
    for host in ("n2", "n3"):
        job.changes["n1"] = {"failures": [failed("n1", 1, process="mpirun", ranks=[0, 1])], "done": True}
        job.run(3)
        assert job.history[-1]["failure"]["host"] == host, job.history
        job.state.restarts.replaced or job.state.restarts.replace("n2", {"n3"}, "lost", 1.0)
        job.places["n3"] = 1


@pytest.mark.parametrize("spares", [0, 1])
def test_a_node_that_stays_unfit_is_replaced_at_once_or_ends_the_job(spares):
    job = restarting(spares=spares, rejoin_s=1000)
    job.changes["n2"] = {"excluded": {"reason": "GPU ECC errors: GPU 1", "temporary": False}}
    job.step()
    if spares:
        assert job.state.restarts.replaced == {"n2": "n3"} and not job.end
        assert job.state.restarts.excluded["n2"]["reason"] == "GPU ECC errors: GPU 1"
    else:
        failure = {"kind": "excluded", "host": "n2", "reason": "GPU ECC errors: GPU 1", "after_s": None}
        assert job.end["failure"] == failure


def test_a_node_that_lost_a_link_or_has_another_time_gives_way_to_a_spare():
    job = restarting(3, spares=2, health_gate=True)
    ready = {"ready_for": {"": 1}}
    job.changes.update(n1=ready, n3={**ready, "suspect": "mlx5_0:1 lost its link 2 times"})
    job.changes["n2"] = {"time": job.time().epoch_s - 61}
    for _ in range(10):
        # A report that was long on its way tells nothing of the clock.
        job.changes["n2"]["time"] = job.time().epoch_s - 61
        job.step()
    assert job.state.restarts.replaced == {}, "another node may have more to report"
    job.changes["n2"].update(ready)
    job.step()
    assert job.state.restarts.replaced == {"n3": "n4", "n2": "n5"} and not job.state.restarts.go
    reasons = {host: each["reason"] for host, each in job.state.restarts.excluded.items()}
    assert reasons == {"n3": "mlx5_0:1 lost its link 2 times", "n2": "clock: -61 s from the median of the nodes"}
    # With fewer spares than such nodes, all continue.
    job = restarting(3, spares=1, health_gate=True)
    for host in ("n1", "n2", "n3"):
        job.changes[host] = {"ready_for": {"": 1}, "suspect": "eth0 lost its link 1 time"}
    job.step()
    assert job.starts == [1] and not job.state.restarts.replaced
