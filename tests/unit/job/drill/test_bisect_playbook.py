"""playbooks/bisect.yml on simulated nodes: the agent's answers are made up, all of the controller is real."""

import json
import os
import signal

import pytest
from ansible_run import PROJECT
from job_cluster import PATIENCE_S, wait_for
from test_interrupts import play

# n3 fails, with what `fault` adds to the state of a job; the answers are kept in the file `asked`.
NODES = """
import base64, json, sys, time
sys.path.insert(0, {tests!r})
from job_samples import node_facts
from ansible.module_utils.trainyard_controller.nodes.fan_out import FanOut
FACTS = {{"boot_id": None, "container": None, "npu": None, "fingerprint": "a"}}

def ended(own, host):
    fails, at = "n3" in own, time.time()
    state = {{"started": at, "elapsed_s": 9.0, "world_size": len(own), "ranks_running": 0, "head": host, "term": 0,
             "metrics": {{"step": 9.0}}, "restarts": {{"history": []}}}}
    state["end"] = {{"state": "succeeded", "finished": at}}
    if fails:
        fault = {fault}
        state["end"] |= fault.pop("end", {{}})
        state |= fault
    seconds = {slower} if fails else 1.0
    lines = [json.dumps({{"step": float(step), "elapsed_s": step * seconds}}) for step in range(1, 9)]
    return {{"known": True, "monitor_alive": False, "processes": [], "left": 0, "changed": False,
            "monitor": {{"started": at, "end": state["end"]}}, "cluster": state if host == next(iter(own)) else None,
            "logs": {{"metrics.jsonl": base64.b64encode(chr(10).join(lines).encode()).decode()}}}}

def ask(self, question, own, shared=None, limit_s=0.0):
    with open({asked!r}, "a") as file:
        print(question, *own, file=file)
    made = {{"preflight": {{"findings": [], "programs": {{}}, "stale": False}}, "forget_tokens": {{"left": []}}}}
    if question == "state" and {running} is not None:
        time.sleep(0.2)
        return {{host: {{"known": True, "monitor_alive": True,
                        "cluster": {{"head": host, "term": 0, "end": None, **{running}}},
                        "monitor": None, "processes": [], "left": 1, "line": "", "state": "running"}} for host in own}}
    return {{host: {{"node": {{**node_facts(int(host[1:]) - 1), **FACTS}}}} if question == "probe"
            else made.get(question) or ended(own, host) for host in own}}
FanOut.ask = ask
"""


@pytest.fixture
def bisect(tmp_path):
    """Start a search with a fault; keywords are variables. Call it with the exit status and what it prints at least."""

    def start(fault, *options, slower=1.0, running=None, **variables):
        here = {"ansible_connection": "local", "trainyard_become": False, "trainyard_user": "train"}
        hosts = {f"n{number}": {**here, "ansible_host": f"10.77.0.{number}"} for number in range(1, 5)}
        (tmp_path / "hosts.json").write_text(json.dumps({"compute": {"hosts": hosts}}))
        job = {
            **{"job_name": "mine", "job_launcher": "direct", "job_command": ["python3", "train.py", "/shared/mine"]},
            **{"job_checkpoints": "/shared/mine", "job_venv": "", "job_packages": [], "job_devices": "none"},
            **{"job_source": str(PROJECT / "tests/fixtures/drill"), "trainyard_runs": str(tmp_path / "runs")},
        }
        facts = {"tests": str(PROJECT / "tests/unit"), "asked": str(tmp_path / "asked"), "running": running}
        patch, screen = NODES.format(fault=fault, slower=slower, **facts), tmp_path / "screen"
        command = play("playbooks/bisect.yml", tmp_path / "hosts.json", screen, job | variables, *options, patch=patch)

        def expect(status, *facts):
            found, text = command.wait(2 * PATIENCE_S), screen.read_text()
            assert (found, [fact for fact in facts if fact not in " ".join(text.split())]) == (status, []), text

        expect.command = command
        return expect

    return start


CRASH = {"end": {"state": "failed", "failure": {"kind": "gone", "host": "n3", "reason": "x"}}}
NAN = {**{name: {"step": 2.0} for name in ("since", "first", "last")}, "stretches": 1, "steps": 7.0}


@pytest.mark.parametrize(
    ("fault", "slower", "said"),
    [
        pytest.param(CRASH, 1.0, "crashes", marks=pytest.mark.long),
        pytest.param({"loss_not_a_number": NAN}, 1.0, "has no loss that is a number", marks=pytest.mark.long),
        ({}, 2.0, "is slow"),
    ],
)
def test_the_faulty_node_is_named(bisect, tmp_path, fault, slower, said):
    done = bisect(fault, slower=slower)
    done(2, "Round 1: on n1 to n4 it", f"{said} with n3 (", "and passes without (", "--limit n3,localhost")
    [record] = (tmp_path / "runs").glob("*/bisect.json")
    found = json.loads(record.read_text())
    assert found["hosts"] == ["n3"] and max(each["round"] for each in found["runs"]) <= 4
    # Each run has a folder of its own in the place of the job's, and none stays.
    plans = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/plan.json")]
    assert len({plan["checkpoints"] for plan in plans}) == len(plans) == len(found["runs"])
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-1] == "remove_folder n1 n2 n3 n4" and sum(each.startswith("collect") for each in asked) == len(plans)


@pytest.mark.long
def test_a_run_without_a_loss_is_not_waited_for(bisect):
    """No run ends by itself: the search ends each as soon as its loss is lost."""
    lost = {"loss_not_a_number": {**NAN, "last": {"step": 12.0}}}
    bisect({**lost, "end": {"state": "stopped"}}, running=lost)(2, "has no loss that is a number with n3 (", "Round 4")


def test_a_job_that_cannot_be_searched_starts_nothing(bisect, tmp_path):
    done = bisect(CRASH, job_scheduler="slurm", job_checkpoints="/other", bisect_timeout=0)
    done(2, "3 findings: no run can find", "job_scheduler", "neither job_command nor", "bisect_timeout")
    assert not (tmp_path / "runs").exists()


def test_check_shows_the_plan_of_the_first_run(bisect, tmp_path):
    bisect(CRASH, "--check")(0, "/shared/mine.drill-")
    assert "start" not in (tmp_path / "asked").read_text().split() and "Round" not in (tmp_path / "screen").read_text()


def test_an_interrupted_search_ends_its_runs(bisect, tmp_path):
    done, asked = bisect(CRASH, running={}), tmp_path / "asked"
    wait_for(lambda: asked.exists() and "\nstate " in asked.read_text(), "the watch of the first run")
    os.killpg(done.command.pid, signal.SIGINT)
    done(130, "Interrupted: all runs of the job have ended")
    assert [line.split()[0] for line in asked.read_text().splitlines()][-2:] == ["collect", "remove_folder"]
