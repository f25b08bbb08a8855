"""Start scripts in job_source that call a launcher by themselves: found before the job starts."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.plan import nested_launchers
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, member, packed, planned

GUIDES = Path(__file__).resolve().parents[3] / "fixtures" / "start_scripts"
MEET = "--nnodes=$NNODES --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"


def started(script, count=1, **changes):
    """Return the plan and the findings of a job that runs one of the guides' scripts on nodes with 8 devices."""
    job = make_job(**{"command": ["bash", script], "launcher": "direct", "packages": [], **changes})
    members = [member(number, devices=8) for number in range(count)]
    source = packed({script: (GUIDES / script).read_text(), "train.py": ""})
    plan, found = planned(job, members, source=source)
    return plan, [(each.found, each.action) for each in found]


def findings(nodes=2, devices=0, *, files=None, run="", **changes):
    """Return the findings of a job that runs run.sh."""
    job = make_job(**{"command": ["bash", "run.sh"], "launcher": "direct", **changes})
    members = [member(number, devices=devices) for number in range(nodes)]
    source = packed({"run.sh": run, "train.py": "", **(files or {})})
    return [(each.found, each.action) for each in planned(job, members, source=source)[1]]


ALONE = "#!/bin/bash\n# torchrun\nset -e\ntorchrun --nproc_per_node 2 \\\n  train.py --lr 1\n"


@pytest.mark.parametrize(
    ("job", "found", "action"),
    [
        ({}, "for one node, and runs on 2 nodes", "write the script alone in job_command"),
        ({"launcher": "torchrun"}, "inside job_launcher: torchrun", "job_launcher: direct"),
        (
            {"nodes": 1, "devices": 2, "ranks_per_node": 2},
            "in each of the 2 processes of a node",
            "job_ranks_per_node: node",
        ),
    ],
)
def test_a_script_that_calls_a_launcher_again_is_a_finding(job, found, action):
    ((text, advice),) = findings(run=ALONE, **job)
    assert text.startswith(f"run.sh, line 4, calls torchrun {found}") and action in advice


@pytest.mark.parametrize("launcher", ["direct", "torchrun"])
def test_the_only_rank_of_a_job_may_call_a_launcher(launcher):
    assert findings(nodes=1, run=ALONE, launcher=launcher) == []


@pytest.mark.parametrize(
    ("run", "called"),
    [
        ("NNODES=1\nNODE_RANK=0\ntorchrun --nnodes $NNODES --node_rank $NODE_RANK train.py", "line 3, calls torchrun"),
        (
            "ARGS=(\n  --nproc_per_node 2  # GPUs\n  --nnodes ${N:-1}\n)\ntorchrun ${ARGS[@]} x",
            "line 5, calls torchrun",
        ),
        (
            'ARGS="--nproc_per_node $(nproc) \\\n  --nnodes 1"\nexec python3 -m torch.distributed.run $ARGS train.py',
            "line 3, calls python -m torch.distributed.run",
        ),
        ("CMD='accelerate launch --num_machines 1 train.py'\neval $CMD", "line 2, calls accelerate launch"),
        ("for lr in 1 2; do torchrun train.py --lr $lr; done", "line 1, calls torchrun"),
        ("cd x && OMP_NUM_THREADS=1 msrun --worker_num 2 train.py | tee log", "line 1, calls msrun"),
        ("main() {\n  mpirun -n 4 python train.py\n}\nmain", "line 2, calls mpirun"),
        ("cat <<EOF > hosts\ntorchrun\nEOF\nfleetrun train.py", "line 4, calls fleetrun"),
    ],
)
def test_a_script_is_read_with_its_variables(run, called):
    ((found, action),) = findings(run=run)
    assert found.startswith(f"run.sh, {called}") and action


@pytest.mark.parametrize(
    "run",
    [
        f"torchrun {MEET} --nproc_per_node 2 train.py",
        "NNODES=${NNODES:-1}\ntorchrun --nnodes=$NNODES --node_rank=${NODE_RANK:-0} train.py",
        "torchrun --nproc_per_node=$(nproc) --nnodes=$WORLD_SIZE --node_rank=$RANK train.py",
        '[ -n "$NNODES" ] || NNODES=1\nif [ -z $NODE_RANK ]; then NODE_RANK=0; fi\ntorchrun --nnodes $NNODES train.py',
        "source cluster.sh\ntorchrun $CLUSTER_ARGS train.py",
        "ARGS=(--nnodes $1)\ntorchrun ${ARGS[@]} train.py",
        # Which of the two runs is known on the node only.
        'if [ "$NNODES" -gt 1 ]; then\n  torchrun --nnodes $NNODES train.py\nelse\n  torchrun train.py\nfi',
        'if [ "$RANK" = 0 ]; then mpirun -H a,b python train.py; fi',
        "[[ $RANK == 0 ]] && mpirun -H a,b python train.py",
        "echo torchrun train.py\n# torchrun train.py\npython train.py --launcher torchrun",
        "cat <<EOF\ntorchrun train.py\nEOF\npython train.py",
        'echo "\ntorchrun train.py\n"\npython train.py',
        "echo 'never closed\ntorchrun train.py",
    ],
)
def test_a_script_that_joins_the_nodes_or_may_not_call_one_is_left(run):
    assert findings(run=run, ranks_per_node=1) == []


