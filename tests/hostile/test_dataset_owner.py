"""Root places data sets in a folder of the training user, who could exchange what root makes there for a link."""

from __future__ import annotations

import os
import pwd

import pytest
from ansible.module_utils.trainyard_node import dataset_files
from ansible.module_utils.trainyard_node.private import PrivateError

ME = pwd.getpwuid(os.getuid())
SOURCE = {"seed": 1, "train_records": 2, "test_records": 1}


@pytest.fixture
def changes(monkeypatch):
    """Record as whom the process acts, in place of the kernel: tests need not be root."""
    seen, now = [], {"uid": 0}

    def act(uid):
        seen.append(uid)
        now["uid"] = uid

    monkeypatch.setattr(os, "geteuid", lambda: now["uid"])
    monkeypatch.setattr(os, "seteuid", act)
    for name in ("setegid", "setgroups"):
        monkeypatch.setattr(os, name, lambda _: None)
    monkeypatch.setattr(dataset_files, "account", lambda _: pwd.struct_passwd((*ME[:2], 4711, *ME[3:])))
    return seen


@pytest.fixture
def theirs(monkeypatch):
    def refuse(_):
        raise PrivateError("belongs to uid 4711")

    monkeypatch.setattr(dataset_files, "expect_safe", refuse)


def test_in_the_users_folder_root_acts_as_the_user_and_owns_nothing(tmp_path, changes, theirs, monkeypatch):
    monkeypatch.setattr(os, "chown", lambda *_: pytest.fail("root gave something away in a folder of another user"))
    with dataset_files.acting_for(ME.pw_name, tmp_path / "made"):
        assert changes == [4711]
        dataset_files.place(tmp_path / "made", "generated", SOURCE, ME.pw_name, dataset_files.generate(**SOURCE))
    assert changes == [4711, 0]
    assert dataset_files.examine(tmp_path / "made", "generated", SOURCE, "") == []


def test_what_the_user_may_not_do_is_said_and_root_does_not_do_it(tmp_path, changes, theirs):
    def fail():
        with dataset_files.acting_for(ME.pw_name, tmp_path / "made"):
            raise PermissionError("made/old")

    with pytest.raises(dataset_files.DatasetFailure, match="cannot do what root should not do"):
        fail()
    assert changes == [4711, 0]


def test_in_a_folder_of_root_alone_root_works_itself(tmp_path, changes, monkeypatch):
    monkeypatch.setattr(dataset_files, "expect_safe", lambda _: None)
    with dataset_files.acting_for(ME.pw_name, tmp_path / "made"):
        assert changes == []
