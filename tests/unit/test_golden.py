"""Whole texts in tests/fixtures/golden: renewed on purpose only, and none that no test looks at."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests/fixtures/golden"


def test_golden_files_are_not_renewed_in_ci():
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--golden", "--collect-only", __file__]
    done = subprocess.run(argv, env={**os.environ, "CI": "true"}, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode != 0 and "review them, commit them" in done.stdout + done.stderr


def test_every_golden_file_is_read():
    code = "".join(path.read_text() for path in (PROJECT / "tests/unit").rglob("test_*.py"))
    names = re.findall(r'golden\(.*"(.+)"\)$', code, re.MULTILINE)
    patterns = [re.sub(r"\\{.*?\\}", "[^/]+", re.escape(name)) for name in names]
    files = [str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [file for file in files if not any(re.fullmatch(pattern, file) for pattern in patterns)] == []
