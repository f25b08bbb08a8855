"""The command of a job: a launcher inside the job's own, and text that only a shell would understand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file import command
from ansible.module_utils.trainyard.job.file import launcher_programs as starters
from ansible.module_utils.trainyard.job.launchers import LAUNCHERS
from hypothesis import given
from hypothesis import strategies as st
from job_samples import job_file, make_job, make_plan, member, wrong

PROJECT = Path(__file__).resolve().parents[4]

TWICE = "one start of the ranks: with two, each rank is a world of its own and trains alone"
WORDS = "the words of one program, each an item of its own: no shell reads job_command"
DOCUMENTED = "(docs/job-file.md, A launcher of your own)"


# What Lightning's connector of Fabric reads.
FABRIC = "LT_CLI_USED=1 LT_DEVICES=$LOCAL_WORLD_SIZE LT_NUM_NODES=$GROUP_WORLD_SIZE"


def instead(words):
    """The command without the launcher inside it, and what that is called; both None where there is none."""
    found = starters.find(words)
    return (found and found.called, found and found.instead and list(found.instead))


@pytest.mark.parametrize(
    ("words", "called", "expected"),
    [
        ("torchrun --nproc-per-node=2 train.py --lr=1", "torchrun", "python train.py --lr=1"),
        ("torchrun --nproc_per_node 2 --standalone train.py", "torchrun", "python train.py"),
        ("/opt/v/bin/torchrun -m pkg.train --lr 0.1", "torchrun", "/opt/v/bin/python -m pkg.train --lr 0.1"),
        ("torchrun --no-python ./train", "torchrun", "./train"),
        ("python3 -u -m torch.distributed.run --nnodes 1 t.py", "python -m torch.distributed.run", "python3 -u t.py"),
        ("python -um torch.distributed.launch t.py", "python -m torch.distributed.launch", "python -u t.py"),
        ("python /usr/bin/torchrun t.py", "torchrun", "python t.py"),
        ("env A=1 -u B mpirun -np 4 --mca btl tcp,self python t.py", "mpirun", "env A=1 -u B python t.py"),
        ("mpiexec -n 2 -- ./a.out 7", "mpiexec", "./a.out 7"),
        ("mpirun -n 2 a : -n 2 b", "mpirun", None),
        ("srun -n2 --mpi=pmix python t.py", "srun", "python t.py"),
        # One inside the other: neither is left.
        ("srun -N1 torchrun t.py", "srun", "python t.py"),
        ("horovodrun -np 4 -H localhost:4 python t.py", "horovodrun", "python t.py"),
        ("accelerate launch --multi_gpu --num_processes 2 t.py", "accelerate launch", "python t.py"),
        ("accelerate launch --mixed_precision fp16 --use_fsdp t.py", "accelerate launch", "python t.py"),
        # A file of settings is not read, and whether an unknown option takes a word is not known.
        ("accelerate launch --config_file=a.yaml -m pkg --lr 1", "accelerate launch", None),
        ("accelerate launch --tpu t.py", "accelerate launch", None),
        (
            "fabric run --strategy=ddp --devices=2 t.py --precision bf16-mixed --lr 0.1 --lr-decay",
            "fabric run",
            f"env {FABRIC} LT_STRATEGY=ddp LT_PRECISION=bf16-mixed python t.py --lr 0.1 --lr-decay",
        ),
        ("lightning run model --devices 2 t.py", "lightning run model", f"env {FABRIC} python t.py"),
        ("composer -n 2 --world_size 4 t.py", "composer", "env NODE_RANK=$GROUP_RANK python t.py"),
        ("composer -c -n2 ./t", "composer", "env NODE_RANK=$GROUP_RANK ./t"),
        ("colossalai run --nproc_per_node 2 --host a,b t.py --lr 1", "colossalai run", "python t.py --lr 1"),
        ("ds --num_gpus=8 t.py", "ds", "python t.py"),
        # Programs that find their other ranks by what their launcher tells them.
        ("python -m paddle.distributed.launch --nnodes=2 t.py", "python -m paddle.distributed.launch", None),
        ("fleetrun t.py", "fleetrun", None),
        ("ray job submit --address http://head:8265 -- python t.py", "ray job submit", None),
        ("accelerate-launch t.py", "accelerate-launch", "python t.py"),
        ("deepspeed --num_gpus=8 t.py --deepspeed ds.json", "deepspeed", "python t.py --deepspeed ds.json"),
        ("msrun --worker_num=8 --local_worker_num=8 t.py", "msrun", "python t.py"),
        ("msrun --worker_num 8 python t.py", "msrun", "python t.py"),
        (
            "numactl --cpunodebind=0 python -m oneflow.distributed.launch --nproc_per_node 2 t.py",
            "python -m oneflow.distributed.launch",
            "numactl --cpunodebind=0 python t.py",
        ),
        ("nice -n 5 torchrun t.py", "torchrun", "nice -n 5 python t.py"),
        ("conda run -n ml torchrun t.py", "torchrun", "conda run -n ml python t.py"),
        ("bash -lc 'torchrun --nproc-per-node=2 t.py'", "torchrun", "python t.py"),
        ("env X=1 sh -c 'torchrun t.py'", "torchrun", "env X=1 python t.py"),
        (
            "bash -c 'source env.sh && exec torchrun t.py --lr=1'",
            "torchrun",
            "bash -c 'source env.sh && exec python t.py --lr=1'",
        ),
        ("bash -euo pipefail -c 'cd x\nOMP_NUM_THREADS=1 torchrun $OPTS t.py'", "torchrun", None),
        # A program, a script or an argument that is only called like one.
        ("python my_torchrun_like.py torchrun", None, None),
        ("./mpirun.sh", None, None),
        ("bash run.sh torchrun", None, None),
        ("python -c 'import torchrun'", None, None),
        ("python -m torch.distributed.runner t.py", None, None),
        ("python train.py --launcher mpirun", None, None),
        ("env A=1 ./submit mpirun", None, None),
        ("bash -c 'echo torchrun'", None, None),
        ("accelerate env", None, None),
        ("fabric consolidate checkpoint", None, None),
        ("ray start --head", None, None),
        ('bash -c "don\'t"', None, None),
        ("env", None, None),
        ("python", None, None),
        ("bash -c", None, None),
        ("torchrun", "torchrun", None),
        ("python -m", None, None),
    ],
)
def test_a_launcher_in_a_command_and_the_command_without_it(words, called, expected):
    assert instead(shlex.split(words)) == (called, None if expected is None else shlex.split(expected))


@pytest.mark.parametrize("launcher", sorted(set(LAUNCHERS) - {"direct"}))
def test_a_launcher_inside_a_launcher_is_refused_with_the_command_as_it_should_be(launcher):
    (finding,) = wrong(launcher=launcher, command=["torchrun", "--nproc-per-node=2", "train.py", "--lr=1"])
    assert finding.as_dict() == {
        "host": "",
        "check": "job_command",
        "found": f"torchrun inside job_launcher: {launcher}, which starts the ranks itself",
        "expected": TWICE,
        "action": "write job_command: [python, train.py, --lr=1] and job_ranks_per_node: 2; to keep torchrun, "
        f"job_launcher: direct with job_ranks_per_node: 1 {DOCUMENTED}",
    }


@pytest.mark.parametrize(
    ("scheduler", "launcher"),
    [
        (name, launcher)
        for name in schedulers.SCHEDULERS
        for launcher in schedulers.SCHEDULERS[name].LAUNCHERS
        if launcher != "direct"
    ],
)
def test_the_same_holds_with_each_scheduler(scheduler, launcher):
    given = job_file(scheduler=scheduler, launcher=launcher, command=["mpirun", "-n", "2", "python", "train.py"])
    job, (finding,) = schedulers.parse(given)
    assert job is None and finding.found == f"mpirun inside job_launcher: {launcher}, which starts the ranks itself"
    where = "" if launcher == "mpirun" else " and job_launcher: mpirun"
    assert finding.action == (
        f"write job_command: [python, train.py]{where}; to keep mpirun, job_launcher: direct with "
        f"job_ranks_per_node: 1 and job_nodes: 1 {DOCUMENTED}"
    )


MEET = "--nnodes=$NNODES --rank=$NODE_RANK --master=$MASTER_ADDR:$MASTER_PORT"


@pytest.mark.parametrize(
    ("changes", "found", "action"),
    [
        (
            {"command": ["fabric", "run", "--strategy=ddp", "--devices=2", "t.py", "--lr=1"]},
            "fabric run inside job_launcher: torchrun, which starts the ranks itself",
            f"""write job_command: [bash, -c, 'env LT_CLI_USED=1 "LT_DEVICES=$LOCAL_WORLD_SIZE" """
            """"LT_NUM_NODES=$GROUP_WORLD_SIZE" LT_STRATEGY=ddp python t.py --lr=1'] and job_ranks_per_node: 2; """
            f"to keep fabric run, job_launcher: direct with job_ranks_per_node: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["bash", "-c", "cd x && fabric run --devices=2 t.py"], "launcher": "direct"},
            "fabric run in each process of job_launcher: direct, and so several on a node",
            f'write job_command: [bash, -c, "cd x && env {FABRIC} python t.py"], job_launcher: torchrun and '
            f"job_ranks_per_node: 2; to keep fabric run, job_ranks_per_node: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["msrun", "--local_worker_num=2", "t.py"]},
            "msrun inside job_launcher: torchrun, which starts the ranks itself",
            "write job_command: [python, t.py], job_launcher: msrun and job_ranks_per_node: 2; to keep msrun, "
            f"job_launcher: direct with job_ranks_per_node: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["python", "-m", "paddle.distributed.launch", "--devices=0,1", "--nnodes=1", "t.py"]},
            "python -m paddle.distributed.launch inside job_launcher: torchrun, which starts the ranks itself",
            f"write job_command: [bash, -c, 'python -m paddle.distributed.launch \"--nnodes=$NNODES\" "
            '"--rank=$NODE_RANK" "--master=$MASTER_ADDR:$MASTER_PORT" --devices=0,1 t.py\'], job_launcher: direct and '
            f"job_ranks_per_node: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["accelerate", "launch", "--tpu", "--num_machines=1", "t.py"]},
            "accelerate launch inside job_launcher: torchrun, which starts the ranks itself",
            """write job_command: [bash, -c, 'accelerate launch "--num_machines=$NNODES" "--machine_rank=$NODE_RANK" """
            """"--main_process_ip=$MASTER_ADDR" "--main_process_port=$MASTER_PORT" --tpu t.py'], """
            f"job_launcher: direct and job_ranks_per_node: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["ray", "job", "submit", "--", "python", "t.py"]},
            "ray job submit inside job_launcher: torchrun, which starts the ranks itself",
            f"write job_launcher: direct with job_ranks_per_node: 1 and job_nodes: 1 {DOCUMENTED}",
        ),
        (
            {"command": ["torchrun", "--nnodes=1", "t.py"], "launcher": "direct", "ranks_per_node": 1},
            "torchrun with --nnodes 1 on each node of job_launcher: direct",
            "write job_command: [python, t.py]; to keep torchrun, give it --nnodes, or set job_nodes: 1 "
            f"{DOCUMENTED}",
        ),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_a_launcher_runs_the_same(changes, found, action):
    (finding,) = wrong(**changes)
    assert (finding.found, finding.action) == (found, action)
    # What is to be written is a job, and no finding.
    written = re.split("; to keep | [(]docs", action.removeprefix("write "))[0].replace(" with job_", " and job_")
    settings = dict(re.findall(r"job_(\w+): (\[.*\]|\S+?)(?=, job_| and job_|$)", written))
    make_job(**{**changes, "nodes": 1, **{name: yaml.safe_load(value) for name, value in settings.items()}})


