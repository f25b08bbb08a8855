"""Events: changes between two states of a job, the fields that leave the cluster, and the queues."""

import hashlib
import hmac
import json
import re
from pathlib import Path

from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.record import events
from ansible.module_utils.trainyard.job.run.measure.slow_ranks import slow_rank_text
from ansible.module_utils.trainyard.job.run.wire.answers import CLUSTER
from hypothesis import given
from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parents[4]
KILLED = {"kind": "exit", "host": "n2", "process": "rank1", "ranks": [1], "rank": 1, "exit_code": None, "signal": 9,
          "result": "signal", "time": 1790000000.5, "recover_after_s": None}  # fmt: skip
RESTART = {"elapsed_s": 61.5, "reason": "rank 1 on n2: killed by SIGKILL", "failure": KILLED, "step": 40.0,
           "restarted": "the whole job", "fruitless": 0, "wait_s": 0.0}  # fmt: skip


def state(**changes):
    """Return the head's cluster.json of a job of 2 ranks on 2 nodes."""
    nodes = {host: {"ranks_running": 1, "silent_s": 0.1} for host in ("n1", "n2")}
    job = {"job_id": "digits-20261123-051500", "state": "running", "started": 1790000000.0, "elapsed_s": 10.0}
    size = {"world_size": 2, "ranks_running": 2, "nodes": nodes}
    none = {"metrics": {}, "loss_not_a_number": None, "restarts": {"history": []}, "end": None}
    found = {**job, **size, **none, **changes}
    assert misfit(found, CLUSTER) == ""
    return found


def told(before, now, every_s=600.0):
    return [(kind, text) for kind, text, _ in events.changes(before, now, every_s)]


def test_events_from_the_start_of_a_job_to_its_end():
    waits = state(state="starting", elapsed_s=0.5, ranks_running=1)
    runs = state(elapsed_s=1.5)
    steps = state(elapsed_s=42.0, metrics={"step": 1.0, "loss": 2.5})
    later = state(elapsed_s=601.0, metrics={"step": 40.0, "steps": 200.0, "loss": 1.25, "rate": 100.0})
    again = {**later, "elapsed_s": 662.0, "restarts": {"history": [RESTART]}}
    end = {"state": "failed", "finished": 1.0, "failure": KILLED}
    over = {**again, "elapsed_s": 700.0, "state": "failed", "end": end}
    assert told(None, waits) == []
    assert told(waits, runs) == [("started", "2/2 ranks running on 2 nodes")]
    assert told(runs, steps) == [("first_step", "step 1 after 0:00:42")]
    assert told(steps, later) == [("progress", "0:10:01   2/2 ranks running   step 40/200   loss 1.25   rate 100")]
    killed = "rank 1 on n2: killed by SIGKILL"
    assert told(later, again) == [("restart", f"{killed}, so the whole job starts again (after step 40)")]
    assert told(again, over) == [("ended", f"failed after 0:11:40: {killed}   step 40/200   loss 1.25   rate 100")]
    for known in (waits, runs, steps, later, again, over):
        assert told(known, known) == []
    assert [kind for kind, _ in told(None, over)] == ["started", "first_step", "restart", "ended"]
    # Another head knows that there were steps, but not which.
    taken_over = {**runs, "restarts": {"history": [RESTART], "stepped": True}}
    assert told(taken_over, {**taken_over, "metrics": {"step": 41.0}}) == []
    # A head that was started again does not send its start again.
    assert [kind for kind, _ in told(later, {**waits, "restarts": again["restarts"]})] == ["restart"]
    here = {"step": 11.0, "epoch": None, "elapsed_s": 9.0}
    lost = state(loss_not_a_number={"since": here, "first": here, "last": here, "stretches": 1, "steps": 25.0})
    assert told(state(), lost) == [("not_a_number", "loss is not a number since step 11 (of 25)")]
    assert told(lost, lost) == []


