"""The role cuda_toolkit: toolkits side by side at exact versions, one the default, found everywhere and verified.

nvcc of CUDA 13, NCCL and Open MPI are the real ones. NVIDIA's repository and runfile are fakes, whose nvcc only
tells its version. There is no GPU, which the nodes declare.
"""

import hashlib
from pathlib import Path

import pytest
from lab_jobs import host_list

AS_TRAIN = "sudo --user=train --set-home"
LINK = "/opt/trainyard/cuda"
INSTALLER = Path(__file__).resolve().parents[3] / "tests/fixtures/cuda_runfile/cuda_12.8.1_linux.run"
RUNFILE = {
    "provider": "runfile",
    "version": "12.8.1",
    "local_file": str(INSTALLER),
    "sha256": hashlib.sha256(INSTALLER.read_bytes()).hexdigest(),
}
WHEEL = {"provider": "wheel", "version": "13.0"}
SIDE_BY_SIDE = [
    {"provider": "network_repo", "version": "12.4.0"},
    {"provider": "network_repo", "version": "12.6"},
    RUNFILE,
    WHEEL,
]
NO_DEVICE = ("no CUDA-capable device is detected", "CUDA driver version is insufficient for CUDA runtime version")


@pytest.fixture(scope="module")
def first(node_names):
    """Name of the first node, on which the fake of the repository is."""
    return node_names[0]


@pytest.fixture
def alter(node, node_names):
    """Return a function that runs a shell command on the last node."""
    return lambda command: node(node_names[-1]).check_output(f"sudo sh -ec '{command}'")


def test_nvcc_is_found_by_ssh_by_login_shells_and_by_services(host, node_names):
    asked = "command -v nvcc && nvcc --version && echo $CUDA_HOME"
    for command in (
        f"{AS_TRAIN} ssh -o BatchMode=yes {node_names[-1]} '{asked}'",
        f"sudo su - train -c '{asked}'",
        f"sudo systemd-run --pipe --quiet --wait sh -c '{asked}'",
    ):
        shown = host.check_output(command).splitlines()
        assert (shown[0], shown[-1]) == (f"{LINK}/bin/nvcc", LINK)
        assert "release 13.0, V13.0.88" in "".join(shown)
    assert f"{LINK}/lib64/libcudart.so.13" in host.check_output("/sbin/ldconfig -p")
    assert "cuda" not in host.check_output("bash -lc 'echo $PATH'"), "another user's sessions are as before"


def test_the_program_compiles_links_and_runs_to_the_missing_device(run_playbook, node_names):
    done = run_playbook("changed.yml", step="verify", show_verified=True).expect(0)
    for name in node_names:
        shown = done.text.partition(f"{name} build=")[2]
        assert shown.startswith("pass run=skipped with=mpi+nccl no device: "), done.output
        assert shown.partition("no device: ")[2].startswith(NO_DEVICE)


def test_a_node_that_declares_nothing_must_have_a_gpu(run_playbook, first):
    done = run_playbook("changed.yml", "--limit", first, step="verify", nvidia_gpus="auto")
    assert done.rc != 0
    assert "CUDA does not work on all nodes: 1 finding. 1. CUDA program on n1 found no device: " in done.text
    action = "do as the node says: set nvidia_gpus: 0 for a node that has none on purpose"
    assert f"expected a GPU, as nvidia_gpus is auto {action}" in done.text


def test_a_library_that_does_not_link_and_an_odd_nvcc_are_named(run_playbook, alter, node_names):
    last = node_names[-1]
    site = "/opt/trainyard/venvs/cuda-13.0/lib/python3*/site-packages/nvidia"
    alter(f"mv $(echo {site}/nccl/lib/libnccl.so) /root/libnccl.so")
    try:
        done = run_playbook("changed.yml", "--limit", last, step="verify")
    finally:
        alter(f"mv /root/libnccl.so $(echo {site}/nccl/lib/)")
    done.fails(f"1. CUDA program on {last} found nvcc: /usr/bin/ld: cannot find -lnccl")
    alter(
        "cd /opt/trainyard/cuda/bin; mv nvcc nvcc.away;"
        'printf "#!/bin/sh\\necho Cuda compilation tools, release 13.0, V13.0.48\\n" >nvcc; chmod 0755 nvcc'
    )
    try:
        done = run_playbook("changed.yml", step="verify")
    finally:
        alter("cd /opt/trainyard/cuda/bin; mv nvcc.away nvcc")
    done.fails(
        f"1. CUDA toolkits on {last} found nvcc 13.0.48 expected nvcc 13.0.88, as on {host_list(node_names[:-1])} do"
    )


@pytest.fixture(scope="module")
def side_by_side(run_playbook, first):
    """Four toolkits on the first node, 12.6 the default."""
    given = {
        "cuda_toolkit_versions": SIDE_BY_SIDE,
        "cuda_toolkit_default": "12.6",
        "cuda_toolkit_verify": False,
        "fake": "present",
    }
    run_playbook("changed.yml", "--limit", first, **given).expect(0)
    return given


