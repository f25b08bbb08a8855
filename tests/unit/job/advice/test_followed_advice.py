"""Advice of findings about launches is followed: its finding is gone then, and no other one has come.

`CASES` are launches, or choices of NVIDIA's software, with a finding, and what the reader does for each part of its
advice.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import advice_hosts
import advice_kubernetes
import advice_networks
import advice_nvidia
import advice_rank_tables
import advice_scripts
import advice_slurm
import advice_software
import pytest
from advice_hosts import CLOCK
from advice_readers import follow
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_controller.job.device_queue import DeviceQueue
from ansible.module_utils.trainyard_controller.job.schedulers import scheduler_clients
from ansible.module_utils.trainyard_node.job.plan import obstacles

CASES = {
    **advice_networks.CASES,
    **advice_hosts.CASES,
    **advice_software.CASES,
    **advice_rank_tables.CASES,
    **advice_slurm.CASES,
    **advice_kubernetes.CASES,
    **advice_scripts.CASES,
    **advice_nvidia.CASES,
}


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Wait in no time; have a network on which nobody answers, a cluster of Kubernetes, and files closed to root."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *mode: Path(path).name != "closed" and access(path, *mode))
    queue = functools.partial(DeviceQueue, clock=lambda: CLOCK.now, sleep=CLOCK.sleep)
    monkeypatch.setattr(planning, "DeviceQueue", queue)
    monkeypatch.setattr(scheduler_clients, "Cluster", advice_kubernetes.Cluster)
    monkeypatch.setattr(obstacles, "_connect_error", lambda where: "no answer" if where[0].startswith("10.66.") else "")


@pytest.fixture
def launches(tmp_path):
    """Return what launches a world with a folder of its own, and how many there were."""

    def launch(world):
        CLOCK.now = 0.0
        folder = tmp_path / f"launch{len(list(tmp_path.glob('launch*')))}"
        folder.mkdir()
        return world.launch(folder)

    return launch


def made(name, folder):
    folder.mkdir(parents=True)
    return CASES[name](folder)


def same_problem(finding):
    return finding.check, finding.expected, finding.action


def what(findings):
    return {(each.host, each.check, each.found) for each in findings}


def found_by(name, tmp_path, launches):
    """Return the finding whose advice has all parts of a case, and all findings of the launch."""
    world, parts = made(name, tmp_path / "first")
    findings = launches(world)
    fitting = [each for each in findings if all(part in each.action for part in parts)]
    assert fitting, f"no finding with {list(parts)}: {findings}"
    return fitting[0], findings, parts


@pytest.mark.parametrize("name", CASES)
def test_each_part_of_an_advice_helps(name, tmp_path, launches):
    finding, before, parts = found_by(name, tmp_path, launches)
    known = what(each for each in before if same_problem(each) != same_problem(finding))
    for number, part in enumerate(parts):
        world, changes = made(name, tmp_path / str(number))
        # Parts may name the folder of their world.
        follow(world, part, [*changes.values()][number])
        after = launches(world)
        assert what(after) <= known, f"{part!r} leads to {after}"
