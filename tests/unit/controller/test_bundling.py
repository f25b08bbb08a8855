"""How a bundle is put together: files of a real server that may break, sums, signatures by gpg."""

import copy
import hashlib
import http.server
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.bundle import contents, systems
from ansible.module_utils.trainyard.bundle.contents import Item
from ansible.module_utils.trainyard_controller.bundle import bundle_use, bundling
from ansible.module_utils.trainyard_controller.bundle.bundle_use import Bundle
from job_cluster import wait_for

CONTENT = bytes(range(256)) * 4096


class Server(http.server.ThreadingHTTPServer):
    """Sends CONTENT: all of it, what follows after the begin that is asked for, or too little of it.

    With a login only to who has it.
    """

    def __init__(self, ranges=True, sends=1 << 30, login=""):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.sends, self.begins, self.login = ranges, sends, [], login
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def item(self, path="files/x", content=CONTENT):
        address = f"http://127.0.0.1:{self.server_port}/x"
        return Item(path, address, len(content), hashlib.sha256(content).hexdigest(), "x 1")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.server.login and self.headers["Authorization"] != f"Basic {self.server.login}":
            self.send_error(401)
            return
        begin = int((self.headers["Range"] or "bytes=0-")[6:-1])
        self.server.begins.append(begin)
        if begin >= len(CONTENT):
            self.send_error(416)
            return
        begin = begin if self.server.ranges else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        self.wfile.write(CONTENT[begin : begin + self.server.sends])

    def log_message(self, *given):
        pass


@pytest.fixture
def server():
    made = []

    def make(**how):
        made.append(Server(**how))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()
        each.server_close()


def test_files_are_brought_once(server, tmp_path):
    there = server()
    items = [there.item("files/x"), there.item("wheels/y")]
    assert bundling.fetch(items, tmp_path, print) == []
    assert (tmp_path / "files/x").read_bytes() == (tmp_path / "wheels/y").read_bytes() == CONTENT
    assert bundling.fetch(items, tmp_path, print) == [] and there.begins == [0, 0]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_broke_is_gone_on_with(server, tmp_path, ranges):
    broken, whole = server(sends=5000), server(ranges=ranges)
    (found,) = bundling.fetch([broken.item()], tmp_path, print)
    assert found.check == "x 1" and not (tmp_path / "files/x").exists()
    assert bundling.fetch([whole.item()], tmp_path, print) == []
    assert (tmp_path / "files/x").read_bytes() == CONTENT and whole.begins == [5000]


