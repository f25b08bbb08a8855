"""Launches on Slurm with findings, and what readers do for each part of the advice."""

from __future__ import annotations

import copy
import os

from advice_readers import AS_WRITTEN, of_world, together
from ansible.module_utils.trainyard.job.schedulers.slurm import MAX_SOURCE
from launch_world import World
from test_images import ARCHIVE, FACT
from test_slurm import FACTS, NODE, PARTITION

KNOWN = ["n1", "n2", "login"]
LARGE = {"PartitionName": "large", "MaxNodes": "UNLIMITED", "TotalNodes": "4", "Default": "NO"}


def slurm(hosts=2, **job):
    """Return a launch on a cluster with the partitions train and large, which have the same two nodes."""
    given = {"nodes": 2, "ranks_per_node": 2, "devices": "none", "venv": "/opt/venv", "timeout": 90, **job}
    world = World(hosts, scheduler="slurm", **given)
    world.facts["login"] = copy.deepcopy(FACTS)
    world.facts["login"]["partitions"].append({**PARTITION, **LARGE})
    for node in world.facts["login"]["nodes"]:
        node["Partitions"] = "train,large"
    return world.having(given={"submit_host": "login", "known": KNOWN})


def nodes(*changes):
    """Return a change of Slurm's nodes, in their order."""

    def change(world):
        for node, own in zip(world.facts["login"]["nodes"], changes, strict=True):
            node |= own

    return change


def train(**changes):
    return lambda world: world.facts["login"]["partitions"][0].update(changes)


def cluster(**changes):
    return lambda world: world.facts["login"].update(changes)


def changed(world, *changes):
    for change in changes:
        change(world)
    return world


def images(world):
    return world.having(answers=lambda facts, about: {**facts, "image": about["image"] and FACT})


CASES = {
    "no login host": lambda _: (
        slurm().having(given={"submit_host": "", "known": KNOWN}),
        {"set job_login_host": of_world(given={"submit_host": "login", "known": KNOWN})},
    ),
    "an unknown login host": lambda _: (
        slurm().having(given={"submit_host": "login", "known": KNOWN[:2]}),
        {
            "add it to the inventory": of_world(given={"submit_host": "login", "known": KNOWN}),
            "correct job_login_host": of_world(given={"submit_host": "login", "known": KNOWN}),
        },
    ),
    "no number of nodes": lambda _: (slurm(nodes=None).having(groups={"compute": []}), {"set job_nodes": {"nodes": 2}}),
    "variables for a host that Slurm does not know": lambda _: (
        slurm(3).having(env={"n3": {"A": "1"}}),
        {
            "name the host so in the inventory": of_world(env={"n2": {"A": "1"}}),
            "remove its job_node_env": lambda world: world.env.clear(),
        },
    ),
    "secrets with Slurm": lambda _: (
        slurm(secret_env=["TOKEN"]),
        {"set job_folder to a folder that all nodes share": {"folder": "/shared"}},
    ),
    "a large folder with Slurm": lambda _: (
        slurm().having(files={"train.py": "", "data": os.urandom(MAX_SOURCE).hex()}),
        {
            "keep it on a file system that all nodes have, and name the script by its path in job_command": together(
                lambda world: world.files.pop("data"), {"command": ["python", "/shared/train.py"]}
            )
        },
    ),
    "an image that Slurm copies": lambda _: (
        slurm(image=ARCHIVE, container="podman", image_copy="n1"),
        {"leave job_image_copy out": AS_WRITTEN},
    ),
    "no such partition": lambda _: (slurm(partition="trian"), {"correct job_partition": {"partition": "train"}}),
    "a folder of somebody else": lambda _: (
        changed(slurm(), cluster(folder_writable=False)),
        {
            "set job_folder to a folder of that user that all nodes share": together(
                {"folder": "/shared"}, cluster(folder_writable=True)
            )
        },
    ),
    "a partition that is down": lambda _: (
        changed(slurm(), train(State="DOWN")),
        {"wait until it is up": train(State="UP"), "choose another with job_partition": {"partition": "large"}},
    ),
    "more nodes than a partition allows": lambda _: (
        changed(slurm(), train(MaxNodes="1")),
        {"lower job_nodes": {"nodes": 1}, "choose another partition with job_partition": {"partition": "large"}},
    ),
    "more time than a partition allows": lambda _: (
        changed(slurm(), train(MaxTime="00:01:00")),
        {"set job_timeout: 60 or less": AS_WRITTEN, "choose another partition": {"partition": "large"}},
    ),
    "fewer processors than ranks": lambda _: (
        changed(slurm(), nodes({}, {"CPUTot": "1"})),
        {"lower job_ranks_per_node": {"ranks_per_node": 1}, "job_nodes": {"nodes": 1}},
    ),
    "fewer devices than a job takes": lambda _: (
        changed(slurm(devices="auto", gres="gpu:4"), nodes({"Gres": "gpu:2"}, {"Gres": "gpu:2"})),
        {
            "correct job_devices or job_gres": {"gres": "gpu:2"},
            "to run on the CPU, set job_devices: none and leave job_gres out": AS_WRITTEN,
        },
    ),
    "nodes out of service": lambda _: (
        changed(slurm(), nodes({}, {"State": "DOWN", "Reason": "disk"})),
        {
            "repair or resume them (scontrol update nodename=NAME state=resume)": nodes({}, {"State": NODE["State"]}),
            "lower job_nodes": {"nodes": 1},
        },
    ),
    "nodes that the inventory lacks": lambda _: (
        slurm().having(given={"submit_host": "login", "known": ["login"]}),
        {
            "set job_folder": {"folder": "/shared"},
            "add the nodes to the inventory": of_world(given={"submit_host": "login", "known": KNOWN}),
        },
    ),
}
