"""Preflight on this very machine: real ports, real processes, real folders."""

import errno
import hashlib
import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard_node.job.plan import obstacles
from ansible.module_utils.trainyard_node.job.run.evidence import health_gate
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import free_port
from job_samples import briefly

ME = pwd.getpwuid(os.getuid()).pw_name
NOBODY = pwd.getpwuid(65534).pw_name if os.geteuid() == 0 else ME


def test_a_node_without_a_fault(spec):
    assert obstacles.preflight(spec, ME) == []
    # On other nodes the head's port may be in use, and a refused connection is an answer.
    assert obstacles.preflight({**spec, "node_rank": 1}, ME) == []
    with socket.create_server(("127.0.0.1", spec["port"])):
        assert obstacles.preflight({**spec, "node_rank": 1}, ME) == []


def test_a_script_with_a_missing_import(spec):
    spec["entry"] = {"script": "train.py", "imports": ["os", "no_such_package"], "environment": {}}
    assert [finding.check for finding in obstacles.preflight(spec, ME)] == ["imports"]


def test_busy_ports_are_named_with_the_process_that_has_them(spec):
    with socket.create_server(("127.0.0.1", spec["port"])), socket.create_server(("0.0.0.0", spec["monitor_port"])):  # noqa: S104
        findings = obstacles.preflight(spec, ME)
    holder = f"by {process_table.command_line(os.getpid()).split(' ')[0]} (pid {os.getpid()})"
    assert briefly(findings) == [
        ("", "rendezvous port", f"{spec['port']} is in use {holder}"),
        ("", "monitor port", f"{spec['monitor_port']} is in use {holder}"),
    ]


def test_a_port_on_an_address_that_the_node_has_not(spec):
    findings = obstacles.port_findings({**spec, "head_address": "192.0.2.7"})
    assert findings[0].found == f"192.0.2.7:{spec['port']} cannot be bound: {os.strerror(errno.EADDRNOTAVAIL)}"


def test_a_node_that_may_lead_checks_the_ports_on_its_own_address(spec):
    other = {**spec, "host": "n2", "node_rank": 1, "address": "127.0.0.2"}
    with socket.create_server(("127.0.0.2", spec["monitor_port"])):
        assert obstacles.preflight(other, ME) == []
        other["candidates"] = [["n1", "127.0.0.1"], ["n2", "127.0.0.2"], ["n3", "127.0.0.3"]]
        (finding,) = obstacles.preflight(other, ME)
        assert (finding.check, finding.found.partition(" by ")[0]) == (
            "monitor port",
            f"{spec['monitor_port']} is in use",
        )
        assert finding.expected == "a free TCP port on every node that may take over from the head"
        assert obstacles.preflight({**other, "host": "n4"}, ME) == []
    assert obstacles.preflight(other, ME) == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError("timed out"), f"no answer within {obstacles.CONNECT_TIMEOUT_S} s"),
        (socket.timeout("timed out"), f"no answer within {obstacles.CONNECT_TIMEOUT_S} s"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_a_head_that_cannot_be_reached(spec, monkeypatch, error, why):
    # Unreachable addresses differ from network to network, so the answer of the kernel is given here.
    def connect(address, timeout):
        assert (address, timeout) == (("127.0.0.1", spec["port"]), obstacles.CONNECT_TIMEOUT_S)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    findings = obstacles.preflight({**spec, "host": "n2", "node_rank": 1}, ME)
    assert briefly(findings) == [("", "head", f"127.0.0.1:{spec['port']}: {why}")]


def test_a_login_that_is_not_the_training_user(spec, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    login = pwd.getpwuid(65534).pw_name
    found = ("", "user", f"the login is {login}, trainyard_user is bob")
    assert found in briefly(obstacles.preflight(spec, "bob"))
    assert found[1] not in [check for _, check, _ in briefly(obstacles.preflight(spec, login))]


def test_everything_missing_on_a_node_is_found_at_once(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "venv" / "bin" / "python").unlink()
    (tmp_path / "data").rmdir()
    spec.update(program="./train.sh", source_files=["other.sh"], scripts=[f"{tmp_path}/eval.py"])
    assert briefly(obstacles.preflight(spec, "no-such-user")) == [
        ("", "user", "no user no-such-user"),
        ("", "python", f"no {spec['venv']}/bin/python"),
        ("", "data", f"no {tmp_path}/data"),
        ("", "program", f"no {tmp_path}/eval.py"),
        ("", "program", f"no ./train.sh in {tmp_path}/venv/bin or the system's folders"),
    ]


@pytest.mark.parametrize("program", ["./train.sh", "train.sh", "sh", "/bin/sh"])
def test_programs_of_the_source_the_path_or_by_their_own_path(spec, program):
    assert (
        obstacles.preflight({**spec, "program": program, "source_files": ["train.sh"], "interpreter": "sh"}, ME) == []
    )


def test_the_first_line_of_the_jobs_program_names_one_that_the_node_has(spec):
    spec.update(program="./train.sh", source_files=["train.sh"], interpreter="/no/such")
    found = "no /no/such, which the first line of ./train.sh names"
    assert briefly(obstacles.preflight(spec, ME)) == [("", "program", found)]


def test_too_little_room(spec, tmp_path):
    (finding,) = health_gate.disk_findings({**spec, "min_disk_mib": 1 << 40})
    assert finding.check == "disk" and finding.expected.startswith(f"at least {1 << 40} MiB")
    assert finding.found.endswith(f" MiB free in {tmp_path}")


@pytest.mark.parametrize(
    ("flag", "user", "check", "found"),
    [
        (os.ST_RDONLY, 0, "disk", "{} is mounted read-only"),
        (0, 65534, "trainyard_state", f"{{}} cannot be written by {pwd.getpwuid(65534).pw_name}"),
    ],
)
def test_a_folder_that_cannot_be_written(spec, tmp_path, monkeypatch, flag, user, check, found):
    # Root may write everywhere but on a file system that is mounted read-only.
    access, free = os.access, os.statvfs(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and access(path, mode))
    size = {"f_bavail": free.f_bavail, "f_frsize": free.f_frsize}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flag, **size))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert briefly(health_gate.disk_findings(spec)) == [("", check, found.format(tmp_path))]


