"""`make demo-failure` judges three runs by their records, which a fake ansible-playbook writes here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
KILLED = {"kind": "exit", "host": "localhost", "rank": 2, "signal": 9}
# The parts that are read of records which real runs left.
RECORDS = {
    "lost-rank": {"state": "failed", "world_size": 3, "failure": KILLED, "restarts": [], "stacks": None},
    "hang": {
        "state": "failed",
        "world_size": 3,
        "failure": {"kind": "hung", "host": "localhost", "rank": 2, "after_s": 7},
        "restarts": [],
        "stacks": {
            "groups": [
                {
                    "text": "rank 2 on localhost is in read_batch",
                    "ranks": [2],
                    "frames": [["read_batch", "a.py", 1, ""]],
                },
                {"text": "2 ranks (0, 1) are in backward", "ranks": [0, 1], "frames": [["backward", "a.py", 2, ""]]},
            ]
        },
    },
    "restart": {
        "state": "succeeded",
        "world_size": 3,
        "failure": None,
        "restarts": [
            {
                "failure": KILLED,
                "reason": "rank 2 on localhost: killed by SIGKILL",
                "step": 130.0,
                "resumed": "resumed from checkpoints/epoch-0009.pt after epoch 9",
                "first_step": 127.0,
            }
        ],
        "stacks": None,
    },
}
# It fails like a launch whose job failed: only the record decides.
LAUNCH = """#!/bin/sh
name=$(expr "$*" : '.*job_name=\\([a-z-]*\\)')
mkdir -p "runs/$name-new" && cp "records/$name.json" "runs/$name-new/summary.json"
exit 2
"""


@pytest.fixture
def demo(tmp_path):
    """Return a function that runs the demo over records, and gives its exit status and output."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci/demo_failure.py", tmp_path / ".ci")
    (tmp_path / "records").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ansible-playbook").write_text(LAUNCH)
    (tmp_path / "bin/ansible-playbook").chmod(0o755)
    # An earlier demo left these runs.
    for name, record in RECORDS.items():
        (tmp_path / f"runs/{name}-old").mkdir(parents=True)
        (tmp_path / f"runs/{name}-old/summary.json").write_text(json.dumps(record))

    def run(records):
        for name, record in records.items():
            (tmp_path / f"records/{name}.json").write_text(json.dumps(record))
        env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        argv = [sys.executable, tmp_path / ".ci/demo_failure.py"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


def changed(name, **changes):
    return {**RECORDS, name: {**RECORDS[name], **changes}}


def test_three_failures_as_announced_are_a_success_with_their_pages(demo, tmp_path):
    status, output = demo(RECORDS)
    assert status == 0
    assert [line for line in output.splitlines() if line.startswith("found")] == [
        "found  rank 2 on localhost failed first, killed by SIGKILL",
        "found  no step for 7 s; rank 2 on localhost is in read_batch; 2 ranks (0, 1) are in backward",
        "found  rank 2 on localhost: killed by SIGKILL after step 130; resumed from checkpoints/epoch-0009.pt after "
        "epoch 9, with step 127",
    ]
    for name in RECORDS:
        assert output.count(f"{tmp_path}/runs/{name}-new/report.html") == 2
    assert "-old" not in output


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lost-rank", {"state": "succeeded", "failure": None}),
        ("lost-rank", {"failure": {**KILLED, "rank": 0}}),
        ("lost-rank", {"failure": {**KILLED, "signal": None, "exit_code": 1}}),
        ("hang", {"failure": KILLED}),
        ("hang", {"failure": {"kind": "hung", "host": "localhost", "rank": None, "after_s": 7}}),
        ("hang", {"stacks": None}),
        ("hang", {"stacks": {"groups": [{**group, "frames": []} for group in RECORDS["hang"]["stacks"]["groups"]]}}),
        ("restart", {"state": "failed", "failure": KILLED}),
        ("restart", {"restarts": []}),
        ("restart", {"restarts": [{**RECORDS["restart"]["restarts"][0], "failure": {**KILLED, "rank": 0}}]}),
        ("restart", {"restarts": [{**RECORDS["restart"]["restarts"][0], "resumed": "", "first_step": 1.0}]}),
        ("restart", {"restarts": [{**RECORDS["restart"]["restarts"][0], "first_step": None}]}),
    ],
)
def test_another_end_is_a_failure_and_the_others_still_run(demo, name, changes):
    status, output = demo(changed(name, **changes))
    assert status == 1
    assert output.count("found  not what was announced") == 1
    assert f"Not as announced: {name}." in output
    assert output.count("page   ") == 3


def test_a_job_that_does_not_start_ends_the_demo(demo):
    status, output = demo({"lost-rank": RECORDS["lost-rank"]})
    assert status == 1
    assert "2 of 3" in output and "3 of 3" not in output
