"""Preflight on this very machine: real ports, real processes, real folders."""

from __future__ import annotations

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
from ansible.module_utils.trainyard_node.job.plan import preflight as checks
from ansible.module_utils.trainyard_node.job.run import health_gate as gate
from ansible.module_utils.trainyard_node.job.run import processes
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import free_port
from job_samples import briefly, texts

ME = pwd.getpwuid(os.getuid()).pw_name


def test_a_node_without_a_fault(spec):
    assert checks.preflight(spec, ME) == []
    with socket.create_server(("127.0.0.1", spec["port"])):
        # On the other nodes it does not matter who answers on the head's port, and refused is an answer.
        assert checks.preflight({**spec, "node_rank": 1}, ME) == []
    assert checks.preflight({**spec, "node_rank": 1}, ME) == []


def test_a_script_that_imports_what_is_not_there(spec):
    spec["entry"] = {"script": "train.py", "imports": ["os", "no_such_package"], "environment": {}}
    assert [finding.check for finding in checks.preflight(spec, ME)] == ["imports"]


def test_busy_ports_are_named_with_the_process_that_has_them(spec):
    with socket.create_server(("127.0.0.1", spec["port"])), socket.create_server(("0.0.0.0", spec["monitor_port"])):  # noqa: S104
        findings = checks.preflight(spec, ME)
    holder = f"by {processes.command_line(os.getpid()).split(' ')[0]} (pid {os.getpid()})"
    assert briefly(findings) == [
        ("n1", "rendezvous port", f"{spec['port']} is in use {holder}"),
        ("n1", "monitor port", f"{spec['monitor_port']} is in use {holder}"),
    ]


def test_a_port_on_an_address_that_the_node_has_not(spec):
    findings = checks.port_findings({**spec, "head_address": "192.0.2.7"}, Path(spec["job_dir"]).parent)
    assert findings[0].found == f"192.0.2.7:{spec['port']} cannot be bound: {os.strerror(errno.EADDRNOTAVAIL)}"


