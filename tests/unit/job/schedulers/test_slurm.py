"""Slurm: the sbatch script of a job, impossible requests, and the state of a job."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.schedulers import slurm, slurm_fit
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard.report.job_text import cause, explain
from ansible.module_utils.trainyard.slurm import slurm_state
from ansible.module_utils.trainyard_controller.job.schedulers.submission import rendered
from hypothesis import given
from hypothesis import strategies as st

OUTPUTS = Path(__file__).resolve().parents[3] / "fixtures/slurm"
GIVEN = {
    "job_name": "digits",
    "job_scheduler": "slurm",
    "job_command": ["python", "train.py", "--note", "it's"],
    "job_nodes": 2,
    "job_ranks_per_node": 2,
    "job_devices": "none",
    "job_venv": "/opt/venv",
    "job_timeout": 90,
}
WHERE = Where("digits-1", "now", "login", "/var/lib/trainyard", "train", ("n1", "n2"), ("n1", "n2", "login"))
PARTITION = {"PartitionName": "train", "State": "UP", "Default": "YES", "MaxTime": "1-00:00:00"}
NODE = {"State": "IDLE", "CPUTot": "4", "Gres": "(null)", "Partitions": "train", "Reason": ""}
FACTS = {
    "partitions": [{**PARTITION, "MaxNodes": "UNLIMITED", "TotalNodes": "2"}],
    "nodes": [{**NODE, "NodeName": "n1"}, {**NODE, "NodeName": "n2"}],
    "folder_writable": True,
}
ARCHIVE = bytes(range(256)) * 2
HIDDEN = {"job_events_secret": "a secret of sixteen and more", "job_events": [{"url": "https://ops.org/hidden"}]}
ARCHIVED = "oci-archive:/images/torch.tar"
IMAGE_WITH_LOGIN = {
    "job_image": f"docker://registry.example/torch@sha256:{'ab' * 32}",
    "job_registry_auth": {"username": "jane", "password": "not for scripts"},
}


def planned(facts=FACTS, where=WHERE, **changed):
    given = {**GIVEN, **changed}
    job, findings = schedulers.parse(given)
    assert job is not None, findings
    source = Source(["train.py"], ARCHIVE)
    plan, findings = slurm.plan(job, facts, source, where)
    return rendered(plan, given, where, "", source)[0], findings


def script(**changed):
    plan, findings = planned(**changed)
    assert findings == []
    return plan.submitted["job.sbatch"]


def checks(**changed):
    return [(finding.check, finding.found) for finding in planned(**changed)[1]]


def test_the_script_requests_what_the_job_needs():
    options = [line[8:] for line in script(job_max_restarts=1, job_account="lab").splitlines() if "#SBATCH " in line]
    assert "--nodes=2" in options and "--ntasks-per-node=2" in options
    assert "--requeue" in options and "--account=lab" in options and "--no-kill" not in options
    assert "--no-requeue" in script()
    assert not [option for option in options if "gres" in option or "partition" in option]


def test_slurm_gives_more_time_than_the_monitors_do():
    """They end the job at job_timeout, and its ranks save; in whole minutes."""
    (limit,) = (line for line in script(job_timeout=90, job_stop_grace=60).splitlines() if "--time=" in line)
    assert int(limit.partition("=")[2]) * 60 >= 90 + 60 + 60
    # But never more than the partition grants, for which the job would wait without end.
    assert "#SBATCH --time=1440\n" in script(job_timeout=86400)


def test_a_job_that_goes_on_without_a_host_has_an_allocation_that_does():
    """Slurm needs the option in both places; a spare is one node more, and no rank."""
    plan, findings = planned(job_nodes=1, job_spares=1, job_max_restarts=1)
    text = plan.submitted["job.sbatch"]
    assert findings == [] and (plan.nodes, plan.world_size) == (2, 2)
    assert "#SBATCH --no-kill\n" in text and "--wait=0 --no-kill bash" in text
    assert "--no-kill" in script(job_min_nodes=1, job_max_restarts=1)


def test_a_requeue_is_only_for_what_other_hosts_can_mend():
    assert "scontrol requeue" not in script()
    assert "[ $status -eq 75 ]" in script(job_max_restarts=1)


@pytest.mark.parametrize("starts", slurm.LAUNCHERS)
def test_bash_accepts_every_script(starts):
    before, _, _ = script(job_launcher=starts).partition("\n#PROGRAM\n")
    done = subprocess.run(["bash", "-n"], input=before, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--kill-on-bad-exit=0" in before


def test_the_script_carries_the_program_and_what_the_hosts_plan_from():
    plan, findings = planned(**IMAGE_WITH_LOGIN, **HIDDEN, job_folder="/shared")
    assert findings == [] and plan.settings["secrets"] == "/shared/secrets-digits-1.json"
    text = plan.submitted["job.sbatch"]
    done = subprocess.run(["sed", "1,/^#PROGRAM$/d"], input=text, text=True, capture_output=True, check=True)
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(done.stdout))) as program:
        names = {*zipfile.ZipFile(io.BytesIO(program.read("code.zip"))).namelist()}
        request = json.loads(program.read("request.json"))
        assert program.read("source.tar.gz") == ARCHIVE
    assert {"agent/trainyard_node/agent.py", "packaging/requirements.py"} <= names
    assert (
        not any(hidden in json.dumps(request) for hidden in ("sixteen", "hidden", "not for scripts"))
        and request["job"]["job_command"] == GIVEN["job_command"]
    )
    # Each host writes below its own name.
    assert request["where"]["state_dir"] == "/shared"
    assert ", packed)" in plan.describe()


def test_illegal_and_unused_variables_of_nodes_are_findings():
    where = replace(WHERE, node_env={"n1": {"RANK": 1}, "n9": {"A": 1}})
    _, findings = planned(where=where)
    assert [(finding.host, finding.check) for finding in findings] == [("n1", "job_node_env"), ("n9", "job_node_env")]
    assert "a host that Slurm does not know" in findings[1].found


def test_devices_become_generic_resources():
    with_gpus = {**FACTS, "nodes": [{**node, "Gres": "gpu:h200:4(S:0-1)"} for node in FACTS["nodes"]]}
    plan, findings = planned(with_gpus, job_devices=[0, 1], job_ranks_per_node="auto")
    assert findings == []
    assert "--gres=gpu:2" in plan.submitted["job.sbatch"] and plan.world_size == 4
    everything = planned(with_gpus, job_devices="auto", job_ranks_per_node="auto")[0]
    assert "--gres=gpu:4" in everything.submitted["job.sbatch"] and everything.world_size == 8
    assert "--gres=gpu:3" in planned(with_gpus, job_devices="auto", job_ranks_per_node=3)[0].submitted["job.sbatch"]
    copy = {"job_devices": "auto", "job_launcher": "direct", "job_ranks_per_node": "node", "job_command": ["./run.sh"]}
    plan, _ = planned(with_gpus, **copy)
    assert "--gres=gpu:4" in plan.submitted["job.sbatch"] and plan.world_size == 2
    assert "./run.sh starts its own ranks: one copy on each node, all devices" in plan.describe()
    assert "--gres" not in planned(with_gpus, job_devices="none")[0].submitted["job.sbatch"]
    one_without = {**with_gpus, "nodes": [with_gpus["nodes"][0], FACTS["nodes"][1]]}
    assert "--gres" not in planned(one_without, job_devices="auto")[0].submitted["job.sbatch"]
    assert "--gres=npu:8" in planned(with_gpus, job_gres="npu:8")[0].submitted["job.sbatch"]


TLS = {"job_tls": True, "job_packages": ["mindspore"], "job_launcher": "mindspore"}


@pytest.mark.parametrize(
    ("changed", "check", "found"),
    [
        ({"job_nodes": 3}, "job_nodes", "3 nodes"),
        ({"job_partition": "big"}, "job_partition", "no partition 'big'"),
        ({"job_timeout": 200_000}, "job_timeout", "200000 s"),
        ({"job_ranks_per_node": 8}, "job_ranks_per_node", "8 ranks on each node; 0 nodes of train have as"),
        ({"job_gres": "gpu:8"}, "job_gres", "gpu:8 on each node; 0 nodes of train have as many"),
        ({"job_secret_env": ["TOKEN"]}, "job_secret_env", "TOKEN"),
        (TLS, "job_tls", "true"),
        ({"job_events": [{"url": "https://ops.example.org/hook"}]}, "job_events", "webhook ops.example.org"),
        ({"job_image": ARCHIVED, "job_image_copy": "n1"}, "job_image_copy", "n1"),
        (IMAGE_WITH_LOGIN, "job_registry_auth", "a login"),
        ({"where": replace(WHERE, known=("n1", "login"))}, "job_folder", "nothing; logs cannot be fetched from n2"),
        ({"where": replace(WHERE, submit_host="lgoin")}, "job_login_host", "lgoin, which is not in the inventory"),
        ({"where": replace(WHERE, hosts=()), "job_nodes": 0}, "job_nodes", "0, and no host of the inventory in "),
    ],
)
def test_impossible_requests_are_findings(changed, check, found):
    assert [(name, text[: len(found)]) for name, text in checks(**changed)] == [(check, found)]


@pytest.mark.parametrize(
    ("reported", "state"), [("TIMEOUT", "failed"), ("CANCELLED", "stopped"), ("FAILED", "stopped")]
)
def test_an_end_by_slurm_is_no_stop(reported, state):
    """The hosts know only of Slurm's signal, as with stop.yml."""
    end = {"state": "stopped", "finished": 2.0}
    answers = {"n1": {"monitor": {"end": end}, "cluster": {"end": end}}, "n2": {"monitor": None}, "n3": {"msg": "no"}}
    found = slurm.with_end(answers, {"state": "?", "slurm_state": reported})
    assert (found["n1"]["monitor"]["end"]["state"], found["n1"]["cluster"]["end"]["finished"]) == (state, 2.0)
    assert [found["n2"], found["n3"]] == [answers["n2"], answers["n3"]]
    if state == "failed":
        assert "TIMEOUT: the time of the partition" in found["n1"]["cluster"]["end"]["failure"]["reason"]


