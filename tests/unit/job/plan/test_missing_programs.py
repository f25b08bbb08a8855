"""Launchers, modules and programs that the job's Python lacks, with real virtual environments on this machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard_node.job.plan import preflight as checks

MSRUN = "mindspore.parallel.cluster.run"
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def empty(spec, tmp_path):
    """Return a node plan whose environment has nothing but Python."""
    venv = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    return {**spec, "venv": str(venv), "program_path": f"{venv}/bin:/usr/bin:/bin", "packages": []}


@pytest.mark.parametrize(
    ("launcher", "starter", "found", "expected"),
    [
        ("torchrun", "torch", "no torch in {venv}", "PyTorch"),
        ("oneflow", "oneflow", "no oneflow in {venv}", "OneFlow 0.5 or newer"),
        ("msrun", MSRUN, f"no {MSRUN} in {{venv}}", "MindSpore 2.3 or newer"),
    ],
)
def test_a_launcher_that_is_not_installed(empty, launcher, starter, found, expected):
    finding = checks.preflight({**empty, "launcher": launcher, "starter": starter}, ME)
    assert [(each.check, each.found) for each in finding] == [("job_launcher", found.format(venv=empty["venv"]))]
    assert finding[0].expected == f"{expected} in the job's virtual environment, for job_launcher: {launcher}"


def test_a_launcher_that_is_there_or_is_found_to_lack_by_its_version(empty):
    for launcher, starter, packages in (
        ("torchrun", "json", []),
        ("torchrun", "no", ["no"]),
        ("msrun", MSRUN, ["mindspore"]),
    ):
        assert checks.preflight({**empty, "launcher": launcher, "starter": starter, "packages": packages}, ME) == []


def test_a_launcher_of_the_environment_below_a_layer_is_found_and_not_imported(empty, tmp_path):
    base = tmp_path / "base"
    package = base / "mindspore/parallel/cluster"
    package.mkdir(parents=True)
    (base / "mindspore/__init__.py").write_text("raise SystemExit('imported')")
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    (site / "base.pth").write_text(f"{base}\n")
    spec = {**empty, "launcher": "msrun", "starter": MSRUN}
    (finding,) = checks.preflight(spec, ME)
    assert finding.found == f"no {MSRUN} in {empty['venv']}"  # before 2.3
    (package / "run.py").touch()
    assert checks.preflight(spec, ME) == []


def test_a_module_that_the_jobs_python_lacks(empty):
    finding = checks.preflight({**empty, "module": "pytest"}, ME)
    python = f"{empty['venv']}/bin/python"
    assert [(each.check, each.found) for each in finding] == [("program", f"no module pytest for {python}")]
    assert f"{python} -m pip install pytest" in finding[0].action
    assert checks.preflight({**empty, "module": "json"}, ME) == []


def test_what_to_install_for_pytest(empty):
    action = checks.preflight({**empty, "program": "pytest"}, ME)[0].action
    assert f"{empty['venv']}/bin/python -m pip install pytest" in action
