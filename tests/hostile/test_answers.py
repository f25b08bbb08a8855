"""Answers of nodes are checked before anything uses them: a false answer is a finding, never a traceback."""

import copy
import json
import random
import re
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.cluster.ports import draw_ports
from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement.placement import Member
from ansible.module_utils.trainyard.job.plan.plan import build
from ansible.module_utils.trainyard.job.run.decide import attempt_watch, hang_watch, head_state, node_reports
from ansible.module_utils.trainyard.job.run.lead import take_over
from ansible.module_utils.trainyard.job.run.logs import failure_kinds
from ansible.module_utils.trainyard.job.run.logs import failures as failure
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard_controller.job import reporting
from ansible.module_utils.trainyard_controller.runs.run_folder import write_logs
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.job.run import job_folder as folder
from ansible.module_utils.trainyard_node.job.run.evidence import rank_failures
from ansible.module_utils.trainyard_node.job.run.monitor import monitor, next_attempt, node_loop
from ansible.module_utils.trainyard_node.job.run.ranks import rank_exits as exits
from ansible.module_utils.trainyard_node.machine import json_files
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import NODES, unfold
from hypothesis import given, settings
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member

END = {"state": "failed", "finished": 1072.5, "host": None, "failure": {
    "kind": "exit", "host": "n2", "process": "rank1", "ranks": [1], "rank": 1, "exit_code": 7, "signal": None,
    "result": "exit-code", "time": 1070.0, "attempt": 0, "recover_after_s": None,
}}  # fmt: skip
RESTART = {"elapsed_s": 3.0, "reason": "rank 1 on n2: exit code 7", "restarted": "the whole job"}
CLUSTER = {
    "started": 1000.0, "elapsed_s": 72.5, "metrics": {"step": 40.0, "loss": None}, "world_size": 2, "ranks_running": 0,
    "loss_not_a_number": {"since": {"step": 11.0}, "first": {"step": 11.0}, "last": {"step": 40.0, "elapsed_s": 2.0},
                          "stretches": 1, "steps": None}, "end": {**END, "failures": [END["failure"]]},
    "restarts": {"history": [{**RESTART, "failure": END["failure"]}], "budget": 2},
}  # fmt: skip
SAID = {
    "changed": False, "known": True, "monitor_alive": False, "left": 0, "logs": {"rank_0.log": "aGk="},
    "processes": [{"name": "rank0", "ranks": [0],
                   "exit": {"exit_code": 7, "signal": None, "result": "exit-code", "time": 1070.0}}],
    "monitor": {"started": 1000.0, "end": END}, "cluster": CLUSTER,
}  # fmt: skip
WORDS = st.sampled_from([None, True, -1, 2**70, 10**400, 1e300, float("nan"), float("inf"), "", "x" * 5000, "\ud800",
                         "\x1b]52;c;aGk=\x07", [], [None], {}, {"a": {}}, "../../etc/passwd"])  # fmt: skip


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


@st.composite
def lies(draw, truth):
    """The truth, in which some values are something else, or missing."""
    told = {"answer": copy.deepcopy(truth)}
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([each for each in places(told) if each]))
        holder = told
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()) or len(path) == 1:
            holder[path[-1]] = copy.deepcopy(draw(WORDS))
        else:
            del holder[path[-1]]
    return told["answer"] if isinstance(told.get("answer"), dict) else {}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits-1"
    (folder / "logs").mkdir(parents=True)
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


@settings(max_examples=150)
@given(lies(SAID))
def test_a_report_is_written_whatever_a_node_answers(run_dir, told):
    (run_dir / "summary.json").unlink(missing_ok=True)
    answer = answers.checked("collect", told, "n1")
    given = {"n1": answer if "known" in answer else {"failed": True, "msg": reason(answer)}, "n2": {}}
    reported = reporting.report(run_dir, given, {}, by_stop=False)
    assert reported.text and json.loads((run_dir / "summary.json").read_text())["state"]


TIMES = [path for path in places(SAID) if path and re.fullmatch(r"time|started|finished|.*_s", str(path[-1]))]


@pytest.mark.parametrize("path", TIMES, ids=lambda path: ".".join(map(str, path)))
def test_a_time_that_no_calendar_has_makes_an_answer_unusable_and_the_report_is_written(run_dir, path):
    told = copy.deepcopy(SAID)
    holder = told
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = 1e18
    answer = answers.checked("collect", told, "n1")
    (run_dir / "summary.json").unlink(missing_ok=True)
    given = {"n1": answer if "known" in answer else {"failed": True, "msg": reason(answer)}, "n2": SAID}
    assert reporting.report(run_dir, given, {}, by_stop=False).text
    assert answer["msg"].startswith("its answer cannot be used: ") and "1e+18, expected a " in answer["msg"]


