"""The lock files of roles: pins with hashes, complete and current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.trainyard.software import lock, requirements

PROJECT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parents[1].name for path in PROJECT.glob("roles/*/files/*_lock.txt"))
# pip evaluates markers; those of Python suffice here, as all nodes are Linux on these machines.
PYTHONS = [(3, minor) for minor in range(9, 15)]


def text(role: str) -> str:
    return (PROJECT / f"roles/{role}/files/{role}_lock.txt").read_text()


@pytest.fixture(scope="module")
def requested() -> dict[str, dict[str, Any]]:
    """What each role passes to python_runtime by default, as Ansible renders it."""
    found = {}
    for role in ROLES:
        argv = [sys.executable, ".ci/requirements.py", role]
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found[role] = json.loads(done.stdout)
    return found


def test_every_framework_has_a_lock_file() -> None:
    assert ROLES == ["mindspore", "oneflow", "pytorch"]
    text = (PROJECT / "roles/python_runtime/tasks/framework.yml").read_text()
    assert "'_lock.txt')\n         if python_runtime_framework.require_hashes" in text


@pytest.mark.parametrize("role", ROLES)
def test_a_lock_file_holds_pins_with_hashes_alone(role: str) -> None:
    lines = re.sub(r"^\s*#.*\n", "", text(role).replace("\\\n", " "), flags=re.MULTILINE).splitlines()
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[^\s;]+(?: ; .+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line
    assert len(lock.read(text(role))) == len(lines)
    assert "://" not in text(role)


@pytest.mark.parametrize("role", ROLES)
def test_a_lock_file_has_the_default_pins_and_their_dependencies(
    role: str, requested: dict[str, dict[str, Any]]
) -> None:
    found = []
    for python in PYTHONS:
        pins, wrong = requirements.parse_all(requested[role]["packages"], python)
        done = lock.by_hashes(text(role), pins, {}, requested[role]["constraints"], python)
        found += wrong + [f"{python}: {pin.text}" for pin in pins if pin.name not in done.lines]
        found += [f"{python}: another constraint"] if done.rest else []
    assert found == [], "run make requirements"


@pytest.mark.parametrize("role", ROLES)
def test_a_lock_file_has_no_package_that_no_default_pin_needs(role: str, requested: dict[str, dict[str, Any]]) -> None:
    names = {requirements.normal(re.split(r"[=\[; ]", pin)[0]) for pin in requested[role]["packages"]}
    entries = lock.read(text(role))
    assert {entry.name for entry in entries if not entry.via} <= names
    assert {name for entry in entries for name in entry.via | entry.needs} <= {entry.name for entry in entries}


def test_the_cpu_build_of_pytorch_is_locked_with_all_that_it_needs(requested: dict[str, dict[str, Any]]) -> None:
    [torch] = [pin.split(";")[0] for pin in requested["pytorch"]["packages"] if pin.startswith("torch==")]
    for python in PYTHONS[2:]:
        pins, _ = requirements.parse_all([f"{torch}+cpu"], python)
        done = lock.by_hashes(text("pytorch"), pins, {}, requested["pytorch"]["constraints"], python)
        assert not done.rest and {"sympy", "torch"} <= set(done.lines), "run make requirements CPU_INDEX=address"
        assert not any(name.startswith(("nvidia-", "cuda-", "triton")) for name in done.lines)
