"""What apt would install on an empty system: its configuration, its sources, its output."""

from pathlib import PurePath

from ansible.module_utils.trainyard.bundle import debs, systems
from ansible.module_utils.trainyard.software.apt import read_stanzas
from hypothesis import given
from hypothesis import strategies as st

SUM = 32 * "ab"
# apt 2.6 of Debian 12 prints this with --print-uris and Acquire::ForceHash.
OUTPUT = (
    f"'http://mirror.example.org/debian/pool/main/o/openmpi/openmpi-bin_4.1.4-3%2bb1_amd64.deb' "
    f"openmpi-bin_4.1.4-3+b1_amd64.deb 225640 SHA256:{SUM}\n"
    f"'http://mirror.example.org/debian/pool/main/libx/libxcrypt/libcrypt1_4.4.18-4_amd64.deb' "
    f"libcrypt1_1%3a4.4.18-4_amd64.deb 87504 SHA256:{SUM}\n"
)
TARGETS = """MetaKey: main/binary-amd64/Packages
Component: main
Origin: Debian
Release: bookworm
Repo-URI: http://mirror.example.org/debian/

MetaKey: main/binary-amd64/Packages
Component: main
Origin: Debian
Release: bookworm-security
Repo-URI: http://mirror.example.org/debian-security/

MetaKey: main/binary-amd64/Packages
Component: main
Origin: Elsewhere
Release: nodistro
Repo-URI: http://other.example.org/apt/
"""
BOOKWORM = systems.named("debian-12-x86_64")


def test_packages_that_apt_would_download():
    first, second = debs.read_uris(OUTPUT)
    assert (first.name, first.version, first.bytes) == ("libcrypt1", "1:4.4.18-4", 87504)
    assert first.file == "libcrypt1_1%3a4.4.18-4_amd64.deb"
    assert (second.name, second.version, second.architecture, second.sha256) == (
        "openmpi-bin",
        "4.1.4-3+b1",
        "amd64",
        SUM,
    )
    assert debs.read_uris(OUTPUT.replace("SHA256:", "MD5Sum:")) == []


@given(st.text())
def test_any_output_is_read(text):
    assert debs.read_uris(text) == [] and debs.problem(text)


def test_mirrors_are_those_of_the_same_distribution():
    found = debs.mirrors(read_stanzas(TARGETS), "debian")
    assert found == {
        "main": "http://mirror.example.org/debian/",
        "security": "http://mirror.example.org/debian-security/",
    }
    # Before the first update there is no origin.
    assert debs.mirrors(read_stanzas(TARGETS.replace("Origin: Debian\n", "")), "debian") == found
    assert debs.mirrors(read_stanzas(TARGETS), "ubuntu") == {}


def test_sources_of_another_release_at_the_same_mirror():
    text = debs.sources(systems.named("debian-11-x86_64"), debs.mirrors(read_stanzas(TARGETS), "debian"))
    assert [line.split()[2:] for line in text.splitlines()] == [
        ["http://mirror.example.org/debian/", "bullseye", "main"],
        ["http://mirror.example.org/debian/", "bullseye-updates", "main"],
        ["http://mirror.example.org/debian-security/", "bullseye-security", "main"],
    ]
    assert "debian-archive-keyring" in text
    ubuntu = debs.sources(systems.named("ubuntu-24.04-x86_64"), {"main": "http://mirror.example.org/ubuntu"})
    assert "ubuntu noble-security main universe" in ubuntu and "ubuntu-archive-keyring" in ubuntu


def test_apt_sees_nothing_of_this_machine():
    text = debs.configuration(PurePath("/srv/empty"), BOOKWORM, PurePath("/home/me/.netrc"))
    assert 'Dir::Etc::netrc "/home/me/.netrc";' in text
    places = [line for line in text.splitlines() if "/" in line and "Bin" not in line and "netrc" not in line]
    assert len(places) > 6 and all("/srv/empty" in line for line in places)


def test_errors_of_apt_on_one_line():
    output = "E: Unable to locate package nonesuch\nE: Unable to locate package nonesuch\nW: no\nReading lists\n"
    assert debs.problem(output) == "Unable to locate package nonesuch; no"
