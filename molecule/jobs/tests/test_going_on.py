"""Jobs that go on without their controller: started and left, interrupted, killed; and what brings one back to them."""

import hashlib
import os
import re
import signal

import pytest
from lab_jobs import WORKER, host_list, wait_until

SECRET = "correct-horse-8f1c"  # noqa: S105 - made up for this test


@pytest.fixture(scope="module")
def detached(play, scheduler, left, node_names):
    """A job that was started and left; the tests of this file follow it to its end. It could start again."""
    run = play.launch(WORKER, **scheduler, job_wait=False, job_name="detached", job_max_restarts=3).wait()
    wait_until(lambda: set(left(run.job_id)) == set(node_names), "it runs, as Slurm may start it later")
    return run


@pytest.fixture(scope="module")
def neighbour(play, scheduler, left, node_names):
    """Another job on the same nodes, which nothing of all this may touch."""
    stubborn = ["python3", "worker.py", "--stubborn"]
    run = play.launch(WORKER, **scheduler, job_wait=False, job_name="neighbour", job_command=stubborn).wait()
    wait_until(lambda: set(left(run.job_id)) == set(node_names), "it runs, too")
    yield run
    assert play("playbooks/stop.yml", job_id=run.job_id).rc == 0
    # Its ranks do not end when asked: that they are killed then is no failure.
    assert run.file("summary.json")["state"] == "stopped"
    assert left(run.job_id) == {}


def test_a_detached_launch_says_how_to_come_back(detached, inventory_path, scheduler, left, node_names):
    started = re.search(r"^(.+); not waiting for its end \(job_wait: false\)\.$", detached.output, re.MULTILINE)
    assert detached.rc == 0 and re.fullmatch(r"Submitted as \d+" if scheduler else "Started", started[1])
    for what in ("watch", "status", "stop"):
        assert re.search(
            rf"^  {what} +ansible-playbook playbooks/{what}\.yml -i \S+ -e job_id={detached.job_id}$",
            detached.output,
            re.MULTILINE,
        )
    assert set(left(detached.job_id)) == set(node_names)


def test_status_of_the_newest_run_of_a_name(detached, neighbour, play, node_names):
    ranks = len(node_names)

    def status():
        run = play("playbooks/status.yml", job_name="detached").expect(0)
        return re.search(rf"{ranks}/{ranks} ranks running   step \d+/10000   loss ", run.output) and run

    run = wait_until(status, "the status shows progress")
    assert run.first_line == f"Job {detached.job_id} is running."
    assert len(run.lines) < 15
    assert neighbour.job_id not in run.output
    assert {node["state"] for node in detached.file("summary.json")["nodes"]} == {"running"}


def test_logs_come_while_the_job_runs(detached, play, node_names):
    play("playbooks/logs.yml", job_id=detached.job_id).expect(0)
    last = len(node_names) - 1
    assert {f"rank_{rank}.log" for rank in range(last)} <= {path.name for path in (detached.folder / "logs").iterdir()}
    assert "step 1/10000" in detached.log(last)


def test_ctrl_c_stops_watching_and_not_the_job(detached, play, left, node_names):
    watch = play("playbooks/watch.yml", job_id=detached.job_id)
    watch.trains()
    os.killpg(watch.process.pid, signal.SIGINT)
    assert watch.rc != 0
    told = watch.lines[watch.lines.index(f"No longer watching. Job {detached.job_id} goes on.") :]
    for what, book in (("watch", "watch"), ("status", "status"), ("collect", "logs"), ("stop", "stop")):
        command = f"ansible-playbook playbooks/{book}.yml -i {play.shown_inventory} -e job_id={detached.job_id}"
        assert f"  {what:8} {command}" in told
    assert "Traceback" not in watch.output
    assert set(left(detached.job_id)) == set(node_names)


def test_a_job_that_runs_is_in_the_list_of_those_that_run(detached, play):
    run = play("playbooks/jobs.yml", jobs_state="running").expect(0)
    assert any(detached.job_id in line for line in run.lines), run.output


@pytest.fixture(scope="module")
def stopped(detached, neighbour, play, left, node_names, nodes):
    """The job ended with stop.yml, after the one that watched it died without a word.

    On n1 something runs besides that its user began meanwhile, which no job has.
    """
    nodes["n1"].host.check_output("systemd-run --quiet --collect --uid=train --unit=stray sleep 4711")
    watch = play("playbooks/watch.yml", job_id=detached.job_id).trains()
    os.killpg(watch.process.pid, signal.SIGKILL)
    watch.wait()
    before = left(neighbour.job_id)
    assert {name: len(pids) for name, pids in before.items()} == dict.fromkeys(node_names, 3)
    yield play("playbooks/stop.yml", job_id=detached.job_id).wait(), before
    nodes["n1"].host.check_output("systemctl stop stray")


