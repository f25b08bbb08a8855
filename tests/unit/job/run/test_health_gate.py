"""The health check before a start and a restart, on captured machines with GPUs and on this one."""

import json
import os
import pwd
import subprocess

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.job.run.evidence import health_gate as gate
from ansible.module_utils.trainyard_node.job.run.monitor import restart_check
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.supervisor import OWN_CHILDREN, Supervisor
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import NODES, unfold
from job_cluster import free_port, wait_for
from job_samples import make_job, make_plan, member

VERIFY = NODES.parent / "verify"
ME = pwd.getpwuid(os.getuid()).pw_name
STAND_IN = NODES.parent / "nccl_tests/all_reduce_perf"


@pytest.fixture
def spec(tmp_path):
    """A part of a job on the captured machine gpu2, of which nothing is wrong."""
    return {"host": "n1", "job_dir": str(tmp_path / "jobs" / "x"), "min_disk_mib": 1, "min_memory_mib": 256,
            "devices": [0, 1], "interface": "ens6f0np0", "address": "10.20.0.1", "health_gate": True}  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    """Return a machine: gpu2 with the given trees over it."""

    def make(*over):
        folder = tmp_path / "-".join(("machine", *over))
        for name in ("gpu2", *over):
            unfold(name, folder, VERIFY)
        return Tree(str(folder))

    return make


def at_launch(tree, spec):
    facts = read_node(tree, packages=[], venv=None, user=None)
    return gate.check(tree, spec, facts)


def at_restart(tree, spec, earlier):
    return gate.check(tree, spec, gate.read_machine(tree, spec), gate.note(earlier, spec))


def test_a_sick_gpu_does_not_pass(machine, spec):
    well, sick = machine(), machine("gpu2_errors")
    assert at_launch(well, spec) == at_restart(well, spec, well) == []
    found = at_restart(sick, spec, well)
    assert at_launch(sick, spec) == found
    assert gate.texts(found) == [
        "GPU ECC errors: GPU 1: 2 uncorrected",
        "GPU remapped rows: GPU 1: remapping pending",
        "GPU throttling: GPU 1: hw_slowdown, hw_thermal_slowdown",
        "GPU PCIe width: GPU 1: x8 of x16",
        "GPU PCIe generation: GPU 1: generation 4 of 5",
        "GPU recovery action: GPU 1: recovery action: Reset",
        "GPU Xid: Xid 48 of 0000:43:00.0 2 times",
    ]
    assert all(finding.expected and finding.action.endswith(gate.SWITCH) for finding in found)
    assert {finding.check for finding in found} & gate.PASSING == {"GPU throttling"}
    # Its other GPU is as good as any, and so is a job without devices; Xids are the node's.
    assert gate.texts(at_launch(sick, {**spec, "devices": [0]})) == ["GPU Xid: Xid 48 of 0000:43:00.0 2 times"]
    assert at_launch(sick, {**spec, "devices": []}) == []
    assert gate.texts(at_launch(machine("gpu2_reset"), {**spec, "devices": [0, 1, 2]}))[0] == "GPUs: 2 of 3 answer"


def test_too_little_memory_and_a_network_that_is_gone(machine, spec):
    tree = machine()
    (tree.path("/proc/meminfo")).write_text("MemTotal: 1000000 kB\nMemAvailable:  204800 kB\n")
    (finding,) = at_launch(tree, spec)
    assert (finding.check, finding.found) == ("memory", "200 MiB available")
    assert finding.expected == "at least 256 MiB (job_min_memory_mib)"
    tree.path("/proc/meminfo").unlink()
    assert at_launch(tree, spec) == []
    addresses = tree.path("/commands/ip.address.out")
    up = addresses.read_text()
    addresses.write_text(up.replace("10.20.0.1", "10.20.0.9"))
    assert gate.texts(at_launch(tree, spec)) == ["network: 10.20.0.1: ens6f0np0 does not have it"]
    addresses.write_text(up.replace('"LOWER_UP"', '"NO-CARRIER"'))
    assert gate.texts(at_restart(tree, spec, tree)) == ["network: 10.20.0.1: ens6f0np0 is down"]


