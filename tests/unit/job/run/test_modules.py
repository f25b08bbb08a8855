"""Answers of a node's agent, with real processes where it starts some."""

import base64
import hashlib
import io
import json
import os
import pwd
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run import job_folder as folder
from ansible.module_utils.trainyard_node.job.run.ranks import process_table, units
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import Cluster, free_port, wait_for
from job_samples import make_job, make_plan, member

ME = pwd.getpwuid(os.getuid()).pw_name


# ---- what the agent of a node does


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The node plan of a job on this machine, supervised without systemd."""
    monkeypatch.setattr(units, "SYSTEMD_RUNNING", tmp_path / "no-systemd")
    script = b"import os, pathlib, time\nprint('step 1 loss 0.5', os.environ['KEY'], flush=True)\n"
    script += b"while not pathlib.Path('go').exists():\n    time.sleep(0.05)\n"
    part = Cluster(tmp_path / "cluster", ["wait"]).head.spec
    job_id, job_dir = part["job_id"], tmp_path / "state" / "jobs" / part["job_id"]
    (process,) = part["processes"]
    process.update(argv=[sys.executable, "train.py"], log=str(job_dir / "logs" / "rank_0.log"))
    part = {**part, "job_dir": str(job_dir), "silent_after_s": 15, "interface": "lo", "files": []}
    for name in ("unit", "token", "secret_env"):
        del part[name]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.py")
        info.size = len(script)
        archive.addfile(info, io.BytesIO(script))
    source = base64.b64encode(content.getvalue()).decode()
    key = base64.b64encode(b"a key").decode()
    secrets = {"secret_env": {"KEY": "hunter2"}, "secret_files": {"tls/client.p12": key}, "token": "a token"}
    about = {"job_id": job_id, "job_dir": str(job_dir), "node_plan": part, "files": [], "user": ME}
    yield {**about, **secrets, "source_archive": source}
    process_table.end(job_id, grace_s=0.0)


def ask(question, **arguments):
    """Return the answer of a node's agent."""
    answer = agent.answer(question, json.loads(json.dumps(arguments)), 120)
    assert "exception" not in answer, answer
    return answer


def start(job):
    return ask("start", **{key: value for key, value in job.items() if key not in ("job_id", "job_dir")})


def failed_start(job):
    """Return the message of a start that fails and leaves nothing."""
    message = start(job)["msg"]
    assert not Path(job["job_dir"]).exists() and process_table.of_job(job["job_id"]) == []
    return message


def state(job, **more):
    return ask("state", job_id=job["job_id"], job_dir=job["job_dir"], **more)


def collect(job, **more):
    given = {"stop": False, "log_limit": 4 << 20, "user": job["user"], "age_s": 0.0, **more}
    return ask("collect", job_id=job["job_id"], job_dir=job["job_dir"], **given)


def remove(job, **more):
    return ask("remove", job_id=job["job_id"], job_dir=job["job_dir"], **more)


def with_file(job, content, intended=None):
    """The job with a file that every node gets; `intended` is what the plan's digest is of."""
    path = f"{job['job_dir']}/rank_table.json"
    digest = hashlib.sha256((intended or content).encode()).hexdigest()
    return {**job, "files": [{"path": path, "content": content, "mode": "0644", "sha256": digest}]}


def test_files_of_all_nodes_are_there_before_anything_starts(job):
    start(with_file(job, '{"größe": 1}\n'))
    folder = Path(job["job_dir"])
    assert (folder / "rank_table.json").read_text(encoding="utf-8") == '{"größe": 1}\n'
    # The whole content is not read again by each process.
    (written,) = json.loads((folder / "node_plan.json").read_text())["files"]
    assert sorted(written) == ["mode", "path", "sha256"]
    remove(job)


def test_a_file_that_differs_from_the_plan_stops_the_start(job):
    found, expected = (hashlib.sha256(text).hexdigest() for text in (b"{}", b"{ }"))
    message = failed_start(with_file(job, "{}", intended="{ }"))
    assert message.startswith(f"{job['job_dir']}/rank_table.json has sha256 {found}, expected {expected}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_archive": base64.b64encode(b"no archive").decode()}, "ReadError: file could not be opened"),
        ({"user": "no-such-user"}, "no user no-such-user: expected the training user; run site.yml"),
    ],
)
def test_a_job_that_cannot_be_started_leaves_nothing(job, changes, message):
    assert failed_start({**job, **changes}).startswith(message)


def test_a_monitor_that_cannot_run_reports_why(job):
    ended = "the monitor ended before it reported: "
    with socket.create_server(("127.0.0.1", job["node_plan"]["monitor_port"])):
        message = failed_start(job)
    assert ended in message and "Address already in use" in message
    job["node_plan"]["progress_pattern"] = "("
    message = failed_start(job)
    assert ended in message and "unterminated subpattern" in message


