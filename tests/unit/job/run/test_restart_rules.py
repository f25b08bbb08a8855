"""Causes that a restart does not change: the rules, measured by labelled failures, and the head that follows them."""

import json
import signal
from collections import Counter
from pathlib import Path

from ansible.module_utils.trainyard.job.run.decide.restart_rules import decide, evidence
from ansible.module_utils.trainyard.job.run.decide.restarts import SHORT_S, Restarts, gave_up
from ansible.module_utils.trainyard.job.run.logs import causes, failures, headline
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard_node.job.run.evidence.rank_failures import Failures
from ansible.module_utils.trainyard_node.job.run.ranks import execute, oom_kills
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from hypothesis import given
from hypothesis import strategies as st
from simulated_job import SimulatedJob, failed

PROJECT = Path(__file__).resolve().parents[4]
FAILURES = {
    file.stem: [json.loads(line) for line in file.read_text().splitlines()]
    for file in sorted((PROJECT / "tests/fixtures/failures").glob("*.jsonl"))
}


def reported(record):
    """A failure of the fixtures as the node of its rank reports it."""
    how = {"exit_code": record["exit"], "signal": None}
    if record["exit"] < 0:
        how = {"exit_code": None, "signal": -record["exit"]}
    lost, full = causes.lost_peer(record["log"]), causes.no_room(record["log"])
    found = {"lost": lost} if lost else {"full": True} if full else {}
    return failed("n1", record.get("rank", 0), **how, **found, **evidence(record["log"]))


def answers(record):
    """Whether the first such failure ends the job, and the second one in a row."""
    found = reported(record)
    again = decide(found, [found], step="", earlier=found, earlier_step="")
    return decide(found, [found], step="").stop, again.stop


def counted(records):
    """Number, those to stop, those stopped rightly at once and by the second attempt, and those stopped wrongly."""
    sums = Counter()
    for record in records:
        once, twice = answers(record)
        right = record["verdict"] == "stop"
        sums.update(n=1, stop=right, once=once and right, twice=twice and right, wrong=(once or twice) and not right)
    return [sums[name] for name in ("n", "stop", "once", "twice", "wrong")]


# ---- the labelled failures


def test_errors_of_cuda_in_newer_releases_of_pytorch():
    on_gpu = [each for family in FAILURES.values() for each in family if each["by"] == "run on an H200"]
    found = {evidence(each["log"])["error"].partition(". Tried")[0]: answers(each) for each in on_gpu}
    lines = [[line.text for line in headline.plain(each["log"].split("\n"))] for each in on_gpu]
    assert {headline.find(each).text.partition(". Tried")[0] for each in lines} == set(found)
    assert found == {
        "torch.AcceleratorError: CUDA error: device-side assert triggered": (False, True),
        "torch.OutOfMemoryError: CUDA out of memory": (False, True),
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered": (False, False),
    }


def test_a_stop_is_right():
    records = [record for family in FAILURES.values() for record in family]
    assert len(records) >= 200 and {record["verdict"] for record in records} == {"stop", "restart"}
    wrong = [record for record in records if record["verdict"] == "restart" and any(answers(record))]
    _, stop, _, twice, _ = counted(records)
    assert twice / (twice + len(wrong)) >= 0.99, [record["cause"] for record in wrong]
    assert twice / stop >= 0.9


def test_the_published_figures_are_those_of_the_rules():
    every = [record for family in FAILURES.values() for record in family]
    halves = {
        name: [each for each in every if each["held"] == held] for name, held in (("seen", False), ("held", True))
    }
    published = (PROJECT / "docs/restarts.md").read_text()
    for name, records in {**FAILURES, **halves, "all": every}.items():
        row = f"| {name} | {' | '.join(map(str, counted(records)))} |"
        assert row in published, row


# ---- any text


