"""Nodes that train each for itself, found while the job runs: pure rules, and real processes below real monitors."""

import os
import socket
import subprocess
import sys
import uuid

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.file import launcher_programs
from ansible.module_utils.trainyard.job.record import events
from ansible.module_utils.trainyard.job.run.decide.head_state import cluster_state
from ansible.module_utils.trainyard.job.run.measure import worlds
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run.evidence import rank_meeting
from ansible.module_utils.trainyard_node.job.run.monitor import state_line
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for
from job_samples import summary_of
from simulated_job import EPOCH_S, SimulatedJob
from test_events import state
from test_report import both, plan

TORCH, MPI, ASCEND = "RANK", "OMPI_COMM_WORLD_RANK", "RANK_ID"


def torch(rank, size, address="n1", **more):
    return {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": address, "MASTER_PORT": "1", **more}


def mpi(rank, size):
    return {MPI: rank, "OMPI_COMM_WORLD_SIZE": size}


JOB = torch(1, 2)


@pytest.mark.parametrize(
    ("holder", "own", "found"),
    [
        # Workers of a data loader and other children have the environment of their rank.
        (JOB, JOB, []),
        (JOB, {**JOB, "WORLD_SIZE": "1", "RANK": "0"}, []),
        (JOB, torch(0, 8), [(TORCH, 0, 8, "n1")]),
        # A loop that numbers its processes on each node has the numbers of the job's own ranks.
        (JOB, torch(1, 2, "127.0.0.1"), [(TORCH, 1, 2, "127.0.0.1")]),
        (JOB, {**JOB, **mpi(1, 2)}, [(MPI, 1, 2, "n1")]),
        (JOB, {**JOB, "RANK_ID": 3, "RANK_SIZE": 8}, [(ASCEND, 3, 8, "n1")]),
        # Our mpirun: a script that has Open MPI's numbers starts the rank, which has PyTorch's, too.
        ({**mpi(1, 2), "MASTER_ADDR": "n1", "MASTER_PORT": "1"}, {**JOB, **mpi(1, 2)}, []),
        (JOB, torch("x", 8), None),
        (JOB, {"RANK": "1"}, None),
        (JOB, torch(0, 8, "a\x1b[2J"), [(TORCH, 0, 8, "")]),
    ],
)
def test_numbers_of_a_process_that_are_not_its_ranks(holder, own, found):
    above, below = (worlds.place({name: str(text) for name, text in each.items()}) for each in (holder, own))
    assert (None if below is None else worlds.inner(below, above)) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--nnodes 4 --node_rank 0 --master_addr 192.0.2.7 pretrain.py", [(worlds.NODE, 0, 4, "192.0.2.7")]),
        ("--num_machines=2 --machine_rank=1 --main_process_ip=u@h t.py", [(worlds.NODE, 1, 2, "")]),
        ("--nnodes 2 --node_rank 0 --rdzv-backend c10d --rdzv-endpoint=n1:1 t.py", []),
        *((words, []) for words in ("--nnodes 1:4 --node_rank 0 t.py", "--nnodes 2 t.py", "--nnodes=1 --node-rank=0")),
    ],
)
def test_node_ranks_that_launchers_are_given(words, found):
    assert worlds.of_launcher(words.split()) == found


ACCELERATE = "num_machines: 2\nmachine_rank: 0\nmain_process_ip: '192.0.2.7'\nrdzv_backend: static\n"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("accelerate launch --config_file one.yaml t.py", "one.yaml"),
        ("accelerate launch t.py", "/home/a/.cache/huggingface/accelerate/default_config.yaml"),
        ("torchrun --config_file one.yaml t.py", ""),
    ],
)
def test_options_that_accelerate_has_in_a_file(command, file):
    found = launcher_programs.find(command.split())
    assert worlds.settings_file(found.called, found.words, {"HOME": "/home/a"}) == file
    node = (worlds.NODE, 0, 2, "192.0.2.7")
    assert worlds.of_launcher([*found.words, *worlds.of_file(ACCELERATE)]) == [node]
    # The command decides.
    assert worlds.of_launcher(["--machine_rank", "1", *worlds.of_file(ACCELERATE)])[0].number == 1


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("-np 16 -H n1:8,n2:8 ./a", True),
        ("--hostfile h ./a", True),
        ("-H localhost:8 ./a", False),
        ("-np 8 ./a", False),
    ],
)
def test_launchers_that_start_ranks_on_other_hosts(words, is_one):
    assert worlds.of_launcher(words.split(), knows_nodes=False) == [(worlds.HOSTS, 0, 2, "")] * is_one


