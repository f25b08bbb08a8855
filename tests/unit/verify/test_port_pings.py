"""Servers and calls of a node with real processes: fakes of ibv_rc_pingpong and hccn_tool in PATH."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.hardware.ping_tools import active_mtus, problem, redirecting_bridges, says_nothing
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_node.agent import QUESTIONS
from ansible.module_utils.trainyard_node.machine.programs import NOBODY
from ansible.module_utils.trainyard_node.verify import port_pings
from ansible.module_utils.trainyard_node.verify.port_pings import unusable

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LONG = 120


@pytest.fixture(autouse=True)
def tools(monkeypatch, tmp_path):
    """Put the fakes into PATH."""
    (tmp_path / "replay.conf").write_text("DEVICES=8\n")
    monkeypatch.setenv("REPLAY", str(tmp_path))
    monkeypatch.setenv("PATH", f"{FIXTURES}/rdma:{FIXTURES}/ascend:/usr/bin:/bin")


def ask(step, **arguments):
    return checked("try_ports", QUESTIONS["try_ports"](step=step, **arguments), "n1")


def tried(*devices, life_s=LONG, timeout_s=LONG):
    """Start servers of devices, call them from devices of the same name; return servers, answers and what is ended."""
    ends = [{"id": at, "device": device, "port": 1, "gid": 3, "mtu": 1024} for at, device in enumerate(devices)]
    servers = ask("serve", ends=ends, life_s=life_s)["servers"]
    calls = [{**end, "peer": "n2", "address": "127.0.0.1", "tcp": each["tcp"]} for end, each in zip(ends, servers)]
    called = ask("ping", calls=calls, timeout_s=timeout_s, limit_s=LONG)
    return servers, {each["id"]: each["reason"] for each in called["failures"]}


def wait_until_ended(servers):
    deadline = time.monotonic() + 240
    while any(state(each["pid"]) not in ("", "Z") for each in servers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def state(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(") ")[2][0] if stat.exists() else ""


def test_ports_that_work_exchange_and_one_that_fails_says_why():
    servers, failures = tried("mlx5_0", "mlx5_bad", "mlx5_1")
    assert [each["problem"] for each in servers] == [""] * 3
    assert failures == {1: "Failed status transport retry counter exceeded (12) for wr_id 2"}
    wait_until_ended(servers)


def test_a_call_without_an_answer_ends_at_its_limit_and_its_server_is_closed():
    servers, failures = tried("mlx5_hang", timeout_s=2)
    assert failures == {0: "no answer within 2 s"}
    assert ask("close", servers=servers) == {"ended": 1, "waiting": []}
    wait_until_ended(servers)


def test_a_server_runs_as_nobody_and_is_known_to_have_met_nobody():
    servers = ask("serve", ends=[{"id": 5, "device": "mlx5_0", "port": 1, "gid": None, "mtu": None}], life_s=LONG)
    [server] = servers["servers"]
    assert Path(f"/proc/{server['pid']}").stat().st_uid == (os.getuid() or NOBODY)
    assert ask("close", **servers) == {"ended": 1, "waiting": [5]}
    wait_until_ended([server])


def test_what_was_started_ends_where_another_cannot_start(monkeypatch):
    started, popen = [], subprocess.Popen

    def start(*arguments, **settings):
        if started:
            raise PermissionError("exec")
        started.append(popen(*arguments, **settings))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    ends = [{"id": at, "device": "mlx5_0", "port": 1, "gid": 3, "mtu": 1024} for at in range(2)]
    with pytest.raises(PermissionError):
        ask("serve", ends=ends, life_s=LONG)
    assert started[0].wait(LONG) == -signal.SIGKILL


def test_devices_that_nobody_may_open_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name, mode in (("uverbs0", 0o666), ("uverbs1", 0o660)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    why = unusable("tool", tmp_path)
    assert why.endswith("uverbs1") and says_nothing(why)
    (tmp_path / "uverbs1").unlink()
    assert unusable("tool", tmp_path) == "" and unusable(None, tmp_path) == "it is not installed"


def test_a_server_that_nobody_calls_ends_by_itself():
    servers = ask("serve", ends=[{"id": 0, "device": "mlx5_0", "port": 1, "gid": None, "mtu": None}], life_s=1)
    wait_until_ended(servers["servers"])


def test_a_server_that_cannot_start_says_why(monkeypatch):
    [server], failures = tried("mlx5_none")
    assert server["problem"] == failures[0] == "IB device mlx5_none not found"
    monkeypatch.setenv("PATH", "/proc/nowhere")
    [server], failures = tried("mlx5_0")
    assert server["problem"] == failures[0] == "it is not installed"
    assert ask("close", servers=[{**server, "start_time": 1}]) == {"ended": 0, "waiting": []}


def test_npus_of_a_node_are_called_side_by_side(monkeypatch):
    both = threading.Barrier(2, timeout=LONG)
    monkeypatch.setattr(port_pings, "hccn_tool", lambda *_: [both.wait()].clear())
    calls = [{"id": at, "npu": at % 2, "peer": "n2", "address": "10.0.0.1"} for at in range(4)]
    assert len(ask("ping", calls=calls, timeout_s=LONG, limit_s=LONG)["failures"]) == 4


def test_npus_are_called_and_what_has_no_time_is_left():
    calls = [{"id": at, "npu": at, "peer": "n2", "address": ip} for at, ip in enumerate(("10.0.0.1", "10.99.0.1"))]
    called = ask("ping", calls=calls, timeout_s=LONG, limit_s=LONG)
    assert called == {"failures": [{"id": 1, "reason": "recv time out seq=0"}], "left": []}
    assert ask("ping", calls=calls, timeout_s=LONG, limit_s=-1)["left"] == [0, 1]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("100 iters in 0.01 seconds = 6.78 usec/iter\n", ""),
        ("99 iters in 0.01 seconds = 6.78 usec/iter\n", "99 iters in 0.01 seconds = 6.78 usec/iter"),
        ("client read: No space left on device\nCouldn't read remote address\n", "Couldn't read remote address"),
        ("  local address:  LID 0x0000\n", "it printed no result"),
        (
            "device 0 PING 1\nrecv seq=0\n3 packets transmitted, 2 received, 33.33% packet loss",
            "3 packets transmitted, 2",
        ),
        ("0 packets transmitted, 0 received, 0.00% packet loss", "0 packets transmitted"),
    ],
)
def test_only_complete_exchanges_are_a_success(output, why):
    assert problem(output).startswith(why) and bool(problem(output)) == bool(why)


DEVINFO = """hca_id:\tmlx4_0
\ttransport:\t\t\tInfiniBand (0)
\tphys_port_cnt:\t\t\t2
\tDevice ports:
\t\tport:\t1
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\tport:\t2
\t\t\tactive_mtu:\t\t4096 (5)
"""
BRIDGES = """40:01.1 PCI bridge: Starship/Matisse GPP Bridge (prog-if 00 [Normal decode])
\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00
\tCapabilities: [2a0 v1] Access Control Services
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tCapabilities: [390 v1] Downstream Port Containment

44:01.0 PCI bridge: PMC-Sierra Inc. Device 4000 (prog-if 00 [Normal decode])
\tCapabilities: [70] Express (v2) Downstream Port (Slot+), MSI 00
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

44:02.0 PCI bridge: PMC-Sierra Inc. Device 4000 (prog-if 00 [Normal decode])
\tCapabilities: [70] Express (v2) Downstream Port (Slot+), MSI 00
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
"""


def test_other_tools_are_read():
    assert active_mtus(DEVINFO) == {"mlx4_0:1": 1024, "mlx4_0:2": 4096}
    assert redirecting_bridges(BRIDGES) == ["44:01.0"]
    assert redirecting_bridges("40:01.1 PCI bridge: x\n\tCapabilities: <access denied>\n") is None
