"""One host installs into a folder that several share; the others wait, and find the environment complete."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base import received
from ansible.module_utils.trainyard.job.run.wire.answers import SHAPES
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard_node.machine import install_lock
from ansible.module_utils.trainyard_node.software import (
    build_prefix,
    environment_progress,
    environment_system,
    python_environment,
)
from ansible.module_utils.trainyard_node.software.environment_work import Work
from environment_samples import ENVIRONMENT

PROJECT = Path(__file__).resolve().parents[3]
# Other processes import the project as conftest.py does.
IMPORTS = f"""
import json, sys, time
from pathlib import Path
import ansible.module_utils
ansible.module_utils.__path__.append({str(PROJECT / "module_utils")!r})
sys.path.insert(0, {str(PROJECT / "library")!r})
"""
# Calls the module without check mode.
INSTALL = """
from types import SimpleNamespace
import python_environment
work, _ = python_environment.done(SimpleNamespace(params=json.loads(sys.argv[1]), fail_json=None))
print(json.dumps(work.result()))
"""
# Holds the lock of a folder, and says so.
HOLD = """
from ansible.module_utils.trainyard_node.machine import install_lock
with install_lock.held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def start(script, *arguments):
    argv = [sys.executable, "-c", IMPORTS + script, *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def other(tmp_path):
    """Start a process that has the lock of tmp_path/venvs/one."""
    process = start(HOLD, tmp_path / "venvs" / "one")
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "venvs" / "one"


def refuses(target, text):
    with pytest.raises(install_lock.InstallLockError, match=text), install_lock.held(target, limit_s=0):
        pass


def say_host(target, host):
    """Let the lock be another host's."""
    file = install_lock.path_of(target)
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": host}))


def test_a_dead_holder_has_no_lock(other, target):
    found = install_lock.holder(target)
    assert (found.host, found.pid) == (install_lock.HOST, other.pid)
    refuses(target, rf"process {other.pid}, since .* installs {target}")
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with install_lock.held(target, limit_s=0):
        assert json.loads(install_lock.path_of(target).read_text())["pid"] == os.getpid()
    assert install_lock.holder(target) is None


def test_asking_who_has_a_lock_does_not_release_it(target):
    with install_lock.held(target):
        assert install_lock.holder(target) is None
        waits = start(HOLD, target)
        time.sleep(1)
        assert json.loads(install_lock.path_of(target).read_text())["pid"] == os.getpid()
    assert waits.stdout.readline() == "held\n"
    waits.kill()
    waits.communicate()


def test_space_that_another_host_fills_is_not_missing(other, target):
    params = {**ENVIRONMENT, "lock": "", "path": str(target), "packages": [], "interpreter": sys.executable}
    params["min_free_mb"] = 10**12
    assert [finding.check for finding in Work(params).findings] == []
    other.kill()
    other.wait()
    assert [finding.check for finding in Work(params).findings] == ["space"]


def test_a_lock_stays_held_whatever_is_written_into_its_file(other, target):
    file = install_lock.path_of(target)
    for text in ("", "{", "[" * 100_000, json.dumps({"host": "a\nb", "pid": 1, "since": 1, "mark": ""})):
        file.write_text(text)
        assert install_lock.holder(target) is None
        refuses(target, "another process installs")


def test_a_lock_is_no_link_and_nobody_elses(target, tmp_path):
    file = install_lock.path_of(target)
    file.parent.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    for plant in (file.symlink_to, lambda path: os.link(path, file), lambda _: os.mkfifo(file)):
        plant(victim)
        refuses(target, "cannot be opened|expected a file of uid")
        file.unlink()
    assert victim.read_text() == "as it was"


def test_folders_for_a_lock_are_readable_for_all(target):
    before = os.umask(0o077)
    try:
        with install_lock.held(target) as turn:
            assert turn.made == [target.parent]
    finally:
        os.umask(before)
    assert target.parent.stat().st_mode & 0o777 == 0o755


def test_a_removed_lock_is_no_lock(other, target, monkeypatch):
    """remove.yml takes the folder away while somebody waits."""
    monkeypatch.setattr(install_lock, "EVERY_S", 0.01)
    file = install_lock.path_of(target)
    waits = start(HOLD, target)
    time.sleep(0.5)
    file.unlink()
    other.kill()
    assert waits.stdout.readline() == "held\n"
    assert file.exists() and install_lock.holder(target).pid == waits.pid
    waits.kill()
    waits.communicate()


def test_whoever_waits_says_for_whom(other, target):
    assert environment_progress.read(target) is None
    say_host(target, "gpu1")
    record = environment_progress.read(target)
    assert received.received({"progress": record}, SHAPES["progress"], "gpu2") == {"progress": record}
    assert pip_progress.text(record) == "waits for gpu1, which installs it"
    target.mkdir()
    far = {**pip_progress.START, "phase": pip_progress.COMPILE, "done": 3, "total": 4}
    (target / environment_progress.FILE).write_text(json.dumps(far))
    record = environment_progress.read(target)
    assert pip_progress.text(record) == "waits for gpu1, which installs it (compiling 3 of 4 modules)"
    assert pip_progress.slowest({"gpu2": record, "gpu1": far}) == "gpu1"


@pytest.fixture
def wheels(tmp_path):
    """Make a wheel of one module."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    files = {
        "tiny.py": "answer = 42\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr("tiny-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in [*files]))
    return folder


def test_of_two_that_come_at_once_one_installs_and_both_verify(target, wheels, tmp_path):
    count = tmp_path / "verified"
    script = f"import tiny; open({str(count)!r}, 'a').write('x'); print('{{}}')"
    params = {
        **{**ENVIRONMENT, "lock": "", "path": str(target), "packages": ["tiny==1.0"], "interpreter": sys.executable},
        **{"find_links": [str(wheels)], "no_index": True, "verify_script": script, "verify_timeout": 240},
    }
    processes = [start(INSTALL, json.dumps(params)) for _ in range(2)]
    printed = [process.stdout.read() for process in processes]
    assert [process.wait() for process in processes] == [0, 0], printed
    results = [json.loads(text) for text in printed]
    assert sorted(result["changed"] for result in results) == [False, True]
    assert [result["packages"]["tiny"] for result in results] == ["1.0", "1.0"]
    assert count.read_text() == "xx"
    state = python_environment.examine(target)
    assert state.kind == "complete" and state.record["made"]["host"] == install_lock.HOST
    assert {each.name for each in target.parent.iterdir()} == {"one", ".one.lock"}


# Calls the module as the host named third.
PLACE = """
import training_data
from ansible.module_utils.trainyard_node.machine import install_lock
install_lock.HOST = sys.argv[3]
params = {**{name: each.get("default") for name, each in training_data.ARGUMENTS.items()}, **json.loads(sys.argv[1])}
print(json.dumps(training_data.check_and_place(Path(sys.argv[2]), "", params, True)))
"""


def test_a_data_set_is_fetched_and_placed_once(target):
    params = {"kind": "generated", "train_records": 500, "test_records": 10}

    def run_on(hosts, **changes):
        processes = [start(PLACE, json.dumps({**params, **changes}), target, host) for host in hosts]
        return [json.loads(process.communicate()[0]) for process in processes]

    missing = ["it is not there yet"]
    turns = run_on(["gpu1", "gpu2", "gpu3"], run="a")
    (first,) = {placed_by for _, _, placed_by in turns if placed_by}
    assert sorted(turns) == sorted([[missing, 0, ""], *[[missing, 0, first]] * 2])
    # The next run does not wait for a host that failed in this one.
    assert run_on(["gpu9"], run="b") == [[missing, 0, ""]]
    placed = run_on(["gpu1", "gpu2"])
    assert sorted(reasons for reasons, *_ in placed) == [[], missing]
    assert run_on(["gpu3"], run="a") == [[[], 0, ""]]
    assert {path.name for path in target.parent.iterdir()} == {"one", ".one.lock"}


PUT = """
from ansible.module_utils.trainyard_node.software import build_prefix
new, prefix = map(Path, sys.argv[1:])
print(json.dumps(build_prefix.put(new, prefix)))
"""


def build(folder, source):
    folder.mkdir()
    (folder / build_prefix.RECORD).write_text(json.dumps({"source": source}))
    return folder


def test_a_build_is_put_in_place_once(target, tmp_path):
    news = [build(tmp_path / f"new{number}", "a") for number in range(3)]
    processes = [start(PUT, new, target) for new in news]
    assert sorted(process.communicate()[0] for process in processes) == ["false\n", "false\n", "true\n"]
    assert not any(new.exists() for new in news) and build_prefix.read_record(target) == {"source": "a"}
    assert build_prefix.put(build(tmp_path / "newer", "b"), target)
    # The next run removes the folder of an interrupted one.
    (target.parent / ".one.moving-x").mkdir()
    assert build_prefix.take_away(target) and not build_prefix.take_away(target)
    assert [each.name for each in target.parent.iterdir()] == [".one.lock"]


def test_a_build_comes_from_another_file_system(target, tmp_path, monkeypatch):
    def across(self, other, rename=Path.rename):
        if self.name == "new" and self.parent == tmp_path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", across)
    new = build(tmp_path / "new", "a")
    assert build_prefix.put(new, target) and not new.exists() and build_prefix.read_record(target) == {"source": "a"}


@pytest.fixture
def complete(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    return tmp_path


def found(path, **made):
    """Return the findings on an environment with this record of where it was made."""
    interpreter = python_environment.describe(sys.executable)
    record = {"packages": {}, "made": {**environment_system.made_here(interpreter), **made}} if made else {}
    (path / python_environment.RECORD).write_text(json.dumps(record))
    params = {**ENVIRONMENT, "lock": "", "path": str(path), "packages": [], "interpreter": sys.executable}
    return [each for each in Work(params).findings if each.check == "environment"]


def test_a_host_uses_what_its_like_has_made(complete):
    assert found(complete) == []
    assert found(complete, host="gpu1") == []
    # Another system with the same Python, which a role may have brought.
    assert found(complete, host="gpu1", system="debian 8 x86_64") == []


@pytest.mark.parametrize(
    "made",
    [
        {"machine": "riscv64", "system": "debian 12 riscv64"},
        {"python": "3.4.1"},
        {"python": "3.4.1", "system": "debian 8 x86_64"},
    ],
)
def test_what_another_system_has_made_is_not_made_anew_in_turn(complete, made):
    (finding,) = found(complete, host="gpu1", **made)
    assert finding.found.startswith(f"{complete} was made by gpu1 (") and "this host is" in finding.found
    assert finding.action.startswith("set trainyard_root to a path that is local on each host")
    # The host's own, before its upgrade.
    assert found(complete, **made) == []


def test_an_interpreter_that_another_host_alone_has(complete):
    (complete / "bin" / "python").unlink()
    (finding,) = found(complete, host="gpu1", interpreter="/opt/gpu1/bin/python3")
    assert "at /opt/gpu1/bin/python3)" in finding.found
    assert found(complete, host="gpu1") == []
    assert len(found(complete, host="gpu1", system="debian 8 x86_64")) == 1


def test_an_environment_that_another_host_begins_or_removes_is_not_foreign(complete, monkeypatch):
    (complete / python_environment.RECORD).write_text("{}")

    def begun(path, most):
        (complete / python_environment.BUILDING).touch()

    monkeypatch.setattr(python_environment, "read_json", begun)
    assert python_environment.examine(complete).kind == "unfinished"
