"""Hosts that do not fit a stack of NVIDIA's software, and what readers do for each part of the advice."""

from __future__ import annotations

from advice_rules import Rule, overrides, put
from ansible.module_utils.trainyard.nvidia import stack
from test_nvidia_driver_plan import FACTS, STATE
from test_nvidia_stack import CATALOG, RULES

KERNEL = "5.15.0-139-generic"
GPUS = {
    "a100": {"device_id": "0x20b2", "name": "A100 SXM4 80GB", "generation": "ampere"},
    "v100": {"device_id": "0x1db5", "name": "V100 SXM2 32GB", "generation": "volta"},
    "h100": {"device_id": "0x2330", "name": "H100 SXM5 80GB", "generation": "hopper"},
    "b200": {"device_id": "0x2901", "name": "B200", "generation": "blackwell"},
    "gh200": {"device_id": "0x2342", "name": "GH200 480GB", "generation": "hopper"},
}
SYSTEM = {"id": "ubuntu", "version": "22.04", "family": "debian"}
DEBIAN = {"id": "debian", "version": "12", "family": "debian"}
NOBLE = {**SYSTEM, "version": "24.04"}
ROCKY = {"id": "rocky", "version": "9.4", "family": "redhat"}
NODE = {
    "facts": {
        **FACTS,
        "host": "n1",
        "os": SYSTEM,
        "kernel": {"running": KERNEL, "headers": [KERNEL], "headers_available": True},
        "gcc": "11.4.0",
        "gpus": [GPUS["a100"]],
        "free_mib": {"/usr": 90000, "/var": 90000, "/": 90000},
    },
    "driver": {**STATE, "host": "n1", "kernel": KERNEL, "headers": [KERNEL], "modules": {KERNEL: {"version": ""}}},
    "stack": "pytorch-cuda12",
    "overrides": {},
    "settings": {"gpus": "auto"},
    "accept": [],
    "catalog": CATALOG,
}
FROM = {"provider": "distro", "version": "550.54.15", "loaded": "550.54.15", "flavour": "open"}
FROM["modules"] = {KERNEL: {"version": "550.54.15"}}
RUN = {"url": "https://x.example/NVIDIA-Linux-x86_64-580.95.05.run", "sha256": "a" * 64}
CUDA_RUN = {"version": "12.6.3", "url": "https://x.example/cuda.run", "sha256": "a" * 64}


def judged(given):
    """Return the findings on one host, and the warnings that ask for something."""
    choice = stack.choose_all([given], given["catalog"], RULES, given["accept"])
    return [*choice.findings, *(one for one in choice.warnings if one.check not in given["accept"])]


def host(gpu="a100", name="pytorch-cuda12", given=(), **changes):
    """Return a host with a GPU and a stack; `given` are overrides, `changes` those of put."""
    return Rule(judged, NODE, **{"stack": name, "overrides": dict(given), "facts__gpus": [GPUS[gpu]], **changes})


def installed(**changes):
    return {"driver": {**NODE["driver"], **FROM, **changes}}


def driver(**fields):
    return {"driver": fields}


KEPT = driver(provider="none")


def replaced(given):
    return put(overrides=given, settings__replace=True)


def nvidia_stack(name):
    return put(stack=name)


LEFT_OUT = put(stack="wheels-cuda13", settings__gpus="0", facts__gpus=[])
_SET = "nvidia_stack_overrides"
_RUNFILE = f"take a runfile of branch 580: {_SET}: {{driver: {{version: ..., url: ..., sha256: ...}}}}"

