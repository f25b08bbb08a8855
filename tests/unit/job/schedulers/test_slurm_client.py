"""Access to Slurm, with simulated commands that print outputs of Slurm 22.05."""

from __future__ import annotations

import base64
import json
import os
import pwd
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.answers import checked
from ansible.module_utils.trainyard.job.run.progress import DEFAULT_PATTERN
from ansible.module_utils.trainyard.slurm import state as slurm_state
from ansible.module_utils.trainyard_controller import planning, scheduler_clients
from ansible.module_utils.trainyard_controller.run_folder import note_submitted
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.schedulers import slurm as slurm_jobs
from ansible.module_utils.trainyard_node.slurm import facts as slurm_facts
from job_samples import make_request

OUTPUTS = Path(__file__).resolve().parents[3] / "fixtures/slurm"
UNKNOWN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'


def ask(question, own, *, limit_s=60):
    """Query the agent of this machine for each host; its answers are checked as those of nodes are."""
    return {host: checked(question, agent.answer(question, given, limit_s), host) for host, given in own.items()}


def one(question, **given):
    return ask(question, {"login": given})["login"]


def state_of(**given):
    known = {"engine_id": "42", "world_size": 2, "rank_log": "rank_{rank}.log", "progress_pattern": "", "user": ""}
    return one("slurm_state", **{**known, "login_host": "", "shared": False, **given})


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a simulated command of Slurm on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return write


@pytest.fixture
def forgotten(command, tmp_path, capsys):
    """Return the state of a job that slurmctld has forgotten, with sacct's output from a file."""

    def ask(output, **params):
        command("scontrol", f'case "$*" in *hostnames*) echo n1; echo n3;; *) {UNKNOWN};; esac')
        command("sacct", f'cat "{OUTPUTS / output}"' if output else 'echo "accounting storage is disabled" >&2; exit 1')
        return state_of(job_dir=str(tmp_path / "job"), **params)

    return ask


@pytest.mark.parametrize(
    ("output", "state", "word", "code", "restarts"),
    [
        ("sacct_completed.txt", "succeeded", "COMPLETED", "0:0", 0),
        ("sacct_failed.txt", "failed", "FAILED", "3:0", 0),
        ("sacct_cancelled.txt", "stopped", "CANCELLED by 2000", "0:0", 0),
        ("sacct_cancelled_pending.txt", "stopped", "CANCELLED by 2000", "0:0", 0),
        ("sacct_timeout.txt", "timed_out", "TIMEOUT", "0:0", 0),
        ("sacct_node_fail.txt", "failed", "NODE_FAIL", "0:0", 0),
        ("sacct_requeued.txt", "succeeded", "COMPLETED", "0:0", 1),
    ],
)
def test_a_forgotten_job_is_read_from_the_accounting(forgotten, output, state, word, code, restarts):
    job = forgotten(output)
    assert (job["state"], job["slurm_state"], job["exit_code"], job["requeued"]) == (state, word, code, restarts)
    assert job["finished"] > 1_700_000_000
    assert job["hosts"] == ([] if job["started"] is None else ["n1", "n3"])


def test_another_job_of_the_same_number_is_not_a_restart():
    header = slurm_state.SACCT.replace(",", "|")
    old, new = "other|train|FAILED|1:0|n1|1|2", "digits|train|COMPLETED|0:0|n1|3|4"
    assert slurm_state.from_sacct(f"{header}\n{old}\n{new}\n")["Restarts"] == "0"
    assert slurm_state.from_sacct(f"{header}\n") == slurm_state.from_sacct("") == {}


def test_without_accounting_the_jobs_own_record_counts(forgotten, tmp_path):
    assert forgotten("")["state"] == "lost"
    (tmp_path / "job/exits").mkdir(parents=True)
    (tmp_path / "job/exits/job").write_text("3 1795300000.5\n")
    job = forgotten("")
    assert (job["state"], job["exit_code"], job["finished"]) == ("failed", "3:0", 1795300000.0)


def test_progress_comes_from_a_shared_folder_or_a_step(command, tmp_path, capsys):
    record = "JobId=42 JobState=RUNNING Reason=None Restarts=0 NodeList=n[1,3] StartTime=1795300000 EndTime=Unknown"
    command("scontrol", f'case "$*" in *hostnames*) echo n1; echo n3;; *) echo "{record}";; esac')
    command("srun", f"touch {tmp_path}/asked; echo step 7/9 loss 0.5")
    logs = tmp_path / "job/logs"
    logs.mkdir(parents=True)
    (logs / "rank_0.log").write_text("step 3/9 loss 0.7\n")
    given = {"job_dir": str(tmp_path / "job"), "login_host": "login", "progress_pattern": DEFAULT_PATTERN}
    job = state_of(**given, shared=True)
    assert "printed" not in job["line"]
    assert job["metrics"]["step"] == 3 and job["log_hosts"] == ["login"]
    assert not (tmp_path / "asked").exists()
    # If each node has its own folder, a step of the job reads it on the first node.
    (logs / "rank_0.log").unlink()
    job = state_of(**given)
    assert job["metrics"]["step"] == 7 and job["log_hosts"] == ["login", "n1", "n3"]
    # The last rank prints the progress of some programs.
    command("srun", 'case "$*" in *--nodelist=n3*rank_1.log) echo step 8/9 loss 0.5;; *) echo loading;; esac')
    assert state_of(**given, world_size=2)["metrics"]["step"] == 8


