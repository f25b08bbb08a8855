"""CUDA toolkits are proved: programs are compiled and run, on fakes where there is no device."""

from __future__ import annotations

import os
import pwd

import pytest
from ansible.module_utils.trainyard.nvidia import cuda_verify
from ansible.module_utils.trainyard_node.nvidia.cuda_test_program import verify
from cuda_states import machine

RANK = "trainyard-cuda rank {0} of 2 on n1"
RIGHT = "".join(f"{RANK.format(n)} device {n} NVIDIA A100-SXM4-80GB: sum 3 expected 3\n" for n in (0, 1))
NO_DEVICE = "".join(f"{RANK.format(n)}: no device: no CUDA-capable device is detected\n" for n in (0, 1))


@pytest.mark.parametrize(
    ("status", "output", "found"),
    [
        (0, "a warning\n" + RIGHT, "pass"),
        (0, RIGHT.replace("rank 1 of 2", "rank 1 of 3"), "pass"),
        (0, RIGHT.splitlines()[0] + "\n", "fail"),
        (1, RIGHT, "fail"),
        (6, RIGHT.replace("sum 3", "sum 2", 1), "fail"),
        (2, NO_DEVICE, "no device"),
        (2, NO_DEVICE.splitlines()[0], "fail"),
        (4, RIGHT.splitlines()[0] + "\ntrainyard-cuda failed: ncclCommInitRank: unhandled system error\n", "fail"),
        (124, RIGHT, "unknown"),
        (127, "./verify: error while loading shared libraries: libcudart.so.13: cannot open shared object", "fail"),
        (0, "", "fail"),
    ],
)
def test_what_a_program_showed(status, output, found):
    assert cuda_verify.read_run(status, output, 60)["state"] == found


def ran(status, output):
    return {"build": "pass", "detail": "", "with": ["mpi"], "run": cuda_verify.read_run(status, output, 60)}


@pytest.mark.parametrize(
    ("program", "declared", "on_the_bus", "run", "action"),
    [
        (ran(2, NO_DEVICE), "0", 0, "skipped", None),
        (ran(0, RIGHT), "auto", 2, "pass", None),
        (ran(0, RIGHT), "2", 2, "pass", None),
        (ran(0, RIGHT), "8", 2, "fail", "correct nvidia_gpus"),
        (ran(0, RIGHT), "0", 2, "fail", "correct nvidia_gpus"),
        (ran(2, NO_DEVICE), "auto", 0, "unknown", "set nvidia_gpus: 0 for a node that has none on purpose"),
        (ran(2, NO_DEVICE), "auto", 2, "fail", "check the driver"),
        (ran(2, NO_DEVICE), "8", 0, "fail", "check the driver"),
        (ran(124, ""), "auto", 2, "unknown", "check the driver"),
        ({"build": "fail", "detail": "nvcc: cannot find -lnccl", "with": [], "run": {}}, "0", 0, "unknown", "repair"),
    ],
)
def test_a_missing_device_is_a_state_only_where_none_is_declared(program, declared, on_the_bus, run, action):
    found, findings = cuda_verify.check_program("n1", program, declared, on_the_bus)
    assert found["run"] == run
    assert [finding.action.startswith(action) for finding in findings] == ([] if action is None else [True])


def test_errors_of_a_compiler():
    output = "verify.cu(3): error: identifier x\n1 error detected in the compilation\nremark\n"
    assert cuda_verify.compiler_error(output) == output.replace("\nremark\n", "").replace("\n", " / ")
    assert cuda_verify.compiler_error("/usr/bin/ld: cannot find -lnccl\n") == "/usr/bin/ld: cannot find -lnccl"
    assert cuda_verify.compiler_error("killed\n\n") == "killed"


@pytest.fixture
def fakes(tmp_path):
    """Fakes of nvcc and mpirun: nvcc makes the program that the test wants, mpirun runs it once."""

    def make(program, nvcc="cp given verify"):
        for name, content in {"cuda/bin/nvcc": nvcc, "bin/mpirun": 'shift 9; exec "$@"', "bin/mpicxx": MPICXX}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"#!/bin/sh\nFOLDER={tmp_path}\n{content.replace('given', str(tmp_path / 'given'))}\n")
            file.chmod(0o755)
        (tmp_path / "mpi.h").touch()
        (tmp_path / "given").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "given").chmod(0o755)
        return tmp_path

    return make


MPICXX = "case $1 in --showme:incdirs) echo $FOLDER ;; --showme:libdirs) echo /mpi/lib ;; *) echo mpi_cxx mpi ;; esac"


def verified(folder, **changes):
    node = machine(mpi={"version": "4.1.4", "path": f"{folder}/bin/mpirun"}, nccl="/opt/nccl")
    request = {
        **{"user": pwd.getpwuid(os.geteuid()).pw_name, "home": f"{folder}/cuda", "root": str(folder)},
        **{"compiler": "g++-11", "mpi": True, "nccl": True, "gpus": 0, "rpath": False},
        **{"build_seconds": 20, "run_seconds": 20},
        **changes,
    }
    found = verify("int main() {}", node, request)
    assert not list(folder.glob(".cuda-verify-*"))
    return found


def test_a_program_is_linked_with_what_is_there(fakes):
    folder = fakes("cat arguments", nvcc="cp given verify; echo $* >arguments")
    found = verified(folder)
    assert (found["build"], found["with"]) == ("pass", ["mpi", "nccl"])
    flags = found["run"]["detail"]
    assert "-ccbin=g++-11" in flags
    assert f"-DWITH_MPI -I{folder} -L/mpi/lib -Xlinker -rpath,/mpi/lib -lmpi_cxx -lmpi" in flags
    assert "-DWITH_NCCL -I/opt/nccl/include -L/opt/nccl/lib -Xlinker -rpath,/opt/nccl/lib -lnccl" in flags
    assert verified(folder, mpi=False, nccl=False)["with"] == []


def test_a_program_that_does_not_end_is_ended(fakes):
    found = verified(fakes("sleep 600"), run_seconds=1)
    assert found["run"]["state"] == "unknown"
    assert verified(fakes("true", nvcc="exec sleep 600"), build_seconds=1)["build"] == "unknown"
    found = verified(fakes("true", nvcc="echo 'verify.cu(1): error: no'; exit 1"))
    assert (found["build"], found["detail"]) == ("fail", "nvcc: verify.cu(1): error: no")
