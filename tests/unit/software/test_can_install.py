"""Findings of a machine before an installation: real interpreters and pip, an index on the loopback."""

import contextlib
import getpass
import http.server
import itertools
import json
import os
import shutil
import sys
import threading
from functools import partial

import pytest
from ansible.module_utils.trainyard_controller.bundle.file_sources import packed_pip
from ansible.module_utils.trainyard_node.software import dataset_files, index_queries, python_environment
from ansible.module_utils.trainyard_node.software.can_install import can_install
from ansible.module_utils.trainyard_node.software.python_environment import Interpreter, inspect
from ansible_run import run_ansible
from environment_samples import ENVIRONMENT


@pytest.fixture(scope="module")
def pip():
    """Return pip, which is unpacked once: its first call compiles it."""
    packed = packed_pip()
    with index_queries.unpacked(packed) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_queries, "unpacked", lambda _: contextlib.nullcontext(folder))
        yield packed


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve a folder on the loopback: the folder, the server's address, and the list of requests."""
    asked = []
    # `make BUNDLE=folder` has pip ask no index.
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            asked.append(f"{self.command} {self.path}")

    # pip and urllib look at nothing else of this machine.
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def asked_for(tmp_path, pip="", **given):
    own = {"path": str(tmp_path / "venv"), "interpreter": sys.executable, "packages": ["torch==2.13.0+cu126"]}
    environment = {**ENVIRONMENT, **own, **given}
    request = {"environment": environment, "prefix": "pytorch", "manage_system": True}
    return can_install(requests={"pytorch": request}, pip=pip)


def texts(answer):
    return [f"{finding['check']}: {finding['found']}" for finding in answer["findings"]]


def test_an_index_is_asked_only_once_pip_is_there(served):
    folder, address, asked = served
    answer = asked_for(folder, index_url=address)
    assert answer == {"findings": [], "files": [], "seen": {}, "asks_index": True}
    assert asked == []


