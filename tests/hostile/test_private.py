"""What another user could have put where root looks: folders to work in, files to run, records to go by."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import apt as rules
from ansible.module_utils.trainyard_node.job.run.evidence import stack_samples
from ansible.module_utils.trainyard_node.machine import as_user, private
from ansible.module_utils.trainyard_node.machine.private import (
    PrivateError,
    expect_file,
    expect_safe,
    make_private,
    opened,
)
from ansible.module_utils.trainyard_node.nvidia import cuda_test_program
from ansible.module_utils.trainyard_node.software import apt_calls

GOOD = {"libnccl2": {"version": "2.21.5-1+cuda12.4", "added": True}}
CONTENT = b"#!/bin/sh\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def another_user(monkeypatch):
    """Have this process be a user that nothing here belongs to, as root finds what another user has put there."""
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: 4711)


@pytest.fixture
def root(monkeypatch):
    """Have this process be root, above whom folders are root's own, or not."""

    def be(alone):
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(private, "only_root_changes", lambda _: alone)

    return be


@pytest.mark.parametrize("plant", ["folder", "link", "file", "nothing"])
def test_a_folder_is_new_whatever_was_put_in_its_place(tmp_path, plant):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "deep" / "work"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    folder.parent.mkdir()
    if plant == "folder":
        folder.mkdir(mode=0o777)
        (folder / "installer.run").write_text("planted")
    elif plant == "link":
        folder.symlink_to(elsewhere)
    elif plant == "file":
        folder.touch()
    make_private(folder, ["source", "stage/bin"])
    assert not folder.is_symlink() and folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["source", "stage"]
    assert (folder / "stage/bin").stat().st_mode & 0o777 == 0o755
    assert (elsewhere / "kept").exists()


def test_root_does_not_work_below_the_folder_of_another_user(tmp_path, root):
    root(alone=False)
    with pytest.raises(PrivateError, match="does not belong to root"):
        make_private(tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_root_works_below_folders_of_its_own_but_in_none_that_everybody_writes(tmp_path, root):
    """A sticky folder such as /var/tmp may be above ours, but what is looked for in it may be anybody's."""
    root(alone=True)
    make_private(tmp_path / "work")
    for mode in (0o777, 0o1777):
        (tmp_path / "work").chmod(mode)
        with pytest.raises(PrivateError, match="expected what only root can change"):
            expect_safe(tmp_path / "work")


@pytest.mark.parametrize("plant", ["theirs", "link", "open"])
def test_whose_folder_it_is_shows_on_the_whole_way(place, plant):
    """As root the folders are the training user's or root's; who is not root finds that nothing here is root's."""
    way = place.roots
    if plant == "theirs":
        way = place.state
    elif plant == "link":
        way = place.state / "link"
        place.does(os.symlink, place.roots, way)
    else:
        place.roots.chmod(0o777)
    assert not private.only_root_changes(way)


def test_a_folder_of_a_user_is_up_to_that_user_and_no_other(place):
    assert private.only_root_changes(place.state, place.owner.uid)
    assert not private.only_root_changes(place.state, place.owner.uid + 1)


def test_a_tool_of_an_environment_that_another_user_has_is_not_run(place):
    """Root's monitor would run what the training user put there; the training user's own runs its own."""
    tool = place.state / "venv" / "bin" / stack_samples.TOOL
    place.does(os.makedirs, tool.parent, 0o755)
    place.writes(tool, "#!/bin/sh\n")
    place.does(tool.chmod, 0o755)
    assert as_user.run(place.owner, stack_samples.of_environments, str(place.state)) == str(tool)
    assert stack_samples.of_environments(str(place.state)) == (str(tool) if os.geteuid() else None)


def test_a_file_of_the_right_content_that_another_user_owns_is_not_run(tmp_path, another_user):
    """Its owner could exchange it between this look and its start."""
    file = tmp_path / "installer.run"
    file.write_bytes(CONTENT)
    expect_file(file, SHA256)
    another_user()
    with pytest.raises(PrivateError, match="expected a file of uid 4711 that nobody else can write"):
        expect_file(file, SHA256)


def test_a_file_that_others_can_write_or_that_is_a_link_is_not_run(tmp_path):
    file, link = tmp_path / "installer.run", tmp_path / "link.run"
    file.write_bytes(CONTENT)
    link.symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        expect_file(link, SHA256)
    file.chmod(0o777)
    with pytest.raises(PrivateError, match="nobody else can write"):
        expect_file(file, SHA256)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PrivateError, match="nobody else can write"):
        expect_file(tmp_path / "fifo", SHA256)


def test_a_file_that_was_exchanged_is_not_run(tmp_path):
    file = tmp_path / "installer.run"
    file.write_bytes(b"other")
    with pytest.raises(PrivateError, match=f"expected {SHA256}"):
        expect_file(file, SHA256)
    with opened(file) as stream:
        assert stream.read() == b"other"


