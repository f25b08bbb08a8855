"""What kernels say around a failure: lines as the drivers and the kernel write them, and where they stand."""

import pytest
from ansible.module_utils.trainyard.findings.shapes import misfit
from ansible.module_utils.trainyard.job.run import kernel_messages
from ansible.module_utils.trainyard.job.run.answers import KERNEL
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard_node.job.record import kernel_log
from hypothesis import given
from hypothesis import strategies as st

OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/trainyard.slice,"
    "task_memcg=/trainyard.slice/trainyard-digits_1.slice/trainyard-digits-1-rank2.service,"
    "task=python,pid=4711,uid=1001"
)
# Captured from Linux 6.18: a rank in a slice of this name, whose memory had a limit; the container's id is shortened.
CAPTURED = (
    "[70460.872429] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=libpod-d2e2,mems_allowed=0,"
    "oom_memcg=/libpod_parent/libpod-d2e2/trainyard-bench_8b0ade41_20261123_095252.slice,"
    "task_memcg=/libpod_parent/libpod-d2e2/trainyard-bench_8b0ade41_20261123_095252.slice,task=python,pid=14144,uid=2000",
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
     "systemd[1]: Started a unit that says Link downloads", "audit: type=1400"],
)  # fmt: skip
def test_other_messages_are_ignored(text):
    assert kernel_messages.parse([f"1790000000.2 n1 kernel: {text}"], 0, 2e9, 0.0) == []


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
    assert kernel_messages.texts([found], 1000.0) == ["the kernel of n1, n2 said 10 s before: Link down"]


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