def test_a_partly_drained_cluster_is_a_finding():
    drained = {**NODE, "NodeName": "n2", "State": "IDLE+DRAIN", "Reason": "new fan"}
    facts = {**FACTS, "nodes": [FACTS["nodes"][0], drained], "folder_writable": False}
    found = dict(checks(facts=facts))
    assert found["nodes in service"] == "1 of 2 nodes of train; n2 IDLE+DRAIN (new fan)"
    assert set(found) == {"nodes in service", "folder"}
    assert checks(facts={**facts, "folder_writable": True}, job_nodes=1) == []


def test_an_unsupported_launcher_is_a_finding():
    job, (finding,) = schedulers.parse({**GIVEN, "job_launcher": "rank_table"})
    assert job is None
    assert (finding.check, finding.found) == ("job_launcher", "'rank_table' with job_scheduler: slurm")
    assert finding.action == "choose one of these, or job_scheduler: ssh"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("UNLIMITED", None), ("1-00:00:00", 1440), ("2:30:00", 150), ("90:00", 90), ("15", 15), ("2-12", 3600)],
)
def test_times_of_slurm_are_parsed(text, expected):
    assert slurm_fit.minutes(text) == expected


@pytest.mark.parametrize(
    ("gres", "count"), [("gpu:8", 8), ("gpu:h200:8(S:0-1),npu:2", 8), ("npu:2", 0), ("(null)", 0), ("", 0)]
)
def test_devices_of_a_node_are_counted(gres, count):
    assert slurm_fit.gres_count(gres, "gpu") == count