def test_toolkits_lie_side_by_side_at_exactly_their_versions(side_by_side, node, first):
    one = node(first)
    for home, version in {
        "/usr/local/cuda-12.4": "12.4.99",
        "/usr/local/cuda-12.6": "12.6.85",
        "/opt/trainyard/cuda-12.8.1": "12.8.93",
        "/opt/trainyard/cuda-13.0": "13.0.88",
        LINK: "12.6.85",
    }.items():
        assert one.check_output(f"{home}/bin/nvcc --version").rpartition("V")[2].startswith(version)
    held = one.check_output("apt-mark showhold").split()
    assert {"cuda-toolkit-12-4", "cuda-nvcc-12-4", "cuda-toolkit-12-6"} <= set(held)
    assert "cuda-drivers" not in one.check_output("dpkg-query --show --showformat '${Package}\\n'").split()


def test_the_runfile_installed_the_toolkit_and_nothing_else(side_by_side, node, first):
    one = node(first)
    said = one.file("/opt/trainyard/cuda-12.8.1/arguments").content_string.split()
    assert said[:3] == ["--silent", "--toolkit", "--toolkitpath=/opt/trainyard/cuda-12.8.1"]
    assert not [option for option in said if "driver" in option]
    assert not one.file("/opt/trainyard/.cuda-installing").exists


def test_a_second_run_changes_the_default_alone(side_by_side, run_playbook, node, first):
    """The link, and the loader's cache."""
    again = run_playbook("changed.yml", "--limit", first, **{**side_by_side, "cuda_toolkit_default": "12.4"}).expect(0)
    assert again.changes == {first: 2}
    assert "V12.4.99" in node(first).check_output("sudo su - train -c 'nvcc --version'")


def test_a_preview_says_what_would_be_installed_and_removed(side_by_side, run_playbook, node, first):
    given = {"cuda_toolkit_versions": [{**RUNFILE, "version": "12.9.1"}], "cuda_toolkit_absent": ["12.8", "13.0"]}
    preview = run_playbook("changed.yml", "--limit", first, "--check", **given)
    assert preview.rc == 0, preview.output
    assert f"{first}: CUDA 12.9.1 into /opt/trainyard/cuda-12.9.1" in preview.text
    assert f"{first}: CUDA 12.8 of runfile in /opt/trainyard/cuda-12.8.1 is removed" in preview.text
    assert f"{first}: CUDA 13.0 of wheel in /opt/trainyard/cuda-13.0 is removed" in preview.text
    assert node(first).check_output("ls -d /opt/trainyard/cuda-*").split() == [
        "/opt/trainyard/cuda-12.8.1",
        "/opt/trainyard/cuda-13.0",
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"cuda_toolkit_versions": [{**RUNFILE, "version": "12.8.0", "sha256": "f0" * 32}]},
            f"{INSTALLER} on the controller has sha256 {RUNFILE['sha256']}, expected {'f0' * 32}. Correct local_file",
        ),
        (
            {"cuda_toolkit_versions": [WHEEL], "nvidia_gpus": "two", "step": "verify", "cuda_toolkit_default": "none"},
            "nvidia_gpus is 'two', expected auto, 0 or the number of GPUs.",
        ),
    ],
)
def test_bad_input_is_refused_with_what_to_do(side_by_side, run_playbook, first, given, text):
    run_playbook("changed.yml", "--limit", first, **given).fails(text).changes_nothing()


def test_an_installer_that_fails_leaves_nothing(side_by_side, run_playbook, node, first, tmp_path):
    broken = tmp_path / "cuda.run"
    broken.write_text(INSTALLER.read_text().replace("FAIL=no", "FAIL=yes"))
    record = {**RUNFILE, "version": "12.9.1", "local_file": str(broken)}
    record["sha256"] = hashlib.sha256(broken.read_bytes()).hexdigest()
    run_playbook("changed.yml", "--limit", first, cuda_toolkit_versions=[record], cuda_toolkit_default="none").fails(
        f"{first}: CUDA 12.9.1 could not be installed: Install CUDA 12.9.1: ", "No space left on device"
    )
    left = node(first).check_output("ls -A /opt/trainyard").split()
    assert not {"cuda-12.9.1", ".cuda-installing"} & set(left)


def test_another_default_and_removal(side_by_side, run_playbook, node, first):
    run_playbook(
        "changed.yml", "--limit", first, cuda_toolkit_versions=[WHEEL], cuda_toolkit_absent=["12.4", "12.6", "12.8"]
    ).expect(0)
    one = node(first)
    assert one.check_output(f"readlink {LINK}") == "/opt/trainyard/cuda-13.0"
    assert (
        one.check_output("ls -d /usr/local/cuda-* /opt/trainyard/cuda-* 2>/dev/null || true")
        == "/opt/trainyard/cuda-13.0"
    )
    assert "cuda" not in one.check_output("apt-mark showhold")
    assert "cuda-" not in one.check_output("dpkg-query --show --showformat '${Package}\\n'")

    gone = {
        "cuda_toolkit_versions": [],
        "cuda_toolkit_absent": ["13.0"],
        "cuda_toolkit_default": "none",
        "fake": "absent",
    }
    run_playbook("changed.yml", "--limit", first, **gone).expect(0)
    assert one.check_output("ls -A /opt/trainyard /opt/trainyard/venvs | grep cuda || true") == ""
    assert one.check_output("ls /etc/*/*cuda* /etc/ssh/sshd_config.d/*sessions* 2>/dev/null || true") == ""
    assert (
        one.run("sudo systemd-run --pipe --quiet --wait sh -c 'command -v nvcc || echo $CUDA_HOME'").stdout.strip()
        == ""
    )