MACHINES = {}


@settings(max_examples=60)
@given(st.data())
def test_a_plan_is_made_or_refused_whatever_a_node_says_it_is(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(path.stem for path in NODES.glob("*.tree"))))
    if name not in MACHINES:
        tree = Tree(str(unfold(name, tmp_path_factory.mktemp(name))))
        MACHINES[name] = read_node(tree, packages=["torch"], venv="/x", user=None)
    truth = {"node": MACHINES[name]}
    assert "node" in answers.checked("probe", truth, "n1")
    answer = answers.checked("probe", data.draw(lies(truth)), "n1")
    if "node" in answer:
        drawn = draw_ports(answer["node"]["unused_ports"], 3, random.SystemRandom())
        assert all(10000 <= port <= 65535 for port in drawn)
        facts = {**answer["node"], "free_ports": drawn}
        members = [Member(f"n{at}", f"10.0.0.{at}", facts, {}, {}) for at in (1, 2)]
        for launcher in ("torchrun", "mpirun", "direct", "rank_table"):
            plan, findings = build(make_job(launcher=launcher), "digits-1", time.time(), "/x", members)
            assert findings or json.dumps(plan.as_dict())
    else:
        assert answer["msg"].startswith("its answer cannot be used: ")


def test_a_node_that_leaves_out_what_a_plan_reads_is_told_so(tmp_path):
    tree = Tree(str(unfold("gpu8_infiniband", tmp_path)))
    node = read_node(tree, packages=[], venv=None, user=None)
    node["npu"] = {"devices": [], "chip": "a3"}
    for path, key in (("networks.interfaces.0", "state"), ("networks.rdma.0", "link_layer"), ("npu", "chip")):
        told = copy.deepcopy(node)
        holder = told
        for part in path.split("."):
            holder = holder[int(part) if part.isdecimal() else part]
        del holder[key]
        said = answers.checked("probe", {"node": told}, "n1")["msg"]
        assert said.startswith("its answer cannot be used: node.") and f" has no {key}; " in said


def test_what_is_wrong_with_an_answer_is_said():
    for change, said in (
        ({"left": "many"}, "left is 'many', expected a whole number"),
        ({"processes": [{"name": "rank0", "ranks": [0]}]}, "processes[0] has no exit"),
        (
            {"cluster": {**CLUSTER, "elapsed_s": True}},
            "cluster.elapsed_s is True, expected a duration: seconds, at most 4355 years",
        ),
        ({"logs": {"a": 1}}, "logs.a is 1, expected text"),
    ):
        told = answers.checked("collect", {**SAID, **change}, "n1")["msg"]
        assert told == f"its answer cannot be used: {said}; check that node before it runs a job"
    assert answers.checked("collect", SAID, "n1") == SAID
    diverged = {**SAID, "cluster": {**CLUSTER, "metrics": {"loss": 1e30}}}
    assert answers.checked("collect", diverged, "n1") == diverged
    told = answers.checked("collect", {"failed": True, "msg": "no", "known": True}, "n1")
    assert told == {"failed": True, "msg": "no"}


def test_how_the_whole_job_ended_is_the_heads_to_say(run_dir):
    """A node that is not the head had a file with an end of the whole job, and was believed."""
    plan = json.loads((run_dir / "plan.json").read_text())
    runs = {**SAID, "monitor_alive": True, "left": 1, "monitor": {"started": 1000.0, "end": None}, "cluster": None}
    forged = {**runs, "cluster": {**CLUSTER, "end": {"state": "succeeded", "finished": 1.0}}}
    assert ssh.state(plan, {"n1": runs, "n2": forged}, {}, {})["state"] == "running"
    summary = schedulers.summarize(plan, ssh.state(plan, {"n1": forged, "n2": runs}, {}, {}))
    assert summary["state"] == "succeeded"


def test_all_that_a_monitor_calls_a_failure_may_be_answered():
    modules = (
        attempt_watch,
        rank_failures,
        hang_watch,
        head_state,
        monitor,
        next_attempt,
        node_loop,
        node_reports,
        take_over,
    )
    text = "".join(Path(module.__file__).read_text() for module in modules)
    kinds = set(re.findall(r'"kind": "(\w+)"', text))
    assert {"exit", "silent"} < kinds <= set(failure_kinds.FAILURE.kinds)