def test_a_port_that_has_worked_must_work_and_one_that_never_did_need_not(tmp_path, spec):
    spec = {**spec, "devices": [], "interface": "", "address": ""}
    well, down = (Tree(str(unfold("gpu8_infiniband", tmp_path / name))) for name in ("well", "down"))
    down.path("/sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    assert at_restart(down, spec, down) == at_launch(down, spec) == []
    (finding,) = at_restart(down, spec, well)
    assert (finding.check, finding.found[:13]) == ("RDMA ports", "mlx5_0:1 DOWN") and finding.check in gate.PASSING


def test_links_that_were_bad_since_the_attempt_began(machine, spec, monkeypatch):
    well, after = machine(), machine("gpu2_errors")
    before = gate.note(well, spec)
    assert gate.bad_links(before, before.links) == ""
    now = gate.links(after, spec, before.ports)
    lost = "ens6f0np0 lost its link 1 time, mlx5_0:1 lost its link 1 time"
    assert gate.bad_links(before, now) == f"{lost}, mlx5_0:1 symbol_error +4708 in 1 h"
    # As many in two days are what a good link may have; the next attempt begins with what there is now.
    monkeypatch.setattr(gate, "_now", lambda: before.at + 48 * 3600)
    assert gate.bad_links(before, now) == lost
    assert gate.bad_links(gate.later(before, now), now) == ""
    # One that cannot be read, or was not there, tells nothing.
    assert gate.bad_links(before, {**now, "ens6f0np0": {"carrier_down_count": None}, "mlx5_0:1": {}}) == ""
    assert gate.bad_links(before, {"mlx5_9:1": {"link_downed": 7}}) == ""


# ---- a small collective of the job's own GPUs


@pytest.fixture
def adds_up(spec):
    """A node plan whose all-reduce runs a fake that prints captured output of nccl-tests."""
    env = {"CUDA_VISIBLE_DEVICES": "0,1"}
    return {**spec, "job_id": "x", "local_collective": {"argv": [str(STAND_IN), "-b", "1K", "-g", "2"], "env": env}}


def test_gpus_that_add_up_right_pass_and_wrong_sums_name_gpus_and_command(adds_up):
    assert gate.collective_findings(adds_up) == []
    adds_up["local_collective"]["env"] |= {"NCCL_STAND_IN": "2.19-all_reduce-wrong.txt", "NCCL_STAND_IN_STATUS": "1"}
    (finding,) = gate.collective_findings(adds_up)
    wrong = "collective: all-reduce over GPUs 0,1: wrong results: 131072 elements at 1048576 bytes, and at 5 more"
    assert gate.texts([finding])[0].startswith(wrong)
    assert finding.expected == "right sums within 45 s"
    assert "run it there: env CUDA_VISIBLE_DEVICES=0,1 NCCL_STAND_IN=2.19-all_reduce-wrong.txt " in finding.action
    assert finding.action.endswith(f"{STAND_IN} -b 1K -g 2{gate.SWITCH}") and finding.check not in gate.PASSING


def test_nothing_is_run_beside_others_nor_where_nothing_is_to_be_run(adds_up, monkeypatch):
    asked = []
    monkeypatch.setattr(gate.collective_run, "run", lambda *given: asked.append(given))
    assert gate.collective_findings({**adds_up, "local_collective": {}}) == []
    monkeypatch.setattr(gate, "held", lambda devices, since: f"python has {devices} since {since}")
    assert gate.collective_findings(adds_up) == [] and asked == []
    monkeypatch.setattr(gate, "held", lambda *_: "")
    assert gate.collective_findings(adds_up, "owner") == []
    ((command, env, owner),) = asked
    assert (command, owner) == (adds_up["local_collective"], "owner")
    # Stopping the job ends it, and a restart does not take it for a rank.
    assert env == {"TRAINYARD_JOB_ID": "x", "TRAINYARD_OWN_TOOL": "1"}


# ---- the monitor's look, in its thread


def test_a_restart_has_gpus_add_up_once_on_a_node_that_passes_all_else(adds_up, monkeypatch, capsys):
    here = {**adds_up, "devices": [], "interface": "", "address": "", "min_memory_mib": 1 << 40}
    asked, faults = [], []
    monkeypatch.setattr(restart_check, "CHECK_S", 0)
    monkeypatch.setattr(gate, "collective_findings", lambda spec: asked.append(spec) or list(faults))
    watch, notified = restart_check.RestartCheck(here), []
    watch.notify = lambda: notified.append(True)
    found = result_of(watch)
    assert found.excluded.startswith("memory: ") and found.temporary and asked == [] and notified
    # A node without the health check is not checked.
    assert restart_check.RestartCheck({**here, "health_gate": False}).result() == restart_check.Obstacle()
    here["min_memory_mib"] = 0
    wait_for(lambda: result_of(watch) == restart_check.Obstacle(), "memory")
    assert asked == [here]
    faults += [Finding(host="n1", check="collective", found="no end", expected="", action="")]
    watch.forget()
    assert result_of(watch) == restart_check.Obstacle("", "collective: no end")
    wait_for(lambda: not watch.running, "another look")
    assert result_of(watch) == restart_check.Obstacle("", "collective: no end")
    assert asked == [here, here]
    # A check that breaks is printed and excludes no node.
    monkeypatch.setattr(gate, "read_machine", lambda *_: 1 / 0)
    assert result_of(restart_check.RestartCheck(here)) == restart_check.Obstacle()
    assert "the health check did not run: ZeroDivisionError" in capsys.readouterr().out


def result_of(watch):
    return wait_for(lambda: watch.result() and [watch.result()], "the gate")[0]


def test_a_check_before_a_restart_does_not_count_for_it(spec, monkeypatch):
    watch = restart_check.RestartCheck({**spec, "health_gate": False})
    answers = iter(["python (process 7)", ""])

    def slow(devices, since, **_):
        answer = next(answers)
        if answer:
            watch.forget()
        return answer

    monkeypatch.setattr(restart_check, "held", slow)
    assert watch.result() is None
    watch._thread.join()
    assert watch._found is None
    assert result_of(watch) == restart_check.Obstacle()


def test_the_exit_of_a_command_of_the_gate_is_not_reaped(tmp_path):
    supervisor = Supervisor(tmp_path, {"job_id": "x", "processes": []})
    with OWN_CHILDREN, subprocess.Popen(["sh", "-c", "exit 7"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        supervisor.exits()
        assert child.wait() == 7


# ---- the agent's look, at a launch


def test_gpus_add_up_before_a_job_starts(tmp_path, adds_up):
    wants = {"venv": None, "packages": [], "mpi_prefix": "", "user": ME}
    known = agent.probe(**wants)["node"]
    sums = adds_up["local_collective"]
    sums["env"] |= {"NCCL_STAND_IN": "2.19-all_reduce-wrong.txt", "NCCL_STAND_IN_STATUS": "1"}
    part = make_plan(make_job(), [member(0, devices=2)]).node_plans([])["n1"]
    part = {**part, "fingerprint": known["fingerprint"], "packages": [], "program": "true", "program_path": os.defpath,
            "port": free_port(), "monitor_port": free_port(), "head_address": "127.0.0.1", "interface": "", "venv": "",
            "job_dir": str(tmp_path / "jobs" / "x"), "min_disk_mib": 0, "local_collective": sums}  # fmt: skip

    def look(**other):
        """As the controller takes it."""
        return checked("preflight", json.loads(json.dumps(agent.preflight(node_plan={**part, **other}, **wants))), "n1")

    found = look()
    assert [each["check"] for each in found["findings"]] == ["collective"]
    assert found["unhealthy"][0].startswith("collective: all-reduce over GPUs 0,1: wrong results: ")
    for other in ({"health_gate": False}, {"fingerprint": "of before"}):
        assert look(**other)["unhealthy"] is None, other
    assert look(local_collective={})["unhealthy"] == []
    # A limit that no node could meet is a typo, and no reason to keep this node out of later jobs.
    absurd = look(min_memory_mib=1 << 40, min_disk_mib=1 << 40)
    assert [each["check"] for each in absurd["findings"]] == ["job_min_memory_mib", "job_min_disk_mib"]
    assert absurd["findings"][0]["found"].startswith(f"{1 << 40} MiB, and this node has ")
    assert absurd["unhealthy"] is None
    # Another job has them.
    there = tmp_path / "jobs" / "y"
    there.mkdir(parents=True)
    write_json(there / "node_plan.json", {"devices": [1], "node_rank": 1})
    write_json(there / "monitor.json", {"pid": os.getpid(), "start_time": process_table.start_time(os.getpid())})
    found = look()
    assert ([each["check"] for each in found["findings"]], found["unhealthy"]) == (["job_busy_devices"], None)
