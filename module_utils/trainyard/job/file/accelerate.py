# SPDX-License-Identifier: Apache-2.0
"""What `accelerate launch` tells a script by variables of its environment, so that a job says it without that launcher.

Its other options place ranks, which the job's launcher does. Options are named without leading hyphens and with `-` for
`_`. Source: utils/launch.py and commands/launch.py of accelerate 1.15.
"""

from __future__ import annotations

from collections.abc import Mapping

# Options without a value: the variable, and what is in it.
_FLAGS = {
    "cpu": ("ACCELERATE_USE_CPU", "true"),
    "debug": ("ACCELERATE_DEBUG_MODE", "true"),
    "dynamo-use-dynamic": ("ACCELERATE_DYNAMO_USE_DYNAMIC", "true"),
    "dynamo-use-fullgraph": ("ACCELERATE_DYNAMO_USE_FULLGRAPH", "true"),
    "dynamo-use-regional-compilation": ("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true"),
    "enable-cpu-affinity": ("ACCELERATE_CPU_AFFINITY", "1"),
    "fp8-use-autocast-during-eval": ("ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "true"),
    "use-deepspeed": ("ACCELERATE_USE_DEEPSPEED", "true"),
    "use-fsdp": ("ACCELERATE_USE_FSDP", "true"),
    "use-megatron-lm": ("ACCELERATE_USE_MEGATRON_LM", "true"),
    "use-parallelism-config": ("ACCELERATE_USE_PARALLELISM_CONFIG", "true"),
}
_VALUES = {
    "dynamo-backend": "ACCELERATE_DYNAMO_BACKEND",
    "dynamo-mode": "ACCELERATE_DYNAMO_MODE",
    "mixed-precision": "ACCELERATE_MIXED_PRECISION",
    "num-cpu-threads-per-process": "OMP_NUM_THREADS",
}
_OF_DEEPSPEED = {
    "deepspeed-config-file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "deepspeed-moe-layer-cls-names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
    "gradient-accumulation-steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient-clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload-optimizer-device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload-optimizer-nvme-path": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload-param-device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "offload-param-nvme-path": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
    "zero-stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "zero3-init-flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3-save-16bit-model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
}
# How options begin whose variables are called as they are, how these begin, and with which option they count.
_ALIKE = {
    "fp8-": ("ACCELERATE_FP8_", "mixed-precision"),
    "fsdp-": ("FSDP_", "use-fsdp"),
    "megatron-lm-": ("MEGATRON_LM_", "use-megatron-lm"),
    "parallelism-config-": ("PARALLELISM_CONFIG_", "use-parallelism-config"),
}
_RENAMED = {"FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP": "FSDP_TRANSFORMER_CLS_TO_WRAP"}
_LINEAR_PRECISION = "fp8-override-linear-precision"
# By option: what the launcher sets with it that the script's side would take otherwise.
_DEFAULTS = {
    "dynamo-backend": {"ACCELERATE_DYNAMO_USE_DYNAMIC": "false"},
    "use-fsdp": {
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
        "FSDP_MIN_NUM_PARAMS": "100000000",
        "FSDP_SYNC_MODULE_STATES": "true",
        "FSDP_USE_ORIG_PARAMS": "true",
    },
}


def words_after(name: str) -> int | None:
    """Return how many words follow an option that sets variables; None for any other option."""
    if name in _FLAGS:
        return 0
    return 1 if name in _VALUES or name in _OF_DEEPSPEED or name.startswith(tuple(_ALIKE)) else None


def environment(options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the options set; those that count only with another option, if that is there."""
    found = {name: value for option in _DEFAULTS if option in options for name, value in _DEFAULTS[option].items()}
    for name, value in options.items():
        begin = next((each for each in _ALIKE if name.startswith(each)), "")
        if name in _FLAGS:
            variable, value = _FLAGS[name]
        elif name in _VALUES or (name in _OF_DEEPSPEED and "use-deepspeed" in options):
            variable = {**_VALUES, **_OF_DEEPSPEED}[name]
        elif begin and _ALIKE[begin][1] in options:
            variable = _ALIKE[begin][0] + name[len(begin) :].replace("-", "_").upper()
        else:
            continue
        if name == _LINEAR_PRECISION:
            ways = ("FPROP", "DGRAD", "WGRAD")
            found.update({f"ACCELERATE_FP8_OVERRIDE_{way}": each for way, each in zip(ways, value.split(","))})
            continue
        exact = {"dynamo-backend": value.upper(), "mixed-precision": value.lower()}.get(name, value)
        found[_RENAMED.get(variable, variable)] = exact.lower() if exact.lower() in ("true", "false") else exact
    return dict(sorted(found.items()))
