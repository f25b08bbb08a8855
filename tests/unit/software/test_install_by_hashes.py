"""Installation by hashes: real environments, wheels of a few lines, no network."""

import hashlib
import io
import json
import shutil
import sys
import tarfile
import zipfile

import pytest
from ansible.module_utils.trainyard_node.software import python_environment
from ansible.module_utils.trainyard_node.software.can_install import can_install
from ansible.module_utils.trainyard_node.software.environment_work import Work
from ansible.module_utils.trainyard_node.software.python_environment import EnvironmentFailure
from environment_samples import ENVIRONMENT
from test_can_install import pip  # noqa: F401


def wheel(folder, name, *needs, version="1.0", text=""):
    """Write a wheel and return its sha256."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        code = f"text = {text!r}\n"
        file.writestr(f"{name}.py", code)
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,{len(code)}\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def archive(folder, name, ran):
    """Write a source archive whose build leaves the file `ran`."""
    backend = f"""import pathlib, zipfile
pathlib.Path({str(ran)!r}).touch()
def build_wheel(folder, config_settings=None, metadata_directory=None):
    path = pathlib.Path(folder, "{name}-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("{name}-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        file.writestr("{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr("{name}-1.0.dist-info/RECORD", "")
    return path.name
"""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as tar:
        for file, content in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))


class Site:
    """A folder of wheels, the file with their hashes, and an environment."""

    def __init__(self, path):
        self.wheels, self.path = path / "wheels", path / "venv"
        self.wheels.mkdir()
        need, frame = wheel(self.wheels, "need"), wheel(self.wheels, "frame", "need")
        other = wheel(self.wheels, "other")
        self.lock = (
            f"frame==1.0 \\\n    --hash=sha256:{frame}\n    # via -r -\n"
            f"need==1.0 ; python_full_version >= '3.9' \\\n    --hash=sha256:{need}\n    # via frame\n"
            f"other==1.0 \\\n    --hash=sha256:{other}\n    # via -r -\n"
        )

    def params(self, *packages, **given):
        own = {"path": str(self.path), "interpreter": sys._base_executable, "packages": list(packages)}
        return {**ENVIRONMENT, **own, "find_links": [str(self.wheels)], "no_index": True, "lock": self.lock, **given}

    def install(self, *packages, **given):
        """Return what is installed, and expect nothing to do afterwards."""
        Work(self.params(*packages, **given)).do()
        again = Work(self.params(*packages, **given))
        assert again.reasons == []
        return {name: version for name, version in again.state.packages.items() if name not in ("pip", "setuptools")}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    path = tmp_path_factory.mktemp("bare") / "venv"
    python_environment.make(path, python_environment.describe(sys._base_executable))
    return path


@pytest.fixture
def site(tmp_path, monkeypatch, bare):
    # To make an environment takes seconds, to copy one does not.
    def make(path, _):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(bare, path, symlinks=True)

    monkeypatch.setattr(python_environment, "make", make)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))  # pip keeps what an earlier run built
    return Site(tmp_path)


def test_another_file_of_a_locked_package_is_refused_until_its_hash_is_given(site):
    """The package is one that only another package needs."""
    other = wheel(site.wheels, "need", text="somebody else's")
    with pytest.raises(EnvironmentFailure) as refused:
        site.install("frame==1.0")
    text = str(refused.value)
    assert "pip could not install frame==1.0 into" in text
    assert f"need==1.0 at file://{site.wheels}/need-1.0-py3-none-any.whl has the sha256 {other}" in text
    assert f"(need==1.0 --hash=sha256:{other})" in text
    mine = [f"need==1.0 --hash=sha256:{other}"]
    assert site.install("frame==1.0", *mine) == {"frame": "1.0", "need": "1.0"}


@pytest.mark.long
def test_what_was_installed_is_returned_with_its_size(site):
    big = wheel(site.wheels, "Big_one", "frame", text="x" * 5000)
    packages = [f"big-one==1.0 --hash=sha256:{big}", "frame==1.0"]
    work = Work(site.params(*packages))
    assert "installed" not in work.result()
    work.do()
    found = work.result()["installed"]
    # The requested packages come before those that they need.
    assert found["packages"] == ["big-one 1.0", "frame 1.0", "need 1.0"]
    assert 5000 < found["bytes"] < 8000
    # A package that is put back is the only new one.
    shutil.rmtree(next(site.path.glob("lib/python3*/site-packages/need-1.0.dist-info")))
    again = Work(site.params(*packages))
    again.do()
    assert again.result()["installed"]["packages"] == ["need 1.0"] and again.result()["installed"]["bytes"] < 1000


@pytest.mark.long
def test_further_packages_come_after_it_and_leave_what_is_locked(site):
    wheel(site.wheels, "need", version="2.0")
    wheel(site.wheels, "more", "need", "other>=1")
    wheel(site.wheels, "other", version="2.0")
    done = site.install("frame==1.0", "other==1.0", "more==1.0")
    assert done == {"frame": "1.0", "need": "1.0", "other": "1.0", "more": "1.0"}
    # Now without hashes: another version than that of the file.
    done = site.install("frame==1.0", "other==2.0", "more==1.0")
    assert done == {"frame": "1.0", "need": "1.0", "other": "2.0", "more": "1.0"}


@pytest.mark.long
def test_a_package_that_needs_another_locked_version_is_rejected(site):
    wheel(site.wheels, "more", "need>=2")
    wheel(site.wheels, "need", version="2.0")
    with pytest.raises(EnvironmentFailure, match=r"need"):
        site.install("frame==1.0", "more==1.0")
    done = site.install("frame==1.0", "more==1.0", constraints=["need==2.0"])
    assert done == {"frame": "1.0", "need": "2.0", "more": "1.0"}


@pytest.mark.long
def test_a_source_archive_runs_only_by_choice_and_never_for_a_locked_package(site, tmp_path):
    ran = tmp_path / "ran"
    archive(site.wheels, "built", ran)
    with pytest.raises(EnvironmentFailure, match="No matching distribution found for built"):
        site.install("frame==1.0", "built==1.0")
    assert not ran.exists()
    done = site.install("frame==1.0", "built==1.0", pip_args=["--no-binary=built"])
    assert ran.exists() and done == {"frame": "1.0", "need": "1.0", "built": "1.0"}
    ran.unlink()
    archive(site.wheels, "other", ran)
    (site.wheels / "other-1.0-py3-none-any.whl").unlink()
    with pytest.raises(EnvironmentFailure, match="No matching distribution found for other"):
        site.install("other==1.0", pip_args=["--no-binary=other"])
    assert not ran.exists()


@pytest.mark.long
def test_a_given_wheel_precedes_the_lock_file(site, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    own = wheel(folder, "frame", "need", text="mine")
    wheels = {"frame": f"file://{folder}/frame-1.0-py3-none-any.whl#sha256={own}"}
    assert site.install("frame==1.0") == {"frame": "1.0", "need": "1.0"}
    installed = next(site.path.glob("lib/python3*/site-packages")) / "frame.py"
    assert "mine" not in installed.read_text()
    site.install("frame==1.0", wheels=wheels)
    assert "mine" in installed.read_text()
    # Back to that of the file.
    site.install("frame==1.0")
    assert "mine" not in installed.read_text()
    with pytest.raises(EnvironmentFailure, match=f"frame.* has the sha256 {own}, .*correct the sum"):
        site.install("frame==1.0", wheels={"frame": wheels["frame"][:-64] + 64 * "0"})


def test_a_package_without_a_wheel_is_found_before_anything_is_touched(site, tmp_path, pip):  # noqa: F811
    archive(site.wheels, "built", tmp_path / "ran")
    part = {"environment": site.params("frame==1.0", "built==1.0"), "prefix": "pytorch", "manage_system": True}
    found = can_install(requests={"pytorch": part}, pip=pip)["findings"]
    assert [each["found"].partition(" for Python")[0] for each in found] == [
        f"{site.wheels} has built 1.0 as a source archive only"
    ], json.dumps(found)
    assert "pytorch_pip_args: [--no-binary=built]" in found[0]["action"]
    part["environment"]["pip_args"] = ["--no-binary=built"]
    assert can_install(requests={"pytorch": part}, pip=pip)["findings"] == []


@pytest.mark.long
def test_a_dependency_without_a_wheel_is_found_before_anything_is_touched(site, tmp_path, pip):  # noqa: F811
    """hydra-core needs a version of antlr4-python3-runtime that is a source archive only."""
    wheel(site.wheels, "hydra", "built<2")
    wheel(site.wheels, "built", version="2.0")
    archive(site.wheels, "built", tmp_path / "ran")
    part = {"environment": site.params("frame==1.0", "hydra==1.0"), "prefix": "pytorch", "manage_system": True}
    (found,) = can_install(requests={"pytorch": part}, pip=pip)["findings"]
    assert found["found"].startswith(f"hydra needs built<2, and {site.wheels} has no wheel, some versions as source")
    assert "pytorch_pip_args: [--no-binary=built]" in found["action"] and not (tmp_path / "ran").exists()


def test_a_file_without_hashes_is_a_finding(site):
    found = Work(site.params("frame==1.0", lock="frame==1.0\n")).findings
    assert [each.found for each in found] == ["the file with hashes has 'frame==1.0'"]


@pytest.mark.long
def test_a_cpu_build_is_replaced_where_the_usual_one_is_requested(site):
    """Its version would do, but GPUs would have no use."""
    sums = {version: wheel(site.wheels, "frame", version=version) for version in ("1.0+cpu", "1.0")}
    text = "".join(f"frame=={version} \\\n    --hash=sha256:{each}\n" for version, each in sums.items())
    assert site.install("frame==1.0+cpu", lock=text) == {"frame": "1.0+cpu"}
    # In a folder, pip would take the named build for both.
    (site.wheels / "frame-1.0+cpu-py3-none-any.whl").unlink()
    assert site.install("frame==1.0", lock=text) == {"frame": "1.0"}
