"""Slurm: the sbatch script of a job, impossible requests, and the state of a job."""

from __future__ import annotations

import base64
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.schedulers import slurm, slurm_fit
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard.report.job_text import cause, explain
from ansible.module_utils.trainyard.slurm import state as slurm_state
from ansible.module_utils.trainyard_controller.planning import rendered
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
    "mpi": ["none", "pmix", "pmi2"],
    "folder_writable": True,
}
ARCHIVE = bytes(range(256)) * 2
ARCHIVED = "oci-archive:/images/torch.tar"


def planned(facts=FACTS, where=WHERE, **changed):
    given = {**GIVEN, **changed}
    job, findings = schedulers.parse(given)
    assert job is not None, findings
    plan, findings = slurm.plan(job, facts, Source(["train.py"], ARCHIVE), where)
    return rendered(plan), findings


def script(**changed):
    plan, findings = planned(**changed)
    assert findings == []
    return plan.submitted["job.sbatch"]


def checks(**changed):
    return [(finding.check, finding.found) for finding in planned(**changed)[1]]


def test_the_script_requests_what_the_job_needs():
    options = [line[8:] for line in script(job_max_restarts=1, job_account="lab").splitlines() if "#SBATCH " in line]
    assert "--nodes=2" in options and "--ntasks-per-node=2" in options
    # 90 s in whole minutes.
    assert "--time=2" in options
    assert "--requeue" in options and "--account=lab" in options
    assert "--no-requeue" in script()
    assert not [option for option in options if "gres" in option or "partition" in option]


