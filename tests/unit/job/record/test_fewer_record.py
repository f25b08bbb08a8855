"""The record of a job that went on with fewer nodes: summary, logs, text, page, events."""

from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.plan.log_names import take_logs
from ansible.module_utils.trainyard.job.record import events
from ansible.module_utils.trainyard.job.run.decide.remaining_nodes import size_text, world_sizes_text
from ansible.module_utils.trainyard.job.run.decide.restarts import watched_texts
from ansible.module_utils.trainyard.job.run.logs.log_lines import logs
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.report.job_page import tiles, timeline
from ansible.module_utils.trainyard.report.job_text import explain
from job_samples import make_job, make_plan, member
from rank_table_samples import MPI

OUT = {
    "elapsed_s": 100.0, "reason": "node n2: no report for 15 s", "restarted": "the whole job",
    "failure": {"kind": "silent"},
    "step": 40, "epoch": None, "wait_s": 0.0, "restart_s": 301.0, "checkpoint": None, "fruitless": 0,
    "left_out": ["n2"], "world_size": 4, "nodes": 2, "why": "node n2: no report for 317 s",
}  # fmt: skip
BACK = {**OUT, "elapsed_s": 900.0, "reason": "rank 0 on n1 was killed", "restart_s": 2.5, "left_out": [],
        "back": ["n2"], "world_size": 6, "nodes": 3, "why": ""}  # fmt: skip
ANSWER = {"known": True, "left": 0, "processes": [], "monitor": None, "monitor_alive": False, "cluster": None}
SIZES = [{"elapsed_s": 0.0, "world_size": 6, "nodes": 3}, {"elapsed_s": 401.0, "world_size": 4, "nodes": 2}]


def planned(**job):
    members = [member(number, devices=2, mpi=MPI) for number in range(3)]
    return make_plan(make_job(max_restarts=3, min_nodes=2, **job), members).as_dict()


def answers(history, left_out, **more):
    restarts = {"history": history, "left_out": left_out, "members": [], "replaced": {}}
    end = {"state": "succeeded", "finished": 2000.0}
    cluster = {"restarts": restarts, "end": end, "started": 1000.0, "elapsed_s": 1000.0, **more}
    return {"n1": {**ANSWER, "cluster": cluster}, "n2": dict(ANSWER), "n3": dict(ANSWER)}


def summary_of(plan, history, left_out, world_size):
    found = answers(history, left_out, world_size=world_size, metrics={})
    return schedulers.summarize(plan, ssh.state(plan, found, {}, {}))


def test_the_summary_has_the_present_ranks_and_the_world_size_over_time():
    plan = planned(launcher="direct")
    summary = summary_of(plan, [OUT], {"n2": 1}, 4)
    found = [(node["host"], node["ranks"], node.get("role", "")) for node in summary["nodes"]]
    assert found == [("n1", [0, 1], ""), ("n3", [2, 3], ""), ("n2", [], "left out")]
    assert [process["log"] for process in summary["nodes"][1]["processes"]] == ["rank_2.log", "rank_3.log"]
    assert (summary["world_size"], summary["world_sizes"]) == (4, SIZES)
    back = summary_of(plan, [OUT, BACK], {}, 6)
    assert [node["ranks"] for node in back["nodes"]] == [[0, 1], [2, 3], [4, 5]]
    assert back["world_sizes"] == [*SIZES, {"elapsed_s": 902.5, "world_size": 6, "nodes": 3}]
    assert summary_of(plan, [], {}, 6)["world_sizes"] == []


def test_text_and_page_show_the_world_size_over_time():
    summary = summary_of(planned(), [OUT, BACK], {}, 6)
    text = explain(summary, "runs/digits", "", [])
    assert "world size: 6 ranks from 0:00:00, 4 ranks from 0:06:41, 6 ranks from 0:15:02" in text
    assert "the job goes on without n2: 4 ranks on 2 nodes (node n2: no report for 317 s)" in text
    assert "n2 takes part again: 6 ranks on 3 nodes" in text and "6 ranks on 3 nodes." in text
    shown = {name: (value, remark) for name, value, remark in tiles(summary, [])}
    assert shown["ranks"] == ("6", "6 ranks from 0:00:00, 4 ranks from 0:06:41, 6 ranks from 0:15:02")
    marks = [mark["text"] for mark in timeline(summary, [])["marks"] if mark["kind"] == "restart"]
    assert marks[0].endswith("; the job goes on without n2: 4 ranks on 2 nodes")
    fewer = explain(summary_of(planned(), [OUT], {"n2": 1}, 4), "runs/digits", "", [])
    assert "4 ranks on 2 nodes." in fewer


def test_what_only_the_first_node_runs_is_that_of_the_next_one_while_the_first_is_left_out():
    for launcher, name in (("mpirun", "mpirun"), ("mindspore", "scheduler")):
        plan = planned(launcher=launcher)
        found = answers([OUT], {"n1": 0})
        summary = summary_of(plan, [OUT], {"n1": 0}, 4)
        assert summary["moved_rendezvous"] == {"host": "n2", "without": "n1"}
        processes = {node["host"]: [each["name"] for each in node["processes"]] for node in summary["nodes"]}
        assert processes["n2"][0] == name and processes["n1"] == [] and name not in processes["n3"]
        for host in ("n1", "n2"):
            found[host]["logs"] = {f"{name}.log": host}
        logs_of, _ = take_logs(plan, found)
        assert logs_of["n1"] == {f"n1_{name}.log": "n1"} and logs_of["n2"] == {f"{name}.log": "n2"}


