"""Calls without an inventory, or with one that does not exist: nothing runs anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs import inventories

PROJECT = Path(__file__).resolve().parents[3]
CALLS = [("launch.yml", []), ("site.yml", []), ("playbooks/status.yml", []), ("launch.yml", ["-i", ""])]


@pytest.fixture
def call(playbook):
    def run(book, *arguments, **how):
        done = playbook(book, *arguments, inventory=None, **how)
        return done.rc, done.text

    return run


@pytest.mark.parametrize(("book", "options"), CALLS)
def test_a_playbook_without_an_inventory_names_two_commands(call, book, options):
    status, text = call(book, *options)
    assert status == 2
    found = "an empty -i" if options else "none: neither -i nor ANSIBLE_INVENTORY names one"
    assert text == (
        f"1 finding in what was given. Nothing was done. 1. inventory found {found} expected the hosts on which the "
        f"playbook works do to try it on this machine, ansible-playbook {book} -i inventories/localhost; on your "
        f"cluster, ansible-playbook {book} -i INVENTORY"
    )


def test_findings_of_a_job_file_come_with_the_missing_inventory(call):
    status, text = call("launch.yml", "-e", "@jobs/digit.yml", "-e", "job_secret_env={A: hush}")
    assert status == 2 and text.startswith("2 findings in what was given.")
    assert "did you mean jobs/digits.yml?" in text and "ansible-playbook ... -i inventories/localhost" in text
    assert "hush" not in text


def test_a_missing_inventory_is_one_finding(call, tmp_path):
    (tmp_path / "hosts.yml").write_text("compute: {hosts: {n1: {ansible_connection: local}}}\n")
    for arguments, env, do in (
        (["-i", "hosts.yaml"], {}, "did you mean hosts.yml?"),
        (["-i", "hosts.yml", "-i", "gone/hosts"], {}, "correct -i"),
        (["-i", "n1"], {}, "correct -i; a single host is -i n1,"),
        ([], {"ANSIBLE_INVENTORY": "gone"}, "correct ANSIBLE_INVENTORY, or name one with -i"),
    ):
        status, text = call(str(PROJECT / "launch.yml"), *arguments, cwd=tmp_path, **env)
        name = arguments[-1].rstrip("/") if arguments else env["ANSIBLE_INVENTORY"]
        assert status == 2
        assert text == (
            f"1 finding in what was given. Nothing was done. 1. inventory found no file or folder {name} expected an "
            f"inventory: a file, a folder, or names of hosts such as n1,n2 do {do}"
        )


def test_the_environment_and_lists_of_hosts_name_an_inventory(call, tmp_path):
    """AWX and Molecule name theirs with -i, where it may be a folder, a list or a script."""
    (tmp_path / "hosts.yml").write_text("compute: {hosts: {n1: {ansible_connection: local}}}\n")
    book = str(PROJECT / "playbooks/status.yml")
    runs = ["-e", f"trainyard_runs={tmp_path}/runs", "-e", "trainyard_become=false"]
    for arguments, env in (
        ([], {"ANSIBLE_INVENTORY": str(tmp_path / "hosts.yml")}),
        (["-i", str(tmp_path)], {}),
        (["-i", "n1,"], {}),
    ):
        _, text = call(book, *arguments, *runs, cwd=tmp_path, **env)
        assert "No run at all was started" in text and "inventory" not in text


def test_compare_needs_no_inventory(call, tmp_path):
    _, text = call("playbooks/compare.yml", "-e", f"trainyard_runs={tmp_path}")
    assert "has no report of a verification" in text and "WARNING" not in text
    assert call("launch.yml", "--syntax-check") == (0, "playbook: launch.yml")


def test_the_projects_folder_is_not_an_inventory(call):
    status, text = call("site.yml", "-i", ".")
    assert status == 2 and "the folder of the project expected an inventory" in text
    assert "WARNING" not in text


@pytest.mark.parametrize(
    ("arguments", "empty"),
    [
        (["launch.yml", "-i", ""], True),
        (["launch.yml", "--inventory="], True),
        (["launch.yml", "--inventory", "", "-C"], True),
        (["launch.yml", "-i", "x", "-e", ""], False),
        (["launch.yml"], False),
    ],
)
def test_an_empty_option_is_left_out_of_the_commands(arguments, empty):
    assert inventories.is_empty(arguments) is empty
    if empty:
        assert "''" not in inventories.not_named(arguments, "inventories/localhost").action
