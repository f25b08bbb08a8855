"""The way to an image, with Podman's answers as this file has them; archives of images. Nothing is built."""

import io
import json
import tarfile

import pytest
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import image_build, podman
from environment_samples import ENVIRONMENT

NAME = "localhost/trainyard/pytorch:2.13.0-abc"
PARAMS = {
    **{
        "framework": "pytorch",
        "name": NAME,
        "base": "b" * 64,
        "created": 7,
        "recipe": "new",
        "file": "",
        "verify": True,
    },
    "build": {"Containerfile": "FROM x\n"},
    "fetch": {"fetch.sh": "true\n", "others.txt": "torch @ https://me:opensesame@mirror.example/torch.whl\n"},
    "environment": {
        **ENVIRONMENT,
        "path": "/venv",
        "verify_script": "check",
        "index_url": "https://me:opensesame@index",
    },
}


def write(path, members):
    with tarfile.open(path, "w") as archive:
        for name, value in members.items():
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def oci(path, identity):
    blobs = {"blobs/sha256/m": {"config": {"digest": f"sha256:{identity}"}}}
    return write(path, {"oci-layout": {}, "index.json": {"manifests": [{"digest": "sha256:m"}]}, **blobs})


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Return the calls of Podman; the images of the store and the answers are in attributes of the list."""

    class Calls(list):
        images, run, files = {}, Outcome(0, '{"torch": "2.13.0"}\n'), {}
        fetch = Outcome(0, "")

    made = Calls()

    def answer(*words, **_):
        made.append(words)
        if words[0] == "build":
            made.files = {path.name: path.read_text() for path in tmp_path.glob("*/context/*") if path.is_file()}
            next(tmp_path.glob("trainyard-image-*"), tmp_path).joinpath("id").write_text("sha256:made")
        if words[0] == "tag":
            made.images = {NAME: {"Id": "made", "Digest": "sha256:d", "Size": 1, "Labels": {"trainyard.recipe": "new"}}}
        if words[0] == "save":
            oci(words[3].partition("=")[2], "made")
        return Outcome(0, "")

    def run(image, program, arguments, options=(), *_):
        made.append(("run", image, program, *arguments, *options))
        return made.run if program == "/venv/bin/python" else made.fetch

    monkeypatch.setattr(image_build, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(image_build, "podman", answer)
    monkeypatch.setattr(image_build, "run", run)
    monkeypatch.setattr(image_build, "inspect", lambda name: made.images.get(name))
    return made


def build(**changes):
    work = image_build.Build({**PARAMS, **changes})
    work.do()
    return work.result()


def test_an_image_is_verified_before_it_gets_its_name(calls):
    result = build()
    assert [words[0] for words in calls] == ["run", "build", "run", "tag"]
    assert (result["id"], result["verified"]) == ("made", {"torch": "2.13.0"})
    assert result["reasons"] == [f"{NAME} is not there"]


def test_an_image_that_fails_its_check_is_removed(calls):
    calls.run = Outcome(1, "no such device\n")
    with pytest.raises(podman.PodmanError, match=r"the check of the image failed.*no such device"):
        build()
    assert calls[-1] == ("rmi", "made") and calls.images == {}


def test_packages_that_no_source_has_are_named_with_the_variables(calls):
    calls.fetch = Outcome(1, "Looking in links: /srv\nERROR: No matching distribution found for numpy==2.4.6\n")
    with pytest.raises(podman.PodmanError, match=r"\(pytorch_index_url, pytorch_find_links\).*numpy==2.4.6"):
        build()
    assert calls.images == {} and "build" not in {words[0] for words in calls}


def test_no_secret_is_in_an_argument_or_in_the_context(calls):
    build()
    assert calls.files == PARAMS["build"]
    assert "opensesame" not in str(list(calls))


def test_the_build_has_no_network_and_no_time_of_its_own(calls):
    build()
    (words,) = [words for words in calls if words[0] == "build"]
    assert {"--network=none", "--pull=never", "--timestamp=7", "--layers=false", "--identity-label=false"} <= set(words)


def test_the_same_input_builds_and_saves_nothing(calls, tmp_path):
    build()
    file = tmp_path / "images/a.tar"
    assert build(file=str(file))["reasons"] == [f"{file} does not hold this image"]
    assert [each.name for each in file.parent.iterdir()] == ["a.tar"]
    calls.clear()
    result = build(file=str(file))
    assert (list(calls), result["changed"], result["digest"]) == ([], False, "sha256:m")
    assert build(recipe="other")["reasons"] == [f"{NAME} was built from other input"]


def test_archives_of_both_kinds_name_their_image(tmp_path):
    assert podman.archived(oci(tmp_path / "oci.tar", "abc")) == ("abc", "sha256:m")
    docker = write(tmp_path / "docker.tar", {"manifest.json": [{"Config": "abc.json"}]})
    assert podman.archived(docker) == ("abc", "")


@pytest.mark.parametrize(
    "members", [{}, {"index.json": []}, {"index.json": {"manifests": [{"digest": "sha256:m"}]}}, {"manifest.json": 1}]
)
def test_other_archives_hold_no_image(tmp_path, members):
    assert podman.archived(write(tmp_path / "a.tar", members)) == ("", "")
    (tmp_path / "text").write_text("text")
    assert podman.archived(tmp_path / "text") == podman.archived(tmp_path / "none") == ("", "")


def test_a_failure_is_reported_without_the_attempts_before_it():
    output = 'Trying to pull x...\ntime="2026" level=warning msg="Failed, retrying"\nError: connection refused\n'
    assert podman.last_lines(output) == "Error: connection refused"
    assert podman.last_lines("WARNING: a\n") == "no output"
