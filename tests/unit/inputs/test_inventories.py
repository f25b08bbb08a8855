"""Calls without an inventory, or with one that does not exist: nothing runs."""

import pytest
from ansible.module_utils.trainyard.inputs import inventories
from ansible_run import PROJECT

CALLS = [("launch.yml", []), ("site.yml", []), ("playbooks/status.yml", []), ("launch.yml", ["-i", ""])]
LOCAL = "compute: {hosts: {n1: {ansible_connection: local}}}\n"


@pytest.fixture
def call(playbook):
    def run(book, *arguments, **how):
        return playbook(book, *arguments, inventory=None, **how)

    return run


@pytest.mark.parametrize(("book", "options"), CALLS)
def test_a_playbook_without_an_inventory_names_two_commands(call, book, options):
    found = "an empty -i" if options else "none: neither -i nor ANSIBLE_INVENTORY names one"
    run = call(book, *options)
    run.expect(2, "1 finding in what was given. Nothing was done.", f"inventory found {found} expected")
    assert f"ansible-playbook {book} -i inventories/localhost" in run.text and f"{book} -i INVENTORY" in run.text


def test_findings_of_a_job_file_come_with_the_missing_inventory(call):
    run = call("launch.yml", "-e", "@jobs/digit.yml", "-e", "job_secret_env={A: hush}")
    run.expect(2, "2 findings in what was given.", "did you mean jobs/digits.yml?", "-i inventories/localhost")
    assert "hush" not in run.text


@pytest.mark.parametrize(
    ("arguments", "env", "name", "action"),
    [
        (["-i", "hosts.yaml"], {}, "hosts.yaml", "did you mean hosts.yml?"),
        (["-i", "hosts.yml", "-i", "gone/hosts"], {}, "gone/hosts", "correct -i"),
        (["-i", "n1"], {}, "n1", "correct -i; a single host is -i n1,"),
        ([], {"ANSIBLE_INVENTORY": "gone"}, "gone", "correct ANSIBLE_INVENTORY, or name one with -i"),
    ],
)
def test_a_missing_inventory_is_one_finding(call, write, tmp_path, arguments, env, name, action):
    write({"hosts.yml": LOCAL})
    run = call(str(PROJECT / "launch.yml"), *arguments, cwd=tmp_path, **env)
    run.expect(2, "1 finding in what was given.", f"inventory found no file or folder {name} expected", f"do {action}")


def test_the_environment_and_lists_of_hosts_name_an_inventory(call, tmp_path):
    """AWX and Molecule name theirs with -i, where it may be a folder, a list or a script."""
    (tmp_path / "hosts.yml").write_text(LOCAL)
    book = str(PROJECT / "playbooks/status.yml")
    runs = ["-e", f"trainyard_runs={tmp_path}/runs", "-e", "trainyard_become=false"]
    for arguments, env in (
        ([], {"ANSIBLE_INVENTORY": str(tmp_path / "hosts.yml")}),
        (["-i", str(tmp_path)], {}),
        (["-i", "n1,"], {}),
    ):
        run = call(book, *arguments, *runs, cwd=tmp_path, **env)
        assert "No run at all was started" in run.text and "inventory" not in run.text


def test_compare_needs_no_inventory(call, tmp_path):
    run = call("playbooks/compare.yml", "-e", f"trainyard_runs={tmp_path}")
    assert "has no report of a verification" in run.text and "WARNING" not in run.text
    assert call("launch.yml", "--syntax-check").text == "playbook: launch.yml"


def test_the_projects_folder_is_not_an_inventory(call):
    run = call("site.yml", "-i", ".")
    run.expect(2, "the folder of the project expected an inventory")
    assert "WARNING" not in run.text


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
