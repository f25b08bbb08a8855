"""How far an image is, by the files that pip and Podman make grow. Nothing is built."""

import os
import zipfile

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import image_progress, program_progress

MIB = 1 << 20


@pytest.fixture
def machine(monkeypatch, tmp_path):
    monkeypatch.setattr(image_progress, "TEMPORARY", str(tmp_path / "tmp"))
    monkeypatch.setattr(image_progress, "podman", lambda *_, **__: Outcome(0, f"{tmp_path}/store\n"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def text(path="/opt/venv", file=""):
    record = program_progress.of_task("image", {"path": path, "file": file}, None)
    if record is None:
        return ""
    assert not misfit(record, pip_progress.INSTALLING)
    return pip_progress.text({**record, "seconds": 2.0})


def grow(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def test_an_image_gets_its_wheels_then_an_environment_then_an_archive(machine):
    archive = machine / "images/pytorch.tar"
    assert text(file=str(archive)) == ""
    store, work = machine / "store/overlay", machine / "tmp/trainyard-image-x"
    # A layer of another image, from before.
    grow(store / "a/diff/opt/venv/lib/old.py", 9 * MIB)
    (work / "fetch/wheels").mkdir(parents=True)
    (work / "context").mkdir()
    grow(store / "b/diff/tmp/pip-unpack-1/torch.whl", 4 * MIB)
    assert text() == "wheels: 4 MiB, 2 MiB/s"
    (work / "fetch/wheels").rename(work / "context/wheels")
    with zipfile.ZipFile(work / "context/wheels/torch.whl", "w") as wheel:
        wheel.writestr("torch.py", bytes(8 * MIB))
    grow(store / "c/diff/opt/venv/lib/python3.13/torch.py", 2 * MIB)
    assert text() == "unpacking: 2 MiB of 8 MiB, 1 MiB/s, 6 s left"
    grow(archive.parent / ".trainyard-image-y/oci1/blob", 6 * MIB)
    assert text(file=str(archive)) == "pytorch.tar: 6 MiB, 3 MiB/s"


@pytest.mark.parametrize("name", ["storage1234", "container_images_storage1234"])
def test_a_base_is_pulled(machine, name):
    assert text(path="") == ""
    grow(machine / "tmp" / name / "1", 2 * MIB)
    assert text(path="") == "base of the image: 2 MiB, 1 MiB/s"


def test_folders_of_other_users_are_not_read(machine, monkeypatch):
    grow(machine / "tmp/trainyard-image-x/fetch/a", MIB)
    grow(machine / "tmp/storage1/1", MIB)
    assert text() and text(path="")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert text() == text(path="") == ""
