"""The hosts of an allocation: their names, their devices, how they meet, and the program that Slurm starts on them."""

import asyncio
import io
import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tarfile

import pytest
from ansible.module_utils.trainyard.job.run.failure_kinds import KINDS, OF_HOSTS
from ansible.module_utils.trainyard.slurm import allocation
from ansible.module_utils.trainyard_controller import agent_code
from ansible.module_utils.trainyard_node.job.run import processes
from ansible.module_utils.trainyard_node.job.schedulers import meeting, node
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for

STEP = {"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("gpu[008-010,2],login1", ["gpu008", "gpu009", "gpu010", "gpu2", "login1"]),
        ("r[1-2]n[1,3]-ib", ["r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib"]),
    ],
)
def test_names_of_slurm_are_expanded(names, expected):
    assert allocation.expand(names) == expected


@given(st.lists(st.from_regex(r"[a-z]{1,5}[0-9]{0,3}", fullmatch=True), min_size=1, unique=True))
def test_plain_names_stay_what_they_are(names):
    assert allocation.expand(",".join(names)) == names


def test_a_list_without_end_is_refused():
    with pytest.raises(ValueError, match="more than"):
        allocation.expand("n[0-999999999]")


def test_a_host_finds_its_place_in_the_list_of_the_step():
    found = allocation.of_slurm({**STEP, "SLURM_RESTART_COUNT": "2"})
    assert (found.host, found.run, allocation.of_slurm(STEP).run) == ("n2", 2, 0)
    for wrong in ({}, {**STEP, "SLURM_NODEID": "3"}, {**STEP, "SLURM_NODEID": "x"}):
        with pytest.raises(ValueError, match="a program that srun starts"):
            allocation.of_slurm(wrong)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("1,3", [1, 3]), ("", [0, 1, 2, 3]), ("GPU-aa", [0, 1, 2, 3]), ("0,9", [0, 1, 2, 3]), ("2", [2])],
)
def test_only_the_devices_of_the_step_count(visible, expected):
    """Where a number is no index of this host, Slurm hides the others itself."""
    facts = {"accelerators": {"vendor": "nvidia", "devices": [{"index": index} for index in range(4)]}}
    found = allocation.only_allocated(facts, {"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    assert [device["index"] for device in found["accelerators"]["devices"]] == expected


def test_paths_below_a_shared_folder_have_the_name_of_the_host():
    path = f"{allocation.state_dir('/shared', '/var/lib/trainyard')}/jobs/x"
    assert allocation.on_host({"node_plan": {"job_dir": path}}, "n2") == {
        "node_plan": {"job_dir": "/shared/hosts/n2/jobs/x"}
    }
    assert allocation.state_dir("", "/var/lib/trainyard") == "/var/lib/trainyard"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({"state": "succeeded"}, 0),
        ({"state": "stopped"}, node.STOPPED),
        ({"state": "timed_out", "failure": {"kind": "timed_out"}}, node.FAILED),
        ({"state": "failed", "failure": {"kind": "exit"}}, node.FAILED),
        ({"state": "failed", "failure": {"kind": "not_back"}}, node.AGAIN),
        ({"state": "failed", "failure": {"kind": "replaced"}}, 0),
        ({}, node.FAILED),
    ],
)
def test_only_a_failure_of_hosts_asks_for_other_hosts(end, status):
    assert node.status_of(end) == status
    assert set(KINDS) >= OF_HOSTS


@pytest.mark.parametrize(
    ("status", "lost_s", "may_again", "command"),
    [
        (0, None, True, []),
        # All leave at the end of the job.
        (0, 95.0, True, []),
        (0, 40.0, True, ["scancel", "7"]),
        (node.FAILED, 40.0, True, ["scancel", "7"]),
        (node.AGAIN, 40.0, True, ["scontrol", "requeue", "7"]),
        (node.AGAIN, 40.0, False, ["scancel", "7"]),
    ],
)
def test_hosts_that_are_left_alone_end_their_allocation(status, lost_s, may_again, command):
    assert node.leaving(status, lost_s, 100.0, may_again, "7") == command


def meet(answers, *asks):
    """Have n1 ask n2 and itself over a real connection; `answers` are what a question says by host."""

    async def main():
        async def answer(question, arguments, limit_s):
            return answers[arguments["host"]]

        meeting.answer = answer
        first = meeting.First("n1", ("n2", "n3"), "token")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        other, stranger = meeting.Other("n2", "token"), meeting.Other("n3", "another token")
        attending = [asyncio.ensure_future(each.attend("127.0.0.1", port)) for each in (other, stranger)]
        await first.open("127.0.0.1", port)
        found = [await asyncio.to_thread(first.ask, *ask) for ask in asks]
        addresses = first.addresses()
        first.tell({"over": True})
        told = await attending[0]
        attending[1].cancel()
        first.close()
        return found, addresses, told

    return asyncio.run(main())


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(meeting, "JOIN_S", 2.0)
    monkeypatch.setattr(meeting, "answer", meeting.answer)


def test_the_first_host_asks_all_and_takes_no_stranger_for_one(impatient):
    known = {
        "known": True,
        "monitor_alive": False,
        "processes": [],
        "monitor": None,
        "cluster": None,
        "left": 0,
        "changed": False,
    }
    answers = {"n1": known, "n2": {"left": "many"}}
    asked = {host: {"host": host} for host in ("n1", "n2", "n3")}
    ((found,), addresses, told) = meet(answers, ("remove", asked))
    assert found["n1"] == known
    # What another host says has the shape of an answer to this question, or is none.
    assert found["n2"]["failed"] and "cannot be used" in found["n2"]["msg"]
    assert found["n3"]["unreachable"] and "did not join" in found["n3"]["msg"]
    assert (addresses, told) == ({"n2": "127.0.0.1"}, {"over": True})


