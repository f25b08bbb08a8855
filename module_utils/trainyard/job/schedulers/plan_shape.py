# SPDX-License-Identifier: Apache-2.0
"""Declare plan.json (docs/plan.md) as far as anything reads it again; plans of all versions fit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...base.shapes import MAYBE_TEXT, NOTHING, All, ByKind, Each, Is, Shape, Whole, file_name
from ..file.job import PLAN_OPTIONS, SHARED_KEYS
from ..record import job_ids
from ..run.wire.answers import cores
from .kubernetes.resources import RESOURCES


def created(value: Any) -> None:
    """a time such as 2026-11-20T10:15:00+0000"""
    if not isinstance(value, str):
        raise ValueError(value)
    try:
        datetime.strptime(value, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except OverflowError:
        raise ValueError(value) from None


_FINDING = dict.fromkeys(("host", "check", "found", "expected", "action"), str)
# Upper bounds: ranks and nodes of a job, ports, seconds.
_RANKS, _PORT, _SECONDS = Whole(1 << 24), Whole(65535), Whole(1 << 40)
_FILE = {
    **dict.fromkeys(("path", "content", "mode", "sha256"), str),
    "?lists_nodes": bool,
    "?servers": Each(object),
    "?numbered": [str],
}
_PROCESS = {
    **dict.fromkeys(("name", "log"), str),
    "ranks": [_RANKS],
    "argv": [str],
    "env": Each(str),
    "?recover_after_s": (int, NOTHING),
    "?on_host": bool,
    "?lists_nodes": [str],
    "?numbered": Each(str),
}
_PART = {"processes": [_PROCESS], "files": [_FILE]}
_CONTAINER = {
    **dict.fromkeys(("runtime", "program", "image", "id", "path", "python", "user"), str),
    "gpus": bool,
    "devices": [str],
    "mounts": [[str]],
}
_HOST = {
    **dict.fromkeys(("host", "address"), str),
    "node_rank": _RANKS,
    "?interface": MAYBE_TEXT,
    "devices": [_RANKS],
    # Those of each rank that is bound to some (placement/binding.py).
    "?cores": [cores],
    "?local_collective": Each(object),
    "?container": _CONTAINER,
    "?as_first": _PART,
}


def _place(value: Any) -> None:
    """the number of a node"""
    if not isinstance(value, str) or not value.isdecimal():
        raise ValueError(value)


_SLURM = {"shared": bool, **dict.fromkeys(("user", "?renamed", "?secrets"), str)}
_KUBERNETES = {
    "resource": Is(tuple(RESOURCES)),
    **dict.fromkeys(("api_version", "name", "namespace", "kubeconfig", "context", "container"), str),
    **dict.fromkeys(("?plural", "?renamed", "?tls_home"), str),
    "operator": str,
    **dict.fromkeys(("pods", "ranks_per_pod"), _RANKS),
    "?stop_grace_s": _SECONDS,
}
_ENGINE = ByKind(
    {
        **dict.fromkeys(("starts", "submit_host"), str),
        "nodes": _RANKS,
        "ranks_per_node": _RANKS,
        "?files": [str],
        "?id": str,
    },
    {"slurm": {"settings": _SLURM}, "kubernetes": {"settings": _KUBERNETES}},
)


def _id(value: Any) -> None:
    """the id of a job"""
    if not isinstance(value, str) or not job_ids.is_valid(value):
        raise ValueError(value)


_LAUNCH = {
    **dict.fromkeys(("?by", "?command", "?folder", "?inventory", "?source_sha256", "?revision"), str),
    **dict.fromkeys(("?trainyard", "?ansible", "?python", "?variables"), str),
    "?job": Each(object),
}


def _option(default: Any) -> Shape:
    """Return the shape of an option of the job by its default."""
    if isinstance(default, dict):
        return {name: _option(value) for name, value in default.items()}
    return {bool: bool, int: _SECONDS, str: str, list: [str], NOTHING: (Each(object), NOTHING)}[type(default)]


_FIELDS: Mapping[str, Shape] = {
    "job_id": _id,
    **dict.fromkeys(("job_name", "launcher", "job_dir"), str),
    **dict.fromkeys(("?venv", "?venvs", "?image", "?asked_by", "?one_copy"), str),
    "rank_log": file_name,
    "created": created,
    "world_size": _RANKS,
    "head": {"host": str, "address": str, "port": _PORT},
    **{f"?{name}": _option(value) for name, value in PLAN_OPTIONS.items()},
    # Commands read these of all plans.
    **dict.fromkeys(("timeout_s", "max_restarts", "progress_pattern", "secret_env"), object),
    "?candidates": [str],
    "?silent_after_s": _SECONDS,
    "?min_nodes": _RANKS,
    "?run": _RANKS,
    "?monitor_port": _PORT,
    "?check": bool,
    "?witness": {"host": str, "node_rank": _RANKS},
    "?events": [{"to": str}],
    "?warnings": [_FINDING],
    "?folders": [dict.fromkeys(("variable", "path", "hosts"), str)],
    "?launch": _LAUNCH,
    "?engine": _ENGINE,
    "files": [_FILE],
    "nodes": [{**_HOST, "ranks": [_RANKS], **_PART}],
    "?spares": [{**_HOST, "?places": Each(_PART, _place)}],
}


def _hosts(plan: Any) -> None:
    """a plan whose head and candidates are among its nodes and spares, or of a scheduler that chooses the nodes"""
    hosts = {node["host"] for node in (*plan["nodes"], *plan.get("spares", ()))}
    leading = {plan["head"]["host"], *plan.get("candidates", ())}
    if not ((leading <= hosts and plan["nodes"]) or ("engine" in plan and not hosts)):
        raise ValueError(leading)


PLAN: Shape = All((_FIELDS, _hosts))
# A plan that is started is always of this version.
_COMPLETE = {**dict.fromkeys((*SHARED_KEYS, "events", "spares"), object), "nodes": [{"interface": str}]}
TO_START: Shape = All((PLAN, (_COMPLETE, {"engine": object})))
