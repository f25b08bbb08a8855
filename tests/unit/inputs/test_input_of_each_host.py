"""Roles check their variables on each host: a wrong one in host_vars of the last host ends the play for all."""

from __future__ import annotations

from plays import play

INSPECT = "- {hosts: compute, gather_facts: false, tasks: [{include_role: {name: ascend, tasks_from: inspect}}]}"


def test_wrong_variables_of_the_last_host_stop_all(tmp_path):
    variables = {"trainyard_user": "train", "trainyard_manage_system": False}
    done = play(tmp_path, INSPECT, {"n1": variables, "n2": {**variables, "ascend_root": "opt"}})
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "1 finding." in said, said
    assert "input of ascend on n2 found ascend_root is 'opt'" in said
