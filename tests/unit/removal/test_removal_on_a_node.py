"""The record of a node and the removal, on files of a folder instead of the system's."""

import errno
import os
from multiprocessing import get_context
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.removal.places import DATA, EMPTY, FOLDER, OWN, Place, Settings
from ansible.module_utils.trainyard_node.removal import keeping, state, undo
from removal_states import node


class Machine:
    """A folder as a node."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.settings = Settings(
            user="nobody-of-trainyard",
            root=f"{folder}/opt/trainyard",
            state=f"{folder}/var/trainyard",
            records=f"{folder}/var/records",
            manage_system=False,
        )
        places = [
            Place(f"{folder}/etc/new.conf", OWN),
            Place(f"{folder}/etc/old.conf", OWN),
            Place(f"{folder}/etc/link", OWN),
            Place(f"{folder}/etc/*.trainyard", OWN),
            Place(self.settings.root, FOLDER),
            Place(f"{self.settings.state}/data", DATA),
            Place(f"{self.settings.state}/records", EMPTY),
            Place(self.settings.state, EMPTY),
        ]
        monkeypatch.setattr(keeping, "places", lambda settings: places)
        known = {name: node()[name] for name in ("packages", "leftover", "automatic", "held")}
        accounts = {name: node()[name] for name in ("users", "groups", "user_gid", "user_groups", "members")}
        monkeypatch.setattr(state, "packages", lambda: known)
        monkeypatch.setattr(state, "accounts", lambda user: accounts)
        monkeypatch.setattr(state, "units", dict)
        monkeypatch.setattr(undo, "read_uses", lambda jobs, services: ([], ""))
        monkeypatch.setattr(undo, "SAVED", folder / "saved")
        monkeypatch.setattr(undo.Undo, "_reload", lambda self, done: None)
        self.write("etc/old.conf", "old", 0o640)
        (folder / "etc/link").symlink_to("somewhere")

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def install(self):
        """Change what the roles of a run would."""
        self.write("etc/new.conf", "new")
        self.write("etc/old.conf", "ours")
        self.write("etc/sources.trainyard", "kept")
        (self.folder / "etc/link").unlink()
        self.write("opt/trainyard/venvs/pytorch/x", "x")
        self.write("var/trainyard/data/digits", "x")

    def files(self):
        """Return what there is, without the record."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if "records" not in path.parts and "saved" not in path.parts:
                found[str(path.relative_to(self.folder))] = state.place(str(path))
        return found

    def remove(self, data=False):
        done = undo.Undo(self.settings, data=data)
        assert done.plan.findings == []
        done.run()
        assert done.problems == []
        return done.plan.stays


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path / "node", monkeypatch) if (tmp_path / "node").mkdir() is None else None


def test_a_node_is_as_before(machine):
    before = machine.files()
    keeping.Kept(machine.settings).open()
    machine.install()
    keeping.Kept(machine.settings).close()
    after = machine.files()
    assert len(set(after) - set(before)) > 5 and after["etc/old.conf"] != before["etc/old.conf"]
    plan, _ = undo.read_plan(machine.settings, data=True)
    assert machine.files() == after and len(plan.steps) == 7
    machine.remove(data=True)
    left = {name: place for name, place in machine.files().items() if name not in ("opt", "var")}
    assert left == before
    assert not (machine.folder / "var/records").exists()
    assert undo.read_plan(machine.settings, data=True)[0].steps == []


@pytest.mark.parametrize("bundle", [False, True])
def test_the_records_in_the_folder_of_jobs_go_with_it(machine, bundle):
    machine.settings = machine.settings._replace(records=f"{machine.settings.state}/records/n1")
    if bundle:
        machine.write("var/trainyard/records/n1/bundle/stamp", "1")
    keeping.Kept(machine.settings).open()
    machine.install()
    keeping.Kept(machine.settings).close()
    machine.remove(data=True)
    assert not (machine.folder / "var/trainyard").exists()


