"""The plan of an image: what may be built on what, its name and labels, and what is in the files of its build."""

import json

import pytest
from ansible.module_utils.trainyard.software import image
from ansible.module_utils.trainyard_controller.cluster.image_plan import image_plan
from ansible_run import PROJECT
from environment_samples import ENVIRONMENT

LOCK = (PROJECT / "roles/pytorch/files/pytorch_lock.txt").read_text()
SUM = "a" * 64
BASE = {
    "reference": f"docker://registry.example/python@sha256:{SUM}",
    "id": "b" * 64,
    "digest": f"sha256:{SUM}",
    "user": "",
    "created": 1_700_000_000,
    "python": {
        "executable": "/usr/bin/python3",
        "version": [3, 11, 2],
        "can_make_environments": True,
        "has_headers": False,
    },
    "lacking": [],
}
WANTED = {
    **ENVIRONMENT,
    "path": "/opt/trainyard/venvs/pytorch",
    "interpreter": "python3",
    "packages": ["torch==2.13.0", "numpy==2.2.6; python_version == '3.10'", "numpy==2.4.6; python_version >= '3.11'"],
    "python_min": "3.10",
    "python_max": "3.14",
}


def planned(lock=LOCK, base=None, **changes):
    return image_plan("pytorch", {**WANTED, **changes}, lock, {"base": {**BASE, **(base or {})}})


def found(**changes):
    return [(each["check"], each["found"]) for each in planned(**changes)["findings"]]


@pytest.mark.parametrize(
    "base", [BASE["reference"], "oci-archive:/srv/a.tar", "docker-archive:/srv/a.tar", "me/p:3.11"]
)
def test_a_base_has_a_digest_or_lies_on_the_host(base):
    assert list(image.settings_findings("pytorch", base, "/srv/images/pytorch.tar", is_local=False)) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("torch", BASE["reference"], "", False), "image_framework is 'torch'"),
        (("pytorch", "", "", False), "no image_base"),
        (("pytorch", "docker://registry.example/python:3.11", "", False), "image_base is 'docker://registry.example"),
        (("pytorch", "https://registry.example/python", "", False), "image_base is 'https://registry"),
        (("pytorch", "oci-archive:a.tar", "", False), "image_base is 'oci-archive:a.tar'"),
        (("pytorch", "--help", "", False), "image_base is '--help'"),
        (("pytorch", BASE["reference"], "images/a.tar", False), "image_file is 'images/a.tar'"),
        (("pytorch", BASE["reference"], "images/", True), "image_file is 'images/'"),
    ],
)
def test_wrong_settings_are_findings(settings, text):
    (finding,) = image.settings_findings(*settings)
    assert finding.found.startswith(text)


def test_a_path_on_this_machine_may_be_relative():
    assert list(image.settings_findings("pytorch", BASE["reference"], "images/a.tar", is_local=True)) == []


@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        (
            {"base": {"python": {**BASE["python"], "version": [3, 9, 2]}}},
            "Python of the base",
            "Python 3.9.2 (python3)",
        ),
        (
            {"base": {"python": {**BASE["python"], "can_make_environments": False}}},
            "Python of the base",
            "no modules v",
        ),
        ({"base": {"lacking": ["libgomp.so.1"]}}, "libraries of the base", "no libgomp.so.1 in the base docker://"),
        ({"packages": ["torch>=2"]}, "packages", "'torch>=2' is not pinned"),
        ({"lock": "torch==2.13.0\n"}, "hashes", "the file with hashes has 'torch==2.13.0'"),
        ({"no_index": True}, "packages", "no_index without find_links"),
        ({"pip_args": ["--proxy=http://me:secret@proxy"]}, "packages", "pytorch_pip_args has --proxy=http://***@proxy"),
    ],
)
def test_what_cannot_be_built_is_found_before(changes, check, text):
    ((name, fact),) = found(**changes)
    assert name == check and fact.startswith(text) and "secret" not in fact


def test_a_base_that_must_be_pulled_first_is_no_finding():
    assert image_plan("pytorch", WANTED, LOCK, {"base": {}}) == {"findings": []}


