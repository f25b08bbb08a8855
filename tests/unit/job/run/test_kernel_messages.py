"""What kernels say around a failure: lines as the drivers and the kernel write them, and where they stand."""

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.logs import kernel_messages
from ansible.module_utils.trainyard.job.run.wire.answers import KERNEL
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard_node.job.record import kernel_log
from hypothesis import given
from hypothesis import strategies as st

OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/trainyard.slice,"
    "task_memcg=/trainyard.slice/trainyard-digits-1.service,"
    "task=python,pid=4711,uid=1001"
)
# Captured from Linux 6.18: a rank in a group with a limit; the container's id is shortened, the group renamed.
CAPTURED = (
    "[70460.872429] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=libpod-d2e2,mems_allowed=0,"
    "oom_memcg=/libpod_parent/libpod-d2e2/trainyard-bench-8b0ade41-20261123-095252.service,"
    "task_memcg=/libpod_parent/libpod-d2e2/trainyard-bench-8b0ade41-20261123-095252.service,task=python,pid=14144,uid=2000",
    "[70460.872477] Memory cgroup out of memory: Killed process 14144 (python) total-vm:900328kB, anon-rss:226748kB, "
    "file-rss:80212kB, shmem-rss:0kB, UID:2000 pgtables:876kB oom_score_adj:0",
)
# Composed after the sources that kernel_messages.py names.
SAID = {
    OOM: "oom",
    "Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB": "oom",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": "gpu",
    "mlx5_core 0000:3b:00.0 ens1f0np0: Link down": "link",
    "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged": "link",
    "ixgbe 0000:01:00.0 eno1: NIC Link is Down": "link",
    "bond0: (slave eno1): link status definitely down, disabling slave": "link",
    "I/O error, dev nvme0n1, sector 12345 op 0x0:(READ) flags 0x80700": "disk",
    "nfs: server storage1 not responding, still trying": "disk",
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400": "machine",
    "INFO: task python:4711 blocked for more than 120 seconds.": "hung",
    # Retyped from reports of users.
    "NVRM: GPU 0000:09:00.0: GPU has fallen off the bus.": "gpu",
    "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, Contained: SM (0x1)": "gpu",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, MMU Fault: ENGINE GRAPHICS": "gpu",
    "nvidia-nvswitch3: SXid (PCI:0000:c7:00.0): 20034, Fatal, Link 54 LTSSM Fault Up": "gpu",
    "NVRM: GPU4 kgspHealthCheck_TU102: ********** GSP Timeout **********": "gpu",
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)": "gpu",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).": "gpu",
    "ascend 0000:c1:00.0: [ascend] [drv_vnic] device heartbeat lost, dev_id=3": "npu",
    "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010": "bus",
    "mlx5_core 0000:ab:00.0: poll_health:823:(pid 0): device's health compromised - reached miss count": "link",
    "infiniband mlx5_0: create_mkey_callback:131:(pid 22): async reg mr failed. status -12": "link",
    "LustreError: 11-0: scratch-OST0004-osc: operation ost_write to node 10.0.0.9@o2ib failed: rc = -107": "disk",
    "nvme nvme0: I/O 384 QID 5 timeout, aborting": "disk",
    "critical medium error, dev nvme0n1, sector 91240 op 0x0:(READ) flags 0x80700": "disk",
    'XFS (nvme1n1p1): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x2 len 1 error 5': "disk",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0": "machine",
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0": "machine",
    "thermal thermal_zone0: critical temperature reached (105 C)": "machine",
    "watchdog: BUG: soft lockup - CPU#14 stuck for 23s! [python3:40211]": "hung",
    "python3[40211]: segfault at 7f2e0 ip 00007f3a sp 00007ffd error 4 in libnccl.so.2[7f3a+1000000]": "crash",
}


@pytest.mark.parametrize("text", SAID)
def test_messages_of_interest_are_known_in_both_forms(text):
    lines = [f"1000.500000 n1 kernel: {text}", "999999999.5 n1 kernel: usb 1-1: new device"]
    lines = [f"1790000000.250000 n1 kernel: {text}", f"[  100.250000] {text}", *lines]
    found = kernel_messages.parse(lines, 1789999000.0, 1790001000.0, 1789999900.0)
    assert [(each["time"], each["kind"]) for each in found] == [(1790000000.25, SAID[text])] * 2
    assert not any(misfit(each, KERNEL) for each in found)


@pytest.mark.parametrize(
    "text",
    ["usb 1-1: new high-speed USB device", "mlx5_core 0000:3b:00.0 ens1f0np0: Link up", "eno1: NIC Link is Up 1 Gbps",
     "systemd[1]: Started a unit that says Link downloads", "audit: type=1400",
     "EDAC MC0: 3 CE memory read error on CPU_SrcID#0", "pcieport 0000:00:02.0: AER: Corrected error received: id=0010",
     "nvidia 0000:02:00.0: device has no AER-aware driver"],
)  # fmt: skip
def test_other_messages_are_ignored(text):
    assert kernel_messages.parse([f"1790000000.2 n1 kernel: {text}"], 0, 2e9, 0.0) == []


def test_a_message_of_several_lines_is_one():
    lines = ["[ 5.1] NVRM: The NVIDIA GPU 0000:b3:00.0", "     NVRM: (PCI ID: 10de:26b5) installed in this system has",
             "     NVRM: fallen off the bus and is not responding to commands.", "[ 5.2] usb 1-1: new"]  # fmt: skip
    [found] = kernel_messages.parse(lines, 0, 9, 0.0)
    assert (found["time"], found["kind"]) == (5.1, "gpu") and found["text"].endswith(
        "has NVRM: fallen off the bus and is not responding to commands."
    )
    # Without its beginning it is nobody's.
    assert kernel_messages.parse(lines[2:], 0, 9, 0.0) == []


