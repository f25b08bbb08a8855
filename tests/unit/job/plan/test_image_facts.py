"""A node looks at a job's image: real archives, SIF headers and processes; Podman itself is simulated.

The simulated one runs a command on this machine instead of in an image. molecule/container_runtime has the real one.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.plan import image_fetch, image_inspection
from ansible.module_utils.trainyard_node.software import podman
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import PATIENCE_S, wait_for

PODMAN = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$1" in
--version) echo podman version 4.3.1 ;;
image) [ -e "$(dirname "$0")/present" ] ;;
unshare) echo 'no subuid ranges found for user "train" in /etc/subuid' >&2; exit 125 ;;
pull) echo Copying blob
    [ ! -e "$(dirname "$0")/broken" ] || { cat "$(dirname "$0")/broken" >&2; exit 125; }
    touch "$(dirname "$0")/present" ;;
info) dirname "$0" ;;
run) while [ "$1" != IMAGE ] && [ "${1#*sha256:}" = "$1" ]; do shift; done; shift; exec "$@" ;;
esac
"""


def archive(path, config="sha256:" + "ab" * 32, manifests=None):
    """Write an archive of the OCI image layout without layers; return the digest of its configuration."""
    manifest = json.dumps(manifests or {"config": {"digest": config}}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    index = json.dumps({"manifests": [{"digest": f"sha256:{digest}"}]}).encode()
    with tarfile.open(path, "w") as packed:
        for name, content in (("index.json", index), (f"blobs/sha256/{digest}", manifest)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return config


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs with a simulated Podman, and a home of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "podman").write_text(PODMAN)
    (folder / "podman").chmod(0o755)
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    monkeypatch.setattr(image_inspection, "_FOLDERS", str(folder))
    here = image_inspection.settings()
    path = f"{folder}:{os.environ['PATH']}"
    monkeypatch.setattr(
        image_inspection, "settings", lambda: {**here, "env": {**here["env"], "PATH": path, "CUDA_VERSION": "12.4"}}
    )
    monkeypatch.setattr(image_inspection, "file_of", lambda identity, runtime: tmp_path / f"{identity}.{runtime}")
    return folder


def request(path, **changes):
    asked = {
        "reference": f"oci-archive:{path}",
        "kind": "archive",
        "runtimes": ["podman"],
        "copied": False,
        "pull": "missing",
    }
    return {**asked, "mounts": [], "mpi": False, "programs": [], "modules": [], **changes}


def read(asked, packages=()):
    return image_inspection.read(asked, "", list(packages))


def was_started(programs, identity="sha256:" + "ab" * 32):
    (programs / "present").touch()
    image_inspection.file_of(identity, "started").touch()


def texts(fact):
    return [(each["check"], each["found"]) for each in fact["problems"]]


def test_what_an_image_holds(programs, tmp_path):
    identity = archive(tmp_path / "a.tar")
    was_started(programs)
    asked = request(
        tmp_path / "a.tar",
        programs=["sh", "no-such-program"],
        modules=["json.tool", "json.absent", "json:absent", "none:x"],
    )
    fact = read(asked, ["PyYAML", "none"])
    assert texts(fact) == []
    assert (fact["runtime"], fact["id"], fact["image"]) == ("podman", identity, identity)
    assert fact["runtimes"] == {"podman": {"program": str(programs / "podman"), "version": "4.3.1"}}
    assert fact["python_version"] == ".".join(map(str, sys.version_info[:3]))
    assert fact["packages"]["PyYAML"] and fact["packages"]["none"] is None
    assert fact["missing"] == {"programs": ["no-such-program"], "modules": ["json.absent", "none"]}
    assert (fact["cuda"], fact["venv"]) == ("12.4", False)


def test_the_virtual_environment_of_an_image_comes_first(programs, tmp_path):
    archive(tmp_path / "a.tar")
    was_started(programs)
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    fact = image_inspection.read(request(tmp_path / "a.tar"), str(venv), [])
    assert fact["venv"] and fact["python"] == f"{venv}/bin/python"


def test_a_node_without_a_container_program(programs, tmp_path):
    (programs / "podman").unlink()
    assert texts(read(request(tmp_path / "a.tar", runtimes=["podman", "docker"]))) == [
        ("container", "no podman, docker")
    ]


def test_a_user_without_containers_is_found_before_the_image_is_brought(programs, tmp_path, monkeypatch):
    """Podman as root uses no range of ids."""
    archive(tmp_path / "a.tar")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert texts(read(request(tmp_path / "a.tar"))) == []
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert texts(read(request(tmp_path / "a.tar"))) == [
        ("container", 'no subuid ranges found for user "train" in /etc/subuid')
    ]


def test_missing_mounts_and_archives(programs, tmp_path):
    fact = read(request(tmp_path / "none.tar", mounts=["/proc/nowhere", "/"]))
    assert texts(fact) == [
        ("job_mounts", "no /proc/nowhere"),
        ("image", f"{tmp_path}/none.tar: No such file or directory"),
    ]
    # It comes from another node.
    assert ("image", f"{tmp_path}/none.tar: No such file or directory") not in texts(
        read(request(tmp_path / "none.tar", copied=True))
    )


def test_an_image_that_does_not_start(programs, tmp_path):
    archive(tmp_path / "a.tar")
    was_started(programs)
    (programs / "podman").write_text(PODMAN.replace("run)", "run) echo 'exec format error' >&2; exit 126;"))
    assert texts(read(request(tmp_path / "a.tar"))) == [
        ("image", f"podman cannot run oci-archive:{tmp_path}/a.tar: exec format error")
    ]


def test_an_archive_for_several_processors(tmp_path):
    config = archive(tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar") as packed:
        index = json.loads(packed.extractfile("index.json").read())
        blob = packed.extractfile(image_inspection._blob(index["manifests"][0]["digest"])).read()
    several = {
        "manifests": [{"digest": "sha256:" + hashlib.sha256(blob).hexdigest(), "platform": {"architecture": "x"}}]
    }
    archive(tmp_path / "all.tar", manifests=several)
    with tarfile.open(tmp_path / "all.tar", "a") as packed:
        entry = tarfile.TarInfo(f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}")
        entry.size = len(blob)
        packed.addfile(entry, io.BytesIO(blob))
    assert image_inspection.of_archive(str(tmp_path / "all.tar")) == config


@given(st.binary(max_size=2000))
def test_no_content_of_an_archive_surprises(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.tar"
    path.write_bytes(content)
    with pytest.raises((OSError, ValueError, LookupError, tarfile.TarError)):
        image_inspection.of_archive(str(path))


def test_a_sif_file_by_its_header(programs, tmp_path):
    sif = tmp_path / "a.sif"
    sif.write_bytes(
        b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0" + b"02\0" + bytes(range(80))
    )
    identity, name, problem = image_inspection.identify(
        request("", reference=str(sif), kind="sif"), {"runtime": "apptainer"}
    )
    assert (identity, name, problem) == (f"sif:{bytes(range(16)).hex()}-128", str(sif), None)
    sif.write_bytes(b"no image")
    assert image_inspection.identify(request("", reference=str(sif), kind="sif"), {"runtime": "apptainer"})[2][
        "found"
    ] == (f"{sif} is no SIF file")


def bring(asked, fact, **changes):
    """Bring an image as several visits do; return the last answer."""
    whole = {**asked, "auth": None, "source": "", "identity": "", "begin": True, **changes}
    answer = image_fetch.bring(whole, fact, 0.05)
    return (
        wait_for(
            lambda: (found := image_fetch.bring({**whole, "begin": False}, fact, 0.2))["done"] and found, "its end"
        )
        if not answer["done"]
        else answer
    )


def test_an_image_is_brought_by_a_process_that_outlives_the_visit(programs, tmp_path):
    archive(tmp_path / "a.tar")
    asked = request(tmp_path / "a.tar")
    fact = read(asked)
    assert fact["id"] == ""
    identity = archive(tmp_path / "a.tar")
    assert bring(asked, fact) == {
        "done": True,
        "problem": "",
        "line": "the image starts for the first time",
        "id": identity,
    }
    assert read(asked)["id"]
    assert f"pull oci-archive:{tmp_path}/a.tar" in (programs / "calls").read_text()


@pytest.mark.parametrize("kind", ["registry", "archive"])
def test_how_much_of_an_image_is_there_is_said(tmp_path, monkeypatch, kind):
    layers, place = tmp_path / "storage12", tmp_path / "state/x.state"
    layers.mkdir()
    place.parent.mkdir()
    (tmp_path / "a.tar").write_bytes(bytes(8 << 20))
    asked = request(tmp_path / "a.tar", kind=kind)
    monkeypatch.setattr(image_fetch, "being_pulled", lambda: podman.being_pulled(str(tmp_path)))
    assert image_fetch._with_size("Copying blob 4f4f", asked, place) == "Copying blob 4f4f"
    (layers / "1").write_bytes(bytes(3 << 20))
    share = "3 MiB of 8 MiB" if kind == "archive" else "3 MiB"
    assert image_fetch._with_size("Copying blob 4f4f", asked, place) == f"Copying blob 4f4f: {share}"
    # Apptainer writes one file.
    (place.parent / "x.part4711").write_bytes(bytes(5 << 20))
    assert image_fetch._with_size("", asked, place).startswith("5 MiB")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert podman.being_pulled(str(tmp_path)) is None


def test_why_it_could_not_be_brought_is_said_and_it_is_tried_again(programs, tmp_path):
    archive(tmp_path / "a.tar")
    asked = request(tmp_path / "a.tar")
    (programs / "broken").write_text("no space left\n")
    assert bring(asked, read(asked))["problem"] == "no space left"
    # Podman names the first cause last.
    (programs / "broken").write_text("Error: " + 40 * "layer " + "no space left\n")
    problem = bring(asked, read(asked))["problem"]
    assert problem.startswith("... ") and problem.endswith("layer no space left")
    (programs / "broken").unlink()
    assert bring(asked, read(asked))["problem"] == ""


def test_the_result_of_an_older_transfer_that_is_about_to_end_is_not_taken_for_the_new_one(
    programs, tmp_path, monkeypatch
):
    archive(tmp_path / "a.tar")
    asked = request(tmp_path / "a.tar")
    (programs / "broken").write_text("no space left\n")
    assert bring(asked, read(asked))["problem"] == "no space left"
    (programs / "broken").unlink()
    take, refusals = image_fetch._take, [False, False]
    monkeypatch.setattr(image_fetch, "_take", lambda lock: refusals.pop() if refusals else take(lock))
    again = {**asked, "auth": None, "source": "", "identity": "", "begin": True}
    answer = image_fetch.bring(again, read(asked), PATIENCE_S)
    assert (answer["done"], answer["problem"]) == (True, "")


def test_the_result_of_an_older_transfer_that_does_not_end_is_no_answer(programs, tmp_path, monkeypatch):
    archive(tmp_path / "a.tar")
    asked = request(tmp_path / "a.tar")
    (programs / "broken").write_text("no space left\n")
    assert bring(asked, read(asked))["problem"] == "no space left"
    monkeypatch.setattr(image_fetch, "_take", lambda _: False)
    monkeypatch.setattr(image_fetch, "_END_S", 0)
    again = {**asked, "auth": None, "source": "", "identity": "", "begin": True}
    answer = image_fetch.bring(again, read(asked), 0.0)
    assert (answer["done"], answer["problem"]) == (False, "")


def test_a_disk_without_room_for_the_archive(programs, tmp_path, monkeypatch):
    archive(tmp_path / "a.tar")
    asked = request(tmp_path / "a.tar")
    monkeypatch.setattr(image_fetch, "_ROOM", 1 << 50)
    problem = bring(asked, read(asked))["problem"]
    assert f"MiB free in {programs}, and " in problem and problem.endswith(" MiB are needed")


def test_a_login_is_in_a_file_of_the_user_alone_and_gone_afterwards(programs, tmp_path):
    reference = "docker://registry.example/a@sha256:" + "ab" * 32
    (programs / "podman").write_text(PODMAN.replace("pull)", 'pull) stat -c %a "$3"; cp "$3" "$(dirname "$0")/seen";'))
    asked = request("", reference=reference, kind="registry")
    answer = bring(asked, read(asked), auth={"username": "u", "password": "hunter2"})
    assert answer["problem"] == ""
    calls = (programs / "calls").read_text()
    assert "hunter2" not in calls and f" {reference}" in calls
    assert list(json.loads((programs / "seen").read_text())["auths"]) == ["registry.example"]
    assert list(tmp_path.rglob("config.json")) == []
    assert Path(image_inspection.note_of(asked).with_suffix(".log")).read_text().startswith("600\n")
