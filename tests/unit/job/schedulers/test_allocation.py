"""The hosts of an allocation: their names, their devices, how they meet, and the program that Slurm starts on them."""

import asyncio
import base64
import io
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile

import pytest
from ansible.module_utils.trainyard.job.file import event_receivers
from ansible.module_utils.trainyard.slurm import allocation
from ansible.module_utils.trainyard_controller.nodes import agent_code
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.schedulers import allocated_node, meeting, place, private_file
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


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({"state": "succeeded"}, 0),
        ({"state": "stopped"}, allocated_node.STOPPED),
        ({"state": "timed_out", "failure": {"kind": "timed_out"}}, allocated_node.FAILED),
        ({"state": "failed", "failure": {"kind": "exit"}}, allocated_node.FAILED),
        ({"state": "failed", "failure": {"kind": "not_back"}}, allocated_node.AGAIN),
        ({"state": "failed", "failure": {"kind": "replaced"}}, 0),
        ({}, allocated_node.FAILED),
    ],
)
def test_only_a_failure_of_hosts_asks_for_other_hosts(end, status):
    assert allocated_node.status_of(end) == status


@pytest.mark.parametrize(
    ("status", "lost_s", "may_again", "command"),
    [
        (0, None, True, []),
        # All leave at the end of the job.
        (0, 95.0, True, []),
        (0, 40.0, True, ["scancel", "7"]),
        (allocated_node.FAILED, 40.0, True, ["scancel", "7"]),
        (allocated_node.AGAIN, 40.0, True, ["scontrol", "requeue", "7"]),
        (allocated_node.AGAIN, 40.0, False, ["scancel", "7"]),
    ],
)
def test_hosts_that_are_left_alone_end_their_allocation(status, lost_s, may_again, command):
    assert allocated_node.leaving(status, lost_s, 100.0, may_again, "7") == command


def meet(answers, *asks):
    """Have n1 ask n2 and itself over a real connection; `answers` are what a question says by host."""

    async def main():
        async def here(question, arguments, limit_s):
            return answers[arguments["host"]]

        first = meeting.First("n1", ("n2", "n3"), "token", here)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        other, stranger = meeting.Other("n2", "token", here), meeting.Other("n3", "another token", here)
        attending = [asyncio.ensure_future(each.attend("127.0.0.1", port)) for each in (other, stranger)]
        await first.open("127.0.0.1", port)
        await first.meet()
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
    """Return the part of the host in the folder of the job."""
    return tmp_path / "state/jobs" / job_id / "hosts/n1"


@pytest.fixture
def allocated(tmp_path, job_id):
    """Start the program of a job on an allocation of one host, this machine, as srun would."""

    def start(*words, run=0, secrets="", **job):
        content, text = io.BytesIO(), PROGRAM.encode()
        # A requeued job has the same script, and gzip would note the time.
        with tarfile.open(fileobj=content, mode="w") as source:
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
        argv = [sys.executable, "-IS", str(here / "program.zip")]
        env = {**STEP, "SLURM_STEP_NODELIST": "n1", "SLURM_JOB_NODELIST": "n1", "SLURM_NODEID": "0", "PATH": os.defpath}
        env["SLURM_RESTART_COUNT"] = str(run)
        met = subprocess.run([*argv, "meeting"], env=env, capture_output=True, text=True, check=True).stdout
        env |= {place.MEETING: met, allocated_node.STATUS: str(tmp_path / f"status{run}")}
        return subprocess.Popen([*argv, "node"], env=env, stdout=subprocess.PIPE, text=True)

    yield start
    process_table.end(job_id, grace_s=0.0)


def test_a_job_runs_in_its_allocation_and_again_when_it_is_requeued(allocated, folder, tmp_path):
    first = allocated("0")
    assert first.communicate()[0] == "" and first.returncode == 0
    assert (folder / "logs/rank_0.log").read_text() == "[]\n"
    plan = json.loads((folder / "plan.json").read_text())
    assert ([each["host"] for each in plan["nodes"]], plan["run"]) == (["n1"], 0)
    (folder.parents[1] / "source/checkpoint").write_text("step 7")
    again = allocated("3", run=1)
    assert (again.communicate()[0], again.returncode) == ("", allocated_node.FAILED)
    # The logs and what the job saved are still there, and the program is gone.
    assert (folder / "logs/rank_0.log").read_text().count("[]\n") == 2
    assert (folder.parents[1] / "source/checkpoint").read_text() == "step 7"
    assert [(tmp_path / f"status{run}").read_text() for run in (0, 1)] == ["0\n", f"{allocated_node.FAILED}\n"]
    assert not (tmp_path / "here0").exists() and not (tmp_path / "here1").exists()