OWN = ["torchrun", "--nproc-per-node=2", "--nnodes=2", "train.py"]


@pytest.mark.parametrize(
    "changes",
    [
        {"command": OWN},
        {"command": ["bash", "-c", "exec torchrun --nnodes=2 --node-rank=$RANK train.py"]},
        {"command": ["torchrun", "train.py"], "nodes": 1},
        {"command": ["torchrun", "train.py"], "nodes": "1"},
        {"command": ["torchrun", "train.py"], "env": {"PET_NNODES": 2}},
        {"command": ["mpirun", "-n", "2", "./a.out"], "nodes": 1},
    ],
)
def test_one_on_each_node_is_allowed_where_it_knows_of_the_others(changes):
    assert make_job(launcher="direct", ranks_per_node=1, **changes).command == tuple(changes["command"])


def test_the_documented_launcher_of_ones_own_is_a_job():
    text = (PROJECT / "docs/job-file.md").read_text().partition("## A launcher of your own")[2]
    given = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    plan = make_plan(make_job(**{key.removeprefix("job_"): value for key, value in given.items()}),
                     [member(0, devices=4), member(1, devices=4)])  # fmt: skip
    planned = [process for host in ("n1", "n2") for process in plan.processes[host]]
    assert [process.name for process in planned] == ["rank0", "rank1"]
    assert {process.env["CUDA_VISIBLE_DEVICES"] for process in planned} == {"0,1,2,3"}