def test_each_kind_of_message_is_shown_once_with_its_meaning():
    for row in kernel_messages._TABLE:
        assert any(row is kernel_messages._row(text) for text in SAID), row.meaning
    flood = [f"[ {number}.5] LustreError: 11-0: failed" for number in range(300)]
    found = kernel_messages.parse(["[ 0.1] eth0: Link down", *flood], 0, 999, 0.0)
    assert [each["kind"] for each in found] == ["link", *["disk"] * 8]
    lines = kernel_messages.texts([{**each, "hosts": [host]} for each in found for host in ("n1", "n2")], None)
    assert lines[0] == "the kernel of n1 said: eth0: Link down"
    assert lines[1] == "  a network port lost its link: check cable, optical module and switch port"
    assert lines[3] == "the kernel of n1 said: LustreError: 11-0: failed (and 7 more like it)" and len(lines) == 6


def test_long_lines_take_no_longer_than_their_length():
    seeds = ["NVRM: Xid (", "LustreError", "nvme0: ", "XFS (", "AER: ", "ascend ", "mlx5_1: ", "EDAC a: 1 ", "[1]"]
    lines = [f"[ 1.5] {seed * 100_000}" for seed in seeds]
    assert len(kernel_messages.parse(lines, 0, 9, 0.0)) < len(seeds)


@given(st.lists(st.text()), st.floats(0, 2e9))
def test_any_lines_can_be_read(lines, since):
    assert len(kernel_messages.parse(lines, since, since + 9, 0.0)) <= len(lines)


def message(time, text, kind="link"):
    return {"time": time, "kind": kind, "text": text}


def test_messages_around_a_failure_are_merged_over_nodes():
    failure = {"kind": "exit", "time": 1000.0}
    n1 = [message(500.0, "too old"), message(990.0, "Link down"), message(1010.0, "too late")]
    told = {"n1": n1, "n2": [message(990.0, "Link down")]}
    (found,) = kernel_messages.of_failure(told, failure, 1001.0)
    assert found == {"hosts": ["n1", "n2"], "time": 990.0, "kind": "link", "text": "Link down"}
    assert kernel_messages.texts([found], 1000.0)[0] == "the kernel of n1, n2 said 10 s before: Link down"


def test_the_oom_killer_is_blamed_where_it_names_a_process_of_the_job():
    failure = {"kind": "exit", "host": "n3", "process": "rank2", "rank": 2, "ranks": [2], "exit_code": None,
               "signal": 9, "result": "signal", "time": 1000.0}  # fmt: skip
    summary = {"job_id": "digits-1", "failure": failure, "rank_log": "rank_{rank}.log",
               "nodes": [{"host": "n3", "ranks": [2]}],
               "kernel": [{**message(999.0, OOM, "oom"), "hosts": ["n3"]}]}  # fmt: skip
    text = "the kernel's OOM killer ended python (process 4711) of this job on n3"
    assert cause(summary, "/jobs/x")[1].startswith(text)
    # A message about another job or of another node explains nothing.
    for other in ({"job_id": "digits-11"}, {"kernel": [{**summary["kernel"][0], "hosts": ["n1"]}]}):
        assert "mostly" in cause({**summary, **other}, "/jobs/x")[1]
    found = [{**each, "hosts": ["n3"]} for each in kernel_messages.parse(CAPTURED, 0, 2e9, 1.0e9)]
    assert [each["kind"] for each in found] == ["oom", "oom"]
    text = kernel_messages.ended_process(found, "n3", "bench-8b0ade41-20261123-095252")
    assert text == "the kernel's OOM killer ended python (process 14144) of this job on n3"
    assert kernel_messages.ended_process(found, "n3", "bench-8b0ade41-20261123") == ""


FAILED = {"state": "failed", "finished": 5000.0}
END = (99100.0, 100000.0)


@pytest.mark.parametrize(
    ("monitor", "alive", "expected"),
    [
        ({"end": FAILED}, False, (4100.0, 5005.0)),
        ({"end": FAILED, "started": 4900.0}, False, (4900.0, 5005.0)),
        ({"end": FAILED, "started": 3.0}, False, (4100.0, 5005.0)),
        *(({"end": FAILED, "started": started}, False, (4100.0, 5005.0)) for started in (5000.1, "x", float("inf"))),
        ({"end": None}, False, END),  # killed
        *(({"end": {**FAILED, "finished": finished}}, False, END) for finished in ("x", float("nan"))),
        ({"end": []}, False, END),
        ({"end": {**FAILED, "state": "succeeded"}}, False, None),
        ({"end": None}, True, None),
        *((monitor, False, None) for monitor in (None, [])),
    ],
)
def test_only_of_a_job_that_failed_the_log_is_read_and_only_of_its_time_and_end(monitor, alive, expected):
    assert kernel_log.window(monitor, alive, 100000.0) == expected


def test_journal_then_ring_buffer(monkeypatch, tmp_path):
    tool = tmp_path / "journalctl"
    tool.write_text(f"#!/bin/sh\n# A fake.\necho $@ > {tmp_path}/asked\necho 1790000000.5 n1 kernel: a: Link down\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert [each["text"] for each in kernel_log.read(1789999990.0, 1790000005.0)] == ["a: Link down"]
    assert "--since @1789999990 --until @1790000006" in (tmp_path / "asked").read_text()
    tool.write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "dmesg").write_text("#!/bin/sh\n# A fake.\necho '[    1.000000] b: Link down'\n")
    (tmp_path / "dmesg").chmod(0o755)
    booted = kernel_log.time.time() - kernel_log.time.monotonic()
    assert [each["text"] for each in kernel_log.read(booted, booted + 9)] == ["b: Link down"]
