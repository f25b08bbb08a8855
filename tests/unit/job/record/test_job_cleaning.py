"""Which job folders go, and which stay."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.findings import FindingsError
from ansible.module_utils.trainyard.job.record.job_runs import SavedRun, may_go
from ansible.module_utils.trainyard.job.record.job_runs import describe as describe_runs
from ansible.module_utils.trainyard.job.record.removable_jobs import DAY_S, Folder, choose, of_schedulers
from ansible.module_utils.trainyard_controller.job import cleaning
from ansible.module_utils.trainyard_controller.runs.run_folder import read_plans, saved_runs, scheduler_runs
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from hypothesis import given
from hypothesis import strategies as st
from job_samples import saved_plan, saved_record
from job_samples import submitted as submitted_plan

PROJECT = Path(__file__).resolve().parents[4]


def folder(job_id, days=0.0, running=False, size_mib=1):
    return Folder(job_id, f"/var/lib/trainyard/jobs/{job_id}", days * DAY_S, running, size_mib)


NODES = {
    "n1": [folder("old", 40), folder("new", 2), folder("runs", 0)],
    "n2": [folder("old", 41), folder("runs", 50, running=True), folder("half", 35)],
    "n3": [folder("half", 1)],
}


def ids(chosen):
    return {host: [item.job_id for item in folders] for host, folders in chosen.items()}


@pytest.mark.parametrize(
    ("job_id", "days", "expected"),
    [
        ("", 30, {"n1": ["old"], "n2": ["old"], "n3": []}),
        ("", 0, {"n1": ["old", "new"], "n2": ["old", "half"], "n3": ["half"]}),
        ("", 100, {"n1": [], "n2": [], "n3": []}),
        ("new", None, {"n1": ["new"], "n2": [], "n3": []}),
    ],
)
def test_folders_that_go(job_id, days, expected):
    chosen, findings = choose(NODES, job_id, days)
    assert (ids(chosen), findings) == (expected, [])


@pytest.mark.parametrize(
    ("job_id", "days", "check", "found"),
    [
        ("runs", None, "job_id", "runs runs on n2"),
        ("none", None, "job_id", "nothing of none on any node, or in a scheduler"),
        ("", None, "what to remove", "neither job_id, job_name nor clean_days"),
        ("old", 3, "what to remove", "a job and clean_days"),
        ("", -1, "clean_days", "-1"),
    ],
)
def test_choices_that_are_refused(job_id, days, check, found):
    chosen, (finding,) = choose(NODES, job_id, days)
    assert (chosen, finding.check, finding.found) == ({}, check, found)
    assert finding.expected and finding.action


RUNS = [
    *({"job_id": job_id, "kind": "slurm", "planned": 0} for job_id in ("waits", "over", "silent")),
    *({"job_id": job_id, "kind": "kubernetes", "planned": 0} for job_id in ("pods", "trains")),
    {"job_id": "gone", "kind": "kubernetes", "planned": 60 * DAY_S},
]
ANSWERS = {
    "waits": {"state": "pending"},
    "over": {"state": "failed", "finished": 1.0},
    "silent": {"msg": "no slurmctld"},
    "pods": {"state": "succeeded", "finished": 98 * DAY_S},
    "gone": {"state": "lost", "finished": None},
    "trains": {"state": "running"},
}
LEFT = {"n1": [folder(name, 50) for name in ("waits", "over", "silent")]}


@pytest.mark.parametrize(
    ("job_id", "days", "expected"),
    [
        ("", 30, {"n1": ["over"], "Slurm": [], "Kubernetes": ["gone"]}),
        ("", 1, {"n1": ["over"], "Slurm": [], "Kubernetes": ["pods", "gone"]}),
        ("pods", None, {"n1": [], "Slurm": [], "Kubernetes": ["pods"]}),
    ],
)
def test_jobs_that_a_scheduler_ended_go(job_id, days, expected):
    schedulers, unknown = of_schedulers(RUNS, ANSWERS, 100 * DAY_S)
    chosen, findings = choose({**LEFT, **schedulers}, job_id, days, unknown)
    assert (ids(chosen), findings) == (expected, [])
    others = {"waits": "waits runs on Slurm", "trains": "trains runs on Kubernetes", "silent": "silent: no slurmctld"}
    for other, found in others.items():
        chosen, (finding,) = choose({**LEFT, **schedulers}, other, None, unknown)
        assert (chosen, finding.found) == ({}, found)


folders = st.builds(folder, st.sampled_from("abcd"), st.floats(0, 100), st.booleans())
clusters = st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.lists(folders, unique_by=lambda item: item.job_id))


@given(clusters, st.floats(0, 100))
def test_nothing_that_runs_or_is_younger_goes_from_any_node(nodes, days):
    chosen, _ = choose(nodes, "", days)
    for gone in (item for items in chosen.values() for item in items):
        parts = [item for items in nodes.values() for item in items if item.job_id == gone.job_id]
        assert not any(part.running for part in parts)
        assert all(part.age_s > days * DAY_S for part in parts)


def request(runs_dir, **changes):
    given = {"hosts": ["n1"], "known_hosts": ["n1", "login"], "state_dir": "/x", "job_id": "", "days": None}
    return cleaning.Request(runs_dir=runs_dir, check=False, **{"of_runs": False, **given, **changes})


def listed(state_dir, *of_schedulers):
    return agent.folders(state_dir=str(state_dir), of_schedulers=[str(each) for each in of_schedulers])["folders"]


def test_folders_of_this_machine(tmp_path):
    jobs = tmp_path / "jobs"
    assert listed(tmp_path) == []
    for name in ("ended-1", "alive-2", "lost-3"):
        (jobs / name).mkdir(parents=True)
        write_json(jobs / name / "node_plan.json", {"job_id": name})
    (jobs / "no-job").mkdir()
    (jobs / "ended-1" / "data").write_bytes(bytes(3 << 20))
    (jobs / "ended-1" / "link").symlink_to("/proc/nowhere")
    then = time.time() - 1000
    os.utime(jobs / "ended-1" / "node_plan.json", (then, then))
    lost = subprocess.Popen(["sleep", "600"], env={"TRAINYARD_JOB_ID": "lost-3"})
    with subprocess.Popen(["sleep", "600"]) as monitor:
        alive = {"pid": monitor.pid, "start_time": process_table.start_time(monitor.pid)}
        write_json(jobs / "alive-2" / "monitor.json", alive)
        found = {item["job_id"]: item for item in listed(tmp_path)}
        monitor.kill()
        lost.kill()
        lost.wait()
    assert sorted(found) == ["alive-2", "ended-1", "lost-3"]
    assert [name for name, item in found.items() if not item["running"]] == ["ended-1"]
    assert 1000 <= found["ended-1"]["age_s"] < 1000 + 600
    assert (found["ended-1"]["size_mib"], found["ended-1"]["job_dir"]) == (3, str(jobs / "ended-1"))


def test_a_folder_of_slurm_has_the_age_of_its_last_write(tmp_path):
    job_id = "slurm-alone-1"  # processes are looked up on the whole machine, where other tests run jobs
    folder = tmp_path / "shared" / "jobs" / job_id
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "rank_0.log").write_text("step 1/3")
    asked = (tmp_path, folder, tmp_path / "elsewhere")
    then = time.time() - 1000
    for path in (folder / "logs" / "rank_0.log", folder):
        os.utime(path, (then, then))
    [found] = listed(*asked)
    assert (found["job_id"], found["job_dir"], found["running"]) == (job_id, str(folder), False)
    assert 1000 <= found["age_s"] < 1000 + 600
    with subprocess.Popen(["sleep", "600"], env={"TRAINYARD_JOB_ID": job_id}) as rank:
        [found] = listed(*asked)
        rank.kill()
    assert found["running"] is True


def write_run(runs, job_id, kind="slurm", submitted=None, **plan):
    (runs / job_id).mkdir(parents=True)
    write_json(runs / job_id / "plan.json", saved_plan(job_id, **{**submitted_plan(kind), "job_dir": "/x", **plan}))
    if submitted:
        write_json(runs / job_id / "submitted.json", submitted)


def test_runs_of_schedulers_are_those_that_were_taken_and_not_removed(tmp_path):
    write_run(tmp_path, "taken", submitted={"engine_id": "7"})
    write_run(tmp_path, "pods", kind="kubernetes", submitted={"engine_id": "Job x/pods"})
    write_run(tmp_path, "refused")
    write_run(tmp_path, "removed", submitted={"engine_id": "8", "removed": True})
    write_run(tmp_path, "checked", submitted={"engine_id": "9"}, check=True)
    write_json(tmp_path / "taken" / "summary.json", {})
    runs = scheduler_runs(tmp_path, read_plans(tmp_path))
    assert {run["job_id"]: run["engine_id"] for run in runs} == {"taken": "7", "pods": "Job x/pods"}


def test_queries_to_nodes_and_to_slurm(tmp_path):
    """Nodes and the submit host are queried for folders, Slurm for jobs that left one."""
    for job_id, dir_, shared in (("own", "/x", False), ("shared", "/s", True), ("young", "/y", False)):
        scheduler = submitted_plan("slurm", shared=shared)
        write_run(tmp_path, job_id, submitted={"engine_id": "7"}, **scheduler, job_dir=dir_)
        if job_id != "young":
            os.utime(tmp_path / job_id / "plan.json", (1.0, 1.0))
    asked = []
    record = {"job_id": "own", "job_dir": "/x", "age_s": 9e9, "running": False, "size_mib": 2}

    def ask(question, own, *, limit_s=120.0):
        asked.append((question, own))
        if question == "folders":
            return {"n1": {"folders": [record]}, "login": {"failed": True, "msg": "no sudo"}}
        return {host: {"state": "succeeded"} for host in own}

    found = cleaning.plan(request(tmp_path, days=30), ask, time.time())
    assert found.remove == {"n1": [{"job_id": "own", "job_dir": "/x"}]}
    (first, of_hosts), (second, of_slurm) = asked
    assert (first, second) == ("folders", "slurm_state")
    assert {host: given["of_schedulers"] for host, given in of_hosts.items()} == {"n1": ["/x"], "login": ["/x", "/s"]}
    assert of_slurm == {"login": {"engine_id": "7"}}
    assert "login could not be asked" in found.text
    # A named job that waits in Slurm is found there.
    write_run(tmp_path, "waits", submitted={"engine_id": "7"})

    def no_folders(question, own, *, limit_s=120.0):
        return {host: {"folders": []} if question == "folders" else {"state": "pending"} for host in own}

    with pytest.raises(FindingsError, match="waits runs on Slurm"):
        cleaning.plan(request(tmp_path, job_id="waits"), no_folders, time.time())


# ---- runs/ on the controller


def kept(name, days=40.0, **changes):
    return SavedRun(name, days * DAY_S, 2, **{"state": "succeeded", **changes})


@pytest.mark.parametrize(
    ("run", "goes", "why"),
    [
        (kept("old"), True, ""),
        (kept("old", 29), False, ""),
        # Something of it was written on a node three days ago.
        (kept("new"), False, ""),
        (kept("runs"), False, ""),
        (kept("silent"), False, ""),
        (kept("gone", state=""), True, ""),
        (kept("gone", state="lost", open_hosts=("n1", "n2")), True, ""),
        (kept("gone", state="failed", open_hosts=("n9",)), False, "n9 did not say whether it still runs there"),
        (kept("gone", started=False, open_hosts=("n9",)), True, ""),
        (kept("gone", 29, started=False), False, ""),
        (kept("gone", state="pending", engine="slurm"), False,
         "its record does not say how it ended: playbooks/status.yml -e job_id=gone"),
        (kept("old", state="", engine="slurm"), True, ""),
        (kept("gone", engine="slurm"), False, "n9 did not say whether it left something there"),
    ],
)  # fmt: skip
def test_which_runs_go_from_the_controller(run, goes, why):
    nodes = {**NODES, "n2": [*NODES["n2"], folder("new", 3)]}
    silent = ["n9"] if why.startswith("n9") else []
    go, stay = may_go([run], nodes, silent, "", 30, {"silent": "no slurmctld"})
    assert (bool(go), stay) == (goes, {run.name: why} if why else {})


def test_the_newest_verification_of_a_cluster_stays():
    reports = [kept(f"verify-{days}", days, verified=cluster) for days, cluster in ((90, "a"), (80, "a"), (70, "b"))]
    go, _ = may_go(reports, {}, [], "", 30, {})
    assert [run.name for run in go] == ["verify-90"]
    go, _ = may_go(reports, {}, [], "verify-70", None, {})
    assert [run.name for run in go] == ["verify-70"]
    text = "Would remove 1 run (2 MiB) from runs.\n  verify-70\n  x stays: why"
    assert describe_runs(go, {"x": "why"}, "runs", True).rstrip() == text
    assert describe_runs([], {}, "runs", False) == "No run to remove from runs."


def test_a_run_that_left_nothing_on_the_nodes_goes_by_its_name(tmp_path):
    for job_id, more in (("done", {}), ("checked", {"check": True}), ("mine", {"job_id": "other"}), ("refused", {})):
        write_json_in(tmp_path / job_id, "plan.json", {**saved_plan(job_id), **more})
    write_json_in(tmp_path / "refused", "findings.json", [])
    write_json_in(tmp_path / "done", "summary.json", saved_record("done", ["n1"], state="failed"))
    found = {run.name: (run.started, run.state, run.open_hosts) for run in saved_runs(tmp_path, time.time())[0]}
    open_hosts = (False, "", ("n1", "n2"))
    assert found == {"done": (True, "failed", ()), "checked": open_hosts, "refused": open_hosts}

    def choose(job_id, of_runs):
        one = request(tmp_path, job_id=job_id, of_runs=of_runs)
        return cleaning.choose_all(one, {"n1": {"folders": []}}, [], {}, 0.0)

    with pytest.raises(FindingsError, match="nothing of done on any node"):
        choose("done", False)
    found = choose("done", True)
    assert (found.records, found.remove) == (["done"], {})
    # It can only be removed, as its plan is another run's.
    assert choose("mine", True).records == ["mine"]
    assert "mine stays: " in cleaning.choose_all(request(tmp_path, job_id="mine", of_runs=True), {}, [], {}, 0.0).text


def write_json_in(run_dir, name, data):
    run_dir.mkdir(exist_ok=True)
    write_json(run_dir / name, data)


def test_jobs_of_playbooks_name_their_playbook():
    """So that nobody's stop.yml takes it for the newest run of theirs."""
    asked_by = {}
    for path in (PROJECT / "roles").glob("*/tasks/*.yml"):
        for match in re.finditer(r"name: job\n.*?(?=\n\n|\Z)", path.read_text(), re.DOTALL):
            if "tasks_from" not in match[0]:
                asked_by[path.name] = re.search(r"__job_asked_by: (\S+)", match[0])[1]
    assert sorted(asked_by) == ["benchmark.yml", "collective.yml", "compute.yml", "pair_measure.yml"]
    playbooks = ["collective_benchmark.yml", "collective_check.yml", "pair_check.yml", "verify.yml"]
    assert sorted(asked_by.values()) == playbooks
