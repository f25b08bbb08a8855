"""Jobs where systemd cannot supervise: the same files, the same end. Scenarios give the place."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_jobs import WORKER, Play, ProcessTable

# By the monitors: torch itself would give up after ten minutes. How fast it is stands in benchmarks/ (failure).
ENDED_WITHIN_S = 120


@dataclass
class Place:
    """Where jobs run without systemd: variables and inventory of a launch there, and a look at each host."""

    play: Play
    variables: dict[str, Any]
    inventory: Path | None
    tables: dict[str, ProcessTable]
    jobs: str
    has_units: bool

    def __call__(self, playbook, *arguments, **extra_vars):
        return self.play(playbook, *arguments, inventory=self.inventory, **{**self.variables, **extra_vars})

    def left(self, job_id):
        return {host: pids for host, table in self.tables.items() if (pids := table.of_job(job_id))}


def test_a_job_runs_and_leaves_the_same_record(place):
    run = place("launch.yml", WORKER, job_command=["python3", "worker.py", "--steps", "10"]).expect(0)
    summary = run.summary
    assert summary["state"] == "succeeded"
    assert [process["exit_code"] for node in summary["nodes"] for process in node["processes"]] == [0, 0]
    for rank in range(2):
        assert f"rank {rank} of 2 pid " in run.log(rank)
        assert "step 10/10" in run.log(rank)
    assert place.left(run.job_id) == {}


def test_a_killed_rank_ends_the_others(place):
    run = place("launch.yml", WORKER).trains()
    host, table = list(place.tables.items())[-1]
    at = time.time()
    table.kill(table.rank(f"{place.jobs}/{run.job_id}", 1))
    run.shows(2, f"  rank 1 on {host} failed first: killed by SIGKILL")
    ended = [process["time"] for node in run.summary["nodes"] for process in node["processes"]]
    assert len(ended) == 2
    assert max(ended) - at < ENDED_WITHIN_S
    assert place.left(run.job_id) == {}


def test_stop_ends_a_detached_job(place):
    run = place("launch.yml", WORKER, job_wait=False).expect(0)
    assert set(place.left(run.job_id)) == set(place.tables)
    table = next(iter(place.tables.values()))
    assert bool(table.read_json(f"{place.jobs}/{run.job_id}/node_plan.json")["unit"]) == place.has_units
    place("playbooks/stop.yml", job_id=run.job_id).expect(0, f"Job {run.job_id} was stopped after")
    assert place.left(run.job_id) == {}


def test_a_killed_monitor_is_no_way_to_stay(place):
    """Its ranks live on for the moment; the other node ends its own, and stop ends those."""
    run = place("launch.yml", WORKER, job_wait=False).expect(0)
    table = list(place.tables.values())[-1]
    folder = f"{place.jobs}/{run.job_id}"
    table.kill(table.read_json(f"{folder}/monitor.json")["pid"])
    place("playbooks/stop.yml", job_id=run.job_id).expect(0, f"Job {run.job_id} was stopped")
    assert place.left(run.job_id) == {}
