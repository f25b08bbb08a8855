"""Missing launchers, modules and programs of the job's Python, with real virtual environments on this machine."""

import os
import pwd
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard_node.job.plan import obstacles

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
    (finding,) = obstacles.preflight({**empty, "launcher": launcher, "starter": starter}, ME)
    assert (finding.check, finding.found) == ("job_launcher", found.format(venv=empty["venv"]))
    assert finding.expected.startswith(expected)


@pytest.mark.parametrize(
    ("starter", "packages"), [("json", []), ("no", ["no"]), (MSRUN, ["mindspore"])], ids=["installed", "no", "msrun"]
)
def test_a_launcher_that_is_installed_or_that_the_version_check_finds(empty, starter, packages):
    assert obstacles.preflight({**empty, "launcher": "torchrun", "starter": starter, "packages": packages}, ME) == []


def test_a_launcher_of_the_environment_below_a_layer_is_found_and_not_imported(empty, tmp_path):
    base = tmp_path / "base"
    package = base / "mindspore/parallel/cluster"
    package.mkdir(parents=True)
    (base / "mindspore/__init__.py").write_text("raise SystemExit('imported')")
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    (site / "base.pth").write_text(f"{base}\n")
    spec = {**empty, "launcher": "msrun", "starter": MSRUN}
    (finding,) = obstacles.preflight(spec, ME)
    assert finding.found == f"no {MSRUN} in {empty['venv']}"  # before 2.3
    (package / "run.py").touch()
    assert obstacles.preflight(spec, ME) == []


@pytest.mark.parametrize("key", ["module", "program"])
def test_a_module_or_program_that_the_environment_has_not(empty, key):
    (finding,) = obstacles.preflight({**empty, key: "pytest"}, ME)
    assert finding.check == "program" and "pytest" in finding.found
    assert f"{empty['venv']}/bin/python -m pip install pytest" in finding.action
    assert obstacles.preflight({**empty, "module": "json"}, ME) == []