def test_a_begin_that_is_whole_already_is_taken(server, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files/x.part").write_bytes(CONTENT)
    assert bundling.fetch([server().item()], tmp_path, print) == []


def test_another_content_is_refused_and_does_not_stay(server, tmp_path):
    (found,) = bundling.fetch([server().item(content=b"other")], tmp_path, print)
    assert hashlib.sha256(CONTENT).hexdigest() in found.found and list((tmp_path / "files").iterdir()) == []


def test_all_that_cannot_be_had_is_found_at_once(server, tmp_path):
    there = server().item()
    wrong = [
        Item(f"files/{url[:4]}", url, 1, there.sha256, url)
        for url in ("file:///proc/nowhere", "ftp://x/y", "http://127.0.0.1:1/x")
    ]
    found = bundling.fetch([*wrong, there], tmp_path, print)
    assert [each.check for each in found] == [each.what for each in wrong] and (tmp_path / "files/x").exists()


@pytest.fixture
def netrc(tmp_path, monkeypatch):
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path / "netrc"


@pytest.mark.parametrize("machine", ["127.0.0.1", "http://127.0.0.1"])
def test_a_login_is_that_of_netrc(server, tmp_path, netrc, machine):
    there = server(login="bWU6aHVudGVyMg==")
    item = replace(there.item("wheels/x"), url=there.item().url.replace("//", "//***@"))
    (found,) = bundling.fetch([item], tmp_path, print)
    assert "Unauthorized" in found.found and str(netrc) in found.action and not list(tmp_path.rglob("*.part"))
    netrc.write_text(f"machine {machine} login me password hunter2\n")
    assert bundling.fetch([item], tmp_path, print) == [] and (tmp_path / "wheels/x").read_bytes() == CONTENT
    netrc.write_text("\nhunter2")
    (found,) = bundling.fetch([replace(item, path="wheels/y")], tmp_path, print)
    assert f"{netrc}, line 2" in found.found and "hunter2" not in found.found


def test_a_file_that_wants_a_login_may_follow(server, tmp_path, netrc):
    item = server(login="x").item()
    assert bundling.fetch([item], tmp_path, print) == [] and bundling.refused([item], tmp_path) == [item]
    # Another file in its place would be signed.
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files/x").write_bytes(b"other")
    (found,) = bundling.fetch([item], tmp_path, print)
    assert f"{tmp_path}/files/x has sha256" in found.found and item.url in found.action
    # An address that breaks is no reason to do without.
    (found,) = bundling.fetch([server(sends=5).item()], tmp_path, print)
    assert "too early" in found.found


def test_a_file_of_this_machine_is_copied(tmp_path):
    source = tmp_path / "a b.whl"
    source.write_bytes(CONTENT)
    item = Item("wheels/a", source.as_uri(), 0, hashlib.sha256(CONTENT).hexdigest(), "a")
    assert bundling.fetch([item], tmp_path / "bundle", print) == []
    assert (tmp_path / "bundle/wheels/a").read_bytes() == CONTENT


def sum_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def first_made(tmp_path_factory):
    """A bundle with one package, and the key that signed it: gpg needs long for each step."""
    place = tmp_path_factory.mktemp("first")
    root, folder = place / "root", place / "bundle"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        "Package: small\nVersion: 1:1.0\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: small\n"
    )
    debs = folder / "debs/debian-12-x86_64"
    debs.mkdir(parents=True)
    subprocess.run(["dpkg-deb", "--build", str(root), str(debs / "small.deb")], check=True, capture_output=True)
    deb = {
        "name": "small",
        "version": "1:1.0",
        "architecture": "all",
        "file": "small.deb",
        "url": "",
        "bytes": 1,
        "sha256": sum_of(debs / "small.deb"),
    }
    packages = {"requested": [], "files": [deb]}
    lock = {"version": 1, "files": [], "missing": [],
            "systems": {"debian-12-x86_64": {"packages": packages, "environments": {}}}}  # fmt: skip
    (folder / "files").mkdir()
    (folder / "files/old.part").touch()
    with tempfile.TemporaryDirectory(dir="/tmp") as short, pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", short)
        key = bundling.Key(place / ("deep" * 25) / "key")
        bundling.finish(folder, lock, contents.items(lock), None, key, "0.1.0")
    return folder, key, lock


@pytest.fixture
def made(first_made, tmp_path, monkeypatch):
    """The bundle and its key, for one test to change, in a folder too deep for a socket."""
    first, signed_with, lock = first_made
    folder, key = tmp_path / "bundle", copy.copy(signed_with)
    key.home = tmp_path / ("deep" * 25) / "key"
    shutil.copytree(first, folder)
    shutil.copytree(signed_with.home, key.home, ignore=shutil.ignore_patterns("S.*"))
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield folder, key, lock


def gpgv(folder, *argv):
    """Verify with the public key of the bundle alone."""
    subprocess.run(
        ["gpg", "--batch", "--yes", "--dearmor", "-o", str(folder.parent / "key.gpg"), str(folder / "key.asc")],
        check=True,
    )
    done = subprocess.run(
        ["gpgv", "--keyring", str(folder.parent / "key.gpg"), *map(str, argv)], capture_output=True, check=False
    )
    return done.returncode


def test_a_bundle_is_whole_and_signed(made):
    folder, key, _ = made
    sums = contents.read_sums((folder / contents.SUMS).read_text())
    assert {path.split("/")[-1] for path in sums} == {
        "InRelease", "Packages", "Release", "key.asc", "lock", "missing.json", "sbom.cdx.json", "small.deb",
    }  # fmt: skip
    assert all(hashlib.sha256((folder / path).read_bytes()).hexdigest() == sums[path] for path in sums)
    repository = folder / "debs/debian-12-x86_64"
    assert "Package: small\n" in (repository / "Packages").read_text()
    assert gpgv(folder, folder / f"{contents.SUMS}.asc", folder / contents.SUMS) == 0
    assert gpgv(folder, repository / "InRelease") == 0
    (folder / contents.SUMS).write_text((folder / contents.SUMS).read_text().replace("lock", "rock"))
    assert gpgv(folder, folder / f"{contents.SUMS}.asc", folder / contents.SUMS) != 0
    pgrep = ["pgrep", "--full", f"gpg-agent --homedir {tempfile.gettempdir()}"]
    wait_for(lambda: subprocess.run(pgrep, check=False).returncode == 1, "the helper of gpg to end")
    # The same key signs the next one.
    assert bundling.Key(key.home).fingerprint == key.fingerprint
    assert key.home.stat().st_mode & 0o777 == 0o700