def reports(*nodes, met=()):
    """Return the reports of n1, n2, ...: each node has (holder, by, number, size) for each inner world."""
    keys = ("holder", "by", "number", "size")
    found = {
        f"n{place + 1}": {
            "met": f"n{place + 1}" in met,
            "inner": [{**dict(zip(keys, each)), "at": "lo"} for each in inner],
        }
        for place, inner in enumerate(nodes)
    }
    assert not any(misfit(each, worlds.WORLDS) for each in found.values())
    return {host: {"worlds": each} for host, each in found.items()}


def at(address, *nodes):
    """Return the reports of nodes whose processes have this MASTER_ADDR."""
    found = reports(*nodes)
    for each in found.values():
        for entry in each["worlds"]["inner"]:
            entry["at"] = address
    return found


def test_a_process_that_waits_for_its_own_node_is_named():
    """A launcher with a laptop's settings: main_process_ip is 127.0.0.1 on each node."""
    nodes = own(0, size=2), own(1, size=2, number=1)
    for address in ("127.0.0.1", "localhost", "::1"):
        found = worlds.apart(at(address, *nodes), "direct")
        assert found["text"].startswith(
            f"n2 waits for itself: a process with RANK=1 and WORLD_SIZE=2 has MASTER_ADDR {address}"
        )
        assert found["hosts"] == ["n2"] and found["all"] and found["fixed"] and "--master-addr" in found["action"]
    assert worlds.apart(at("n1", *nodes), "direct") is None
    both = worlds.apart(at("localhost", *nodes, own(2, size=2, number=2)), "direct")
    assert both["hosts"] == ["n2", "n3"] and both["text"].startswith(
        "n2, n3 wait, each for itself: a process with RANK=1"
    )
    # The first process may not have been seen yet; or it is on the same node.
    assert worlds.apart(at("localhost", [], nodes[1]), "direct") is None
    assert worlds.apart(at("localhost", [], [*nodes[0], *nodes[1]]), "direct") is None


def own(*holders, by=TORCH, number=0, size=8):
    return [(holder, by, number, size) for holder in holders]


LISTED = own(0, by=worlds.HOSTS, size=2)


@pytest.mark.parametrize(
    ("nodes", "text", "ends"),
    [
        # llamafactory-cli under torchrun, on two nodes and on one; a fixed node rank, before its ranks and with them.
        ((own(0, 1), own(2, 3)), "n1, n2 train each for itself: each has a process with RANK=0 and WORLD_SIZE=8", True),
        ((own(0, 1, 2),), "ranks 0 to 2 on n1 train each for itself: below each is a process with RANK=0", True),
        (([(0, worlds.NODE, 0, 4)], [(1, worlds.NODE, 0, 4)]), "a launcher with --node-rank 0 of --nnodes 4", True),
        ((own(0, size=16), own(1, size=16)), "WORLD_SIZE=16 (MASTER_ADDR lo)", True),
        # Each mpirun has ranks on both nodes.
        (([*LISTED, *own(0, by=MPI)], [*LISTED, *own(1, by=MPI, number=4)]), "each has a launcher that starts", False),
        ((own(0, by=MPI), own(1, by=MPI)), f"{MPI}=0 and OMPI_COMM_WORLD_SIZE=8", True),
        # Not everywhere: it may be a helper of some.
        ((own(0), own(1), []), "n1, n2 train each for itself", False),
    ],
)  # fmt: skip
def test_the_same_number_below_two_ranks_is_a_world_for_each(nodes, text, ends):
    found = worlds.apart(reports(*nodes), "torchrun")
    assert text in found["text"] and found["all"] is ends and found["action"]


