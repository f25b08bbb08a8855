"""Nodes of a driver upgrade, as the filters nvidia_upgrade_* take them."""

from __future__ import annotations

from ansible.module_utils.trainyard.nvidia import nvidia_answers, upgrade
from filters import FILTERS, declared, of_hosts

OLD, NEW = "550.54.15", "550.127.08"
TARGET = {"provider": "network_repo", "version": NEW, "flavour": "open"}
SETTINGS = {**TARGET, "state": "present", "branch": "", "kernels": ["k"], "arguments": ["--no-opengl-files"]}
EXPECTED = {"version": NEW, "branch": "", "flavour": "open", "kernels": ["k"], "gpus": True, "fabric_manager": False}
OPTIONS = {"canary": [], "serial": 1, "busy": "skip", "runfiles": [], "without_way_back": False, "checks": []}
OPTIONS["cordoned"] = False
RUNFILE = {"version": "470.103.01", "file": "/srv/NVIDIA-470.run", "sha256": "a" * 64}


def driver(host="n1", version=OLD, **given):
    """Return the state of a healthy node, as library/nvidia_driver has it."""
    state = {
        "host": host,
        "kernel": "k",
        "headers": ["k"],
        "provider": "network_repo",
        "version": version,
        "loaded": version,
        "packages": {"nvidia-kernel-dkms": f"{version}-1", "nvidia-smi": f"{version}-1"},
        "broken": [],
        "held": ["nvidia-kernel-dkms"],
        "runfile": "",
        "flavour": "open",
        "userspace": version,
        "fabric_manager": "",
        "smi": {"driver": version, "problem": ""},
        "dkms": [],
        "modules": {"k": {"version": version}},
        "builds": {},
        "nouveau": False,
        "reboot_due": [],
        **given,
    }
    return declared(state, nvidia_answers.DRIVER)


def node(host="n1", version=OLD, **given):
    """Return the record of a node before an upgrade."""
    return {
        "driver": driver(host, version),
        "plan": {"action": "install", "step": "" if version == NEW else f"driver {NEW} instead of {version}"},
        "settings": SETTINGS,
        "expected": EXPECTED,
        "uses": [],
        "slurm": "",
        "kubernetes": False,
        "missing": [],
        **given,
    }


def planned(nodes, kept=(), **given):
    nodes = {node["driver"]["host"]: node for node in nodes}
    return of_hosts("nvidia_upgrade_plan", nodes, {**OPTIONS, **given}, dict(kept))


def four(**of):
    return [node(f"n{number}", **of.get(f"n{number}", {})) for number in (1, 2, 3, 4)]


def states(found):
    return {host: entry["state"] for host, entry in found["table"].items()}


def entry(state, **given):
    return {"state": state, "why": "", "target": TARGET, **given}


def settled(now, **given):
    return FILTERS["nvidia_upgrade_settled"](
        {
            "driver": now,
            "expected": EXPECTED,
            "checks": [],
            "parts": {},
            "failure": "",
            "findings": [],
            "reboots": True,
            "before": upgrade.previous(driver()),
            "settings": SETTINGS,
            "runfiles": [],
            **given,
        }
    )
