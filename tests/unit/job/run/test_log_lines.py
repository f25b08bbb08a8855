"""Lines of ranks as they come: which are meant, what of a log is read, what is folded, and how they are watched."""

import json
import os
import threading
import time

import pytest
from ansible.module_utils.trainyard.job.run.logs import log_lines
from ansible.module_utils.trainyard_controller.job import watching
from ansible.module_utils.trainyard_node import agent
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import PATIENCE_S
from test_watch import Says, runs

PLAN = {
    "rank_log": "rank_{rank}.log",
    "job_dir": "/x/a",
    "world_size": 4,
    "nodes": [{"host": "n1", "ranks": [0, 1]}, {"host": "n2", "ranks": [2, 3]}, {"host": "n3", "ranks": []}],
}


@pytest.mark.parametrize(
    ("value", "ranks"),
    [("all", [0, 1, 2, 3]), ("2", [2]), (3, [3]), ("0,2-3", [0, 2, 3]), ([1, 0], [0, 1]), (" 1 , 1 ", [1])],
)
def test_ranks_of_a_choice(value, ranks):
    assert log_lines.parse_ranks(value, 4) == (ranks, [])


@pytest.mark.parametrize("value", ["some", "4", "0,9", "0-999999999", "3-1", "-1", "0,5-7", "", True, [], {"a": 1}])
def test_ranks_that_do_not_exist(value):
    ranks, (finding,) = log_lines.parse_ranks(value, 4)
    assert (ranks, finding.check, finding.found) == ([], "follow", repr(value))


def test_the_logs_of_each_node():
    """A spare may take any rank."""
    own = {"n1": {"rank_1.log": 1}, "n2": {"rank_2.log": 2}}
    assert log_lines.logs(PLAN, [1, 2]) == own
    of_hosts = log_lines.logs({**PLAN, "spares": [{"host": "n5"}]}, [1, 2])
    assert of_hosts == {**own, "n5": {"rank_1.log": 1, "rank_2.log": 2}}


def test_the_plan_shows_what_cannot_be_followed():
    assert log_lines.findings(PLAN, "", live=False) == log_lines.findings(PLAN, "all", live=True) == []
    assert log_lines.findings(PLAN, 0, live=False) == []
    (finding,) = log_lines.findings(PLAN, "5", live=False)
    assert finding.found == "'5'"
    findings = log_lines.findings({**PLAN, "nodes": [], "engine": {"kind": "slurm"}}, "all", live=True)
    assert [finding.check for finding in findings] == ["follow", "live"]
    # Its hosts have planned, and have monitors.
    assert log_lines.findings({**PLAN, "engine": {"kind": "slurm"}}, "all", live=True) == []


def test_only_complete_lines_are_read_and_of_a_bar_its_last_state():
    assert log_lines.cut(b"one\ntwo\r\n\nthr") == (["one", "two"], 10)
    assert log_lines.cut(b" 1/3\r 2/3\r 3/") == (["...  2/3"], 10)
    assert log_lines.cut(b"\x1b[32mgreen\x1b[0m\n") == (["green"], 15)
    assert log_lines.cut(b"no end") == ([], 0)
    long = b"x" * log_lines.MAX_BYTES
    lines, read = log_lines.cut(long)
    assert (lines, read) == (["x" * log_lines.MAX_CHARACTERS + " ..."], len(long))


def test_equal_lines_of_many_ranks_are_one():
    lines = {0: ["up", "step 1", "step 2"], 1: ["up", "warm"], 2: ["up", "step 1"], 3: ["up"], 7: ["up", "up"]}
    assert log_lines.folded(lines) == ["[0-3,7] up", "[0,2] step 1", "[1] warm", "[7] up", "[0] step 2"]
    lines = {rank: [f"{rank}.{number}" for number in range(30)] for rank in range(3)}
    shown = log_lines.folded(lines, most=5)
    assert len(shown) == 6 and shown[-1] == "[0-2] ... 85 more lines, in the logs"


@given(st.dictionaries(st.integers(0, 9), st.lists(st.sampled_from("abc"), max_size=6), max_size=6))
def test_no_line_is_lost_or_made_up_and_each_rank_keeps_its_order(lines):
    shown = log_lines.folded(lines, most=1000)
    for rank, own in lines.items():
        seen = []
        for each in shown:
            who, _, text = each[1:].partition("] ")
            if rank in log_lines.parse_ranks(who, 10)[0]:
                seen.append(text)
        assert sorted(seen) == sorted(own)
        # Equal lines stand where the last rank said them; the others of a rank keep their order among themselves.
        first = {text: seen.index(text) for text in seen}
        assert len(first) == len(set(own))


def follow(folder, offsets):
    answer = agent.answer("follow", json.loads(json.dumps({"job_dir": str(folder), "offsets": offsets})), 60)
    return answer["logs"]


def follow_one(folder, offset):
    return follow(folder, {"rank_0.log": offset})["rank_0.log"]