def test_records_for_recovery_can_be_written(spec, tmp_path):
    def found(path, user):
        spec["processes"] = [{"env": {"MS_RECOVERY_PATH": f"{path}/digits-1/worker_{rank}"}} for rank in range(2)]
        return [(finding.check, finding.found) for finding in obstacles.recovery_findings(spec, user)]

    (tmp_path / "records").mkdir()
    assert found(tmp_path / "records", ME) == []
    # Records in the job's folder are the job's own.
    assert found(f"{spec['job_dir']}/attempt/recovery", NOBODY) == []
    assert found("/sys", NOBODY) == [("job_recovery_path", f"/sys cannot be written by {NOBODY}")]
    assert found("/sys/records", NOBODY)[0][1].endswith("has no /sys/records")


def test_receivers_are_reachable(spec, tmp_path):
    (tmp_path / "metrics").mkdir()
    there = [{"file": str(tmp_path / "events.jsonl")}, {"program": sys.executable}, {"ca_file": __file__}, {"to": "x"}]
    spec.update(events=there, metrics_folder=str(tmp_path / "metrics"))
    assert obstacles.receiver_findings(spec, ME) == []
    absent = [{"file": "/proc/nowhere/events.jsonl"}, {"program": "/proc/nowhere/tell"}, {"ca_file": "/etc"}]
    # Only root may write to /sys.
    spec.update(events=absent, metrics_folder="/sys")
    assert briefly(obstacles.receiver_findings(spec, NOBODY)) == [
        ("", "job_metrics_folder", f"/sys cannot be written by {NOBODY}"),
        ("", "job_events", "no folder /proc/nowhere"),
        ("", "job_events", f"no /proc/nowhere/tell for {NOBODY}"),
        ("", "job_events", f"no /etc for {NOBODY}"),
    ]
    assert obstacles.preflight(spec, NOBODY) != []


@pytest.fixture
def other_job(tmp_path):
    """Run the monitor of another job on this node: a real process."""
    folder = tmp_path / "jobs" / "resnet-2"
    folder.mkdir(parents=True)
    (tmp_path / "jobs" / "a-file").touch()
    (tmp_path / "jobs" / "half").mkdir()
    with subprocess.Popen(["sleep", "600"]) as monitor:
        write_json(folder / "node_plan.json", {"job_id": "resnet-2", "devices": [1, 2]})
        write_json(folder / "monitor.json", {"pid": monitor.pid, "start_time": process_table.start_time(monitor.pid)})
        yield monitor
        monitor.kill()


