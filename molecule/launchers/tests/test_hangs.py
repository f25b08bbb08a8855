"""A rank that never comes to a collective of PyTorch: named with its line while the job runs, and when it is over."""

import json
import re

import pytest
from lab_jobs import SCENARIO

HANGS = SCENARIO / "jobs/hangs.yml"


@pytest.fixture(scope="module")
def hung(play, scheduler):
    """What stacks.yml says of the job that hangs, and the job."""
    job = play.launch(
        HANGS, **scheduler, job_nodes=3, job_hang_timeout=15, job_command=["python3", "hangs.py", "--rank=2"]
    )
    job.wait_for(r"step 4/20")
    return play("playbooks/stacks.yml", job_id=job.job_id).wait(), job.wait()


def where(text):
    """Return the reported ranks that wait, and the one that does not."""
    waits = re.search(r"(2 ranks \([\d to,]+\) wait in all_reduce, called by train \(hangs\.py:\d+\))", text)
    odd = re.search(r"(rank 2 on n3 is in .+ called by load_batch \(hangs\.py:\d+\))", text)
    assert waits and odd, text
    return waits[1], odd[1]


def test_where_each_rank_is_while_the_job_goes_on(hung):
    told, job = hung
    assert told.rc == 0, told.output
    waits, odd = where(told.output)
    (file,) = job.folder.glob("stacks-*.txt")
    text = file.read_text()
    assert waits in text and odd in text
    assert all(f"\nrank {rank}  pid " in text for rank in range(3))


def test_a_job_that_hangs_ends_with_the_rank_that_did_not_come(hung, left):
    _, job = hung
    assert job.rc == 2, job.output
    assert re.search(r"  hung: no new progress for \d+ s since step 4 \(job_hang_timeout\)", job.output)
    where(job.output)
    failure = job.summary["failure"]
    assert (failure["kind"], failure["host"], failure["rank"]) == ("hung", "n3", 2)
    assert left(job.job_id) == {}
    for number in range(3):
        assert f"\nrank {number}  pid " in (job.folder / f"logs/stacks_{number}.log").read_text()
    odd = job.summary["stacks"]["groups"][0]
    assert (odd["odd"], odd["ranks"], odd["hosts"]) == (True, [2], ["n3"])
    page = (job.folder / "report.html").read_text()
    assert "Where the ranks were" in page and "load_batch" in page
    assert json.loads((job.folder / "plan.json").read_text())["hang"]["after_s"] == 15