RECORD = (
    "JobId=42 JobName=digits UserId=train(1000) JobState=PENDING Reason=Resources Dependency=(null) "
    "StartTime=1763760000 NodeList=n[1-2] ExitCode=0:0 Comment=trainyard:digits-1 Command=(null) WorkDir=/a b=c/d"
)


def test_a_record_of_scontrol_is_parsed():
    fields = slurm_state.fields(RECORD)
    assert (fields["JobState"], fields["Reason"], fields["NodeList"]) == ("PENDING", "Resources", "n[1-2]")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        *(("PENDING", "pending"), ("COMPLETING", "running"), ("COMPLETED", "succeeded"), ("TIMEOUT", "timed_out")),
        *(("CANCELLED by 1000", "stopped"), ("NODE_FAIL", "failed"), ("OUT_OF_ME+", "lost"), ("", "lost")),
    ],
)
def test_states_are_mapped(word, state):
    assert slurm_state.read_state(word) == state


@given(st.text(alphabet=" =:_abcXYZ019-/()\n", max_size=300))
def test_any_record_is_parsed(text):
    assert all(isinstance(value, str) for value in slurm_state.fields(text).values())


def test_the_reason_of_a_pending_job_is_explained():
    assert slurm_state.pending_line("Priority") == "pending (Priority): jobs before it in the queue wait, too"
    assert slurm_state.pending_line("Licenses") == "pending (Licenses)"


