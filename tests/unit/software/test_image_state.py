"""Findings before an image is built, from answers of Podman as this file has them."""

import json

import pytest
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import image_state

DIGEST = "sha256:" + "a" * 64
REFERENCE = f"docker://registry.example/python@{DIGEST}"
IMAGE = {"Id": "b" * 64, "Digest": DIGEST, "User": "app", "Created": "2026-11-26T09:46:57.106785254Z"}
PYTHON = {"executable": "/usr/bin/python3", "version": [3, 11, 2], "can_make_environments": True, "has_headers": False}
PRINTED = f"a warning\n{json.dumps(PYTHON)}\n{json.dumps(['libgomp.so.1'])}\n"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return the answers, which a test changes: those of Podman by command, the images by name, what was pulled."""
    answers = {
        "--version": Outcome(0, "podman version 4.3.1\n"),
        "info": Outcome(0, f"{tmp_path}\n"),
        "run": Outcome(0, PRINTED),
        "pull": None,
        "images": {REFERENCE.removeprefix("docker://"): IMAGE},
        "installed": True,
        "pulled": [],
    }

    def pull(reference):
        answers["pulled"].append(reference)
        if answers["pull"]:
            raise image_state.PodmanError(answers["pull"])
        answers["images"][reference.removeprefix("docker://")] = IMAGE

    monkeypatch.setattr(image_state, "is_installed", lambda: answers["installed"])
    monkeypatch.setattr(image_state, "podman", lambda command, *_: answers[command])
    monkeypatch.setattr(image_state, "inspect", lambda name: answers["images"].get(name))
    monkeypatch.setattr(image_state, "run", lambda *_: answers["run"])
    monkeypatch.setattr(image_state, "pull", pull)
    return answers


def read(reference=REFERENCE, may_pull=True, min_free_mb=0, file=""):
    state = image_state.State(reference, may_pull)
    state.read("python3", ["libgomp.so.1"], file, min_free_mb)
    return state


def test_a_base_that_is_there_is_not_pulled(machine):
    state = read()
    assert (state.findings, state.pulled, machine["pulled"]) == ([], False, [])
    assert state.base == {
        "reference": REFERENCE,
        "id": IMAGE["Id"],
        "digest": DIGEST,
        "user": "app",
        "created": 1795686417,
        "python": PYTHON,
        "lacking": ["libgomp.so.1"],
    }


def test_a_base_that_is_not_there_is_pulled_but_not_in_check_mode(machine):
    machine["images"].clear()
    preview = read(may_pull=False)
    assert (preview.pulled, preview.base, preview.findings, machine["pulled"]) == (True, {}, [], [])
    state = read()
    assert state.pulled and state.base["id"] == IMAGE["Id"] and machine["pulled"] == [REFERENCE]


@pytest.mark.parametrize(
    ("change", "given", "check", "text"),
    [
        ({"installed": False}, {}, "Podman", "no program podman"),
        ({"--version": Outcome(0, "podman version 3.0.1\n")}, {}, "Podman", "podman version 3.0.1"),
        ({"info": Outcome(125, "Error: no cgroups\n")}, {}, "Podman", "podman info fails: Error: no cgroups"),
        ({}, {"reference": "localhost/none:1"}, "base of the image", "no image localhost/none:1 in the store"),
        ({}, {"reference": "oci-archive:/proc/nowhere.tar"}, "base of the image", "no image in /proc/nowhere.tar"),
        (
            {"images": {}, "pull": "manifest unknown"},
            {},
            "base of the image",
            f"{REFERENCE} cannot be pulled: manifest",
        ),
        (
            {"run": Outcome(127, "no such file\n")},
            {},
            "base of the image",
            f"python3 does not run in {REFERENCE}: no su",
        ),
        ({"run": Outcome(0, "hello\n")}, {}, "base of the image", f"python3 does not run in {REFERENCE}: hello"),
    ],
)
def test_what_prevents_a_build_is_a_finding(machine, change, given, check, text):
    machine.update(change)
    state = read(**given)
    (finding,) = state.findings
    assert finding.check == check and finding.found.startswith(text) and state.base == {}


def test_the_space_of_one_file_system_is_needed_for_all_that_lies_there(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(image_state, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(image_state, "free_bytes", lambda path: 2_500_000_000)
    assert read(min_free_mb=1000).findings == []
    (finding,) = read(min_free_mb=1000, file=str(tmp_path / "images/a.tar")).findings
    assert finding.found == f"2500 MB are free for the store of images and the wheels and image_file ({tmp_path})"
    assert finding.expected == "3000 MB"
