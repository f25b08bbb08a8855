"""Access to Slurm, with simulated commands that print outputs of Slurm 22.05."""

from __future__ import annotations

import base64
import io
import json
import os
import pwd
import sys
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard.slurm import slurm_state
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_controller.job.schedulers import scheduler_clients
from ansible.module_utils.trainyard_controller.runs.run_folder import note_submitted
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.slurm import slurm_facts
from job_samples import make_request

OUTPUTS = Path(__file__).resolve().parents[3] / "fixtures/slurm"
UNKNOWN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'


def ask(question, own, *, limit_s=60):
    """Query the agent of this machine for each host; its answers are checked as those of nodes are."""
    return {host: checked(question, agent.answer(question, given, limit_s), host) for host, given in own.items()}


def one(question, **given):
    return ask(question, {"login": given})["login"]


def state_of():
    return one("slurm_state", engine_id="42")


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
def forgotten(command):
    """Return the state of a job that slurmctld has forgotten, with sacct's output from a file."""

    def ask(output):
        command("scontrol", UNKNOWN)
        command("sacct", f'cat "{OUTPUTS / output}"' if output else 'echo "accounting storage is disabled" >&2; exit 1')
        return state_of()

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


def test_without_accounting_a_forgotten_job_is_lost(forgotten):
    assert forgotten("")["state"] == "lost"


def test_a_job_that_runs_is_planned_by_its_hosts_first(command):
    record = "JobId=42 JobState=RUNNING Reason=None Restarts=0 NodeList=n[1,3] StartTime=1795300000 EndTime=Unknown"
    command("scontrol", f'echo "{record}"')
    job = state_of()
    assert (job["state"], job["hosts"], job["requeued"]) == ("running", ["n1", "n3"], 0)
    assert job["line"].endswith("its hosts check themselves and plan")


ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def cluster(command):
    """A cluster of three nodes, seen from its login host."""
    command("sinfo", "echo slurm-wlm 22.05.8")
    command("scontrol", f'cat "{OUTPUTS}/scontrol_show_$2.txt"')


def test_the_facts_of_a_cluster_are_read(cluster, tmp_path):
    about = {"user": ME, "shared": True}
    facts = one("slurm_probe", folder=str(tmp_path / "missing"), **about)["facts"]
    assert facts["version"] == "22.05.8"
    assert [one["PartitionName"] for one in facts["partitions"]] == ["train"]
    assert [(node["NodeName"], node["Gres"]) for node in facts["nodes"]] == [(f"n{n}", "(null)") for n in (1, 2, 3)]
    assert facts["folder_writable"] is True
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
    assert paths and set(paths) == {f"{tmp_path}/hosts" if shared else f"{tmp_path}/jobs"}


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
    packed = base64.b64decode(script.partition("\n#PROGRAM\n")[2])
    with zipfile.ZipFile(io.BytesIO(packed)) as program:
        request = json.loads(program.read("request.json"))
        assert program.read("source.tar.gz") == (made.run_dir / "source.tar.gz").read_bytes()
    assert request["where"]["node_env"] == {"n1": {"RATE": "1"}}
    assert request["where"]["state_dir"] == made.plan["job_dir"].rpartition("/jobs/")[0]
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
    assert slurm.submit({}, {}) == {"engine_id": "42"}
    assert (tmp_path / "script").read_text() == (run_dir / "job.sbatch").read_text()
    assert json.loads((run_dir / "submitted.json").read_text()) == {"format": 1, "engine_id": "42"}


def test_a_jobs_script_gets_nothing_of_the_environment_in_which_it_is_submitted(command, job, tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "ubuntu")
    monkeypatch.setenv("SLURM_CONF", "/opt/slurm/slurm.conf")
    command("sbatch", f"env >{tmp_path}/env; cat >/dev/null; echo 42")
    job[0].submit({}, {})
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert env["SLURM_CONF"] == "/opt/slurm/slurm.conf" and env["PATH"] == os.environ["PATH"]
    assert env["HOME"] == pwd.getpwuid(os.getuid()).pw_dir and "SUDO_USER" not in env
    # With another value, Slurm logs in as the user on the host.
    assert "#SBATCH --export=ALL\n" in (job[1] / "job.sbatch").read_text()


def test_slurms_own_reason_is_in_the_failure(command, job):
    command("sbatch", 'echo "sbatch: error: Invalid account" >&2; exit 1')
    answer = job[0].submit({}, {})
    assert answer == {"failed": True, "msg": "Slurm rejects the job: sbatch: error: Invalid account"}