def test_slurms_signal_gives_the_ranks_time_to_save_and_a_second_one_changes_nothing(allocated, folder, job_id):
    running = allocated("saves")
    wait_for((folder.parents[1] / "source/up").exists, "the rank to handle the signal")
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGTERM)
    assert running.wait() == allocated_node.STOPPED
    assert (folder / "logs/rank_0.log").read_text() == "[]\nsaved\n"
    assert process_table.of_job(job_id) == []


def test_findings_are_those_of_ssh_and_nothing_is_started(allocated, tmp_path):
    printed, _ = allocated("0", job_data=["/no such data"]).communicate()
    assert all(text in printed for text in ("no /no such data", "the job's data on every node", "nothing was started"))
    assert not (tmp_path / "state").exists()


def test_secrets_come_from_their_file_or_the_job_does_not_start(allocated, folder, tmp_path):
    """A requeued job has them again. The receivers of events, with the addresses of webhooks, come from there, too."""
    place = tmp_path / "secrets.json"
    first = allocated("0", secrets=str(place), job_secret_env=["SECRET"])
    assert "lacks values of job_secret_env" in first.communicate()[0] and first.returncode == allocation.UNFIT
    events = event_receivers.settings({"job_events": [{"file": str(tmp_path / "events.jsonl")}]})
    files = {private_file.EVENTS: base64.b64encode(json.dumps(events).encode()).decode()}
    private_file.write(str(place), {"secret_env": {"SECRET": "hunter2"}, "secret_files": files})
    for run in (1, 2):
        assert allocated("0", run=run, secrets=str(place), job_secret_env=["SECRET"]).wait() == 0
    assert (folder / "logs/rank_0.log").read_text().count("['SECRET']\n") == 2
    told = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert told.count("ended") == told.count("started") == 2, told
    assert not (folder / private_file.EVENTS).exists() and "hunter2" not in (folder / "plan.json").read_text()


def test_what_is_secret_comes_from_the_file_and_not_from_another_host(tmp_path):
    place = str(tmp_path / "private.json")
    login = {"username": "jane", "password": "hunter2"}
    files = {"tls/key": "k", private_file.LOGIN: base64.b64encode(json.dumps(login).encode()).decode()}
    private_file.write(place, {"secret_env": {"A": "b"}, "secret_files": {private_file.EVENTS: "e", **files}})
    asked = {"secrets": place, "leads": False, "user": "train"}
    filled = private_file.filled("start", asked, "token")
    assert filled["secret_env"] == {"A": "b"} and filled["secret_files"] == {"tls/key": "k"}
    leads = private_file.filled("start", {**asked, "leads": True}, "token")
    assert leads["secret_files"] == {"tls/key": "k", private_file.EVENTS: "e"}
    # All hosts have the same token for monitors, which is not the one by which they met.
    assert private_file.filled("start", {**asked, "secrets": ""}, "token")["token"] == filled["token"]
    assert "token" not in filled["token"]
    # The login of the registry is for the transfer of the image alone.
    image = {"image": {"reference": "r", "auth": None}, "wait_s": 2}
    assert private_file.filled("bring_image", {**image, "secrets": place}, "token")["image"]["auth"] == login
    assert private_file.filled("bring_image", {**image, "secrets": ""}, "token") == image
    assert private_file.filled("probe", {"user": "train"}, "token") == {"user": "train"}


def test_a_requeued_run_that_cannot_start_keeps_what_the_job_has_saved(allocated, folder):
    assert allocated("0").wait() == 0
    (folder.parents[1] / "source/checkpoint").write_text("step 7")
    # A folder where a file has to be: the start fails after the checks.
    shutil.rmtree(folder / "logs")
    (folder / "logs").write_text("")
    again = allocated("0", run=1)
    printed, _ = again.communicate()
    assert again.returncode == allocation.UNFIT and "nothing of it runs" in printed
    assert (folder.parents[1] / "source/checkpoint").read_text() == "step 7"


def test_a_killed_monitor_leaves_no_rank(allocated, folder, job_id):
    running = allocated("saves")
    wait_for((folder.parents[1] / "source/up").exists, "the rank to run")
    pid, _ = process_table.monitor_of(folder)
    os.kill(pid, signal.SIGKILL)
    assert running.wait() == allocated_node.FAILED
    assert process_table.of_job(job_id) == []