@pytest.mark.parametrize(
    ("changes", "found", "keep"),
    [
        (
            {"command": OWN},
            "torchrun in each process of job_launcher: direct, and so several on a node",
            "to keep torchrun, job_ranks_per_node: 1",
        ),
        (
            {"command": OWN, "ranks_per_node": 2},
            "torchrun in each process of job_launcher: direct, and so several on a node",
            "to keep torchrun, job_ranks_per_node: 1",
        ),
        (
            {"command": ["torchrun", "train.py"], "ranks_per_node": 1},
            "torchrun without --nnodes on each node of job_launcher: direct",
            "to keep torchrun, give it --nnodes, or set job_nodes: 1",
        ),
        (
            {"command": ["mpirun", "./a.out"], "ranks_per_node": 1, "nodes": 2},
            "mpirun on each node of job_launcher: direct, and each would start ranks on all hosts",
            "to keep mpirun, job_nodes: 1",
        ),
    ],
)
def test_otherwise_it_is_refused_under_direct_too(changes, found, keep):
    (finding,) = wrong(launcher="direct", **changes)
    assert (finding.found, finding.expected) == (found, TWICE) and finding.action.endswith(f"; {keep} {DOCUMENTED}")


@pytest.mark.parametrize(
    ("words", "found", "written"),
    [
        (
            ["python train.py --lr 1"],
            "several words in one item, 'python train.py --lr 1'",
            "[python, train.py, --lr, 1]",
        ),
        (["python train.py", "--lr", "0.10"], "several words in one item, 'python train.py'",
         '[python, train.py, --lr, "0.10"]'),
        (["python", "train.py", "--lr 1"], "several words in one item, '--lr 1'", "[python, train.py, --lr, 1]"),
        (
            ["cd x && python train.py"],
            "a line of shell in one item, 'cd x && python train.py'",
            '[bash, -c, "cd x && python train.py"]',
        ),
        (
            ["cd", "x", "&&", "python", "train.py"],
            "&&, which only a shell understands",
            '[bash, -c, "cd x && python train.py"]',
        ),
        (
            ["python", "train.py", "--out=$HOME/x"],
            "'--out=$HOME/x', where only a shell puts a value for $HOME",
            "[bash, -c, 'python train.py \"--out=$HOME/x\"']",
        ),
        (
            ["python", "train.py", "--name=$(date +%s)"],
            "'--name=$(date +%s)', where only a shell puts a value for $(date +%s)",
            "[bash, -c, 'python train.py \"--name=$(date +%s)\"']",
        ),
        (["python", "train.py", ">", "log"], ">, which only a shell understands",
         '[bash, -c, "python train.py > log"]'),
    ],
)  # fmt: skip
def test_what_only_a_shell_would_understand_is_said_with_the_list_to_write(words, found, written):
    (finding,) = wrong(command=words)
    assert (finding.check, finding.found, finding.expected) == ("job_command", found, WORDS)
    assert finding.action == f"write job_command: {written}"
    # What is to be written is what a job file then says, and no finding.
    make_job(command=yaml.safe_load(written))


