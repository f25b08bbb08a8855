"""Monitors start mpirun's daemons in place of ssh: the head's rules, and real monitors with a script for mpirun."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.decide import daemon_requests
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard_node.job.run.ranks import daemons as node_daemons
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import Cluster, wait_for
from job_samples import make_job, make_plan, member
from rank_table_samples import MPI

ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}


def ask(number, address="10.0.0.2", attempt=0):
    return {"number": number, "attempt": attempt, "address": address, "command": f"orted {number}"}


def daemon(number, status=None, said="", attempt=0):
    return {"number": number, "attempt": attempt, "status": status, "said": said}


class Head:
    """The head of a job whose first node is n1."""

    def __init__(self, **plan):
        self.daemons, self.attempt = daemon_requests.Daemons({"launcher": "mpirun", "addresses": ADDRESSES, **plan}), 0

    def hears(self, host, **report):
        shape = {name: daemon_requests.REPORTED[f"?{name}"] for name in report}
        assert not misfit(report, shape)
        self.daemons.receive(host, report, "n1", {"": self.attempt})

    def tells(self, host):
        order = self.daemons.order(host, "n1")
        assert not misfit(order, {name: daemon_requests.ORDERED[f"?{name}"] for name in order})
        return order

    def starts(self, host):
        return [each["number"] for each in self.tells(host).get("start", ())]

    def ended(self):
        return {each["number"]: (each["status"], each["said"]) for each in self.tells("n1")["asked"]["ended"]}


def test_a_request_goes_to_the_node_with_that_address_until_it_answers():
    head = Head()
    head.hears("n1", asks=[ask(1), ask(2, "10.0.0.3")])
    assert (head.starts("n2"), head.starts("n3"), head.starts("n1")) == ([1], [2], [])
    assert head.tells("n1")["asked"]["taken"] == 2
    before = head.daemons.changes
    head.hears("n2", daemons=[daemon(1)])
    assert head.starts("n2") == [] and head.ended() == {} and head.daemons.changes > before
    head.hears("n2", daemons=[daemon(1, 127, "sh: 1: orted: not found")])
    head.hears("n2", daemons=[daemon(1, 0)])
    assert head.ended() == {1: (127, "sh: 1: orted: not found")}, "the first end counts"


def test_a_request_that_is_repeated_or_early_is_taken_once_and_in_order():
    head = Head()
    head.hears("n1", asks=[ask(2)])
    assert head.tells("n1")["asked"]["taken"] == 0
    for _ in range(2):
        head.hears("n1", asks=[ask(1), ask(2)])
    assert head.starts("n2") == [1, 2]


def test_only_the_node_of_mpirun_may_ask_and_only_its_own_daemons_are_a_nodes():
    head = Head()
    head.hears("n3", asks=[ask(1)])
    assert head.starts("n2") == [] and head.tells("n1")["asked"]["taken"] == 0
    head.hears("n1", asks=[ask(1)])
    head.hears("n3", daemons=[daemon(1)])
    assert head.starts("n2") == [1]
    other = Head(launcher="torchrun")
    other.hears("n1", asks=[ask(1)])
    assert other.tells("n1") == other.tells("n2") == {}


def test_an_address_that_no_node_has_ends_its_request():
    head = Head()
    head.hears("n1", asks=[ask(1, "10.9.9.9")])
    assert head.ended() == {1: (255, "no node of the job has the address 10.9.9.9")}


def test_requests_of_an_attempt_before_are_forgotten():
    head = Head()
    head.hears("n1", asks=[ask(1)])
    head.attempt = 1
    head.hears("n1", asks=[ask(2)])
    head.hears("n2", daemons=[daemon(1)])
    assert head.starts("n2") == [] and head.tells("n1")["asked"] == {"attempt": 1, "taken": 0, "ended": []}
    head.hears("n1", asks=[ask(1, attempt=1)])
    assert head.starts("n2") == [1]


def test_a_new_head_is_asked_again_and_learns_what_runs():
    asks = [ask(number) for number in range(1, 100)]
    first = Head()
    first.hears("n1", asks=daemon_requests.unanswered(asks, 0, {}))
    rest = daemon_requests.unanswered(asks, 0, first.tells("n1")["asked"])
    assert [each["number"] for each in rest] == list(range(daemon_requests.MAX_ASKS + 1, 100))
    new = Head()
    assert daemon_requests.unanswered(asks, 0, new.tells("n1")["asked"])[0]["number"] == 1
    new.hears("n2", daemons=[daemon(1, 0), daemon(2)])
    new.hears("n1", asks=asks[:3])
    new.hears("n2", daemons=[daemon(1, 0), daemon(2)])
    assert new.starts("n2") == [3] and new.ended() == {1: (0, "")}


@pytest.mark.parametrize("wrong", [{"number": 0}, {"command": "x" * 70_000}, {"address": 5}, {"more": 1}])
def test_a_request_that_does_not_fit_is_no_message(wrong):
    with pytest.raises(messages.BadMessage):
        messages._check({"asks": [{**ask(1), **wrong}]}, dict(daemon_requests.REPORTED))


# mpirun, as far as its monitors see it: it runs the script with an address and the words of a command.
STARTS = "touch up-{host}; until [ -e go ]; do sleep 0.1; done; {agent} {address} {words}; echo agent ended with $?"


@pytest.fixture
def started(tmp_path):
    """Run a command by mpirun's script on n1, for the node with this address; n2 has 127.0.0.2."""
    jobs = []

    def run(words, address="127.0.0.2", shell="/bin/sh", **settings):
        plan = make_plan(make_job(launcher="mpirun"), [member(number, mpi=MPI) for number in range(2)])
        scripts = {
            Path(file["path"]).name: file["content"].replace(plan.placement.job_dir, "{folder}")
            for file in plan.as_dict()["nodes"][0]["files"]
        }
        program = STARTS.format(host="n1", agent=f"{tmp_path}/n1/mpi_agent", address=address, words=words)
        process = {
            "name": "mpirun", "ranks": [0, 1], "argv": ["sh", "-c", program], "env": {"PATH": os.defpath},
            "log": str(tmp_path / "n1/logs/mpirun.log"),
        }  # fmt: skip
        common = {"launcher": "mpirun", "base_env": {"HOME": str(tmp_path), "SHELL": shell}}
        first = {"processes": [process], "addresses": {"n1": "127.0.0.1", "n2": "127.0.0.2"}, "world_size": 2}
        job = Cluster(tmp_path, [""], [], n1={**common, **first}, n2={**common, "world_size": 2}, **settings)
        jobs.append(job.__enter__())
        for node in job.nodes:
            for name in ("mpi_agent", "mpi_daemon"):
                text = scripts[name].replace("{folder}", str(node.dir)).replace(plan.placement.job_id, node.job_id)
                (node.dir / name).write_text(text)
                (node.dir / name).chmod(0o755)
            node.start()
        job.head.go()
        return job

    yield run
    for job in jobs:
        job.__exit__()