CASES = {
    # The choice.
    "an unknown stack": lambda _: (
        host(name="pytorch"),
        {
            "set nvidia_stack to one of them (see roles/nvidia_stack/README.md)": nvidia_stack("pytorch-cuda12"),
            "put it into nvidia_stack_own": put(catalog={**CATALOG, "pytorch": CATALOG["pytorch-cuda12"]}),
            "set nvidia_stack_overrides to a choice of your own without nvidia_stack": put(
                stack="", overrides=CATALOG["pytorch-cuda12"]["set"]
            ),
        },
    ),
    "an unknown field of a part": lambda _: (
        host(given={"driver": {"name": "x"}}),
        {"correct nvidia_stack_overrides": put(overrides={})},
    ),
    "an unknown provider of a part": lambda _: (
        host(given={"cuda": {"provider": "apt"}}),
        {"correct nvidia_stack_overrides": put(overrides={})},
    ),
    "a branch that is not the version's": lambda _: (
        host(given=driver(branch="570", version="580.95.05")),
        {"correct nvidia_stack_overrides": put(overrides={})},
    ),
    "a host without a GPU or a stack": lambda _: (
        host(name="", facts__gpus=[]),
        {
            "leave it out of the group nvidia": LEFT_OUT,
            "set nvidia_stack if it gets one": put(stack="pytorch-cuda12", facts__gpus=NODE["facts"]["gpus"]),
        },
    ),
    "another stack": lambda _: (
        host("b200"),
        {
            "set nvidia_stack, for a group or a host where they differ": nvidia_stack("pytorch-cuda13"),
            _SET: put(overrides=CATALOG["pytorch-cuda13"]["set"]),
        },
    ),
    # GPUs and the driver.
    "the other modules": lambda _: (
        host("gh200", given=driver(flavour="proprietary")),
        overrides(f"{_SET}: {{driver: {{flavour: open}}}}"),
    ),
    "a driver that is too old for CUDA and a GPU": lambda _: (
        host("h100", given=driver(version="470.82.01", flavour="proprietary")),
        overrides(f'{_SET}: {{driver: {{branch: 560, version: ""}}}}'),
    ),
    "a driver and modules that are too old for a GPU": lambda _: (
        host("b200", "pytorch-cuda13", driver(version="470.82.01", flavour="proprietary")),
        overrides(f'{_SET}: {{driver: {{branch: 580, version: "", flavour: open}}}}'),
    ),
    "a driver that is too new for a GPU": lambda _: (
        host("v100", given=driver(version="590.48.01")),
        overrides(f'{_SET}: {{driver: {{branch: 580, version: ""}}}}'),
    ),
    "an old driver of the distribution": lambda _: (
        host("a100", given=driver(provider="distro", branch="470", version="")),
        overrides(f'{_SET}: {{driver: {{branch: 570, version: ""}}}}'),
    ),
    "a distribution without such a driver": lambda _: (
        host("b200", "pytorch-cuda13", driver(provider="distro", branch="535", version=""), facts__os=DEBIAN),
        overrides(f'{_SET}: {{driver: {{provider: network_repo, branch: 580, version: ""}}}}'),
    ),
    "an old runfile": lambda _: (
        host("b200", "pytorch-cuda13", driver(provider="runfile", version="550.54.15", **RUN)),
        {_RUNFILE: put(overrides=driver(provider="runfile", version="580.95.05", **RUN))},
    ),
    "an old driver that somebody else has installed": lambda _: (
        host(name="wheels-cuda13", **installed()),
        {
            f'{_SET}: {{driver: {{provider: network_repo, branch: 580, version: ""}}}} with '
            "nvidia_driver_replace: true": replaced(driver(provider="network_repo", branch="580"))
        },
    ),
    "an old driver on a system without a repository": lambda _: (
        host(name="wheels-cuda13", facts__os=ROCKY, **installed(provider="runfile", runfile="550.54.15")),
        {
            _RUNFILE.replace("version", "provider: runfile, version", 1): put(
                overrides=driver(provider="runfile", version="580.95.05", **RUN)
            )
        },
    ),
    "a driver that may be newer": lambda _: (
        host(given=driver(version="550.127.08", branch="550")),
        overrides(f'{_SET}: {{driver: {{branch: 560, version: ""}}}}'),
    ),
    "another generation than that of CUDA": lambda _: (
        host("b200"),
        {
            "choose a stack with such a CUDA": nvidia_stack("pytorch-cuda13"),
            "put nodes with other GPUs into a group with their own stack": nvidia_stack("pytorch-cuda13"),
        },
    ),
    "no driver and none to come": lambda _: (
        host(name="wheels-cuda13"),
        overrides(f"{_SET}: {{driver: {{provider: network_repo, version: ...}}}}", version="580.95.05"),
    ),
    "no driver on a system without a repository": lambda _: (
        host(name="wheels-cuda13", facts__os=ROCKY),
        overrides(
            f"{_SET}: {{driver: {{provider: runfile, version: ..., url: ..., sha256: ...}}}}",
            version="580.95.05",
            **RUN,
        ),
    ),
    "a driver with a fault": lambda _: (
        host("v100", "v100-runfile", {"framework": {"name": "none"}}, facts__gcc="9.4.0"),
        overrides(
            f"{_SET}: {{driver: {{version: 470.141.03, url: ..., sha256: ...}}}}",
            **{**RUN, "url": RUN["url"].replace("580.95.05", "470.141.03")},
        ),
    ),
    "another driver than the stack's": lambda _: (
        host(**installed(version="580.82.07")),
        {
            **overrides(f"set {_SET}: {{driver: {{provider: distro, version: 580.82.07}}}} to keep it"),
            "nvidia_driver_replace: true": put(settings__replace=True),
        },
    ),
    "a driver of two sources beside a stack": lambda _: (
        host(given={"framework": {"name": "none"}}, **installed(provider="unknown", version="580.82.07")),
        overrides(f"keep it: {_SET}: {{driver: {{provider: none}}}}"),
    ),
    "no Fabric Manager in a runfile": lambda _: (
        host(
            given=driver(provider="runfile", version="580.95.05", **RUN),
            facts__nvswitches=6,
            **installed(provider="runfile", runfile="580.95.05", version="580.95.05"),
        ),
        {
            f"set {_SET}: {{driver: {{provider: network_repo}}}} with nvidia_driver_replace: true": replaced(
                driver(provider="network_repo", version="580.95.05")
            ),
            "nvidia_driver_fabric_manager: false if you bring it": put(settings__fabric_manager="false"),
        },
    ),
    # The machine.
    "a kernel that is too new": lambda _: (
        host(given=driver(version="580.119.02"), settings__kernels=["7.0.9-1-generic"]),
        {
            "boot an older kernel of the distribution": put(settings__kernels=[KERNEL]),
            "take a newer driver of that branch": put(overrides=driver(version="580.142")),
            "if you know that it compiles, set nvidia_stack_accept: [kernel]": put(accept=["kernel"]),
        },
    ),
    "no headers": lambda _: (
        host(facts__kernel__headers=[], facts__kernel__headers_available=False),
        {
            "boot a kernel whose headers the mirrors have": put(facts__kernel__headers_available=True),
            "name the kernels in nvidia_driver_kernels": put(settings__kernels=[]),
        },
    ),
    "a number of GPUs that is none": lambda _: (
        host(settings={"gpus": "two"}),
        {"correct nvidia_gpus": put(settings__gpus="1")},
    ),
    "GPUs on a host that is to have none": lambda _: (
        host(settings={"gpus": "0"}),
        {"correct nvidia_gpus": put(settings__gpus="1")},
    ),
    "a container": lambda _: (
        host(facts__virtual="podman", driver={**NODE["driver"], "loaded": "580.95.05", "provider": "unknown"}),
        {
            "put that machine into the inventory": put(facts__virtual="", driver=NODE["driver"]),
            **overrides(f"{_SET}: {{driver: {{provider: none}}}}"),
        },
    ),
    "Secure Boot, perhaps": lambda _: (
        host(facts__secure_boot="unknown"),
        {"set nvidia_driver_mok_key and nvidia_driver_mok_certificate": put(settings__mok=True)},
    ),
    "headers on hold": lambda _: (
        host(facts__apt__held=["linux-headers-amd64"]),
        {
            "apt-mark unhold linux-headers-amd64": put(facts__apt__held=[]),
            "hold the kernel as well": put(facts__apt__held=["linux-headers-amd64", "linux-image-amd64"]),
        },
    ),
    "a driver on hold": lambda _: (
        host(facts__apt__held=["nvidia-utils-550"], **installed(version="580.82.07", provider="network_repo")),
        {
            "apt-mark unhold them": put(facts__apt__held=[]),
            **overrides(f"keep the installed driver: {_SET}: {{driver: {{provider: none}}}}"),
        },
    ),
    "too little space for a driver": lambda _: (
        host(facts__free_mib={"/usr": 900, "/var": 900, "/": 900}),
        {"free some space": put(facts__free_mib={}), "set nvidia_stack_accept: [space]": put(accept=["space"])},
    ),
    # CUDA, NCCL, cuDNN and frameworks.
    "a build that a release does not have": lambda _: (
        host(given={"framework": {"build": "cu127"}}),
        {
            **overrides(f"{_SET}: {{framework: {{build: ...}}}}", build="cu126"),
            **overrides(
                f"another version: {_SET}: {{framework: {{version: ..., build: ...}}}}", version="2.12.0", build="cu126"
            ),
        },
    ),
    "a release without builds": lambda _: (
        host(given={"framework": {"version": "1.13.1"}}),
        overrides(f"{_SET}: {{framework: {{version: ..., build: ...}}}}", version="2.13.0", build="cu126"),
    ),
    "a build without the GPU": lambda _: (
        host("b200", "pytorch-cuda13", {"framework": {"build": "cu126"}}),
        overrides(f"take cu130, cu132: {_SET}: {{framework: {{build: ...}}}}", build="cu130"),
    ),
    "a release without the GPU": lambda _: (
        host("b200", "pytorch-cuda13", {"framework": {"version": "2.6.0", "build": "cu126"}}),
        overrides(
            f"take another version: {_SET}: {{framework: {{version: ..., build: ...}}}}",
            version="2.13.0",
            build="cu130",
        ),
    ),
    "another CUDA than MindSpore's": lambda _: (
        host(name="mindspore-cuda11.1", given={"framework": {"cuda": "11.6"}}, facts__gcc="9.4.0"),
        overrides(f"{_SET}: {{framework: {{cuda: ...}}}}", cuda="11.1"),
    ),
    "a MindSpore without GPUs": lambda _: (
        host(name="mindspore-cuda11.6", given={"framework": {"version": "2.5.0"}}),
        overrides(f"{_SET}: {{framework: {{version: ..., cuda: ...}}}}", version="2.2.14", cuda="11.6"),
    ),
    "MindSpore on another machine": lambda _: (
        host(name="mindspore-cuda11.6", facts__arch="aarch64"),
        {
            "take the host out of the group": LEFT_OUT,
            "choose another framework": put(overrides={"framework": {"name": "none"}}),
        },
    ),
    "no cuDNN for MindSpore": lambda _: (
        host(name="mindspore-cuda11.6", given={"cudnn": {"provider": "none"}}),
        overrides(
            f"{_SET}: {{cudnn: {{provider: ..., version: ..., cuda: ...}}}}",
            **{"provider": "wheel", "version": "8.5.0.96", "cuda": "11.7"},
        ),
    ),
    "an old cuDNN": lambda _: (
        host(name="mindspore-cuda11.6", given={"cudnn": {"version": "8.4.1.50"}}),
        overrides(f"{_SET}: {{cudnn: {{version: ...}}}}", version="8.5.0.96"),
    ),
    "a cuDNN of another CUDA": lambda _: (
        host(name="mindspore-cuda11.6", given={"cudnn": {"cuda": "10.2"}}),
        overrides(f'{_SET}: {{cudnn: {{cuda: "11.6"}}}}'),
    ),
    "an archive of cuDNN for another CUDA": lambda _: (
        host(name="mindspore-cuda11.1", given={"cudnn": {"cuda": "10.2"}}, facts__gcc="9.4.0"),
        overrides(f'{_SET}: {{cudnn: {{cuda: "11.1", url: ..., sha256: ...}}}}', **RUN),
    ),
    "cuDNN that a repository may not have": lambda _: (
        host(name="mindspore-cuda11.6", given={"cudnn": {"provider": "network_repo"}}, facts__os=DEBIAN),
        overrides(f"{_SET}: {{cudnn: {{provider: archive, url: ..., sha256: ...}}}}", **RUN),
    ),
    "an NCCL of another CUDA": lambda _: (
        host(given={"nccl": {"cuda": "11.0"}}),
        overrides(f'{_SET}: {{nccl: {{cuda: "12.6"}}}}'),
    ),
    "an unknown build of NCCL": lambda _: (
        host(given={"nccl": {"cuda": "12.1"}}),
        overrides(f'{_SET}: {{nccl: {{cuda: "12.6"}}}}'),
    ),
    "an NCCL that no wheel has": lambda _: (
        host(given={"nccl": {"provider": "wheel", "version": "2.10.3"}}),
        overrides(
            f"take 2.16.2 in place of 2.10.3 by {_SET}: {{nccl: {{provider: wheel, version: 2.16.2}}}}",
            "take 2.22.3 in place of 2.10.3 by "
            f'{_SET}: {{nccl: {{provider: network_repo, version: 2.22.3, cuda: "12.6"}}}}',
        ),
    ),
    "an NCCL that the repository lacks": lambda _: (
        host(facts__os=NOBLE, given={"nccl": {"version": "2.18.3", "cuda": "12.6"}}),
        overrides(
            f"take 2.18.3 by {_SET}: {{nccl: {{provider: wheel, version: 2.18.3}}}}",
            "take 2.22.3 in place of 2.18.3 by "
            f'{_SET}: {{nccl: {{provider: network_repo, version: 2.22.3, cuda: "12.6"}}}}',
        ),
    ),
    "an NCCL that nothing has": lambda _: (
        host(facts__os=NOBLE, given={"nccl": {"version": "2.13.4", "cuda": "10.2"}}),
        overrides(f"{_SET}: {{nccl: {{version: ..., cuda: ...}}}}", version="2.22.3", cuda="12.6"),
    ),
    "an NCCL without a version": lambda _: (
        host(name="debian12", facts__os=DEBIAN, given={"nccl": {"provider": "distro", "version": ""}}),
        overrides(f"{_SET}: {{nccl: {{provider: wheel, version: ..., cuda: ...}}}}", version="2.21.5", cuda="11.8"),
    ),
    "an NCCL that the repository may not have": lambda _: (
        host(facts__os=DEBIAN),
        overrides(f"take 2.24.3 by {_SET}: {{nccl: {{provider: wheel, version: 2.24.3}}}}"),
    ),
    # Operating systems.
    "a CUDA that the distribution does not have": lambda _: (
        host(name="debian12", facts__os=DEBIAN, given={"cuda": {"version": "12.4"}}),
        overrides(f'{_SET}: {{cuda: {{version: "11.8"}}}}'),
    ),
    "a CUDA that the repository does not have": lambda _: (
        host(facts__os=NOBLE, given={"cuda": {"version": "12.4"}}),
        overrides(f"{_SET}: {{cuda: {{provider: runfile, version: ..., url: ..., sha256: ...}}}}", **CUDA_RUN),
    ),
    "CUDA for an unknown system": lambda _: (
        host(given={**KEPT, "nccl": {"provider": "none"}}, facts__os=ROCKY, **installed(version="580.95.05")),
        overrides(f"{_SET}: {{cuda: {{provider: runfile, version: ..., url: ..., sha256: ...}}}}", **CUDA_RUN),
    ),
    "NCCL for an unknown system": lambda _: (
        host(given={**KEPT, "cuda": {"provider": "none"}}, facts__os=ROCKY, **installed(version="580.95.05")),
        overrides(f"{_SET}: {{nccl: {{provider: wheel, version: ...}}}}", version="2.28.9"),
    ),
    "a driver for an unknown system": lambda _: (
        host(given={"cuda": {"provider": "none"}, "nccl": {"provider": "none"}}, facts__os=ROCKY),
        overrides(
            f"{_SET}: {{driver: {{provider: runfile, version: ..., url: ..., sha256: ...}}}}",
            version="580.95.05",
            **RUN,
        ),
    ),
}