def test_a_log_is_read_on_from_where_it_was_read(tmp_path):
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "rank_0.log"
    assert follow(tmp_path, {"rank_0.log": None}) == {}
    log.write_text("one\ntw")
    assert follow_one(tmp_path, None) == {"lines": ["one"], "offset": 4, "skipped": 0}
    log.write_text("one\ntwo\nthree\n")
    assert follow_one(tmp_path, 4) == {"lines": ["two", "three"], "offset": 14, "skipped": 0}
    assert follow_one(tmp_path, 14) == {"lines": [], "offset": 14, "skipped": 0}
    # Written anew, it is read from its beginning.
    log.write_text("new\n")
    assert follow_one(tmp_path, 14)["lines"] == ["new"]
    # The end of a long log is read, and the rest counted.
    log.write_text("".join(f"line {number:05d}\n" for number in range(20000)))
    first = follow_one(tmp_path, None)
    assert (first["lines"][-1], first["offset"], first["skipped"]) == ("line 19999", 220000, 0)
    assert sum(map(len, first["lines"])) < log_lines.FIRST_BYTES and all(len(line) == 10 for line in first["lines"])
    later = follow_one(tmp_path, 0)
    assert later["offset"] == 220000 and later["lines"][-1] == "line 19999" and len(later["lines"]) == 400
    # All but one that was cut.
    assert later["skipped"] + 11 * 400 in range(220000 - 11, 220001)


def test_nothing_but_a_regular_file_among_the_logs_is_read(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret").write_text("hunter2\n")
    (tmp_path / "logs" / "rank_0.log").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "logs" / "rank_1.log")
    names = ["rank_0.log", "rank_1.log", "../secret", str(tmp_path / "secret"), "nowhere.log"]
    assert follow(tmp_path, dict.fromkeys(names)) == {}


class Nodes:
    """Nodes that answer with these lines, one after the other for each; those that are `slow` not before `go_on`."""

    def __init__(self, **said):
        self.said, self.slow, self.go_on = said, set(), threading.Event()
        self.asked = {host: [] for host in said}

    def __call__(self, question, own, limit_s):
        assert question == "follow"
        ((host, each),) = own.items()
        self.asked[host].append(each["offsets"])
        if host in self.slow:
            self.go_on.wait()
        return {host: self.said[host].pop(0) if self.said[host] else {"logs": {}}}


def logs(**said):
    return {"logs": {f"{name}.log": each for name, each in said.items()}}


def log(*lines, offset=10, skipped=0):
    return {"lines": list(lines), "offset": offset, "skipped": skipped}


def test_lines_are_shown_while_the_head_is_polled(monkeypatch):
    monkeypatch.setattr(watching, "FOLLOW_S", 0.01)
    first = logs(rank_0=log("up"), rank_1=log("up"))
    nodes = Nodes(n1=[first, logs(rank_0=log("step 1", offset=30, skipped=7), other=log("not asked for"))])
    ranks = log_lines.logs(PLAN, [0, 1])
    shown = []

    class Slow(Says):
        def read(self, wait_s):
            # At the third question, the lines of the first two were shown.
            while len(nodes.asked["n1"]) < 3:
                time.sleep(0.01)
            return super().read(wait_s)

    job = Slow(runs("p1"), runs("p2"), runs("", state="over"))
    assert watching.follow(job, lambda _: None, shown.append, watching.Lines(PLAN, ranks, nodes)) == ""
    assert shown == ["[0-1] up", "[0] ... 7 bytes, in the log", "[0] step 1", "  p1", "  p2"]
    assert [offsets["rank_0.log"] for offsets in nodes.asked["n1"]][:4] == [None, 10, 30, 30]


def test_lines_of_other_nodes_are_read_without_an_unreachable_one():
    ranks = log_lines.logs(PLAN, [0, 2])
    nodes = Nodes(n1=[logs(rank_0=log("up"))], n2=[{"unreachable": True, "msg": "gone"}])
    lines = watching.Lines(PLAN, ranks, nodes)
    assert lines.read(PATIENCE_S) == ["[0] up"]
    assert lines.read(PATIENCE_S) == []
    assert [len(nodes.asked[host]) for host in ("n1", "n2")] == [2, 1]
    # A rank whose place a spare has taken is read on both nodes.
    nodes = Nodes(n1=[logs(rank_0=log("before", skipped=1))], n5=[logs(rank_0=log("after", skipped=2))])
    shown = watching.Lines(PLAN, {"n1": {"rank_0.log": 0}, "n5": {"rank_0.log": 0}}, nodes).read(PATIENCE_S)
    assert shown[0] == "[0] ... 3 bytes, in the log" and sorted(shown[1:]) == ["[0] after", "[0] before"]


def test_lines_of_a_slow_node_come_later_and_it_gets_one_query_at_a_time():
    ranks = log_lines.logs(PLAN, [0, 2])
    nodes = Nodes(n1=[logs(rank_0=log("a")), logs(rank_0=log("b"))], n2=[logs(rank_2=log("late"))])
    nodes.slow.add("n2")
    lines = watching.Lines(PLAN, ranks, nodes)
    assert lines.read(0.1) == ["[0] a"]
    assert lines.read(PATIENCE_S) == ["[0] b"]
    nodes.go_on.set()
    # A job that is over is not left before all have told the rest.
    nodes.said["n2"].append(logs(rank_2=log("last", offset=20)))
    assert lines.rest() == ["[2] late", "[2] last"]
    assert [offsets["rank_2.log"] for offsets in nodes.asked["n2"]] == [None, 10]
