"""The state of a node and of a toolkit on it, as library/cuda_toolkit returns them."""

from __future__ import annotations

from ansible.module_utils.trainyard.nvidia.nvidia_answers import TOOLKITS
from filters import declared

ROOT = "/opt/trainyard"


def toolkit(nvcc="", **changes):
    return {"nvcc": nvcc, "cuda": "", "newest_gcc": "", "kind": "foreign", "named": "", "record": {}, **changes}


def machine(host="n1", **changes):
    return {
        "host": host,
        "os": "debian 12",
        "family": "debian",
        "arch": "x86_64",
        "root": ROOT,
        "toolkits": {},
        "default": "",
        "default_kind": "none",
        "compiler": {"name": "g++", "version": "12.2.0", "installed": True},
        "compilers": ["g++-11", "g++-12"],
        "free_mib": {"/usr": 50000, "/usr/local": 50000, ROOT: 50000},
        "gpus": 0,
        "mpi": None,
        "session": None,
        "nccl": "",
        **changes,
    }


def state(host="n1", **changes):
    return declared(machine(host, **changes), TOOLKITS)
