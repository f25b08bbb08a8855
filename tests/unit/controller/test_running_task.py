"""Lines about the task that runs, on a clock of the test."""

from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard_controller.ansible.running_task import CHECK_S, SILENT_S, RunningTask

TORCH = {"changed": True, "installed": {"packages": ["torch 2.9.0", "numpy 2.4.6"], "bytes": 812 << 20}}


def task(name="Install torch==2.9.0", action="python_environment", **given):
    return SimpleNamespace(
        **{"name": name, "action": action, "args": {}, "run_once": False, "delegate_to": None, **given}
    )


class Screen:
    """Lines that were printed, with the time of each."""

    def __init__(self):
        self.now, self.lines = 0.0, []
        self.far = {}
        self.running = RunningTask(
            self.show,
            lambda: self.lines[-1][0] if self.lines else 0.0,
            lambda: self.now,
            progress=lambda hosts: {host: self.far[host] for host in hosts if host in self.far},
        )

    def show(self, line):
        self.lines.append((self.now, line))

    def begin(self, *hosts, quiet=False, **given):
        self.running.begin(task(**given), None if quiet else lambda: self.show("TASK"))
        for host in hosts:
            self.running.started(host)

    def wait(self, seconds):
        for _ in range(int(seconds / CHECK_S)):
            self.now += CHECK_S
            self.running.check()

    @property
    def text(self):
        return [line for _, line in self.lines]


@pytest.fixture
def screen():
    return Screen()


def test_a_task_of_35_s_is_never_silent_for_10_s_and_repeats_no_line(screen):
    screen.begin("n1", "n2")
    screen.wait(35)
    assert screen.text == [
        "TASK",
        "  0:00:11   Install torch==2.9.0 on n1, n2",
        "  0:00:20   Install torch==2.9.0 on n1, n2",
        "  0:00:29   Install torch==2.9.0 on n1, n2",
    ]
    times = [0.0, *(at for at, _ in screen.lines), screen.now]
    assert max(later - before for before, later in zip(times, times[1:])) < 10 and SILENT_S + CHECK_S < 10


def test_how_far_pip_is_on_the_host_that_is_least_far(screen):
    wheel = {"phase": 0, "file": "torch-2.9.0-cp311.whl", "number": 1, "total": 100 << 20, "seconds": 5.0}
    screen.far = {"n1": {**wheel, "done": 50 << 20}, "n2": {**wheel, "done": 20 << 20}}
    screen.begin("n1", "n2")
    screen.wait(11)
    screen.running.ended("n2")
    screen.wait(10)
    screen.begin("localhost")
    screen.far["localhost"] = screen.far["n1"]
    screen.wait(12)
    rate = "download 1, torch-2.9.0: {} MiB of 100 MiB, {} MiB/s, {} s left"
    assert [line for line in screen.text if "MiB" in line] == [
        f"  0:00:11   Install torch==2.9.0 on n1, n2; n2: {rate.format(20, 4, 20)}",
        f"  0:00:20   Install torch==2.9.0 on n1; 1 host finished; {rate.format(50, 10, 5)}",
        f"  0:00:11   Install torch==2.9.0; {rate.format(50, 10, 5)}",
    ]


def test_other_output_counts_and_hosts_that_have_finished_are_left_out(screen):
    screen.begin("n1", "n2", "n3")
    screen.wait(10)
    screen.show("  1 of 3 nodes has answered")
    screen.running.ended("n2")
    screen.wait(8)
    assert screen.text == ["TASK", "  1 of 3 nodes has answered"]
    screen.wait(2)
    assert screen.text[2:] == ["  0:00:19   Install torch==2.9.0 on n1, n3; 1 host finished"]
    screen.running.ended("n1")
    screen.running.ended("n3")
    screen.wait(10)
    assert screen.text[3:] == ["  0:00:28   the controller prepares the next task"]


def test_before_the_first_play_a_line_comes_soon_and_then_within_ten_seconds(screen):
    screen.wait(25)
    text = "reading the inventory and the playbook, and checking all input"
    assert screen.text == [f"  {clock}   {text}" for clock in ("0:00:03", "0:00:12", "0:00:21")]
    screen.running.begin(None)
    screen.wait(7)
    assert screen.text[3:] == ["  0:00:05   the controller prepares the next task"]


def test_results_come_once_for_all_hosts_when_the_task_is_over(screen):
    screen.begin("n1", "n2", "n3", "n4")
    screen.wait(3)
    screen.running.ended("n1", "python_environment", TORCH)
    screen.running.ended("n2", "python_environment", TORCH)
    screen.running.ended("n3", "python_environment", {"changed": False})
    screen.running.ended("n4")
    assert screen.text == ["TASK"]
    screen.begin("n1", name="Next")
    assert screen.text[1:] == ["n1, n2: installed torch 2.9.0 and 1 other (812 MiB) in 3 s"]
    screen.running.begin(None)
    assert len(screen.lines) == 2


@pytest.mark.parametrize(("given", "expected"), [({}, ["  0:00:09   Collect"]), ({"args": {"step": "watch"}}, [])])
def test_a_quiet_play_has_lines_but_no_banner_and_a_watched_job_has_its_own(screen, given, expected):
    screen.begin("localhost", quiet=True, **{"name": "Collect", "action": "job", "args": {"step": "collect"}, **given})
    screen.wait(10)
    assert screen.text == expected