def test_secrets_lie_in_a_file_of_the_user_beside_the_hosts_and_in_no_script(cluster, command, requested, tmp_path):
    made = planning.prepare(requested(job={"job_secret_env": ["TOKEN"]}), ask)
    assert made.findings == []
    slurm = scheduler_clients.external_job(made.plan, made.run_dir.parent, ask)
    place = tmp_path / f"secrets-{slurm.plan['job_id']}.json"
    command("sbatch", f"cp {place} {tmp_path}/seen; echo 42")
    assert slurm.submit({"TOKEN": "hunter2"}, {}) == {"engine_id": "42"}
    assert json.loads((tmp_path / "seen").read_text()) == {"secret_env": {"TOKEN": "hunter2"}, "secret_files": {}}
    assert place.stat().st_mode & 0o777 == 0o600
    packed = (made.run_dir / "job.sbatch").read_text()
    assert "hunter2" not in packed and f"rm -f {place}" in packed
    # A job that Slurm refuses, or that is stopped, leaves none.
    command("scontrol", UNKNOWN)
    assert slurm.end(check=False) == {"changed": False} and not place.exists()
    command("sbatch", "exit 1")
    assert slurm.submit({"TOKEN": "hunter2"}, {})["failed"] and not place.exists()


def test_a_job_is_canceled_once(command, job, tmp_path):
    running = 'echo "JobId=42 JobState=RUNNING"'
    command("scontrol", f'[ -e {tmp_path}/cancelled ] && echo "JobId=42 JobState=CANCELLED" || {running}')
    command("scancel", f"touch {tmp_path}/cancelled")
    slurm, _ = job
    assert slurm.end(check=True) == {"changed": True} and not (tmp_path / "cancelled").exists()
    assert slurm.end(check=False) == {"changed": True}
    assert slurm.end(check=False) == {"changed": False}


RUNNING = "JobId=42 JobState=RUNNING Reason=None Restarts={} NodeList=n1 StartTime=1795300000 EndTime=Unknown"


@pytest.fixture
def started(command, job, requested):
    """Have Slurm run the job, whose only host n1 is this machine, and return what the host writes down as its plan."""

    def start(restarts=0, **changes):
        command("scontrol", f'echo "{RUNNING.format(restarts)}"')
        command("srun", f'shift 6; {sys.executable} -c "{STEP}" "$@"')
        slurm, _ = job
        folder = Path(slurm.plan["job_dir"].replace("@trainyard-host@", "n1"))
        folder.mkdir(parents=True, exist_ok=True)
        made = {**sample_plan(slurm.plan, folder), "run": restarts, **changes}
        (folder / "plan.json").write_text(json.dumps(made))
        return slurm

    return start


# A step of the job on this machine: the agent answers, as the program of the job does there.
STEP = (
    f"import json, sys; sys.path.insert(0, '{Path(__file__).resolve().parents[4]}'); "
    "from module_utils.trainyard_node import agent; print('a login says hello'); "
    "print(json.dumps(agent.answer(sys.argv[5], json.load(sys.stdin), 60)))"
)


def sample_plan(plan, folder):
    """Return a plan that the hosts of an allocation could have made."""
    node = {"host": "n1", "address": "10.0.0.1", "interface": "eth0", "node_rank": 0, "devices": [], "ranks": [0, 1]}
    given = {name: value for name, value in plan.items() if name not in ("engine", "launch")}
    return {
        **given, "head": {"host": "n1", "address": "10.0.0.1", "port": 29500}, "candidates": [],
        "nodes": [{**node, "processes": [], "files": []}],
    }  # fmt: skip


def test_the_plan_of_the_hosts_becomes_that_of_the_run(started):
    slurm = started()
    state = slurm.state(waits=True)
    assert slurm.planned(state)
    saved = json.loads((slurm.run_dir / "plan.json").read_text())
    assert [node["host"] for node in saved["nodes"]] == ["n1"] and saved["engine"]["id"] == "42"
    assert saved["asked_by"] == "launch.yml"
    # The job is in the queue again: the hosts that it had say nothing about its next run.
    again = started(restarts=1, nodes=[])
    assert not again.planned(again.state(waits=True))
    # What Slurm has forgotten, the hosts still know.
    assert slurm.planned({"state": "lost", "requeued": 7})


@pytest.mark.parametrize("changes", [{"job_id": "other-1"}, {"job_dir": "/root"}, {"nodes": 3}, {"world_size": "many"}])
def test_a_plan_that_is_none_or_of_another_job_is_not_taken(started, changes):
    slurm = started(**changes)
    assert not slurm.planned(slurm.state(waits=True))


def test_hosts_that_share_a_folder_answer_by_steps_and_after_the_end_by_their_records(started, command):
    slurm = started()
    slurm.state(waits=True)
    about = {"job_id": slurm.plan["job_id"], "job_dir": slurm.plan["job_dir"]}
    assert slurm.ask("state", {"n1": about})["n1"]["known"] is False
    command("srun", "echo no such host >&2; exit 1")
    assert slurm.ask("state", {"n1": about})["n1"] == {"failed": True, "msg": "no such host"}
    command("scontrol", "echo JobId=42 JobState=COMPLETED Reason=None NodeList=n1")
    assert slurm.ask("state", {"n1": about})["n1"]["known"] is False