def test_a_bundle_since_an_older_one_is_whole_beside_its_files(made, tmp_path):
    older, key, lock = made
    newer = tmp_path / "newer"
    newer.mkdir()
    items = contents.new_since(contents.items(lock), bundling.older_sums(older))
    assert items == []
    bundling.finish(newer, lock, items, older, key, "0.1.0")
    assert not list(newer.rglob("*.deb")) and "Package: small" in (newer / "debs/debian-12-x86_64/Packages").read_text()

    (found,) = Bundle(newer).findings("")
    assert "has no debs/debian-12-x86_64/small.deb" in found.found and "cp -rn" in found.action
    shutil.copy(older / "debs/debian-12-x86_64/small.deb", newer / "debs/debian-12-x86_64")
    assert Bundle(newer).findings(key.fingerprint) == []


def test_a_bundle_that_was_changed_is_refused(made, tmp_path):
    folder, _, _ = made
    bundle = Bundle(folder)
    assert bundle.findings("") == []
    (folder / "lock").write_text((folder / "lock").read_text() + " ")
    found = bundle.findings("00 00")
    assert [each.expected for each in found] == ["00 00", bundle.sums["lock"]]
    (folder / contents.SUMS).write_text("")
    with pytest.raises(UnusableError, match="is not signed by"):
        Bundle(folder)
    with pytest.raises(UnusableError, match="is no bundle"):
        Bundle(tmp_path / "none")


def test_a_refused_file_is_asked_for_where_it_is_needed(made, server, netrc):
    folder, key, lock = made
    item = server(login="x").item()
    file = {"what": "toolkit 8.0", "url": item.url, "sha256": item.sha256}
    lock = {**lock, "files": [file]}
    assert bundling.fetch(contents.items(lock), folder, print) == []
    bundling.finish(folder, lock, contents.items(lock), None, key, "0.1.0")
    (missing,) = json.loads((folder / "missing.json").read_text())
    assert (missing["sha256"], missing["where"]) == (item.sha256, "files/x")

    bundle, asked = Bundle(folder), {"n1": {"ascend": {"sources": [file]}}}
    assert bundle.findings("") == [] and bundle.refused({"n1": {}}) == []
    (found,) = bundle.refused(asked)
    assert found.check == "toolkit 8.0" and item.sha256 in found.expected and item.url in found.action
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files/x").write_bytes(b"other")
    (found,) = bundle.refused(asked)
    assert hashlib.sha256(b"other").hexdigest() in found.found
    (folder / "files/x").write_bytes(CONTENT)
    assert bundle.findings("") == bundle.refused(asked) == []
    assert bundle.files() == {item.sha256: str(folder / "files/x")}


def test_a_node_gets_files_of_root_alone(made, tmp_path):
    folder, _, _ = made
    (folder / "debs/debian-12-x86_64/unsigned.deb").touch()
    bundle, system = Bundle(folder), systems.named("debian-12-x86_64")
    bundle.pack(system, tmp_path / "part.tar")
    with tarfile.open(tmp_path / "part.tar") as archive:
        members = archive.getmembers()
    names = ["InRelease", "Packages", "Release", "small.deb"]
    assert [each.name for each in members] == [*(f"debs/debian-12-x86_64/{name}" for name in names), "key.asc"]
    assert {(each.uid, each.mode, each.type) for each in members} == {(0, 0o644, tarfile.REGTYPE)}
    assert bundle.kib(system) >= 5