def test_an_owner_that_is_hidden_from_us_is_left_out(tmp_path):
    (tmp_path / "net").mkdir()
    heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    line = "   0: 0100007F:752C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n"
    (tmp_path / "net" / "tcp").write_text(heading + line)
    assert checks.owner_of_port(0x752C, tmp_path) == ""
    (tmp_path / "77" / "fd").mkdir(parents=True)
    (tmp_path / "77" / "fd" / "3").symlink_to("socket:[4242]")
    (tmp_path / "77" / "cmdline").write_bytes(b"sshd\0-D\0")
    assert checks.owner_of_port(0x752C, tmp_path) == " by sshd (pid 77)"
    assert checks.owner_of_port(0x752D, tmp_path) == ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError("timed out"), f"no answer within {checks.CONNECT_TIMEOUT_S} s"),
        (socket.timeout("timed out"), f"no answer within {checks.CONNECT_TIMEOUT_S} s"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_a_head_that_cannot_be_reached(spec, monkeypatch, error, why):
    # Unreachable addresses differ from network to network, so the answer of the kernel is given here.
    def connect(address, timeout):
        assert (address, timeout) == (("127.0.0.1", spec["port"]), checks.CONNECT_TIMEOUT_S)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    findings = checks.preflight({**spec, "host": "n2", "node_rank": 1}, ME)
    assert briefly(findings) == [("n2", "head", f"127.0.0.1:{spec['port']}: {why}")]


def test_everything_missing_on_a_node_is_found_at_once(spec, tmp_path):
    (tmp_path / "venv" / "bin" / "python").unlink()
    (tmp_path / "data").rmdir()
    spec.update(program="./train.sh", source_files=["other.sh"], scripts=[f"{tmp_path}/eval.py"])
    assert briefly(checks.preflight(spec, "no-such-user")) == [
        ("n1", "user", "no user no-such-user"),
        ("n1", "python", f"no {spec['venv']}/bin/python"),
        ("n1", "data", f"no {tmp_path}/data"),
        ("n1", "program", f"no {tmp_path}/eval.py"),
        ("n1", "program", f"no ./train.sh in {tmp_path}/venv/bin or the system's folders"),
    ]


@pytest.mark.parametrize("program", ["./train.sh", "train.sh", "sh", "/bin/sh"])
def test_programs_of_the_source_the_path_or_by_their_own_path(spec, program):
    assert checks.preflight({**spec, "program": program, "source_files": ["train.sh"]}, ME) == []


def test_too_little_room(spec, tmp_path):
    spec["min_disk_mib"] = 1 << 40
    findings = gate.disk_findings(spec)
    assert [(item.check, item.expected, item.action) for item in findings] == [
        ("disk", f"at least {1 << 40} MiB (job_min_disk_mib)", "make room, or lower job_min_disk_mib")
    ]
    assert findings[0].found.endswith(f" MiB free in {tmp_path}")


@pytest.fixture
def unwritable(tmp_path, monkeypatch):
    # Root may write everywhere but on a file system that is mounted read-only.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and access(path, mode))


def test_a_file_system_that_is_mounted_read_only(spec, tmp_path, unwritable, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert briefly(gate.disk_findings(spec)) == [("n1", "disk", f"{tmp_path} is mounted read-only")]


def test_a_folder_that_an_ordinary_user_may_not_write(spec, tmp_path, unwritable, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    name = pwd.getpwuid(65534).pw_name
    (finding,) = gate.disk_findings(spec)
    assert (finding.check, finding.found) == ("trainyard_state", f"{tmp_path} cannot be written by {name}")
    assert finding.action == ("set trainyard_become: true, or set trainyard_state to another folder")


def test_records_for_recovery_can_be_written(spec, tmp_path):
    def found(path, user):
        spec["processes"] = [{"env": {"MS_RECOVERY_PATH": f"{path}/digits-1/worker_{rank}"}} for rank in range(2)]
        return [(finding.check, finding.found) for finding in checks.recovery_findings(spec, user)]

    nobody = pwd.getpwuid(65534).pw_name if os.geteuid() == 0 else ME
    (tmp_path / "records").mkdir()
    assert found(tmp_path / "records", ME) == []
    # In the job's folder they are the job's own.
    assert found(f"{spec['job_dir']}/attempt/recovery", nobody) == []
    assert found("/sys", nobody) == [("job_recovery_path", f"/sys cannot be written by {nobody}")]
    assert found("/sys/records", nobody)[0][1] == f"/sys cannot be written by {nobody}, and has no /sys/records"


def test_receivers_are_reachable(spec, tmp_path):
    (tmp_path / "metrics").mkdir()
    there = [{"file": str(tmp_path / "events.jsonl")}, {"program": sys.executable}, {"ca_file": __file__}, {"to": "x"}]
    spec.update(events=there, metrics_folder=str(tmp_path / "metrics"))
    assert checks.telling_findings(spec, ME) == []
    nobody = pwd.getpwuid(65534).pw_name if os.geteuid() == 0 else ME
    absent = [{"file": "/nowhere/events.jsonl"}, {"program": "/nowhere/tell"}, {"ca_file": "/etc"}]
    # Where only root may write.
    spec.update(events=absent, metrics_folder="/sys")
    assert briefly(checks.telling_findings(spec, nobody)) == [
        ("n1", "job_metrics_folder", f"/sys cannot be written by {nobody}"),
        ("n1", "job_events", "no folder /nowhere"),
        ("n1", "job_events", f"no /nowhere/tell for {nobody}"),
        ("n1", "job_events", f"no /etc for {nobody}"),
    ]
    assert checks.preflight(spec, nobody) != []


@pytest.fixture
def other_job(tmp_path):
    """Another job on this node whose monitor runs: a real process."""
    folder = tmp_path / "jobs" / "resnet-2"
    folder.mkdir(parents=True)
    (tmp_path / "jobs" / "a-file").touch()
    (tmp_path / "jobs" / "half").mkdir()
    with subprocess.Popen(["sleep", "600"]) as monitor:
        write_json(folder / "node_plan.json", {"job_id": "resnet-2", "devices": [1, 2]})
        write_json(folder / "monitor.json", {"pid": monitor.pid, "start_time": processes.start_time(monitor.pid)})
        yield monitor
        monitor.kill()


def test_a_port_of_a_job_that_does_not_listen_yet(spec, other_job, tmp_path):
    of_other = {"job_id": "resnet-2", "devices": [], "port": spec["port"], "monitor_port": free_port()}
    write_json(tmp_path / "jobs/resnet-2/node_plan.json", {**of_other, "node_rank": 1})
    assert checks.preflight(spec, ME) == []
    write_json(tmp_path / "jobs/resnet-2/node_plan.json", {**of_other, "node_rank": 0})
    assert [(each.check, each.found) for each in checks.preflight(spec, ME)] == [
        ("rendezvous port", f"{spec['port']} is that of job resnet-2")
    ]
    # Files that a job's user has written there stop no other job.
    write_json(
        tmp_path / "jobs/resnet-2/node_plan.json", {"node_rank": 0, "port": [], "monitor_port": "x", "devices": []}
    )
    assert checks.preflight(spec, ME) == []
    write_json(tmp_path / "jobs/resnet-2/node_plan.json", {**of_other, "node_rank": 0})
    other_job.kill()
    other_job.wait()
    assert checks.preflight(spec, ME) == []


def test_another_job_on_the_same_devices(spec, other_job):
    expected = [
        (
            "n1",
            "devices",
            "device 1 in use by job resnet-2",
            "devices that no other job has",
            "choose others with job_devices, wait, or stop that job: playbooks/stop.yml with job_id resnet-2",
        )
    ]
    assert texts(checks.preflight(spec, ME)) == expected
    assert checks.preflight({**spec, "devices": [0, 3]}, ME) == []
    assert checks.preflight({**spec, "devices": []}, ME) == []
    other_job.kill()
    other_job.wait()
    assert checks.preflight(spec, ME) == []


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """An ssh that lets into 10.0.0.2 only and writes down with what it was called."""
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


def test_nodes_that_ssh_does_not_let_in_are_named(spec, ssh):
    assert briefly(checks.preflight({**spec, "ssh_peers": PEERS}, ME)) == [
        ("n1", "ssh", "n3: train@10.0.0.3: Permission denied (publickey).")
    ]
    calls = ssh.read_text().splitlines()
    assert len(calls) == 2
    for asked in ("BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={checks.CONNECT_TIMEOUT_S}"):
        assert all(asked in call for call in calls)


def test_launchers_without_ssh_need_none(spec, ssh):
    assert checks.preflight(spec, ME) == []
    assert not ssh.exists()


def test_a_head_without_an_ssh_client(spec, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = checks.ssh_findings({**spec, "ssh_peers": PEERS}, ME)
    assert finding.found == "ssh cannot be started: No such file or directory"
    assert finding.action.startswith("run site.yml (role ssh_mesh) on the head")


def test_a_missing_user_is_one_finding(spec, ssh, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = checks.preflight({**spec, "ssh_peers": PEERS}, "no-such-user")
    assert [item.check for item in found] == ["user"]


def digest(text):
    return hashlib.sha256(text).hexdigest()


def test_programs_that_every_node_has_for_itself_have_a_digest(spec, tmp_path):
    script, tool, link = tmp_path / "train.py", tmp_path / "bench", tmp_path / "link.py"
    script.write_bytes(b"print(1)\n")
    elf = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0" + b"\x3e\0" + bytes(3 << 20)
    tool.write_bytes(elf)
    tool.chmod(0o755)
    link.symlink_to(script)
    spec.update(program=str(tool), scripts=[str(script), str(link)])
    assert checks.programs(spec, ME) == {
        str(tool): {"path": str(tool), "form": "elf-62", "sha256": digest(elf)},
        str(script): {"path": str(script), "form": "script", "sha256": digest(b"print(1)\n")},
        str(link): {"path": str(link), "form": "script", "sha256": digest(b"print(1)\n")},
    }
    # By its bare name, through PATH; a big-endian program; a short file.
    tool.write_bytes(b"\x7fELF\2\2\1" + bytes(9) + b"\0\2" + b"\0\x15")
    script.write_bytes(b"")
    spec.update(program="bench", program_path=f"{tmp_path}:/usr/bin", scripts=[str(script)])
    found = checks.programs(spec, ME)
    assert (found["bench"]["path"], found["bench"]["form"]) == (str(tool), "elf-21")
    assert found[str(script)] == {"path": str(script), "form": "script", "sha256": digest(b"")}


def test_programs_that_are_compared_elsewhere_have_none(spec, tmp_path):
    (tmp_path / "venv" / "bin" / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "venv" / "bin" / "torchrun").chmod(0o755)
    for program in ("python", "torchrun", "sh", "/bin/sh", "./train.sh", "no-such-program", "/no/such"):
        assert checks.programs({**spec, "program": program, "scripts": ["/no/such.py", "/usr/bin/env"]}, ME) == {}
