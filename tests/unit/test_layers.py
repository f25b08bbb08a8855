"""Which code may know which: rules know neither machines nor Ansible, and nodes know nothing of controllers."""

from __future__ import annotations

import ast
import functools
import runpy
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
CODE = PROJECT / "module_utils"
SIZE = runpy.run_path(str(PROJECT / ".ci/size.py"))
# The packages of the project that each package may import.
MAY_IMPORT = {
    "trainyard": set(),
    "trainyard_node": {"trainyard"},
    "trainyard_controller": {"trainyard", "trainyard_node"},
}
# Folders below a folder, lowest first: each may import those before it. "" has the files beside them.
ORDER = {
    "trainyard": ["base", "hardware", "software", "bundle", "cluster", "nvidia", "ascend", "slurm", "job", "verify",
                  "removal", "report", "inputs"],
    "trainyard_node": ["machine", "hardware", "software", "ascend", "cluster", "nvidia", "slurm", "job", "verify",
                       "removal"],
    "trainyard_controller": ["runs", "nodes", "ansible", "inputs", "bundle", "cluster", "verify", "job"],
    "trainyard/job": ["", "run", "record", "file", "placement", "launchers", "plan", "schedulers", "drill"],
    "trainyard_node/job": ["", "record", "run", "plan", "schedulers"],
    "trainyard/job/run": ["", "logs", "measure", "decide", "lead", "wire"],
    "trainyard_node/job/run": ["ranks", "evidence", "monitor", ""],
}  # fmt: skip
# What reads or changes a machine, waits, or belongs to Ansible; `socket` is there for its functions on addresses.
IMPURE = {"ansible", "asyncio", "fcntl", "glob", "grp", "jinja2", "multiprocessing", "os", "pwd", "resource", "select",
          "shutil", "subprocess", "sys", "tempfile", "threading", "urllib.request"}  # fmt: skip


@functools.cache
def imports(path):
    """Return what a file imports: modules by name, those of the project by their path below module_utils."""
    return [*SIZE["imports"](str(path.relative_to(PROJECT)), path.read_text())]


def files(package):
    found = sorted((CODE / package).rglob("*.py"))
    assert len(found) > 2
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_package_imports_upward(package):
    others = {
        (path.name, name[1:].split(".")[0]) for path in files(package) for name in imports(path) if name.startswith("/")
    }
    assert {(name, other) for name, other in others if other not in {package, *MAY_IMPORT[package]}} == set()
    assert {other for _, other in others} >= MAY_IMPORT[package]


@pytest.mark.parametrize("folder", ORDER)
def test_no_folder_imports_a_later_one(folder):
    order, inside, arrows = ORDER[folder], folder.split("/"), set()
    assert {path.name for path in (CODE / folder).iterdir() if path.is_dir()} - {"__pycache__"} == {*order} - {""}
    for path in (CODE / folder).rglob("*.py"):
        here, *below = path.relative_to(CODE / folder).parts
        targets = [name[1:].split(".") for name in imports(path) if name.startswith("/")]
        for there in (target[len(inside)] for target in targets if target[: len(inside)] == inside):
            arrows.add((here if below else "", there if there in order else ""))
    arrows = {(here, there) for here, there in arrows if here in order}
    assert len(arrows) > len(order)
    assert {(here, there) for here, there in arrows if order.index(there) > order.index(here)} == set()


def test_no_files_import_one_another_in_a_circle():
    paths = [path for folder in ("library", "module_utils", "plugins") for path in (PROJECT / folder).rglob("*.py")]
    graph = SIZE["import_graph"]({str(path.relative_to(PROJECT)): path.read_text() for path in paths})
    assert len(graph) > 600 and SIZE["circles"](graph) == []


def test_every_package_of_the_project_is_known_here():
    assert {path.name for path in CODE.iterdir() if (path / "__init__.py").exists()} == set(MAY_IMPORT)


def test_rules_touch_no_machine():
    found = {(path.name, name) for path in files("trainyard") for name in imports(path)}
    assert {(file, name) for file, name in found if name in IMPURE or name.split(".")[0] in IMPURE} == set()
    for path in files("trainyard"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        called = {getattr(func, "id", getattr(func, "attr", "")) for func in calls}
        assert not called & {"open", "read_text", "write_text", "read_bytes", "write_bytes", "sleep"}, path.name


@pytest.mark.parametrize("package", ["trainyard_node"])
def test_a_node_needs_nothing_of_ansible_or_jinja(package):
    found = {(path.name, name.split(".")[0]) for path in files(package) for name in imports(path)}
    assert {(file, name) for file, name in found if name in ("ansible", "jinja2")} == set()


FOLDERS = ("benchmarks", "library", "module_utils", "molecule", "plugins", "roles", "tests", "training")


def test_files_are_short():
    paths = [path for name in FOLDERS for path in (PROJECT / name).rglob("*.py")]
    assert len(paths) > 400 and [str(path) for path in paths if path.read_text().count("\n") > 470] == []
