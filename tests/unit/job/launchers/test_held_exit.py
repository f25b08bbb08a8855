"""Lines of a rank's start script that hold its exit back, until the others have had their time to save."""

import subprocess
import time

import pytest
from ansible.module_utils.trainyard.job.launchers import held_exit
from ansible.module_utils.trainyard.job.launchers.held_exit import hold_exit
from ansible.module_utils.trainyard.job.run.logs import failures
from job_samples import make_job, make_plan, member

OPEN_MPI = {"version": "4.1.4", "path": "/usr/bin/mpirun"}


def begun(folder, status):
    """Start a script whose rank has ended with this status."""
    lines = f"here={folder}\nRANK=3\nstatus={status}\n{hold_exit(make_job(), '$RANK')}exit $status\n"
    return subprocess.Popen(["sh", "-c", lines], stderr=subprocess.PIPE, text=True)


def test_a_failed_rank_leaves_when_the_monitor_lets_it(tmp_path):
    with begun(tmp_path, 7) as script:
        assert script.stderr.readline() == "trainyard: rank 3 holds its exit back\n"
        (tmp_path / "asked").mkdir()
        with pytest.raises(subprocess.TimeoutExpired):
            script.wait(1)
        (tmp_path / "asked").rmdir()
        assert script.wait(240) == 7


def test_a_rank_that_has_ended_well_leaves_unless_all_are_asked_to_end(tmp_path):
    with begun(tmp_path, 0) as script:
        assert script.wait(240) == 0 and script.stderr.read() == ""
    (tmp_path / "asked").mkdir()
    with begun(tmp_path, 0) as script:
        with pytest.raises(subprocess.TimeoutExpired):
            script.wait(1)
        script.kill()


def test_a_failed_rank_leaves_where_nobody_asks(tmp_path, monkeypatch):
    """The launcher's log may be on a full disk."""
    monkeypatch.setattr(held_exit, "UNKNOWN_S", 1)
    began = time.monotonic()
    with begun(tmp_path, 7) as script:
        assert script.wait(240) == 7
    assert time.monotonic() - began > 0.9


@pytest.mark.parametrize(("launcher", "name"), [("mpirun", "mpi_rank"), ("oneflow", "oneflow_rank")])
def test_ranks_hold_their_exits_back_where_others_get_time_to_save(launcher, name):
    def script(**settings):
        plan = make_plan(make_job(launcher=launcher, **settings), [member(0, mpi=OPEN_MPI)]).as_dict()
        files = [*plan["files"], *plan["nodes"][0]["files"]]
        return next(file["content"] for file in files if file["path"].endswith(f"/{name}"))

    assert "holds its exit back" in script()
    assert "holds its exit back" not in script(stop_grace=0) and "asked" not in script(stop_grace=0)


def test_the_rank_that_failed_first_is_waited_for():
    """The script prints what it knows of the failure before it holds its exit back."""
    first = "trainyard: rank 1 ended with status 1\n"
    then = "trainyard: rank 0 ended with status 1\ntrainyard: rank 0 holds its exit back\n"
    assert not failures.holds_exit(first + then)
    log = f"{first}{then}trainyard: rank 1 error: ValueError: x\ntrainyard: rank 1 holds its exit back\n"
    assert failures.holds_exit(log)
    assert not failures.holds_exit(f"{log}--- started again, attempt 2 ---\n")
    assert not failures.holds_exit("trainyard: rank 1 holds its exit back\n")
    # Somebody ended it.
    assert failures.holds_exit("trainyard: rank 1 ended with status 143\ntrainyard: rank 1 holds its exit back\n")
