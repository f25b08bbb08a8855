"""A launch reads programs and environments of a user with that user's rights, and never blocks on them."""

import hashlib
import os
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.job.plan import obstacles
from ansible.module_utils.trainyard_node.machine import files
from ansible.module_utils.trainyard_node.machine.tree import Tree

# As the owner of the secret a user may read it.
ROOTS = pytest.mark.parametrize("roots", [True] if os.geteuid() == 0 else [])


def spec(**given):
    return {"program": "python3", "scripts": [], "program_path": "/usr/bin:/bin", "venv": "", **given}


@pytest.fixture
def pipe(place):
    path = place.jobs / "pipe"
    place.does(os.mkfifo, path)
    path.chmod(0o777)
    return str(path)


def test_a_pipe_in_place_of_a_program_or_a_script_holds_nobody(place, pipe):
    assert obstacles.programs(spec(program=pipe, scripts=[pipe]), place.user) == {}


def test_nor_does_one_in_place_of_what_an_environment_says_of_itself(place):
    venv = place.jobs / "venv"
    place.does(os.mkdir, venv)
    place.does(os.mkfifo, venv / "pyvenv.cfg")
    node = read_node(Tree(), packages=["torch"], venv=str(venv), user=place.user)
    assert (node["venv"]["python"], node["packages"]) == (None, {"torch": None})


def test_nor_any_that_a_module_looks_at(place, pipe, monkeypatch):
    assert Tree().text(pipe) is None
    assert files.read_files([pipe])[pipe]["kind"] == "other"
    # It may become one between two looks.
    real = Path(__file__).stat()
    monkeypatch.setattr(files.os, "stat", lambda path: real)
    assert files.read_files([pipe]) == {}


@ROOTS
def test_roots_rights_lead_nowhere(place, roots):
    link, venv = place.jobs / "link", place.jobs / "venv"
    place.does(os.symlink, place.secret, link)
    place.does(os.mkdir, venv)
    place.secret.write_text("version = hunter2\n")
    place.does(os.symlink, place.secret, venv / "pyvenv.cfg")
    assert obstacles.programs(spec(scripts=[str(link)]), place.user) == {}
    node = read_node(Tree(), packages=[], venv=str(venv), user=place.user)
    assert node["venv"]["python"] is None


def test_a_program_of_the_user_is_compared(place):
    script = place.jobs / "train.py"
    place.writes(script, "print(1)\n")
    found = obstacles.programs(spec(scripts=[str(script)]), place.user)
    assert found[str(script)]["sha256"] == hashlib.sha256(b"print(1)\n").hexdigest()


def test_what_is_larger_than_any_program_is_not(place, monkeypatch):
    script = place.jobs / "train.py"
    place.writes(script, "print(1)\n")
    monkeypatch.setattr(obstacles, "MAX_PROGRAM", 8)
    assert obstacles.programs(spec(scripts=[str(script)]), place.user) == {}
    assert Tree().text(str(script), 5) == "print"