@given(st.text() | st.lists(st.sampled_from([
    "Traceback (most recent call last):", '  File "/a/b.py", line 3, in f', "    x = 1", "ValueError: 3",
    "  ", headline.DURING, headline.DIRECT, "[rank3]: KeyError: 'a'", "Exception in thread x", "\x1b[0m",
    "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 8.00 GiB of which 1 bytes is free",
])).map("\n".join))  # fmt: skip
def test_any_text_has_a_decide(log):
    found = evidence(log)
    record = failed("n2", 1, **found)
    messages.check_from_node({"report": SimulatedJob().report("n2") | {"failures": [record]}}, "n2", 2, 0)
    assert all("\n" not in text for text in found.values())
    assert isinstance(decide(record, [record], step="", earlier=record, earlier_step="").stop, bool)


def test_only_the_end_of_a_log_is_read():
    for text in (
        "x" * (1 << 22),
        "\n" * (1 << 22),
        "Traceback (most recent call last):\n" * (1 << 17),
        "a.b" * (1 << 20),
    ):
        assert evidence(text) == evidence(text[-(1 << 16) :])
    # Each line is cut before anything searches it.
    assert len(evidence(f"NameError: {'x' * 5000}")["error"]) <= 300


# ---- what evidence is


def trace(error, line=12, source="loss = step(batch)"):
    return f'Traceback (most recent call last):\n  File "/job/train.py", line {line}, in main\n    {source}\n{error}\n'


def test_evidence_of_a_log():
    assert evidence(trace("ValueError: no")) == {"error": "ValueError: no", "stack": "job/train.py:12 main"}
    assert evidence("step 3 loss 0.1\n") == {}
    # An error that the program survived.
    assert evidence(trace("ValueError: no") + "step 4 loss 0.1\n") == {}
    assert evidence(trace("ValueError: no") + "line\n" * 61) == {}
    assert evidence("Exception in thread T:\n" + trace("ValueError: no")) == {}
    # The error that a handler met while it handled another one.
    chained = f"{trace('OSError: gone')}\n{headline.DURING}\n\n{trace('NameError: loger')}"
    assert evidence(chained)["doubt"] == "OSError: gone"
    direct = f"{trace('ImportError: cannot import name a')}\n{headline.DIRECT}\n\n{trace('RuntimeError: failed')}"
    assert evidence(direct)["error"] == "ImportError: cannot import name a" and "doubt" not in evidence(direct)


def test_an_error_that_came_from_elsewhere_is_open():
    for source in ("return response['shards']", "x = fetch(url)", "assert math.isfinite(loss)"):
        assert evidence(trace("KeyError: 'a'", source=source))["doubt"] == source
    assert "doubt" not in evidence(trace("KeyError: 'a'", source="data = fetcher.fetch(index)"))
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/{}'"
    assert "doubt" not in evidence(trace(missing.format("a.json"), source="open(path)"))
    assert "doubt" in evidence(trace(missing.format("a.tmp"), source="open(path)"))
    assert "doubt" in evidence(trace(missing.format("a.json"), source="open(path, 'w')"))


def test_workers_of_mindspore_wait_for_each_other_at_every_start():
    log = (PROJECT / "tests/fixtures/mindspore/succeeded-worker.txt").read_text()
    assert "Topology build timed out., retry(" in log and "doubt" not in evidence(log)
    assert decide(failed("n2", 1, **evidence(log + trace("NameError: name 'x' is not defined")))).stop


def test_a_step_between_two_equal_errors_is_progress():
    record = failed("n2", 1, **evidence(trace("AssertionError: 3 of 4")))
    other = failed("n2", 1, **evidence(trace("AssertionError: 3 of 4", line=13)))
    for earlier, step, earlier_step, stop in (
        (record, "1", "1", True),
        (record, "1", "2", False),
        (record, None, None, False),
        (other, "1", "1", False),
        (None, "1", None, False),
    ):
        assert decide(record, step=step, earlier=earlier, earlier_step=earlier_step).stop == stop