@pytest.mark.parametrize("starts", slurm.LAUNCHERS)
def test_bash_accepts_every_script(starts):
    text = script(job_launcher=starts)
    before, _, packed = text.partition("\n#SOURCE\n")
    done = subprocess.run(["bash", "-n"], input=before, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "".join(packed.split()) == base64.b64encode(ARCHIVE).decode()
    assert "--kill-on-bad-exit=1" in before
    # srun gets the command quoted.
    assert shlex.join(GIVEN["job_command"]) in before


def test_the_script_extracts_its_source():
    done = subprocess.run(["sed", "1,/^#SOURCE$/d"], input=script(), text=True, capture_output=True, check=True)
    assert base64.b64decode(done.stdout) == ARCHIVE


def test_each_launcher(golden):
    shown = ""
    for starts in slurm.LAUNCHERS:
        parameters = {"btl_tcp_links": 2} if starts == "mpirun" else {}
        text = script(job_launcher=starts, job_network="10.0.0.0/8", job_mpi_parameters=parameters)
        begin, end = text.index("exit 66; }\n\n") + 11, text.index('\necho "trainyard: ended')
        shown += f"### {starts}\n{text[begin:end]}"
    golden(shown, "slurm/launchers.sh")


def test_a_script_with_all_options(golden):
    node_env = {"n1": {"LEVEL": "it's"}, "n2": {"LEVEL": "it's"}}
    plan, _ = planned(
        where=replace(WHERE, node_env=node_env),
        job_folder="/shared",
        job_port=29500,
        job_max_restarts=1,
        job_env={"OPTIONS": "two words"},
        job_data=["/data/two words"],
        job_min_disk_mib=100,
        job_packages=["torch"],
        job_gres="gpu:2",
        job_sbatch_options=["--mem=64G"],
    )
    golden(plan.submitted["job.sbatch"].partition("\n#SOURCE\n")[0] + "\n", "slurm/job.sbatch")


def prepared(text, folder, nodes=("n1",), **env):
    """Run the script's part before the ranks start, with a shell function instead of srun."""
    begin, end = text.index("# Check the nodes"), text.index("\n# Start the ranks")
    srun = (
        'srun() { while [ "$1" != bash ]; do shift; done; local worst=0; for node in $NODES; do '
        'SLURMD_NODENAME=$node "$@" || worst=$?; done; return $worst; }\n'
    )
    (folder / "source").mkdir(exist_ok=True)
    given = {"TRAINYARD_JOB_DIR": str(folder), "NODES": " ".join(nodes), "PATH": "/usr/bin:/bin", **env}
    argv = ["bash", "-c", srun + text[begin:end]]
    return subprocess.run(argv, env=given, capture_output=True, text=True, check=False)


def test_each_node_is_checked_before_the_ranks_start(tmp_path):
    here = {"job_venv": "", "job_command": ["bash", "x"], "job_launcher": "direct"}
    assert prepared(script(**here), tmp_path).returncode == 0
    shown = prepared(script(**here, job_data=["/no such/it's"]), tmp_path, nodes=("n1", "n2"))
    assert shown.returncode == 66
    assert shown.stdout.splitlines() == [f"trainyard: no /no such/it's on {node} (job_data)" for node in ("n1", "n2")]
    shown = prepared(script(**here, job_min_disk_mib=10**9), tmp_path)
    assert shown.returncode == 66
    assert shown.stdout.startswith("trainyard: ") and "expected 1000000000 (job_min_disk_mib)" in shown.stdout
    shown = prepared(script(**{**here, "job_command": ["no-such-program"]}), tmp_path)
    assert shown.stdout == "trainyard: no no-such-program on n1 (job_command)\n"
    # A missing environment must not fall back to the system's Python.
    shown = prepared(script(job_venv="/no/venv"), tmp_path)
    assert shown.stdout == "trainyard: no /no/venv/bin/python on n1 (job_venv)\n"


def environment(folder, packages):
    """Make an environment whose Python finds other packages on each node; return its PATH."""
    (folder / "bin").mkdir()
    for node, (name, version) in packages.items():
        info = folder / node / f"{name.replace('-', '_')}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = folder / "bin/python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/$SLURMD_NODENAME exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return f"{folder}/bin:/usr/bin:/bin"


def test_packages_are_compared_before_the_ranks_start(tmp_path):
    versions = {"n1": ("torch", "2.13.0"), "n2": ("torch", "2.13.0"), "n3": ("torch", "2.12.1")}
    path = environment(tmp_path, versions)
    text = script(job_venv=str(tmp_path), job_packages=["torch"])
    assert prepared(text, tmp_path, ("n1", "n2"), PATH=path).returncode == 0
    shown = prepared(text, tmp_path, ("n1", "n2", "n3"), PATH=path)
    assert shown.returncode == 65
    assert {"    torch 2.12.1 on n3", "    torch 2.13.0 on n1 n2"} < set(shown.stdout.splitlines())
    shown = prepared(text, tmp_path, ("n1", "n4"), PATH=path)
    assert shown.returncode == 66
    assert "trainyard: no torch on n4 (job_packages)" in shown.stdout


def test_a_build_of_mindspore_before_2_0_counts_by_its_own_name(tmp_path):
    path = environment(tmp_path, {"n1": ("mindspore-gpu", "1.10.0")})
    text = script(job_venv=str(tmp_path), job_packages=["mindspore"])
    assert prepared(text, tmp_path, ("n1",), PATH=path).returncode == 0
    assert "trainyard: no mindspore on n2 (job_packages)" in prepared(text, tmp_path, ("n2",), PATH=path).stdout


SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run_task(folder, command, plan=None, **env):
    """Run task.sh as rank 0 on n1 with this command."""
    text = script(**(plan or {}))
    task = text.split("<<'TRAINYARD_TASK'\n")[1].split("\nTRAINYARD_TASK\n")[0]
    for name in ("source", "logs", "exits"):
        (folder / name).mkdir(exist_ok=True)
    given = {
        "TRAINYARD_JOB_DIR": str(folder), "TRAINYARD_ATTEMPT": "0", "MASTER_ADDR": "127.0.0.1", "SLURM_PROCID": "0",
        "SLURMD_NODENAME": "n1", "SLURM_NODEID": "0", "PATH": SYSTEM_PATH, **env,
    }  # fmt: skip
    return subprocess.run(["bash", "-c", task, "task", "rank", *command], env=given, check=False).returncode


def environment_of_task(node, folder, **changed):
    """Run task.sh on a node of this name, and return the environment of its command."""
    assert run_task(folder, ["env"], changed, SLURMD_NODENAME=node, LEVEL="job") == 0
    return dict(line.partition("=")[::2] for line in (folder / "logs/rank_0.log").read_text().splitlines())


def test_a_node_has_its_own_variables(tmp_path):
    node_env = {"n1": {"LEVEL": "it's", "GLOO_SOCKET_IFNAME": "ib0"}, "n2": {"LEVEL": "it's", "TWO": 2}, "login": {}}
    where = replace(WHERE, node_env=node_env)
    first, other = tmp_path / "n1", tmp_path / "n3"
    for folder in (first, other):
        folder.mkdir()
    found = environment_of_task("n1", first, where=where)
    # It takes precedence over the job file and over the script.
    assert (found["LEVEL"], found["GLOO_SOCKET_IFNAME"], found.get("TWO")) == ("it's", "ib0", None)
    found = environment_of_task("n3", other, where=where)
    assert found["LEVEL"] == "job" and found["GLOO_SOCKET_IFNAME"] != "ib0"


def test_illegal_and_unused_variables_of_nodes_are_findings():
    where = replace(WHERE, node_env={"n1": {"RANK": 1}, "n9": {"A": 1}})
    _, findings = planned(where=where)
    assert [(finding.host, finding.check) for finding in findings] == [("n1", "job_node_env"), ("n9", "job_node_env")]
    assert "a host that Slurm does not know" in findings[1].found


def test_a_plan_names_omitted_checks():
    text = planned()[0].describe()
    assert "checked when Slurm has chosen the nodes: environment, program" in text
    assert "not checked: ssh, proxies" in text


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
        (TLS, "job_tls", "true with job_scheduler"),
        ({"job_image": ARCHIVED, "job_container": "docker"}, "job_container", f"docker for {ARCHIVED} with"),
        ({"job_image": ARCHIVED, "job_container": "apptainer"}, "job_container", f"apptainer for {ARCHIVED}"),
        ({"job_image": "/a.sif", "job_launcher": "mpirun"}, "job_launcher", "mpirun in an image with job_scheduler"),
        ({"job_image": ARCHIVED, "job_image_copy": "n1"}, "job_image_copy", "n1"),
        ({"where": replace(WHERE, known=("n1", "login"))}, "job_folder", "nothing; logs cannot be fetched from n2"),
        ({"where": replace(WHERE, submit_host="lgoin")}, "job_login_host", "lgoin, which is not in the inventory"),
        ({"where": replace(WHERE, hosts=()), "job_nodes": 0}, "job_nodes", "0, and no host of the inventory in "),
    ],
)
def test_impossible_requests_are_findings(changed, check, found):
    assert [(name, text[: len(found)]) for name, text in checks(**changed)] == [(check, found)]