@pytest.mark.parametrize(
    "name", ["../summary.json", "..", "", "/etc/passwd", ".hidden", "a/b.log", "x" * 300, "a\0b", "a\nb", "rank_0.log "]
)
def test_a_log_whose_name_is_none_is_not_written(tmp_path, name):
    write_logs(tmp_path / "run", {name: "aGk=", "rank_0.log": "aGk=", "rank_1.log": "aGk", "metrics.jsonl": ""}, False)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"run/logs/rank_0.log", "run/metrics.jsonl"}


@pytest.mark.parametrize("line", [
    b'{"step": ' + b"9" * 400 + b"}", b'{"step": ' + b"9" * 5000 + b"}", b'{"loss": 1e999}', b'{"loss": "1"}', b"7",
    b'{"loss": [1]}', b'{"' + b"l" * 100 + b'": 1}', b'{"loss": 1' + b" " * (1 << 15) + b"}",
    json.dumps({f"m{at}": at for at in range(100)}).encode(), b'{"loss": true}', b"[" * 100_000, b'{"lo', b"\xff",
])  # fmt: skip
def test_a_line_of_metrics_that_no_monitor_writes_is_left_out(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": null}\n' + line + b'\n{"step": 2, "loss": 0.5}\n')
    assert [point["step"] for point in reporting.read_series(path)] == [1, 2]


def test_of_endless_metrics_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SERIES_BYTES", 100)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(1000)))
    assert [point["step"] for point in reporting.read_series(path)] == list(range(993, 1000))
    assert reporting.read_series(tmp_path / "none.jsonl") == []


NUMBER = "9" * 5000
LOGS = [
    f"Root Cause (first observed failure):\n  rank : {NUMBER} (local_rank: 0)\n  exitcode : 1 (pid: 7)\n",
    f"Root Cause (first observed failure):\n  rank : 1 (local_rank: 0)\n  exitcode : {NUMBER} (pid: {NUMBER})\n",
    f"Worker process 7 exit with exception. Error code: 1\n(7, x] This node 0 rank id: {NUMBER}\n",
    f"Building networking for MS_SCHED failed\nThe new node: {NUMBER}(role: MS_WORKER) expected node number: 2\n",
]


@pytest.mark.parametrize("log", LOGS)
def test_a_number_without_end_in_a_log_ends_no_monitor(log):
    """Python reads no number of so many digits; a monitor that met one was gone, and with it the ranks."""
    found = failure.root_cause(log)
    assert found is None or found["rank"] is None


@pytest.mark.parametrize("ended", [
    {"result": "success"}, {"result": "success", "time": "1"}, {"result": "success", "time": float("inf")},
    {"result": ["success"], "time": 1.0}, {"result": "success", "time": 10**400}, {"result": None, "time": True},
])  # fmt: skip
def test_an_end_that_nobody_could_have_written_is_none(tmp_path, ended):
    (tmp_path / "exits").mkdir()
    (tmp_path / "exits/rank0.json").write_text(json.dumps({**ended, "exit_code": 0}))
    (tmp_path / "exits/rank1.json").write_text(json.dumps({**exits.from_status(0), "more": "x" * (1 << 17)}))
    json_files.write_json(tmp_path / "exits/rank2.json", exits.from_status(3))
    assert set(exits.read_exits(tmp_path)) == {"rank2"}


def test_of_the_files_of_a_job_nothing_but_what_is_asked_for_leaves_the_child_that_reads_them(tmp_path):
    json_files.write_json(tmp_path / "node_plan.json", {"job_id": "x", "processes": []})
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**CLUSTER, "more": [[]] * 1000, "restarts": {"history": [], "more": [[]] * 1000}}))
    assert folder.status(tmp_path)["cluster"] == {**CLUSTER, "restarts": {"history": []}}
    json_files.write_json(tmp_path / "monitor.json", {"started": 1.0, "end": None, "more": {}})
    assert folder.status(tmp_path)["monitor"] == {"started": 1.0, "end": None}
    path.write_text(json.dumps({**CLUSTER, "more": "x" * json_files.MAX_STATE}))
    assert folder.status(tmp_path)["cluster"] is None
    # How large a state may be that a job of thousands of nodes writes.
    nodes = {f"node{number:05}": {"ranks_running": 8, "silent_s": 0.5} for number in range(20_000)}
    path.write_text(json.dumps({**CLUSTER, "nodes": nodes}))
    assert folder.status(tmp_path)["cluster"] == {name: CLUSTER[name] for name in CLUSTER if name != "restarts"} | {
        "restarts": {"history": CLUSTER["restarts"]["history"]}
    }


def test_no_test_with_drawn_values_is_judged_by_its_time():
    """Also where `pytest tests/hostile` runs alone."""
    assert settings().deadline is None
