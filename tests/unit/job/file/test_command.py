"""The command of a job: a launcher inside the job's own, and text that only a shell would understand."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file import job_command, launcher_programs
from ansible.module_utils.trainyard.job.launchers import LAUNCHERS
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, wrong

PROJECT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("words", "called"),
    [
        ("torchrun --nproc-per-node=2 train.py", "torchrun"),
        ("/opt/v/bin/torchrun -m pkg.train", "torchrun"),
        ("python3 -u -m torch.distributed.run --nnodes 1 t.py", "python -m torch.distributed.run"),
        ("python -um torch.distributed.launch t.py", "python -m torch.distributed.launch"),
        ("python -X dev /usr/bin/torchrun t.py", "torchrun"),
        ("env A=1 -u B mpirun -np 4 python t.py", "mpirun"),
        ("srun -N1 torchrun t.py", "srun"),
        ("horovodrun -np 4 python t.py", "horovodrun"),
        ("accelerate launch --num_processes 2 t.py", "accelerate launch"),
        ("lightning run model --devices 2 t.py", "lightning run"),
        ("colossalai run --nproc_per_node 2 t.py", "colossalai run"),
        ("python -m paddle.distributed.launch t.py", "python -m paddle.distributed.launch"),
        ("ray job submit -- python t.py", "ray job submit"),
        ("deepspeed --num_gpus=8 t.py", "deepspeed"),
        ("msrun --worker_num 8 python t.py", "msrun"),
        ("numactl --cpunodebind=0 python -m oneflow.distributed.launch t.py", "python -m oneflow.distributed.launch"),
        ("nice -n 5 torchrun t.py", "torchrun"),
        ("conda run -n ml torchrun t.py", "torchrun"),
        ("llamafactory-cli train run.yaml", "llamafactory-cli train"),
        ("sbatch job.sh", "sbatch"),
    ],
)
def test_launchers_in_a_command(words, called):
    assert launcher_programs.find(shlex.split(words)).called == called


@pytest.mark.parametrize(
    "words",
    [
        *("python my_torchrun_like.py torchrun", "./mpirun.sh", "bash run.sh torchrun", "python -c 'import torchrun'"),
        *("python train.py --launcher mpirun", "env A=1 ./submit mpirun", "bash -c 'echo torchrun'", "accelerate env"),
        *(
            "ray start --head",
            "bash -c 'torchrun t.py'",
            "env " * 5000,
            "bash -c",
            "python -m",
            "llamafactory-cli export",
        ),
    ],
)
def test_other_programs_scripts_and_arguments_with_the_name_of_a_launcher(words):
    assert launcher_programs.find(shlex.split(words)) is None


ALONE = "write the script alone in job_command"


@pytest.mark.parametrize(
    "changes",
    [
        *({"launcher": name} for name in sorted(set(LAUNCHERS) - {"direct"})),
        *({"scheduler": name, "launcher": "torchrun"} for name in schedulers.SCHEDULERS),
    ],
)
def test_a_launcher_inside_a_launcher_is_a_finding(changes):
    (finding,) = wrong(command=["mpirun", "-n", "2", "python", "train.py"], **changes)
    assert finding.check == "job_command"
    assert finding.found.startswith(f"mpirun inside job_launcher: {changes['launcher']}")
    assert finding.action.startswith(ALONE) and "with job_launcher: mpirun" in finding.action
    assert "job_nodes: 1" in finding.action


def test_ranks_that_only_their_own_launcher_joins_keep_it():
    (finding,) = wrong(command=["ray", "job", "submit", "--", "python", "t.py"])
    assert finding.action.startswith("set job_launcher: direct, job_nodes: 1 (docs")


def test_a_job_that_only_submits_to_slurm_is_a_finding():
    for changes in ({}, {"launcher": "direct", "nodes": 1}):
        (finding,) = wrong(command=["sbatch", "job.sh"], **changes)
        assert finding.found.startswith("sbatch, which puts a job into Slurm's queue") and "slurm" in finding.action


OWN = ["torchrun", "--nproc-per-node=2", "--nnodes=2", "train.py"]


@pytest.mark.parametrize(
    "changes",
    [
        {"command": OWN},
        {"command": ["bash", "-c", "exec torchrun --nnodes=2 --node-rank=$RANK train.py"]},
        {"command": ["torchrun", "train.py"], "nodes": 1},
        {"command": ["torchrun", "train.py"], "nodes": "1"},
        {"command": ["torchrun", "train.py"], "env": {"PET_NNODES": 2}},
        {"command": ["torchrun", "train.py"], "env": {"NNODES": 1}},
        {"command": ["llamafactory-cli", "train", "run.yaml"]},
        {"command": ["deepspeed", "--node_rank", "1", "train.py"]},
        {"command": ["accelerate", "launch", "--num-machines=2", "train.py"]},
        {"command": ["mpirun", "-n", "2", "./a.out"], "nodes": 1},
    ],
)
def test_under_direct_a_launcher_that_knows_the_other_nodes_is_allowed(changes):
    for ranks in (1, "auto", "node"):
        plan = make_plan(make_job(launcher="direct", ranks_per_node=ranks, **changes), [member(0, devices=4)])
        ((process,),) = plan.processes.values()
        assert process.argv == tuple(changes["command"]) and process.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_the_documented_launcher_of_ones_own_is_a_job():
    text = (PROJECT / "docs/job-file.md").read_text().partition("## A launcher of your own")[2]
    given = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    members = [member(0, devices=4), member(1, devices=4)]
    plan = make_plan(make_job(**{key.removeprefix("job_"): value for key, value in given.items()}), members)
    planned = [process for host in ("n1", "n2") for process in plan.processes[host]]
    assert [process.name for process in planned] == ["rank0", "rank1"]
    assert {process.env["CUDA_VISIBLE_DEVICES"] for process in planned} == {"0,1,2,3"}


ALONE_EACH = "job_nodes: 1; or job_env: {NNODES: 1} if each node is to train alone"


@pytest.mark.parametrize(
    ("changes", "found", "keep"),
    [
        ({"command": OWN, "ranks_per_node": 2}, "in each process of job_launcher: direct", "job_ranks_per_node: node"),
        ({"command": ["torchrun", "train.py"], "ranks_per_node": 1}, "torchrun without --nnodes on", ALONE_EACH),
        # deepspeed knows no --node-rank.
        ({"command": ["deepspeed", "t.py"]}, "deepspeed without --node_rank on", ALONE_EACH),
        (
            {"command": ["torchrun", "--nnodes=1", "t.py"], "ranks_per_node": 1},
            "torchrun without --nnodes on",
            ALONE_EACH,
        ),
        ({"command": ["mpirun", "./a.out"], "ranks_per_node": 1, "nodes": 2}, "start ranks on all hosts", "nodes: 1"),
    ],
)
def test_under_direct_a_launcher_must_be_alone_on_its_node_and_know_the_others(changes, found, keep):
    (finding,) = wrong(launcher="direct", **changes)
    assert found in finding.found
    assert finding.action.endswith(f"{keep} (docs/job-file.md, A launcher of your own)")


def test_one_copy_on_each_node_is_for_the_launcher_direct_and_nodes_with_devices():
    expected = "job_launcher: direct, which starts that one copy"
    assert [each.expected for each in wrong(launcher="torchrun", ranks_per_node="node")] == [expected]
    (finding,) = wrong(launcher="direct", scheduler="kubernetes", ranks_per_node="node")
    assert "a pod gets a device for each of its ranks" in finding.expected
    (finding,) = wrong(ranks_per_node="nodes")
    assert finding.expected == "auto or node or a whole number from 1 to 1024"


@pytest.mark.parametrize(
    ("words", "found", "written"),
    [
        (["python train.py --lr 1"], "several words in one item", "[python, train.py, --lr, 1]"),
        (["python train.py", "--lr", "0.10"], "several words in one item", '[python, train.py, --lr, "0.10"]'),
        (["python", "train.py", "--lr 1"], "several words in one item, '--lr 1'", "[python, train.py, --lr, 1]"),
        (["cd x && python t.py"], "a line of shell in one item", '[bash, -c, "cd x && python t.py"]'),
        (["cd", "x", "&&", "python", "t.py"], "&&, which only a shell", '[bash, -c, "cd x && python t.py"]'),
        (["python", "t.py", "--out=$HOME/x"], "for $HOME", "[bash, -c, 'python t.py \"--out=$HOME/x\"']"),
        (["python", "t.py", "--on=$(date +%s)"], "for $(date +%s)", "[bash, -c, 'python t.py \"--on=$(date +%s)\"']"),
        (["python", "t.py", ">", "log"], ">, which only a shell understands", '[bash, -c, "python t.py > log"]'),
        (["LR=0.1 python3 t.py"], "several words", '[python3, t.py] and job_env: {LR: "0.1"}'),
        (["A=b", "C=1", "./t"], "A=b before the program", '[./t] and job_env: {A: "b", C: "1"}'),
        (["pip list\n# a\nA=1 ./t \\\n  --x\n"], "2 lines in one item", '[bash, -ec, "pip list\\nA=1 ./t    --x"]'),
        (["python t.py\n"], "several words in one item", "[python, t.py]"),
    ],
)
def test_shell_syntax_is_a_finding_with_the_list_to_write(words, found, written):
    (finding,) = wrong(command=words)
    assert finding.check == "job_command" and found in finding.found
    assert finding.action == f"write job_command: {written}"
    # The suggested command has no finding.
    follow_command(written)
    # As one text, it is a list in the same way.
    if len(words) == 1:
        follow_command(" and job_env: ".join(filter(None, job_command.of_text(words[0]))))


def follow_command(written):
    """Make a job of what an advice writes after `job_command: `."""
    words, _, env = written.partition(" and job_env: ")
    make_job(command=yaml.safe_load(words), env=yaml.safe_load(env or "{}"))


def test_a_line_of_shell_names_no_script_of_the_source():
    text = "cd sub && exec python train.py"
    make_plan(make_job(command=["bash", "-c", text]), [member(0)], files=("sub/train.py",))
    words = ["bash", "/srv/run.sh", "-c", f"/opt/{text}", "--script=x.py"]
    assert job_command.scripts(words) == ["/srv/run.sh", "--script=x.py"]


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
    assert [str(word) for word in yaml.safe_load(job_command.as_list(words))] == words


WORDS = (
    "torchrun|mpirun|env|bash|-c|python|-m|torch.distributed.run|A=1|nice|-n2|--|'|accelerate|launch|torchrun x|a && b"
)
pieces = st.sampled_from([*WORDS.split("|"), "$HOME", ":", "", " ", "-", "srun", "--nnodes", "\n"])


@given(st.lists(pieces, min_size=1, max_size=6))
def test_any_words_can_be_checked(words):
    for finding in job_command.findings(words, "torchrun", None, 0, {}):
        assert finding.check == "job_command" and finding.found and finding.expected and finding.action


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["python", "-m", "pytest", "-s", "-v", "file.py"], "pytest"),
        (["/opt/venv/bin/python3.11", "-u", "-m", "pytest.__main__"], "pytest"),
        *((line.split(), "") for line in ("python -m mine.train", "python -m single", "python train.py -m resnet")),
        *((line.split(), "") for line in ("pytest -m slow", "python -c pass")),
    ],
)
def test_the_package_that_python_is_to_run_as_a_module(words, package):
    assert job_command.module_of(words, ["mine/train.py", "single.py"]) == package


@pytest.mark.parametrize(
    ("job", "starter"),
    [
        ({"launcher": "torchrun"}, "torch"),
        ({"launcher": "msrun"}, "mindspore.parallel.cluster.run"),
        ({"launcher": "oneflow"}, "oneflow"),
        ({"launcher": "oneflow", "oneflow_style": "address_list"}, ""),
        *(({"launcher": name}, "") for name in ("direct", "mindspore")),
    ],
)
def test_each_node_plan_names_the_program_that_starts_ranks(job, starter):
    node_plans = make_plan(make_job(**job), [member(0), member(1)]).node_plans([])
    assert {each["starter"] for each in node_plans.values()} == {starter}