def test_how_a_rank_ended_may_speak_for_the_node():
    record = failed("n2", 1, **evidence(trace("NameError: name 'x' is not defined")))
    assert decide(record).stop
    killed = {"exit_code": None, "signal": int(signal.SIGKILL)}
    for change in ({"lost": "peer"}, {"full": True}, {"kind": "silent"}, {"exit_code": 0}, {"exit_code": 137}, killed):
        assert not decide({**record, **change}).stop
    # Another rank of the attempt met the network.
    assert not decide(record, [record, failed("n1", 0, doubt="NCCL WARN NET/IB : Got completion")]).stop
    # Its interpreter aborted when the program had ended.
    assert decide({**record, "exit_code": None, "signal": int(signal.SIGABRT)}).stop


def test_a_spare_may_have_what_one_node_lacks():
    record = failed("n2", 1, **evidence(trace("ModuleNotFoundError: No module named 'flash_attn'")))
    assert decide(record, [record]).stop
    assert not decide(record, [record], spares=1).stop
    assert decide(record, [record, {**record, "host": "n3", "rank": 2}], spares=1).stop
    code = failed("n2", 1, **evidence(trace("NameError: name 'x' is not defined")))
    assert decide(code, [code], spares=1).stop
    again = {"step": "", "earlier": record, "earlier_step": ""}
    failing = failed("n2", 1, **evidence(trace("AssertionError")))
    again["earlier"] = failing
    assert not decide(failing, spares=1, **again).stop
    assert decide({**failing, "host": "n3"}, spares=1, **again).stop


def test_a_file_that_rank_0_misses_at_the_start_is_not_about_to_be_written():
    missing = evidence(
        trace("FileNotFoundError: [Errno 2] No such file or directory: 'conf.json'", source="open(path)")
    )
    record, first = failed("n2", 1, **missing), failed("n1", 0, **missing)
    assert not decide(record, [record], step="").stop
    assert decide(record, [record, first], step="").stop
    assert not decide(record, [record, first], step="5").stop


# ---- the head


MODULE = evidence(trace("ModuleNotFoundError: No module named 'flash_attn'"))
ASSERTION = evidence(trace("AssertionError: 100 % 8"))


def test_a_cause_that_returns_every_time_ends_the_job_at_once():
    job = SimulatedJob(max_restarts=5).run(2)
    job.kill(exit_code=1, signal=None, result="exit-code", **MODULE)
    assert job.run(5).end["state"] == "failed" and not job.history
    assert job.end["failure"]["not_restarted"] == f"{headline.MODULE.reason} ({MODULE['error']})"
    messages.check_from_head({"end": job.end}, [], 5)
    (line,) = gave_up({"failure": job.end["failure"], "restarts": [], "max_restarts": 5})
    assert line.startswith("not started again: a module or library of the program is missing")
    assert line.endswith("), which a restart does not change (job_restart_on: always starts again anyway)")


def test_always_answers_such_a_cause_with_a_restart():
    job = SimulatedJob(max_restarts=5, restart_on="always").run(2)
    job.kill(exit_code=1, signal=None, result="exit-code", **MODULE)
    assert len(job.run(5).history) == 1 and job.starts == [1] and not job.end


def test_the_same_error_ends_the_job_only_twice_in_a_row():
    job = SimulatedJob(max_restarts=9).run(2)
    for how in (ASSERTION, evidence(trace("ValueError: other")), ASSERTION):
        job.kill(exit_code=1, signal=None, result="exit-code", **how)
        # A long attempt without steps shows nothing.
        job.run(5)
        assert not job.end
        job.state.restarts.fruitless = 0
    job.kill(exit_code=1, signal=None, result="exit-code", **ASSERTION)
    assert "two attempts in a row" in job.run(5).end["failure"]["not_restarted"] and len(job.history) == 3


def test_what_is_not_known_of_an_attempt_is_no_reason_to_stop():
    record = failed("n2", 1, **ASSERTION)
    for later, previous, stop in ((5.0, False, True), (5.0, True, False), (SHORT_S + 5, False, False)):
        book = Restarts(9, 300.0)
        assert book.take([record], 1.0, 1.0)
        if previous:
            # The clock of a head that restarted has begun anew.
            book = Restarts(9, 300.0, json.loads(json.dumps(book.as_dict())))
        assert book.take([record], 1.0 + later, 1.0 + later) != stop
        assert bool(book.not_restarted) == stop