def test_a_line_of_shell_names_no_script_of_the_source():
    text = "cd sub && exec python train.py"
    make_plan(make_job(command=["bash", "-c", text]), [member(0)], files=("sub/train.py",))
    assert command.scripts(["bash", "/srv/run.sh", "-c", f"/opt/{text}", "--script=x.py"]) == [
        "/srv/run.sh", "--script=x.py",
    ]  # fmt: skip


def test_a_line_of_shell_with_a_launcher_is_said_to_have_one():
    (finding,) = wrong(command=["torchrun --nproc-per-node 2 train.py"])
    assert finding.found.startswith("torchrun inside job_launcher: torchrun")
    assert finding.action.startswith("write job_command: [python, train.py] and job_ranks_per_node: 2; ")


@pytest.mark.parametrize(
    "words",
    [
        ["bash", "-c", "cd x && exec python train.py --out=$HOME/x > log"],
        ["python", "-c", "import os; print('$HOME', 1 > 0)"],
        ["python", "train.py", "--separator", ";", "--prompt", "a b", "--extra", "--lr 1"],
        # Another program's own variables: those of Hydra, and of Kubernetes.
        ["python", "train.py", "out=${data.root}/x", "--name=$(POD_NAME)", "--price=5$", "^a|b$"],
    ],
)
def test_words_that_only_look_like_shell_are_left(words):
    assert make_job(command=words).command == tuple(words)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_a_list_is_read_as_it_was_written(words):
    assert [str(word) for word in yaml.safe_load(command.as_list(words))] == words


