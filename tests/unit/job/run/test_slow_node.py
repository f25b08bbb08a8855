"""What holds a node up, out of composed files of /proc and of both kinds of cgroups, and out of this machine's own."""

import os

import pytest
from ansible.module_utils.trainyard_node.job.run.evidence import slow_node

PRESSURE = "some avg10=0.00 avg60={share} avg300=0.00 total=1\nfull avg10=0.00 avg60=99.00 avg300=0.00 total=1\n"


@pytest.fixture
def write(tmp_path):
    def made(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return made


@pytest.mark.parametrize(
    ("groups", "folder"),
    [
        ("0::/a.slice/rank.service\n", "sys/fs/cgroup/a.slice"),
        ("5:cpu,cpuacct:/a.slice/rank.service\n1:name=systemd:/x\n0::/\n", "sys/fs/cgroup/cpu/a.slice"),
        # A container that sees its own group as the root of all.
        ("5:cpu:/../..\n0::/a\n", "sys/fs/cgroup"),
    ],
)
def test_a_quota_is_found_in_any_group_above_a_process(write, groups, folder):
    def stat(periods, throttled):
        return f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 12\nodd\n"

    root = write(**{"proc/7/cgroup": groups, f"{folder}/cpu.stat": stat(100, 50), "proc/loadavg": "9.12 5 4 3/99 7"})
    before = slow_node.count([7, 8], root)
    write(**{f"{folder}/cpu.stat": stat(200, 146)})
    now = slow_node.count([7, 8], root)
    assert (before, now) == (slow_node.Counters(100, 50), slow_node.Counters(200, 146))
    load = f"load 9.12 (processors: {os.cpu_count()})"
    assert slow_node.texts(before, now, root) == [load, "held by a CPU quota in 96 % of its periods"]
    assert slow_node.texts(now, now, root) == [load]


def test_heat_and_pressure_are_reported(write):
    hot = "sys/devices/system/cpu/cpu{}/thermal_throttle/package_throttle_count"
    root = write(**{hot.format(0): "3\n", hot.format(1): "9\n"})
    before = slow_node.count([], root)
    write(**{hot.format(1): "12\n", "proc/pressure/cpu": PRESSURE.format(share="4.90")})
    write(**{"proc/pressure/io": PRESSURE.format(share="61.40")})
    assert slow_node.texts(before, slow_node.count([], root), root) == [
        "processors slowed down by heat (times: 3)",
        "something waits for disks 61 % of the time",
    ]
