"""The record of a job whose head was replaced: from the new head, whatever the earlier one left."""

import base64
import importlib.util
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from actions import PROJECT
from ansible.module_utils.trainyard.job.plan import log_names
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.job import heads, reporting
from ansible.module_utils.trainyard_controller.job.collecting import Request, collect
from ansible.module_utils.trainyard_controller.job.live_page import LivePage
from ansible.module_utils.trainyard_controller.runs import excluded_record
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_samples import make_job, make_plan, member
from test_events import RESTART
from test_leader import CUT_OFF, FAILED, MINORITY, SILENT, WELL, head, node

DOWN = {"kind": "silent", "host": "n1", "after_s": 15.0}
LOST = {**RESTART, "reason": "node n1: no report for 15 s", "failure": DOWN,
        "replaced": "n1", "spare": "n4"}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Four hosts, of which one is a spare, in the folder of a run."""
    job = make_job(launcher="direct", max_restarts=1, spares=1)
    plan = make_plan(job, [member(number) for number in range(4)]).as_dict()
    (tmp_path / "logs").mkdir()
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    return SimpleNamespace(folder=tmp_path, plan=plan)


def collected(answer):
    """Return the answer of a node to `collect`."""
    return {"changed": False, "processes": [], "left": int(answer["monitor_alive"]), "logs": {}, **answer}


def after_takeover(end=WELL, alive=False, **n1):
    """Return the answers of all hosts after n2 took over, and n4 took the place of n1."""
    led = head("n2", 1, alive=alive, end=end)
    led["cluster"].update(world_size=3, metrics={"step": 90.0}, restarts={"history": [LOST], "replaced": {"n1": "n4"}})
    others = {host: node(alive, "n2", end=end) for host in ("n3", "n4")}
    answers = {host: collected(answer) for host, answer in {"n2": led, **others}.items()}
    return {"n1": collected(n1) if n1 else SILENT, **answers}


def summary(run, answers, **changes):
    reported = reporting.report(run.folder, answers, {}, check=True, **changes)
    return reported.summary, reported.text.splitlines(), reported.left


@pytest.mark.parametrize("only", [
    {"n3": node(alive=False, end=CUT_OFF)}, {"n3": node(alive=False, end=MINORITY), "n4": node(alive=False)},
    {"n1": head(alive=False, monitor_lost={"restarted": False, "how": "killed by SIGKILL"})},
])  # fmt: skip
def test_a_job_has_no_end_while_hosts_that_may_lead_it_cannot_be_asked(run, only):
    """A final record would keep a later watch from its nodes."""
    silent = dict.fromkeys(("n1", "n2", "n3", "n4"), SILENT)
    answers = {**silent, **{host: collected(answer) for host, answer in only.items()}}
    found, text, _ = summary(run, answers)
    assert (found["state"], found["failure"]) == ("lost", None)
    assert text[0].endswith(" is lost: no node that could be asked tells whether it still runs.")
    # With the others it has one.
    rest = {host: collected(node(alive=False, end=CUT_OFF)) for host in silent if host not in only}
    assert summary(run, {**answers, **rest})[0]["state"] == "failed"


@pytest.mark.parametrize(
    "n1",
    [
        {},
        head(alive=False),
        head(follows="n2", end=None),
        head(end=CUT_OFF, alive=False),
        head(end=MINORITY, alive=False),
        head(follows="", end=None),
    ],
)
def test_a_job_that_succeeded_under_another_head_is_a_success(run, n1):
    found, text, _ = summary(run, after_takeover(**n1))
    assert (found["state"], found["metrics"], found["failure"]) == ("succeeded", {"step": 90.0}, None)
    assert found["takeover"] == {"head": "n2", "planned": "n1", "count": 1}
    assert "  n2 led the job at its end: it took over from n1" in text
    assert any(
        line.endswith("so the whole job starts again (after step 40); n4 takes the place of n1") for line in text
    )
    assert [(each["host"], each["ranks"]) for each in found["nodes"]] == [
        ("n4", [0]),
        ("n2", [1]),
        ("n3", [2]),
        ("n1", []),
    ]


def test_a_running_job_names_its_present_head(run):
    found, text, _ = summary(run, after_takeover(end=None, alive=True, **head(follows="n2")))
    assert found["state"] == "running" and "  n2 leads the job: it took over from n1" in text
    assert not any("choose" in line for line in text)
    third = after_takeover(end=None, alive=True)
    third["n3"], third["n2"] = {**third["n2"], "cluster": {**third["n2"]["cluster"], "head": "n3", "term": 2}}, SILENT
    third["n3"]["monitor"] = {**third["n3"]["monitor"], "follows": "n3"}
    assert "  n3 leads the job: it took over from n1, the last of 2 takeovers" in summary(run, third)[1]
    alone = {
        host: collected(answer) for host, answer in {"n1": head(), "n2": node(), "n3": node(), "n4": node()}.items()
    }
    found, text, _ = summary(run, alone)
    assert found["takeover"] is None and not any("took over" in line for line in text)


@pytest.mark.parametrize("n1", [
    SILENT, collected(head(alive=False, monitor_lost={"restarted": True, "how": ""})),
    collected(head(alive=False, monitor_lost={"restarted": False, "how": "killed"})),
    collected(head(alive=False, end=CUT_OFF)),
])  # fmt: skip
def test_while_a_new_head_is_chosen_the_job_runs(run, n1):
    others = {host: collected(node(follows="", term=0)) for host in ("n2", "n3", "n4")}
    found, text, _ = summary(run, {"n1": n1, **others})
    assert found["state"] == "running" and "  n1 is lost; the other nodes choose a new head" in text
    # A node that was replaced ended its own part.
    replaced = {"state": "failed", "finished": 1.0, "failure": {"kind": "replaced", "host": "n3", "by": "n4"}}
    others["n3"] = collected(node(alive=False, end=replaced))
    assert summary(run, {"n1": n1, **others})[0]["state"] == "running"


def test_the_last_monitor_that_was_killed_ends_the_job(run):
    gone = collected(head(alive=False, monitor_lost={"restarted": False, "how": "killed by SIGKILL"}))
    others = {host: collected(node(alive=False)) for host in ("n2", "n3", "n4")}
    found, text, _ = summary(run, {"n1": gone, **others})
    assert (found["state"], found["failure"]["kind"]) == ("failed", "gone")
    assert (
        "  killed by SIGKILL; it was the monitor of the head node, and no other monitor runs that could take over"
        in text
    )
    cut_off = {host: collected(node(alive=False, end=CUT_OFF)) for host in ("n2", "n3")}
    found = summary(run, {"n1": SILENT, **cut_off, "n4": SILENT})[0]
    assert (found["state"], found["failure"]["kind"]) == ("failed", "head_silent")


def test_stop_while_the_old_head_is_down_ends_the_job_on_all_others(run):
    stopped = {"state": "stopped", "finished": 1790000100.0, "host": "n2"}
    answers, asked = after_takeover(end=stopped), []

    def ask(question, own, limit_s):
        asked.append((question, {host: about["stop"] for host, about in own.items()}))
        return {host: checked(question, {**answers[host]}, host) if host != "n1" else SILENT for host in own}

    found = collect(run.plan, run.folder, ask, Request(1 << 20, purpose="stop", stop=True))
    assert asked == [("collect", dict.fromkeys(["n1", "n2", "n3", "n4"], True))]
    shown, text, left = summary(run, found["answers"], by_stop=True)
    assert (shown["state"], shown["stopped_on"], left) == ("stopped", "n2", ["n1"])
    assert "  no process of the job is left on n4, n2, n3" in text and any(
        "n1 could not be asked" in line for line in text
    )


def test_only_the_head_that_holds_excludes_hosts(run, tmp_path):
    answers = after_takeover(**head(alive=False))
    for host, reason in (("n1", "of before"), ("n2", "disk: 3 MiB free")):
        answers[host]["cluster"]["restarts"]["excluded"] = {"n3": {"reason": reason, "since": 1000.0}}
    reporting.report(run.folder, answers, {}, excluded_file=tmp_path / "excluded.json")
    assert [each["reason"] for each in excluded_record.read(tmp_path / "excluded.json").values()] == [
        "disk: 3 MiB free"
    ]


def test_each_head_brings_its_log_of_events(run):
    answers = after_takeover(**head(alive=False))
    for host, answer in answers.items():
        answer["logs"] = {"events.log": host, "rank_0.log": host}
    answers["n5"] = {"logs": {"events.log": "n5"}}
    found, _ = log_names.take_logs(run.plan, answers)
    assert found == {"n1": {"n1_events.log": "n1", "n1_rank_0.log": "n1"}, "n2": {"events.log": "n2"},
                     "n3": {"n3_events.log": "n3"}, "n4": {"n4_events.log": "n4", "rank_0.log": "n4"},
                     "n5": {}}  # fmt: skip
    # A head that names a spare for a place that the plan does not give it breaks nothing.
    answers["n2"]["cluster"]["restarts"]["replaced"] = {"n1": "n4"}
    run.plan["spares"][0]["places"].pop("0", None)
    answers["n4"]["logs"] = {"rank_0.log": "n4", "rank_1.log": "n4"}
    assert log_names.take_logs(run.plan, answers)[0]["n4"] == {"rank_0.log": "n4"}


def test_the_live_page_goes_on_under_the_new_head(run):
    answers = after_takeover(end=None, alive=True)
    answers["n4"]["logs"] = {"rank_0.log": base64.b64encode(b"step 90\n").decode()}

    def ask(question, own, limit_s):
        return {host: checked(question, {**answers[host]}, host) if host != "n1" else SILENT for host in own}

    page = LivePage(run.plan, run.folder, ask)
    page.write()
    assert "n2 leads the job: it took over from n1" in page.path.read_text()
    page.path.unlink()
    answers["n2"]["cluster"]["end"] = WELL
    page.write()
    assert not page.path.exists()


# ---- which jobs run


class Nodes:
    """Hosts with the jobs that run there, and those whose end they recorded."""

    def __init__(self, **hosts):
        self.hosts, self.visits = hosts, []

    def __call__(self, question, own):
        assert question == "running"
        self.visits.append({host: [job["job_id"] for job in about["jobs"]] for host, about in own.items()})
        return {host: self.hosts.get(host, SILENT) for host in own}


def job(name, *candidates):
    return {"job_id": name, "job_dir": f"/jobs/{name}", "head": {"host": candidates[0]}, "candidates": [*candidates]}


def here(ended=(), **running):
    return {"running": running, "ended": [*ended]}


TOLD = {"a": "step 7", "b": "step 2"}
OTHERS = {"n2": ["a"], "n3": ["a"]}
A, B = job("a", "n1", "n2", "n3"), job("b", "n2", "n3", "n1")


@pytest.mark.parametrize(("nodes", "lines", "unknown", "others"), [
    # The head is enough where it leads or recorded the end, and a job without restarts has no other.
    (Nodes(n1=here(a="step 1"), n2=here(b="step 2")), {"a": "step 1", "b": "step 2"}, {}, None),
    (Nodes(n1=here(["a"]), n2=here(["b"])), {}, {}, None),
    # It is down, or follows another one and so has no line.
    (Nodes(n2=here(a="step 7", b="step 2"), n3=here(a="", b="")), TOLD, {}, OTHERS),
    (Nodes(n1=here(a="", b=""), n2=here(b="step 2"), n3=here(a="step 7")), TOLD, {}, OTHERS),
    # A new head is chosen: monitors run.
    (Nodes(n1=here(), n2=here(a="", b="x"), n3=here(a="")), {"a": "", "b": "x"}, {}, OTHERS),
    # Another host recorded the end, while a third one still ends its part, or most say that they run nothing.
    (Nodes(n2=here(["a", "b"]), n3=here(a="")), {}, {}, OTHERS),
    (Nodes(n2=here([], b="x"), n3=here()), {"b": "x"}, {}, OTHERS),
    (Nodes(n2=here([], b="x")), {"b": "x"}, {"a": "n1: timed out"}, OTHERS),
    (Nodes(), {}, {"a": "n1: timed out", "b": "n2: timed out"}, {"n1": ["b"], "n2": ["a"], "n3": ["a", "b"]}),
])  # fmt: skip
def test_jobs_that_run_are_found_under_any_head(nodes, lines, unknown, others):
    assert heads.running([A, B], nodes) == (lines, unknown)
    assert nodes.visits == [{"n1": ["a"], "n2": ["b"]}, *([] if others is None else [others])]


def test_nobody_is_asked_about_no_job():
    assert heads.running([], None) == ({}, {})
    alone = {**A, "candidates": []}
    nodes = Nodes()
    assert heads.running([alone], nodes) == ({}, {"a": "n1: timed out"}) and len(nodes.visits) == 1


def test_a_node_says_which_jobs_have_ended_under_its_lead(tmp_path):
    jobs = [{"job_id": name, "job_dir": str(tmp_path / name)} for name in ("a", "b", "c")]
    for each, end in zip(jobs, (WELL, CUT_OFF, None)):
        (tmp_path / each["job_id"]).mkdir()
        write_json(tmp_path / each["job_id"] / "cluster.json", head(end=end)["cluster"])
    answer = agent.running(jobs=jobs)
    assert answer == {"running": {}, "ended": ["a"]} == checked("running", answer, "n1")


@pytest.mark.parametrize(("answer", "line"), [(head(), True), (head(follows="n2"), False), (head("n2", 1), True)])
def test_the_line_for_people_is_that_of_the_present_head(monkeypatch, tmp_path, answer, line):
    from ansible.module_utils.trainyard_node.job.run import job_life

    monkeypatch.setattr(job_life, "wait", lambda *_: None)
    monkeypatch.setattr(job_life, "status", lambda *_: dict(answer))
    assert ("line" in agent.state(job_id="a", job_dir=str(tmp_path))) is line


# ---- events


def started(run_dir, plan):
    """Return what each host gets to start its part, as the action sends it; in a process that is a controller."""
    spec = importlib.util.spec_from_file_location("job", PROJECT / "plugins/action/job.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin, sent = object.__new__(module.ActionModule), {}
    plugin._display = SimpleNamespace(display=lambda text: None)

    def ask(question, own, shared, limit_s):
        sent.update({host: {**shared, **about} for host, about in own.items()})
        return {host: {"known": True} for host in own}

    plugin.fan_out = lambda: SimpleNamespace(ask=ask)
    given = {"user": "train", "secret_files": {"key": "a2V5"}, "secret_env": {"KEY": "hunter2"}}
    plugin._start(plan, run_dir, {"events.json": "e30="}, given)
    return sent


@pytest.mark.parametrize(("restarts", "expected"), [(1, ["n1", "n2", "n3", "n4", "n5"]), (0, ["n1"])])
def test_hosts_that_may_lead_get_the_receivers_of_events(tmp_path, restarts, expected):
    plan = make_plan(
        make_job(launcher="direct", max_restarts=restarts), [member(number) for number in range(7)]
    ).as_dict()
    (tmp_path / "source.tar.gz").write_bytes(b"")
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        sent = process.submit(started, tmp_path, plan).result()
    files = {host: about["secret_files"] for host, about in sent.items()}
    assert [host for host, names in files.items() if "events.json" in names] == expected
    assert all("key" in names for names in files.values()) and len(files) == 7


def test_a_failure_of_the_whole_job_under_another_head_is_told(run):
    found, text, _ = summary(run, after_takeover(end=FAILED))
    assert (found["state"], found["failure"]["host"]) == ("failed", "n2")
    assert "  n2 led the job at its end: it took over from n1" in text


def test_a_monitor_that_was_about_to_end_is_no_change_by_a_verification(run):
    """Which must not say `changed` now and then, though all is as before."""

    def ask(question, own, limit_s):
        return {host: {**collected(node(alive=False, end=WELL)), "changed": True} for host in own}

    changed = [
        collect(run.plan, run.folder, ask, Request(1, purpose=purpose, stop=True))["changed"]
        for purpose in ("record", "stop")
    ]
    assert changed == [False, True]
