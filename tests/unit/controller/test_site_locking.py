"""How the controller resolves the software of other systems: simulated apt-get and uv that record their calls."""

import json
import os

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.bundle import site_lock, systems
from ansible.module_utils.trainyard_controller.bundle import controller_locking, site_locking, software_requests

SUM = 32 * "ab"
DEBIAN = systems.named("debian-11-x86_64")
ENVIRONMENT = {"path": "/opt/venvs/pytorch", "interpreter": "python3", "packages": ["torch==2.13.0"], "lock": ""}
APT = f"""#!/bin/sh
case "$1" in
    indextargets)
        printf '%s\\n' 'Component: main' 'Origin: Debian' 'Release: bookworm' 'Repo-URI: http://m.example.org/debian/'
        ;;
    update) cat "$(dirname "$APT_CONFIG")/etc/sources.list" >>"$CALLS" ;;
    install)
        echo "$*" >>"$CALLS"
        [ ! -e "$CALLS.broken" ] || {{ echo "E: Unable to locate package openmpi-bin" >&2; exit 100; }}
        echo "'http://m.example.org/openmpi-bin.deb' openmpi-bin_4.1.0-10_amd64.deb 1048576 SHA256:{SUM}"
        ;;
esac
"""
UV = f"""#!/bin/sh
echo "$*" >>"$CALLS"
printf %s "$UV_DEFAULT_INDEX" >"$(dirname "$CALLS")/index"
cat constraints.txt requirements.txt >>"$CALLS"
[ ! -e "$CALLS.broken" ] || {{ echo "error: no solution" >&2; exit 1; }}
cat >pylock.toml <<'END'
[[packages]]
name = "torch"
version = "2.13.0"
wheels = [{{ url = "WHEEL", hashes = {{ sha256 = "{SUM}" }} }}]
END
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    wheel = tmp_path / "torch-2.13.0-py3-none-any.whl"
    wheel.write_bytes(b"12345")
    for name, text in {"apt-get": APT, "uv": UV.replace("WHEEL", f"file://{wheel}")}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    # The tests' own uv lies beside their Python.
    monkeypatch.setattr(site_locking.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path


def resolve(**environments):
    shown = []
    wanted = {DEBIAN: site_lock.Wanted({"openmpi-bin"}, environments)}
    return site_locking.resolve(wanted, {}, shown.append), shown


def test_packages_and_wheels_of_another_release(programs):
    found, shown = resolve(pytorch=ENVIRONMENT)
    assert found.findings == []
    assert [each.file for each in found.debs[DEBIAN]] == ["openmpi-bin_4.1.0-10_amd64.deb"]
    (wheel,) = found.wheels[DEBIAN, "pytorch"]
    # The size of a file of this machine is known without an index.
    assert (wheel.name, wheel.bytes, wheel.sha256) == ("torch", 5, SUM)
    assert shown == ["debian-11-x86_64: apt resolves 1 package", "debian-11-x86_64: uv resolves pytorch"]
    calls = (programs / "calls").read_text()
    assert "http://m.example.org/debian/ bullseye-security main" in calls and "-- openmpi-bin" in calls
    assert "--python-version=3.9" in calls and calls.endswith("torch==2.13.0\n")


def test_a_password_of_an_index_is_in_no_command_line(programs):
    found, _ = resolve(pytorch={**ENVIRONMENT, "index_url": "https://u:hunter2@i.example.org/simple"})
    assert found.findings == [] and "hunter2" not in (programs / "calls").read_text()
    assert (programs / "index").read_text() == "https://u:hunter2@i.example.org/simple"


def test_all_that_cannot_be_resolved_is_found_at_once(programs):
    (programs / "calls.broken").touch()
    found, _ = resolve(pytorch=ENVIRONMENT)
    assert [(each.check, each.found) for each in found.findings] == [
        ("packages of debian-11-x86_64", "Unable to locate package openmpi-bin"),
        ("pytorch on debian-11-x86_64", "error: no solution"),
    ]


def test_a_machine_without_a_mirror_of_the_distribution(programs):
    wanted = {systems.named("ubuntu-24.04-x86_64"): site_lock.Wanted({"openmpi-bin"}, {})}
    (found,) = site_locking.resolve(wanted, {}, print).findings
    assert "no mirror of ubuntu" in found.found and "node_baseline_apt_mirror" in found.action
    assert site_locking.resolve(wanted, {"main": "http://u.example.org/ubuntu"}, print).findings == []


@pytest.mark.parametrize("content", ["no JSON", '{"version": 1}'])
def test_a_file_that_is_no_lock_stays_and_is_named(tmp_path, content):
    path = tmp_path / "trainyard.lock"
    assert site_locking.read(path) is None
    path.write_text(content)
    with pytest.raises(UnusableError, match=r"trainyard\.lock is damaged"):
        site_locking.read(path)
    assert path.read_text() == content


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(UnusableError, match="trainyard_lock"):
        site_locking.write(tmp_path / "none/trainyard.lock", {})


def test_a_role_pins_its_environment(tmp_path, monkeypatch):
    environment = {"packages": ["torch==2.13.0"], "lock": "", "interpreter": "python3"}
    part = {"environment": environment, "pinned_by": "pytorch"}
    hosts = {"n1": {"trainyard_python3": {"stdout": ""}}, "n2": {"trainyard_python3": {"stdout": "3.13"}}, "n3": {}}
    monkeypatch.setattr(software_requests, "file", lambda: tmp_path / "requests")
    software_requests.record("pytorch", dict.fromkeys(hosts, part))
    for package in ("y", "x"):
        software_requests.record("openmpi", {host: {"packages": [package]} for host in hosts})
    _, found, systems, findings = site_locking.recorded({"hostvars": hosts}, hosts)
    assert (systems, len(findings)) == ({}, 3)
    interpreters = [each["pytorch"]["environment"]["interpreter"] for each in found.values()]
    assert interpreters == ["python3", "python3.13", "python3"]
    assert "torch==2.13.0" in found["n1"]["pytorch"]["environment"]["lock"]
    assert json.dumps(found["n1"]["openmpi"]["packages"]) == '["x"]'


def test_a_host_without_packages_of_its_system_is_known_by_its_c_library(tmp_path, monkeypatch):
    facts = {"distribution": "openEuler", "distribution_major_version": "22", "architecture": "aarch64"}
    host = {"ansible_facts": facts, "trainyard_python3": {"stdout": "3.9 glibc 2.34"}}
    hosts = {"n1": {**host, "trainyard_manage_system": False}, "n2": {**host, "trainyard_manage_system": "yes"}}
    monkeypatch.setattr(software_requests, "file", lambda: tmp_path / "requests")
    part = {"environment": {"packages": ["torch==2.13.0"], "interpreter": "python3", "path": "/a/pytorch"}}
    software_requests.record("pytorch", dict.fromkeys(hosts, part))
    _, pinned, known, findings = site_locking.recorded({"hostvars": hosts}, hosts)
    assert {name: str(system) for name, system in known.items()} == {"n1": "glibc-2.34-aarch64"}
    assert [each.host for each in findings] == ["n2"]
    assert pinned["n1"]["pytorch"]["environment"]["interpreter"] == "python3.9"


def test_packages_of_an_unknown_system_cannot_be_locked():
    system = systems.named("glibc-2.34-aarch64")
    environment = {"packages": ["torch==2.13.0"], "interpreter": "python3", "path": "/a/pytorch"}
    wanted = site_lock.Wanted(packages={"podman"}, environments={"pytorch": environment})
    found = site_locking.resolve({system: wanted}, {}, print)
    assert [(each.check, each.found) for each in found.findings] == [
        ("packages of glibc-2.34-aarch64", "podman"),
        ("pytorch on glibc-2.34-aarch64", "python3 on glibc-2.34-aarch64"),
    ]


def test_a_controller_gets_only_wheels_that_make_accepts(programs, monkeypatch):
    request = controller_locking.Request(["debian-11-x86_64-python3.12"], ["hardware"])
    _, findings = controller_locking.resolve(request, None, False, {}, print)
    assert [each.found for each in findings] == [f"torch-2.13.0-py3-none-any.whl with sha256 {SUM}"]
    calls = (programs / "calls").read_text()
    assert "--python-version=3.12" in calls and "\npip==" in calls and "\nuv==" in calls and "\npytest==" in calls

    monkeypatch.setattr(controller_locking.controller, "unknown", lambda *_: [])
    part, findings = controller_locking.resolve(request, None, False, {}, print)
    assert findings == [] and list(part["debian-11-x86_64"]["environments"]) == ["python3.12"]
    # A second run resolves nothing, on any machine.
    (programs / "calls.broken").touch()
    again = controller_locking.Request([], ["hardware"])
    assert controller_locking.resolve(again, {"controller": part}, False, {}, print) == (part, [])
    assert [each.found for each in controller_locking.resolve(again, {"controller": part}, True, {}, print)[1]] == [
        "error: no solution"
    ]
