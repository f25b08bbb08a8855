"""A simulated training for drills: its state is one weight, and each batch moves it; what a defect loses is told."""

from __future__ import annotations

from ansible.module_utils.trainyard.job.drill import drill_settings

PLAN = {"job_id": "mine-1", "head": {"host": "n1"}, "stop": {"signal": "TERM", "grace_s": 30}}
JOB = {
    "job_name": "mine",
    "job_command": ["python", "train.py", "--checkpoints=/shared/mine"],
    "job_checkpoints": "/shared/mine",
    "job_max_restarts": 3,
}
GIVEN = {"drill_steps": 20, "drill_timeout": 1800}
KILLED = {"host": "n2", "ranks": [1], "processes": 1}


def drill(**changes):
    found, findings = drill_settings.read(JOB, {**GIVEN, **changes}, "20261126-101500-3f9c")
    assert findings == []
    return found


def losses(first, last, *, weight=None, batch=None, seed=0.0):
    """Return points of steps; `weight` and `batch` are the state at the first one, by default those of a run from 1."""
    points, state = [], 1.0
    for _ in range(1, (first if weight is None else weight)):
        state *= 0.9
    for step in range(first, last + 1):
        number = step if batch is None else batch + step - first
        noise = ((number * 7919 + int(seed * 1e6)) % 13) / 130
        points.append({"elapsed_s": float(step), "step": float(step), "loss": round(2 * state + noise * state, 6)})
        state *= 0.9
    return points


# When the job is stopped, in seconds since the epoch.
SIGNAL = 1795342500.0


def checkpoint(step, after_s=1.0, **more):
    """Return a checkpoint that was finished so many seconds after the signal."""
    made = {"name": f"step_{step:06}.pt", "step": step, "epoch": None, "time": SIGNAL + after_s, "size": 9}
    return {**made, **more}


def saving(after, **more):
    return {"signal": "TERM", "grace_s": 30.0, "asked": 2, "host": "n1", "rank": 0, "last_s": 0.4, "stayed": {},
            "before": None, "after": after, **more}  # fmt: skip


def run(name, points, **changes):
    summary = {"state": "stopped", "finished": SIGNAL, "failure": None, "restarts": [], "saving": None,
               "checkpoints": {"newest": None, "unfinished": None}}  # fmt: skip
    own = {"killed": None, "elsewhere": {}, "why": ""}
    own.update({key: changes.pop(key) for key in list(changes) if key in own})
    return {"run": name, "job_id": f"mine-{name}", "points": points, "summary": {**summary, **changes}, **own}


def killed(name, before, after, saved=8, **changes):
    first = after[0]["step"] if after else None
    cost = {"lost_s": 38.2, "lost_steps": 12.0, "detect_s": 0.4, "restart_s": 2.0, "step_s": 3.0}
    restart = {"checkpoint": checkpoint(saved)["name"], "first_step": first, **cost}
    return run(name, [*before, *after], killed=KILLED, restarts=[{**restart, **changes}],
               checkpoints={"newest": checkpoint(saved), "unfinished": None})  # fmt: skip


def runs(changes=None, resumed=None, again=None):
    """Return the runs of a healthy drill; `changes` are of run `stopped`, the others what follows after faults."""
    stopped = {
        "saving": saving("step_000012.pt"),
        "checkpoints": {"newest": checkpoint(12), "unfinished": None},
        **(changes or {}),
    }
    again = losses(9, 20) if again is None else again
    return [
        run("undisturbed", losses(1, 20)),
        run("stopped", losses(1, 12), **stopped),
        run("resumed", losses(13, 20) if resumed is None else resumed),
        killed("rank", losses(1, 10), again),
        killed("node", losses(1, 10), again),
    ]
