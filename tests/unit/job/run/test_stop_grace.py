"""Time to save: real monitors with ranks that handle the stop signal, or do not."""

import os
import signal
import subprocess
import sys
import time

import pytest
from ansible.module_utils.trainyard.job.file.job import Stop
from ansible.module_utils.trainyard.job.run.decide.orders import Inform
from ansible.module_utils.trainyard.job.run.measure import saving
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.stop_grace import StopGrace, programs
from job_cluster import Cluster, wait_for
from job_samples import make_job, wrong
from simulated_job import SimulatedJob
from test_job_checkpoints import archive

STOP = {"signal": "TERM", "grace_s": 60}
# A file says that a process is up: the lines of two that print into one pipe may come mixed.
HANDLES = (
    "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: None)\n"
    "os.close(os.open(f'up-{os.getpid()}', os.O_CREAT)); time.sleep(600)"
)


def log(node, rank):
    return (node.dir / f"logs/rank_{rank}.log").read_text()


def handling(folder, count):
    """Wait until so many processes in this folder handle the signal."""
    wait_for(lambda: len(list(folder.glob("up-*"))) == count, "processes to handle the signal")


def started(cluster, *savers):
    """Start a job, and wait until the ranks on these nodes handle the signal."""
    cluster.start()
    for node in cluster.nodes:
        node.go()
    wait_for(lambda: all(list((node.dir / "source").glob("saves-*")) for node in savers), "ranks to handle the signal")
    return cluster


def test_programs_are_found_below_what_starts_them():
    children = {10: [11], 11: [12, 13], 12: [14]}
    assert programs(10, children, {10, 11}.__contains__) == [12, 13]
    assert programs(12, children, {10, 11}.__contains__) == [12]
    assert programs(10, {}, {10}.__contains__) == []


def test_what_starts_ranks_is_not_asked(tmp_path):
    """Mpirun and an agent with one rank would end it."""
    processes = [{"name": "mpirun", "ranks": [0]}, {"name": "agent", "ranks": [0]}]
    with subprocess.Popen([sys.executable, "-c", HANDLES], cwd=tmp_path) as starter:
        handling(tmp_path, 1)
        main = {"pid": starter.pid, "start_time": process_table.start_time(starter.pid)}
        grace = StopGrace(tmp_path, {"processes": processes, "world_size": 1, "stop": STOP}, lambda _: main)
        assert grace.over(time.monotonic()) and grace.record() is None and grace.left
        starter.kill()


