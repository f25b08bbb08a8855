"""Ranks that never meet: a job of several that succeeds as many trainings of one. Real sockets on 127.0.0.1."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.measure import rank_connections
from ansible.module_utils.trainyard.job.run.wire.answers import MONITOR
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run.evidence import rank_meeting
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for
from job_samples import summary_of
from test_report import both, plan

HEAD, JOB = "127.0.0.1", f"meeting-{os.getpid()}"
SPEC = {"job_id": JOB, "hosts": [], "node_rank": 1, "world_size": 2, "launcher": "torchrun"}
SPEC.update(head_address=HEAD, monitor_port=1)
CONNECT = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(flush=True); "
STAY, LEAVE = "sys.stdin.read()", "s.close()"


@contextlib.contextmanager
def connected(port, then=STAY, job_id=JOB):
    """A process of a job that has connected to a port, and stays so or not."""
    argv = [sys.executable, "-c", CONNECT + then, str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, env={"TRAINYARD_JOB_ID": job_id}, **pipes) as process:
        process.stdout.readline()
        if then == LEAVE:
            process.wait()
        yield process
        process.stdin.close()


@pytest.fixture
def port():
    """The port of the head at which ranks meet."""
    with socket.create_server((HEAD, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def looker(monkeypatch, port):
    """Looks at connections to that port alone, as another node sees them: other tests have theirs on this machine."""
    table = rank_connections.connections
    monkeypatch.setattr(
        rank_meeting.rank_connections,
        "connections",
        lambda *given: [each for each in table(*given) if port == each.remote_port],
    )

    def make(**changes):
        return rank_meeting.Meeting({**SPEC, **changes})

    # Samples in a test follow each other at once.
    for name in ("CHECK_S", "OWNERS_S", "LATER_S"):
        monkeypatch.setattr(rank_meeting, name, 0.0)
    return make


def met(seen, agent=None, running=True):
    """Take a sample, and return whether a connection of a rank was seen."""
    seen.follow(agent and {"pid": agent.pid}, running, {})
    return seen.state()["met"]


def test_an_open_connection_of_a_rank_is_seen(looker, port):
    seen = looker()
    with connected(port):
        assert met(seen)
    assert seen.state() == {"met": True, "looks": 1, "launcher": ""}


def test_connections_of_agents_of_monitors_and_of_an_earlier_job_do_not_count(looker, port):
    assert not met(looker())
    with connected(port) as agent:
        assert not met(looker(), agent)
        assert not met(looker(monitor_port=port))
    # For a minute it still shows, without its process (TIME_WAIT).
    with connected(port, LEAVE):
        assert not met(looker()) and not met(looker(node_rank=0, hosts=["n1"], port=port))


def test_no_samples_are_taken_where_they_prove_nothing(looker):
    """The head waits for the others to come."""
    head, alone = {"node_rank": 0, "hosts": ["n1", "n2"]}, {"node_rank": 0, "hosts": ["n1"], "launcher": "direct"}
    for changes in ({"world_size": 1}, {"launcher": "mpirun"}, {"launcher": "rank_table"}, head, alone):
        seen = looker(**changes)
        seen.follow(None, True, {})
        assert seen.state() is None
    assert misfit({"started": 1.0, "end": None, "meeting": None}, MONITOR) == ""


def test_a_connection_of_another_program_does_not_count(looker, port):
    seen = looker()
    with connected(port, job_id="other"):
        assert not met(seen)
        # One of the job's that comes later is seen all the same.
        with connected(port):
            assert met(seen)


def test_with_direct_a_launcher_among_the_processes_is_named(looker):
    job_id = f"{JOB}-launcher"
    argv = ["torchrun", "-c", "import sys; sys.stdin.read()", "torchrun"]
    started = {"executable": sys.executable, "env": {"TRAINYARD_JOB_ID": job_id}, "stdin": subprocess.PIPE}
    with subprocess.Popen(argv, **started) as process:
        seen = looker(launcher="direct", job_id=job_id)
        wait_for(lambda: _named(seen), "the launcher to be seen")
        process.stdin.close()
    alone = looker(launcher="direct", job_id=f"{job_id}-none")
    alone.follow(None, True, {})
    assert alone.state() == {"met": False, "looks": 1, "launcher": ""}


def _named(seen):
    seen.follow(None, True, {})
    return seen.state()["launcher"] == "torchrun"


V6 = "0000000000000000FFFF00000100007F"


@pytest.mark.parametrize(
    ("line", "address", "found"),
    [
        ("0: 0100007F:A2B4 0200000A:7530 01 0:0 00:0 0 1000 0 4711 1 x", "10.0.0.2", [(41652, 30000, 1000, 4711)]),
        (f"0: {V6}:A2B4 {V6}:7530 01 0:0 03:1 0 0 0 9 3 x", "127.0.0.1", [(41652, 30000, 0, 9)]),
        ("0: 00:A2B4 B80D0120000000000000000001000000:7530 01 0:0 0:0 0 7 0 9", "2001:db8::1", [(41652, 30000, 7, 9)]),
        # Another node; ssh; NFS; a listening socket; one that is not connected yet; one of an earlier job.
        ("0: 0100007F:A2B4 0300000A:7530 01 0:0 00:0 0 1000 0 4711", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:0016 01 0:0 00:0 0 1000 0 4711", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:0801 01 0:0 00:0 0 0 0 0", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:7530 0A 0:0 00:0 0 1000 0 4711", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:7530 02 0:0 00:0 0 1000 0 4711", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:7530 06 0:0 03:0 0 0 0 0", "10.0.0.2", []),
        ("half a line", "10.0.0.2", []),
        ("0: 0100007F:A2B4 0200000A:7530 01 0:0 00:0 0 1000 0 4711", "no address", []),
    ],
)
def test_the_kernels_tables(line, address, found):
    assert sys.byteorder == "little"
    assert rank_connections.connections(f"  sl  local_address ...\n{line}\n", [address]) == found


NEVER = {"met": False, "looks": 30, "launcher": ""}
BY_ITSELF = {**NEVER, "launcher": "torchrun"}
APART = {"head": "n1", "hosts": ["n2", "n3"], "looks": 30, "launchers": []}


@pytest.mark.parametrize(
    ("launcher", "reported", "found"),
    [
        ("torchrun", {"n2": NEVER, "n3": NEVER}, APART),
        ("torchrun", {"n1": None, "n2": {**NEVER, "looks": 31}, "n3": NEVER}, APART),
        # One of them met, has looked too rarely, or says nothing.
        ("torchrun", {"n2": NEVER, "n3": {**NEVER, "met": True}}, None),
        ("torchrun", {"n2": NEVER, "n3": {**NEVER, "looks": 9}}, None),
        ("torchrun", {"n2": NEVER}, None),
        ("torchrun", {"n2": NEVER, "n3": None}, None),
        # Programs that run beside each other on purpose, and launchers that each node started by itself.
        ("direct", {"n2": NEVER, "n3": NEVER}, None),
        ("direct", {"n2": BY_ITSELF, "n3": BY_ITSELF}, {**APART, "launchers": ["torchrun"]}),
    ],
)
def test_ranks_trained_apart_where_every_node_sampled_and_none_met(launcher, reported, found):
    assert rank_connections.apart(launcher, 3, ["n1", "n2", "n3"], reported) == found


def test_programs_that_print_a_loss_each_were_to_train_together():
    """As Lightning's Trainer does with the number of devices of one node."""
    arguments = 3, ["n1", "n2", "n3"], {"n2": NEVER, "n3": NEVER}
    assert rank_connections.apart("direct", *arguments, trained=True) == APART