def test_the_index_holds_this_build_for_this_python_or_not(served, pip):
    folder, address, asked = served
    (folder / "torch").mkdir()
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (folder / "torch" / f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_17_x86_64.whl").touch()
    (folder / "torch" / "torch-2.13.0+cu126-cp27-cp27m-manylinux_2_17_x86_64.whl").touch()
    answer = asked_for(folder, pip, index_url=address)
    assert "has 2.13.0+cpu for Python 3." in texts(answer)[0]
    assert any(line.startswith("GET /torch/") for line in asked)
    assert all(".whl" not in line for line in asked)
    (folder / "torch" / f"torch-2.13.0+cu126-{tag}-{tag}-manylinux_2_17_x86_64.whl").touch()
    assert asked_for(folder, pip, index_url=address)["findings"] == []
    assert asked_for(folder, pip, no_index=True, find_links=[str(folder / "torch")])["findings"] == []


@pytest.mark.parametrize("mirror", [True, False])
def test_wheels_for_a_newer_glibc_are_named_with_what_they_need(served, pip, mirror, monkeypatch):
    folder, address, _ = served
    (folder / "torch").mkdir()
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    machine = os.uname().machine
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.17")
    (folder / "torch" / f"torch-2.13.0+cu126-{tag}-{tag}-manylinux_2_99_{machine}.whl").touch()
    (folder / "torch" / f"torch-2.6.0+cu126-{tag}-{tag}-manylinux2014_{machine}.whl").touch()
    source = {"index_url": address} if mirror else {"no_index": True, "find_links": [str(folder / "torch")]}
    (finding,) = asked_for(folder, pip, **source)["findings"]
    assert finding["found"].startswith(
        "the wheels of torch 2.13.0+cu126 need glibc 2.99 or newer, and this system has glibc 2.17; "
    )
    assert "has 2.6.0+cu126 for Python 3." in finding["found"]
    assert finding["expected"].endswith(f"on {machine} with glibc 2.17")
    assert finding["action"].startswith("choose a version of torch that has a wheel for it, hosts that fit, or name")


def test_wheels_for_another_machine_are_named(served, pip):
    folder, address, _ = served
    (folder / "torch").mkdir()
    (folder / "torch" / "torch-2.13.0+cu126-py3-none-manylinux2014_pdp11.whl").touch()
    (finding,) = asked_for(folder, pip, index_url=address)["findings"]
    assert f"are for pdp11, and this machine is {os.uname().machine}; " in finding["found"]


def test_a_wheel_by_its_address_that_does_not_fit_is_found_before_it_is_fetched(tmp_path):
    wheel = "https://a.example.org/torch-2.13.0%2Bcu126-py3-none-manylinux2014_pdp11.whl"
    (finding,) = asked_for(tmp_path, wheels={"torch": f"{wheel}#sha256={'0' * 64}"})["findings"]
    assert finding["check"] == "wheel of torch"
    assert f"are for pdp11, and this machine is {os.uname().machine}" in finding["found"]
    assert finding["action"].startswith("name a wheel that fits in pytorch_wheel_url")


def test_an_index_that_nobody_serves_is_named(served, pip):
    folder, _, _ = served
    answer = asked_for(folder, pip, index_url="http://127.0.0.1:9/simple")
    assert texts(answer) == ["index for torch: http://127.0.0.1:9/simple does not answer: Connection refused"]


def test_a_complete_environment_asks_no_index(served, pip):
    folder, address, asked = served
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    # The interpreter that runs the tests makes it a complete environment.
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / ".trainyard.json").write_text("{}")
    name, version = next(iter(inspect(venv)[1].items()))
    answer = asked_for(folder, pip, packages=[f"{name}=={version}"], index_url=address)
    result = answer.pop("seen")["pytorch"]
    assert result["packages"][name] == version and result["reasons"] == []
    assert answer == {"findings": [], "files": [], "asks_index": False} and asked == []
    # An environment that its role would change is not complete.
    for given in (
        {"packages": [f"{name}==0.0.1"]},
        {"libraries": ["libnowhere.so.9"]},
        {"verify_script": "print()"},
        *([{"verify_user": "nobody-of-this-name"}] if os.geteuid() == 0 else []),
    ):
        assert asked_for(folder, **{"packages": [f"{name}=={version}"], "no_index": True, **given})["seen"] == {}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"interpreter": "python9"}, "Python of pytorch: there is no Python interpreter 'python9'"),
        ({"python_min": "3.99"}, "Python of pytorch: "),
        ({"packages": ["torch"]}, "packages of pytorch: 'torch' is not pinned"),
        ({"min_free_mb": 10**9}, "space of pytorch: "),
    ],
)
def test_findings_without_an_index(tmp_path, given, text):
    answer = asked_for(tmp_path, **given)
    assert len(answer["findings"]) == 1 and text in texts(answer)[0]
    assert not answer["asks_index"]


def test_a_finding_on_a_broken_interpreter_has_an_action(tmp_path):
    """A version manager's program prints this when it knows several versions and none is chosen."""
    python = tmp_path / "python3.9"
    python.write_text("#!/bin/sh\necho 'command not found; it exists in: 3.9.18' >&2\nexit 127\n")
    python.chmod(0o755)
    (finding,) = asked_for(tmp_path, interpreter=str(python))["findings"]
    assert finding["found"].endswith("interpreter: command not found; it exists in: 3.9.18")
    assert finding["action"] == "repair it or name another one"


@pytest.mark.parametrize("interpreter", ["python9", sys.executable])
def test_a_host_without_the_python_of_a_guide_learns_which_systems_have_it(tmp_path, interpreter):
    """MindSpore's last releases for GPUs have wheels for Python 3.7 to 3.9."""
    (finding,) = asked_for(tmp_path, interpreter=interpreter, python_min="3.7", python_max="3.9")["findings"]
    assert finding["check"] == "Python of pytorch"
    assert finding["action"].endswith(": pytorch_interpreter (supported systems with Python 3.7 to 3.9: Debian 11)")


def test_a_wheel_with_an_address_asks_no_index(served, pip):
    folder, address, _ = served
    wheel = f"{address}/torch-2.13.0+cu126-py3-none-any.whl"
    given = {"wheels": {"torch": f"{wheel}#sha256={'0' * 64}"}}
    answer = asked_for(folder, pip, **given)
    assert texts(answer) == [f"source of the wheel of torch: {wheel}: HTTP 404 File not found"]
    (folder / "torch-2.13.0+cu126-py3-none-any.whl").touch()
    assert asked_for(folder, pip, **given)["findings"] == []