@pytest.mark.parametrize("foreign", ["state", "records"])
def test_an_ordinary_user_keeps_no_record_where_others_write(machine, monkeypatch, foreign):
    """Another user has made /var/tmp/trainyard-USER before."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 4711)
    folder = Path(getattr(machine.settings, foreign))
    machine.write("var/other", "")
    folder.parent.chmod(0o1777)
    folder.mkdir()
    folder.chmod(0o777)
    for change in (keeping.Kept(machine.settings).open, lambda: undo.read_plan(machine.settings, data=True)):
        with pytest.raises(keeping.KeptError) as error:
            change()
        assert str(folder) in error.value.finding.found and "of root" in error.value.finding.expected
    assert list(folder.iterdir()) == []


def test_a_folder_of_records_that_cannot_be_made_is_a_finding(machine, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(keeping.KeptError) as error:
        keeping.Kept(machine.settings).open()
    assert error.value.finding.found == f"{machine.settings.records} cannot be made"


def test_an_interrupted_run_and_a_second_one_are_undone_as_well(machine):
    before = machine.files()
    kept = keeping.Kept(machine.settings)
    kept.open()
    machine.write("etc/new.conf", "half")
    # The next run finds the window open; what was there before stays what the first one saw.
    assert kept.open() is False
    machine.install()
    machine.remove()
    left = machine.files()
    assert left["etc/link"] == before["etc/link"] and "etc/new.conf" not in left
    # Nobody knows who wrote this one: it stays, and its copy is in the record.
    assert kept.read_copy(f"{machine.folder}/etc/old.conf") == b"old"


def test_what_others_changed_is_kept(machine):
    kept = keeping.Kept(machine.settings)
    kept.open()
    machine.install()
    kept.close()
    machine.write("etc/new.conf", "new\nadmin")
    machine.write("etc/old.conf", "admin")
    machine.write("opt/trainyard/venvs/mine/y", "y")
    stays = "\n".join(machine.remove())
    left = machine.files()
    assert (machine.folder / "etc/old.conf").read_text() == "admin" and "etc/new.conf" not in left
    assert [path.read_text() for path in (machine.folder / "saved").iterdir()] == ["new\nadmin"]
    assert "opt/trainyard/venvs/mine/y" in left and "opt/trainyard/venvs/pytorch" not in left
    assert "var/trainyard/data/digits" in left
    for text in ("old.conf", "new.conf", "venvs/mine", "trainyard/data: 1 entry"):
        assert text in stays
    machine.remove(data=True)
    assert not {"opt/trainyard", "var/trainyard"} & set(machine.files())
    assert not (machine.folder / "var/records").exists()


def test_a_step_that_fails_is_named_and_the_others_go_on(machine, monkeypatch):
    kept = keeping.Kept(machine.settings)
    kept.open()
    machine.install()
    kept.close()
    path = str(machine.folder / "etc/new.conf")

    def delete(name, whole=undo._delete):
        if name == path:
            raise OSError("read-only")
        return whole(name)

    with monkeypatch.context() as patched:
        patched.setattr(undo, "_delete", delete)
        failing = undo.Undo(machine.settings, data=True)
        failing.run()
    assert [each.found for each in failing.problems] == [f"remove {path}: read-only"]
    assert not (machine.folder / "opt/trainyard").exists() and kept.path.exists()
    machine.remove(data=True)
    assert not (machine.folder / "etc/new.conf").exists() and not kept.path.exists()


@pytest.mark.parametrize("damage", ["text", "version", "mode", "link"])
def test_a_record_that_cannot_be_trusted_is_refused_by_name(machine, damage):
    kept = keeping.Kept(machine.settings)
    kept.open()
    if damage == "text":
        kept.path.write_text("{")
    elif damage == "version":
        kept.path.write_text(
            kept.path.read_text().replace('"trainyard_removal_record": 1', '"trainyard_removal_record": 9')
        )
    elif damage == "mode":
        kept.path.chmod(0o666)
    else:
        kept.path.rename(kept.path.with_name("elsewhere"))
        kept.path.symlink_to("elsewhere")
    with pytest.raises(keeping.KeptError) as error:
        undo.Undo(machine.settings, data=True)
    assert error.value.finding.check == "record" and str(kept.path) in error.value.finding.found
    with pytest.raises(keeping.KeptError):
        kept.open()


def test_hosts_remove_a_folder_that_they_share_at_once_and_count_it_once(tmp_path):
    shared = tmp_path / "shared"
    for number in range(40):
        (shared / f"package{number}").mkdir(parents=True)
        for each in range(50):
            (shared / f"package{number}" / f"{each}.py").touch()
    fork = get_context("fork")
    begin, counted = fork.Barrier(3), fork.SimpleQueue()

    def remove():
        begin.wait()
        counted.put(undo._delete(str(shared)))

    hosts = [fork.Process(target=remove) for _ in range(3)]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join()
    assert [host.exitcode for host in hosts] == [0, 0, 0]
    assert sorted(counted.get() for _ in hosts) == [False, False, True]
    assert not shared.exists()
    (tmp_path / "file").touch()
    assert undo._delete(str(tmp_path / "file")) and not undo._delete(str(tmp_path / "file"))


@pytest.mark.parametrize("last", [True, False])
def test_what_another_host_removes_meanwhile_is_no_error(tmp_path, monkeypatch, last):
    folder = tmp_path / "shared"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()

    def twice(remove):
        def both(path, *given, **where):
            remove(path, *given, **where)
            if last or not str(path).endswith("shared"):
                remove(path, *given, **where)

        return both

    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(f"os.{name}", twice(getattr(os, name)))
    assert undo._delete(str(folder)) is not last
    assert not folder.exists()


def test_a_folder_that_another_host_removes_is_stale_on_nfs(tmp_path, monkeypatch):
    (tmp_path / "shared" / "one").mkdir(parents=True)

    def stale(path, *given, remove=os.rmdir, **where):
        remove(path, *given, **where)
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr("os.rmdir", stale)
    assert undo._delete(str(tmp_path / "shared")) is False


def test_a_folder_that_cannot_be_removed_is_no_success(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr("os.rmdir", refuse)
    with pytest.raises(PermissionError):
        undo._delete(str(tmp_path / "folder"))