def test_the_report_names_the_host_that_has_the_rendezvous_while_the_first_node_is_left_out():
    plan = planned(launcher="direct")
    out = {**OUT, "left_out": ["n1"]}
    summary = summary_of(plan, [out], {"n1": 0}, 4)
    moved = "  n2 had the rendezvous: the job went on without n1, its first node"
    assert moved in explain(summary, "runs/digits", "", []).splitlines()
    running = explain({**summary, "state": "running"}, "runs/digits", "", [])
    assert "  n2 has the rendezvous: the job goes on without n1, its first node" in running.splitlines()
    for history, left_out in (([OUT], {"n2": 1}), ([out, {**BACK, "back": ["n1"]}], {})):
        summary = summary_of(plan, history, left_out, 4)
        assert summary["moved_rendezvous"] is None and "rendezvous" not in explain(summary, "runs/digits", "", [])
    # A spare that had taken the first place is left out; another host is the first one.
    both = planned(launcher="direct", spares=1)
    restarts = {"left_out": {"n3": 0}, "replaced": {"n1": "n3"}}
    assert ssh.state(both, {"n1": {**ANSWER, "cluster": None}}, {}, {})["moved_rendezvous"] is None
    found = answers([out], {"n3": 0})
    found["n1"]["cluster"]["restarts"].update(restarts)
    assert ssh.state(both, found, {}, {})["moved_rendezvous"] == {"host": "n2", "without": "n3"}


def test_logs_of_ranks_that_a_host_had_before_get_its_name():
    names = ("rank_1.log", "rank_2.log", "agent_1.log", "agent_2.log", "monitor_2.log", "metrics.jsonl", "rank_9.log")
    found = answers([OUT], {"n2": 1}, progress_rank=3)
    for host in ("n2", "n3"):
        found[host]["logs"] = dict.fromkeys(names, host)
    logs_of, others = take_logs(planned(), found)
    # n3 has the ranks 2 and 3 now, as node 1.
    own = {"rank_2.log", "agent_1.log", "monitor_2.log", "metrics.jsonl"}
    assert {*logs_of["n3"]} == own | {"n3_rank_1.log", "n3_agent_2.log"}
    assert {*logs_of["n2"]} == {f"n2_{name}" for name in names[:4]}
    assert "n2 (monitor_2.log, rank_9.log), n3 (rank_9.log)" in others


def test_any_node_may_have_a_rank_that_is_followed():
    assert logs(planned(), [3]) == {host: {"rank_3.log": 3} for host in ("n1", "n2", "n3")}


def test_events_tell_who_is_left_out_and_who_is_taken_back():
    def state(left_out, members, world_size):
        excluded = {host: {"reason": "node n2: no report for 317 s"} for host in left_out}
        restarts = {"history": [], "left_out": left_out, "members": members, "excluded": excluded}
        return {"state": "running", "metrics": {}, "elapsed_s": 5.0, "end": None, "world_size": world_size,
                "ranks_running": world_size, "nodes": {}, "restarts": restarts, "job_id": "j-1"}  # fmt: skip

    full, fewer = state({}, ["n1", "n2", "n3"], 6), state({"n2": 1}, ["n1", "n3"], 4)
    ((kind, text, facts),) = events.changes(full, fewer, 600)
    why = "node n2: no report for 317 s"
    assert (kind, text) == ("left_out", f"the job goes on without n2, with 4 ranks on 2 nodes: {why}")
    made = events.event((kind, text, facts), fewer, 1.0)
    assert (made["host"], made["reason"], made["world_size"], made["nodes"]) == ("n2", why, 4, 2)
    ((kind, text, _),) = events.changes(fewer, full, 600)
    assert (kind, text) == ("taken_back", "n2 takes part again, with 6 ranks on 3 nodes")
    assert {"left_out", "taken_back"} <= {*events.KINDS} and list(events.changes(full, full, 600)) == []


def test_one_rank_is_one_rank():
    alone = [{"elapsed_s": 0.0, "world_size": 2, "nodes": 2}, {"elapsed_s": 60.0, "world_size": 1, "nodes": 1}]
    assert world_sizes_text(alone) == "2 ranks from 0:00:00, 1 rank from 0:01:00"
    assert size_text(1, 1) == "1 rank on 1 node"


def test_a_watch_shows_who_is_left_out_when_that_is_decided():
    before = {name: value for name, value in OUT.items() if name not in ("left_out", "world_size", "nodes", "why")}
    (first,) = watched_texts(before)
    out = "the job goes on without n2: 4 ranks on 2 nodes (node n2: no report for 317 s)"
    assert watched_texts(OUT) == [first, out]
    assert watched_texts({**OUT, "first_step": 41}) == [first, out, "the program went on: its first step was 41"]
    (again,) = watched_texts(BACK)
    assert again.endswith("; n2 takes part again: 6 ranks on 3 nodes")
