"""The files of job_source that are sent to the nodes, left out, or refused."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_controller.job import source_folder
from ansible.module_utils.trainyard_node.job.run import job_folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "source"
    made.mkdir()
    (made / "train.py").write_text("print('train')\n")
    return made


def add(folder, *names, text=""):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def unpacked(source):
    with tarfile.open(fileobj=io.BytesIO(source.archive)) as archive:
        return {info.name: info.linkname if info.issym() else archive.extractfile(info).read() for info in archive}


def left_out(folder):
    return {reason: list(names) for reason, names in source_folder.read(str(folder)).left_out.items()}


def test_an_empty_source_is_an_empty_archive():
    assert unpacked(source_folder.read("")) == {}


def test_a_folder_that_is_missing_has_no_files(tmp_path):
    assert source_folder.read(str(tmp_path / "nowhere")).files is None


def test_files_that_are_not_sent_are_named_with_the_reason(folder):
    add(folder, ".git/x", "sub/__pycache__/x", "__pycache__/x")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        # A path of pytest's own may be too long for a socket.
        here = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/ctl.sock")
        os.close(here)
    (folder / "gone").symlink_to("nothing")
    (folder / "round").symlink_to("round")
    source = source_folder.read(str(folder))
    assert (source.files, source.findings) == (["train.py"], [])
    assert left_out(folder) == {
        "never sent": [".git/", "__pycache__/"],
        "no regular file": ["ctl.sock", "pipe"],
        "broken link": ["gone", "round"],
    }
    assert source_folder.left_out_text(source) == (
        ".git/ (never sent); ctl.sock, pipe (no regular file); gone, round (broken link)"
    )


def test_caches_of_tools_are_left_out_without_a_word(folder):
    add(folder, "__pycache__/x", "sub/.mypy_cache/x")
    assert left_out(folder) == {"never sent": ["__pycache__/", ".mypy_cache/"]}
    assert source_folder.left_out_text(source_folder.read(str(folder))) == ""


def test_trainyardignore_decides_as_git_would(folder):
    add(folder, ".trainyardignore", text="# big ones\n*.bin\n!keep.bin\n/data/\n")
    add(folder, ".gitignore", text="train.py\n")
    add(folder, "a.bin", "keep.bin", "data/x", "sub/data/x", "sub/b.bin")
    files = source_folder.read(str(folder)).files
    assert files == [".gitignore", ".trainyardignore", "keep.bin", "sub/data/x", "train.py"]
    assert left_out(folder) == {".trainyardignore": ["data/", "a.bin", "sub/b.bin"]}


def test_gitignore_decides_where_there_is_no_trainyardignore(folder):
    add(folder, ".gitignore", text="*.pt\n")
    add(folder, "last.pt")
    assert left_out(folder) == {".gitignore": ["last.pt"]}
    assert source_folder.left_out_text(source_folder.read(str(folder))) == "last.pt (.gitignore)"


def test_links_inside_the_folder_stay_links_that_work_anywhere(folder, tmp_path):
    add(folder, "data/v1/x", text="1")
    (folder / "current").symlink_to("data/v1")
    (folder / "data" / "script").symlink_to("../train.py")
    (folder / "absolute").symlink_to(folder / "train.py")
    (folder / "data" / "back").symlink_to("../../source/train.py")
    (tmp_path / "named").symlink_to(folder)
    source = source_folder.read(str(tmp_path / "named"))
    assert source.findings == []
    assert unpacked(source) == {
        "absolute": "train.py",
        "current": "data/v1",
        "data/back": "../train.py",
        "data/script": "../train.py",
        "data/v1/x": b"1",
        "train.py": b"print('train')\n",
    }
    # The node's own check of what it unpacks lets them pass.
    job_folder._unpack(source.archive, tmp_path / "node")
    assert (tmp_path / "node" / "current" / "x").read_text() == "1"


@pytest.mark.parametrize("target", ["../secret", "{tmp}/secret", "../secrets", "../nowhere"])
def test_a_link_that_leaves_the_folder_is_refused(folder, tmp_path, target):
    add(tmp_path, "secret", "secrets/x", text="a private key")
    (folder / "innocent").symlink_to("data.txt")
    (folder / "data.txt").symlink_to(target.format(tmp=tmp_path))
    source = source_folder.read(str(folder))
    (finding,) = source.findings
    assert finding.check == "job_source" and not source.archive
    for name in ("data.txt", "innocent"):
        assert f"{name} -> {tmp_path}/{Path(target).name}" in finding.found


def test_a_link_through_another_one_is_refused_too(folder, tmp_path):
    add(tmp_path, "secrets/x", text="a private key")
    (folder / "way").symlink_to(tmp_path / "secrets")
    (folder / "data.txt").symlink_to("way/x")
    (finding,) = source_folder.read(str(folder)).findings
    assert f"data.txt -> {tmp_path}/secrets/x" in finding.found


def test_a_link_to_a_file_that_is_left_out_is_left_out(folder):
    add(folder, ".git/config", "data/x")
    add(folder, ".gitignore", text="data/\n")
    (folder / "config").symlink_to(".git/config")
    (folder / "x").symlink_to("data/x")
    assert left_out(folder)["link to what is left out"] == ["config", "x"]


def test_the_root_of_the_machine_is_no_source():
    (finding,) = source_folder.read("/").findings
    assert finding.found == "/, the whole machine"


def test_a_folder_that_is_too_large_is_not_read_to_its_end(folder, monkeypatch):
    monkeypatch.setattr(source_folder, "MAX_BYTES", 1000)
    with (folder / "data.bin").open("wb") as file:
        file.truncate(1 << 40)
    (finding,) = source_folder.read(str(folder)).findings
    assert "2 files" in finding.found and ".trainyardignore" in finding.action


def test_files_that_cannot_be_read_are_found(folder, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *mode: Path(path).name != "train.py" and access(path, *mode))
    (finding,) = source_folder.read(str(folder)).findings
    assert finding.found == f"{folder}/train.py: no right to read it"


def test_a_name_that_is_not_utf8_is_a_finding_unless_it_is_ignored(tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).touch()
    (finding,) = source_folder.read(str(tmp_path)).findings
    assert finding.found == r"'caf\udce9.txt', which is no UTF-8"
    (tmp_path / ".trainyardignore").write_text("caf*.txt\n")
    assert source_folder.read(str(tmp_path)).findings == []