def test_each_checkpoint_is_one_event():
    newest = {"name": "step_40", "step": 40, "epoch": None, "time": 1790000000.0, "size": 1 << 20}
    book = {"place": "/data", "host": "n1", "newest": None, "unfinished": None, "problem": ""}
    none, first = state(checkpoints=book), state(checkpoints={**book, "newest": newest})
    # The same file, written again.
    second = state(checkpoints={**book, "newest": {**newest, "time": 1790000060.0, "step": None}})
    assert told(None, none) == [("started", "2/2 ranks running on 2 nodes")]
    assert told(none, first) == [("checkpoint", "checkpoint step_40, step 40")]
    assert told(first, second) == [("checkpoint", "checkpoint step_40")]
    assert told(second, second) == []
    # The newest one was set aside.
    assert told(second, first) == []


def test_a_hang_and_a_spare_are_events():
    hung = {"kind": "hung", "host": "n2", "after_s": 20.0}
    again = {**state(), "restarts": {"history": [{**RESTART, "failure": hung}]}}
    assert [kind for kind, _ in told(state(), again)] == ["hang", "restart"]
    # A spare may be taken later.
    excluded = {"n2": {"reason": "disk: 3 MiB free", "since": 1.0}}
    now = {**again, "restarts": {**again["restarts"], "replaced": {"n2": "n5"}, "excluded": excluded}}
    stands_by = {**state(), "restarts": {"history": [], "members": ["n1"], "spares": ["n2"]}}
    assert told(None, stands_by) == [("started", "2/2 ranks running on 1 node")]
    assert told(again, now) == [("spare", "n5 takes the place of n2: disk: 3 MiB free")]
    assert told(now, now) == []
    over = {**state(state="failed"), "end": {"state": "failed", "finished": 1.0, "failure": hung}}
    assert [kind for kind, _ in told(state(), over)] == ["hang", "ended"]


SLOW_RANK = {"host": "n2", "ranks": [1], "device": "0", "waited": 3, "others": 50, "looks": 40, "found_s": 130.0,
             "at": "", "node": [], "shares": [[0, 50], [1, 3]], "until_s": None}  # fmt: skip


def test_each_slow_rank_is_one_event():
    first = SLOW_RANK
    now = state(slow_ranks=[first])
    (told_now,) = events.changes(state(), now, 600.0)
    assert told_now[:2] == ("slow_rank", slow_rank_text(first))
    said = events.event(told_now, now, 1790000130.0)
    assert (said["host"], said["rank"], said["reason"]) == ("n2", 1, slow_rank_text(first))
    # That it is well again is no event; that it is slow again is one.
    well = {**first, "until_s": 300.0}
    again = {**first, "found_s": 500.0, "ranks": [1, 3], "device": ""}
    assert told(now, state(slow_ranks=[well])) == []
    assert told(state(slow_ranks=[well]), state(slow_ranks=[well, again])) == [("slow_rank", slow_rank_text(again))]


def test_a_silence_that_ends_nothing_is_one_event():
    noted = {
        "time": 100.0,
        "after_s": 63,
        "limit": "job_hang_timeout",
        "host": "n2",
        "rank": 1,
        "groups": ["rank 1 is in x"],
    }
    assert misfit(state(no_progress=noted), CLUSTER) == ""
    ((kind, text),) = told(state(no_progress=None), state(no_progress=noted))
    assert kind == "hang" and "so the job goes on): rank 1 is in x" in text
    assert told(state(no_progress=noted), state(no_progress=noted)) == []


def test_progress_comes_every_so_often_and_not_without_a_metric():
    def at(elapsed_s, **metrics):
        return state(elapsed_s=elapsed_s, metrics=metrics)

    assert told(at(59.0, loss=1.0), at(61.0, loss=1.0), 60.0) != []
    assert told(at(61.0, loss=1.0), at(119.0, loss=1.0), 60.0) == []
    assert told(at(59.0), at(61.0), 60.0) == []


