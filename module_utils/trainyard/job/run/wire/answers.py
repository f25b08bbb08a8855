# SPDX-License-Identifier: Apache-2.0
"""Declare and check the answers of nodes, as far as the controller uses them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Any

from ....base.received import FINDING, as_own
from ....base.shapes import (
    DURATION,
    MAYBE_INT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    MAYBE_TIME,
    NOTHING,
    OWN,
    TIME,
    All,
    Each,
    Exact,
    Few,
    Is,
    Number,
    Raw,
    Shape,
    Text,
    Whole,
    misfit,
)
from ....base.visible import one_line
from ....cluster.sharing import FOLDERS, MAX_FOLDERS
from ....software.pip_progress import INSTALLING
from ..logs.failure_kinds import EXIT
from ..logs.stacks import MAX_RANKS, rank_shape
from ..measure.checkpoints import MAX_INSPECTED
from .monitor_files import CLUSTER, MONITOR, PORTS


def address(value: Any) -> None:
    """an address with its network"""
    if not isinstance(value, str):
        raise ValueError(value)
    ipaddress.ip_interface(value)


def cores(value: Any) -> None:
    """a list of cores: 0-31,64-95"""
    if not isinstance(value, str) or len(value) > _MAX_CORES or not re.fullmatch(r"\d{1,5}(?:[-,]\d{1,5})*", value):
        raise ValueError(value)


def rdma_port(value: Any) -> None:
    """an RDMA device and its port: mlx5_0:1"""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}:[0-9]{1,3}", value):
        raise ValueError(value)


# Upper bounds: a list of port ranges and the stacks of a node's ranks, in characters; ranks of a job.
_MAX_PORTS, _MAX_STACKS, _MAX_WORLD = 1 << 18, 16 << 20, 1 << 30
# Upper bounds for the NUMA domains of a node, and for the characters of a list of cores.
_MAX_DOMAINS, _MAX_CORES = 1024, 400
# Upper bound for the lines of a journal that a node sends.
MAX_JOURNAL = 1000
# Upper bound for the steps of a removal, and for what stays.
MAX_STEPS = 10_000
STATUS = {
    **dict.fromkeys(("known", "monitor_alive"), bool),
    "processes": [{"name": str, "ranks": [int], "exit": (EXIT, NOTHING), "?ends": Each(EXIT)}],
    "monitor": (MONITOR, NOTHING),
    "cluster": (CLUSTER, NOTHING),
    "?monitor_lost": {"restarted": bool, "how": str},
    "left": int,
}
NPU = {
    **dict.fromkeys(("index", "physical_id"), int),
    **dict.fromkeys(("device_ip", "super_device_id", "health", "link"), str),
}
_NPUS = {"devices": [NPU], "chip": MAYBE_TEXT, "?super_pod_id": MAYBE_TEXT}
_PORT = Whole(65535)
_RDMA = [{"device": str, "port": int, "active": bool, "link_layer": MAYBE_TEXT}]
_INTERFACES = [{"name": str, "up": bool, "state": str, "kind": str, "addresses": [address]}]
_PROBLEM = dict.fromkeys(("check", "found", "expected", "action"), str)
# How a node runs the image of a job, and what is in it (trainyard_node/job/plan/image_inspection.py).
IMAGE = {
    "runtimes": Each(dict.fromkeys(("program", "version"), str)),
    **dict.fromkeys(("runtime", "user", "id", "image", "path", "python", "python_version"), str),
    **dict.fromkeys(("mpi", "cuda"), str),
    "files": [str],
    **dict.fromkeys(("present", "venv"), bool),
    "packages": Each(MAYBE_TEXT),
    "missing": Each([str]),
    "problems": [_PROBLEM],
}
# The input of a plan; other facts of a node are dropped.
NODE = {
    **dict.fromkeys(("hostname", "fingerprint"), str),
    **dict.fromkeys(("boot_id", "container"), MAYBE_TEXT),
    **dict.fromkeys(("cpus", "uid"), int),
    "packages": Each(MAYBE_TEXT),
    "accelerators": {"vendor": MAYBE_TEXT, "?driver": MAYBE_TEXT, "devices": [{"index": int}], "problems": [str]},
    "?image": IMAGE,
    "?cuda_home": str,
    "npu": (_NPUS, Exact({}), NOTHING),
    "?numa": Few({"cpus": cores, "devices": [int]}, _MAX_DOMAINS),
    "networks": {"interfaces": _INTERFACES, "rdma": _RDMA},
    "mpi": (Each(MAYBE_TEXT), NOTHING),
    "unused_ports": Raw(_MAX_PORTS),
}
# What hostfile.yml and rank_table.yml ask each host, whatever became of it.
_FAILED = {
    **dict.fromkeys(("?failed", "?unreachable"), bool),
    **dict.fromkeys(("?msg", "?module_stdout", "?module_stderr"), Raw(1 << 20)),
    "?rc": MAYBE_INT,
}
DEVICES = {
    "?ansible_host": object,
    "?__asked_devices": {
        **_FAILED,
        "?accelerators": {"problems": [str], "devices": [{"index": int}]},
        "?npu": ({**_NPUS, "?problems": [str]}, Exact({}), NOTHING),
    },
    "?__asked_networks": {**_FAILED, "?networks": {"interfaces": _INTERFACES}},
}
# A complete Python environment (python_environment), or nothing more of another part.
SEEN = {
    **dict.fromkeys(("?python", "?version"), str),
    **dict.fromkeys(("?changed", "?can_make_environments"), bool),
    "?reasons": [str],
    "?lacking": [str],
    "?packages": Each(str),
    "?verified": Each(object),
}
LOGS = Each(Raw())
# Names of files as they are: on one line, two could become one.
OUTPUTS = {
    "files": Each(Raw(), Raw()),
    "left_out": [{"name": Raw(), "size": int, "?why": str}],
    "more": int,
    "?unmatched": [Raw()],
}
KERNEL = {"time": TIME, "kind": str, "text": str}
NOT_ENDED = {
    **{"count": int, "user": str, "processes": [str]},
    "?shared_memory": {"count": int, "size_mib": int, "names": [str]},
}
FOLDER = {"job_id": str, "job_dir": str, "age_s": DURATION, "running": bool, "size_mib": int}
PEER = {"host": OWN, **dict.fromkeys(("address", "hostname"), str), "ports": Each(int), "addresses": [str]}
# What trainyard_node/hardware/port_facts.py returns.
_PORTS = {
    "rdma": Each(
        {
            **{"roce": bool, "address": str, "type": str},
            **dict.fromkeys(("gid", "mtu"), MAYBE_INT),
            "pcie": dict.fromkeys(("width", "width_max", "speed", "speed_max"), MAYBE_NUMBER),
        },
        rdma_port,
    ),
    **{"peer_memory": bool, "iommu": Each(str), "acs": ([str], NOTHING)},
    "bonds": Each([{"name": str, "up": bool, "used": bool, "speed_mbps": MAYBE_INT}]),
}
_WAY = {"address": str, "addresses": [str], "?switch": Text(64), "?fabric": Each(Text(64), str, 100_000)}
_ADDRESSES = [{"physical_id": int, "device_ip": str}]
MACHINE = {
    "host": OWN,
    "devices": All((Each(object), {"vendor": MAYBE_TEXT, "rdma": _RDMA, "npus": _ADDRESSES, "?ports": _PORTS})),
    **dict.fromkeys(("?facts", "?environments"), Each(object)),
    "?network": All((Each(object), _WAY)),
    "?hardware": [object],
}
# Records of scontrol, as trainyard_node/slurm/slurm_facts.py reads them.
SLURM = {
    "version": str,
    "partitions": [dict.fromkeys(("PartitionName", "State", "Default", "MaxTime", "MaxNodes", "TotalNodes"), str)],
    "nodes": [dict.fromkeys(("NodeName", "State", "CPUTot", "Gres", "Partitions", "Reason"), str)],
    "folder_writable": bool,
}
_COUNT, _RATE = Whole(1 << 62), (Number(1e-9, 1e18, "a rate: bytes or files a second"), NOTHING)
# The measurements of a folder (trainyard_node/verify/folder_speed.py).
PLACE = {
    **dict.fromkeys(("kind", "user", "problem", "state", "step"), str),
    **dict.fromkeys(("size", "free", "inodes", "free_inodes", "bytes"), _COUNT),
    **dict.fromkeys(("direct", "read_only", "denied", "silent"), bool),
    **dict.fromkeys(("write", "read", "files"), _RATE),
}
REMOVAL = {"steps": Few(str, MAX_STEPS), "stays": Few(str, MAX_STEPS), "findings": [FINDING], "recorded": bool}
SHAPES: dict[str, Shape] = {
    "probe": {"node": NODE},
    "bring_image": {"done": bool, **dict.fromkeys(("problem", "line", "id"), str)},
    "preflight": {
        "findings": [FINDING],
        "programs": Each(Each(str)),
        "stale": bool,
        "?unhealthy": ([str], NOTHING),
        "?clock": dict.fromkeys(("begun", "ended"), TIME),
        "?node": NODE,
        "?folders": FOLDERS,
    },
    "forget_tokens": {"left": [str]},
    "busy": {"findings": [FINDING]},
    "start": {"changed": bool, **STATUS},
    "state": {**STATUS, "?line": str, "?lasting": Each(str), "?note": str, "?restarts": [str]},
    "running": {"running": Each(str), "?ended": [str]},
    "journal": {"lines": Few(str, MAX_JOURNAL), "problem": str},
    "follow": {"logs": Each({"lines": [str], "offset": int, "skipped": int})},
    "collect": {
        "changed": bool,
        **STATUS,
        "logs": LOGS,
        "?kernel": [KERNEL],
        "?not_ended": NOT_ENDED,
        "?outputs": OUTPUTS,
    },
    "stacks": {"ranks": Few(rank_shape(_MAX_WORLD), MAX_RANKS), "text": Raw(_MAX_STACKS)},
    "remove": {"changed": bool, **STATUS},
    "folders": {"folders": [FOLDER]},
    # A plan is checked by what reads it (plan_shape.py).
    "planned": {"plan": (Raw(64 << 20), NOTHING), "logs": LOGS},
    "kill": {"ranks": Few(Whole(_MAX_WORLD), MAX_RANKS), "processes": int},
    "make_folder": {"changed": bool},
    "remove_folder": {"changed": bool},
    "checkpoints": {"names": Few(str, MAX_INSPECTED + 1)},
    # Each of them is checked as the answer to its own question.
    "slurm_ask": {"answers": Each(Raw(256 << 20))},
    "slurm_submit": {"engine_id": str},
    "slurm_end": {"changed": bool},
    "progress": {"progress": (INSTALLING, NOTHING)},
    "can_install": {
        **{"findings": [FINDING], "files": [str], "asks_index": bool, "seen": Each(SEEN)},
        **{"?folders": FOLDERS, "?platform": Text(200), "?builds": Each([FINDING])},
    },
    "pytorch_offer": {
        **dict.fromkeys(("accelerators", "usual", "asks_index"), bool),
        **{"interpreter": Text(4096), "python": Text(8)},
    },
    "in_use": {"uses": [str], "slurm": str, "?kubernetes": bool},
    "keep_record": {"recorded": bool, "findings": [FINDING]},
    "removal": REMOVAL,
    "rdma_traffic": {"traffic": {"host": OWN, "ports": PORTS}},
    "listen": {"endpoint": PEER, "pid": int, "start_time": MAYBE_INT},
    "connect": {
        "tried": int,
        "failures": [dict.fromkeys(("host", "way", "reason"), str)],
        "resolved": int,
        "names": [dict.fromkeys(("host", "name", "found", "expected"), str)],
    },
    "unlisten": {"lived": bool},
    # By step: an answer that has the names of two is none.
    "try_ports": (
        Exact({"servers": [{"id": int, "tcp": _PORT, "pid": int, "start_time": MAYBE_INT, "problem": Text(200)}]}),
        Exact({"failures": [{"id": int, "reason": Text(200)}], "left": [int]}),
        Exact({"ended": int, "waiting": [int]}),
    ),
    "verify": MACHINE,
    "storage": {"paths": Each(PLACE, Text(4096), MAX_FOLDERS), "folders": FOLDERS},
    "logins": {
        "row": Each(bool),
        "logins": int,
        "failures": [dict.fromkeys(("host", "peer", "targets", "reason"), str)],
    },
    "ssh_keys": {
        "files": Each(Each(str)),
        **dict.fromkeys(("host_key", "user_key", "default_address"), str),
        **{name: [str] for name in ("known_hosts", "addresses", "key_problems")},
        "findings": [FINDING],
    },
    "baseline": {"missing": [str], "packages": [str], "findings": [FINDING]},
    "slurm_probe": {"facts": (SLURM, Exact({})), "findings": [FINDING]},
    "slurm_state": {
        **dict.fromkeys(("state", "engine_id", "reason", "slurm_state", "exit_code", "line"), str),
        **dict.fromkeys(("started", "finished"), MAYBE_TIME),
        "elapsed_s": DURATION,
        "requeued": int,
        "hosts": [str],
    },
}
# Upper bounds for an answer, in bytes, and for how many values it may hold: logs, stacks and lines of ranks are long.
_LOGS, _LINES = (400 << 20, 1 << 19), (64 << 20, 1 << 21)
MAX_SIZES = {"collect": _LOGS, "planned": _LOGS, "slurm_ask": _LOGS, "follow": _LINES, "stacks": _LINES}
MAX_SIZE = (8 << 20, 1 << 19)


def checked(query: str, answer: dict[str, Any], host: str) -> dict[str, Any]:
    """Return the answer of `host` to a query of the agent, or a failed one with the reason.

    A node speaks only for itself: its findings get its own name, and their actions are marked. Each text is one line.
    """
    if answer.get("failed"):
        shown = {name: answer[name] for name in ("failed", "msg", "exception", "rc", "taken") if name in answer}
        return {name: value if name == "exception" else as_own(value, object, host) for name, value in shown.items()}
    shape = SHAPES[query]
    wrong = misfit(answer, shape)
    if wrong:
        return _unusable(wrong)
    others = {name: value for name, value in answer.items() if name != "node"}
    try:
        found = dict(as_own(others, shape, host))
        if "node" in answer:
            # Other facts of thousands of nodes would be kept until the job is planned.
            found["node"] = as_own(answer["node"], NODE, host, declared=True)
        return found
    except RecursionError:
        return _unusable("it is nested too deeply, expected a few levels")


def of_job(plan: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return a checked answer to `collect`, or a failed one where it names something outside the plan."""
    nodes = [*plan["nodes"], *plan.get("spares", ()), *filter(None, [plan.get("witness")])]
    parts = [part for node in nodes for part in (node, *node.get("places", {}).values())]
    names = {process["name"] for part in parts for process in part.get("processes", ())}
    host = _one_of({node["host"] for node in nodes}, "a host of the job")
    process, rank = _one_of(names, "a process of the plan"), Whole(plan["world_size"] - 1)
    nobody = (host, NOTHING, Is(("",)))
    failure = {
        **dict.fromkeys(("?host", "?by", "?seen_by"), nobody),
        "?hosts": [host],
        "?process": (process, NOTHING),
        "?rank": (rank, NOTHING),
        "?ranks": [rank],
    }
    saving = {"host": nobody, "rank": (rank, NOTHING), "stayed": Each([rank], host)}
    end = {"?host": nobody, "?failure": (failure, NOTHING), "?failures": [failure]}
    cluster = {
        "end": (end, NOTHING),
        "?head": host,
        "?checkpoints": ({"host": nobody}, NOTHING),
        "?progress_rank": (rank, NOTHING),
        "?saving": (saving, NOTHING),
        "?apart": ({"hosts": [host]}, NOTHING),
        "?slow_ranks": [{"host": host, "ranks": [rank]}],
        "?stacks": ({"groups": [{"hosts": [host], "ranks": [rank]}]}, NOTHING),
        "?witness_lost": ({"host": host}, NOTHING),
        "restarts": {
            "history": [
                {
                    **{"failure": failure, "?replaced": nobody, "?spare": nobody, "?saving": (saving, NOTHING)},
                    **{name: [host] for name in ("?left_out", "?back")},
                    "?world_size": Whole(plan["world_size"]),
                }
            ],
            "?members": [host],
            "?spares": [host],
            "?replaced": Each(host, host),
            "?left_out": Each(Whole(len(nodes)), host),
            "?excluded": Each(object, host),
        },
    }
    shape = {"?monitor": ({"end": (end, NOTHING), "?follows": nobody}, NOTHING), "?cluster": (cluster, NOTHING)}
    wrong = misfit(answer, shape)
    return _unusable(wrong) if wrong else answer


def _one_of(names: Collection[str], what: str) -> Shape:
    def one_of(value: Any) -> None:
        if not isinstance(value, str) or value not in names:
            raise ValueError(value)

    one_of.__doc__ = what
    return one_of


def _unusable(wrong: str) -> dict[str, Any]:
    why = f"its answer cannot be used: {one_line(wrong)}; check that node before it runs a job"
    return {"failed": True, "msg": why}