def test_what_serves_the_files_of_an_image_is_not_asked(tmp_path):
    """As Apptainer has it: its starter is the parent of the rank, and of the program that serves the image's files."""
    scripts = {
        "squashfuse_ll": f"#!{sys.executable}\n{HANDLES}\n",
        "starter": '#!/bin/sh\n./squashfuse_ll & "$@" & wait',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    argv = ["./starter", sys.executable, "-c", HANDLES]
    with subprocess.Popen(argv, cwd=tmp_path) as starter:
        handling(tmp_path, 2)
        below = {process_table.name(pid): pid for pid in process_table.children()[starter.pid]}
        main = {"pid": starter.pid, "start_time": process_table.start_time(starter.pid)}
        plan = {"processes": [{"name": "rank0", "ranks": [0]}], "world_size": 1, "stop": STOP}
        grace = StopGrace(tmp_path, plan, lambda _: main)
        over = grace.over(time.monotonic())
        asked = [int(path.name.partition("-")[0]) for path in (tmp_path / "asked").iterdir()]
        for pid in below.values():
            os.kill(pid, signal.SIGKILL)
    server = below.pop("squashfuse_ll")
    assert not over and asked == list(below.values()) and server not in asked and grace.record()["asked"] == 1


def test_a_node_waits_for_its_own_ranks_too(tmp_path):
    with Cluster(tmp_path, ["wait"], ["saves2"], stop={**STOP, "signal": "USR1"}) as job:
        second = started(job, job.nodes[1]).nodes[1]
        job.head.signal(signal.SIGTERM)
        job.over()
        job.all_ended()
        assert log(second, 1).splitlines()[-1] == "saved after SIGUSR1 with its worker"


def test_a_rank_that_does_not_leave_is_ended_after_the_grace_and_has_no_new_checkpoint(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/step_10.pt").write_bytes(archive())
    watched = {"checkpoints": str(tmp_path / "saved")}
    with Cluster(tmp_path, ["saves600"], stop={**STOP, "grace_s": 1}, n1=watched) as job:
        started(job, job.head)
        wait_for(lambda: (job.state().get("checkpoints") or {}).get("newest"), "the checkpoint to be found")
        job.head.signal(signal.SIGTERM)
        job.over()
        job.all_ended()
        saving = job.state()["saving"]
        assert (saving["asked"], saving["last_s"], saving["stayed"]) == (1, None, {"n1": [0]})
        assert (saving["before"], saving["after"]) == ("step_10.pt", "step_10.pt") and "saved" not in log(job.head, 0)


def test_a_node_that_is_cut_off_ends_its_ranks_at_once(tmp_path):
    """Its save could mix with those of the others, which go on without it."""
    with Cluster(tmp_path, ["wait"], ["saves600"], stop=STOP) as job:
        second = started(job, job.nodes[1]).nodes[1]
        job.head.signal(signal.SIGSTOP)
        wait_for(second.end, "the node to end")
        assert second.end()["failure"]["kind"] == "head_silent"
        second.monitor.wait(240)
        assert second.left() == [] and "saved" not in log(second, 1)
        assert not (second.dir / "asked").exists()


def restarting(**plan):
    """A job of three nodes whose second one has failed, so that all are asked to end."""
    job = SimulatedJob(nodes=3, max_restarts=1, stop={"signal": "TERM", "grace_s": 30}, **plan).run(2)
    job.kill()
    job.stuck = {"n1", "n2", "n3"}
    return job.run(3)


def is_saving(job):
    return job.state.message_for("n3", job.time()).get("saving", False)


def test_all_nodes_wait_until_the_last_rank_of_the_job_has_left():
    job = restarting()
    assert is_saving(job)
    for host in ("n1", "n2"):
        job.changes[host]["left"] = True
    assert is_saving(job.run(1))
    job.changes["n3"] = {"left": False, "asked": {"asked": 1, "last": None, "last_s": None, "stayed": [2]}}
    assert is_saving(job.run(1))
    job.changes["n3"] = {"left": True, "asked": {"asked": 1, "last": 2, "last_s": 3.5, "stayed": []}}
    job.orders.clear()
    assert not is_saving(job.run(1))
    # They learn it at once, not with their next report.
    assert Inform() in job.orders
    assert (job.history[0]["saving"]["host"], job.history[0]["saving"]["last_s"]) == ("n3", 3.5)


def test_nodes_wait_no_longer_than_the_grace():
    assert is_saving(restarting().run(25))
    assert not is_saving(restarting().run(35))


def test_nobody_waits_for_a_node_that_is_gone():
    job = restarting()
    for host in ("n1", "n2"):
        job.changes[host]["left"] = True
    job.connected.discard("n3")
    assert not is_saving(job.run(1))


def test_a_node_that_shuts_down_has_all_ranks_save_before_a_spare_takes_its_place():
    job = SimulatedJob(nodes=3, spares=2, max_restarts=2, stop={"signal": "TERM", "grace_s": 30}).run(2)
    job.send("n5", {"stopped": True, "goes_down": True})
    assert job.run(2).history == []
    job.stuck = {"n1", "n2", "n3"}
    job.changes["n2"] = {"left": False, "ready_for": None}
    job.send("n2", {"stopped": True, "goes_down": True})
    assert is_saving(job.run(5)) and job.starts == []
    asked = {"asked": 1, "last": 1, "last_s": 5.5, "stayed": []}
    for host in ("n1", "n2", "n3"):
        job.changes[host].update(left=True, asked=asked if host == "n2" else None)
    job.run(1)
    job.stuck = {"n2"}
    assert not is_saving(job) and job.state.restarts.replaced == {}
    job.connected.discard("n2")
    job.silent.add("n2")
    job.run(3)
    assert (job.starts, job.state.restarts.replaced) == ([1], {"n2": "n4"})
    (restart,) = job.history
    assert restart["failure"] == {"kind": "rebooted", "host": "n2"}
    assert (restart["saving"]["host"], restart["saving"]["last_s"]) == ("n2", 5.5)


def test_a_node_that_shuts_down_may_take_part_again():
    job = SimulatedJob(max_restarts=1, stop={"signal": "TERM", "grace_s": 30}).run(2)
    job.stuck.add("n2")
    job.changes["n2"]["ready_for"] = None
    job.send("n2", {"stopped": True, "goes_down": True})
    job.run(3)
    job.connected.discard("n2")
    job.silent.add("n2")
    assert job.run(60).starts == [] and not job.end
    job.connected.add("n2")
    job.silent.clear()
    job.stuck.clear()
    job.changes["n2"].clear()
    assert job.run(3).starts == [1] and job.state.nodes.leaving == set()


STAYED = {"asked": 4, "last": None, "last_s": None, "stayed": [4, 5, 6]}


def test_a_report_names_who_left_last_and_who_stayed():
    asked = {"n1": {"asked": 4, "last": 2, "last_s": 20.1, "stayed": []}, "n2": STAYED}
    told = saving.lines(saving.joined({"signal": "USR1", "grace_s": 30}, asked, "a.pt", "b.pt"), True)
    assert told == [
        "time to save: 8 ranks handled SIGUSR1; the last to leave was rank 2 on n1, after 20.1 s; new checkpoint: b.pt",
        "ranks 4 to 6 on n2 did not leave within 30 s (job_stop_grace), and had to be ended",
    ]
    told = saving.lines(saving.joined({"signal": "TERM", "grace_s": 30}, {"n2": STAYED}, "a.pt", "a.pt"), True)
    assert told[0] == "time to save: 4 ranks handled SIGTERM; no new checkpoint"
    assert saving.lines(saving.joined({"signal": "TERM", "grace_s": 30}, {}, None, None), True) == []


@pytest.mark.parametrize("given", [{"stop_signal": "KILL"}, {"stop_grace": 3601}, {"stop_grace": -1}])
def test_wrong_settings_are_findings(given):
    assert [each.check for each in wrong(**given)] == [f"job_{next(iter(given))}"]


def test_operators_end_ranks_by_their_own_rules():
    given = {"stop_signal": "USR1", "stop_grace": 60, "nodes": 2}
    found = wrong(**given, scheduler="kubernetes", launcher="mpirun")
    assert {"job_stop_signal", "job_stop_grace"} <= {each.check for each in found}
    rules = "USR1 with an MPIJob, whose operator ends ranks by its own rules"
    assert rules in [each.found for each in found]
    image = {"image": "registry.example/torch:2"}
    assert make_job(**given, scheduler="kubernetes", launcher="direct", **image).stop == Stop("USR1", 60)
    assert make_job(**given, scheduler="slurm", launcher="msrun").stop == Stop("USR1", 60)


def test_settings_reach_the_nodes():
    assert make_job().stop == Stop("TERM", 30)
    assert make_job(stop_signal="USR1", stop_grace=5).stop == Stop("USR1", 5)
