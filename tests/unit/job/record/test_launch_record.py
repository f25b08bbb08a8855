"""How a job was launched: the record has no secret."""

import subprocess

import pytest
from ansible.module_utils.trainyard_controller.runs import launch_record
from job_samples import packed


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["/usr/bin/ansible-playbook", "launch.yml", "-e", "@a b.yml"], "ansible-playbook launch.yml -e '@a b.yml'"),
        (["x", "-e", "job_secret_env={KEY: abc}"], "x -e job_secret_env=(hidden)"),
        (["x", "-e", '{"job_secret_env": {"KEY": "abc"}}'], "x -e (hidden)"),
        (["x", "-e", "job_nodes=2 job_wait=false"], "x -e 'job_nodes=2 job_wait=false'"),
        (["x", "-e", "job_devices=[0, 1]"], "x -e 'job_devices=[0, 1]'"),
        # A variable of the user may be the value of a secret.
        (["x", "-e", "key=hunter22", "-ekey=hunter22"], "x -e key=(hidden) -ekey=(hidden)"),
        (["x", "--extra-vars=key=hunter22"], "x --extra-vars=key=(hidden)"),
        (["x", "--extra-vars", "job_nodes=2 key=hunter22"], "x --extra-vars job_nodes=(hidden)"),
        (["x", "-e", "lr=0.1", "-e", "warm=true"], "x -e lr=0.1 -e warm=true"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_command_has_no_secret(argv, line):
    assert launch_record.command(argv) == line


@pytest.mark.parametrize("secrets", [{"KEY": "hunter22"}, ["KEY"]])
def test_secret_variables_are_hidden_and_defaults_left_out(secrets):
    job = {
        "job_name": "digits",
        "job_secret_env": secrets,
        "job_events_secret": "hunter23",
        "job_max_restarts": 0,
        "job_launcher": "torchrun",
        "job_nodes": 2,
    }
    record = launch_record.launch_record(job, packed({"train.py": "1"}).archive)
    assert record["job"] == {
        "job_events_secret": "(hidden)", "job_name": "digits", "job_nodes": 2, "job_secret_env": "(hidden)",
    }  # fmt: skip
    assert "hunter" not in str(record) and len(record["source_sha256"]) == 64 and "@" in record["by"]


def test_the_digest_of_a_source_depends_on_its_files_alone():
    one, again, other = (packed({"b": "2", "a": text}).archive for text in ("1", "1", "3"))
    assert launch_record.source_digest(one) == launch_record.source_digest(again)
    assert launch_record.source_digest(one) != launch_record.source_digest(other)


def test_the_revision_names_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))  # the tests' folder may lie in our own tree
    assert launch_record.revision(str(tmp_path)) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (tmp_path / "train.py").write_text("1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    revision = launch_record.revision(str(tmp_path))
    assert len(revision) == 12
    (tmp_path / "train.py").write_text("2\n")
    assert launch_record.revision(str(tmp_path)) == f"{revision} +changes"
