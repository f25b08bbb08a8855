"""Facts of captured machines."""

from __future__ import annotations

from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify.facts import read_machine

GIVEN = {
    "host": "n1",
    "root": "/opt/trainyard",
    "venvs": "/opt/trainyard/venvs",
    "user": "",
    "ascend_root": "/usr/local/Ascend",
    "network": "",
    "host_address": "10.20.0.1",
}


def read(folder="/", **changes):
    return read_machine(Tree(str(folder)), **{**GIVEN, **changes})
