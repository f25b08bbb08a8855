"""Root finds out who shares a folder, and users may exchange it: root writes only where nobody else could."""

import fcntl
import os
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.plan import obstacles
from ansible.module_utils.trainyard_node.job.run import job_folder
from ansible.module_utils.trainyard_node.machine import as_user, open_folders, shared_folders

IS_ROOT = os.geteuid() == 0
NAME = ".trainyard-0123456789abcdef"
ROOT_ONLY = pytest.mark.skipif(not IS_ROOT, reason="it changes users")


@pytest.fixture
def writers(monkeypatch):
    """Have all folders lie on NFS; return whose rights were tried."""
    monkeypatch.setattr(shared_folders, "mounted", lambda descriptor: ("nfs4", "files:/home", "/"))
    owners, run = [], as_user.run

    def noted(owner, *arguments, **limits):
        owners.append(owner.uid)
        return run(owner, *arguments, **limits)

    monkeypatch.setattr(as_user, "run", noted)
    return owners


def made(base, name, uid, mode=0o755):
    folder = base / name
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, uid, uid)
    return folder


@ROOT_ONLY
def test_the_owner_of_a_folder_writes_where_the_training_user_may_not(place, writers):
    folder = made(place.roots, "of nobody", 65534)
    found = shared_folders.look(NAME, [str(folder)], "daemon")[str(folder)]
    assert found["wrote"] and found["token"] and (folder / NAME).lstat().st_uid == 65534 and 0 not in writers
    assert shared_folders.forget(NAME, [str(folder)], "daemon") == {"left": []} and 0 not in writers
    assert [*folder.iterdir()] == []


@ROOT_ONLY
def test_root_writes_nothing_in_its_own_folder_below_that_of_a_user(place, writers):
    below = made(made(place.roots, "of nobody", 65534), "of root", 0)
    found = shared_folders.look(NAME, [str(below)], "daemon")[str(below)]
    assert (found["wrote"], found["token"]) == (False, "") and 0 not in writers


@ROOT_ONLY
def test_a_folder_that_leads_elsewhere_leads_the_user_alone(place, writers):
    """A job's user puts a link to a folder of root's where the checkpoints were."""
    secret, user = made(place.roots, "private", 0, 0o700), as_user.named("daemon").uid
    link = made(place.roots, "of daemon", user) / "checkpoints"
    link.symlink_to(secret)
    shared_folders.look(NAME, [str(link)], "daemon")
    assert [*secret.iterdir()] == []
    (secret / NAME).symlink_to("f" * 32)
    shared_folders.forget(NAME, [str(link)], "daemon")
    assert (secret / NAME).is_symlink()


@ROOT_ONLY
def test_nobody_else_makes_the_state_folder_first(place):
    open_to_all, user = made(place.roots, "tmp", 0, 0o1777), as_user.named("daemon").uid
    state = open_to_all / "trainyard-daemon"
    assert open_folders.of_another(state / "jobs", user) is None
    for uid, mode, safe in ((user, 0o755, True), (0, 0o755, True), (65534, 0o755, False), (user, 0o777, False)):
        made(open_to_all, state.name, uid, mode)
        found = open_folders.of_another(state / "jobs", user)
        assert (found is None) == safe, (uid, oct(mode))
        assert safe or str(state) in str(found)
        state.rmdir()
    for owner, safe in ((user, True), (65534, False)):
        state.symlink_to("/srv")
        os.chown(state, owner, owner, follow_symlinks=False)
        assert (open_folders.of_another(state / "jobs", user) is None) == safe
        state.unlink()
    # In a folder that is closed, the folder above decides.
    assert open_folders.of_another(Path("/var/lib/trainyard/jobs"), user) is None


@ROOT_ONLY
def test_a_job_does_not_start_in_the_state_folder_of_another_user(place):
    user, state = as_user.named("daemon"), made(place.roots, "tmp", 0, 0o1777) / "trainyard-daemon"
    job_dir = state / "jobs" / "digits-1"
    made(state.parent, state.name, 65534, 0o777)
    plan = {"job_dir": str(job_dir), "host": "n1"}
    (finding,) = obstacles.state_findings(plan, "daemon")
    assert finding.check == "trainyard_state" and finding.found == f"{state} (drwxrwxrwx, of nobody)"
    with pytest.raises(as_user.JobError, match=r"trainyard-daemon \(drwxrwxrwx, of nobody\): expected a folder of"):
        job_folder.make(job_dir, user)
    assert [*state.iterdir()] == []
    state.rmdir()
    assert obstacles.state_findings(plan, "daemon") == obstacles.state_findings(plan, "no-such-user") == []
    assert job_folder.make(job_dir, user) and state.stat().st_uid == user.uid
    # As systemd-tmpfiles tries it: a lock on the folder has it skip all that is below.
    descriptor = os.open(state, os.O_RDONLY)
    with open_folders.kept(job_dir), pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
