"""The rank that failed first: captured reports of torchrun and mpirun, exit statuses, and the order of causes."""

import errno
import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs import failures
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks import rank_exits as exits
from hypothesis import given
from hypothesis import strategies as st

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"


def captured(name):
    return (LOGS / f"{name}.txt").read_text(encoding="utf-8")


def local(text, fraction=0.0):
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) + fraction


@pytest.mark.parametrize(
    ("name", "rank", "exit_code", "by_signal", "at"),
    [
        ("exit7-node1", 3, 7, None, local("2026-11-20 13:19:00", 0.001)),
        ("exit7-node0", 0, 1, None, local("2026-11-20 13:19:00", 0.61)),
        ("sigkill-node1", 2, None, 9, None),
        ("sigkill-node0", 1, 1, None, None),
        ("error-node0", 1, 1, None, local("2026-11-20 13:19:14", 0.567)),
    ],
)
def test_the_root_cause_in_a_report_of_torchrun(name, rank, exit_code, by_signal, at):
    """A report of an earlier attempt in the same log does not count."""
    cause = failures.torchrun_root_cause(captured("error-node0") + captured(name))
    assert (cause["rank"], cause["exit_code"], cause["signal"]) == (rank, exit_code, by_signal)
    if at is not None:
        assert cause["time"] == pytest.approx(at, abs=0.0005)
    assert failures.torchrun_root_cause(captured("terminated-node1")) is None


@pytest.mark.parametrize("first", ["exit7", "sigkill"])
def test_the_first_of_two_agents_that_report_the_same_second_is_the_cause(first):
    reports = [{"host": f"n{node}", **failures.torchrun_root_cause(captured(f"{first}-node{node}"))} for node in (0, 1)]
    assert failures.first_failure(reports)["host"] == "n1"


@given(st.integers(0, len(captured("exit7-node1"))))
def test_a_report_that_is_cut_off_is_read_or_left(length):
    cause = failures.torchrun_root_cause(captured("exit7-node1")[:length])
    assert cause is None or (cause["rank"], cause["exit_code"]) == (3, 7)


def exited(code, at, rank=0):
    return {"rank": rank, "exit_code": code, "signal": None, "time": at}


def killed(number, at, rank=0):
    return {"rank": rank, "exit_code": None, "signal": int(number), "time": at}


@pytest.mark.parametrize(
    ("cause", "consequence"),
    [
        (exited(7, 1.0), exited(1, 1.5)),
        *((killed(number, 2.0), exited(1, 1.0)) for number in (signal.SIGKILL, signal.SIGSEGV)),
        *((exited(1, 1.0), killed(number, 2.0)) for number in (signal.SIGABRT, signal.SIGTERM)),
        (exited(1, 2.0), exited(1, 1.0, rank=None)),
        (killed(signal.SIGKILL, 2.0, rank=None), exited(1, 1.0)),
        (killed(signal.SIGTERM, 1.0), exited(1, 2.0)),
    ],
)
def test_the_cause_comes_before_its_consequences(cause, consequence):
    assert failures.first_failure([cause, consequence]) is cause
    assert failures.first_failure([consequence, cause]) is cause


@pytest.mark.parametrize(
    ("status", "exit_code", "by_signal", "result"),
    [(0, 0, None, "success"), (3, 3, None, "exit-code"), (-9, None, 9, "signal")],
)
def test_how_a_process_ended(status, exit_code, by_signal, result):
    ended = exits.from_status(status)
    assert (ended["exit_code"], ended["signal"], ended["result"]) == (exit_code, by_signal, result)


def test_exits_are_read_as_far_as_they_are_whole(tmp_path):
    (tmp_path / "exits").mkdir()
    (tmp_path / "exits" / "rank0.json").write_text(json.dumps({**exits.from_status(3), "attempt": 0}))
    (tmp_path / "exits" / ".rank1.json.17").write_text("{half")
    (tmp_path / "exits" / "rank2.json").write_text("{half")
    (tmp_path / "exits" / "rank3.json").write_text("[0]")
    (tmp_path / "attempts.json").write_text('{"": 0}')
    assert {name: ended["exit_code"] for name, ended in exits.read_exits(tmp_path).items()} == {"rank0": 3}


