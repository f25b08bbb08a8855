"""The modules that talk to Slurm, around stand-ins of its commands that print what Slurm 22.05 printed."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import slurm_info
import slurm_job
import slurm_job_info
import slurm_job_logs
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard import slurm_state
from ansible.module_utils.trainyard.progress import DEFAULT_PATTERN

OUTPUTS = Path(__file__).resolve().parents[1] / "fixtures/slurm"
UNKNOWN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        module.main()
    result = json.loads(capsys.readouterr().out)
    assert (ended.value.code == 0) is not result.get("failed", False)
    return result


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a stand-in of a command of Slurm into PATH: a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return write


@pytest.fixture
def forgotten(command, tmp_path, capsys):
    """Return how a job is that slurmctld has forgotten, and of which sacct says what stands in a file."""

    def ask(output, **params):
        command("scontrol", f'case "$*" in *hostnames*) echo n1; echo n3;; *) {UNKNOWN};; esac')
        command("sacct", f'cat "{OUTPUTS / output}"' if output else 'echo "accounting storage is disabled" >&2; exit 1')
        given = {"job_id": "j", "job_dir": str(tmp_path / "job"), "engine_id": "42", "world_size": 2, **params}
        return run(slurm_job_info, capsys, **given)

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
def test_a_job_that_only_the_accounting_remembers(forgotten, output, state, word, code, restarts):
    job = forgotten(output)
    assert (job["state"], job["slurm_state"], job["exit_code"], job["requeued"]) == (state, word, code, restarts)
    assert job["finished"] > 1_700_000_000
    assert job["hosts"] == ([] if job["started"] is None else ["n1", "n3"])


def test_what_is_asked_of_the_accounting_is_what_was_recorded():
    for path in OUTPUTS.glob("sacct_*.txt"):
        assert path.read_text().splitlines()[0] == slurm_state.SACCT.replace(",", "|")


def test_another_job_of_the_same_number_is_no_restart():
    header = slurm_state.SACCT.replace(",", "|")
    old, new = "other|train|FAILED|1:0|n1|1|2", "digits|train|COMPLETED|0:0|n1|3|4"
    assert slurm_state.from_sacct(f"{header}\n{old}\n{new}\n")["Restarts"] == "0"
    assert slurm_state.from_sacct(f"{header}\n") == slurm_state.from_sacct("") == {}


def test_without_accounting_the_jobs_own_script_tells_how_it_ended(forgotten, tmp_path):
    assert forgotten("")["state"] == "lost"
    (tmp_path / "job/exits").mkdir(parents=True)
    (tmp_path / "job/exits/job").write_text("3 1795300000.5\n")
    job = forgotten("")
    assert (job["state"], job["exit_code"], job["finished"]) == ("failed", "3:0", 1795300000.0)


def test_progress_comes_from_the_shared_folder_without_a_step(command, tmp_path, capsys):
    record = "JobId=42 JobState=RUNNING Reason=None Restarts=0 NodeList=n[1,3] StartTime=1795300000 EndTime=Unknown"
    command("scontrol", f'case "$*" in *hostnames*) echo n1; echo n3;; *) echo "{record}";; esac')
    command("srun", f"touch {tmp_path}/asked; echo step 7/9 loss 0.5")
    logs = tmp_path / "job/logs"
    logs.mkdir(parents=True)
    (logs / "rank_0.log").write_text("step 3/9 loss 0.7\n")
    given = {
        "job_id": "j", "job_dir": str(tmp_path / "job"), "engine_id": "42", "world_size": 2, "login_host": "login",
        "progress_pattern": DEFAULT_PATTERN,
    }  # fmt: skip
    job = run(slurm_job_info, capsys, **given, shared=True)
    assert job["metrics"]["step"] == 3 and job["log_hosts"] == ["login"]
    assert not (tmp_path / "asked").exists()
    # A folder of each node's own: a step of the job reads it on the first of them.
    (logs / "rank_0.log").unlink()
    job = run(slurm_job_info, capsys, **given)
    assert job["metrics"]["step"] == 7 and job["log_hosts"] == ["login", "n1", "n3"]


def test_what_a_cluster_is(command, tmp_path, capsys):
    command("sinfo", "echo slurm-wlm 22.05.8")
    command("scontrol", f'cat "{OUTPUTS}/scontrol_show_$2.txt"')
    command("srun", f'cat "{OUTPUTS}/srun_mpi_list.txt"')
    facts = run(slurm_info, capsys, folder=str(tmp_path / "missing"), shared=True)["facts"]
    assert facts["version"] == "22.05.8" and facts["config"]["SelectType"] == "select/cons_tres"
    assert [one["PartitionName"] for one in facts["partitions"]] == ["train"]
    assert [(node["NodeName"], node["Gres"]) for node in facts["nodes"]] == [(f"n{n}", "(null)") for n in (1, 2, 3)]
    assert "pmix" in facts["mpi"] and facts["folder_writable"] is True
    # Nothing can be made below what is no folder.
    (tmp_path / "file").write_text("")
    facts = run(slurm_info, capsys, folder=str(tmp_path / "file/deeper"), shared=True)["facts"]
    assert facts["folder_writable"] is False


def test_a_cluster_that_does_not_answer_is_a_finding(command, capsys):
    command("sinfo", "echo slurm-wlm 22.05.8")
    command("scontrol", 'echo "slurm_load_ctl_conf error: Unable to contact slurm controller" >&2; exit 1')
    result = run(slurm_info, capsys)
    assert result["facts"] == {}
    assert "Unable to contact slurm controller" in result["findings"][0]["found"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_job_is_submitted(command, tmp_path, capsys, check_mode):
    command("sbatch", f'cat >{tmp_path}/script; echo "warning: x"; echo "42;cluster"')
    given = {"state": "submitted", "job_id": "j", "script": "#!/bin/bash\n", "_ansible_check_mode": check_mode}
    assert run(slurm_job, capsys, **given)["engine_id"] == ("" if check_mode else "42")
    assert (tmp_path / "script").exists() is not check_mode


def test_slurms_own_reason_stands_in_the_failure(command, capsys):
    command("sbatch", 'echo "sbatch: error: Invalid account" >&2; exit 1')
    result = run(slurm_job, capsys, state="submitted", job_id="j", script="x")
    assert result["msg"] == "Slurm does not take the job: sbatch: error: Invalid account"


def test_a_job_is_cancelled_once(command, tmp_path, capsys):
    running = 'echo "JobId=42 JobState=RUNNING"'
    command("scontrol", f'[ -e {tmp_path}/cancelled ] && echo "JobId=42 JobState=CANCELLED" || {running}')
    command("scancel", f"touch {tmp_path}/cancelled")
    given = {"state": "cancelled", "job_id": "j", "engine_id": "42"}
    assert run(slurm_job, capsys, **given)["changed"] is True
    assert run(slurm_job, capsys, **given)["changed"] is False


def test_logs_and_ends_of_a_node(tmp_path, capsys):
    nothing = run(slurm_job_logs, capsys, job_dir=str(tmp_path / "none"))
    assert (nothing["logs"], nothing["exits"]) == ({}, [])
    for name, content in (("logs/rank_1.log", "lost\n"), ("exits/rank_1.exit", "rank_1 n2 1 137 1763.5\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    found = run(slurm_job_logs, capsys, job_dir=str(tmp_path))
    assert base64.b64decode(found["logs"]["rank_1.log"]) == b"lost\n"
    assert [(end["rank"], end["host"], end["signal"]) for end in found["exits"]] == [(1, "n2", 9)]