def summary(meeting_n2, state="succeeded"):
    results = both({"state": state, "finished": 1072.5}, launcher="torchrun")
    results["n1"]["monitor"]["meeting"], results["n2"]["monitor"]["meeting"] = None, meeting_n2
    return summary_of(plan("torchrun"), results)


def test_a_job_that_succeeded_apart_has_a_warning():
    made = summary(NEVER)
    assert made["apart"] == {**APART, "hosts": ["n2"]}
    lines = job_text.explain(made, "/runs/1", "/jobs/1", []).splitlines()
    warning = "  WARNING: the ranks trained apart: in 30 samples of connections, no rank on n2 had a connection with n1"
    assert lines[1] == warning and "docs/your-program.md" in lines[2]
    for other in (summary(NEVER, "failed"), summary({**NEVER, "met": True}), summary(None)):
        assert other["apart"] is None
        assert "WARNING" not in job_text.explain(other, "/runs/1", "/jobs/1", [])
    alone, launched = (
        rank_connections.texts({**APART, "hosts": ["n1"]}),
        rank_connections.texts({**APART, "launchers": ["torchrun"]}),
    )
    assert alone[0].endswith("no rank had one with another")
    assert launched[0].endswith("no rank on n2, n3 had a connection with n1, and each node ran torchrun by itself")


@given(st.text(max_size=200), st.text(max_size=20))
def test_any_table_is_read(table, address):
    """The monitor takes a ValueError as no table."""
    with contextlib.suppress(ValueError):
        assert isinstance(rank_connections.connections(table, [address]), list)