def test_scripts_that_a_script_runs_or_sources_are_read_too():
    files = {"env.sh": "export NNODES=1", "sub.sh": "torchrun --nnodes $NNODES train.py"}
    for job in ({"run": "source ./env.sh\nexec bash sub.sh"}, {"command": ["bash", "-c", "export NNODES=1; ./sub.sh"]}):
        ((found, _),) = findings(files=files, **job)
        assert found == "sub.sh, line 1, calls torchrun for one node, and runs on 2 nodes"
    assert findings(run="bash run.sh") == []


def test_numbers_of_nodes_in_job_env_are_known():
    run = "torchrun --nnodes ${NNODES:-1} train.py"
    assert len(findings(run=run, env={"NNODES": 1})) == 1
    assert findings(run=run, env={"NNODES": 2}) == findings(run=ALONE, env={"PET_NNODES": 2}) == []


LOOPS = {
    "run.sh": "calls mpirun",
    "run_gpu.sh": "has a loop that sets RANK",
    "ascend8p.sh": "has a loop that sets RANK_ID",
    "ascend4p.sh": "has a loop that sets RANK_ID",
    "cluster.sh": "has a loop that sets MS_NODE_ID",
}


@pytest.mark.parametrize("script", LOOPS)
@pytest.mark.parametrize("ranks", ["auto", 1, "node"])
def test_a_script_that_starts_its_ranks_gets_one_copy_and_all_devices(script, ranks):
    plan, found = started(script, ranks_per_node=ranks)
    ((process,), node) = (plan.processes["n1"], plan.as_dict()["nodes"][0])
    assert found == [] and node["devices"] == list(range(8)) and node["ranks"] == [0]
    assert process.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7" and process.env["OMP_NUM_THREADS"] == "1"
    assert f"{script} starts its own ranks: one copy on each node, all devices" in plan.describe()


def test_one_copy_gets_the_devices_that_the_job_names():
    plan, found = started("ascend4p.sh", devices=[4, 5, 6, 7])
    assert found == [] and plan.as_dict()["nodes"][0]["devices"] == [4, 5, 6, 7] and plan.placement.world_size == 1


def test_ordinary_scripts_and_unclear_ones_have_a_copy_for_each_device():
    for run in ("python train.py", "for i in 1 2; do RANK=$i python t.py; done", "if a; then mpirun t.py; fi"):
        assert findings(1, 8, run=run) == []
        plan, _ = planned(make_job(command=["bash", "run.sh"], launcher="direct"), [member(0, devices=8)],
                          source=packed({"run.sh": run}))  # fmt: skip
        assert len(plan.processes["n1"]) == 8 and "starts its own ranks" not in plan.describe()


@pytest.mark.parametrize("script", LOOPS)
@pytest.mark.parametrize(
    ("changes", "found", "action"),
    [
        ({"ranks_per_node": 8}, "in each of the 8 processes of a node", "set job_ranks_per_node: node"),
        ({"launcher": "mindspore"}, "inside job_launcher: mindspore", "set job_launcher: direct"),
        ({"launcher": "mindspore", "devices": "none"}, "inside job_launcher: mindspore", "set job_launcher: direct"),
    ],
)
def test_more_than_one_copy_of_a_script_that_starts_its_ranks_is_a_finding(script, changes, found, action):
    ((text, advice),) = started(script, **changes)[1]
    assert text.startswith(f"{script}, line ") and f"{LOOPS[script]} {found}" in text and action in advice


def test_a_loop_with_the_same_numbers_on_each_node_is_a_finding():
    for script in ("run_gpu.sh", "ascend8p.sh", "cluster.sh"):
        ((text, advice),) = started(script, 2)[1]
        assert text.endswith(f"{LOOPS[script]} for one node, and runs on 2 nodes") and "from $NODE_RANK" in advice


@pytest.mark.parametrize(
    "loop",
    [
        "for i in $(seq 0 7); do RANK_ID=$((NODE_RANK * 8 + i)) python t.py & done",
        "first=$((8 * $1))\nfor ((i=0;i<8;i++)); do\n  export RANK=$((first+i))\n  python t.py > $i.log 2>&1 &\ndone",
        "for i in {0..7}; do (export DEVICE_ID=$i; cd $i; python t.py)& done",
        "for i in 0 1; do CUDA_VISIBLE_DEVICES=$i nohup python sweep.py --lr 0.$i & done; wait",
        "for i in $(seq $1 $2); do RANK=$i python t.py & done",
        'for i in "${RANKS[@]}"; do RANK=$i python t.py & done',
        "while read -r gpu; do env LOCAL_RANK=$gpu python t.py & done < gpus",
    ],
)
def test_a_loop_that_may_know_its_node_is_left_and_runs_once_on_each(loop):
    assert findings(devices=8, run=loop) == []
    assert len(findings(1, 8, run=loop, ranks_per_node=8)) == 1


def test_loops_in_a_line_of_shell_are_read_too():
    loop = "i=0; while [ $i -lt 8 ]; do RANK=$i python t.py & i=$((i + 1)); done; wait"
    ((text, _),) = findings(devices=8, command=["bash", "-c", loop])
    assert text == "job_command, line 1, has a loop that sets RANK for one node, and runs on 2 nodes"


LOOP = ["for i in", "((", "do", "done", "RANK=$i"]
WORDS = [*LOOP, "torchrun", "if", "fi", "A=1", "A=(", ")", "$A", "${A:-", "}", "<<EOF\n", "EOF\n", *"\n'\" &", "\\\n"]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_text_is_read(words):
    for call in nested_launchers.calls(["bash", "run.sh"], lambda name: "".join(words), {}):
        assert call.file == "run.sh" and call.line >= 1
