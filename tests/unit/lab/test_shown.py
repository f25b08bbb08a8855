"""Lines about a command of `make` that prints nothing itself."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

LOADER = SourceFileLoader("ci_shown", str(Path(__file__).resolve().parents[3] / ".ci/shown"))
ci_shown = module_from_spec(spec_from_loader("ci_shown", LOADER))
LOADER.exec_module(ci_shown)
UNPACKING = {"phase": 3, "file": "fish", "number": 0, "done": 1, "total": 4, "seconds": 3.0}


@pytest.mark.parametrize(
    ("program", "expected"), [("apt-get", "unpacking fish: 1 of 4 packages, 9 s left"), ("mypy", "types")]
)
def test_a_silent_command_has_lines_and_its_status(tmp_path, monkeypatch, capfd, program, expected):
    (tmp_path / program).write_text("#!/bin/sh\necho Reading package lists...\nsleep 1\nexit 3\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "argv", ["shown", "types", program])
    monkeypatch.setattr(ci_shown, "EVERY_S", 0.2)
    monkeypatch.setattr(ci_shown.task_progress, "of_task", lambda kind, *_: UNPACKING if kind == "packages" else None)
    assert ci_shown.main() == 3
    printed = capfd.readouterr().out
    assert f"  0 s  {expected}\n" in printed and ("Reading" in printed) == (program == "mypy")
