"""playbooks/clean.yml: folders of jobs that have ended go, those of jobs that run stay, and --check only says so."""

import tarfile

import pytest
from lab_jobs import WORKER, wait_until

SECRET = "correct-horse-battery"  # noqa: S105


@pytest.fixture(scope="module")
def jobs(play, scheduler, left):
    """A job that has ended and one that runs, both on n1 and n2."""
    ended = play.launch(
        WORKER, **scheduler, job_nodes=2, job_name="ended", job_command=["python3", "worker.py", "--steps", "3"]
    ).wait()
    # A line in the journal, too, which systemd ascribes to the job's unit as long as its sender lives.
    command = ["sh", "-c", "(echo $WORKER_SECRET; sleep 3) | logger & echo $WORKER_SECRET; exec python3 worker.py"]
    given = {} if scheduler else {"job_secret_env": {"WORKER_SECRET": SECRET}, "job_command": command}
    runs = play.launch(WORKER, **scheduler, job_nodes=2, job_name="runs", job_wait=False, **given).wait()
    assert (ended.rc, runs.rc) == (0, 0), ended.output + runs.output
    wait_until(lambda: set(left(runs.job_id)) == {"n1", "n2"}, "the job runs, as Slurm may start it later")
    yield ended, runs
    assert play("playbooks/stop.yml", job_id=runs.job_id).rc == 0


def has(nodes, job_id):
    """Nodes that have a folder of the job."""
    return [name for name, node in nodes.items() if node.host.file(f"/var/lib/trainyard/jobs/{job_id}").is_directory]


def test_check_mode_says_what_would_go_and_leaves_it(play, nodes, jobs):
    ended, runs = jobs
    run = play("playbooks/clean.yml", "--check", clean_days=0).expect(0)
    assert f"  {ended.job_id} on n1, n2" in run.lines
    assert "Would remove the folders of" in run.output
    assert runs.job_id not in run.output
    assert has(nodes, ended.job_id) == ["n1", "n2"]


def test_a_job_that_runs_is_never_removed(play, nodes, jobs, scheduler, left):
    _, runs = jobs
    before = left(runs.job_id)
    assert set(before) == {"n1", "n2"}
    run = play("playbooks/clean.yml", job_id=runs.job_id).expect(2)
    said = (
        f"1 finding: nothing was removed. 1. job_id found {runs.job_id} runs on n1, n2{', Slurm' if scheduler else ''} "
        "expected a job that has ended "
        f"do wait, or stop it: ansible-playbook playbooks/stop.yml -i {play.shown_inventory} -e job_id={runs.job_id}"
    )
    assert said in run.text, run.output
    assert left(runs.job_id) == before


def test_one_job_that_has_ended_goes_from_all_nodes_and_nothing_else(play, nodes, jobs, left):
    ended, runs = jobs
    run = play("playbooks/clean.yml", job_id=ended.job_id).expect(0)
    assert "Removed the folders of 1 job (" in run.output
    assert has(nodes, ended.job_id) == []
    assert has(nodes, runs.job_id) == ["n1", "n2"]
    assert set(left(runs.job_id)) == {"n1", "n2"}
    # The collected files stay on the controller.
    assert ended.file("summary.json")["state"] == "succeeded"


def test_old_jobs_go_by_their_age_and_not_again(play, nodes, jobs):
    _, runs = jobs
    old = "/var/lib/trainyard/jobs/forgotten-20200101-000000"
    for name in ("n1", "n2"):
        nodes[name].host.check_output(
            f'install -d {old} && echo \'{{"job_id": "forgotten-20200101-000000"}}\' > {old}/node_plan.json && '
            f"touch -d '40 days ago' {old}/node_plan.json"
        )
    run = play("playbooks/clean.yml", clean_days=30).expect(0)
    assert "  forgotten-20200101-000000 on n1, n2" in run.lines
    assert has(nodes, "forgotten-20200101-000000") == []
    assert has(nodes, runs.job_id) == ["n1", "n2"]
    assert "Nothing to remove." in play("playbooks/clean.yml", clean_days=30).wait().lines


@pytest.mark.ssh
def test_an_archive_of_a_job_that_has_ended_holds_none_of_its_secrets(play, nodes, jobs):
    """Not in a log, which is masked at the end, nor in the journal, which nothing masks; -e does not name it again."""
    _, runs = jobs
    play("playbooks/stop.yml", job_id=runs.job_id).expect(0)
    unit = f"trainyard-{runs.job_id}.service"
    assert SECRET in nodes["n1"].host.check_output(f"journalctl --no-pager --unit={unit}")
    archive = play.folder / "debug.tar.gz"
    play("playbooks/debug.yml", job_id=runs.job_id, debug_file=str(archive)).expect(0)
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        files = {each.name.partition("/")[2]: packed.extractfile(each).read().decode() for each in packed}
    assert [name for name, text in files.items() if SECRET in text] == []
    assert "*" * len(SECRET) in files["run/logs/rank_0.log"]
    journal = files["nodes/n1/journal.txt"]
    assert f"Started {unit}" in journal
