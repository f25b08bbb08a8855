"""The state of a node compared with the requested one: files, packages, clock."""

import grp
import json
import os
import pwd
from pathlib import Path

import node_identity
import openmpi
import pytest
import ssh_user_key
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.software import file_differences
from ansible.module_utils.trainyard_node.agent import answer
from ansible.module_utils.trainyard_node.cluster.baseline_check import baseline, clock_problem
from ansible.module_utils.trainyard_node.cluster.ssh_keys import marked_lines
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.packages import missing_packages
from ansible.module_utils.trainyard_node.machine.tree import Tree

MINE = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": str(os.getgid())}


@pytest.fixture
def etc(tmp_path):
    """Return a folder, a file in it, and the entries that request exactly these."""
    folder, file = tmp_path / "etc", tmp_path / "etc/one.conf"
    folder.mkdir(mode=0o755)
    file.write_text("a = ä\n")
    file.chmod(0o644)
    requested = [{"path": str(folder), **MINE}, {"path": str(file), "content": "a = ä\n", **MINE}]
    return folder, file, requested


def differing(requested):
    return file_differences.differing(requested, read_files([entry["path"] for entry in requested]))


def test_matching_files_do_not_differ(etc):
    _, file, requested = etc
    assert differing(requested) == []
    digest = read_files([str(file)])[str(file)]["sha256"]
    numbers = {"owner": os.getuid(), "group": grp.getgrgid(os.getgid()).gr_name}
    assert differing([requested[0], {"path": str(file), "sha256": digest, "mode": "644", **numbers}]) == []


@pytest.mark.parametrize("change", ["content", "mode", "gone", "folder"])
def test_a_changed_file_is_reported(etc, change):
    _, file, requested = etc
    if change == "content":
        file.write_text("a = b\n")
    elif change == "mode":
        file.chmod(0o600)
    else:
        file.unlink()
    if change == "folder":
        file.mkdir()
    assert differing(requested) == [str(file)]


def test_another_owner_or_kind_is_reported(etc):
    folder, file, requested = etc
    other = [{**entry, "owner": 54321} for entry in requested]
    assert differing(other) == [str(folder), str(file)]
    assert differing([{"path": str(file), **MINE}]) == [str(file)]
    assert differing([{"path": str(folder), "content": "", **MINE}]) == [str(folder)]
    (folder / "empty").touch(mode=0o644)
    assert differing([{"path": str(folder / "empty"), "content": "", **MINE}]) == []


def machine(tmp_path, **outputs):
    """Return a captured machine whose commands print these outputs."""
    folder = tmp_path / "commands"
    folder.mkdir(exist_ok=True)
    for name, output in outputs.items():
        (folder / f"{name}.out").write_text(output)
    return Tree(str(tmp_path))


def test_packages_that_are_not_installed_are_missing(tmp_path):
    names = ["rsync", "chrony", "gone", "libc6:amd64"]
    dpkg = "dpkg-query: no packages found matching gone\nrsync installed\nchrony config-files\nlibc6 installed\n"
    tree = machine(tmp_path, **{"dpkg-query": dpkg, "rpm": "rsync installed\npackage chrony is not installed\n"})
    assert missing_packages(tree, "apt", names) == ["chrony", "gone", "libc6:amd64"]
    assert missing_packages(tree, "dnf", names[:2]) == ["chrony"]
    assert missing_packages(tree, "apt", []) == []
    # A list that cannot be read.
    assert missing_packages(Tree(str(tmp_path / "none")), "zypper", ["rsync"]) == ["rsync"]


RUNS = "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
ABSENT = "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
UNITS = ["chrony.service", "systemd-timesyncd.service"]


@pytest.mark.parametrize(
    ("chrony", "timesyncd", "synchronised", "fault"),
    [
        (RUNS, ABSENT, "yes\n", ""),
        (ABSENT, RUNS, "yes\n", ""),
        (RUNS, ABSENT, "no\n", "the clock is not synchronised"),
        (ABSENT, ABSENT, "yes\n", "there is no chrony.service or systemd-timesyncd.service"),
        # The first installed service must run, even if another one does.
        (RUNS.replace("=active", "=failed"), RUNS, "yes\n", "chrony.service has ActiveState=failed"),
        (RUNS.replace("enabled", "disabled"), RUNS, "yes\n", "chrony.service has UnitFileState=disabled"),
    ],
)
def test_clock_problems(tmp_path, chrony, timesyncd, synchronised, fault):
    tree = machine(tmp_path, **dict(zip(UNITS, [chrony, timesyncd])), timedatectl=synchronised)
    assert clock_problem(tree, UNITS) == fault


