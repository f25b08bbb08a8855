"""Root places data sets in a folder of the training user, who could exchange what root makes there for a link."""

import json
import os

import pytest
import training_data
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard_node.machine import as_user, install_lock
from ansible.module_utils.trainyard_node.software import dataset_files


@pytest.fixture
def run(capsys, place):
    def call(folder, **changes):
        params = {
            "path": str(folder),
            "kind": "generated",
            "train_records": 2,
            "test_records": 1,
            "owner": place.user,
            "records": str(place.roots),
            **changes,
        }
        with patch_module_args(params), pytest.raises(SystemExit):
            training_data.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_in_the_users_folder_a_data_set_is_made_with_the_users_rights(run, place, monkeypatch):
    """The user swaps what is being made for a link to a folder of root's, while it is filled."""
    made = dataset_files.generate

    def swap(*given):
        made(*given)
        *_, fresh = given
        fresh.rename(fresh.with_name("aside"))
        fresh.symlink_to(place.roots)

    before = place.secret.stat()
    monkeypatch.setattr(dataset_files, "generate", swap)
    if os.geteuid():
        place.roots.chmod(0o500)
    told = run(place.state / "made")
    after = place.secret.stat()
    assert told["failed"] is True
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
    assert [path.name for path in place.roots.iterdir()] == ["secret"]
    place.roots.chmod(0o700)


def test_a_data_set_belongs_to_the_user_and_stays(run, place):
    folder = place.state / "made"
    told = run(folder)
    assert told["reasons"] == ["it is not there yet"], told
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {place.owner.uid}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    assert run(folder)["reasons"] == []


def test_whose_rights_follow_from_who_can_change_the_folder(tmp_path, place, monkeypatch):
    for alone, uid in ((True, 0), (False, place.owner.uid)):
        monkeypatch.setattr(dataset_files, "only_root_changes", lambda _, alone=alone: alone)
        assert dataset_files.whose_rights(tmp_path / "made", place.user).uid == uid
    assert dataset_files.whose_rights(tmp_path / "made", "") == as_user.Owner(0, 0, [])


def test_a_lock_that_the_user_plants_leads_nowhere(run, place):
    before = place.secret.read_bytes()
    lock = install_lock.path_of(place.state / "made")
    lock.symlink_to(place.secret)
    told = run(place.state / "made")
    assert told["failed"] is True and f"{lock}, by which hosts" in told["msg"]
    assert place.secret.read_bytes() == before and not (place.state / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has rights to lose")
def test_root_takes_no_lock_where_a_user_could_exchange_it(place):
    with (
        pytest.raises(install_lock.InstallLockError, match="others can exchange"),
        install_lock.held(place.state / "made"),
    ):
        pass
    assert not install_lock.path_of(place.state / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_a_new_folder_of_data_sets_belongs_to_the_user_with_its_locks(run, place, monkeypatch):
    """The first host of a shared folder makes it, while another one has seen none."""
    folder = place.roots / "state" / "data" / "made"
    assert run(folder, run="a")["reasons"] == ["it is not there yet"]
    lock = install_lock.path_of(folder)
    assert {path.stat().st_uid for path in (folder.parent, folder.parent.parent, lock)} == {place.owner.uid}
    seen = [as_user.Owner(0, 0, []), as_user.named(place.user)]
    monkeypatch.setattr(dataset_files, "whose_rights", lambda *_: seen.pop(0))
    told = run(folder)
    assert told["changed"] is True and seen == [], told
    assert {path.stat().st_uid for path in (folder, *folder.iterdir())} == {place.owner.uid}
