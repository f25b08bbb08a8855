"""Exact versions with apt: offers, resolution, transactions, pins, sources, and the reason of a failed update."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import apt, apt_sources
from hypothesis import given
from hypothesis import strategies as st

CAPTURED = Path(__file__).resolve().parents[2] / "fixtures/apt"
URI = "http://192.0.2.11:8099/debian12/x86_64"
NVIDIA = apt.Source(URI + "/")
DISTRO = apt.Source("", ("Debian", "Ubuntu"))
MADISON = """\
  libnccl2 | 2.28.9-1+cuda13.0 | http://192.0.2.11:8099/debian12/x86_64  Packages
  libnccl2 |   2.22.3-1 | http://mirror.example.org/debian bookworm/main amd64 Packages
  libnccl2 | 2.21.5-1+cuda12.4 | http://192.0.2.11:8099/debian12/x86_64  Packages
  libnccl2 | 2.21.5-1+cuda12.2 | http://192.0.2.11:8099/debian12/x86_64  Packages
  libnccl2 |   2.22.3-1 | http://mirror.example.org/debian bookworm/main Sources
libnccl-dev | 2.21.5-1+cuda12.4 | http://192.0.2.11:8099/debian12/x86_64  Packages
"""


def captured(name):
    return (CAPTURED / f"{name}.txt").read_text()


@pytest.fixture(scope="module")
def offers():
    return apt.read_offers(MADISON, apt.read_lists(captured("policy")))


def have(*held, **versions):
    return apt.Installed({name.replace("_", "-"): version for name, version in versions.items()}, frozenset(held))


def plan(wanted, offers, installed=None, record=None, source=NVIDIA, remove=False):
    return apt.plan(wanted, offers, installed or have(), record or {}, source, remove)


def test_offers_know_where_they_come_from(offers):
    assert [(offer.version, offer.origin, offer.label) for offer in offers["libnccl2"]] == [
        ("2.28.9-1+cuda13.0", "NVIDIA", "NVIDIA CUDA"),
        ("2.22.3-1", "Debian", "Debian"),
        ("2.21.5-1+cuda12.4", "NVIDIA", "NVIDIA CUDA"),
        ("2.21.5-1+cuda12.2", "NVIDIA", "NVIDIA CUDA"),
    ]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("550.127.08-1", "550.127.08"),
        ("1:550.127.08-1~deb12u1", "550.127.08"),
        ("2.21.5-1+cuda12.4", "2.21.5"),
        ("12.4.1", "12.4.1"),
        ("1:12.4.1", "12.4.1"),
        ("1.2-rc1-3", "1.2-rc1"),
    ],
)
def test_upstream_version(version, expected):
    assert apt.upstream(version) == expected
    assert apt.means(expected, version) and apt.means(version, version)


def test_a_vendors_release_may_have_a_suffix_of_its_own():
    # NCCL of Debian 13.
    assert apt.means("2.22.3", "2.22.3-1-1") and not apt.means("2.22.3", "2.22.30-1-1")


@given(st.from_regex(r"([0-9]:)?[0-9][0-9.]{0,8}(-[0-9a-z+.~]{1,8})?", fullmatch=True))
def test_a_version_does_not_match_a_longer_one(version):
    assert apt.means(version, version)
    assert not apt.means(version, version + "0")


@pytest.mark.parametrize(
    ("wanted", "source", "version"),
    [
        ("2.21.5-1+cuda12.4", NVIDIA, "2.21.5-1+cuda12.4"),
        ("2.28.9", NVIDIA, "2.28.9-1+cuda13.0"),
        ("", NVIDIA, "2.28.9-1+cuda13.0"),
        ("", DISTRO, "2.22.3-1"),
        ("2.22.3", DISTRO, "2.22.3-1"),
    ],
)
def test_the_one_version_that_is_meant(offers, wanted, source, version):
    made = plan([{"name": "libnccl2", "version": wanted}], offers, source=source)
    assert (made.versions, made.install, made.hold) == ({"libnccl2": version}, [f"libnccl2={version}"], ["libnccl2"])
    assert made.findings == []


@pytest.mark.parametrize(
    ("wanted", "source", "facts"),
    [
        ("2.21.5", NVIDIA, ["2.21.5-1+cuda12.4, 2.21.5-1+cuda12.2 all are 2.21.5"]),
        (
            "2.22.3-1",
            NVIDIA,
            [f"{URI}/ offers 2.28.9", "http://mirror.example.org/debian with 2.22.3-1 does not count"],
        ),
        ("2.21.5", DISTRO, ["(Debian or Ubuntu) offers 2.22.3-1", f"{URI} with 2.28.9-1+cuda13.0"]),
        ("2.21.*", NVIDIA, [f"{URI}/ offers 2.28.9-1+cuda13.0"]),
    ],
)
def test_no_version_or_several_is_a_finding_with_the_offers(offers, wanted, source, facts):
    made = plan([{"name": "libnccl2", "version": wanted}], offers, source=source)
    (finding,) = made.findings
    assert (made.install, finding.check) == ([], "package libnccl2")
    assert all(fact in finding.found for fact in facts)


def test_an_installed_requested_version_stays_without_an_offer():
    made = plan([{"name": "libnccl2", "version": "2.19.3"}], {}, have("libnccl2", libnccl2="2.19.3-1+cuda12.3"))
    assert (made.versions, made.install, made.hold) == ({"libnccl2": "2.19.3-1+cuda12.3"}, [], [])


@pytest.mark.parametrize(
    ("installed", "record", "version"),
    [
        # An older version from the right source stays.
        ("2.21.5-1+cuda12.4", {}, "2.21.5-1+cuda12.4"),
        # A version from elsewhere is replaced.
        ("2.22.3-1", {}, "2.28.9-1+cuda13.0"),
        # A version that this role installed stays although it is offered no more.
        ("2.19.3-1+cuda12.3", {"libnccl2": {"version": "2.19.3-1+cuda12.3"}}, "2.19.3-1+cuda12.3"),
    ],
)
def test_without_a_version_an_installed_one_from_the_right_source_stays(offers, installed, record, version):
    made = plan([{"name": "libnccl2"}], offers, have(libnccl2=installed), record)
    assert made.versions == {"libnccl2": version}


def test_only_packages_of_this_role_are_removed():
    record = {"gone": {"added": True}, "brought": {"added": True}, "found": {"added": False}, "free": {"added": False}}
    installed = have("brought", "found", "other", brought="1", found="1", free="1", other="1")
    kept = plan([], {}, installed, record)
    assert (kept.remove, kept.release) == ([], ["brought", "found"])
    removed = plan([], {}, installed, record, remove=True)
    assert (removed.remove, removed.release, removed.arguments) == (["brought"], ["found"], ["brought-"])


SIMULATION = """\
Reading package lists...
Remv nvidia-kernel-dkms [550.54.15-1]
Inst libnccl2 [2.21.5-1+cuda12.4] (2.20.5-1+cuda12.4 NVIDIA CUDA:192.0.2.11 [amd64]) []
Inst libcuda1:i386 (550.54.15-1 NVIDIA CUDA:192.0.2.11 [i386])
Conf libnccl2 (2.20.5-1+cuda12.4 NVIDIA CUDA:192.0.2.11 [amd64])
"""


def test_a_simulation_is_read():
    assert apt.read_transaction(SIMULATION) == [
        ("nvidia-kernel-dkms", "550.54.15-1", ""),
        ("libnccl2", "2.21.5-1+cuda12.4", "2.20.5-1+cuda12.4"),
        ("libcuda1", "", "550.54.15-1"),
    ]


@pytest.mark.parametrize(
    ("made", "held", "record", "may_remove", "checks"),
    [
        ({"libnccl2": "2.20.5-1+cuda12.4"}, [], {}, [], ["packages that would be removed"]),
        ({"libnccl2": "2.20.5-1+cuda12.4"}, [], {"nvidia-kernel-dkms": {}}, [], []),
        ({"libnccl2": "2.20.5-1+cuda12.4"}, [], {}, ["nvidia-kernel-*"], []),
        ({"libcuda1": "550.54.15-1"}, ["libnccl2"], {}, ["*"], ["packages on hold"]),
        ({"libcuda1": "550.54.15-1"}, ["libnccl2"], {"libnccl2": {}}, ["*"], []),
        ({"libnccl2": "2.20.5-1+cuda12.4"}, ["libnccl2"], {}, ["*"], []),
        ({"libnccl2": "2.21.5-1+cuda12.4"}, [], {}, ["*"], ["apt"]),
    ],
)
def test_a_transaction_with_unrequested_changes_is_a_finding(made, held, record, may_remove, checks):
    findings = apt.check_transaction(apt.Plan(versions=made), 0, SIMULATION, have(*held), record, may_remove)
    assert [finding.check for finding in findings] == checks


def test_an_impossible_transaction_says_why():
    output = """\