def test_an_event_has_these_fields_and_no_others():
    (restart,) = events.changes(state(), state(restarts={"history": [RESTART]}), 600.0)
    now = state(metrics={"step": 40.0, "loss": None}, restarts={"history": [RESTART]})
    said = events.event(restart, now, 1790000061.5)
    job = {"job_id": now["job_id"], "state": "running", "elapsed_s": 10.0, "nodes": 2, "world_size": 2, "restarts": 1}
    reason = "rank 1 on n2: killed by SIGKILL"
    failure = {"reason": reason, "host": "n2", "kind": "exit", "restarted": "the whole job", "rank": 1, "signal": 9}
    assert said == {
        **{"event": "restart", "id": f"{now['job_id']}-restart-10000", "time": 1790000061.5},
        **{**job, "ranks_running": 2, "metrics": now["metrics"], **failure, "wait_s": 0.0, "step": 40.0},
        "text": f"{now['job_id']}: {reason}, so the whole job starts again (after step 40)",
    }
    assert json.loads(events.body(said)) == said
    document = (PROJECT / "docs/events.md").read_text()
    assert [name for name in said if f"`{name}`" not in document] == []
    assert [kind for kind in events.KINDS if f"`{kind}`" not in document] == []


def test_no_secret_and_nothing_that_steers_a_terminal_is_in_a_text():
    folder = "/data/hunter2-and-more\x1b]52;c;\x07"
    failure = {**KILLED, "kind": "cannot_write", "folder": folder, "reason": "hunter2-and"}
    end = {"state": "failed", "finished": 1.0, "failure": failure}
    now = state(state="failed", end=end)
    (ended,) = events.changes(state(), now, 600.0)
    said = events.event(ended, now, 0.0, ["hunter2", "hunter2-and-more", "a"])
    assert "hunter2" not in json.dumps(said) and "\\u001b" not in json.dumps(said)
    assert said["text"].endswith("cannot write to /data/(secret)\\x1b]52;c;\\x07")


@given(st.text(max_size=2000), st.sampled_from(events.FORMS))
def test_any_text_makes_a_body(text, form):
    said = events.event(("progress", text, {"rank": True, "host": text}), state(), 1.0)
    assert len(said["text"]) <= events.MAX_TEXT and len(said["host"]) <= events.MAX_TEXT and "rank" not in said
    written = events.body(said, form)
    assert b"\n" not in written and json.loads(written)
    # Slack reads nothing in a text as a command.
    said = events.event(("progress", "<!channel> & <@U1>", {}), state(), 1.0)
    assert json.loads(events.body(said, "slack"))["text"].endswith(": &lt;!channel&gt; &amp; &lt;@U1&gt;")


def test_the_documented_check_of_a_signature_takes_ours_and_no_other():
    document = (PROJECT / "docs/events.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    names = {}
    exec(program, names)  # noqa: S102 (the very text that users copy)
    secret, body, now = "a secret of some length", b'{"event": "ended"}', 1790000000
    headers = {"X-Trainyard-Timestamp": str(now), "X-Trainyard-Signature": events.signature(secret, str(now), body)}
    by_hand = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Trainyard-Signature"] == f"sha256={by_hand}"
    is_ours = names["is_ours"]
    assert is_ours(secret, headers, body, now=now + 30)
    assert not is_ours(secret, headers, body + b" ", now=now + 30)
    assert not is_ours("another secret", headers, body, now=now + 30)
    assert not is_ours(secret, headers, body, now=now + 3600)


def test_only_statuses_that_may_change_are_tried_again():
    tried_again = [status for status in (400, 401, 404, 408, 429, 500, 503) if events.may_retry(status)]
    assert tried_again == [408, 429, 500, 503]


def test_a_full_queue_loses_the_oldest_and_has_one_progress_event():
    waiting = events.Queue("webhook example.org")
    for number in range(3):
        waiting.add({"event": "progress", "number": number})
    assert [said["number"] for said in waiting.events] == [2]
    for number in range(events.MAX_WAITING + 4):
        waiting.add({"event": "restart", "number": number})
    assert len(waiting.events) == events.MAX_WAITING
    assert (waiting.events[0]["number"], waiting.lost) == (4, 5)
    waiting.done(waiting.events[0])
    waiting.done(waiting.events[0], "answered 400")
    left = events.MAX_WAITING - 2
    found = {"to": "webhook example.org", "sent": 1, "waiting": left, "lost": 6, "why": "answered 400"}
    assert waiting.as_dict() == found
    assert events.undelivered([found, {**found, "waiting": 0, "lost": 0}]) == [
        f"events: {left + 6} of {left + 7} did not reach webhook example.org: answered 400"
    ]