def test_a_job_out_of_memory_has_slurms_reason():
    record = slurm_state.fields((OUTPUTS / "scontrol_out_of_memory.txt").read_text())
    assert (record["JobState"], record["Reason"], record["ExitCode"]) == ("OUT_OF_MEMORY", "OutOfMemory", "0:125")
    state = {
        "state": slurm_state.read_state(record["JobState"]), "slurm_state": record["JobState"],
        "reason": record["Reason"], "exit_code": record["ExitCode"], "hosts": ["n1"],
    }  # fmt: skip
    summary = schedulers.summarize(planned()[0].as_dict(), state)
    assert (summary["state"], cause(summary, "/d")) == ("failed", ["slurm says: OUT_OF_MEMORY (OutOfMemory)"])


def test_a_script_without_room_for_its_log_says_where_to_look():
    state = {"state": "failed", "slurm_state": "FAILED", "exit_code": "73:0", "hosts": ["n1"]}
    assert (
        "exit code 73: the first host could make no folder; look for room"
        in slurm.complete({}, state)["failure"]["reason"]
    )


def test_a_job_that_slurm_ended_has_its_reason():
    plan = planned()[0].as_dict()
    state = {"state": "failed", "slurm_state": "NODE_FAIL", "reason": "NodeDown", "exit_code": "0:0", "hosts": ["n1"]}
    summary = schedulers.summarize(plan, state)
    assert cause(summary, "/d") == ["slurm says: NODE_FAIL (NodeDown)"]
    pending = schedulers.summarize(plan, {"state": "pending", "reason": "Priority", "hosts": []})
    assert explain(pending, "runs/x", "/d", []).startswith(f"Job {plan['job_id']} is pending: Priority.")


def test_a_requeued_job_is_reported():
    plan = planned(job_max_restarts=2)[0].as_dict()
    summary = schedulers.summarize(plan, {"state": "succeeded", "hosts": ["n1", "n2"], "requeued": 1})
    text = explain(summary, "runs/x", "/d", [])
    assert "started again 1 of at most 2 times\n    Slurm requeued the job, so the whole job starts again" in text


def test_a_job_that_waits_again_is_told_of_by_slurm_and_not_by_the_nodes_of_its_last_run():
    plan = {**planned(job_max_restarts=2)[0].as_dict(), "nodes": [{"host": "n1"}], "run": 0}
    pending = schedulers.summarize(plan, {"state": "pending", "hosts": [], "requeued": 1})
    assert len(pending["restarts"]) == 1
    state = {"state": "failed", "slurm_state": "FAILED", "exit_code": "78:0", "hosts": ["n2"], "requeued": 1}
    failed = schedulers.summarize(plan, state)
    assert failed["failure"]["kind"] == "engine" and [each["host"] for each in failed["nodes"]] == ["n2"]
