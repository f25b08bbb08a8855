"""The content of a bundle, by its lock: paths, sums, texts for apt, the bill of materials."""

import hashlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import tomllib
from ansible.module_utils.trainyard.bundle import contents, sbom, site_lock
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock, is_valid_pylock_path

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SUM, OTHER = 64 * "0", 64 * "1"
DEB = {"name": "openmpi-bin", "version": "4.1.4-3+b1", "architecture": "amd64",
       "file": "openmpi-bin_4.1.4-3+b1_amd64.deb", "url": "http://m.example.org/o.deb", "bytes": 1 << 20,
       "sha256": SUM}  # fmt: skip
WHEEL = {"name": "torch", "version": "2.13.0+cpu", "file": "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
         "url": "http://i.example.org/t.whl", "bytes": 5, "sha256": OTHER}  # fmt: skip
ENVIRONMENT = {"python": "3.11", "requested": ["torch==2.13.0"], "wheels": [WHEEL]}
PARTS = {"packages": {"requested": ["openmpi-bin"], "files": [DEB]}, "environments": {"pytorch": ENVIRONMENT}}
LOCK = {
    "version": 1,
    "systems": {"debian-12-x86_64": PARTS, "debian-11-x86_64": PARTS},
    "files": [
        {"what": "cifar10", "url": "http://d.example.org/cifar-10.tar.gz", "sha256": SUM},
        {"what": "nccl-tests", "url": "https://g.example.org/nccl-tests", "sha256": ""},
    ],
    "missing": [{"what": "libnccl2 (nccl)", "why": "packages of NVIDIA are not locked"}],
}


def test_each_file_has_one_place():
    assert [each.path for each in contents.items(LOCK)] == [
        "debs/debian-11-x86_64/openmpi-bin_4.1.4-3+b1_amd64.deb",
        "debs/debian-12-x86_64/openmpi-bin_4.1.4-3+b1_amd64.deb",
        "files/cifar-10.tar.gz",
        "wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
    ]
    assert list(contents.texts(LOCK)) == [
        f"wheels/{name}" for release in (12, 11)
        for name in (f"debian-{release}-x86_64-pytorch.txt", f"pylock.debian-{release}-x86_64-pytorch.toml")
    ]  # fmt: skip


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "a/..", ""])
def test_no_file_of_a_lock_leaves_the_bundle(file):
    parts = {**PARTS, "packages": {"files": [{**DEB, "file": file}]}, "environments": {}}
    (item,) = contents.items({**LOCK, "systems": {"debian-12-x86_64": parts}, "files": []})
    assert item.path in ("debs/debian-12-x86_64/passwd", "debs/debian-12-x86_64/_..", "debs/debian-12-x86_64/_")


def test_what_is_not_in_it_is_named():
    assert [each["what"] for each in contents.missing(LOCK)] == ["libnccl2 (nccl)", "nccl-tests"]
    assert "incomplete" not in contents.listing([], [])[0]
    lines = contents.listing(contents.items(LOCK), contents.missing(LOCK))
    assert lines[2] == "cifar10 (size unknown) from http://d.example.org/cifar-10.tar.gz"
    assert lines[4] == "4 files, 2 MiB, incomplete" and lines[-1].startswith("not in it: nccl-tests")


def test_a_name_changes_with_the_lock():
    text = site_lock.text(LOCK)
    assert contents.name("mine", text) == contents.name("mine", text) != contents.name("mine", f"{text} ")
    assert contents.name("mine", text).startswith("mine-") and contents.name("mine", text).endswith(".bundle")


def test_sums_are_written_and_read():
    sums = {"lock": SUM, "debs/x/a b.deb": OTHER}
    assert contents.read_sums(contents.sums_text(sums)) == sums
    items = contents.items(LOCK)
    assert contents.new_since(items, {}) == items
    assert [each.path for each in contents.new_since(items, {each.path: SUM for each in items})] == [items[-1].path]


@pytest.mark.parametrize("line", ["", "x", f"{SUM} lock", f"{SUM}  ../lock", f"{SUM}  /lock", f"{SUM}  a/../../lock"])
def test_other_sums_are_refused(line):
    with pytest.raises(ValueError, match="no sum of a file"):
        contents.read_sums(f"{line}\n")


@given(st.text())
def test_any_sums_are_read_or_refused(text):
    try:
        contents.read_sums(text)
    except ValueError:
        return