def keeping(folder):
    return apt_calls.Keeping(str(folder / "packages/nccl.json"), str(folder / "preferences"), "test")


def test_a_record_is_read_as_it_was_written(tmp_path):
    kept = keeping(tmp_path)
    assert kept.read() == {}
    apt_calls.place({kept.record: json.dumps(GOOD).encode()})
    assert kept.read() == GOOD
    assert [path.name for path in Path(kept.record).parent.iterdir()] == ["nccl.json"]


def test_a_link_in_place_of_a_record_overwrites_nothing(tmp_path):
    kept, victim = keeping(tmp_path), tmp_path / "shadow"
    victim.write_text("root:secret")
    folder = Path(kept.record).parent
    folder.mkdir()
    for name in ("nccl.json", ".nccl.json.new"):
        (folder / name).symlink_to(victim)
    with pytest.raises(apt_calls.AptError, match="is not for root alone"):
        kept.read()
    apt_calls.place({kept.record: json.dumps(GOOD).encode()})
    assert victim.read_text() == "root:secret"
    assert not Path(kept.record).is_symlink() and kept.read() == GOOD


def test_a_record_that_another_user_wrote_removes_no_package(tmp_path, another_user):
    kept = keeping(tmp_path)
    apt_calls.place({kept.record: json.dumps({"openssh-server": {"version": "1", "added": True}}).encode()})
    another_user()
    with pytest.raises(apt_calls.AptError, match="is not for root alone"):
        kept.read()


@pytest.mark.parametrize("forged", [
    [], {"-o": {"version": "1", "added": True}}, {"Dpkg::Pre-Invoke": {"version": "1", "added": True}},
    {"libc6 -y": {"version": "1", "added": True}}, {"libc6": {"version": "1 -y", "added": True}},
    {"libc6": {"version": "-1", "added": True}}, {"libc6": {"version": "1", "added": "yes"}},
    {"libc6": {"version": "1"}}, {"libc6": "1"}, {"libc6\n": {"version": "1", "added": True}},
])  # fmt: skip
def test_what_no_role_has_written_is_no_record(tmp_path, forged):
    kept = keeping(tmp_path)
    apt_calls.place({kept.record: json.dumps(forged).encode()})
    with pytest.raises(apt_calls.AptError, match=r"cannot be read: .*; remove it, and the holds are taken over anew"):
        kept.read()
    with pytest.raises(ValueError, match=r"it |name|libc6 has "):
        rules.read_record(json.dumps(forged).encode())


def test_a_link_that_the_user_puts_into_the_folder_of_the_cuda_verification_leads_root_nowhere(tmp_path, monkeypatch):
    victim = tmp_path / "shadow"
    victim.write_text("root:secret")

    def give(folder, *_):
        (folder / "verify.cu").unlink(missing_ok=True)
        (folder / "verify.cu").symlink_to(victim)

    monkeypatch.setattr(cuda_test_program, "as_user", lambda _: {"user": 4711, "group": 4711, "env": {}})
    monkeypatch.setattr(cuda_test_program, "_verify", lambda *_: {"build": "pass"})
    monkeypatch.setattr(os, "chown", give)
    assert cuda_test_program.verify("int main() {}", {}, {"user": "train", "root": str(tmp_path)}) == {"build": "pass"}
    assert victim.read_text() == "root:secret"


ROLES = Path(__file__).resolve().parents[2] / "roles"


def test_roles_that_fetch_what_root_uses_have_a_folder_for_it_and_look_again():
    """Data sets are the training user's own: nothing of them is run."""
    roles = {path.parents[1] for path in ROLES.glob("*/tasks/*.yml") if " download:" in path.read_text()}
    assert {role.name for role in roles} == {
        "ascend",
        "cuda_toolkit",
        "dataset",
        "nccl_tests",
        "nvidia_driver",
        "nvidia_library",
        "openmpi",
    }
    for role in roles - {ROLES / "dataset"}:
        tasks = "".join(path.read_text() for path in role.glob("tasks/*.yml"))
        assert "  private_folder:\n" in tasks and "sha256:" in tasks.partition("    file: ")[2], role.name


def test_no_role_works_in_a_folder_that_everybody_writes():
    for path in ROLES.glob("*/*/*.yml"):
        assert not re.search(r"(?<![\w}])/(var/)?tmp/", path.read_text()), path


def test_what_root_unpacks_was_compared_with_its_sum():
    """unarchive takes a file as it is by then; build_once has it from a folder of the controller's own."""
    roles = {path.parents[1].name for path in ROLES.glob("*/tasks/*.yml") if "builtin.unarchive:" in path.read_text()}
    assert roles == {"build_once"}
