"""What nccl promises: one version on all nodes, proved by the library, and one home whatever it comes from.

Runs after test_repository.py, as the last test takes NCCL away. Packages and archive are stand-ins whose library
answers to ncclGetVersion; the wheel is NVIDIA's own.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from pathlib import Path

import pytest

HOME = "/opt/trainyard/nccl"
FIXTURES = Path(__file__).resolve().parents[3] / "tests/fixtures/nvidia_repository"
ASK = "import ctypes; n = ctypes.c_int(); ctypes.CDLL('{}').ncclGetVersion(ctypes.byref(n)); print(n.value)"
PACKAGES = {"nccl_provider": "network_repo", "nccl_version": "2.21.5", "nccl_cuda": "12.4"}


def answer(host):
    """What the library in the home answers."""
    return host.check_output(f'python3 -c "{ASK.format(HOME + "/lib/libnccl.so")}"')


def test_the_home_leads_to_the_version_that_was_asked_for(host):
    assert answer(host) == "22105"
    assert host.file(f"{HOME}/include/nccl.h").contains("NCCL_MINOR 21")
    assert host.file(f"{HOME}/lib/libnccl.so").linked_to.endswith("-linux-gnu/libnccl.so.2.21.5")


def test_a_node_with_another_version_is_named_and_settings_are_reported(
    run_playbook, packages, last, node_names, request
):
    last.check_output("echo NCCL_DEBUG=INFO | sudo tee /etc/nccl.conf")
    request.addfinalizer(lambda: last.check_output("sudo rm /etc/nccl.conf"))
    older = dict.fromkeys(("libnccl2", "libnccl-dev"), "2.20.5-1+cuda12.4")
    packages(older, check=False)
    request.addfinalizer(lambda: packages(dict.fromkeys(older, "2.21.5-1+cuda12.4"), check=False))
    done = run_playbook("changed.yml", step="verify", **PACKAGES)
    assert done.rc != 0
    assert "/etc/nccl.conf sets NCCL for every program, whatever a job says" in done.text
    assert (
        f"NCCL is not the same and sound on all nodes: 1 finding. 1. version of NCCL on {node_names[-1]} found 2.20.5 ("
    ) in done.text
    assert "expected 2.21.5, as nccl_version says" in done.text


def test_all_faults_of_the_input_are_said_before_anything_is_touched(run_playbook, node_names):
    done = run_playbook(
        "changed.yml",
        "--limit",
        node_names[-1],
        nccl_provider="archive",
        nccl_version="2.21",
        nccl_cuda="12",
        nccl_url="",
        nccl_sha256="x",
    )
    assert done.rc != 0
    for text in (
        "nccl_version is '2.21', expected an exact release such as 2.21.5.",
        "nccl_cuda is '12', expected the CUDA release that NCCL is built for, such as 12.4, in quotes.",
        "expected either nccl_url or nccl_local_file.",
        "nccl_sha256 is 'x', expected the archive's sha256",
    ):
        assert text in done.text


@pytest.fixture(scope="module")
def archive(tmp_path_factory, last):
    """An archive as NVIDIA packs them, xz in a folder of its own name."""
    sys.path.insert(0, str(FIXTURES))
    import library

    machine = last.check_output("uname -m")
    folder = tmp_path_factory.mktemp("archive")
    root = folder / f"nccl_2.20.5-1+cuda12.4_{machine}"
    (root / "include").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "include/nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 20\n#define NCCL_PATCH 5\n")
    (root / "lib/libnccl.so.2").write_bytes(library.nccl_library("2.20.5", "cuda12.4", f"{machine}-linux-gnu"))
    path = folder / f"{root.name}.txz"
    with tarfile.open(path, "w:xz") as packed:
        packed.add(root, root.name)
    return {
        "nccl_provider": "archive",
        "nccl_version": "2.20.5",
        "nccl_cuda": "12.4",
        "nccl_local_file": str(path),
        "nccl_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def test_providers_replace_one_another_and_none_removes_all(run_playbook, archive, last, node_names, have):
    only = ("--limit", node_names[-1])

    done = run_playbook("changed.yml", *only, **archive)
    assert done.rc == 0, done.output
    assert answer(last) == "22005"
    assert have() == {}, "the packages that the role has brought are gone"
    assert not last.file("/etc/apt/preferences.d/trainyard-nccl").exists

    wheel = {"nccl_provider": "wheel", "nccl_version": "2.28.9", "nccl_cuda": "13.0"}
    done = run_playbook("changed.yml", *only, **wheel)
    assert done.rc == 0, done.output
    assert answer(last) == "22809"
    assert not last.file("/opt/trainyard/nccl-archive").exists

    done = run_playbook("changed.yml", *only, nccl_provider="none")
    assert done.rc == 0, done.output
    assert not last.file(HOME).exists
    assert not last.file("/opt/trainyard/venvs/nccl").exists