def test_without_a_step_the_line_shows_what_rank_0_printed_last(command, tmp_path, capsys):
    command("scontrol", 'echo "JobId=42 JobState=RUNNING Reason=None NodeList= StartTime=1795300000 EndTime=Unknown"')
    logs = tmp_path / "job/logs"
    logs.mkdir(parents=True)
    given = {"job_dir": str(tmp_path / "job"), "login_host": "login", "progress_pattern": DEFAULT_PATTERN}
    assert state_of(**given, shared=True)["line"].endswith("2/2 ranks running")
    (logs / "rank_0.log").write_text("reading \x1b[31mshard 4\x1b[0m of 9\n\n")
    (logs / "rank_1.log").write_text("nothing to do\n")
    assert state_of(**given, shared=True)["line"].endswith("2/2 ranks running   rank 0 printed: reading shard 4 of 9")


ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def cluster(command):
    """A cluster of three nodes, seen from its login host."""
    command("sinfo", "echo slurm-wlm 22.05.8")
    command("scontrol", f'cat "{OUTPUTS}/scontrol_show_$2.txt"')
    command("srun", f'cat "{OUTPUTS}/srun_mpi_list.txt"')


def test_the_facts_of_a_cluster_are_read(cluster, tmp_path):
    about = {"user": ME, "shared": True}
    facts = one("slurm_probe", folder=str(tmp_path / "missing"), **about)["facts"]
    assert facts["version"] == "22.05.8"
    assert [one["PartitionName"] for one in facts["partitions"]] == ["train"]
    assert [(node["NodeName"], node["Gres"]) for node in facts["nodes"]] == [(f"n{n}", "(null)") for n in (1, 2, 3)]
    assert "pmix" in facts["mpi"] and facts["folder_writable"] is True
    # No folder can be created below a file.
    (tmp_path / "file").write_text("")
    facts = one("slurm_probe", folder=str(tmp_path / "file/deeper"), **about)["facts"]
    assert facts["folder_writable"] is False


@pytest.mark.parametrize("shared", [True, False])
def test_the_folder_of_jobs_must_be_writable(cluster, tmp_path, monkeypatch, shared):
    """Its parent belongs to root."""
    calls, call = [], slurm_facts.call

    def note(argv, *user):
        calls.append(argv)
        return call(argv, *user)

    monkeypatch.setattr(slurm_facts, "call", note)
    one("slurm_probe", user=ME, folder=str(tmp_path), shared=shared)
    paths = [word for argv in calls for word in argv if word.startswith(str(tmp_path))]
    assert paths and set(paths) == {f"{tmp_path}/jobs"}


def test_a_cluster_that_does_not_answer_is_a_finding(command):
    command("sinfo", "echo slurm-wlm 22.05.8")
    command("scontrol", 'echo "slurm_load_ctl_conf error: Unable to contact slurm controller" >&2; exit 1')
    facts, (finding,) = scheduler_clients.probe_slurm("login", {"user": ME, "folder": "/", "shared": False}, ask)
    assert facts == {} and "Unable to contact slurm controller" in finding.found


@pytest.fixture
def requested(tmp_path):
    """Return a factory of requests for Slurm from the host `login`."""
    job = {
        "job_name": "digits", "job_scheduler": "slurm", "job_launcher": "direct", "job_command": ["python", "x.py"],
        "job_nodes": 2, "job_devices": "none", "job_source": str(tmp_path / "source"), "job_folder": str(tmp_path),
    }  # fmt: skip
    (tmp_path / "source").mkdir()
    (tmp_path / "source/x.py").write_text("print(1)\n")
    hosts = [planning.Host(f"n{n}", f"10.0.0.{n}", {"RATE": "1"} if n == 1 else None) for n in (1, 2, 3)]

    def make(**changes):
        known = ["login", "n1", "n2", "n3"]
        given = {"submit_host": "login", "known": known, "user": ME, **changes}
        return make_request(tmp_path, {**job, **given.pop("job", {})}, hosts, **given)

    return make


def test_a_job_is_planned_for_the_cluster(cluster, requested):
    made = planning.prepare(requested(check=True), ask)
    assert made.findings == []
    assert (made.plan["launcher"], made.plan["engine"]["kind"], made.plan["engine"]["nodes"]) == ("direct", "slurm", 2)
    script = (made.run_dir / "job.sbatch").read_text()
    assert "RATE" in script and (made.run_dir / "source.tar.gz").is_file()
    assert "scheduler slurm, launcher direct" in made.text and "job.sbatch" in made.text