def exchanged(path, how):
    """Put something else in the place of a file."""
    content = path.read_bytes()
    if how == "content":
        path.write_bytes(content.replace(b"debian", b"xxxxxx") + b"!")
        return
    path.unlink()
    if how == "link":
        path.with_name("aside").write_bytes(content)
        path.symlink_to("aside")
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("how", ["content", "link", "pipe"])
def test_a_file_that_is_exchanged_after_the_check_does_not_travel(made, tmp_path, how):
    folder, _, _ = made
    bundle, target = Bundle(folder), tmp_path / "part.tar"
    assert bundle.findings("") == []
    exchanged(folder / "debs/debian-12-x86_64/small.deb", how)
    with pytest.raises((UnusableError, OSError), match=r"small\.deb"):
        bundle.pack(systems.named("debian-12-x86_64"), target)
    assert not target.exists()


def test_a_file_that_changes_while_it_is_packed_does_not_travel(made, tmp_path, monkeypatch):
    folder, _, _ = made
    bundle, target, deb = Bundle(folder), tmp_path / "part.tar", folder / "debs/debian-12-x86_64/small.deb"
    whole = deb.stat().st_size
    opened = bundle_use.open_regular

    def changes(path):
        file = opened(path)
        if path == deb:
            # The size stays, the begin is another one.
            with deb.open("r+b") as other:
                other.write(b"?")
        return file

    monkeypatch.setattr(bundle_use, "open_regular", changes)
    with pytest.raises(UnusableError, match="was exchanged"):
        bundle.pack(systems.named("debian-12-x86_64"), target)
    assert deb.stat().st_size == whole and not target.exists()


@pytest.mark.parametrize("name", ["lock", contents.SUMS])
def test_what_a_bundle_says_is_what_was_signed(made, name):
    folder, _, _ = made
    text = (folder / name).read_text()
    (folder / name).write_text(f"{text} " if name == "lock" else text.replace("lock", "rock"))
    with pytest.raises(UnusableError, match="nothing of this bundle is trusted"):
        Bundle(folder)


def test_a_file_of_sums_that_is_no_file_is_not_waited_for(made):
    folder, _, _ = made
    exchanged(folder / contents.SUMS, "pipe")
    with pytest.raises(UnusableError, match=f"{contents.SUMS} cannot be read"):
        Bundle(folder)


def signed_anew(folder, tmp_path):
    """Have somebody else change a bundle, and sign it with a key of their own."""
    stranger = bundling.Key(tmp_path / "stranger")
    deb = folder / "debs/debian-12-x86_64/small.deb"
    deb.write_bytes(deb.read_bytes() + b"!")
    stranger.export(folder / "key.asc")
    sums = contents.read_sums((folder / contents.SUMS).read_text())
    sums |= {path: sum_of(folder / path) for path in sums}
    (folder / contents.SUMS).write_text(contents.sums_text(sums))
    stranger.sign(folder / contents.SUMS)
    return stranger.fingerprint


def test_a_bundle_that_somebody_else_signed_is_refused(made, tmp_path):
    folder, key, _ = made
    stranger = signed_anew(folder, tmp_path)
    (found,) = Bundle(folder).findings(key.fingerprint)
    assert (found.found, found.expected) == (f"signed by the key {stranger}", key.fingerprint)


@pytest.mark.parametrize("weak", ["folder", "above", "sums"])
def test_a_bundle_that_others_can_exchange_needs_its_key(made, weak):
    folder, key, _ = made
    place = {"folder": folder, "above": folder.parent, "sums": folder / contents.SUMS}[weak]
    place.chmod(place.stat().st_mode | 0o002)
    (found,) = Bundle(folder).findings("")
    assert str(place) in found.found and stat.filemode(place.stat().st_mode) in found.found
    assert "trainyard_bundle_key" in found.action and "chmod" in found.action
    # A key that is copied from the message would be that of anybody.
    assert key.fingerprint not in found.action
    assert Bundle(folder).findings(key.fingerprint) == []


def test_a_bundle_of_another_user_needs_its_key(made, monkeypatch):
    folder, key, _ = made
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    else:
        os.chown(folder, 65534, 65534)
    (found,) = Bundle(folder).findings("")
    assert "can be changed by others" in found.found
    assert Bundle(folder).findings(key.fingerprint) == []


def test_a_bundle_knows_when_it_was_signed(made):
    folder, key, _ = made
    before = int(time.time())
    key.sign(folder / contents.SUMS)
    assert before <= Bundle(folder).made <= time.time()
