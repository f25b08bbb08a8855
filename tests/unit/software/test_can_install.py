"""What a machine says would keep software from being installed: real interpreters and pip, an index on the loopback."""

import http.server
import sys
import threading

import pytest
from ansible.module_utils.trainyard_controller.own_sources import packed_pip
from ansible.module_utils.trainyard_node.software.can_install import can_install
from ansible.module_utils.trainyard_node.software.python_environment import look


@pytest.fixture(scope="module")
def pip():
    return packed_pip()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder that a server on the loopback gives, and the server's address; who asked for what is in `asked`."""
    asked = []

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


def environment(path, **given):
    return {
        **{"path": str(path), "interpreter": sys.executable, "python_min": "", "python_max": "", "min_free_mb": 0},
        **{"packages": ["torch==2.13.0+cu126"], "constraints": [], "index_url": "", "extra_index_urls": []},
        **{"find_links": [], "no_index": False, "pip_args": [], "wheels": {}},
        **given,
    }


def asked_for(tmp_path, pip="", manage_system=True, **given):
    wanted = {
        "environment": environment(tmp_path / "venv", **given),
        "prefix": "pytorch",
        "manage_system": manage_system,
    }
    return can_install(wanted={"pytorch": wanted}, pip=pip)


def texts(answer):
    return [f"{finding['check']}: {finding['found']}" for finding in answer["findings"]]


def test_an_index_is_asked_only_once_pip_is_there(served):
    folder, address, asked = served
    answer = asked_for(folder, index_url=address)
    assert answer == {"findings": [], "files": [], "asks_index": True}
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


def test_an_index_that_nobody_serves_is_named(served, pip):
    folder, _, _ = served
    answer = asked_for(folder, pip, index_url="http://127.0.0.1:9/simple")
    assert texts(answer) == ["index for torch: http://127.0.0.1:9/simple does not answer: Connection refused"]


def test_of_an_environment_that_is_whole_nobody_is_asked(served, pip):
    folder, address, asked = served
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    # It looks like an environment to its reader: its interpreter is the one that runs the tests.
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / ".trainyard.json").write_text("{}")
    name, version = next(iter(look(venv)[1].items()))
    answer = asked_for(folder, pip, packages=[f"{name}=={version}"], index_url=address)
    assert answer == {"findings": [], "files": [], "asks_index": False} and asked == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"interpreter": "python9"}, "Python of pytorch: there is no Python interpreter 'python9'"),
        ({"python_min": "3.99"}, "Python of pytorch: "),
        ({"packages": ["torch"]}, "packages of pytorch: 'torch' is not pinned"),
        ({"min_free_mb": 10**9}, "space of pytorch: "),
    ],
)
def test_what_the_machine_knows_by_itself(tmp_path, given, said):
    answer = asked_for(tmp_path, **given)
    assert len(answer["findings"]) == 1 and said in texts(answer)[0]
    assert not answer["asks_index"]


def test_the_address_of_a_wheel_is_asked_and_its_index_not(served, pip):
    folder, address, _ = served
    wheel = f"{address}/torch-2.13.0+cu126-py3-none-any.whl"
    given = {"wheels": {"torch": f"{wheel}#sha256={'0' * 64}"}}
    answer = asked_for(folder, pip, **given)
    assert texts(answer) == [f"source of the wheel of torch: {wheel}: HTTP 404 File not found"]
    (folder / "torch-2.13.0+cu126-py3-none-any.whl").touch()
    assert asked_for(folder, pip, **given)["findings"] == []


def test_sources_are_asked_only_for_what_is_not_there(served):
    folder, address, asked = served
    sources = [
        {
            "what": "data set cifar10",
            "unless": "cifar10/manifest.json",
            "variables": "url",
            "url": f"{address}/none.gz",
        },
        {"what": "data set digits", "unless": "digits/manifest.json", "variables": "local_file", "url": ""},
        {"what": "a file", "unless": "/nowhere", "variables": "url", "url": f"file://{folder}/none"},
    ]
    answer = can_install(wanted={"dataset": {"sources": sources, "root": str(folder)}})
    assert texts(answer) == [
        f"source of data set cifar10: {address}/none.gz: HTTP 404 File not found",
        f"source of a file: file://{folder}/none: there is no such file on the node",
    ]
    assert answer["files"] == ["data set digits"]
    for name in ("cifar10", "digits"):
        (folder / name).mkdir()
        (folder / name / "manifest.json").touch()
    asked.clear()
    answer = can_install(wanted={"dataset": {"sources": sources[:2], "root": str(folder)}})
    assert answer == {"findings": [], "files": [], "asks_index": False} and asked == []
