"""A small all-reduce over a job's own GPUs: what is run, how it is run, and what its output shows to be wrong."""

from __future__ import annotations

import os
import pwd

import pytest
from ansible.module_utils.trainyard.base.visible import visible
from ansible.module_utils.trainyard.nvidia.local_collective import LIMIT_S, command, fault
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.machine import as_user
from ansible.module_utils.trainyard_node.nvidia import collective_run
from captured_tree import NODES
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for

OUTPUTS = NODES.parent / "nccl_tests_output"
STAND_IN = str(NODES.parent / "nccl_tests/all_reduce_perf")


def output(name):
    return (OUTPUTS / name).read_text()


def test_what_is_run_over_which_gpus_with_which_settings():
    used = {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_P2P_DISABLE": "1", "NCCL_TOPO_FILE": "/etc/topo.xml"}
    job = {"PATH": "/venv/bin", "LD_LIBRARY_PATH": "/x", "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO",
           "NCCL_DEBUG_FILE": "/var/%h", "NCCL_TOPO_DUMP_FILE": "/t", "NCCL_COMM_ID": "10.0.0.1:7",
           "NCCL_TESTS_SPLIT": "%2", **used}  # fmt: skip
    found = command("/opt/nccl-tests/bin/all_reduce_perf_mpi", [2, 3], job)
    assert " ".join(found["argv"]).endswith("/all_reduce_perf_mpi -b 1K -e 16M -f 16384 -w 1 -n 2 -c 1 -g 2")
    assert found["env"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3", **used}
    assert command("", [2, 3], job) == command("/p", [2], job) == command("/p", [], job) == {}


@pytest.mark.parametrize(
    ("name", "status", "devices", "said"),
    [
        ("2.10-all_reduce-8-v100.txt", 0, 8, ""),
        ("2.10-all_reduce-8-v100.txt", 0, 4, "8 ranks took part, expected 4"),
        ("2.19-all_reduce-16-h100.txt", 0, 16, ""),
        ("2.19-all_reduce-wrong.txt", 1, 16, "wrong results: 131072 elements at 1048576 bytes, and at 5 more sizes"),
        ("2.19-all_reduce-nccl-failure.txt", 3, 16, "gpu-01: Test NCCL failure common.cu:312 'remote process"),
        ("2.19-all_reduce-killed.txt", -11, 16, "it ended with signal 11; it said last: "),
        ("2.19-all_reduce-16-h100.txt", None, 16, "no end within 45 s; it said last: "),
    ],
)
def test_what_an_output_shows(name, status, devices, said):
    found = fault(status, output(name), devices)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    "text",
    [
        "all_reduce_perf_mpi: error while loading shared libraries: libnccl.so.2: cannot open shared object file\n",
        "# nccl-tests version 2.19.6\n# Collective test starting: all_reduce_perf_mpi\nORTE_ERROR_LOG: Not found\n",
        "",
    ],
)
def test_a_program_that_never_had_the_gpus_tells_nothing_of_them(text):
    assert fault(127, text, 8) == ""
    # One that hangs there does: nobody knows where.
    assert fault(None, text, 8).startswith("no end within 45 s")


def test_gpus_that_cuda_does_not_find():
    text = "# nThread 1 nGpus 8 minBytes 1024\n# Using devices\nn1: Test CUDA failure common.cu:901 'invalid device'\n"
    assert fault(2, text, 8) == "n1: Test CUDA failure common.cu:901 'invalid device'"


@given(st.text() | st.builds("{}\n{}".format, st.just("# Using devices"), st.text()), st.none() | st.integers(-64, 255))
def test_whatever_it_says_is_bounded_and_visible(text, status):
    found = fault(status, text, 2)
    assert len(found) <= 240 and visible(found) == found


# ---- on a node


def program_of(folder, text, mode=0o755):
    """Write a shell script and return its path."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(mode)
    return program


def asked(program=STAND_IN, count=16, **env):
    return {"argv": [str(program), "-g", str(count)], "env": env}


def test_a_program_is_run_and_read_to_its_end():
    ran = collective_run.run(asked(count=4), {}, None)
    assert ran.status == 0 and fault(ran.status, ran.output, 4) == ""
    ran = collective_run.run(asked(NCCL_STAND_IN="2.19-all_reduce-wrong.txt", NCCL_STAND_IN_STATUS="1"), {}, None)
    assert ran.status == 1 and fault(ran.status, ran.output, 16).startswith("wrong results")


def test_a_program_that_hangs_is_ended():
    ran = collective_run.run(asked(NCCL_STAND_IN_STATUS="hang"), {}, None, limit_s=1)
    assert ran.status is None and fault(ran.status, ran.output, 16).startswith(f"no end within {LIMIT_S:g} s")


@pytest.mark.parametrize(("then", "limit_s", "status"), [("exit 3", 60, 3), ("wait", 1, None)])
def test_what_it_has_started_ends_with_it(tmp_path, then, limit_s, status):
    child = tmp_path / "child"
    program = program_of(tmp_path, f"sleep 600 &\necho $! > {child}\n{then}")
    assert collective_run.run(asked(program), {}, None, limit_s=limit_s).status == status
    wait_for(lambda: process_table.start_time(int(child.read_text())) is None, "its child to end")


def test_the_output_has_an_upper_bound(tmp_path):
    ran = collective_run.run(asked(program_of(tmp_path, "exec yes")), {}, None, limit_s=1)
    assert ran.status is None and len(ran.output) == collective_run._MAX_BYTES


def test_a_program_that_cannot_start_has_no_result(tmp_path):
    assert collective_run.run(asked(tmp_path / "program"), {}, None) is None
    assert collective_run.run(asked(program_of(tmp_path, "", 0o644)), {}, None) is None


def test_root_gives_it_the_rights_and_the_name_of_the_jobs_user_alone(tmp_path):
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    owner = as_user.named(user)
    request = {"argv": ["sh", "-c", "id -u; id -g; id -G; env"], "env": {"A": "1"}}
    ran = collective_run.run(request, {"B": "2"}, owner if os.geteuid() == 0 else None)
    uid, gid, groups, *env = ran.output.splitlines()
    assert (int(uid), int(gid)) == (owner.uid, owner.gid)
    assert sorted(map(int, groups.split())) == sorted({owner.gid, *owner.groups})
    assert {"A=1", "B=2", f"USER={user}"} <= set(env)
    names = {"A", "B", "HOME", "LC_ALL", "LOGNAME", "PATH", "PWD", "USER", "SHLVL", "_", "OLDPWD"}
    assert {line.partition("=")[0] for line in env} <= names