@pytest.fixture
def run(capsys):
    """Run a module on this machine and return its result."""

    def run_with(module, **given):
        with patch_module_args(given), pytest.raises(SystemExit) as ended:
            module.main()
        assert ended.value.code == 0
        return json.loads(capsys.readouterr().out)

    return run_with


def test_node_identity_returns_the_facts_that_roles_need(run, tmp_path):
    requested = {"user": "nobody", "uid": 65534, "group": "nogroup", "gid": 65534}
    found = run(node_identity, files=[str(tmp_path), "/proc/nowhere"], **requested)
    assert list(found["files"]) == [str(tmp_path)]
    names = {f"ansible_{name}" for name in ("os_family", "pkg_mgr", "service_mgr", "virtualization_type")}
    assert names <= set(found["ansible_facts"])
    inside = "container" in found["ansible_facts"]["ansible_virtualization_tech_guest"]
    assert bool(found["container"]) is inside


def test_a_node_is_verified_only_if_nothing_is_missing():
    entries = [{"address": "192.0.2.1", "names": ["nowhere.invalid"]}]
    given = {"host": "n1", "entries": entries, "user": "nobody", "memlock": "1", "nofile": "1", "systemd": False}
    missing = baseline(**given, block="no-such-block", packages=["no-such-package"], package_manager="apt")
    assert missing["missing"] == ["package no-such-package", "lines in /etc/hosts"]
    assert (missing["packages"], missing["findings"]) == (["no-such-package"], [])
    verified = baseline(**given)
    assert (verified["missing"], verified["packages"]) == ([], [])
    assert "name nowhere.invalid" in [finding["check"] for finding in verified["findings"]]


def test_openmpi_compares_the_session_environment(run, tmp_path):
    session = {"file": str(tmp_path / "sessions"), "user": "train", "name": "openmpi", "path": [], "libraries": []}
    (tmp_path / "openmpi").symlink_to("/opt/openmpi-4.1.8")
    given = {"host": "n1", "link": str(tmp_path / "openmpi"), "prefix": str(tmp_path / "none"), "session": session}
    found = run(openmpi, step="read", **given)
    assert (found["session_differs"], found["state"]["link_target"]) == (False, "/opt/openmpi-4.1.8")
    session["path"] = ["/opt/openmpi/bin"]
    assert run(openmpi, step="read", **given)["session_differs"] is True


def test_our_lines_of_known_hosts_end_with_the_mark(tmp_path):
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "etc/ssh/ssh_known_hosts").write_text("n9 rsa A\n@cert-authority * B trainyard:a\n# trainyard:ab\n")
    assert marked_lines(Tree(str(tmp_path)), "trainyard:a") == ["@cert-authority * B trainyard:a"]
    assert marked_lines(Tree(str(tmp_path / "etc")), "trainyard:a") == []


def test_reading_the_mesh_changes_nothing(tmp_path):
    query = {"host": "n1", "user": "nobody-here", "key": str(tmp_path / "ssh/user_ed25519"), "mark": "trainyard:a"}
    found = answer("ssh_keys", {**query, "host_key": str(tmp_path / "host"), "files": [str(tmp_path)]}, 60.0)
    assert {"training user", "host key of sshd"} <= {finding["check"] for finding in found["findings"]}
    # No key is created while there are findings.
    assert (found["user_key"], found["host_key"], found["key_problems"]) == ("", "", [])
    assert found["files"][str(tmp_path)]["kind"] == "folder" and not (tmp_path / "ssh").exists()


def test_a_users_key_is_created_once_and_repaired(run, tmp_path):
    key = tmp_path / "etc/ssh/user_ed25519"
    given = {"user": pwd.getpwuid(os.getuid()).pw_name, "key": str(key), "comment": "a@n1"}
    assert run(ssh_user_key, **given, _ansible_check_mode=True)["user_key"] == ""
    assert not (tmp_path / "etc").exists()
    made = run(ssh_user_key, **given)
    assert made["changed"] and made["user_key"].startswith("ssh-ed25519 ")
    key.chmod(0o644)
    Path(f"{key}.pub").unlink()
    again = run(ssh_user_key, **given)
    assert again["changed"] and again["user_key"] == made["user_key"]
    assert key.stat().st_mode & 0o777 == 0o600
    assert not run(ssh_user_key, **given)["changed"]
