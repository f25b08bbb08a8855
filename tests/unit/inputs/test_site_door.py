"""site.yml stops with everything that can be known before it touches anything: one list, from real playbooks."""

import json
import os
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]

# This machine's own indexes are none of these tests'.
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An empty package index on the loopback."""
    folder = tmp_path_factory.mktemp("index")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def site(tmp_path):
    """Run site.yml on this machine alone, with folders of its own; returns the status and what was said on one line."""

    def run(*arguments, playbook="site.yml", inventory="inventories/localhost", **variables):
        given = {
            "trainyard_root": str(tmp_path / "root"),
            "trainyard_state": str(tmp_path / "state"),
            "trainyard_free_gib": 0,
            **variables,
        }
        done = subprocess.run(
            ["ansible-playbook", playbook, "-i", inventory, *arguments, "-e", json.dumps(given)],
            cwd=PROJECT,
            env={**PLAIN, "ANSIBLE_NOCOLOR": "1", "PIP_CONFIG_FILE": "/dev/null"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return run


def test_site_lists_everything_that_is_missing_and_changes_nothing(site, index, tmp_path):
    status, said = site(
        trainyard_frameworks=["pytorch", "mindspore", "oneflow"],
        pytorch_index_url=index,
        pytorch_min_free_mb=0,
        mindspore_version="2.2.14",
        mindspore_device="gpu",
        mindspore_cuda="11.6",
        oneflow_interpreter="python9",
        dataset_sets=[
            {"name": "cifar10", "url": f"{index}/cifar-10-binary.tar.gz"},
            {"name": "digits", "local_file": str(tmp_path / "digits.csv.gz")},
        ],
    )
    assert status == 2, said
    assert "These hosts cannot become nodes yet: " in said
    assert "input of mindspore on localhost found no package index has MindSpore 2.2.14 for gpu" in said
    assert "do set mindspore_wheel_url to the address of its wheel and mindspore_wheel_sha256 to its sum" in said
    assert f"index for torch on localhost found {index} has none at all for Python 3." in said
    assert "Python of oneflow on localhost found there is no Python interpreter 'python9'" in said
    assert f"source of data set cifar10 on localhost found {index}/cifar-10-binary.tar.gz: HTTP 404" in said
    assert f"source of data set digits found {tmp_path}/digits.csv.gz on the controller does not exist" in said
    assert list(tmp_path.iterdir()) == []


def test_tags_choose_the_checks(site, index):
    wrong = {
        "pytorch_index_url": index,
        "pytorch_min_free_mb": 0,
        "dataset_sets": [{"name": "cifar10", "url": f"{index}/none.gz"}],
    }
    status, said = site("--tags", "dataset", **wrong)
    assert status == 2 and "source of data set cifar10" in said and "index for torch" not in said
    status, said = site("--skip-tags", "dataset", **wrong)
    assert status == 2 and "index for torch" in said and "source of data set" not in said


def test_the_list_includes_the_stack_of_a_gpu_host_and_its_sources(site, index, tmp_path):
    hosts = tmp_path / "hosts.yml"
    python = "{{ ansible_playbook_python }}"
    host = {"ansible_connection": "local", "ansible_python_interpreter": python, "nvidia_gpus": 0}
    hosts.write_text(json.dumps({"compute": {"hosts": {"h1": host}}, "nvidia": {"hosts": {"h1": None}}}))
    given = {
        "trainyard_become": False,
        "trainyard_frameworks": ["mindspore", "openmpi"],
        "trainyard_nvidia": ["cuda_toolkit", "nccl", "nccl_tests", "cudnn"],
        "cudnn_index_url": index,
        "openmpi_url": f"{index}/openmpi.tar.bz2",
        "cuda_toolkit_local_file": "/nowhere/cuda.run",
        "nccl_manage_system": True,
        "nvidia_stack_overrides": {"nccl": {"provider": "network_repo", "version": "2.15.5", "cuda": "11.8"}},
        "nvidia_repository_url": index,
        "nvidia_repository_distro": "debian12",
        "nccl_tests_repository": f"{index}/nccl-tests.git",
        "dataset_sets": [{"name": "generated"}],
    }
    status, said = site(inventory=str(hosts), nvidia_stack="mindspore-cuda11.6", **given)
    assert status == 2, said
    assert "h1 none, as declared" in said
    assert "input of mindspore on h1 found no package index has MindSpore 2.2.14 for gpu" in said
    assert f"source of Open MPI 4.1.4 on h1 found {index}/openmpi.tar.bz2: HTTP 404" in said
    assert "source of CUDA 11.6.2 found /nowhere/cuda.run on the controller does not exist" in said
    assert f"index for nvidia-cudnn-cu11 on h1 found {index} has none at all" in said
    assert "input of nccl_tests on h1 found nccl_tests_commit is ''" in said
    assert f"package repository on h1 found {index}/debian12/" in said and "there is no repository at this" in said
    assert said.count("Nothing was changed.") == 1
    status, said = site(inventory=str(hosts), nvidia_stack="pytorch-cuda14", **given)
    assert status == 2 and "nvidia_stack on h1 found 'pytorch-cuda14'" in said
    assert "input of nccl_tests on h1" in said
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.yml"]


def test_further_packages_of_a_framework_are_pinned_and_leave_its_pins_alone(site, index):
    roles = ("pytorch", "mindspore", "oneflow")
    given = {f"{role}_extra_packages": ["scikit-learn", "numpy==0.1"] for role in roles}
    quick = {f"{role}_{name}": value for role in roles for name, value in (("index_url", index), ("min_free_mb", 0))}
    # Any Python does, as it is the list that is wrong.
    ranges = {f"{role}_python_{end}": number for role in roles for end, number in (("min", "3.9"), ("max", "3.19"))}
    status, said = site(trainyard_frameworks=list(roles), dataset_sets=[], **given, **quick, **ranges)
    assert status == 2
    for role in roles:
        assert f"packages of {role} on localhost found localhost: 'scikit-learn' is not pinned" in said, said
    assert said.count("and 'numpy==0.1' contradict each other: keep one") == len(roles), said
