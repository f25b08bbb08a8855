"""Start scripts that clearly start their own ranks get one copy on each node, with all devices."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.plan import nested_launchers
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, member, packed, planned

GUIDES = Path(__file__).resolve().parents[3] / "fixtures" / "start_scripts"
BY = {
    "run.sh": "mpirun",
    "run_gpu.sh": "a loop that sets RANK",
    "ascend8p.sh": "a loop that sets DEVICE_ID",
    "ascend4p.sh": "a loop that sets DEVICE_ID",
    "cluster.sh": "a loop that sets MS_ROLE",
}


def started(text, **changes):
    """Return the plan of a job that runs the script `run.sh` on a node with 8 devices."""
    job = make_job(**{"command": ["bash", "run.sh"], "launcher": "direct", "packages": [], **changes})
    plan, found = planned(job, [member(0, devices=8)], source=packed({"run.sh": text, "train.py": ""}))
    assert found == []
    return plan


@pytest.mark.parametrize("script", BY)
@pytest.mark.parametrize("ranks", ["auto", 1, "node"])
def test_a_guides_script_gets_one_copy_and_all_devices(script, ranks):
    text = (GUIDES / script).read_text()
    plan = started(text, ranks_per_node=ranks)
    ((process,), node) = (plan.processes["n1"], plan.as_dict()["nodes"][0])
    assert node["devices"] == list(range(8)) and node["ranks"] == [0]
    assert process.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7" and process.env["OMP_NUM_THREADS"] == "1"
    assert "run.sh starts its own ranks: one copy on each node, all devices" in plan.describe()
    assert nested_launchers.starts_ranks(text) == BY[script]


def test_one_copy_gets_the_devices_that_the_job_names():
    plan = started((GUIDES / "ascend4p.sh").read_text(), devices=[4, 5, 6, 7])
    assert plan.as_dict()["nodes"][0]["devices"] == [4, 5, 6, 7] and plan.placement.world_size == 1
    plan = started("", command=["bash", "-c", "exec torchrun --nnodes=$NNODES train.py"])
    assert len(plan.processes["n1"]) == 1


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("torchrun --nproc_per_node 2 \\\n  train.py", "torchrun"),
        ("exec python3 -m torch.distributed.run $ARGS train.py", "python -m torch.distributed.run"),
        ("cd x && OMP_NUM_THREADS=1 msrun --worker_num 2 train.py | tee log", "msrun"),
        ("main() {\n  mpirun -n 4 python train.py\n}\nmain", "mpirun"),
        ("NNODES=2 NODE_RANK=$1 FORCE_TORCHRUN=1 llamafactory-cli train run.yaml", "llamafactory-cli train"),
        ("if [ -d x ]; then rm x; fi\nnumactl -N 0 torchrun t.py", "torchrun"),
        ("for i in {0..7}; do (export DEVICE_ID=$i; cd $i; python t.py)& done", "a loop that sets DEVICE_ID"),
        ("while read -r gpu; do env LOCAL_RANK=$gpu python t.py & done < gpus", "a loop that sets LOCAL_RANK"),
        ("for a in 1 2; do for i in 0 1; do RANK=$i python t.py & done; done; wait", "a loop that sets RANK"),
        # Which program runs is known on the node only, or none of these starts ranks.
        *(
            (text, "")
            for text in (
                "python train.py",
                "for i in 1 2; do RANK=$i python t.py; done",
                "for i in 1 2; do python download.py $i & done",
                "if a; then mpirun t.py; else torchrun t.py; fi",
                "[[ $RANK == 0 ]] && mpirun -H a,b python train.py",
                "echo torchrun train.py\n# torchrun train.py\npython train.py --launcher torchrun",
                "cat <<EOF\ntorchrun train.py\nEOF\npython train.py",
                'echo "\ntorchrun train.py\n"\npython train.py 2>&1',
            )
        ),
    ],
)
def test_what_a_script_starts_in_any_case(text, by):
    assert nested_launchers.starts_ranks(text) == by
    assert len(started(text).processes["n1"]) == (1 if by else 8)


LOOP = ["for i in", "((", "do", "done", "RANK=$i", *"\n'\" &;#", "\\\n"]
WORDS = [*LOOP, "torchrun", "if", "fi", "case", "<<EOF\n", "EOF\n", "env ", "! "]
FOUND = ("", "torchrun", "a loop that sets RANK")


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_text_is_read(words):
    assert nested_launchers.starts_ranks("".join(words)) in FOUND


@pytest.mark.parametrize("word", [*WORDS, "<< ", "for\n", "RANK= "])
def test_long_texts_are_read(word):
    assert nested_launchers.starts_ranks(f"{word * 4_000}\n{'done ' * 4_000}") in FOUND
