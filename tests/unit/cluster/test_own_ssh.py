"""Logins among hosts by the user's own key: the lines in ~/.ssh, with ssh-keygen itself."""

import os

import pytest
from ansible.module_utils.trainyard.cluster.own_ssh_lines import AUTHORIZED, KNOWN, lines, mark, with_lines
from ansible.module_utils.trainyard.removal.places import Settings, our_lines, places
from ansible.module_utils.trainyard_node.cluster import own_ssh
from filters import of_hosts

ONE, TWO, OTHER = (f"ssh-ed25519 {letter * 60}" for letter in "ABC")
END = mark("ours")


def test_every_host_has_the_lines_for_all(tmp_path):
    """Hosts that share a home have one key. A host vouches for its own names only."""
    nodes = {
        "n1": {"ansible_host": "10.0.0.1", "__ssh_mesh_own": {"user_key": ONE, "host_keys": [OTHER]}},
        "n2": {"__ssh_mesh_own": {"user_key": ONE, "host_keys": [TWO]}},
        "n3": {"__ssh_mesh_own": {"user_key": "", "host_keys": []}},
    }
    assert of_hosts("own_ssh_lines", nodes, "ours") == {
        AUTHORIZED: [f"{ONE} {END}"],
        KNOWN: [f"n1,10.0.0.1 {OTHER} {END}", f"n2 {TWO} {END}"],
    }
    assert lines([{"name": "n1"}], "ours") == {AUTHORIZED: [], KNOWN: []}


@pytest.mark.parametrize("evil", [f'command="x" {ONE}', f"{ONE}\n{TWO}", f"{ONE} comment", "ssh-ed25519 A", 7])
def test_a_host_can_add_neither_options_nor_lines(evil):
    for answer in ({"user_key": evil, "host_keys": []}, {"user_key": "", "host_keys": [evil]}):
        with pytest.raises(ValueError, match="the answer cannot be used"):
            of_hosts("own_ssh_lines", {"n1": {"__ssh_mesh_own": answer}}, "ours")


def test_lines_of_others_stay_and_ours_are_written_once():
    theirs = f"# mine\n{TWO} ann@laptop\n{OTHER} trainyard:another\n"
    written = with_lines(theirs, [f"{ONE} {END}", f"{TWO} {END}"])
    assert written == f"{theirs}{ONE} {END}\n"
    assert with_lines(written, [f"{ONE} {END}", f"{TWO} {END}"]) == written
    # A file without a last newline; another host's line of an earlier run, with --limit.
    assert with_lines(f"{TWO} {END}\n{OTHER} x", [f"{ONE} {END}"]) == f"{TWO} {END}\n{OTHER} x\n{ONE} {END}\n"


def test_the_line_of_a_host_that_was_installed_anew_is_replaced():
    before = f"n1,10.0.0.1 {ONE} {END}\nn2 {TWO} {END}\nn1,10.0.0.1 {OTHER} trainyard:another\n"
    after = f"n2 {TWO} {END}\nn1,10.0.0.1 {OTHER} trainyard:another\nn1,10.0.0.1 {OTHER} {END}\n"
    assert with_lines(before, [f"n1,10.0.0.1 {OTHER} {END}"]) == after


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1201)
    return tmp_path / ".ssh"


def test_a_key_is_made_once_and_never_replaced(home):
    assert own_ssh.read(mark=END, make=False)["user_key"] == "" and not home.exists()
    first = own_ssh.read(mark=END, make=True)
    assert first["changed"] and home.stat().st_mode & 0o777 == 0o700
    private = (home / "id_ed25519").read_bytes()
    # Another host shares the home, and had not seen the key yet.
    own_ssh._make(home / "id_ed25519", END)
    assert own_ssh.read(mark=END, make=True) == {**first, "changed": False}
    assert (home / "id_ed25519").read_bytes() == private and (home / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in home.iterdir()) == ["id_ed25519", "id_ed25519.pub"]
    # Its public half can be had again.
    (home / "id_ed25519.pub").unlink()
    assert own_ssh.read(mark=END, make=True) == {**first, "changed": False}


def test_root_gets_no_key(home, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert own_ssh.read(mark=END, make=True) == {"changed": False, "user_key": "", "host_keys": []}


def test_files_are_replaced_at_once_and_keep_mode_and_links(home, tmp_path):
    home.mkdir()
    (tmp_path / "keys").write_text(f"{TWO} ann\n")
    (tmp_path / "keys").chmod(0o644)
    (home / AUTHORIZED).symlink_to(tmp_path / "keys")
    files = {AUTHORIZED: [f"{ONE} {END}"], KNOWN: [f"n1 {TWO} {END}"]}
    assert own_ssh.trust(files, check=True)["changed"] and not (home / KNOWN).exists()
    assert own_ssh.trust(files, check=False)["changed"]
    assert (home / AUTHORIZED).is_symlink() and (tmp_path / "keys").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "keys").read_text() == f"{TWO} ann\n{ONE} {END}\n"
    assert (home / KNOWN).read_text() == f"n1 {TWO} {END}\n" and (home / KNOWN).stat().st_mode & 0o777 == 0o600
    assert own_ssh.trust(files, check=False) == {"changed": False, "diff": []}


def test_the_removal_knows_just_marked_lines():
    settings = Settings(cluster="ours", home="/home/ann", manage_system=False)
    path = f"/home/ann/.ssh/{AUTHORIZED}"
    assert path in [place.path for place in places(settings)]
    assert our_lines(path, f"{TWO} ann\n{ONE} {END}\n", settings) == [f"{ONE} {END}"]
    assert not [place for place in places(Settings(manage_system=False)) if ".ssh" in place.path]
