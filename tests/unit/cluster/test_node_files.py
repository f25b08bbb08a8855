"""The module node_files: folders and files in one call, idempotent and with check mode."""

import grp
import json
import os
import pwd

import node_files
import pytest
from ansible.module_utils.testing import patch_module_args

MINE = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}


@pytest.fixture
def run(capsys):
    """Return a function that runs the module on entries of this user, and returns its result."""

    def run_with(*files, check=False):
        given = [{**MINE, **entry} for entry in files]
        with patch_module_args({"files": given, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            node_files.main()
        return json.loads(capsys.readouterr().out)

    return run_with


@pytest.fixture
def requested(tmp_path):
    return [
        {"path": str(tmp_path / "etc")},
        {"path": str(tmp_path / "etc/one.conf"), "content": "a = 1\n"},
        {"path": str(tmp_path / "etc/key"), "content": "ä\r\n", "mode": "0600"},
    ]


def modes(folder):
    return {path.name: oct(path.stat().st_mode & 0o777) for path in sorted(folder.rglob("*"))}


def test_files_are_created_in_order_and_a_second_run_changes_nothing(run, requested, tmp_path):
    first = run(*requested)
    assert first["changed"] is True
    assert first["paths"] == [entry["path"] for entry in requested]
    assert (tmp_path / "etc/one.conf").read_bytes() == b"a = 1\n"
    assert (tmp_path / "etc/key").read_bytes() == "ä\r\n".encode()
    assert modes(tmp_path) == {"etc": "0o755", "one.conf": "0o644", "key": "0o600"}
    again = run(*requested)
    assert (again["changed"], again["paths"], again["diff"]) == (False, [], [])


def test_check_mode_reports_everything_and_creates_nothing(run, requested, tmp_path):
    done = run(*requested, check=True)
    assert done["paths"] == [entry["path"] for entry in requested]
    assert ("", "a = 1\n") in [(diff["before"], diff["after"]) for diff in done["diff"]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("check", [True, False])
def test_only_what_differs_is_changed_and_shown(run, requested, tmp_path, check):
    run(*requested)
    (tmp_path / "etc/one.conf").write_text("a = 2\n")
    (tmp_path / "etc/key").chmod(0o644)
    done = run(*requested, check=check)
    assert done["paths"] == [requested[1]["path"], requested[2]["path"]]
    text, rights = done["diff"]
    assert (text["before"], text["after"], text["after_header"]) == ("a = 2\n", "a = 1\n", requested[1]["path"])
    assert (rights["before"]["mode"], rights["after"]["mode"]) == ("0644", "0600")
    assert (tmp_path / "etc/one.conf").read_text() == ("a = 2\n" if check else "a = 1\n")
    assert modes(tmp_path)["key"] == ("0o644" if check else "0o600")


def test_missing_parents_are_created_like_their_folder(run, tmp_path):
    umask = os.umask(0o077)
    try:
        done = run({"path": str(tmp_path / "a/b/c")})
    finally:
        os.umask(umask)
    assert done["paths"] == [str(tmp_path / "a/b/c")]
    assert modes(tmp_path) == {"a": "0o755", "b": "0o755", "c": "0o755"}
    assert run({"path": str(tmp_path / "a/b/c")})["changed"] is False


def test_a_file_in_place_of_a_folder_is_an_error_and_stays(run, tmp_path):
    (tmp_path / "etc").write_text("a file")
    done = run({"path": str(tmp_path / "first"), "content": "x"}, {"path": str(tmp_path / "etc")})
    assert done["failed"] is True
    assert done["paths"] == [str(tmp_path / "first")]
    assert f"{tmp_path}/etc cannot be created: [Errno 17] File exists" in done["msg"]
    assert (tmp_path / "etc").read_text() == "a file"
