"""Readings of the devices of a machine with two GPUs, its faults, and checks by their names."""

import copy

import pytest
from captured_tree import NODES, unfold

VERIFY = NODES.parent / "verify"


@pytest.fixture(scope="session")
def reading(tmp_path_factory):
    """Return a copy of what is read of gpu2 with the given trees over it."""
    from ansible.module_utils.trainyard_node.machine.tree import Tree
    from ansible.module_utils.trainyard_node.verify.facts import read_machine

    known = {}

    def read(*over):
        if over not in known:
            folder = tmp_path_factory.mktemp("machine")
            for name in ("gpu2", *over):
                unfold(name, folder, VERIFY)
            found = read_machine(
                Tree(str(folder)), host="n1", root="/opt/trainyard", venvs="/opt/trainyard/venvs", user="",
                ascend_root="/usr/local/Ascend", network="", host_address="10.20.0.1", devices_only=True,
            )  # fmt: skip
            known[over] = found["devices"]
        return copy.deepcopy(known[over])

    return read


def by_name(checks):
    found = {}
    for check in checks:
        found.setdefault(check.name, []).append(check)
    return found


def only(checks, name):
    (check,) = by_name(checks)[name]
    return check
