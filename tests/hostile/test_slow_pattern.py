"""A progress pattern that takes for ever on some lines: it costs the progress, not the monitor."""

import signal
import sys
import threading
import time

import pytest
from ansible.module_utils.trainyard.job.run.logs import progress
from ansible.module_utils.trainyard.job.run.logs.progress import check_pattern
from ansible.module_utils.trainyard_node.machine import json_files
from ansible.module_utils.trainyard_node.machine.regex_limit import TooLongError, cpu_at_most
from job_cluster import PATIENCE_S, Cluster

FOR_EVER = r"(?P<step>\d+) (?P<rest>(a+)+)$"
LINE = "7 " + "a" * 60 + "!"


@pytest.mark.parametrize("pattern", [FOR_EVER, r"(?P<s>\d+) (?:a|a)*b", r"7 (?P<s>(.*)*)x"])
def test_a_search_that_takes_too_long_is_cut_off(pattern):
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(TooLongError), cpu_at_most(0.05):
        progress.parse_line(LINE, progress.compile_pattern(pattern))
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_what_is_quick_is_not_cut_off_and_another_thread_has_no_limit():
    said = []

    def busy():
        with cpu_at_most(0.01):
            began = time.thread_time()
            while time.thread_time() - began < 0.1:
                pass
            said.append("done")

    with cpu_at_most(0.5):
        pass
    thread = threading.Thread(target=busy)
    thread.start()
    thread.join()
    assert said == ["done"]


def test_a_monitor_with_such_a_pattern_goes_on(tmp_path):
    with Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=PATIENCE_S) as job:
        for node in job.nodes:
            [process] = node.spec["processes"]
            process["argv"] = [sys.executable, "-c", f"print('1 aaa')\nprint({LINE!r})\nprint('2 aaa')"]
            node.spec["progress_pattern"] = FOR_EVER
            json_files.write_json(node.dir / "node_plan.json", node.spec)
            node.start()
        assert job.over()["state"] == "succeeded"
        for node in job.nodes:
            assert node.monitor.wait(PATIENCE_S) == 0
        assert job.state()["metrics"] == {"step": 1}
        assert job.head.log().count("progress is no longer read") == 1


def test_a_pattern_has_as_many_groups_as_a_report_may():
    groups = [f"(?P<g{number}>a)" for number in range(65)]
    assert check_pattern("".join(groups[:64])) == ""
    assert check_pattern("".join(groups)).startswith("too many named groups")
    assert check_pattern(f"(?P<{'x' * 65}>a)").startswith("too many named groups")
