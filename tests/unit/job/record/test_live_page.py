"""The page of a job that runs: asked of all nodes, written anew, and left alone once the job is over."""

import base64
import json

from ansible.module_utils.trainyard.job.run.logs import log_lines
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.job import live_page, watching
from ansible.module_utils.trainyard_controller.job.live_page import LivePage
from job_samples import make_job, make_plan, member
from test_events import state
from test_watch import GONE, Clock, Says, runs

RELOADS = '<meta http-equiv="refresh" content="10">'


def plan(folder):
    made = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    (folder / "plan.json").write_text(json.dumps(made))
    return made


class Nodes:
    """Two nodes of a job that runs; the head says how the whole job is."""

    def __init__(self, **changes):
        self.changes, self.asked = changes, 0

    def __call__(self, question, own, limit_s):
        assert question == "collect" and not any(each["stop"] for each in own.values())
        self.asked += 1
        log = base64.b64encode(b"step 40 loss 1.25\n").decode()
        points = b"".join(b'{"elapsed_s": %d, "step": %d, "loss": 1.5}\n' % (at, at) for at in range(5))
        series = {"rank_0.log": log, "metrics.jsonl": base64.b64encode(points).decode()}
        cluster = state(metrics={"step": 40.0, "loss": 1.25}, **self.changes)
        answers = {}
        for rank, host in enumerate(own):
            answers[host] = {"changed": False, "known": True, "monitor_alive": True, "left": 1}
            answers[host]["processes"] = [{"name": f"rank{rank}", "ranks": [rank], "exit": None}]
            answers[host]["monitor"] = {"started": 1790000000.0, "end": None}
            answers[host].update(cluster=None if rank else cluster, logs={} if rank else series)
        return {host: checked("collect", answer, host) for host, answer in answers.items()}


def test_the_page_of_a_job_that_runs_reloads_itself_and_has_what_is_known(tmp_path):
    LivePage(plan(tmp_path), tmp_path, Nodes()).write()
    page = (tmp_path / "report.html").read_text()
    assert RELOADS in page and "As it was 0:00:10 after its start" in page
    assert "Running: " in page and "step 40" in page and "<svg" in page
    assert json.loads((tmp_path / "summary.json").read_text())["state"] == "running"
    assert (tmp_path / "logs" / "rank_0.log").read_text() == "step 40 loss 1.25\n"


def test_the_live_page_is_not_written_after_the_end(tmp_path):
    over = Nodes(state="succeeded", end={"state": "succeeded", "finished": 1790000100.0})
    LivePage(plan(tmp_path), tmp_path, over).write()
    assert over.asked == 1 and [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_node_that_gives_no_answer_is_asked_once_a_minute(tmp_path, monkeypatch):
    clock, asked, nodes = Clock(), [], Nodes()
    monkeypatch.setattr(live_page, "time", clock)

    def ask(question, own, limit_s):
        asked.append((clock.now, sorted(own)))
        found = nodes(question, {host: own.get(host, {"stop": False}) for host in ("n1", "n2")}, limit_s)
        return {host: found[host] if host == "n1" else GONE for host in own}

    page = LivePage(plan(tmp_path), tmp_path, ask)
    for _ in range(8):
        page.write()
        assert "timed out" in page.path.read_text()
        clock.sleep(10)
    both = [now - 1000 for now, hosts in asked if hosts == ["n1", "n2"]]
    assert both == [0, 60] and len(asked) == 8


def test_it_is_written_every_ten_seconds(monkeypatch):
    clock, written = Clock(), []
    monkeypatch.setattr(watching, "time", clock)

    job = Says(*[runs(f"p{number}") for number in range(12)], runs("", state="over"))
    monkeypatch.setattr(job, "read", lambda wait_s, read=job.read: clock.sleep(wait_s) or read(wait_s))
    assert watching.follow(job, lambda _: None, lambda _: None, None, lambda: written.append(clock.now)) == ""
    assert written == [1002.0, 1012.0, 1022.0]


def test_jobs_that_cannot_have_a_live_page():
    job = {"engine": {"kind": "kubernetes"}}
    (finding,) = log_lines.too_far(job, 1, "live", "x")
    assert (finding.check, finding.found) == ("live", "a job of kubernetes, whose nodes are not known")
    assert finding.expected == "a job whose nodes have their monitors"
    assert finding.action.startswith("leave live out; logs.yml")
    (finding,) = log_lines.too_far({}, 65, "live", "leave live out")
    assert (finding.found, finding.action) == ("65 nodes", "leave live out")