def test_a_port_of_a_job_that_does_not_listen_yet(spec, other_job, tmp_path):
    def found(**changes):
        plan = {"job_id": "resnet-2", "devices": [], "port": spec["port"], "monitor_port": free_port()}
        write_json(tmp_path / "jobs/resnet-2/node_plan.json", {**plan, **changes})
        return briefly(obstacles.preflight(spec, ME))

    assert found(node_rank=1) == []
    assert found(node_rank=0) == [("", "rendezvous port", f"{spec['port']} is that of job resnet-2")]
    # Its head may come here.
    may_lead = {"node_rank": 1, "host": "n2", "candidates": [["n1", "127.0.0.1"], ["n2", "127.0.0.2"]]}
    assert found(**may_lead) == found(node_rank=0) and found(**{**may_lead, "host": "n3"}) == []
    assert found(**{**may_lead, "candidates": 7}) == []
    # Files that a job's user has written there stop no other job.
    assert found(node_rank=0, port=[], monitor_port="x") == []
    other_job.kill()
    other_job.wait()
    assert found(node_rank=0) == []


def test_another_job_on_the_same_devices(spec, other_job):
    assert briefly(obstacles.preflight(spec, ME)) == [("", "job_busy_devices", "device 1 in use by job resnet-2")]
    for devices in ([0, 3], []):
        assert obstacles.preflight({**spec, "devices": devices}, ME) == []
    other_job.kill()
    other_job.wait()
    assert obstacles.preflight(spec, ME) == []


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """An ssh that reaches only 10.0.0.2 and records its arguments."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n'
        'case "$*" in *"-- 10.0.0.2 true") exit 0;; esac\n'
        'echo "train@10.0.0.3: Permission denied (publickey)." >&2\nexit 255\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "called"


PEERS = [{"host": "n2", "address": "10.0.0.2"}, {"host": "n3", "address": "10.0.0.3"}]


def test_nodes_that_refuse_ssh_are_named_and_other_launchers_need_no_ssh(spec, ssh):
    assert obstacles.preflight(spec, ME) == []
    assert not ssh.exists()
    assert briefly(obstacles.preflight({**spec, "ssh_peers": PEERS}, ME)) == [
        ("", "ssh", "n3: train@10.0.0.3: Permission denied (publickey).")
    ]
    options = ("BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={obstacles.CONNECT_TIMEOUT_S}")
    calls = ssh.read_text().splitlines()
    assert len(calls) == 2 and all(option in call for option in options for call in calls)


def test_a_head_without_an_ssh_client(spec, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = obstacles.ssh_findings({**spec, "ssh_peers": PEERS}, ME)
    assert finding.found == "ssh cannot be started: No such file or directory"


def test_a_missing_user_is_one_finding(spec, ssh, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = obstacles.preflight({**spec, "ssh_peers": PEERS}, "no-such-user")
    assert [item.check for item in found] == ["user"]


def test_programs_that_every_node_has_for_itself_have_a_digest(spec, tmp_path):
    script, tool, link = tmp_path / "train.py", tmp_path / "bench", tmp_path / "link.py"
    script.write_bytes(b"print(1)\n")
    elf = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0" + b"\x3e\0" + bytes(3 << 20)
    tool.write_bytes(elf)
    tool.chmod(0o755)
    link.symlink_to(script)
    spec.update(program=str(tool), scripts=[str(script), str(link)])
    print_digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert obstacles.programs(spec, ME) == {
        str(tool): {"path": str(tool), "form": "elf-62", "sha256": hashlib.sha256(elf).hexdigest()},
        **{str(each): {"path": str(each), "form": "script", "sha256": print_digest} for each in (script, link)},
    }
    # By its bare name, through PATH; a big-endian program; a short file.
    tool.write_bytes(b"\x7fELF\2\2\1" + bytes(9) + b"\0\2" + b"\0\x15")
    script.write_bytes(b"")
    spec.update(program="bench", program_path=f"{tmp_path}:/usr/bin", scripts=[str(script)])
    found = obstacles.programs(spec, ME)
    assert (found["bench"]["path"], found["bench"]["form"]) == (str(tool), "elf-21")
    assert found[str(script)] == {"path": str(script), "form": "script", "sha256": hashlib.sha256(b"").hexdigest()}


def test_programs_that_are_compared_elsewhere_have_none(spec, tmp_path):
    (tmp_path / "venv" / "bin" / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "venv" / "bin" / "torchrun").chmod(0o755)
    for program in ("python", "torchrun", "sh", "/bin/sh", "./train.sh", "no-such-program", "/proc/nowhere"):
        assert (
            obstacles.programs({**spec, "program": program, "scripts": ["/proc/nowhere.py", "/usr/bin/env"]}, ME) == {}
        )