# /proc/PID/stat of `sleep` that was renamed by prctl; only the name was replaced for the other cases.
STAT = "4711 ({name}) {state} 1 4711 4711 0 -1 4194304 92 0 0 0 0 0 0 0 20 0 1 0 {start} 5722112 209 0 0 17 1 0 0\n"


def process(folder, pid, name=b"sleep", state="S", start=356789, job_id="", cgroup=""):
    here = folder / str(pid)
    here.mkdir()
    line = STAT.format(name="@", state=state, start=start).encode().replace(b"@", name)
    (here / "stat").write_bytes(line)
    (here / "environ").write_bytes(f"PATH=/bin\0TRAINYARD_JOB_ID={job_id}\0".encode() if job_id else b"PATH=/bin\0")
    (here / "cgroup").write_text(f"0::{cgroup}\n")
    (here / "cmdline").write_bytes(b"/usr/bin/" + name + b"\x0010\0")


@pytest.mark.parametrize("name", [b"sleep", b"a b) S 1 (c", b")))", "трени".encode()[:9], b""])
def test_the_start_time_with_any_name_of_the_process(tmp_path, name):
    process(tmp_path, 4711, name=name)
    assert process_table.start_time(4711, tmp_path) == 356789
    assert process_table.command_line(4711, tmp_path) == f"/usr/bin/{name.decode(errors='replace')} 10"
    assert process_table.command_line(11, tmp_path) == "(gone)"


def test_zombies_and_processes_that_are_gone_have_no_start_time(tmp_path):
    process(tmp_path, 1, state="Z")
    assert process_table.start_time(1, tmp_path) is None
    assert process_table.start_time(2, tmp_path) is None
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "stat").write_text("")
    assert process_table.start_time(3, tmp_path) is None


def test_the_processes_of_a_job_are_found_by_its_id_or_its_unit(tmp_path):
    unit = "trainyard-digits-1.service"
    process(tmp_path, 10, job_id="digits-1")
    process(tmp_path, 11, job_id="digits-12")
    process(tmp_path, 12, cgroup=f"/trainyard.slice/{unit}/below")
    process(tmp_path, 13, cgroup=f"/trainyard.slice/x{unit}")
    process(tmp_path, 14, job_id="digits-1", state="Z")
    process(tmp_path, 15, cgroup=f"/trainyard.slice/{unit}")
    process(tmp_path, 16, name="трени".encode()[:9], job_id="digits-1")
    (tmp_path / "self").mkdir()
    assert process_table.of_job("digits-1", proc=tmp_path) == [10, 16]
    assert process_table.of_job("digits-1", unit, proc=tmp_path) == [10, 12, 15, 16]


