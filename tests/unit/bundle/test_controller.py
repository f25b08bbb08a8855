"""The controller in a lock: which systems, which packages, and how a bundle has them."""

import re

import pytest
from ansible.module_utils.trainyard.bundle import contents, controller, sbom, site_lock, systems, wheels
from ansible_run import PROJECT
from hypothesis import given
from hypothesis import strategies as st

TWELVE, THIRTEEN = systems.named("debian-12-x86_64"), systems.named("debian-13-aarch64")
SUM, OTHER = 64 * "0", 64 * "1"
FILES = {
    "pip": f"# a comment\npip==26.3 \\\n    --hash=sha256:{SUM} \\\n    --hash=sha256:{OTHER}\n",
    "controller": f"a-b==1.0 ; python_full_version < '3.12' \\\n    --hash=sha256:{SUM}\n"
    f"uv==0.13.9 \\\n    --hash=sha256:{SUM}\n",
    "hardware": f"-r controller.txt\npytest==9.2.0 \\\n    --hash=sha256:{SUM}\n",
    "test": f"-r hardware.txt\nruff==0.17.5 \\\n    --hash=sha256:{SUM}\n",
}
PACKAGES = {"lab": ["podman"], "nodes": ["systemd"], "browser": ["chromium"]}
WHEEL = wheels.Wheel("uv", "0.13.9", "uv-0.13.9-py3-none-any.whl", "http://i.example.org/uv.whl", 5, SUM)


def pythons(*names, own=("debian-12-x86_64", "3.13"), old=None):
    found, findings = controller.pythons(names, own, old)
    return {str(system): versions for system, versions in found.items()}, [each.found for each in findings]


def locked():
    wanted = controller.wanted({TWELVE: ["3.13"]}, [], FILES, PACKAGES)
    part = site_lock.resolved(wanted, site_lock.unchanged(None, wanted), {}, {(TWELVE, "python3.13"): [WHEEL]})
    return site_lock.lock({}, {}, {}, {}, {}, part)


def test_controllers_are_this_machine_or_those_that_are_named():
    assert pythons() == ({"debian-12-x86_64": ["3.13"]}, [])
    assert pythons("debian-12-x86_64") == ({"debian-12-x86_64": ["3.11"]}, [])
    assert pythons("debian-12-x86_64", "debian-13-aarch64", "debian-12-x86_64-python3.13") == (
        {"debian-12-x86_64": ["3.11", "3.13"], "debian-13-aarch64": ["3.13"]}, [],
    )  # fmt: skip


def test_a_lock_keeps_its_controllers_on_another_machine():
    other = ("debian-13-aarch64", "3.14")
    assert pythons(own=other, old=locked()) == pythons()
    assert pythons("debian-13-aarch64", own=other, old=locked()) == ({"debian-13-aarch64": ["3.13"]}, [])


def test_a_machine_whose_system_is_not_supported_is_named_only_on_request():
    assert pythons(own=("fedora-44-x86_64", "3.14")) == ({}, [])
    assert pythons("fedora-44-x86_64", "debian-12-x86_64-python2.7", "debian-12-x86_64")[1] == [
        "fedora-44-x86_64", "debian-12-x86_64-python2.7",
    ]  # fmt: skip
    assert {"what": "packages of .venv", "why": "lock_controllers names no system"} in contents.missing(
        site_lock.lock({}, {}, {}, {}, {}, {})
    )


@pytest.mark.parametrize(
    ("also", "more"), [([], []), (["hardware"], ["pytest==9.2.0"]), (["test"], ["pytest==9.2.0", "ruff==0.17.5"])]
)
def test_the_environment_has_what_make_installs(also, more):
    (environment,) = controller.wanted({TWELVE: ["3.13"]}, also, FILES, PACKAGES)[TWELVE].environments.values()
    always = ["pip==26.3", "a-b==1.0 ; python_full_version < '3.12'", "uv==0.13.9"]
    assert wheels.asked(environment) == always + more
    assert TWELVE.python(environment["interpreter"]) == "3.13"


def test_the_lab_has_packages_on_the_controller_and_for_its_nodes():
    found = controller.wanted({TWELVE: ["3.11"], THIRTEEN: ["3.13"]}, ["lab"], FILES, PACKAGES)
    assert {str(system): (sorted(each.packages), list(each.environments)) for system, each in found.items()} == {
        "debian-12-x86_64": (["?essential", "apt", "podman", "systemd"], ["python3.11"]),
        "debian-13-aarch64": (["podman"], ["python3.13"]),
        "debian-12-aarch64": (["?essential", "apt", "systemd"], []),
    }
    (of_tests,) = controller.wanted({TWELVE: ["3.11"]}, ["test"], FILES, PACKAGES).values()
    assert of_tests.packages == {"?essential", "apt", "chromium", "podman", "systemd"}


def test_the_lab_of_a_lock_is_that_of_make():
    release = re.search(r"^RELEASE \?= (\w+)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)[1]
    assert systems.named(f"{controller.LAB_RELEASE}-x86_64").codename == release


def test_a_wheel_that_make_would_refuse_is_found():
    assert controller.unknown([WHEEL], FILES) == []
    changed = wheels.Wheel("uv", "0.13.9", WHEEL.file, WHEEL.url, 5, 64 * "2")
    assert [each.found for each in controller.unknown([WHEEL, changed], FILES)] == [
        f"uv-0.13.9-py3-none-any.whl with sha256 {64 * '2'}"
    ]


def test_a_bundle_and_its_bill_of_materials_have_them():
    lock = locked()
    assert [each.path for each in contents.items(lock)] == ["wheels/uv-0.13.9-py3-none-any.whl"]
    assert "wheels/controller-debian-12-x86_64-python3.13.txt" in contents.texts(lock)
    (component,) = sbom.sbom(lock, site_lock.text(lock), "0.1.0")["components"]
    assert component["purl"].startswith("pkg:pypi/uv@0.13.9")
    assert site_lock.summary(lock) == ["controller-debian-12-x86_64 python3.13: 1 wheel for Python 3.13, 1 KiB"]


@given(st.text())
def test_any_name_is_a_controller_or_a_finding(name):
    found, findings = controller.pythons([name], ("", ""), None)
    assert len(found) + len(findings) == 1
