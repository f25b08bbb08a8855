"""Launcher oneflow: the processes of each style, their environment, findings, and the exit of a rank."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.logs import failures
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import packed_runtime
from job_samples import VENV, briefly, make_job, make_plan, member, node_facts, planned, wrong

PROJECT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(PROJECT / "training/oneflow"))
from place import machines  # noqa: E402

JOB_DIR = "/var/lib/trainyard/jobs/digits-20261120-101500/hosts/@trainyard-host@"
# OneFlow fails with some of these without the others.
ITS_OWN = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"}
counts = st.integers(1, 8)


def oneflow_job(style="launch", **changes):
    return make_job(launcher="oneflow", oneflow_style=style, **changes)


@given(st.integers(1, 12), counts)
def test_its_launch_module_is_started_once_on_each_node(nodes, slots):
    plan = make_plan(oneflow_job(), [member(number, devices=slots) for number in range(nodes)]).as_dict()
    assert plan["rank_log"] == "rank_{rank}.log"
    for node in plan["nodes"]:
        (agent,) = node["processes"]
        assert (agent["name"], agent["ranks"]) == ("agent", node["ranks"])
        assert agent["log"] == f"{JOB_DIR}/logs/agent_{node['node_rank']}.log"
        assert " ".join(agent["argv"]) == (
            f"{VENV}/bin/python -m oneflow.distributed.launch --nnodes {nodes} --node_rank {node['node_rank']} "
            f"--nproc_per_node {slots} --master_addr 10.77.0.1 --master_port {plan['head']['port']} --no_python "
            f"{JOB_DIR}/oneflow_rank python train.py"
        )
        assert not ITS_OWN & agent["env"].keys()


@given(st.integers(1, 12), counts)
def test_a_script_that_configures_itself_is_started_once_on_each_node(nodes, slots):
    members = [member(number, devices=slots) for number in range(nodes)]
    plan = make_plan(oneflow_job("address_list"), members).as_dict()
    assert [file["path"].rpartition("/")[2] for file in plan["files"]] == ["hosts"]
    for number, node in enumerate(plan["nodes"]):
        (process,) = node["processes"]
        assert (process["ranks"], process["argv"]) == (node["ranks"], ["python", "train.py"])
        assert process["log"] == f"{JOB_DIR}/logs/rank_{node['ranks'][0]}.log"
        env = process["env"]
        assert {name: env[name] for name in env if name.startswith("ONEFLOW_")} == {
            # The first is the master.
            "ONEFLOW_MACHINES": ",".join(f"10.77.0.{each + 1}" for each in range(nodes)),
            "ONEFLOW_MACHINE_ID": str(number),
            "ONEFLOW_CTRL_PORT": str(plan["head"]["port"]),
            "ONEFLOW_DEVICE_NUM": str(slots),
        }
        assert not ITS_OWN & env.keys()


def test_the_guides_program_on_all_devices_of_two_nodes():
    given = yaml.safe_load((PROJECT / "jobs/oneflow-global-function.yml").read_text())
    job, findings = schedulers.parse(given)
    assert findings == []
    members = [member(number, devices=8, packages={"oneflow-cu102": "0.2.0"}) for number in range(2)]
    plan = make_plan(job, members, files=("oneflow/global_function.py",)).as_dict()
    for node in plan["nodes"]:
        (process,) = node["processes"]
        assert (process["ranks"], process["argv"][:2]) == (node["ranks"], ["python", "oneflow/global_function.py"])
        assert process["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
        # The script reads it as machine(), ctrl_port() and gpu_device_num().
        assert machines(process["env"]) == (["10.77.0.1", "10.77.0.2"], 9988, 8)


@pytest.mark.parametrize(
    ("style", "packages", "tried"),
    [
        ("address_list", {"oneflow-cu102": "0.2.0"}, True),
        ("address_list", {"oneflow": "0.4.0+cu102"}, True),
        # The release is unknown.
        ("address_list", {}, True),
        ("address_list", {"oneflow": "0.9.0"}, False),
        ("address_list", {"oneflow": "1.0.0+cu118"}, False),
        ("launch", {}, False),
    ],
)
def test_ssh_is_tried_where_a_release_may_log_in(style, packages, tried):
    job = oneflow_job(style, packages=list(packages))
    node_plans = make_plan(job, [member(number, packages=packages) for number in range(3)]).node_plans([])
    peers = [part["ssh_peers"] for part in node_plans.values()]
    both = [{"host": f"n{number}", "address": f"10.77.0.{number}"} for number in (2, 3)]
    assert peers == [both if tried else [], [], []]


def test_oneflow_needs_ipv4():
    facts = node_facts(0)
    facts["networks"]["interfaces"][0]["addresses"] = ["fd00::1/64"]
    members = [type(member())("n1", "fd00::1", facts, "", {})]
    assert briefly(planned(oneflow_job(), members)[1]) == [("n1", "network", "address fd00::1")]


def test_there_are_two_styles():
    (finding,) = wrong(launcher="oneflow", oneflow_style="ssh")
    assert (finding.check, finding.found) == ("job_oneflow_style", "'ssh'")
    assert finding.expected == "one of launch, address_list"


@pytest.mark.parametrize("name", ["ONEFLOW_MACHINES", "ONEFLOW_MACHINE_ID", "ONEFLOW_CTRL_PORT", "ONEFLOW_DEVICE_NUM"])
def test_a_job_file_sets_no_place_in_the_cluster(name):
    (finding,) = wrong(launcher="oneflow", env={name: "1"})
    assert (finding.check, finding.action) == ("job_env", f"remove {name} from job_env")


# ---- the start and the exit of a rank


@pytest.fixture
def start(tmp_path):
    """Start a rank as the launch module does, with the plan's own script, and return its status and stderr."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "trainyard.pyz").write_bytes(packed_runtime())
    file, _ = make_plan(oneflow_job(stop_grace=0), [member(0)]).as_dict()["files"]
    script = tmp_path / "oneflow_rank"
    script.write_text(
        file["content"].replace(JOB_DIR, str(tmp_path)).replace(f"{VENV}/bin/python", shlex.quote(sys.executable))
    )
    script.chmod(int(file["mode"], 8))

    def run(*command, rank=3):
        env = {"PATH": os.defpath, "RANK": str(rank), "TRAINYARD_JOB_DIR": str(tmp_path)}
        done = subprocess.run([script, *command], env=env, capture_output=True, text=True, timeout=240)
        return done.returncode, done.stderr

    return run


def test_a_rank_writes_its_own_log(start, tmp_path):
    assert start("sh", "-c", "echo $RANK trains; echo and warns >&2") == (0, "")
    assert (tmp_path / "logs/rank_3.log").read_text() == "3 trains\nand warns\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "by_signal"), [("exit 7", 7, None), ("kill -KILL $$", None, 9), ("kill -ABRT $$", None, 6)]
)
def test_a_rank_that_fails_is_named_in_the_log_of_the_launch_module(start, command, exit_code, by_signal):
    status, stderr = start("sh", "-c", f"ulimit -c 0; {command}")
    assert status == (exit_code or 128 + by_signal)
    # Lines of the launch module itself name no rank.
    cause = failures.root_cause(f"{stderr}Killing subprocess 4711\nKilling subprocess 4712\n")
    assert (cause["rank"], cause["exit_code"], cause["signal"]) == (3, exit_code, by_signal)
