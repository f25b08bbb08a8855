"""Systems without apt, by their os-release: what they are called, and what a person is told to install there."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.cluster.survey import Survey, survey_findings
from ansible.module_utils.trainyard.nvidia.nvidia_hardware import read_os
from ansible.module_utils.trainyard.software import mindspore_releases, system_packages
from ansible.module_utils.trainyard_node.machine.packages import missing_packages
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.removal import state
from ansible.module_utils.trainyard_node.software import system_family

FILES = Path(__file__).resolve().parents[2] / "fixtures/os_release"
# The system, its family, and the command that installs packages there.
SYSTEMS = {
    "openeuler-22.03": ("openEuler", "22.03", "redhat", "dnf install"),
    "kylin-v10": ("kylin", "V10", "redhat", "dnf install"),
    "rocky-9": ("rocky", "9.5", "redhat", "dnf install"),
    "rhel-9": ("rhel", "9.4", "redhat", "dnf install"),
    "sles-15": ("sles", "15.6", "suse", "zypper install"),
}


@pytest.fixture
def without_apt(tmp_path, monkeypatch):
    """Have this machine say that it is another system, which has neither apt nor dpkg nor their files."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(state, "APT_LOG", tmp_path / "apt")
    monkeypatch.setattr(state, "STATES", tmp_path / "extended_states")

    def be(name):
        monkeypatch.setattr(system_family, "_FILES", (FILES / name,))

    return be


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_family_of_a_system_decides_what_its_packages_are_called(name, without_apt):
    system, version, kind, install = SYSTEMS[name]
    text = (FILES / name).read_text()
    assert read_os(text) == {"id": system, "version": version, "family": kind}
    without_apt(name)
    assert system_family.system_family() == kind
    gomp = {"redhat": "libgomp", "suse": "libgomp1"}[kind]
    assert system_packages.usual(kind) == f"`{install} python3 {gomp} gcc-c++ python3-devel`"
    # venv is a part of python3 there.
    advice = system_family.venv_advice("3.9")
    assert f"`{install} python3`" in advice and "-venv" not in advice


def test_debian_and_its_desktops_have_venv_in_a_package_of_its_own():
    assert system_packages.family("kylin", "debian") == "debian"
    assert "`apt install python3.11-venv`" in system_packages.venv("debian", "3.11")


def test_a_system_that_nobody_knows_gets_no_command():
    kind = system_packages.family("void")
    assert (system_packages.usual(kind), system_packages.command(kind, ["x"])) == ("", "")
    assert "python3.12 with its modules venv and ensurepip" in system_packages.venv(kind, "3.12")


def test_every_library_of_a_framework_has_its_name_in_each_family():
    assert set(mindspore_releases._OPENMP["packages"]) == {"Debian", "RedHat", "Suse"}


def test_a_system_without_os_release_has_no_name(monkeypatch, tmp_path):
    monkeypatch.setattr(system_family, "_FILES", (tmp_path / "os-release",))
    assert system_family.system_family() == ""


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_host_without_apt_is_told_of_the_way_without_its_packages_first(name):
    system, version, _, install = SYSTEMS[name]
    fields = read_fields((FILES / name).read_text())
    facts = {"hostname": "n1", "python": "3.9.9", "os_id": system, "os_version": version, "free:/opt": "99999999"}
    facts |= {"os_like": fields.get("ID_LIKE", "")}
    stdout = "".join(f"trainyard:{key}={value}\n" for key, value in facts.items())
    node = Survey.from_dict({"name": "n1", "connect": "n1", "probe": {"rc": 0, "stdout": stdout}})
    (finding,) = survey_findings([node], {"/opt": 1.0}, check_system=True)
    assert finding.found == f"{system} {version}"
    assert finding.action.startswith("set trainyard_manage_system: false (or trainyard_become: false")
    assert f"(`{install} " in finding.action and "apt" not in finding.action
    assert survey_findings([node], {"/opt": 1.0}, check_system=False) == []


def read_fields(text):
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in text.splitlines())}


def test_a_record_of_a_host_without_dpkg_has_no_packages(without_apt):
    without_apt("openeuler-22.03")
    assert state.packages() == {"packages": {}, "leftover": [], "automatic": [], "held": []}
    assert (state.dependencies(), state.apt_history()) == ({}, "")
    for manager in ("apt", "dnf", "unknown"):
        assert missing_packages(Tree(), manager, ["gcc-c++"]) == ["gcc-c++"]
        assert missing_packages(Tree(), manager, []) == []
