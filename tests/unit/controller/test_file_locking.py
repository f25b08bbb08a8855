"""The controller finds out sums of commits, by a real git, and addresses of wheels, by a simulated pip."""

import hashlib
import json
import subprocess
import tarfile

import pytest
from ansible.module_utils.trainyard.bundle.contents import Item
from ansible.module_utils.trainyard_controller.bundle import bundling, file_locking, git_archives

PIP = """#!/bin/sh
echo "$PIP_INDEX_URL $*" >"$CALLS"
[ ! -e "$CALLS.broken" ] || { echo "ERROR: No matching distribution"; exit 1; }
for each; do case "$each" in --report=*) cp "$CALLS.report" "${each#--report=}" ;; esac; done
"""
WHEEL = {"what": "data set digits", "url": "", "sha256": 64 * "d", "package": "scikit-learn==1.7.2",
         "platform": "--abi cp311", "index_url": "https://u:hunter2@i.example.org/simple",
         "variables": "dataset_index_url"}  # fmt: skip


def git(folder, *argv):
    done = subprocess.run(["git", "-C", str(folder), *argv], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with two commits; only the second has a branch on it."""
    folder = tmp_path / "nccl-tests"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for content in ("first", "second"):
        (folder / "Makefile").write_text(f"all: # {content}\n")
        git(folder, "add", "Makefile")
        git(folder, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "-m", content)
    return folder


def locked(repository, commit):
    url = f"git+file://{repository}@{commit}"
    return file_locking.resolve([{"what": "nccl-tests", "url": url, "sha256": ""}], lambda line: None)


def test_a_commit_has_the_same_sum_whatever_the_user_sets(repository, monkeypatch, tmp_path):
    commit = git(repository, "rev-parse", "HEAD~")
    (file,), findings = locked(repository, commit)
    assert findings == [] and len(file["sha256"]) == 64
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[core]\n\tautocrlf = true\n[tar]\n\tumask = 0077\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    assert locked(repository, commit)[0] == [file]

    item = Item("files/nccl-tests.tar", file["url"], 0, file["sha256"], "nccl-tests")
    assert bundling.fetch([item], tmp_path / "bundle", print) == []
    with tarfile.open(tmp_path / "bundle/files/nccl-tests.tar") as archive:
        assert archive.getnames() == ["Makefile"] and archive.extractfile("Makefile").read() == b"all: # first\n"
    (found,) = bundling.fetch([Item("files/y", file["url"], 0, 64 * "0", "y")], tmp_path / "bundle", print)
    assert file["sha256"] in found.found


def test_a_commit_that_is_not_there(repository, tmp_path):
    found, (finding,) = locked(repository, 40 * "0")
    assert found == [] and finding.check == "nccl-tests" and str(repository) in finding.found
    found, (finding,) = locked(tmp_path / "none", 40 * "0")
    assert found == [] and "none" in finding.found


def test_an_address_runs_no_program(tmp_path):
    with pytest.raises(git_archives.GitError), git_archives.archive(f"ext::touch {tmp_path}/x", 40 * "0"):
        pass
    assert not (tmp_path / "x").exists()


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A simulated pip, which reports a wheel with the sum that is asked for."""
    (tmp_path / "python").write_text(PIP)
    (tmp_path / "python").chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setattr(file_locking.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("CALLS", str(calls))

    def reports(sha256):
        info = {"url": "https://u:hunter2@i.example.org/s.whl", "archive_info": {"hashes": {"sha256": sha256}}}
        calls.with_name("calls.report").write_text(json.dumps({"install": [{"download_info": info}]}))
        return calls

    return reports


def test_the_address_of_a_wheel(pip):
    calls = pip(WHEEL["sha256"])
    shown = []
    (file,), findings = file_locking.resolve([WHEEL], shown.append)
    assert findings == [] and file["url"] == "https://***@i.example.org/s.whl"
    assert shown == ["pip finds scikit-learn==1.7.2"]
    index, _, argv = calls.read_text().partition(" ")
    assert index == WHEEL["index_url"] and "--abi=cp311" in argv and argv.endswith(" scikit-learn==1.7.2\n")


def test_a_wheel_that_no_index_has(pip):
    calls = pip(hashlib.sha256(b"other").hexdigest())
    found, (finding,) = file_locking.resolve([WHEEL], print)
    assert found == [] and "with sha256 d9298a10" in finding.found
    calls.with_name("calls.broken").touch()
    (finding,) = file_locking.resolve([WHEEL], print)[1]
    assert finding.found == "ERROR: No matching distribution" and finding.action == "set dataset_index_url"


def test_what_is_known_is_not_asked_for(pip):
    calls = pip("")
    known = [{**WHEEL, "url": "https://i.example.org/s.whl"}, {"what": "x", "url": "https://x", "sha256": ""}]
    assert file_locking.resolve(known, print) == (known, [])
    assert not calls.exists()
