"""Nodes whose monitors do not report any more, ended without a word, or went down: what is said of them, and when."""

from __future__ import annotations

from unittest import mock

from ansible.module_utils.trainyard.job import messages
from ansible.module_utils.trainyard.job.failure import text as failure_text
from ansible.module_utils.trainyard_node.job import head as head_part
from ansible.module_utils.trainyard_node.job import monitor as monitors
from job_cluster import Cluster


def test_nodes_that_freeze_together_are_all_named_and_shown_before_they_are_given_up(tmp_path):
    job = Cluster(tmp_path, *[["wait"]] * 5, silent_after_s=15)
    head = monitors.Monitor(job.head.dir)
    head.report = {"host": "n1", "ranks_running": 1, "done": False, "failures": [], "metrics": {}}
    now = head.started + 100
    # Nodes report once a second, and freeze one after the other; n4 is only slow.
    for host, since in (("n2", 14.2), ("n3", 14.9), ("n4", 3.0), ("n5", 15.2)):
        head.reports[host], head.seen[host] = {**head.report, "host": host}, now - since
    with mock.patch.object(head_part.time, "monotonic", lambda: now - 1):
        assert head.save_cluster()["held"] == "no report from n2, n3, n5 for 13 to 14 s"
    head.judge(now)
    assert head.end_record["failure"] == {
        "kind": "silent", "host": "n5", "after_s": 15, "hosts": ["n2", "n3", "n5"], "least_s": 14, "ranks_running": 1
    }  # fmt: skip
    assert failure_text(head.end_record["failure"]) == "nodes n2, n3, n5: no word for 14 to 15 s"
    message = {"end": head.end_record}
    messages.check_from_head(message, [], 0)
