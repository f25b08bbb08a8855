"""Which recorded run a user means, and the report that the controller writes about it."""

import json
import os
import pwd
import time

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard_controller.job import reporting
from ansible.module_utils.trainyard_controller.job import run_choice as known_runs
from ansible.module_utils.trainyard_controller.runs import excluded_record
from job_samples import make_job, make_plan, member, saved_record

ME = pwd.getpwuid(os.getuid()).pw_name


def a_run(folder, name, plan, age):
    (folder / name).mkdir(parents=True)
    (folder / name / "plan.json").write_text(plan if isinstance(plan, str) else json.dumps(plan))
    then = time.time() - age
    os.utime(folder / name / "plan.json", (then, then))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    plan = make_plan(make_job(), [member(0), member(1)]).as_dict()
    for age, (name, job_id) in enumerate([("resnet", "resnet-1"), ("digits", "digits-2"), ("digits", "digits-1")]):
        a_run(folder, job_id, {**plan, "job_id": job_id, "job_name": name}, age * 100)
    a_run(folder, "half", '{"job_id": ', -100)
    a_run(folder, "other", "{}", -200)
    a_run(folder, "list", "[]", -300)
    return folder


@pytest.mark.parametrize(
    ("asked", "job_id"),
    [
        ({}, "resnet-1"),
        ({"job_name": "digits"}, "digits-2"),
        ({"job_id": "digits-1"}, "digits-1"),
        ({"job_id": "digits-1", "job_name": "digits"}, "digits-1"),
    ],
)
def test_the_run_that_a_name_or_id_chooses(runs, asked, job_id):
    found = known_runs.find(runs, **asked)
    assert (found["job_id"], found["run_dir"], found["job_dir"][:9]) == (job_id, str(runs / job_id), "/var/lib/")
    assert (found["launching"], found["over"], found["engine"], found["note"]) == (False, False, {}, "")


def refusal(folder, **asked):
    with pytest.raises(UnusableError) as refused:
        known_runs.find(folder, **asked)
    return str(refused.value)


@pytest.mark.parametrize(("asked", "name"), [({"job_id": "x"}, "x"), ({"job_name": "x"}, "of job x")])
def test_a_run_that_does_not_exist(runs, asked, name):
    message = refusal(runs, **asked)
    assert name in message
    assert message.endswith("The newest runs there: digits-1, digits-2, resnet-1. Name one with -e job_id=NAME.")
    assert "The newest runs there: none." in refusal(runs / "nowhere", **asked)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"must_name": True}, "neither job_id nor job_name"),
        ({"job_id": "digits-1", "job_name": "resnet"}, "digits-1 is a run of digits, and job_name is resnet"),
    ],
)
def test_a_run_is_not_guessed(runs, asked, found):
    lines = refusal(runs, **asked).splitlines()
    assert lines[0] == "1 finding: no job was chosen, and nothing was touched."
    assert lines[3] == f"     found     {found}"


def test_a_run_of_a_playbook_is_never_the_newest(runs):
    plan = json.loads((runs / "digits-1" / "plan.json").read_text())
    own = {"job_name": "all-gather-pytorch", "asked_by": "collective_check.yml"}
    a_run(runs, "all-gather-pytorch-1", {**plan, "job_id": "all-gather-pytorch-1", **own}, -400)
    assert known_runs.find(runs)["job_id"] == "resnet-1"
    named = known_runs.find(runs, "all-gather-pytorch-1", must_name=True)
    assert named["job_id"] == "all-gather-pytorch-1"
    said = refusal(runs, job_name="all-gather-pytorch")
    assert "The newest runs there: digits-1, digits-2, resnet-1. Runs of playbooks, which only" in said
    assert said.endswith("job_id finds: all-gather-pytorch-1. Name one with -e job_id=NAME.")
    (runs / "resnet-1" / "summary.json").write_text(json.dumps(saved_record("resnet-1", state="failed")))
    assert known_runs.find(runs, job_name="resnet")["over"] is True


@pytest.fixture
def failed_run(tmp_path):
    run = tmp_path / "digits-1"
    (run / "logs").mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps(make_plan(make_job(launcher="direct"), [member(0)]).as_dict()))
    (run / "logs" / "rank_0.log").write_text("".join(f"line {number}\n" for number in range(40)))
    series = [{"elapsed_s": step, "step": step, "loss": 1 / step} for step in range(1, 5)]
    text = "".join(json.dumps(point) + "\n" for point in series)
    (run / "metrics.jsonl").write_text(text + '{"elapsed_s": 5, "loss": NaN}\n{"elapsed_s": 6, "lo')
    failure = {"kind": "exit", "host": "n1", "process": "rank0", "rank": 0, "ranks": [0]}
    failure.update(exit_code=7, signal=None, result="exit-code")
    end = {"state": "failed", "finished": 1010.0, "failure": failure}
    cluster = {"started": 1000.0, "elapsed_s": 10.0, "ranks_running": 0, "world_size": 1, "end": end}
    cluster["metrics"] = {"step": 5.0, "loss": float("nan")}
    result = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": cluster, "left": 0}
    return run, {"n1": result}


def test_a_report_has_summary_loss_curve_and_the_end_of_the_log(failed_run):
    run, results = failed_run
    before = sorted(run.iterdir())
    report = reporting.report(run, results, {}, check=True)
    assert (report.changed, report.summary["state"], sorted(run.iterdir())) == (False, "failed", before)
    lost = reporting.report(run, {"n1": {"unreachable": True, "msg": "timed out"}}, {}, check=True)
    assert (lost.summary["state"], lost.left) == ("lost", ["n1"])
    report = reporting.report(run, results, {})
    assert (report.summary["state"], report.left, report.changed) == ("failed", [], True)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["failure"]["exit_code"] == 7 and summary["metrics"] == {"step": 5.0, "loss": None}
    content = (run / "report.html").read_text()
    assert "<svg" in content and "exit code 7" in content and "loss is not a number since 0:00:05" in content
    end_of_log = [line for line in report.text.splitlines() if "    | " in line]
    assert end_of_log == [f"    | line {number}" for number in range(25, 40)]
    assert "last progress: step 5   loss is not a number" in report.text


def test_the_head_excludes_hosts_of_its_own_job_alone(failed_run, tmp_path):
    run, results = failed_run
    file = tmp_path / "excluded.json"
    says = {host: {"reason": "disk: 3 MiB free in /jobs", "since": 1000.0} for host in ("n1", "n7")}
    results["n1"]["cluster"]["restarts"] = {"history": [], "excluded": says}
    reporting.report(run, results, {}, check=True, excluded_file=file)
    assert not file.exists()
    reporting.report(run, results, {}, excluded_file=file)
    assert excluded_record.read(file) == {
        "n1": {"reason": "disk: 3 MiB free in /jobs", "since": 1000, "job_id": "digits-20261120-101500", "devices": []}
    }
    # A launch has taken it back: what is known of a job that is over is not told again.
    file.unlink()
    reporting.report(run, results, {}, excluded_file=file)
    assert not file.exists()
