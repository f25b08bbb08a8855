"""Which code may know which: rules know neither machines nor Ansible, and nodes know nothing of controllers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CODE = Path(__file__).resolve().parents[2] / "module_utils"
# Of each package, the others of the project that it may import.
MAY_IMPORT = {
    "trainyard": set(),
    "trainyard_node": {"trainyard"},
    "trainyard_kubernetes": {"trainyard", "trainyard_node"},
    "trainyard_controller": {"trainyard", "trainyard_node", "trainyard_kubernetes"},
}
# What reads or changes a machine, waits, or belongs to Ansible; `socket` is there for its functions on addresses.
IMPURE = {"ansible", "asyncio", "fcntl", "glob", "multiprocessing", "os", "pwd", "grp", "resource", "select", "shutil",
          "subprocess", "sys", "tempfile", "threading", "urllib.request"}  # fmt: skip


def imports(path):
    """What a file imports: modules by their names, and the project's packages as ..package."""
    package = len(path.relative_to(CODE).parts) - 1
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= package:
            yield (node.module or "") if not node.level else f".{node.module or ''}"
        elif isinstance(node, ast.ImportFrom):
            yield from [f"..{node.module}"] if node.module else [f"..{alias.name}" for alias in node.names]


def files(package):
    found = sorted((CODE / package).rglob("*.py"))
    assert len(found) > 2
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_nothing_imports_upward(package):
    others = {
        (path.name, name[2:].split(".")[0])
        for path in files(package)
        for name in imports(path)
        if name.startswith("..")
    }
    assert {(name, other) for name, other in others if other not in MAY_IMPORT[package]} == set()
    assert {other for _, other in others} == MAY_IMPORT[package]


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
def test_a_node_needs_nothing_of_ansible(package):
    assert {path.name for path in files(package) for name in imports(path) if name.split(".")[0] == "ansible"} == set()