@pytest.mark.parametrize(
    ("nodes", "met"),
    [
        (([], []), ()),
        # One torchrun on each node, and one world of both; only one has started yet; an evaluation of rank 0.
        ((own(0, size=16), own(1, number=8, size=16)), ()),
        ((own(0), []), ()),
        # A helper on each node, beside a world of both, and beside ranks that have met.
        (([*own(0, size=16), *own(0, by=MPI, size=2)], [*own(1, number=8, size=16), *own(1, by=MPI, size=2)]), ()),
        ((own(0, 1, size=2), own(2, 3, size=2)), ("n2",)),
        (([(0, worlds.NODE, 0, 2), *own(0, size=16)], [(1, worlds.NODE, 1, 2), *own(1, number=8, size=16)]), ()),
    ],
)
def test_what_may_be_one_world_is_left(nodes, met):
    assert worlds.apart(reports(*nodes, met=met), "direct") is None


_ENTRY = st.tuples(
    st.integers(0, 3), st.sampled_from([TORCH, MPI, worlds.NODE, worlds.HOSTS]), st.integers(0, 9), st.integers(2, 9)
)


@given(st.lists(st.lists(_ENTRY, max_size=4), min_size=1, max_size=3))
def test_any_reports_are_compared(nodes):
    found = worlds.apart(reports(*nodes), "direct")
    assert found is None or ("for itself" in found["text"] and found["hosts"])


@pytest.mark.parametrize(("env", "asked"), [({"NNODES": "1"}, True), ({"NNODES": "2"}, False), ({}, False)])
def test_a_search_that_trains_on_each_node_says_so(env, asked):
    assert worlds.asked_for({"processes": [{"env": env}]}) is asked


BELOW = "(RANK=0 WORLD_SIZE=8 sleep 99 & RANK=3 WORLD_SIZE=8 sleep 99) & WORLD_SIZE=1 sleep 99 & sleep 99 & wait"
WAIT = "import sys, time; time.sleep(99)"
MEET = f"import socket; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); {WAIT}"
INNER = [
    {"holder": 0, "by": TORCH, "size": 8, "number": 0, "at": "n1"},
    {"holder": 1, "by": worlds.NODE, "size": 2, "number": 0, "at": ""},
]


def test_processes_below_the_ranks_of_a_node_are_read(monkeypatch):
    """Two samples must agree: a world that is seen once may have ended on another node."""
    monkeypatch.setattr(rank_meeting, "LATER_S", 0.0)
    job_id, ranks = f"worlds-{uuid.uuid4().hex[:12]}", []

    def start(rank, *argv):
        env = {"TRAINYARD_JOB_ID": job_id, "PATH": os.defpath, **{k: str(v) for k, v in torch(rank, 3).items()}}
        program = "/bin/sh" if argv[0] == "sh" else sys.executable
        ranks.append(subprocess.Popen(argv, executable=program, env=env, stdin=subprocess.DEVNULL))

    with socket.create_server(("127.0.0.1", 0)) as server:
        node_plan = {"job_id": job_id, "hosts": [], "node_rank": 1, "world_size": 3, "launcher": "direct"}
        seen = rank_meeting.Meeting({**node_plan, "head_address": "127.0.0.1", "monitor_port": 1})

        def sees(met):
            seen.follow(None, True, {})
            return seen.worlds() == {"met": met, "inner": INNER}

        try:
            start(0, "sh", "-c", BELOW)
            start(1, "torchrun", "-c", WAIT, "--nnodes", "2", "--node-rank", "0")
            wait_for(lambda: sees(False), "both worlds")
            # A rank of the job that trains with the head, beside such worlds.
            start(2, "python", "-c", f"import sys; {MEET}", str(server.getsockname()[1]))
            wait_for(lambda: sees(True), "the connection")
            seen.follow(None, True, {"": 1})
            assert seen.worlds() == {"met": False, "inner": []}
        finally:
            process_table.end(job_id, grace_s=0.0)
            for rank in ranks:
                rank.wait()


ONE_NODE, FIXED = {"processes": [{"env": {"NNODES": "1"}}]}, [(0, worlds.NODE, 0, 2)]