def test_only_sources_of_missing_parts_are_asked_for(served):
    folder, address, asked = served
    url = {"variables": "url", "url": f"{address}/none.gz"}
    sources = [
        {"what": "data set cifar10", "unless": "cifar10/manifest.json", **url},
        {"what": "data set digits", "unless": "digits/manifest.json", "variables": "local_file", "url": ""},
        {"what": "a file", "unless": "/proc/nowhere", "variables": "url", "url": f"file://{folder}/none"},
    ]
    answer = can_install(requests={"dataset": {"sources": sources, "root": str(folder)}})
    assert texts(answer) == [
        f"source of data set cifar10: {address}/none.gz: HTTP 404 File not found",
        f"source of a file: file://{folder}/none: there is no such file on the node",
    ]
    assert answer["files"] == ["data set digits"]
    for name in ("cifar10", "digits"):
        (folder / name).mkdir()
        (folder / name / "manifest.json").touch()
    asked.clear()
    answer = can_install(requests={"dataset": {"sources": sources[:2], "root": str(folder)}})
    assert answer == {"findings": [], "files": [], "seen": {}, "asks_index": False} and asked == []


def test_links_that_lead_back_are_not_followed(tmp_path):
    """As /usr/lib/llvm-14/build/Release is on Debian: a driver's library was looked for there until the time was up."""
    driver = {"what": "a driver", "unless": f"{tmp_path}/lib*/**/libcuda.so.470", "variables": "url", "url": ""}

    def files():
        return can_install(requests={"nvidia_driver": {"sources": [driver]}})["files"]

    (tmp_path / "lib/llvm/build").mkdir(parents=True)
    for name in ("Release", "Debug"):
        (tmp_path / "lib/llvm/build" / name).symlink_to("..")
    assert files() == ["a driver"]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/libcuda.so.470").touch()
    (tmp_path / "lib/link").symlink_to(tmp_path / "elsewhere")
    assert files() == ["a driver"], "only what lies there itself"
    (tmp_path / "lib/x86_64-linux-gnu").mkdir()
    (tmp_path / "lib/x86_64-linux-gnu/libcuda.so.470").touch()
    assert files() == []


def test_unchanged_data_sets_are_complete(tmp_path):
    made = {"name": "made", "kind": "generated", "seed": 1, "train_records": 5, "test_records": 1}
    data = {"root": str(tmp_path), "owner": getpass.getuser(), "sets": [made]}

    def seen():
        return can_install(requests={"dataset": {"data": data}})["seen"]

    assert seen() == {}
    dataset_files.place(
        tmp_path / "made", "generated", dataset_files.identity(made), "", partial(dataset_files.generate, 1, 5, 1)
    )
    assert seen() == {"dataset": {}}
    (tmp_path / "made" / "test_batch.bin").write_bytes(b"x")
    assert seen() == {}


def test_packages_are_searched_in_the_repository_itself(served):
    folder, address, asked = served
    stanza = "Package: {}\nVersion: {}\nArchitecture: all\nFilename: ./x.deb\nSize: 1\nSHA256: " + "0" * 64 + "\n"
    repository = folder / "debian12/x86_64"
    repository.mkdir(parents=True)
    offered = ["2.20.5-1+cuda12.4", "2.21.5-1+cuda12.2"]
    (repository / "Packages").write_text("\n".join(stanza.format("libnccl2", version) for version in offered))

    def found(url=address, **package):
        of = {"names": ["libnccl2"], "version": "", "begins": "", **package}
        source = {"url": url, "distro": "debian12", "arch": "x86_64", "components": [], "origins": ["Debian"]}
        parts = {name: {"apt": {**source, "packages": [of]}} for name in ("packages of nccl", "packages of others")}
        return texts(can_install(requests=parts))

    assert found(version="2.21.5-1+cuda12.2") == found(begins="2.20.") == []
    asked.clear()
    missing = f"{address}/debian12/x86_64 offers 2.21.5-1+cuda12.2, 2.20.5-1+cuda12.4"
    assert found(version="2.21.5-1+cuda12.4") == [f"package libnccl2: {missing}"] * 2
    assert sum(line.endswith("/Packages") for line in asked) == 1
    assert found(begins="2.19.", names=["libnccl2", "none"])[0] == f"package libnccl2 or none: {missing}"
    # Installed packages are not looked up.
    assert found(url="http://127.0.0.1:9", names=["apt"]) == []
    assert "http://127.0.0.1:9/debian12/x86_64: it does not answer" in found(url="http://127.0.0.1:9")[0]


