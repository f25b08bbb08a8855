"""Which code may know which: rules know neither machines nor Ansible, and nodes know nothing of controllers."""

from __future__ import annotations

import ast
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
# The folders of each package, lowest first: each may import those before it.
ROOMS = {
    "trainyard": [
        "findings",
        "hardware",
        "software",
        "bundle",
        "cluster",
        "nvidia",
        "ascend",
        "slurm",
        "job",
        "verify",
        "removal",
        "report",
        "inputs",
    ],
    "trainyard_node": [
        "machine",
        "hardware",
        "software",
        "ascend",
        "cluster",
        "nvidia",
        "slurm",
        "job",
        "verify",
        "removal",
    ],
    "trainyard_controller": [],
}
# What reads or changes a machine, waits, or belongs to Ansible; `socket` is there for its functions on addresses.
IMPURE = {"ansible", "asyncio", "fcntl", "glob", "grp", "jinja2", "multiprocessing", "os", "pwd", "resource", "select",
          "shutil", "subprocess", "sys", "tempfile", "threading", "urllib.request"}  # fmt: skip


def imports(path):
    """Yield what a file imports: modules by name, those of the project by their path below module_utils."""
    return SIZE["imports"](str(path.relative_to(PROJECT)), path.read_text())


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


@pytest.mark.parametrize("package", ROOMS)
def test_no_folder_imports_upward(package):
    rooms, arrows = ROOMS[package], set()
    assert {path.name for path in (CODE / package).iterdir() if path.is_dir()} - {"__pycache__"} == set(rooms)
    for path in files(package):
        room = path.relative_to(CODE / package).parts[0]
        for name in imports(path):
            target = name[1:].split(".")
            if name.startswith("/") and target[0] == package and room in rooms and target[1] != room:
                arrows.add((room, target[1]))
    assert len(arrows) >= len(rooms) - 1
    assert {(here, there) for here, there in arrows if there not in rooms[: rooms.index(here)]} == set()


# The steps of a job, lowest first: each may import those before it.
STEPS = {
    "trainyard": ["run", "record", "file", "placement", "launchers", "plan", "schedulers", "drill"],
    "trainyard_node": ["record", "run", "plan", "schedulers"],
}


@pytest.mark.parametrize("package", STEPS)
def test_no_step_of_a_job_imports_a_later_one(package):
    steps, arrows = STEPS[package], set()
    folder = CODE / package / "job"
    assert {path.name for path in folder.iterdir() if path.is_dir()} - {"__pycache__"} == set(steps)
    assert {path.name for path in folder.glob("*.py")} == {"__init__.py"}
    for path in folder.rglob("*.py"):
        step = path.relative_to(folder).parts[0]
        for name in imports(path):
            target = name[1:].split(".")
            if name.startswith("/") and target[:2] == [package, "job"] and step in steps and target[2] != step:
                arrows.add((step, target[2]))
    assert {(here, there) for here, there in arrows if there not in steps[: steps.index(here)]} == set()
    assert 2 <= len(arrows) <= 25


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


def test_files_classes_and_functions_are_short():
    too_long, counted = [], 0
    for path in (path for name in FOLDERS for path in (PROJECT / name).rglob("*.py")):
        text = path.read_text()
        counted += 1
        if text.count("\n") > 470:
            too_long.append(str(path))
        if "tests" in path.relative_to(PROJECT).parts or "molecule" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            limit = {ast.ClassDef: 250, ast.FunctionDef: 80, ast.AsyncFunctionDef: 80}.get(type(node))
            if limit and node.end_lineno - node.lineno >= limit:
                too_long.append(f"{path}: {node.name}")
    assert counted > 400 and too_long == []
