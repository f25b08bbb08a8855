"""A node sends the journal of a job's unit."""

import json
import os

import pytest
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard_node.agent import QUESTIONS

KEY = "a-secret-of-the-job"


@pytest.fixture
def journal(monkeypatch, tmp_path):
    """Ask for the journal of a job; the program of a fake journalctl is given."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "node_plan.json").write_text(json.dumps({"secret_env": {"KEY": KEY}}))
    tool = tmp_path / "journalctl"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def ask(program, job_dir="job"):
        tool.write_text(f"#!/bin/sh\n# A fake.\necho $@ >{tmp_path}/asked\n{program}\n")
        tool.chmod(0o755)
        given = {"job_id": "digits-1", "job_dir": str(tmp_path / job_dir)}
        return answers.checked("journal", QUESTIONS["journal"](**given), "n1")

    ask.asked = tmp_path / "asked"
    return ask


def test_the_unit_of_this_job_alone_is_read_and_their_secrets_are_masked(journal):
    found = journal(f"echo 'n1 python[7]: KEY={KEY}'; printf 'n1 systemd[1]: a\\033[31m\\n'")
    assert found == {"lines": [f"n1 python[7]: KEY={'*' * len(KEY)}", "n1 systemd[1]: a\\x1b[31m"], "problem": ""}
    asked = journal.asked.read_text().split()
    assert asked[asked.index("-n") + 1] == "1000"
    # Not all lines of a unit: ranks may send secrets to the journal.
    groups = " ".join(asked[asked.index("-n") + 2 :]).split(" + ")
    fields = {"_PID=1": "UNIT", "_TRANSPORT=stdout": "_SYSTEMD_UNIT", "_UID=0": "COREDUMP_UNIT"}
    assert groups == [f"{first} {field}=trainyard-digits-1.service" for first, field in fields.items()]


def test_lines_and_their_number_have_a_bound(journal):
    found = journal("seq 5000; head -c 9000 /dev/zero | tr '\\0' x")
    assert len(found["lines"]) == 1000 and found["lines"][0] == "4002" and len(found["lines"][-1]) < 1010


def test_a_login_that_may_not_read_the_journal_is_told(journal, monkeypatch):
    for uid, problem in ((0, ""), (1000, "none that this login may read; use trainyard_become, or")):
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        found = journal("true", job_dir="gone")
        assert found["lines"] == [] and found["problem"].startswith(problem) and bool(found["problem"]) == bool(uid)


def test_a_journal_that_cannot_be_read_is_a_problem_and_no_failure(journal, monkeypatch, tmp_path):
    assert journal("echo no journal here >&2; exit 1") == {"lines": [], "problem": "no journal here"}
    # After clean.yml.
    assert journal("echo n1 systemd: Stopped", job_dir="gone")["lines"] == ["n1 systemd: Stopped"]
    journal.asked.with_name("journalctl").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    given = {"job_id": "digits-1", "job_dir": str(tmp_path)}
    assert QUESTIONS["journal"](**given) == {"lines": [], "problem": "journalctl: No such file or directory"}