pieces = st.sampled_from([
    "torchrun", "mpirun", "env", "bash", "-c", "python", "-m", "torch.distributed.run", "A=1", "nice", "-n2", "--", "'",
    "accelerate", "launch", "torchrun x", "a && b", "$HOME", ":", "", " ", "-", "srun", "--nnodes", "\n",
])  # fmt: skip


@given(st.lists(pieces, min_size=1, max_size=6))
def test_any_words_are_judged(words):
    for finding in command.findings(words, "torchrun", None, 0, {}):
        assert finding.check == "job_command" and finding.found and finding.expected and finding.action


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["python", "-m", "pytest", "-s", "-v", "file.py"], "pytest"),
        (["/opt/venv/bin/python3.11", "-u", "-m", "pytest.__main__"], "pytest"),
        (["python", "-m", "mine.train"], ""),
        (["python", "-m", "single"], ""),
        (["python", "train.py", "-m", "resnet"], ""),
        (["pytest", "-m", "slow"], ""),
        (["python", "-c", "pass"], ""),
    ],
)
def test_the_package_that_python_is_to_run_as_a_module(words, package):
    assert command.module_of(words, ["mine/train.py", "single.py"]) == package


def test_each_node_is_told_what_starts_the_ranks():
    starters_of = {
        "torchrun": "torch",
        "msrun": "mindspore.parallel.cluster.run",
        "oneflow": "oneflow",
        "direct": "",
        "mindspore": "",
    }
    for launcher, starter in starters_of.items():
        node_plans = make_plan(make_job(launcher=launcher), [member(0), member(1)]).node_plans([])
        assert {part["starter"] for part in node_plans.values()} == {starter}
    alone = make_job(launcher="oneflow", oneflow_style="address_list")
    assert make_plan(alone, [member(0)]).node_plans([])["n1"]["starter"] == ""