@pytest.mark.parametrize(
    ("first", "then", "plan_changes", "ends"),
    [
        (own(0), {"metrics": {"loss": 1.0}}, {}, True),
        (own(0), {"metrics": {"loss": 1.0}}, {"max_restarts": 3}, True),
        # They prepare the data; a search that is meant to train so; launchers that wait for each other.
        (own(0), {"metrics": {"step": 9}}, {}, False),
        (own(0), {"metrics": {"loss": 1.0}}, ONE_NODE, False),
        (FIXED, {}, {}, True),
        (FIXED, {}, ONE_NODE, False),
    ],
)
def test_only_a_training_ends_and_no_restart_follows(first, then, plan_changes, ends):
    job = SimulatedJob(**plan_changes).run(5)
    for host, each in reports(first, first).items():
        job.changes[host] = each
    assert not job.run(5).end
    for host in ("n1", "n2"):
        job.changes[host] = {**job.changes[host], **then}
    job.run(worlds.LOSS_S - 2)
    assert not job.end
    job.run(worlds.NODE_S)
    assert bool(job.end) is ends and (not ends or job.end["failure"]["kind"] == "apart")


def test_ranks_that_meet_as_the_training_begins_go_on():
    """With helpers below them, which had been started before."""
    job = SimulatedJob().run(5)
    for host, each in reports(own(0), own(1)).items():
        job.changes[host] = {**each, "metrics": {"loss": 1.0}}
    job.run(worlds.LOSS_S - 2)
    job.changes["n2"] = {**job.changes["n2"], **reports([], own(1), met=("n2",))["n2"]}
    assert not job.run(60).end


def test_worlds_that_begin_after_the_training_end_no_job():
    """Such as an evaluation on each node."""
    job = SimulatedJob().run(5)
    job.changes["n1"] = {"metrics": {"loss": 1.0}}
    job.run(5)
    for host, each in reports(own(0), own(1)).items():
        job.changes[host] = {**job.changes.get(host, {}), **each}
    job.run(60)
    assert not job.end and cluster_state(job.state, job.time())["apart"]["hosts"] == ["n1", "n2"]
    job.changes["n1"] = job.changes["n2"] = {}
    job.run(5)
    assert cluster_state(job.state, job.time())["apart"] is None


NOTED = {"hosts": ["n1", "n2"], "text": "n1, n2 train each for itself: x", "action": "give it --nnodes"}


def test_the_finding_is_an_event_and_stands_on_the_page():
    assert list(events.changes(state(), state(apart=NOTED), 600.0)) == [
        ("apart", NOTED["text"], {"host": "n1", "reason": NOTED["action"]})
    ]
    assert not list(events.changes(state(apart=NOTED), state(apart=NOTED), 600.0))
    for end in ({"state": "succeeded", "finished": 1072.5}, _failed()):
        results = both(end, launcher="torchrun")
        results["n1"]["cluster"]["apart"] = NOTED
        lines = job_text.explain(summary_of(plan("torchrun"), results), "/runs/1", "/jobs/1", [])
        assert lines.count(NOTED["text"]) == 1 and NOTED["action"] in lines


def _failed():
    failure = {"kind": "apart", "host": "n1", "hosts": ["n1", "n2"], "reason": NOTED["text"], "action": NOTED["action"]}
    return {"state": "failed", "finished": 1072.5, "failure": failure}


def test_ranks_that_have_ended_do_not_train_together_again():
    """A watch said so as the job ended, and the record lost the warning."""
    job = SimulatedJob().run(5)
    for host, each in reports(own(0), own(0)).items():
        job.changes[host] = each
    job.run(5)
    ended = {"host": "n2", "process": "rank1", "ranks": [1], "rank": 1, "time": EPOCH_S + 10}
    job.changes["n2"] = {"worlds": {"met": False, "inner": []}, "ranks_running": 0, "done": True, "well": ended}
    job.changes["n1"] = {"worlds": {"met": False, "inner": []}}
    job.run(2)
    noted = cluster_state(job.state, job.time())["apart"]
    assert noted and noted["hosts"] == ["n1", "n2"]
    # At the end of the job, too, nobody says that it is over.
    assert state_line.lasting({"apart": noted, "end": {"state": "succeeded"}}) == {"apart": noted["text"]}
    job.changes["n2"] = {"worlds": {"met": True, "inner": []}}
    job.changes["n1"] = {"worlds": {"met": True, "inner": []}}
    assert cluster_state(job.run(2).state, job.time())["apart"] is None
