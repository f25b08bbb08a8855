"""The watch of a job of Slurm: its nodes are asked while it runs, and Slurm before and after."""

from ansible.module_utils.trainyard_controller.job import watching
from test_watch import clock, known, plan

__all__ = ["clock"]


def test_the_nodes_of_an_allocation_are_asked_until_they_are_over_and_then_slurm_again(clock, tmp_path, monkeypatch):
    """A job that is in the queue again has no nodes; its next ones are asked from then on."""
    states = [("pending", 0), ("running", 0), ("running", 0), ("pending", 1), ("running", 1), ("succeeded", 1)]
    asked = []

    class Job:
        def __init__(self):
            self.plan = plan(0)

        def state(self, *, waits):
            state, run = states.pop(0)
            return {"state": state, "requeued": run, "line": f"slurm {state}"}

        def planned(self, state):
            return state["state"] == "running"

        def ask(self, question, own, shared=None, limit_s=120.0):
            asked.append(question)
            return {"n1": known(len(asked) not in (3, 4, 6), restarted=False)}

    monkeypatch.setattr(watching, "external_job", lambda *_: Job())
    job = watching.ExternalWatch({"engine": {"submit_host": "login"}}, tmp_path, None)
    lines = [job.read(2).get("line") for _ in range(6)]
    # The nodes answer twice and are over; Slurm still ends the job, and starts it again.
    assert lines == ["slurm pending", "l", "l", "", "slurm pending", "l"]
    assert (job.read(2)["state"], states) == ("succeeded", [])
