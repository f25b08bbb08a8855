"""Where a machine can have PyTorch's CPU build: real interpreters and pip, a folder of wheels, no network."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_controller.bundle.file_sources import packed_pip
from ansible.module_utils.trainyard_node.software import pytorch_offer
from ansible.module_utils.trainyard_node.software.python_environment import inspect

MINOR = f"3.{sys.version_info[1]}"
NOTHING = {"accelerators": False, "usual": False, "asks_index": False, "interpreter": "", "python": ""}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask about a folder of wheels, on a machine whose PATH has python3 and a program that says to be Python 3.99."""
    monkeypatch.setattr(pytorch_offer, "read_accelerators", lambda _: {"vendor": "none"})
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    programs, wheels = tmp_path / "bin", tmp_path / "wheels"
    programs.mkdir()
    wheels.mkdir()
    (programs / "python3").symlink_to(sys._base_executable)
    printed = {
        "executable": "/usr/bin/python3.99",
        "version": [3, 99, 0],
        "can_make_environments": True,
        "has_headers": True,
    }
    newest = programs / "python3.99"
    newest.write_text(f"#!/bin/sh\necho '{json.dumps(printed)}'\n")
    newest.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))

    def call(*tags, pip=True, python="", **given):
        for path in wheels.iterdir():
            path.unlink()
        for tag in tags:
            (wheels / f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_17_{os.uname().machine}.whl").touch()
        own = {"path": str(tmp_path / "venv"), "interpreter": "auto", "packages": ["torch==2.13.0+cpu"]}
        environment = {**own, "python_min": "3.10", "python_max": "3.99", "find_links": [str(wheels)], "no_index": True}
        packed = packed_pip() if pip else ""
        arguments = {"environment": {**environment, **given}, "manage_system": False, "python": python}
        return pytorch_offer.pytorch_offer(**arguments, pip=packed)

    return call


@pytest.mark.long
def test_python3_goes_before_the_others_that_can_have_it(ask):
    tag = f"cp{MINOR.replace('.', '')}"
    assert ask(tag, "cp399") == {**NOTHING, "interpreter": "python3", "python": MINOR}
    other = {**NOTHING, "interpreter": "/usr/bin/python3.99", "python": "3.99"}
    assert ask("cp399") == other
    # As other nodes have it.
    assert ask(tag, "cp399", python="3.99") == other
    assert ask() == NOTHING
    # A named interpreter is not replaced.
    assert ask("cp399", interpreter="python3") == NOTHING
    assert ask("cp399", python_max="3.98") == NOTHING


def test_no_index_is_asked_without_pip_or_with_an_accelerator(ask, monkeypatch):
    assert ask(pip=False) == {**NOTHING, "asks_index": True}
    monkeypatch.setattr(pytorch_offer, "read_accelerators", lambda _: {"vendor": "nvidia"})
    assert ask() == {**NOTHING, "accelerators": True}


@pytest.mark.parametrize(("version", "usual"), [("2.13.0", True), ("2.13.0+cpu", False)])
def test_an_installed_build_stays(ask, tmp_path, monkeypatch, version, usual):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    (venv / ".trainyard.json").write_text("{}")
    python = inspect(venv)[0]
    monkeypatch.setattr(pytorch_offer.python_environment, "inspect", lambda _: (python, {"torch": version}))
    found = ask(pip=False)
    assert found["usual"] == usual and not found["asks_index"]
    assert found["python"] == ("" if usual else MINOR)
    assert bool(found["interpreter"] and Path(shutil.which(found["interpreter"])).exists()) == (not usual)