def test_stop_names_what_the_user_began_meanwhile_and_leaves_it(stopped, nodes):
    pid = nodes["n1"].host.check_output("systemctl show --property=MainPID --value stray")
    found = [line for line in stopped[0].lines if "not ended by trainyard" in line]
    # Nothing of the neighbour is named, which began later, too.
    assert found == [
        "  not ended by trainyard on n1: 1 process of user train that started during the job: "
        f"{pid} /usr/bin/sleep 4711"
    ]


def test_stop_ends_exactly_this_job_after_its_controller_died(
    stopped, detached, neighbour, scheduler, left, node_names, nodes
):
    stop, before = stopped
    assert stop.rc == 0, stop.output
    assert re.search(rf"^Job {detached.job_id} was stopped after 0:\d\d:\d\d\.$", stop.output, re.MULTILINE)
    # Slurm's nodes are not asked, as Slurm ends all of a job.
    assert scheduler or f"  no process of the job is left on {host_list(node_names)}" in stop.lines
    assert left(detached.job_id) == {}
    assert detached.file("summary.json")["state"] == "stopped"
    assert left(neighbour.job_id) == before
    # Nor does what would start it again outlive it; systemd may notice late that a unit's last process has ended.
    units = "systemctl list-units --all --plain --no-legend 'trainyard-detached*'"
    wait_until(lambda: nodes["n1"].host.run(units).stdout == "", "its units to go")


def test_of_a_job_that_ends_unwatched_no_unit_stays_and_clean_records_its_end(play, scheduler, nodes):
    """An empty slice would stay for ever; its result stood on the nodes alone."""
    short = ["python3", "worker.py", "--steps", "5"]
    run = play.launch(WORKER, **scheduler, job_wait=False, job_name="unwatched", job_command=short).wait().expect(0)
    wait_until(lambda: nodes["n1"].end(run), "its end")
    units = "systemctl list-units --all --plain --no-legend 'trainyard-unwatched*'"
    for name, node in nodes.items():
        wait_until(lambda node=node: node.host.run(units).stdout == "", f"its units to go from {name}")
    assert not (run.folder / "summary.json").exists()
    clean = play("playbooks/clean.yml", job_id=run.job_id).expect(0)
    assert f"Recorded how {run.job_id} ended, which nobody had watched: succeeded." in clean.lines
    assert run.file("summary.json")["state"] == "succeeded"
    assert "step 5/5" in run.log(0)


def test_what_is_stopped_stays_stopped(stopped, detached, play):
    again = play("playbooks/stop.yml", job_id=detached.job_id)
    watch = play("playbooks/watch.yml", job_id=detached.job_id, follow="7")
    assert again.rc == 0, again.output
    # The exit status says that the job did not succeed.
    assert watch.rc == 2, watch.output
    assert f"Job {detached.job_id} has ended, so there is nothing to follow" in watch.output
    for run in (again, watch):
        assert f"Job {detached.job_id} was stopped after" in run.text


def test_a_run_that_is_not_there_is_said(play, detached):
    play("playbooks/stop.yml", job_id="nothing-20260101-000000").expect(
        2, f"No run nothing-20260101-000000 was started from {play.runs}. The newest runs there: ", detached.job_id
    )


@pytest.mark.ssh
def test_a_secret_reaches_the_ranks_and_nothing_else(neighbour, play, nodes, monkeypatch, tmp_path):
    log = tmp_path / "ansible.log"
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(log))
    monkeypatch.setenv("SECRET", SECRET)
    secret = {"WORKER_SECRET": "{{ lookup('env', 'SECRET') }}"}
    run = play.launch(
        WORKER,
        "-vvvv",
        job_nodes=2,
        job_name="secret",
        job_secret_env=secret,
        job_command=["python3", "worker.py", "--steps", "20", "--gate"],
    )
    run.trains()
    for name in ("n1", "n2"):
        host = nodes[name].host
        assert host.run(f"cat /proc/[0-9]*/cmdline | grep -a '[{SECRET[0]}]{SECRET[1:]}'").rc == 1
        spec = host.file(f"/var/lib/trainyard/jobs/{run.job_id}/hosts/{name}/node_plan.json")
        assert (spec.user, spec.mode) == ("train", 0o600)
    for name in ("n1", "n2"):
        nodes[name].host.check_output(f"touch /var/lib/trainyard/jobs/{run.job_id}/source/go")
    assert run.rc == 0, run.output
    assert f"secret sha256 {hashlib.sha256(SECRET.encode()).hexdigest()}" in run.log(1)
    assert run.file("plan.json")["secret_env"] == ["WORKER_SECRET"]
    assert SECRET not in run.output
    assert log.stat().st_size > 1000
    assert SECRET not in log.read_text()
    written = [path for path in run.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    for name in ("n1", "n2"):
        assert SECRET not in nodes[name].host.check_output("journalctl --no-pager --since=-5min")