def test_the_index_of_a_repository():
    text = contents.packages_text(
        [("Package: a\nVersion: 1\n", "a_1_all.deb", 7, SUM), ("Package: b\n", "b.deb", 8, OTHER)]
    )
    assert text.split("\n\n")[0].splitlines() == [
        "Package: a", "Version: 1", "Filename: ./a_1_all.deb", "Size: 7", f"SHA256: {SUM}",
    ]  # fmt: skip
    release = contents.release_text("debian-12-x86_64", "amd64", b"12345", "Thu, 01 Jan 2026 00:00:00 GMT")
    assert "Architectures: amd64 all\n" in release and " 5 Packages\n" in release


def test_the_bill_of_materials_names_each_version_once():
    text = site_lock.text(LOCK)
    found = sbom.sbom(LOCK, text, "0.1.0")
    assert sbom.text(found) == sbom.text(sbom.sbom(LOCK, text, "0.1.0"))
    purls = sorted(each["purl"] for each in found["components"])
    assert purls == [
        "pkg:deb/debian/openmpi-bin@4.1.4-3%2Bb1?arch=amd64&distro=debian-11",
        "pkg:deb/debian/openmpi-bin@4.1.4-3%2Bb1?arch=amd64&distro=debian-12",
        "pkg:generic/cifar10?download_url=http%3A%2F%2Fd.example.org%2Fcifar-10.tar.gz",
        "pkg:generic/nccl-tests?download_url=https%3A%2F%2Fg.example.org%2Fnccl-tests",
        "pkg:pypi/torch@2.13.0%2Bcpu?file_name=torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl",
    ]
    assert len({each["bom-ref"] for each in found["components"]}) == 5
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.text(found)) is None
    broken = {**found, "components": [{**found["components"][0], "purl": 1}]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.text(broken)) is not None


def a_wheel(folder, name, version):
    """Write a wheel without code, and return its entry of a lock."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": name, "version": version, "file": path.name, "url": "", "bytes": path.stat().st_size,
            "sha256": sha256}  # fmt: skip


def written_pylock(folder, entries, system="ubuntu-22.04-x86_64"):
    parts = {**PARTS, "environments": {"own": {**ENVIRONMENT, "python": PYTHON, "wheels": entries}}}
    texts = contents.texts({**LOCK, "systems": {system: parts}})
    (name,) = (name for name in texts if name.endswith(".toml"))
    path = folder / name.partition("/")[2]
    path.write_text(texts[name])
    return path


def test_requirements_as_pep_751_has_them(tmp_path):
    """uv installs them without an index, and refuses another file."""
    entries = [a_wheel(tmp_path, "one", "1.0"), a_wheel(tmp_path, "two", "2.0")]
    path = written_pylock(tmp_path, entries)
    assert is_valid_pylock_path(path) and path.name == "pylock.ubuntu-22-04-x86_64-own.toml"
    lock = Pylock.from_dict(tomllib.loads(path.read_text()))
    assert [(package.name, str(package.version), each.path, each.hashes["sha256"])
            for package, each in lock.select()] == [
        (each["name"], each["version"], each["file"], each["sha256"]) for each in entries
    ]  # fmt: skip

    def install():
        argv = [
            "uv",
            "pip",
            "install",
            "--offline",
            "--no-index",
            "--no-config",
            "--no-cache",
            "--python",
            sys.executable,
        ]
        return subprocess.run([*argv, "--target", tmp_path / "there", "-r", path], check=False, capture_output=True,
                              text=True)  # fmt: skip

    done = install()
    assert done.returncode == 0, done.stderr
    assert {"one-1.0.dist-info", "two-2.0.dist-info"} <= {each.name for each in (tmp_path / "there").iterdir()}
    shutil.rmtree(tmp_path / "there")
    (tmp_path / "two-2.0-py3-none-any.whl").write_bytes((tmp_path / "one-1.0-py3-none-any.whl").read_bytes())
    refused = install()
    assert refused.returncode != 0 and "Hash mismatch" in refused.stderr


def test_a_lock_from_elsewhere_names_no_other_folder_and_breaks_no_quotes(tmp_path):
    path = written_pylock(tmp_path, [{**WHEEL, "file": '../a"\n\x7f\\b.whl', "bytes": 0}])
    (package,) = tomllib.loads(path.read_text())["packages"]
    assert package["wheels"] == [{"path": 'a"\n\x7f\\b.whl', "hashes": {"sha256": OTHER}}]
