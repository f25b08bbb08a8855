"""What `accelerate launch` tells a script by its environment is said as job_env, where the launcher is to be left out.

The variables are those that accelerate 1.15 was seen to set: `accelerate launch OPTIONS --num_processes 1
--num_machines 1 --no_python env`, less those that are as the script's side of accelerate has them without.
"""

from __future__ import annotations

import shlex

import pytest
import yaml
from ansible.module_utils.trainyard.job.file import command

FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_MIN_NUM_PARAMS": "100000000",
    "FSDP_SYNC_MODULE_STATES": "true",
    "FSDP_USE_ORIG_PARAMS": "true",
}


def action(options, env=None, script="train.py --lr 1"):
    """What a job over torchrun is told that has `accelerate launch` with these options in its command."""
    words = ["accelerate", "launch", *shlex.split(options), *shlex.split(script)]
    (finding,) = command.findings(words, "torchrun", None, 1, env or {})
    return finding.action.partition("; to keep accelerate launch")[0]


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ("--mixed_precision bf16", {"ACCELERATE_MIXED_PRECISION": "bf16"}),
        ("--mixed-precision=no --num_machines 1", {"ACCELERATE_MIXED_PRECISION": "no"}),
        (
            "--dynamo_backend inductor --dynamo_mode max-autotune --dynamo_use_fullgraph",
            {
                "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
                "ACCELERATE_DYNAMO_MODE": "max-autotune",
                "ACCELERATE_DYNAMO_USE_DYNAMIC": "false",
                "ACCELERATE_DYNAMO_USE_FULLGRAPH": "true",
            },
        ),
        (
            "--use_deepspeed --zero_stage 3 --gradient_accumulation_steps=4 --gradient_clipping 1.0 "
            "--offload_optimizer_device cpu --zero3_init_flag True --deepspeed_multinode_launcher standard",
            {
                "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu",
                "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
                "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
                "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
                "ACCELERATE_GRADIENT_CLIPPING": "1.0",
                "ACCELERATE_USE_DEEPSPEED": "true",
            },
        ),
        ("--use_fsdp", FSDP),
        (
            "--use_fsdp --fsdp_version 2 --fsdp_use_orig_params=false --fsdp_transformer_layer_cls_to_wrap Block,Mix",
            {**FSDP, "FSDP_VERSION": "2", "FSDP_USE_ORIG_PARAMS": "false", "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block,Mix"},
        ),
        (
            "--mixed_precision fp8 --fp8_backend te --fp8_override_linear_precision True,False,1",
            {
                "ACCELERATE_FP8_BACKEND": "te",
                "ACCELERATE_FP8_OVERRIDE_DGRAD": "False",
                "ACCELERATE_FP8_OVERRIDE_FPROP": "True",
                "ACCELERATE_FP8_OVERRIDE_WGRAD": "1",
                "ACCELERATE_MIXED_PRECISION": "fp8",
            },
        ),
        (
            "--use_megatron_lm --megatron_lm_tp_degree 2 --debug --enable_cpu_affinity",
            {
                "ACCELERATE_CPU_AFFINITY": "1",
                "ACCELERATE_DEBUG_MODE": "true",
                "ACCELERATE_USE_MEGATRON_LM": "true",
                "MEGATRON_LM_TP_DEGREE": "2",
            },
        ),
        ("--cpu --num_cpu_threads_per_process 4", {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "4"}),
    ],
)
def test_options_that_are_variables_are_said_as_a_job_file_takes_them(options, variables):
    said, _, mapping = action(options).partition(" and job_env: ")
    assert said == "write job_command: [python, train.py, --lr, 1]"
    read = yaml.safe_load(mapping)
    assert {name: str(value) for name, value in read.items()} == variables
    assert not any(isinstance(value, (bool, float)) for value in read.values())


@pytest.mark.parametrize(
    "options",
    [
        "--multi_gpu --num_processes 8 --gpu_ids all",
        "--fsdp_version 2 --zero_stage 3",
        "--gradient_accumulation_steps 4",
    ],
)
def test_options_that_only_place_ranks_or_that_accelerate_ignores_need_no_variable(options):
    assert action(options) == "write job_command: [python, train.py, --lr, 1]"


def test_what_job_env_has_already_is_not_said_again():
    assert action("--mixed_precision bf16 --debug", {"ACCELERATE_MIXED_PRECISION": "bf16"}) == (
        'write job_command: [python, train.py, --lr, 1], and add to job_env: {ACCELERATE_DEBUG_MODE: "true"}'
    )


def test_a_file_of_settings_and_unknown_options_keep_the_launcher():
    for options in ("--config_file fsdp.yaml --mixed_precision bf16", "--tpu --mixed_precision bf16"):
        said = action(options)
        assert options in said and "--num_machines=$NNODES" in said
        assert said.startswith("write job_command: [bash, -c, ") and "job_launcher: direct" in said
