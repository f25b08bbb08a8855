"""Virtual environments: their state, the options of pip, and the result of a verification. Nothing is installed."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.software import python_environment


@pytest.fixture
def venv(tmp_path):
    """Return an environment whose interpreter is the one that runs the tests."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "lib").symlink_to(Path(sys.prefix, "lib"))
    (tmp_path / "pyvenv.cfg").write_text(
        f"home = {Path(sys._base_executable).parent}\ninclude-system-site-packages = false\n"
    )
    (tmp_path / python_environment.RECORD).write_text(json.dumps({"packages": {}}))
    return tmp_path


def program(script, timeout=240):
    return python_environment.Verification(script, "", timeout)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("", "complete"),
        ("unfinished", "unfinished"),
        ("no python", "broken"),
        ("no record", "foreign"),
        ("empty", "absent"),
    ],
)
def test_the_kind_of_an_environment(venv, change, kind):
    if change == "unfinished":
        (venv / python_environment.BUILDING).touch()
    elif change == "no python":
        (venv / "bin" / "python").unlink()
    elif change == "no record":
        (venv / python_environment.RECORD).unlink()
    elif change == "empty":
        shutil.rmtree(venv)
    assert python_environment.examine(venv).kind == kind


def test_a_complete_environment_has_its_python_and_packages(venv):
    state = python_environment.examine(venv)
    assert state.python == sys.version_info[:3] and "pytest" in state.packages


def test_a_removed_package_is_lost():
    record = {"packages": {"a": "1", "b": "2", "c": "3"}}
    state = python_environment.State("complete", (3, 11, 2), {"a": "1", "b": "9", "d": "4"}, record)
    assert state.lost == ["b 2 was installed and is now 9", "c 3 was installed and is now gone"]


def test_a_new_environment_is_unfinished_until_it_is_complete(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "old")
    # `true` replaces the Python that makes an environment.
    python_environment.make(tmp_path, python_environment.Interpreter("true", (3, 11, 2), True))
    assert [file.name for file in tmp_path.iterdir()] == [python_environment.BUILDING]


def test_addresses_reach_pip_by_its_environment_only():
    sources = python_environment.Sources("http://u:secret@x/", ["http://a", "http://b"], ["/w"], True, [], [])
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
    assert sources.environment() == dict(zip(names, ("http://u:secret@x/", "http://a http://b", "/w", "1")))
    assert python_environment.Sources().environment() == {}


def test_an_interpreter_inside_an_environment_leads_to_the_one_it_was_made_from():
    assert python_environment.describe(sys.executable).executable == sys._base_executable


def test_a_program_that_is_no_interpreter_is_named():
    with pytest.raises(python_environment.EnvironmentFailure, match="there is no Python interpreter 'python9'"):
        python_environment.describe("python9")
    with pytest.raises(python_environment.EnvironmentFailure, match="does not run as a Python interpreter"):
        python_environment.describe("false")


def test_a_verification_returns_its_last_line(venv):
    result = program("print('chatter'); print('{\"sum\": 3}')").run(venv, python_environment.examine(venv))
    assert result["result"] == {"sum": 3}


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("import sys; print('{}'); sys.exit(4)", "failed with status 4"),
        ("print('no json')", "failed with status 0: no json"),
        ("print('3')", "failed with status 0: 3"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_failed_verification_quotes_its_last_lines(venv, script, text):
    with pytest.raises(python_environment.EnvironmentFailure, match=text):
        program(script).run(venv, python_environment.examine(venv))


def test_a_verification_that_hangs_is_ended(venv):
    with pytest.raises(python_environment.EnvironmentFailure, match="did not end within 1 s"):
        program("import threading; threading.Event().wait()", timeout=1).run(venv, python_environment.examine(venv))


def test_a_verification_counts_only_for_its_packages_and_its_program():
    state = python_environment.State("complete", (3, 11, 2), {"a": "1"})
    own = program("x").identity(state)
    assert own == program("x").identity(state)
    assert own != program("y").identity(state)
    assert own != program("x").identity(replace(state, packages={"a": "2"}))
    assert own != program("x").identity(replace(state, python=(3, 12, 0)))
    assert own != python_environment.Verification("x", "", 60, {"DEVICE": "GPU"}).identity(state)


def test_a_verification_gets_the_environment_that_it_is_given(venv):
    script = "import json, os; print(json.dumps({'path': os.environ['LD_LIBRARY_PATH']}))"
    given = python_environment.Verification(script, "", 60, {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"})
    assert given.run(venv, python_environment.examine(venv))["result"] == {"path": "/usr/local/cuda/lib64"}


def test_only_the_sum_of_a_wheel_is_recorded():
    wheels = {"b": "https://me:secret@x/b.whl#sha256=2", "a": "file:///a.whl#sha256=1"}
    assert python_environment.wheel_sums(wheels) == {"a": "1", "b": "2"}


def test_missing_libraries_programs_and_headers_of_the_system(tmp_path, monkeypatch):
    names = ["libc.so.6", "libnowhere.so.9", "sh", "no-such-program", "Python.h"]
    bare = python_environment.Interpreter("python3", (3, 11, 2), True)
    assert python_environment.missing_from_system(names, bare) == ["libnowhere.so.9", "no-such-program", "Python.h"]
    assert python_environment.missing_from_system(["Python.h"], replace(bare, has_headers=True)) == []
    # A program on the user's own PATH does not count.
    (tmp_path / "mine").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert python_environment.missing_from_system(["mine"], bare) == ["mine"]


def test_a_package_without_metadata_is_no_package(venv):
    (venv / "lib").unlink()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (venv / "lib" / version / "site-packages" / "need-1.0.dist-info").mkdir(parents=True)
    assert python_environment.examine(venv).packages == {}


@pytest.mark.parametrize("installed", [True, False])
def test_an_interpreter_reports_its_headers(tmp_path, installed):
    headers = tmp_path / "include"
    headers.mkdir()
    if installed:
        (headers / "Python.h").touch()
    python = tmp_path / "python"
    code = f"import sysconfig; sysconfig.get_path = lambda name: {str(headers)!r}; exec(sys.argv[1])"
    python.write_text(f"""#!/bin/sh\nexec {sys.executable} -I -c "import sys; {code}" "$3"\n""")
    python.chmod(0o755)
    assert python_environment.describe(str(python)).has_headers is installed