def test_a_job_is_started_once_watched_stopped_and_removed(job, tmp_path):
    folder = tmp_path / "state" / "jobs" / job["job_id"]
    assert state(job)["known"] is False

    started = start(job)
    assert (started["changed"], started["known"], started["monitor_alive"]) == (True, True, True)
    assert started["processes"] == [{"name": "rank0", "ranks": [0], "exit": None, "ends": {}}]
    # Secrets are in one file that only the training user reads, and in no argument list.
    private = folder / "node_plan.json"
    assert private.stat().st_mode & 0o777 == 0o600
    assert json.loads(private.read_text())["secret_env"] == {"KEY": "hunter2"}
    key = folder / "tls" / "client.p12"
    assert (key.read_bytes(), key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (b"a key", 0o600, 0o700)
    assert not any(
        b"hunter2" in process_table.command_line(pid).encode() for pid in process_table.of_job(job["job_id"])
    )

    wait_for(lambda: (state(job)["cluster"] or {}).get("metrics"), "the first step")
    running = {**collect(job), **state(job)}
    assert running["left"] == 2
    assert running["line"].endswith("1/1 ranks running   step 1   loss 0.5")
    assert base64.b64decode(running["logs"]["rank_0.log"]) == b"step 1 loss 0.5 *******\n"
    followed = ask("follow", job_dir=job["job_dir"], offsets={"rank_0.log": None})["logs"]["rank_0.log"]
    assert followed == {"lines": ["step 1 loss 0.5 *******"], "offset": 24, "skipped": 0}
    assert "metrics.jsonl" in running["logs"]

    previewed = collect(job, stop=True, check=True)
    assert (previewed["changed"], previewed["monitor_alive"]) == (True, True)
    stopped = collect(job, stop=True, log_limit=10)
    assert (stopped["changed"], stopped["left"], stopped["monitor_alive"]) == (True, 0, False)
    assert stopped["cluster"]["end"]["state"] == "stopped"
    assert json.loads(private.read_text())["secret_env"] == {}
    assert not key.exists()
    assert (stopped["processes"][0]["exit"]["signal"], stopped["known"]) == (15, True)
    cut = base64.b64decode(stopped["logs"]["rank_0.log"]).decode()
    assert cut == f"[the first 14 bytes are in {folder}/logs/rank_0.log on the node]\n5 *******\n"
    # Nobody knows the value any more, so it is masked on the node, too.
    assert "hunter2" not in (folder / "logs" / "rank_0.log").read_text()
    assert collect(job, stop=True)["changed"] is False

    refused = start(job)
    assert (refused["failed"], refused["taken"]) == (True, True) and "expected a new job id" in refused["msg"]

    assert remove(job, check=True)["changed"] is True
    assert folder.is_dir()
    assert remove(job)["changed"] is True
    assert not folder.exists()
    assert remove(job)["changed"] is False


def test_waiting_ends_with_the_job(job):
    start(job)
    assert state(job)["monitor"]["end"] is None
    Path(job["job_dir"], "source", "go").touch()
    over = state(job, wait_s=90)
    assert over["cluster"]["end"]["state"] == "succeeded"
    assert over["processes"][0]["exit"]["exit_code"] == 0
    carried = over["monitor"]["carried"]
    assert set(carried["now"]) == set(carried["before"]) >= {"lo"}
    assert all(carried["now"]["lo"][way] >= carried["before"]["lo"][way] for way in ("sent", "received"))


def test_first_lines_of_nccl_are_read_apart_from_the_end_of_a_long_log(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    line = "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
    logs.joinpath("rank_0.log").write_text(f"{line}\nNCCL INFO comm 0x1 rank 0\n" + "step 1\n" * 1000)
    logs.joinpath("rank_1.log").symlink_to("rank_0.log")
    found = {name: base64.b64decode(text).decode() for name, text in folder.read_logs(tmp_path, 70).items()}
    own = f"nccl_{socket.gethostname().partition('.')[0]}.log"
    assert set(found) == {"rank_0.log", own}
    assert found[own] == f"{line}\n" and line not in found["rank_0.log"]

    logs.joinpath("rank_0.log").write_text(f"{line}{'x' * 5000}\n" * 1000)
    cut = base64.b64decode(folder.read_logs(tmp_path, 70)[own])
    assert len(cut) <= folder.NCCL_MAX_BYTES + 2 * folder.NCCL_LINE
    assert max(map(len, cut.splitlines())) == folder.NCCL_LINE


# ---- preflight, findings


WANTS = {"venv": None, "packages": [], "mpi_prefix": "", "user": ME}


def test_a_node_checks_its_plan_and_reports_changed_facts(tmp_path):
    part = make_plan(make_job(data=["/proc/nowhere/data"]), [member(0), member(1)]).node_plans([])["n1"]
    part = {**part, "head_address": "127.0.0.1", "port": free_port(), "monitor_port": free_port()}
    part = {**part, "job_dir": str(tmp_path / "jobs" / "x"), "venv": "", "interface": "gone0"}
    known = ask("probe", **WANTS)["node"]
    found = ask("preflight", node_plan=part, **WANTS)
    assert "data" in [item["check"] for item in found["findings"]] and found["stale"] is True
    assert found["node"]["fingerprint"] == known["fingerprint"] and "-" in found["node"]["unused_ports"]
    assert found["unhealthy"] == ["network: 10.77.0.1: no interface gone0"]
    # Other ports may be free now.
    held = ask("preflight", node_plan={**part, "fingerprint": known["fingerprint"]}, **WANTS)
    assert held["stale"] is False and held["node"]["unused_ports"]
    fits = {**part, "fingerprint": known["fingerprint"], "data": [], "devices": [], "packages": [], "program": "true"}
    fits = {**fits, "ssh_peers": [], "node_rank": 0, "min_disk_mib": 0, "program_path": os.defpath}
    before = time.time()
    answer = ask("preflight", node_plan={**fits, "health_gate": False}, **WANTS)
    clock = answer.pop("clock")
    assert before <= clock["begun"] <= clock["ended"] <= time.time()
    assert answer == {"findings": [], "programs": answer["programs"], "stale": False, "unhealthy": None}


def test_monitors_of_other_programs_are_no_monitors(job, tmp_path):
    folder = tmp_path / "state" / "jobs" / job["job_id"]
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as other:
        write_json(folder / "node_plan.json", {**job["node_plan"], "unit": ""})
        write_json(folder / "monitor.json", {"pid": other.pid, "start_time": 1})
        told = collect(job, stop=True)
        assert (told["changed"], told["monitor_alive"]) == (False, False)
        assert other.poll() is None
        other.kill()
