"""Programs whose path a request names: another user may own them, or exchange them, and root must not run them.

As root the script of `nobody` tries to write where only root can. Without root it is our own, and may.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software.requirements import Pin
from ansible.module_utils.trainyard_node.machine import private, programs
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import library_files
from ansible.module_utils.trainyard_node.software import index_queries, python_environment
from ansible.module_utils.trainyard_node.software.can_install import PLAIN, can_install
from ansible.module_utils.trainyard_node.software.environment_work import Work
from ansible.module_utils.trainyard_node.software.python_environment import EnvironmentFailure

IS_ROOT = not os.geteuid()
PYTHON = "/usr/bin/python3" if IS_ROOT else sys.executable


@pytest.fixture
def trap(place):
    """Return a function that makes a program of the user, and the file that it writes as root."""
    owned = place.roots / "owned"

    def make(path, *then):
        place.does(lambda: path.parent.mkdir(parents=True, exist_ok=True))
        does = "\n".join(then or [f'exec {PYTHON} "$@"'])
        place.writes(path, f"#!/bin/sh\ntouch {owned} 2>/dev/null\nenv > {place.state}/env\n{does}\n")
        place.does(path.chmod, 0o755)
        return str(path)

    return make, owned


def asked(place, interpreter, **given):
    own = {"path": str(place.roots / "venv"), "interpreter": interpreter, "packages": ["a==1"], "no_index": True}
    environment = {**PLAIN, **own, "find_links": ["/nowhere"], **given}
    return {"pytorch": {"environment": environment, "prefix": "pytorch", "manage_system": True}}


def texts(answer):
    return [f"{each['found']} {each['action']}" for each in answer["findings"]]


def test_an_interpreter_of_another_user_is_not_run_by_root(place, trap):
    make, owned = trap
    facts = {"version": [3, 11, 2], "can_make_environments": True, "has_headers": False}
    facts["executable"] = str(place.state / "conda/bin/python")
    interpreter = make(place.state / "conda/bin/python", f"echo '{json.dumps(facts)}'")
    found = texts(can_install(requests=asked(place, interpreter)))
    assert owned.exists() != IS_ROOT
    named = [text for text in found if f"{place.state} (drwxr-xr-x, of {place.user})" in text]
    assert bool(named) == IS_ROOT and not (place.roots / "venv").exists()


def test_an_environment_of_another_user_leads_to_the_python_of_root(place, trap):
    """What it is made of is what root runs then."""
    make, owned = trap
    assert can_install(requests=asked(place, make(place.state / "conda/bin/python")))["findings"] == []
    assert owned.exists() != IS_ROOT


@pytest.mark.parametrize("way", ["link", "folder", "open", "above", "venv", "packages"])
def test_whoever_can_exchange_it_counts(place, trap, way):
    """Its link, its folder, a folder above, its own mode, and what a Python loads from elsewhere."""
    make, owned = trap
    own = place.roots / "python/bin/python"
    own.parent.mkdir(parents=True)
    theirs = make(place.state / "bin/python")
    if way == "link":
        own.symlink_to(theirs)
    else:
        own.write_text(Path(theirs).read_text())
        own.chmod(0o755)
    if way == "folder":
        own.parent.chmod(0o777)
    elif way == "above":
        os.chown(own.parents[1], place.owner.uid, -1)
    elif way == "open":
        own.chmod(0o777)
    elif way == "venv":
        (own.parents[1] / "pyvenv.cfg").write_text(f"home = {place.state}/bin\n")
    elif way == "packages":
        packages = own.parents[1] / "lib/python3.11/site-packages"
        packages.mkdir(parents=True)
        packages.chmod(0o777)
    can_install(requests=asked(place, str(own)))
    assert owned.exists() != IS_ROOT


def test_what_belongs_to_root_alone_is_run(place, trap):
    make, owned = trap
    own = place.roots / "python/bin/python"
    own.parent.mkdir(parents=True)
    own.write_text(Path(make(place.state / "bin/python")).read_text())
    own.chmod(0o755)
    can_install(requests=asked(place, str(own)))
    assert owned.exists()


def test_an_environment_of_another_user_is_read_as_that_user(place, trap):
    """The user may have made it look complete."""
    make, owned = trap
    venv = place.state / "venv"
    make(venv / "bin/python")
    place.writes(venv / python_environment.RECORD, "{}")
    state = python_environment.examine(venv)
    assert (state.kind, owned.exists()) == ("complete", not IS_ROOT)
    answer = can_install(requests=asked(place, PYTHON, path=str(venv)))
    assert owned.exists() != IS_ROOT
    assert any(f"{place.state} (drwxr-xr-x, of {place.user})" in text for text in texts(answer)) == IS_ROOT


def test_root_brings_nothing_into_an_environment_of_another_user(place, trap):
    make, owned = trap
    python = make(place.state / "venv/bin/python")
    work = Work({**asked(place, PYTHON, path=str(place.state / "venv"))["pytorch"]["environment"], "lock": ""})
    hashed = python_environment.ByHashes({}, [], True)
    if not IS_ROOT:
        return
    with pytest.raises(EnvironmentFailure, match="root runs no program that others can exchange"):
        python_environment.install(work.path, [Pin("a==1", "a", "1")], hashed, work.sources)
    with pytest.raises(EnvironmentFailure, match="root runs no program that others can exchange"):
        python_environment.make(place.roots / "made", python_environment.Interpreter(python, (3, 11, 2), True))
    work.interpreter = python_environment.Interpreter(python, (3, 11, 2), True)
    assert not index_queries.offered(work, Pin("a==1", "a", "1"), Path("/nowhere")).known
    assert not owned.exists()


def test_a_verification_without_a_user_gets_no_rights_of_root(place, trap):
    make, owned = trap
    make(place.state / "venv/bin/python")
    check = python_environment.Verification("import os\nprint('{\"uid\": %d}' % os.geteuid())", "", 60)
    done = check.run(place.state / "venv", python_environment.State("complete"))
    assert done["result"] == {"uid": place.owner.uid} and owned.exists() != IS_ROOT


@pytest.mark.parametrize("printed", ["[]", "{}", "x", '{"executable": "/bin/sh"}', '{"executable": 1, "version": "x",'
                                     ' "can_make_environments": 1, "has_headers": []}', "[" * 100000])  # fmt: skip
def test_an_interpreter_that_prints_something_else_is_a_finding(place, trap, printed):
    make, _ = trap
    interpreter = make(place.state / "bin/python", f"cat <<'E'\n{printed}\nE")
    (found,) = can_install(requests=asked(place, interpreter))["findings"]
    assert found["check"] == "Python of pytorch" and "does not run as a Python interpreter" in found["found"]


@pytest.mark.parametrize("printed", ["[]", "{}", "x", '{"python": [3], "packages": {}}', '{"python": "abc"}'])
def test_an_environment_whose_python_prints_something_else_is_broken(place, trap, printed):
    make, _ = trap
    make(place.state / "venv/bin/python", f"cat <<'E'\n{printed}\nE")
    place.writes(place.state / "venv" / python_environment.RECORD, "{}")
    assert python_environment.examine(place.state / "venv").kind == "broken"
    assert python_environment.size_of(place.state / "venv", ["a"]) == 0


def test_a_record_that_is_a_pipe_is_not_waited_for(place, trap):
    make, _ = trap
    make(place.state / "venv/bin/python")
    place.does(os.mkfifo, place.state / "venv" / python_environment.RECORD)
    assert python_environment.examine(place.state / "venv").kind == "foreign"


def test_a_program_of_another_user_gets_nothing_of_roots_environment(place, trap, monkeypatch):
    make, _ = trap
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hunter2@index.example.org/")
    python_environment.describe(make(place.state / "bin/python"))
    env = (place.state / "env").read_text()
    assert ("hunter2" in env) != IS_ROOT


def test_a_tool_that_is_named_by_its_path_has_the_rights_of_its_owner(place, trap):
    make, owned = trap
    nvcc = make(place.state / "cuda/bin/nvcc", "id -u")
    assert Tree().output("nvcc", [nvcc, "--version"]) == f"{place.owner.uid}\n"
    assert owned.exists() != IS_ROOT
    # A file of root's that anybody can write is nobody's.
    (place.roots / "nvcc").write_text("#!/bin/sh\nid -u\n")
    (place.roots / "nvcc").chmod(0o777)
    assert Tree().output("nvcc", [str(place.roots / "nvcc")]) == f"{65534 if IS_ROOT else os.geteuid()}\n"


def test_a_library_is_loaded_with_the_rights_of_its_owner(place, monkeypatch):
    ran = {}
    monkeypatch.setattr(library_files.subprocess, "run", lambda *_, **settings: ran.update(settings) or Done())
    place.writes(place.state / "libnccl.so", "")
    library_files.query("nccl", str(place.state / "libnccl.so"))
    assert ran.get("user") == (place.owner.uid if IS_ROOT else None)


class Done:
    returncode, stdout, stderr = 1, "", "no"


def test_a_place_is_named_with_owner_and_mode(place):
    (place.state / "x").touch()
    if IS_ROOT:
        assert str(private.weak_place(place.state / "x")) == f"{place.state} (drwxr-xr-x, of {place.user})"
        assert programs.rights(str(place.state / "x")).uid == place.owner.uid
    assert programs.rights("/bin/sh") is None
    assert json.dumps(programs.settings("/bin/sh")) == "{}"