ROLES = """
- hosts: localhost
  gather_facts: false
  vars:
    python_runtime_root: "{{ here }}"
    python_runtime_packages: [numpy==2.4.6]
    dataset_root: "{{ here }}"
    dataset_sets: [{name: generated}]
    trainyard_seen:
      localhost:
        python_runtime: {of: {path: "{{ here }}/seen"}, result: {reasons: [], packages: {numpy: told}}}
        dataset:
          of: {root: "{{ here }}", owner: "{{ dataset_user }}", sets: "{{ (dataset_sets | dataset_plan).sets }}"}
          result: {}
  tasks:
    - {name: The data sets that were seen, ansible.builtin.include_role: {name: dataset}}
    - name: The environment that was seen, then another one
      ansible.builtin.include_role: {name: python_runtime}
      loop: [seen, other]
      loop_control: {loop_var: python_runtime_name}
    - {name: Use a check from before a change, ansible.builtin.include_role: {name: dataset}}
"""


def test_roles_check_parts_that_validation_did_not_see(tmp_path):
    playbook = tmp_path / "roles.yml"
    playbook.write_text(ROLES)
    given = {"here": str(tmp_path), "dataset_user": getpass.getuser(), "ansible_python_interpreter": sys.executable}
    argv = ["-i", "localhost,", "-c", "local", "--check", str(playbook), "-e", json.dumps(given)]
    done = run_ansible("ansible-playbook", *argv)
    # Nothing is installed: only the parts that validation has seen count as complete.
    # A task that lasts is named although it changes nothing: the name before "changed" counts.
    lines = [line for line in done.stdout.splitlines() if line.startswith(("TASK", "changed"))]
    changed = [task for task, after in itertools.pairwise(lines) if after.startswith("changed")]
    assert [task.split(" *")[0].split(": ")[-1] for task in changed] == [
        "Install and verify numpy==2.4.6]",
        "Put in place the data set generated]",
    ], done.output
    assert done.rc == 0 and "changed=2 " in done.stdout


LIBRARY = {"file": "libnone.so.7", "packages": {"Debian": "libnone7", "RedHat": "libnone", "Suse": "libnone-suse"}}
TOOL = {"file": "no-such-tool", "packages": {"Debian": "tool", "RedHat": "tool-devel"}}


@pytest.mark.parametrize(
    ("kind", "send"),
    [
        ("debian", "sudo apt install libnone7 python3.11-venv tool"),
        ("redhat", "sudo dnf install libnone tool-devel"),
        ("suse", "sudo zypper install libnone-suse tool-devel"),
        ("", "the packages that have them"),
    ],
)
def test_what_only_root_can_install_is_one_list_for_the_administrator(tmp_path, monkeypatch, kind, send):
    python = Interpreter("/usr/bin/python3", (3, 11, 2), can_make_environments=False)
    monkeypatch.setattr(python_environment, "describe", lambda name: python)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setitem(can_install.__globals__, "system_family", lambda: kind)
    built = {**TOOL, "file": "another-tool", "unless": str(tmp_path)}
    environment = {**ENVIRONMENT, "path": str(tmp_path / "venv"), "packages": ["torch==2.13.0"]}
    environment["interpreter"] = "python3"
    requests = {
        "openmpi": {"system": [TOOL, built]},
        "mindspore": {"system": [LIBRARY]},
        "pytorch": {"system": [LIBRARY], "environment": environment, "prefix": "pytorch", "manage_system": False},
    }
    (finding,) = can_install(requests=requests)["findings"]
    assert finding == {
        "host": "",
        "check": "packages of the system",
        "found": "no no-such-tool (for openmpi), no libnone.so.7 (for mindspore, pytorch), no ensurepip of "
        "/usr/bin/python3 (for pytorch)",
        "expected": "what only root can install, as trainyard_manage_system is false",
        "action": f"ask the administrator for: {send}; or name an interpreter that makes virtual environments "
        "(pytorch_interpreter)",
    }