PROGRAM = """
import os, signal, sys, time
print(sorted(name for name in os.environ if name.startswith(("SLURM", "TRAINYARD_MEETING", "SECRET"))), flush=True)
if sys.argv[1] == "saves":
    signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
    open("up", "w").close()
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def job_id():
    """Return an id of its own: tests at the same time look for processes by it."""
    return f"alloc-{secrets.token_hex(6)}"


@pytest.fixture
def folder(tmp_path, job_id):
    """Return the folder of the job."""
    return tmp_path / "state/jobs" / job_id


@pytest.fixture
def allocated(tmp_path, job_id):
    """Start the program of a job on an allocation of one host, this machine, as srun would."""

    def start(*words, run=0, secrets="", **job):
        content, text = io.BytesIO(), PROGRAM.encode()
        with tarfile.open(fileobj=content, mode="w:gz") as source:
            about = tarfile.TarInfo("train.py")
            about.size = len(text)
            source.addfile(about, io.BytesIO(text))
        me = pwd.getpwuid(os.geteuid()).pw_name
        where = {
            "job_id": job_id, "created": "", "submit_host": "login", "state_dir": str(tmp_path / "state"),
            "user": me, "hosts": [], "known": [], "node_env": {}, "all_reduce": "", "venvs": "",
        }  # fmt: skip
        given = {
            "job_name": "alloc", "job_command": ["python3", "train.py", *words], "job_launcher": "direct",
            "job_devices": "none", "job_min_disk_mib": 1, **job,
        }  # fmt: skip
        packed = agent_code.allocated(
            {"job": given, "where": where, "mpi_prefix": "", "secrets": secrets}, content.getvalue()
        )
        here = tmp_path / f"here{run}"
        here.mkdir()
        (here / "program.zip").write_bytes(packed)
        subprocess.run([sys.executable, "-m", "zipfile", "-e", here / "program.zip", here / "program"], check=True)
        argv = [sys.executable, "-IS", str(here / "program")]
        env = {**STEP, "SLURM_STEP_NODELIST": "n1", "SLURM_JOB_NODELIST": "n1", "SLURM_NODEID": "0", "PATH": os.defpath}
        env["SLURM_RESTART_COUNT"] = str(run)
        met = subprocess.run([*argv, "meeting"], env=env, capture_output=True, text=True, check=True).stdout
        env |= {node.MEETING: met, node.STATUS: str(tmp_path / f"status{run}")}
        return subprocess.Popen([*argv, "node"], env=env, stdout=subprocess.PIPE, text=True)

    yield start
    processes.end(job_id, grace_s=0.0)


def test_a_job_runs_in_its_allocation_and_again_when_it_is_requeued(allocated, folder, tmp_path):
    first = allocated("0")
    assert first.communicate()[0] == "" and first.returncode == 0
    assert (folder / "logs/rank_0.log").read_text() == "[]\n"
    plan = json.loads((folder / "plan.json").read_text())
    assert ([each["host"] for each in plan["nodes"]], plan["run"]) == (["n1"], 0)
    (folder / "source/checkpoint").write_text("step 7")
    again = allocated("3", run=1)
    assert (again.communicate()[0], again.returncode) == ("", node.FAILED)
    # The logs and what the job saved are still there, and the program is gone.
    assert (folder / "logs/rank_0.log").read_text().count("[]\n") == 2
    assert (folder / "source/checkpoint").read_text() == "step 7"
    assert [(tmp_path / f"status{run}").read_text() for run in (0, 1)] == ["0\n", f"{node.FAILED}\n"]
    assert not (tmp_path / "here0").exists() and not (tmp_path / "here1").exists()


def test_slurms_signal_gives_the_ranks_time_to_save_and_a_second_one_changes_nothing(allocated, folder, job_id):
    running = allocated("saves")
    wait_for((folder / "source/up").exists, "the rank to handle the signal")
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGTERM)
    assert running.wait() == node.STOPPED
    assert (folder / "logs/rank_0.log").read_text() == "[]\nsaved\n"
    assert processes.of_job(job_id) == []


def test_findings_are_those_of_ssh_and_nothing_is_started(allocated, tmp_path):
    printed, _ = allocated("0", job_data=["/no such data"]).communicate()
    assert all(text in printed for text in ("no /no such data", "the job's data on every node", "nothing was started"))
    assert not (tmp_path / "state").exists()


def test_secrets_come_from_their_file_or_the_job_does_not_start(allocated, folder, tmp_path):
    place = tmp_path / "secrets.json"
    first = allocated("0", secrets=str(place), job_secret_env=["SECRET"])
    assert "lacks values of job_secret_env" in first.communicate()[0] and first.returncode == node.UNFIT
    place.write_text('{"SECRET": "hunter2"}')
    assert allocated("0", run=1, secrets=str(place), job_secret_env=["SECRET"]).wait() == 0
    assert (folder / "logs/rank_0.log").read_text() == "['SECRET']\n"


def test_a_killed_monitor_leaves_no_rank(allocated, folder, job_id):
    running = allocated("saves")
    wait_for((folder / "source/up").exists, "the rank to run")
    pid, _ = processes.monitor_of(folder)
    os.kill(pid, signal.SIGKILL)
    assert running.wait() == node.FAILED
    assert processes.of_job(job_id) == []