The following packages have unmet dependencies:
 nvidia-driver : Depends: nvidia-smi (= 550.54.15-1) but 560.35.03-1 is to be installed
E: Unable to correct problems, you have held broken packages.
"""
    made = apt.Plan(install=["nvidia-driver=550.54.15-1"], remove=["nvidia-open"])
    (finding,) = apt.check_transaction(made, 100, output, have(), {}, [])
    command = "apt-get install nvidia-driver=550.54.15-1 nvidia-open- is not possible: nvidia-driver : Depends: "
    assert finding.found.startswith(command) and "E: Unable to correct problems" in finding.found


def test_installed_packages_and_holds_are_read():
    lines = ["a\t1-1\tinstalled\tinstall", "b\t2\tinstalled\thold", "c\t3\tconfig-files\tdeinstall"]
    listing = "\n".join([*lines, "d\t\tnot-installed\thold", ""])
    assert apt.read_installed(listing) == apt.Installed({"a": "1-1", "b": "2"}, frozenset({"b", "d"}))


def test_each_package_is_pinned_to_its_own_version():
    text = apt.preferences({"libnccl2": "2.21.5-1+cuda12.4", "cuda-nvcc-12-4": "12.4.131-1"}, "For a test.")
    stanzas = apt.read_stanzas(text.partition("\n")[2])
    assert [(stanza["package"], stanza["pin"], stanza["pin-priority"]) for stanza in stanzas] == [
        ("cuda-nvcc-12-4", "version 12.4.131-1", "1001"),
        ("libnccl2", "version 2.21.5-1+cuda12.4", "1001"),
    ]


def components(targets, wanted, codename="bookworm", own="/etc/apt/sources.list.d/own.sources"):
    text = apt_sources.component_sources(targets, codename, wanted, ("Debian",), own, "For a test.")
    return apt.read_stanzas(text.partition("\n")[2])


def test_components_are_added_at_the_mirrors_that_are_configured():
    found = components(apt.read_stanzas(captured("indextargets")), ["contrib", "main"])
    assert [(stanza["uris"], stanza["suites"], stanza["components"]) for stanza in found] == [
        ("http://mirror.example.org/debian-security/", "bookworm-security", "contrib"),
        ("http://mirror.example.org/debian/", "bookworm", "contrib"),
    ]
    # apt calls a verified source trusted; a written source with that word would not be checked at all.
    assert not any("trusted" in stanza for stanza in found)


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({}, 1),
        ({"component": "contrib"}, 0),
        ({"origin": ""}, 1),
        ({"origin": "Somebody"}, 0),
        ({"release": "bookworm-backports"}, 0),
        ({"release": "trixie"}, 0),
        ({"sourcesentry": "/etc/apt/sources.list.d/own.sources:1"}, 0),
    ],
)
def test_which_sources_are_extended(change, number):
    target = {"repo-uri": "http://mirror.example.org/debian/", "release": "bookworm", "component": "main"}
    target |= {"origin": "Debian", "sourcesentry": "/etc/apt/sources.list:1", "signed-by": "/keys/debian.gpg"}
    found = components([target | change], ["contrib"])
    assert len(found) == number
    assert all(stanza["signed-by"] == "/keys/debian.gpg" for stanza in found)


def test_nothing_is_written_where_all_components_are_there():
    targets = apt.read_stanzas(captured("indextargets"))
    assert apt_sources.component_sources(targets, "bookworm", ["main"], ("Debian",), "", "For a test.") == ""


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("wrong-key", "it is signed by another key than the one given"),
        ("tampered-release", "its signature does not fit its content"),
        ("tampered-list", "its package list does not fit the signed sums"),
        ("unsigned", "it is not signed"),
        ("no-repository", "there is no repository at this address"),
        ("down", "it does not answer"),
        ("unresolvable", "it does not answer"),
        ("component", "it has no component nonsense"),
        ("sha1", "this system refuses the repository's key, which is signed with SHA-1 only"),
    ],
)
def test_the_reason_of_a_failed_update(name, meaning):
    finding = apt_sources.explain_update(captured(f"update-{name}"), URI)
    assert finding.found.startswith(f"{URI}: {meaning}. apt says: ")
    assert "Some index files failed" not in finding.found
    assert finding.action


@pytest.mark.parametrize("name", ["wrong-key", "no-repository"])
def test_no_variable_of_ours_mends_a_source_of_the_machine(name):
    action = apt_sources.explain_update(captured(f"update-{name}"), str(DISTRO)).action
    assert "/etc/apt/sources.list" in action and "nvidia" not in action


def test_an_unknown_problem_quotes_apt():
    assert apt_sources.explain_update("E: Something new", URI).found == f"{URI}: apt says: E: Something new"