def test_all_findings_come_at_once_and_leave_no_folder(cluster, requested):
    refused = planning.prepare(requested(job={"job_nodes": 9, "job_partition": "nowhere", "job_source": "/none"}), ask)
    assert {finding.check for finding in refused.findings} == {"job_source", "job_partition"}
    assert not requested().runs_dir.exists()
    stranger = planning.prepare(requested(submit_host="lgoin"), ask)
    assert "job_login_host" in {finding.check for finding in stranger.findings}


def test_a_missing_login_host_is_a_finding(requested):
    def silent(question, own):
        return {host: {"unreachable": True, "msg": "Connection timed out"} for host in own}

    assert ("login", "reach") in {(each.host, each.check) for each in planning.prepare(requested(), silent).findings}
    left_out = planning.prepare(requested(limit="n1"), lambda question, own: {host: {} for host in own})
    assert ("login", "limit") in {(each.host, each.check) for each in left_out.findings}


@pytest.fixture
def job(cluster, requested):
    """A planned job with number 42 in Slurm."""
    made = planning.prepare(requested(), ask)
    note_submitted(made.run_dir, "42")
    return scheduler_clients.external_job(made.plan, made.run_dir.parent, ask), made.run_dir


def test_a_job_is_submitted(command, job, tmp_path):
    command("sbatch", f'cat >{tmp_path}/script; echo "warning: x"; echo "42;cluster"')
    slurm, run_dir = job
    assert slurm.submit(run_dir, {}, {}) == {"engine_id": "42"}
    assert (tmp_path / "script").read_text() == (run_dir / "job.sbatch").read_text()
    assert json.loads((run_dir / "submitted.json").read_text()) == {"format": 1, "engine_id": "42"}


def test_slurms_own_reason_is_in_the_failure(command, job):
    command("sbatch", 'echo "sbatch: error: Invalid account" >&2; exit 1')
    answer = job[0].submit(job[1], {}, {})
    assert answer == {"failed": True, "msg": "Slurm rejects the job: sbatch: error: Invalid account"}


def test_a_job_is_canceled_once(command, job, tmp_path):
    running = 'echo "JobId=42 JobState=RUNNING"'
    command("scontrol", f'[ -e {tmp_path}/cancelled ] && echo "JobId=42 JobState=CANCELLED" || {running}')
    command("scancel", f"touch {tmp_path}/cancelled")
    slurm, _ = job
    assert slurm.end(check=True) == {"changed": True} and not (tmp_path / "cancelled").exists()
    assert slurm.end(check=False) == {"changed": True}
    assert slurm.end(check=False) == {"changed": False}


def test_the_script_of_a_job_gives_its_ranks_time_to_save_and_cancels_it(command, job, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "_ASK_S", -40.0)
    log = tmp_path / "log"
    command("scontrol", f'grep -qsxe "$(cat {tmp_path}/ends)" {log} && echo JobState=CANCELLED || cat {tmp_path}/state')
    command("scancel", f'echo "$*" >>{log}')
    slurm, _ = job
    ask, end = "--batch --signal=USR2 42", "42"
    for state, ends, called in (
        ("RUNNING", ask, [ask]),
        # The script does not end it.
        ("RUNNING", end, [ask, end]),
        ("PENDING", end, [end]),
    ):
        (tmp_path / "state").write_text(f"JobId=42 JobState={state}\n")
        (tmp_path / "ends").write_text(ends)
        log.unlink(missing_ok=True)
        assert slurm.end(check=False) == {"changed": True}
        assert log.read_text().splitlines() == called


def test_state_logs_and_exits_of_a_job(command, job):
    slurm, _ = job
    folder = Path(slurm.plan["job_dir"])
    record = "JobId=42 JobState=FAILED Reason=None NodeList=n[1,3] StartTime=1795300000 EndTime=1795300060"
    command("scontrol", f'case "$*" in *hostnames*) echo n1; echo n3;; *) echo "{record}";; esac')
    state = slurm.state(waits=True)
    assert (state["state"], state["hosts"], state["log_hosts"]) == ("failed", ["n1", "n3"], ["login"])
    assert slurm.logs(state, 1 << 20) == ([{"logs": {}, "exits": []}], "")
    for name, content in (("logs/rank_1.log", "lost\n"), ("exits/rank_1.exit", "rank_1 n2 1 137 1763.5\n")):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
    (found,), _ = slurm.logs(state, 1 << 20)
    assert base64.b64decode(found["logs"]["rank_1.log"]) == b"lost\n"
    assert [(end["rank"], end["host"], end["signal"]) for end in found["exits"]] == [(1, "n2", 9)]
