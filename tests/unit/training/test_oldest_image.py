"""The programs that ranks run work with the Python of the oldest images, which is older than the nodes' Python."""

import ast
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.plan import images

PROJECT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted([*PROJECT.glob("training/*/*.py"), *PROJECT.glob("roles/*/files/*_verify.py")])
# Newer Pythons alone take an item of these: tuple[int, int].
PLAIN = {"dict", "frozenset", "list", "set", "tuple", "type"}
PLAIN |= {"Callable", "Iterable", "Iterator", "Mapping", "Sequence"}
# Arguments that functions of the standard library got later.
NEWER_ARGUMENTS = {"dirs_exist_ok", "missing_ok", "strict"}


def evaluated(node):
    """Yield the nodes that run: `from __future__ import annotations` keeps annotations as text."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from evaluated(child)


def too_new(source):
    tree = ast.parse(source, feature_version=images.OLDEST)
    for node in evaluated(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in PLAIN:
            yield ast.unparse(node)
        if isinstance(node, ast.keyword) and node.arg in NEWER_ARGUMENTS:
            yield node.arg


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_programs_need_no_newer_python(program):
    assert list(too_new(program.read_text())) == []