def test_how_far_an_attempt_came():
    pace = {
        "first": 1.0,
        "first_s": 1.0,
        "first_epoch": None,
        "last": 5.0,
        "last_s": 1.0,
        "last_epoch": None,
        "lines": 5,
    }
    for printed, metrics, step in (
        (None, {}, ""),
        (None, {"step": 5.0}, ""),  # of an earlier attempt
        ({**pace, "rising": True}, {"step": 5.0}, "None 5.0"),
        # Steps that start again with each epoch.
        ({**pace, "rising": False}, {"step": 5.0}, None),
        (None, {"epoch": 2.0}, "2.0"),
    ):
        book = Restarts(9, 300.0)
        book.keep_pace(printed, 1.0)
        assert book.take([failed("n2", 1)], 5.0, 5.0, metrics) and book.history[0]["ended_at"] == step
    # A new checkpoint is an advance.
    book = Restarts(9, 300.0)
    book.note_checkpoint(None)
    book.note_checkpoint({"name": "a.pt", "step": 1, "epoch": None, "time": 1.0, "size": 1})
    assert book.take([failed("n2", 1)], 5.0, 5.0) and book.history[0]["ended_at"] is None


def test_a_process_that_comes_back_alone_is_no_attempt():
    book, record = Restarts(9, 300.0), failed("n2", 1, **ASSERTION)
    scheduler = failed("n1", 0, process="scheduler", ranks=[], rank=None, recover_after_s=1)
    assert book.take([record], 1.0, 1.0) and book.take([scheduler], 2.0, 2.0)
    assert not book.take([record], 3.0, 3.0)


# ---- the node


def ended(tmp_path, process, log, name="rank1.log", status=1):
    """The failure that a node reports of a process that ended with this status, by the log of its rank."""
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / name).write_text(log)
    full_plan = {
        "host": "n2",
        "job_id": "j-1",
        "processes": [process],
        "world_size": 4,
        "port": 29500,
        "rank_log": "rank{rank}.log",
    }
    node = Failures(tmp_path, full_plan, ())
    return node.failure(process, from_status(status), "")


def test_a_node_reports_the_end_of_its_own_ranks_log(tmp_path):
    process = {"name": "rank1", "ranks": [1], "log": str(tmp_path / "logs/rank1.log")}
    earlier = f"{trace('NameError: x')}--- started again, attempt 2 ---\n"
    found = ended(tmp_path, process, earlier + trace("KeyError: 'lr'"))
    assert (found["error"], found["stack"]) == ("KeyError: 'lr'", "job/train.py:12 main")
    assert "error" not in ended(tmp_path, process, f"{earlier}step 1 loss 2.0\n")
    lost = ended(
        tmp_path, process, "RuntimeError: [/x/gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.7.0.3]:9\n"
    )
    assert lost["lost"] and "error" not in lost


def test_a_rank_of_mpirun_on_another_node_writes_the_end_of_its_log_into_mpiruns(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(oom_kills, "read", lambda *_: {})
    (tmp_path / "node_plan.json").write_text("{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank_2.log").write_text(trace("KeyError: 'lr'"))
    execute.print_end(str(tmp_path), "2", "1")
    printed = capsys.readouterr().out
    assert printed == "trainyard: rank 2 error: KeyError: 'lr'\ntrainyard: rank 2 stack: job/train.py:12 main\n"
    log = f"trainyard: rank 2 ended with status 1\n{printed}"
    assert failures.mpirun_evidence(log, 1) == {}
    process = {"name": "mpirun", "ranks": [0, 1, 2, 3], "log": str(tmp_path / "logs/mpirun.log")}
    found = ended(tmp_path, process, log, "mpirun.log")
    assert (found["rank"], found["error"], found["stack"]) == (2, "KeyError: 'lr'", "job/train.py:12 main")
