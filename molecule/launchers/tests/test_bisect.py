"""A job that fails on one node only: bisect.yml runs it on parts of its nodes, and names that one."""

import json

import pytest
from lab_jobs import WORKER


@pytest.mark.long
def test_the_node_on_which_a_job_fails_is_named(play, node_names, left):
    bad = node_names[-1]
    script = f'[ "$(uname -n)" != {bad} ] || exit 7; exec python3 worker.py --steps 5'
    run = play("playbooks/bisect.yml", WORKER, job_command=["sh", "-c", script], bisect_timeout=120)
    run.expect(2, f"with {bad} (", f"drain {bad}")
    (file,) = play.runs.glob("*/bisect.json")
    runs = json.loads(file.read_text())["runs"]
    assert len(runs) > 2 and all(left(each["run_dir"]) == {} for each in runs)
