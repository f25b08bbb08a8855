# SPDX-License-Identifier: Apache-2.0
"""The phases of a verification: results, the roles to verify on each host, and the hosts of its jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..base.checks import Check, outcomes, worst

# Roles to verify always, and roles that a run which just built the cluster has verified already. The former are cheap,
# or depend on later steps, as the driver does on a reboot.
_NVIDIA_ALWAYS, _FRAMEWORKS_ALWAYS = ("nvidia_driver", "cuda_toolkit"), ("pytorch", "mindspore", "oneflow")
_NVIDIA_BY_ITSELF, _FRAMEWORKS_BY_ITSELF = ("nccl", "cudnn", "nccl_tests"), ("ascend", "openmpi", "container_runtime")
# A job to begin with, by framework: on one node, and on several. All run on CPUs, whatever devices there are.
_FIRST_JOBS = {
    "pytorch": ("jobs/digits.yml", "jobs/digits-cluster.yml"),
    "mindspore": ("jobs/mindspore-digits.yml", "jobs/mindspore-cluster.yml"),
    "oneflow": ("jobs/oneflow-digits.yml", "jobs/oneflow-digits.yml"),
}
_NO_PYTORCH = (
    "pairs need PyTorch on every node: add pytorch to trainyard_frameworks and run site.yml, or name an environment "
    "that has it (pair_venv)"
)
_NO_MEASURING = "devices need PyTorch or MindSpore: add pytorch or mindspore to trainyard_frameworks and run site.yml"


def phase_outcome(checks: Sequence[Mapping[str, Any]] | None, phase: str, skipped: str, again: str) -> dict[str, Any]:
    """Return `checks`, `state`, `reason` and `text` of a phase; `skipped` says why it does not apply.

    A phase without checks was stopped by something. The worst check decides; where all were skipped, they say why.
    `again` is the command that verifies the cluster once more.
    """
    if checks is None and not skipped:
        action = "read what this run of ansible-playbook printed"
        check = Check(phase, phase, "unknown", reason="the phase did not finish", action=action, command=again)
        checks = [check.as_dict()]
    checks = list(checks or ())
    states = [check["state"] for check in checks]
    state = worst(states)
    reasons = [str(check["reason"]) for check in checks] if state == "skipped" else []
    reason = skipped or "; ".join(dict.fromkeys(reasons))
    text = f"does not apply, {reason}" if state == "skipped" else f"{state.replace('_', ' ')}, {outcomes(states)}"
    return {"checks": checks, "state": state, "reason": reason, "text": text}


def verified_roles(
    answered: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    frameworks: Collection[str],
    nvidia: Collection[str],
    *,
    manage_system: bool,
    fresh: bool,
) -> dict[str, list[str]]:
    """Return by role the hosts on which it verifies what it has installed, in the order of the inventory.

    `answered` are the hosts that answer, `groups` those of the inventory, `frameworks` and `nvidia` the roles that were
    asked for; `fresh` says that this run has just built the cluster.
    """
    roles = ["nvidia_stack", *(role for role in _NVIDIA_ALWAYS if role in nvidia)]
    roles += [role for role in _FRAMEWORKS_ALWAYS if role in frameworks]
    if not fresh:
        roles += [*(role for role in _NVIDIA_BY_ITSELF if role in nvidia), "rdma"]
        roles += ["node_baseline"] if manage_system else []
        roles += [role for role in _FRAMEWORKS_BY_ITSELF if role in frameworks]
    group_of = {"rdma": "rdma", **dict.fromkeys(("nvidia_stack", *_NVIDIA_ALWAYS, *_NVIDIA_BY_ITSELF), "nvidia")}
    hosts = {role: list(groups.get(group_of[role]) or ()) if role in group_of else list(answered) for role in roles}
    there = {role: [host for host in each if host in answered] for role, each in hosts.items()}
    return {role: each for role, each in there.items() if each}


def job_hosts(
    usable: Sequence[str],
    answers: Mapping[str, Mapping[str, Any]],
    phases: Collection[str],
    frameworks: Collection[str],
    *,
    pair_venv: bool,
) -> dict[str, Any]:
    """Return which hosts take part in the jobs of which phase: none of a phase that is not requested or does not apply.

    `usable` are those that jobs can use, `answers` the facts of all nodes. `collectives` has the hosts by
    framework, `inside` those with several GPUs; `no_pairs` and `no_compute` say why no pairs or devices are measured,
    `measuring` with which framework, `backend` is that over all.
    """
    several = list(usable) if len(usable) > 1 else []
    no_pairs = "" if "pytorch" in frameworks or pair_venv else _NO_PYTORCH
    # A pair is measured apart from all others, also from their failures, as ranks of one mpirun are not.
    no_pairs = no_pairs if several else "there are no two nodes that jobs can use"
    measuring = next((name for name in ("pytorch", "mindspore") if name in frameworks), "")
    no_compute = "no node is left that jobs can use" if not usable else "" if measuring else _NO_MEASURING
    devices = {host: answers[host].get("devices") or {} for host in usable}
    accelerated = any((found.get("vendor") or "none") != "none" for found in devices.values())
    of_frameworks = [name for name in _FRAMEWORKS_ALWAYS if name in frameworks]
    of_frameworks += ["mpi"] if "openmpi" in frameworks else []
    return {
        "compute": list(usable) if "compute" in phases and not no_compute else [],
        "no_compute": no_compute,
        "measuring": measuring,
        "collectives": {name: list(usable) for name in of_frameworks} if "collectives" in phases else {},
        "bandwidth": several if "bandwidth" in phases else [],
        "inside": [host for host in usable if "bandwidth" in phases and len(devices[host].get("gpus") or ()) > 1],
        "pairs": several if "stragglers" in phases and not no_pairs else [],
        "no_pairs": no_pairs,
        "backend": "auto" if accelerated else "gloo" if "pytorch" in frameworks else "mpi",
    }


def first_job(hosts: Sequence[str], frameworks: Collection[str]) -> str:
    """Return the job file to begin with on these hosts, "" where no framework is there that one of ours trains with."""
    several = len(hosts) > 1
    return next((jobs[several] for name, jobs in _FIRST_JOBS.items() if name in frameworks), "")
