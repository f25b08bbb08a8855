"""Files of runs that are damaged: each reader gives a finding or its usual result, and the other runs stay usable."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard.job.plan.plan import describe, node_plans
from ansible.module_utils.trainyard.job.run.logs import log_lines
from ansible.module_utils.trainyard.job.schedulers.plan_shape import TO_START
from ansible.module_utils.trainyard_controller.job import (
    cleaning,
    collecting,
    debug_files,
    drilling,
    heads,
    run_choice,
    run_overview,
)
from ansible.module_utils.trainyard_controller.job.reporting import report
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_controller.runs.saved_state import read_plan, read_record
from ansible.module_utils.trainyard_controller.verify import measurements
from damage import damaged
from job_samples import make_job, make_plan, member

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES / "reports"))

from composed_job import hung, summary  # noqa: E402

GOOD = "digits-20261120-101500"
BAD = "digits-20261120-101501"
SCHEDULERS = {
    "slurm": {"shared": False, "user": "train", "stop_grace_s": 30},
    "kubernetes": {
        **dict.fromkeys(("api_version", "name", "namespace", "kubeconfig", "context", "container", "operator"), "x"),
        **{"resource": "Job", "pods": 2, "ranks_per_pod": 1},
    },
}


def plan(**changes):
    job = make_job(max_restarts=2, spares=1, witness="w", min_nodes=1, **changes)
    made = make_plan(job, [member(number) for number in range(4)]).as_dict()
    launch = {"by": "jane@laptop", "command": "ansible-playbook launch.yml", "job": {"job_name": "digits"}}
    return {"format": 1, **made, "asked_by": "launch.yml", "check": False, "launch": launch}


def submitted_plan(kind):
    found = plan()
    for name in ("candidates", "spares", "witness", "min_nodes"):
        del found[name]
    engine = {"kind": kind, "starts": "torchrun", "submit_host": "n1", "nodes": 2, "ranks_per_node": 2, "files": ["x"]}
    return {**found, "nodes": [], "engine": {**engine, "settings": SCHEDULERS[kind]}}


def record(**changes):
    """A record in which everything that one may have stands."""
    place = {"step": 3.0, "epoch": None, "elapsed_s": 5.0}
    saved = {"name": "step_40", "step": 40, "epoch": 1, "time": 1795291250.0, "size": 1 << 20}
    saving = {"signal": "TERM", "grace_s": 30.0, "asked": 4, "host": "n1", "rank": 1, "last_s": 2.5}
    saving |= {"stayed": {"n2": [3]}, "before": "step_20", "after": "step_40"}
    restart = {
        **{"elapsed_s": 40.0, "reason": "rank 3 on n2: exit code 1", "restarted": "the whole job", "failure": None},
        **{"step": 40.0, "fruitless": 0, "wait_s": 2.0, "checkpoint": "step_20", "resumed": "loaded", "first_step": 21},
        **{"detect_s": 1.0, "restart_s": 2.0, "step_s": 1.5, "lost_steps": 3, "lost_s": 4.0, "left_out": ["n3"]},
        **{"why": "it is silent", "world_size": 4, "nodes": 2, "saving": saving, "replaced": "n1", "spare": "n4"},
    }
    found = {
        **summary(2),
        "format": 1,
        "restarts": [restart],
        "world_sizes": [
            {"elapsed_s": 0.0, "world_size": 4, "nodes": 2},
            {"elapsed_s": 9.0, "world_size": 2, "nodes": 1},
        ],
        "loss_not_a_number": {"since": None, "first": place, "last": place, "stretches": 1, "steps": 200.0},
        "checkpoints": {
            **{"place": "/data/ckpt", "host": "n1", "problem": "", "newest": saved},
            **{"unfinished": {**saved, "reason": "no index"}, "aside": ["step_60"], "restored": []},
            "suspect": {"name": "step_60", "before": "step_40", "attempts": 2},
        },
        "goodput": {"share": 0.8, "productive_s": 80.0, "steps": 200.0, "lost_steps": 20.0},
        "left_s": None,
        "kernel": [{"hosts": ["n1"], "time": 1795291260.0, "kind": "oom", "text": "Out of memory: Killed process 7"}],
        "takeover": {"head": "n2", "planned": "n1", "count": 2},
        "moved_rendezvous": {"host": "n2", "without": "n1"},
        "witness_lost": {"host": "w", "silent_s": 30.0},
        "slow_ranks": [
            {
                **{"host": "n1", "device": "0", "at": "f (a.py:3)", "waited": 9, "others": 80, "looks": 40},
                **{"ranks": [1], "shares": [[0, 80], [1, 9]], "node": ["a full disk"]},
                **{"found_s": 20.0, "until_s": None},
            }
        ],
        "saving": saving,
        "apart": None,
        "events": [{"to": "https://x", "why": "no route", "sent": 1, "waiting": 0, "lost": 2}],
        "nccl": {"networks": ["IB"], "channels": {"IB": 4}, "devices": {"IB": ["mlx5_0"]}, "gdrdma": 2, "inside": {}},
    }
    found["nodes"][0] |= {"carried": {"eth0": {"sent": 10, "received": None}}, "unwritten": "no space", "role": ""}
    return {**found, **changes, "job_id": BAD}


def summaries():
    ended = {"kind": "engine", "host": "", "reason": "TIMEOUT"}
    engine = {"kind": "slurm", "id": "7", "reason": "", "submit_host": "n1"}
    yield record()
    yield record(state="running", finished=None, failure=None)
    yield {**hung(2), "job_id": BAD}
    yield record(state="failed", failure=ended, engine=engine, restarts=[])


def nobody(query, hosts, shared=None, limit_s=0.0):
    del query, shared, limit_s
    return {host: {"failed": True, "unreachable": True, "msg": "no route"} for host in hosts}


def idle(query, hosts, shared=None, limit_s=0.0):
    """All nodes answer, and none has a folder of a job."""
    del query, shared, limit_s
    return {host: {"folders": []} for host in hosts}


@pytest.fixture
def runs_dir(tmp_path):
    """A folder with a good run, and one whose files the tests damage."""
    for job_id in (GOOD, BAD):
        folder = tmp_path / "runs" / job_id
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps({**plan(), "job_id": job_id}))
        (folder / "summary.json").write_text(json.dumps({**record(), "job_id": job_id}))
        (folder / "logs" / "rank_1.log").write_text("step 1 loss 0.5\n")
    return tmp_path / "runs"


def clean(runs_dir, job_id="", days=None, ask=idle):
    hosts = ["n1", "n2", "n3", "n4", "w"]
    request = cleaning.Request(hosts, hosts, runs_dir, "/var/lib/trainyard", job_id, days, of_runs=True, check=False)
    return cleaning.plan(request, ask, time.time())


def of_run(runs_dir, tmp_path):
    """What playbooks do with the run whose files are damaged, each on its own."""
    folder, hosts = runs_dir / BAD, ["n1", "n2"]
    yield lambda: run_choice.find(runs_dir, BAD)
    yield lambda: run_choice.find(runs_dir, BAD, must_name=True, ask=nobody)
    yield lambda: report(folder, {}, {}, excluded_file=tmp_path / "excluded.json")
    yield lambda: report(folder, nobody("", hosts), {}, by_stop=True)
    yield lambda: report(folder, {}, {}, job_state={"state": "lost"} if "engine" in read_plan(folder) else None)
    yield lambda: collecting.collect(read_plan(folder), folder, nobody, collecting.Request(1 << 20))
    yield lambda: run_overview.compare_jobs(runs_dir, [GOOD, BAD])
    yield lambda: debug_files.visited(folder)
    yield lambda: debug_files.pack(folder, {"n1": {"facts": {}}}, {}, Path("/"), [])
    yield lambda: drilling.read_run(runs_dir, {"job_id": BAD, "run": "undisturbed"})
    yield lambda: started(folder)
    yield lambda: log_lines.findings(read_plan(folder), "0,1", True)
    yield lambda: heads.Head(read_plan(folder), nobody).states(0.0)
    yield lambda: cleaning.record_ends([BAD], runs_dir, nobody, 1 << 20, tmp_path / "excluded.json")
    yield lambda: run_folder.note_removed(folder, {"n1": time.time()})
    yield lambda: clean(runs_dir, BAD)
    with_failure = lambda run: (run.failure, run.log(0))  # noqa: E731
    yield lambda: _measured(folder, with_failure)


def started(folder):
    """Return what the steps start and prepare make of a plan."""
    found = read_plan(folder, TO_START)
    if "engine" not in found:
        describe(found)
        node_plans(found)


def _measured(folder, how):
    with measurements.ended_run(folder) as run:
        return how(run)


def of_all(runs_dir):
    """What playbooks do with all runs: these are not ended by one that is damaged."""
    listed = run_overview.list_runs(runs_dir, nobody, {})
    assert GOOD in [run["id"] for run in listed["runs"]]
    shown = [run["id"] for run in listed["runs"]]
    assert BAD in shown or BAD in listed["text"], "it is neither in the list nor named"
    assert run_choice.find(runs_dir, GOOD)["job_id"] == GOOD
    with contextlib.suppress(FindingsError):
        # The newest one of a name may be the damaged one.
        run_choice.find(runs_dir, job_name="digits")
    chosen = clean(runs_dir, days=0.0)
    assert GOOD in chosen.records
    run_folder.launches(runs_dir)
    run_folder.forget_checked(runs_dir, "digits", GOOD)


def check_all(runs_dir, tmp_path, name, number):
    """Try everything with a run whose file `name` is damaged; two in turn where it is a finding to read that."""
    folder = runs_dir / BAD
    before = {file: (folder / file).read_bytes() for file in ("plan.json", "summary.json")}
    of_all(runs_dir)
    acts = list(of_run(runs_dir, tmp_path))
    try:
        (read_plan if name == "plan.json" else read_record)(folder)
    except UnusableError as error:
        assert f"{folder / name}" in str(error) and re.search(" is damaged: |it has format ", str(error))
        acts = [acts[number % len(acts)], acts[(number + 7) % len(acts)]]
    for act in acts:
        with contextlib.suppress(UnusableError):
            act()
        # What one of them wrote anew must not hide the damage from the next.
        for file, content in before.items():
            if (folder / file).read_bytes() != content:
                (folder / file).write_bytes(content)
        (folder / "removed.json").unlink(missing_ok=True)


PLANS = [plan(), submitted_plan("slurm"), submitted_plan("kubernetes")]


@pytest.mark.parametrize("kind", range(len(PLANS)))
def test_a_damaged_plan(runs_dir, tmp_path, kind):
    text = json.dumps({**PLANS[kind], "job_id": BAD})
    for number, content in enumerate((text.encode(), *damaged(text, 36, seed=kind))):
        (runs_dir / BAD / "plan.json").write_bytes(content)
        check_all(runs_dir, tmp_path, "plan.json", number)


SUMMARIES = list(summaries())


@pytest.mark.parametrize("kind", range(len(SUMMARIES)))
def test_a_damaged_record(runs_dir, tmp_path, kind):
    text = json.dumps(SUMMARIES[kind])
    for number, content in enumerate((text.encode(), *damaged(text, 36, seed=kind))):
        (runs_dir / BAD / "summary.json").write_bytes(content)
        check_all(runs_dir, tmp_path, "summary.json", number)


def test_a_damaged_run_is_one_line_of_the_list_and_goes_by_its_name(runs_dir):
    path = runs_dir / BAD / "plan.json"
    content = json.loads(path.read_text())
    content["nodes"][0]["host"] = 5
    path.write_text(json.dumps(content))
    why, remove = "nodes[0].host is 5, expected text", f"playbooks/clean.yml -e clean_runs=true -e job_id={BAD}"
    listed = run_overview.list_runs(runs_dir, None, {})
    assert [run["id"] for run in listed["runs"]] == [GOOD]
    lines = [line for line in listed["text"].splitlines() if BAD in line]
    assert lines == [f"damaged: {path}: {why}; restore it, or remove the run: {remove}"]
    with pytest.raises(FindingsError, match=re.escape(f"{path} is damaged: {why}")):
        run_choice.find(runs_dir, BAD)
    assert clean(runs_dir, days=0.0).records == [GOOD]
    assert clean(runs_dir, BAD).records == [BAD]
    assert f"{BAD} stays: " in clean(runs_dir, BAD, ask=nobody).text
