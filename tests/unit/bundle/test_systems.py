"""The systems whose software is locked from another machine."""

import pytest
from ansible.module_utils.trainyard.bundle import systems
from hypothesis import given
from hypothesis import strategies as st

NAMES = [
    "glibc-2.34-aarch64",
    "debian-11-x86_64",
    "debian-12-x86_64",
    "debian-13-aarch64",
    "ubuntu-22.04-x86_64",
    "ubuntu-24.04-aarch64",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_system_is_found_by_its_name_and_by_its_own_facts(name):
    system = systems.named(name)
    assert str(system) == name
    assert systems.of_facts(system.facts) == name


@pytest.mark.parametrize(
    "name", ["", "debian-12", "debian-10-x86_64", "rocky-9-x86_64", "debian-12-riscv64", "x-1-y\n"]
)
def test_other_systems_are_refused(name):
    assert systems.named(name) is None
    found = systems.unsupported(name, "n1")
    assert found.host == "n1" and "debian-12" in found.expected


def test_of_any_other_linux_just_wheels_are_locked_where_its_packages_are_not_touched():
    rocky = {"distribution": "Rocky", "distribution_major_version": "9", "architecture": "aarch64"}
    debian = systems.named("debian-12-x86_64").facts
    facts = {"n1": rocky, "n2": rocky, "n3": debian, "n4": {**rocky, "architecture": "riscv64"}, "n5": rocky}
    libraries = {"n1": "glibc-2.34", "n3": "glibc-2.36", "n4": "glibc-2.34", "n5": "musl"}
    found, findings = systems.of_hosts(facts, libraries)
    assert {host: str(system) for host, system in found.items()} == {
        "n1": "glibc-2.34-aarch64",
        "n3": "debian-12-x86_64",
    }
    assert [each.host for each in findings] == ["n2", "n4", "n5"]
    assert "trainyard_manage_system: false" in findings[0].action and "glibc-2.34" in findings[0].expected
    other = found["n1"]
    assert (other.has_packages, other.platform) == (False, "aarch64-manylinux_2_34")
    assert (other.python("python3"), other.python("python3.11")) == ("", "3.11")


@given(st.text())
def test_any_name_is_a_system_or_none(name):
    assert systems.named(name) is None or str(systems.named(name)) == name


def test_what_uv_and_apt_call_it():
    debian = systems.named("debian-12-aarch64")
    assert (debian.codename, debian.architecture, debian.platform) == ("bookworm", "arm64", "aarch64-manylinux_2_36")
    # uv knows none for the glibc of Debian 13.
    assert systems.named("debian-13-x86_64").platform == "x86_64-manylinux_2_40"


@pytest.mark.parametrize(
    ("interpreter", "version"),
    [("python3", "3.11"), ("/usr/bin/python3", "3.11"), ("python3.10", "3.10"), ("/opt/python/bin/python3.13", "3.13")],
)
def test_the_version_of_an_interpreter(interpreter, version):
    assert systems.named("debian-12-x86_64").python(interpreter) == version
