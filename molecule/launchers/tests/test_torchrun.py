"""A rank under torchrun's agents: one that is killed, and one that fails and starts again."""

from lab_jobs import AGENTS


def test_a_killed_rank_is_named_and_ends_the_job_everywhere(play, nodes, scheduler, left):
    run = play.launch(AGENTS, **scheduler, job_nodes=2)
    nodes["n2"].kill_rank(run.trains().job_id, 1)
    run.names_killed(1, "n2")
    assert left(run.job_id) == {}


def test_torchrun_starts_a_failed_rank_again(play, scheduler, left):
    command = ["python3", "worker.py", "--steps", "10", "--raise-on", "1", "--once"]
    run = play.launch(AGENTS, **scheduler, job_nodes=2, job_max_restarts=1, job_command=command).expect(0)
    assert run.summary["state"] == "succeeded"
    for rank in range(2):
        first, again, second = run.log(rank).partition("--- started again ---")
        assert again
        assert "step 10/10" not in first
        assert "step 10/10" in second
    assert "ValueError: no picture for step 5" in run.log(1)
    assert left(run.job_id) == {}