def test_launchers_count_as_ranks_and_supervisors_do_not(tmp_path):
    commands = (
        "python -IS /jobs/digits-1/trainyard.pyz monitor /jobs/digits-1",
        "python -IS /jobs/digits-1/trainyard.pyz exec /jobs/digits-1 agent",
        "python /jobs/digits-1/trainyard.pyz agent torch.run python -IS /jobs/digits-1/trainyard.pyz rank",
        "python -IS /jobs/digits-1/trainyard.pyz rank python train.py",
        "python train.py",
    )
    for pid, command in enumerate(commands, 10):
        process(tmp_path, pid, job_id="digits-1")
        (tmp_path / str(pid) / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    for pid, mark in ((15, "OWN_TOOL=1"), (16, "EVENT=ended")):
        process(tmp_path, pid, job_id=f"digits-1\0TRAINYARD_{mark}")
    assert process_table.ranks_of_job("digits-1", "/jobs/digits-1", proc=tmp_path) == [12, 13, 14]
    assert process_table.of_job("digits-1", proc=tmp_path) == [10, 11, 12, 13, 14, 15, 16]


def test_the_kernel_reports_the_end_of_a_process():
    with subprocess.Popen(["sleep", "600"]) as child:
        started = process_table.start_time(child.pid)
        assert process_table.open_end(child.pid, started - 1) is None, "another process that had this id"
        end = process_table.open_end(child.pid, started)
        try:
            assert select.select([end], [], [], 0)[0] == []
            child.kill()
            assert select.select([end], [], [], 60)[0] == [end]
        finally:
            os.close(end)
    assert process_table.open_end(child.pid, started) is None, "it has ended"


def test_a_kernel_without_pidfd(monkeypatch):
    started = process_table.start_time(os.getpid())

    def refused(pid):
        raise PermissionError(errno.EPERM, "seccomp")

    monkeypatch.setattr(process_table.os, "pidfd_open", refused)
    assert process_table.open_end(os.getpid(), started) is None
    monkeypatch.delattr(process_table.os, "pidfd_open")
    assert process_table.open_end(os.getpid(), started) is None


# ---- Open MPI's messages (tests/fixtures/mpirun)


def mpirun(name):
    return (LOGS.parent / "mpirun" / f"{name}.txt").read_text(encoding="utf-8")


def ended(rank, status):
    return f"trainyard: rank {rank} ended with status {status}\n"


def held(rank):
    return f"trainyard: rank {rank} holds its exit back\n"


def missed(rank):
    return f"trainyard: rank {rank} lost its peer: Connection reset by peer\n"


def daemon(status):
    return f"trainyard: the daemon on 10.82.0.12 ended with status {status}\n"


def lost(host):
    return {"rank": None, "reason": f"mpirun lost its daemon on {host}: killed, or the node is lost"}


AGAIN = "--- started again, attempt 2 ---\n"
SSH_WARNING = "[n1:01922] plm:ssh: Warning: setpgid(1927,1927) failed in parent with errno=Permission denied(13)\n\n"
UNNAMED = ended(0, 1) + mpirun("openmpi4-exit7-unnamed")
EXIT7, SIGKILL, LOST_DAEMON = (mpirun(f"openmpi4-{name}") for name in ("exit7", "sigkill", "daemon-killed"))
CAUSES = {
    "a rank fails": (EXIT7, {"rank": 1, "exit_code": 7, "signal": None, "time": None}),
    "a rank fails, version 5": (mpirun("openmpi5-exit7"), {"rank": 1, "exit_code": 7, "signal": None}),
    "a rank is killed": (SIGKILL, {"rank": 1, "exit_code": None, "signal": 9}),
    "a rank is killed, version 5": (mpirun("openmpi5-sigkill"), {"rank": 1, "exit_code": None, "signal": 9}),
    "a rank aborts": (mpirun("openmpi4-abort"), {"rank": 1, "exit_code": 5}),
    "a rank aborts, version 5": (mpirun("openmpi5-abort"), {"rank": 1, "exit_code": 5}),
    "only the script names it": (ended(3, 7) + UNNAMED, {"rank": 3, "exit_code": 7, "signal": None}),
    "its program is missing": (ended(3, 127) + UNNAMED, {"rank": 3, "exit_code": 127, "signal": None}),
    "only the script names a killed one": (ended(3, 137) + UNNAMED, {"rank": 3, "exit_code": None, "signal": 9}),
    "only the script names an aborted one": (ended(3, 134) + UNNAMED, {"rank": 3, "exit_code": None, "signal": 6}),
    "mpirun and the script name others": (ended(3, 7) + EXIT7, {"rank": 1}),
    "a killed node closes its daemon's connection": (mpirun("openmpi4-node-killed"), lost("10.82.0.13")),
    "a daemon is killed": (LOST_DAEMON, lost("10.82.0.12")),
    "mpirun then ends a rank": (LOST_DAEMON + ended(0, 143), lost("10.82.0.12")),
    "mpirun then kills a rank": (LOST_DAEMON + ended(0, 137), lost("10.82.0.12")),
    "mpirun warns of its ssh": (SSH_WARNING + mpirun("openmpi5-daemon-killed"), lost("n2")),
    # mpirun names the first of the ranks that fail after the daemon.
    "a rank fails after a daemon": (mpirun("openmpi4-daemon-killed-peer"), lost("10.82.0.13")),
    "only the script names a killed daemon": (daemon(137) + ended(0, 137), lost("10.82.0.12")),
    "only the script names a crashed daemon": (daemon(139) + ended(0, 137), lost("10.82.0.12")),
    "a daemon that was ended": (daemon(143) + ended(0, 137), {"rank": 0}),
    "a rank fails before a daemon": (ended(0, 137) + daemon(137), {"rank": 0}),
    "mpirun names another rank": (ended(0, 137) + daemon(137) + SIGKILL, {"rank": 1}),
    "a rank fails before mpirun loses a daemon": (ended(2, 7) + LOST_DAEMON, {"rank": 2}),
    "mpirun ends a rank after another failed": (ended(0, 143) + ended(1, 137), {"rank": 1}),
    "a killed rank leaves after one that misses it": (
        ended(0, 1) + ended(3, 137) + held(3) + ended(2, 1) + missed(0) + held(0) + missed(2) + held(2),
        {"rank": 3, "signal": 9},
    ),
    "a rank is killed as it does not save": (ended(0, 1) + missed(0) + held(0) + ended(3, 137) + held(3), {"rank": 0}),
    "nothing else is known": (ended(0, 143), {"rank": 0, "exit_code": None, "signal": 15}),
    "the second attempt fails": (EXIT7 + AGAIN + SIGKILL, {"rank": 1, "signal": 9}),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_under_mpirun(name):
    text, expected = CAUSES[name]
    cause = failures.root_cause(text)
    assert {**cause, **expected} == cause


@pytest.mark.parametrize("text", [mpirun("openmpi4-no-program"), mpirun("openmpi5-no-program"), EXIT7 + AGAIN])
def test_no_rank_is_the_cause_where_mpirun_starts_none_or_starts_again(text):
    assert failures.root_cause(text) is None


@pytest.mark.parametrize("version", [4, 5])
def test_a_node_that_mpirun_does_not_reach(version):
    cause = failures.root_cause(mpirun(f"openmpi{version}-no-ssh"))
    assert re.fullmatch(r"ssh: connect to host 10\.82\.0\.\d+ port 2: Connection refused", cause.pop("reason"))
    assert cause == {"rank": None, "signal": None, "time": None}


@given(st.sampled_from(["openmpi4-exit7", "openmpi5-exit7"]), st.data())
def test_a_message_of_mpirun_that_is_cut_off_is_read_or_left(name, data):
    text = mpirun(name)
    cause = failures.root_cause(text[: data.draw(st.integers(0, len(text)))])
    assert cause is None or (cause["rank"], cause["exit_code"]) == (1, 7)


def test_ranks_that_left_before_another_failed_and_its_lost_peer():
    log = (
        f"trainyard: rank 9 ended well\n{AGAIN}trainyard: rank 2 ended well\n"
        "trainyard: rank 1 ended with status 1\ntrainyard: rank 1 lost its peer: Connection closed\n"
        "trainyard: rank 3 ended well\n"
    )
    assert failures.mpirun_left(log) == [2]
    assert failures.mpirun_lost_peer(log, 1) == "Connection closed"
    assert failures.mpirun_lost_peer(log, 2) == ""
    assert failures.root_cause(log)["rank"] == 1


@given(st.text())
def test_any_text_of_mpirun_is_harmless(text):
    failures.root_cause(f"lost communication with a remote daemon{text}Process name: [{text}")