def test_a_daemon_runs_on_the_other_node_as_a_child_of_its_monitor_and_the_script_ends_with_it(started, tmp_path):
    job = started(
        "'echo $TRAINYARD_JOB_ID >daemon;' echo '$$' '>>daemon; until [ -e over ]; do sleep 0.1; done;' exit 3"
    )
    (there,) = [node for node in job.nodes if node is not job.head]
    file = tmp_path / "daemon"
    wait_for(lambda: file.exists() and len(file.read_text().split()) == 2, "a daemon")
    job_id, pid = file.read_text().split()
    assert (job_id, process_table.parent(int(pid))) == (there.job_id, there.monitor.pid)
    (tmp_path / "over").touch()
    wait_for(lambda: "agent ended with 3" in (job.head.dir / "logs/mpirun.log").read_text(), "the script to end")
    assert job.over()["state"] == "succeeded"
    job.all_ended()


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        ("no-such-orted --daemon", 127, "no-such-orted: not found"),
        ("'kill -9 $$'", 137, "the daemon on 127.0.0.2 ended"),
    ],
)
def test_what_ends_a_daemon_is_in_mpiruns_log(started, words, status, named):
    log = started(words).head.dir / "logs/mpirun.log"
    wait_for(lambda: log.exists() and f"agent ended with {status}" in log.read_text(), "the script to end")
    assert named in log.read_text() and log.read_text().count("trainyard: the daemon") == (status == 137)


def test_the_user_s_own_csh_reads_the_command_as_open_mpi_writes_it_for_that(started, tmp_path):
    shell = tmp_path / "tcsh"
    shell.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n')
    shell.chmod(0o755)
    job = started("'setenv A b; orted'", shell=str(shell))
    wait_for(lambda: (tmp_path / "asked").exists() and (tmp_path / "asked").read_text(), "the shell")
    assert (tmp_path / "asked").read_text() == "-c setenv A b; orted\n"
    assert job.over()["state"] == "succeeded"


def test_what_ranks_leave_among_requests_keeps_none_from_being_taken(tmp_path):
    folder = tmp_path / "attempt/daemons"
    folder.mkdir(parents=True)
    (folder / "1.asked").mkdir()
    os.mkfifo(folder / "2.asked")
    (folder / "3.asked").write_bytes(b"\xff" * 100)
    (folder / "4.asked").write_text("10.0.0.2\n" + "x" * (daemon_requests.MAX_COMMAND + 1))
    (folder / "5.asked").write_text("10.0.0.2\norted")
    plan = {"launcher": "mpirun", "base_env": {}}
    asks = node_daemons.Daemons(tmp_path, plan, lambda start: start(), {"": 0}).report()["asks"]
    assert not misfit({"asks": asks}, dict(daemon_requests.REPORTED))
    assert sorted(each["command"] for each in asks) == ["", "orted"]


def test_a_node_starts_no_more_daemons_than_its_report_may_have(tmp_path):
    plan = {"launcher": "mpirun", "base_env": {"HOME": "/"}}
    (tmp_path / "mpi_daemon").write_text("exit 0")
    here = node_daemons.Daemons(tmp_path, plan, lambda start: start(), {"": 0})
    for number in range(1, 40):
        here.follow({"start": [{"number": number, "attempt": 0, "command": "x"}]})
    assert len(here.report()["daemons"]) == daemon_requests.MAX_DAEMONS
