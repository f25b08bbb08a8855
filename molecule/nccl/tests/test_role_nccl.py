"""The roles nccl and cudnn: one version on all nodes, verified by the library, and one home for every provider.

Runs after test_repository.py, as the last test removes both. Packages and archives are simulated, with a library that
reports its version; the wheel is NVIDIA's own.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

import pytest

HOME = "/opt/trainyard/nccl"
FIXTURES = Path(__file__).resolve().parents[3] / "tests/fixtures/nvidia_repository"
ASK = "import ctypes; n = ctypes.c_int(); ctypes.CDLL('{}').ncclGetVersion(ctypes.byref(n)); print(n.value)"
CUDNN_HOME = "/opt/trainyard/cudnn"
LOADER = "/etc/ld.so.conf.d/trainyard-cudnn.conf"
ASK_CUDNN = "import ctypes; x = ctypes.CDLL('{}'); print(x.cudnnGetVersion(), x.cudnnGetCudartVersion())"
PACKAGES = {"nccl_provider": "network_repo", "nccl_version": "2.21.5", "nccl_cuda": "12.4"}


def nccl_version(host):
    """Return the version that the library in the home reports."""
    return host.check_output(f'python3 -c "{ASK.format(HOME + "/lib/libnccl.so")}"')


def cudnn_versions(host, library=f"{CUDNN_HOME}/lib/libcudnn.so"):
    """Return version and CUDA that a cuDNN reports, that of the home or one that the loader finds."""
    return host.check_output(f'python3 -c "{ASK_CUDNN.format(library)}"')


def test_cudnn_has_the_requested_version_under_the_names_that_programs_use(host):
    assert cudnn_versions(host) == cudnn_versions(host, "libcudnn.so.8") == "8500 11070"
    assert host.file(f"{CUDNN_HOME}/include/cudnn_version.h").contains("CUDNN_MINOR 5")
    assert host.file(f"{CUDNN_HOME}/include/cudnn.h").linked_to.endswith("-linux-gnu/cudnn_v8.h")
    assert not host.file(LOADER).exists
    held = host.check_output("apt-mark showhold").split()
    assert {"libcudnn8", "libcudnn8-dev"} <= set(held)


def test_the_home_links_to_the_requested_version(host):
    assert nccl_version(host) == "22105"
    assert host.file(f"{HOME}/include/nccl.h").contains("NCCL_MINOR 21")
    assert host.file(f"{HOME}/lib/libnccl.so").linked_to.endswith("-linux-gnu/libnccl.so.2.21.5")


def test_a_node_with_another_version_is_a_finding_and_settings_are_reported(
    run_playbook, packages, last, node_names, request
):
    last.check_output("echo NCCL_DEBUG=INFO | sudo tee /etc/nccl.conf")
    request.addfinalizer(lambda: last.check_output("sudo rm /etc/nccl.conf"))
    older = dict.fromkeys(("libnccl2", "libnccl-dev"), "2.20.5-1+cuda12.4")
    packages(older, check=False)
    request.addfinalizer(lambda: packages(dict.fromkeys(older, "2.21.5-1+cuda12.4"), check=False))
    done = run_playbook("changed.yml", step="verify", **PACKAGES)
    assert done.rc != 0
    assert "/etc/nccl.conf configures NCCL for every program" in done.text
    assert f"1 finding. 1. version of NCCL on {node_names[-1]} found 2.20.5 (" in done.text
    assert "expected 2.21.5, as nccl_version says" in done.text


def test_all_errors_of_the_input_are_reported_before_anything_is_changed(run_playbook, last_name):
    given = {"nccl_provider": "archive", "nccl_version": "2.21", "nccl_cuda": "12", "nccl_url": "", "nccl_sha256": "x"}
    run_playbook("changed.yml", "--limit", last_name, **given).fails(
        "nccl_version is '2.21' expected an exact release such as 2.21.5",
        "nccl_cuda is '12' expected the CUDA release",
        "expected either nccl_url or nccl_local_file",
        "nccl_sha256 is 'x' expected the archive's sha256",
    )


def test_a_cudnn_that_its_provider_lacks_is_rejected(run_playbook, node_names):
    only = ("--limit", node_names[-1])
    done = run_playbook("changed.yml", *only, cudnn_provider="wheel", cudnn_version="8.0.5.39", cudnn_cuda="11.1")
    done.fails("no package index has cuDNN 8.0.5.39 for CUDA 11 as a wheel expected 8.5 or newer")
    other = {"cudnn_provider": "network_repo", "cudnn_version": "8.9.7.29", "cudnn_cuda": "12.2"}
    done = run_playbook("changed.yml", *only, fake_state="present", **other)
    done.fails(f"package libcudnn8 on {node_names[-1]}", "8.5.0.96-1+cuda11.7")


def packed(root):
    """A folder as NVIDIA packs it, and its sum."""
    path = root.with_name(f"{root.name}.txz")
    with tarfile.open(path, "w:xz") as file:
        file.add(root, root.name)
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


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
    nccl = packed(root)
    # As those of cuDNN up to 8.2: libraries in lib64.
    root = folder / "cuda"
    (root / "include").mkdir(parents=True)
    (root / "lib64").mkdir()
    (root / "include/cudnn.h").write_text("")
    (root / "include/cudnn_version.h").write_text(
        "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 0\n#define CUDNN_PATCHLEVEL 5\n"
    )
    (root / "lib64/libcudnn.so.8").write_bytes(library.cudnn_library("8.0.5", "11.1", f"{machine}-linux-gnu"))
    cudnn = packed(root)
    return {
        "nccl_provider": "archive",
        "nccl_version": "2.20.5",
        "nccl_cuda": "12.4",
        "nccl_local_file": nccl[0],
        "nccl_sha256": nccl[1],
        "cudnn_provider": "archive",
        "cudnn_version": "8.0.5.39",
        "cudnn_cuda": "11.1",
        "cudnn_local_file": cudnn[0],
        "cudnn_sha256": cudnn[1],
    }


def test_providers_replace_one_another_and_none_removes_everything(run_playbook, archive, last, node_names, have):
    only = ("--limit", node_names[-1])

    run_playbook("changed.yml", *only, **archive).expect(0)
    assert nccl_version(last) == "22005"
    # Found by every program, through the loader.
    assert cudnn_versions(last) == cudnn_versions(last, "libcudnn.so.8") == "8005 11010"
    assert last.file(LOADER).content_string.endswith("/lib64\n")
    assert last.run("dpkg-query --status libcudnn8").rc != 0
    assert have() == {}, "the packages that the role has brought are gone"
    assert not last.file("/etc/apt/preferences.d/trainyard-nccl").exists

    wheel = {"nccl_provider": "wheel", "nccl_version": "2.28.9", "nccl_cuda": "13.0"}
    run_playbook("changed.yml", *only, **wheel).expect(0)
    assert nccl_version(last) == "22809"
    assert not last.file("/opt/trainyard/nccl-archive").exists

    run_playbook("changed.yml", *only, nccl_provider="none", cudnn_provider="none").expect(0)
    assert not last.file(HOME).exists
    assert not [name for name in last.file("/opt/trainyard/venvs").listdir() if name.startswith("nccl")]
    for path in (CUDNN_HOME, f"{CUDNN_HOME}-archive", LOADER):
        assert not last.file(path).exists
    assert last.run("ldconfig -p | grep libcudnn").rc != 0
