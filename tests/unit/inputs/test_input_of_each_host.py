"""Roles check their variables on each host: a wrong one in host_vars of the last host ends the play for all."""

from __future__ import annotations

import pytest
from plays import play

INSPECT = "{hosts: compute, gather_facts: false, tasks: [{include_role: {name: %s, tasks_from: inspect}}]}"


@pytest.mark.parametrize(
    ("role", "wrong", "found"),
    [
        ("ascend", {"ascend_root": "opt"}, "input of ascend on n2 found ascend_root is 'opt'"),
        ("container_runtime", {"container_runtime_storage": "data"}, "found container_runtime_storage is 'data'"),
        ("openmpi", {"openmpi_verify_slots": 0}, "found openmpi_verify_slots is 0"),
    ],
)
def test_wrong_variables_of_the_last_host_stop_all(tmp_path, role, wrong, found):
    variables = {"trainyard_user": "train", "trainyard_manage_system": False, "openmpi_provider": "source"}
    done = play(tmp_path, f"- {INSPECT % role}", {"n1": variables, "n2": {**variables, **wrong}})
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "1 finding." in said and found in said, said
