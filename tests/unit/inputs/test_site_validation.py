"""site.yml stops with all findings before it changes anything: one list, from real playbooks."""

import functools
import json
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_run import run_ansible


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Serve an empty package index on the loopback."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path_factory.mktemp("index")))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Run site.yml on this machine alone, with its own folders and without this machine's package indexes."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)

    def run(*arguments, inventory="inventories/localhost", **variables):
        folders = {"trainyard_root": str(tmp_path / "root"), "trainyard_state": str(tmp_path / "state")}
        options = [*arguments, "-e", json.dumps({**folders, "trainyard_free_gib": 0, **variables})]
        return run_ansible("ansible-playbook", "site.yml", "-i", inventory, *options, PIP_CONFIG_FILE="/dev/null")

    return run


def test_site_lists_all_findings_and_changes_nothing(site, index, tmp_path):
    archive = {"name": "cifar10", "url": f"{index}/cifar-10-binary.tar.gz"}
    mindspore = {"mindspore_version": "2.2.14", "mindspore_device": "gpu", "mindspore_cuda": "11.6"}
    site(
        trainyard_frameworks=["pytorch", "mindspore", "oneflow"],
        pytorch_index_url=index,
        pytorch_min_free_mb=0,
        oneflow_interpreter="python9",
        dataset_sets=[archive, {"name": "digits", "local_file": str(tmp_path / "digits.csv.gz")}],
        **mindspore,
    ).expect(
        2,
        "These hosts cannot become nodes yet: ",
        "input of mindspore on localhost found no package index has MindSpore 2.2.14 for gpu",
        "do set mindspore_wheel_url to the address of its wheel",
        f"index for torch on localhost found {index} has none at all for Python 3.",
        "Python of oneflow on localhost found there is no Python interpreter 'python9'",
        f"source of data set cifar10 on localhost found {archive['url']}: HTTP 404",
        f"source of data set digits found {tmp_path}/digits.csv.gz on the controller does not exist",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
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
        "cuda_toolkit_local_file": "/proc/nowhere/cuda.run",
        "nccl_manage_system": True,
        "nvidia_stack_overrides": {"nccl": {"provider": "network_repo", "version": "2.15.5", "cuda": "11.8"}},
        "nvidia_repository_url": index,
        "nvidia_repository_distro": "debian12",
        "nccl_tests_repository": f"{index}/nccl-tests.git",
        "dataset_sets": [{"name": "cifar10", "url": f"{index}/none.gz"}],
    }
    run = site(inventory=str(hosts), nvidia_stack="mindspore-cuda11.6", **given)
    run.expect(
        2,
        "h1 none, as declared",
        "input of mindspore on h1 found no package index has MindSpore 2.2.14 for gpu",
        f"source of Open MPI 4.1.4 on h1 found {index}/openmpi.tar.bz2: HTTP 404",
        "source of CUDA 11.6.2 found /proc/nowhere/cuda.run on the controller does not exist",
        f"index for nvidia-cudnn-cu11 on h1 found {index} has none at all",
        "input of nccl_tests on h1 found nccl_tests_commit is ''",
        f"package repository on h1 found {index}/debian12/",
        "there is no repository at this",
        "source of data set cifar10 on h1",
    )
    assert run.text.count("Nothing was changed.") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.yml"]


@pytest.mark.long
def test_an_older_lock_and_further_packages_are_findings_among_others(site, index, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    host = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (folder / "hosts.yml").write_text(json.dumps({"compute": {"hosts": {"h1": host}}}))
    parts = {"packages": {"requested": [], "files": []}, "environments": {}}
    lock = {"version": 1, "files": [], "missing": [], "systems": {"ubuntu-22.04-aarch64": parts}}
    (folder / "trainyard.lock").write_text(json.dumps(lock))
    roles = ("pytorch", "mindspore", "oneflow")
    given = {f"{role}_extra_packages": ["scikit-learn", "numpy==0.1"] for role in roles}
    given |= {f"{role}_{name}": value for role in roles for name, value in (("index_url", index), ("min_free_mb", 0))}
    # The Python does not matter, as the list is wrong.
    given |= {f"{role}_python_{end}": number for role in roles for end, number in (("min", "3.9"), ("max", "3.19"))}
    given |= {"trainyard_become": False, "trainyard_manage_system": False, "trainyard_frameworks": list(roles)}
    given["dataset_sets"] = [{"name": "cifar10", "url": f"{index}/none.gz"}]
    run = site("--skip-tags", "dataset", inventory=str(folder), **given)
    run.expect(
        2,
        "lock on h1 found nothing for ",
        "expected one of ubuntu-22.04-aarch64",
        "do run playbooks/lock.yml again: the lock is older than the inventory",
        *(f"packages of {role} on h1 found h1: 'scikit-learn' is not pinned" for role in roles),
    )
    assert "source of data set" not in run.text
    assert run.text.count("and 'numpy==0.1' contradict each other: keep one") == len(roles), run.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
