"""A job that hangs, with real monitors and ranks: noticed, told with stacks of all ranks, ended or started again."""

import os
import re
import signal

import pytest
from ansible.module_utils.trainyard.job.run import hang
from ansible.module_utils.trainyard_node import agent
from job_cluster import wait_for
from test_job_checkpoints import archive
from test_stacks_live import begun, hanging

SOON = {"after_s": 3, "first_s": 30, "pause_s": 30, "pause_pattern": "evaluat"}


@pytest.fixture
def hangs(tmp_path):
    """Makes a job whose monitors look for hangs; each argument has the ranks of a node."""
    made = []

    def make(*modes, hang=SOON, **settings):
        made.append(hanging(tmp_path, *modes, n1={"hang": hang}, n2={"hang": hang}, **settings))
        return made[-1]

    yield make
    for job in made:
        job.__exit__()


def test_the_rank_that_never_came_is_named_with_all_stacks(hangs):
    job = begun(hangs(["barrier", "barrier"], ["fifo", "barrier"]))
    end = job.over()
    failure = end["failure"]
    assert (end["state"], failure["kind"], failure["host"], failure["rank"]) == ("failed", "hung", "n2", 2)
    assert failure["step"] == 1
    assert failure["groups"][0].startswith("3 ranks (0, 1, 3) are in barrier (rank.py:")
    assert failure["groups"][1].startswith("rank 2 on n2 is in load_batch (rank.py:")
    assert failure["reason"] == failure["groups"][1]
    odd, others = job.state()["stacks"]["groups"]
    assert (odd["odd"], odd["ranks"], odd["hosts"], odd["text"]) == (True, [2], ["n2"], failure["reason"])
    assert (others["odd"], others["ranks"], others["hosts"]) == (False, [0, 1, 3], ["n1", "n2"])
    assert any(name == "load_batch" and owner == "own" for name, _, _, owner in odd["frames"])
    job.all_ended()
    assert job.nodes[1].end()["failure"] == failure
    assert_stacks(job, (0, 1), (2, 3))


def assert_stacks(job, *ranks_of_nodes):
    for number, ranks in enumerate(ranks_of_nodes):
        text = (job.nodes[number].dir / "logs" / f"stacks_{number}.log").read_text()
        assert all(f"\nrank {rank}  pid " in text for rank in ranks)


def test_a_job_that_hangs_without_a_limit_goes_on_and_says_where_its_ranks_are(hangs):
    job = begun(hangs(["barrier", "barrier"], ["sleep", "barrier"], hang={**SOON, "after_s": None, "least_s": 3}))
    told = {"job_id": job.head.job_id, "job_dir": str(job.head.dir)}
    wait_for(lambda: "the job goes on" in agent.state(**told).get("note", ""), "the note on where the ranks are")
    note, line = (agent.state(**told)[name] for name in ("note", "line"))
    assert "3 ranks (0, 1, 3) are in barrier (rank.py:" in note and "rank 2 on n2 is in sleep (rank.py:" in note
    assert re.search(r"step 1\b.*   no new step for \d:\d\d$", line), line
    assert job.state()["end"] is None and len(job.state()["stacks"]["groups"]) == 2


def test_a_job_that_prints_unknown_lines_does_not_hang(hangs):
    job = begun(hangs(["count"], ["barrier"], hang={**SOON, "least_s": 3}))
    wait_for(lambda: (job.state().get("printing") or {}).get("unread"), "the word of lines that are not read")
    assert job.state()["printing"]["text"].startswith("printing, but no progress is read: it ")
    assert (job.state()["metrics"]["step"], job.state()["end"]) == (1, None)
    (job.nodes[0].dir / "source" / "enough").touch()
    assert job.over()["failure"]["kind"] == "hung"


def test_a_save_that_is_over_silences_nothing_and_any_rank_s_step_is_progress(cluster):
    limits = {"hang": {"after_s": 6, "first_s": 600, "pause_s": 600, "pause_pattern": hang.DEFAULT_PAUSE}}
    job = cluster(["wait"], ["steps"], n1={**limits, "checkpoints": "saved"}, n2=limits)
    folder, log = job.head.dir / "saved", job.head.dir / "logs" / "rank_0.log"
    folder.mkdir()
    job.start()
    job.nodes[1].go()
    # The steps of rank 0 are those that count, and it makes no more.
    with log.open("a") as more:
        more.writelines(f"step {step} loss 0.5\n" for step in range(1, 1001))
    wait_for(lambda: job.state()["metrics"].get("step") == 1000, "the steps of rank 0")
    wait_for(lambda: job.state()["end"] or steps(job.nodes[1], 1) > 30, "steps of rank 1 beyond the limit")
    assert job.state()["end"] is None
    with log.open("a") as more:
        more.write("Saving checkpoint step_1000.pt\n")
    (folder / "step_1000.pt").write_bytes(archive())
    wait_for(lambda: (job.state()["checkpoints"] or {}).get("newest"), "the checkpoint")
    os.kill(job.nodes[1].pid("rank1"), signal.SIGSTOP)
    failure = job.over()["failure"]
    assert (failure["kind"], failure["limit"]) == ("hung", hang.STEP)


def steps(node, rank):
    return (node.dir / "logs" / f"rank_{rank}.log").read_text().count("step")


def test_a_stopped_rank_is_named_and_ended(hangs):
    """An agent hands SIGTERM on and waits for its ranks; torchrun's does so for 30 s, systemd for 5."""
    job = hangs(["barrier", "barrier"], ["barrier", "barrier"], hang={**SOON, "after_s": 8}).start()
    os.kill(job.nodes[1].pid("rank3"), signal.SIGSTOP)
    for node in job.nodes:
        node.go()
    line = re.compile(r"step 1\b.*   no new step for \d+ s, (?:ends at 8 s|taking the stacks of all ranks)")
    told = {"job_id": job.head.job_id, "job_dir": str(job.head.dir)}
    wait_for(lambda: line.search(agent.state(**told).get("line", "")), "the count in the line of progress")
    failure = job.over()["failure"]
    assert (failure["kind"], failure["rank"]) == ("hung", 3)
    assert failure["reason"].startswith("rank 3 on n2 is stopped (by SIGSTOP)")
    job.all_ended()
    assert job.nodes[1].exits()["rank3"] == (None, signal.SIGTERM)


def test_a_job_whose_time_is_up_records_where_its_ranks_were_and_which_had_ended(hangs):
    job = hangs(["barrier"], ["barrier", "leave"], hang={**SOON, "after_s": 600}, timeout_s=30)
    begun(job)
    end = job.over()
    failure = end["failure"]
    assert (end["state"], end["after_s"], failure["kind"], failure["step"]) == ("timed_out", 30, "timed_out", 1)
    groups = failure["groups"]
    assert groups[0].startswith("2 ranks (0, 1) are in barrier (rank.py:")
    assert re.fullmatch(r"rank 2 on n2 ended [1-9]\d* s before, with exit code 0", groups[1])
    assert len(groups) == 2
    since = failure["after_s"]
    assert hang.cause(failure)[0] == f"then no new progress had come for {since} s since step 1"
    job.all_ended()
    assert job.nodes[1].end()["failure"] == failure
    assert_stacks(job, (0,), (1,))
