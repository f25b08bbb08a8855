"""The next step of a user after a job, in the terminal and on its page."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard.report.next_step import next_step
from ansible.module_utils.trainyard_controller.runs.pages import job_page

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "fixtures" / "reports"))
from composed_job import summary

LAUNCH = {"command": "ansible-playbook launch.yml -i mine -e @x.yml", "inventory": "-i mine"}
JOB = "-i mine -e job_id=digits-20261121-200000"
KEY_ERROR = [
    "Traceback (most recent call last):",
    '  File "/var/lib/trainyard/jobs/x/source/train.py", line 41, in main',
    "    rate = settings['lr']",
    '  File "/opt/trainyard/venvs/pytorch/lib/python3.11/site-packages/omegaconf/dictconfig.py", line 355, in get',
    "    raise key_error",
    "KeyError: 'lr'",
]


@pytest.mark.parametrize(
    ("changes", "words", "command"),
    [
        ({"state": "running"}, "", f"ansible-playbook playbooks/watch.yml {JOB}"),
        ({"state": "lost"}, "", f"ansible-playbook playbooks/status.yml {JOB}"),
        ({"state": "stopped", "failure": None}, "", LAUNCH["command"]),
        ({"state": "succeeded"}, "all jobs, with their pages", "ansible-playbook playbooks/jobs.yml -i mine"),
        ({"state": "timed_out"}, "raise job_timeout, or ", LAUNCH["command"]),
    ],
)
def test_the_next_step_follows_from_the_state(changes, words, command):
    found = next_step({**summary(2), **changes}, LAUNCH)
    assert found.words.startswith(words) and bool(found.words) == bool(words) and found.command == command


def failed(**failure):
    return {**summary(2), "failure": {**summary(2)["failure"], **failure}}


@pytest.mark.parametrize(
    ("failure", "tail", "words"),
    [
        ({}, KEY_ERROR, "correct the program in train.py, line 41, then launch again"),
        (
            {"error": "NameError: name 'x' is not defined", "stack": "lib/a.py:3 f < source/pkg/run.py:7 main"},
            [],
            "correct the program in pkg/run.py, line 7, then launch again",
        ),
        ({"error": "KeyError: 'lr'", "doubt": "NCCL WARN a link is down"}, KEY_ERROR, ""),
        ({"error": "ConnectionResetError: [Errno 104]"}, [], ""),
        (
            {"error": "train.py: error: unrecognized arguments: --setps 3"},
            [],
            "correct the options in job_command, then launch again",
        ),
        ({"kind": "silent", "host": "n2"}, [], "check n2, then launch again"),
        (
            {"kind": "hung", "groups": [], "after_s": 9, "limit": "job_hang_timeout"},
            [],
            "read logs/stacks_*.log to see where the ranks wait, and correct that, then launch again",
        ),
    ],
)
def test_what_comes_before_the_next_launch_of_a_job_that_failed(failure, tail, words):
    assert next_step(failed(**failure), LAUNCH, tail) == (words, LAUNCH["command"])


def test_a_command_with_hidden_values_is_no_next_command():
    launch = {**LAUNCH, "command": f"{LAUNCH['command']} -e token=(hidden)"}
    found = next_step(summary(2), launch, KEY_ERROR)
    assert found == ("correct the program in train.py, line 41", f"ansible-playbook playbooks/logs.yml {JOB}")


def test_a_node_that_still_runs_the_job_needs_a_stop():
    job = summary(2)
    job["nodes"][1]["state"] = "running"
    assert next_step(job, LAUNCH).command == f"ansible-playbook playbooks/stop.yml {JOB}"


def test_a_running_job_without_progress_has_stacks_to_read():
    found = next_step({**summary(2), "state": "running"}, LAUNCH, stuck=True)
    assert found.command == f"ansible-playbook playbooks/stacks.yml {JOB}"


def test_the_terminal_and_the_page_say_the_same():
    story = job_text.tell(summary(2), "runs/x", "", KEY_ERROR, launch=LAUNCH)
    text = job_text.text_of(summary(2), story, "runs/x", "")
    words = "correct the program in train.py, line 41, then launch again"
    assert text.splitlines()[-2:] == [f"  next        {words}", f"              {LAUNCH['command']}"]
    assert f'{words}: <code class="copy">{LAUNCH["command"]}</code>' in job_page(summary(2), [], story, LAUNCH)