def test_a_partly_drained_cluster_is_a_finding():
    drained = {**NODE, "NodeName": "n2", "State": "IDLE+DRAIN", "Reason": "new fan"}
    facts = {**FACTS, "nodes": [FACTS["nodes"][0], drained], "mpi": ["none"], "folder_writable": False}
    found = dict(checks(facts=facts, job_launcher="mpirun"))
    assert found["nodes in service"] == "1 of 2 nodes of train; n2 IDLE+DRAIN (new fan)"
    assert set(found) == {"nodes in service", "mpi", "folder"}
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
    slurm_state.exits(text.splitlines())


def test_the_reason_of_a_pending_job_is_explained():
    assert slurm_state.pending_line("Priority") == "pending (Priority): jobs before it in the queue wait, too"
    assert slurm_state.pending_line("Licenses") == "pending (Licenses)"


def test_the_first_failed_rank_is_named():
    plan = planned()[0].as_dict()
    lines = ["rank_0 n1 0 143 12.5", "rank_1 n1 0 143 12.4", "rank_2 n2 1 137 12.6", "agent_0 n1 0 1 12.3", "rank_3 x"]
    exits = slurm_state.exits(lines)
    state = {"state": "failed", "hosts": ["n1", "n2"], "exits": exits, "started": 2.0, "finished": 14.0}
    summary = schedulers.summarize(plan, state)
    assert [node["ranks"] for node in summary["nodes"]] == [[0, 1], [2, 3]]
    assert cause(summary, "/d")[0] == "rank 2 on n2 failed first: killed by SIGKILL"
    assert summary["nodes"][1]["processes"][0]["signal"] == 9


def test_a_rank_that_the_oom_killer_ended_is_named(tmp_path):
    # Simulates the counter of a cgroup, which only Slurm creates.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/grep").write_text(f'#!/bin/sh\ncat "{tmp_path}/counter"\n')
    (tmp_path / "bin/grep").chmod(0o755)

    def end_of(command):
        (tmp_path / "counter").write_text("oom_kill 3\n")
        run_task(tmp_path, ["bash", "-c", command], PATH=f"{tmp_path}/bin:{SYSTEM_PATH}")
        return slurm_state.exits((tmp_path / "exits/rank_0.exit").read_text().splitlines())

    killed = f'echo oom_kill 4 >"{tmp_path}/counter"'
    exits = end_of(f"{killed}; kill -KILL $$")
    assert [(end["signal"], end["result"]) for end in exits] == [(9, "oom-kill")]
    # An agent exits with its own status when one of its ranks is killed.
    assert [(end["exit_code"], end["result"]) for end in end_of(f"{killed}; exit 1")] == [(1, "oom-kill")]
    assert [end["result"] for end in end_of(killed)] == ["success"]
    # Earlier counts belong to other tasks.
    assert [end["result"] for end in end_of("kill -KILL $$")] == ["signal"]
    state = {"state": "failed", "hosts": ["n1", "n2"], "exits": exits}
    text, advice = cause(schedulers.summarize(planned()[0].as_dict(), state), "/d")
    assert text == "rank 0 on n1 failed first: killed by SIGKILL (oom-kill)"
    assert advice.startswith("the kernel's OOM killer ended it")


def test_a_job_out_of_memory_has_slurms_reason():
    record = slurm_state.fields((OUTPUTS / "scontrol_out_of_memory.txt").read_text())
    assert (record["JobState"], record["Reason"], record["ExitCode"]) == ("OUT_OF_MEMORY", "OutOfMemory", "0:125")
    state = {
        "state": slurm_state.read_state(record["JobState"]), "slurm_state": record["JobState"],
        "reason": record["Reason"], "exit_code": record["ExitCode"], "hosts": ["n1"],
    }  # fmt: skip
    summary = schedulers.summarize(planned()[0].as_dict(), state)
    assert (summary["state"], cause(summary, "/d")) == ("failed", ["slurm says: OUT_OF_MEMORY (OutOfMemory)"])


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