def test_packages_of_the_lock_file_are_installed_by_its_hashes_alone():
    build = planned()["build"]
    assert sorted(build) == ["Containerfile", "by-hashes.txt", "constraints.txt"]
    lines = build["by-hashes.txt"].splitlines()
    assert all("--hash=sha256:" in line for line in lines) and len(lines) > 10
    assert "numpy==2.4.6" in {line.split(" ")[0] for line in lines} and "numpy==2.2.6" not in build["by-hashes.txt"]
    assert "--no-deps --require-hashes --only-binary=:all:" in build["Containerfile"]
    assert (
        planned(packages=[*WANTED["packages"], "six==1.17.0"])["build"]["others.txt"].splitlines()[-1] == "six==1.17.0"
    )


def test_a_name_has_the_release_and_the_requirements():
    plan = planned()
    assert plan["name"].startswith("localhost/trainyard/pytorch:2.13.0-")
    assert planned(packages=["torch==2.13.0+cpu"])["name"].startswith("localhost/trainyard/pytorch:2.13.0-cpu-")
    again = planned(find_links=["/srv/wheels"], index_url="https://me:secret@index.example", base={"created": 1})
    assert (again["name"], again["recipe"]) == (plan["name"], plan["recipe"])
    other_base = planned(base={"id": "c" * 64})
    assert other_base["name"] == plan["name"] and other_base["recipe"] != plan["recipe"]
    others = [planned(packages=["torch==2.13.0"]), planned(lock=""), planned(constraints=["sympy==1.13.0"])]
    assert len({plan["name"], *(each["name"] for each in others)}) == 4


def test_the_address_of_a_wheel_is_known_to_the_container_that_brings_it_alone():
    address = f"https://me:secret@mirror.example/torch-2.13.0-cp311-cp311-linux_x86_64.whl#sha256={SUM}"
    plan = planned(wheels={"torch": address}, index_url="https://me:secret@index.example")
    assert f"torch @ {address}" in plan["fetch"]["others.txt"]
    assert "torch==2.13.0\n" in plan["build"]["others.txt"]
    assert "secret" not in json.dumps({**plan, "fetch": ""}) and "secret" not in plan["fetch"]["fetch.sh"]
    other = planned(wheels={"torch": address.replace(SUM, "b" * 64)})
    assert other["name"] != plan["name"]


def test_a_wheel_that_pip_makes_of_an_archive_need_not_have_the_sum_of_the_archive():
    plan = planned(
        packages=["torch==2.13.0", f"six==1.17.0 --hash=sha256:{SUM}"], lock="", pip_args=["--no-binary=six"]
    )
    assert SUM in plan["fetch"]["others.txt"] and SUM not in plan["build"]["others.txt"]


def test_the_texts_of_a_build():
    base = {"user": "app", "python": {**BASE["python"], "executable": "/opt/a python/bin/python3"}}
    plan = planned(packages=[*WANTED["packages"], "six==1.17.0"], pip_args=["--no-binary=six"], base=base)
    build, fetch = plan["build"]["Containerfile"], plan["fetch"]["fetch.sh"]
    assert f"\nFROM {BASE['id']}\nUSER 0\nRUN '/opt/a python/bin/python3' -m venv " in build
    assert build.endswith("\nUSER app\n") and "LABEL trainyard.versions='torch==2.13.0 numpy==" in build
    assert (build.count(" --no-index "), build.count("--require-hashes")) == (2, 1)
    assert (fetch.count("--no-binary=six"), fetch.count("--require-hashes")) == (2, 1)


BUILT = {"reasons": ["it is not there"], "name": "localhost/trainyard/pytorch:1", "id": "abc", "digest": "sha256:d"}


def test_the_summary_has_the_line_for_a_job_file():
    text = image.summary({**BUILT, "bytes": 1_245_000_000, "file": "/srv/a.tar"}, ["torch==2.13.0"], check=False)
    assert text.splitlines() == [
        "it is not there.",
        "image   localhost/trainyard/pytorch:1 (torch==2.13.0)",
        "id      abc",
        "digest  sha256:d",
        "size    1,245 MB",
        "in a job file:",
        "job_image: oci-archive:/srv/a.tar",
    ]
    preview = image.summary({**BUILT, "bytes": 0, "file": ""}, ["torch==2.13.0"], check=True)
    assert "would" in preview and "saved" not in preview and "sha256" not in preview and "job_image" not in preview
