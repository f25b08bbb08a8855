"""Which folder hangs, is full, slow, or shared by some nodes only; and the question itself, on this machine's disk."""

from __future__ import annotations

import os
import pwd
import random
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard.verify import storage
from ansible.module_utils.trainyard_node.agent import QUESTIONS
from ansible.module_utils.trainyard_node.machine import shared_folders
from ansible.module_utils.trainyard_node.verify import folder_speed

PATH, NAME = "/state", ".trainyard-0123456789abcdef"
# A healthy disk of 3.8 TB.
PLACE = {
    "kind": "xfs", "user": "train", "problem": "", "state": "", "step": "", "size": 38 * 10**11, "free": 2 * 10**12,
    "inodes": 10**8, "free_inodes": 9 * 10**7, "bytes": 1 << 28, "direct": True, "read_only": False, "denied": False,
    "silent": False, "write": 1e9, "read": 2e9, "files": 5000.0,
}  # fmt: skip


def answered(*places):
    return {f"n{at}": {"paths": {PATH: each}} for at, each in enumerate(places, start=1)}


def checks(*places, shared=(), again=None, alone=()):
    """Return the checks of nodes n1, n2, ...; those in `shared` see one folder."""
    together, token = answered(*places), {"kernel": False, "place": "", "token": "a" * 32, "wrote": False}
    local = {host: {**token, "kernel": True, "place": f"{at:032x}"} for at, host in enumerate(together)}
    folders = {host: {PATH: token if host in shared else local[host]} for host in together}
    return storage.verify([PATH], answered(*alone), together, folders, answered(*(again or places)), "again")


def wrong(found):
    return [(each.name, each.state, each.hosts) for each in found if each.state not in ("pass", "skipped")]


def test_healthy_disks_pass_and_show_their_speed_and_what_a_checkpoint_takes():
    space, sharing, speed = checks(*[PLACE] * 5, alone=[{**PLACE, "write": 3e9}])
    assert {each.state for each in (space, sharing, speed)} == {"pass"}
    assert (space.found, sharing.found) == ("at least 53% of the space is free", "local")
    assert speed.found.startswith(
        "xfs of 3.8 TB (O_DIRECT) on 5 nodes: writing 1 GB/s (1 GB/s to 1 GB/s), reading 2 GB/s"
    )
    assert (
        "; n1 alone: writing 3 GB/s, reading 2 GB/s, small files 5000/s; a checkpoint of 100 GB of one node"
        in speed.found
    )
    _, sharing, speed = checks(*[{**PLACE, "write": 8e7}] * 5, shared=answered(*[PLACE] * 5))
    assert sharing.found == "shared by all"
    assert speed.found.endswith("a checkpoint of 100 GB that all write takes 4 minutes")


def test_few_equal_disks_are_shown_and_not_judged():
    assert [each.state for each in checks(*[PLACE] * 3, {**PLACE, "write": 1e6})] == ["pass", "pass", "skipped"]
    assert wrong(checks(*[PLACE] * 4, {**PLACE, "write": 1e8, "size": 10**12})) == []


@pytest.mark.parametrize("figure", storage.FIGURES)
def test_a_node_that_is_slow_twice_is_named(figure):
    usual, name = [PLACE] * 5, f"{storage.FIGURES[figure]} in /state"
    slow = [*usual, {**PLACE, figure: PLACE[figure] / 2.5}]
    assert storage.has_slow([PATH], answered(*slow)) and not storage.has_slow([PATH], answered(*usual))
    assert wrong(checks(*slow)) == [(name, "fail", ("n6",))]
    assert wrong(checks(*slow, again=[PLACE] * 6)) == []
    assert wrong(checks(*slow, again=usual)) == [(name, "unknown", ("n6",))]
    assert wrong(checks(*slow, shared=answered(*slow))) == [(name, "unknown", ("n6",))]


@pytest.mark.parametrize(("fault", "name", "state"), [
    ({"silent": True, "step": "opening", "state": "D", "size": 0, "inodes": 0}, "access", "fail"),
    ({"silent": True, "step": "writing"}, "access", "unknown"), ({"read_only": True}, "access", "fail"),
    ({"problem": "No such file", "step": "opening"}, "access", "fail"), ({"step": "writing"}, "access", "unknown"),
    ({"problem": "Input/output error", "step": "reading"}, "access", "fail"), ({"free": 10**11}, "space", "unknown"),
    ({"free_inodes": 10**6}, "space", "unknown"), ({"free_inodes": 0}, "space", "fail"),
    ({"write": None}, "speed", "unknown"),
])  # fmt: skip
def test_a_folder_that_cannot_be_used_is_named(fault, name, state):
    (named,) = [each for each in checks(PLACE, {**PLACE, **fault}, PLACE) if each.state not in ("pass", "skipped")]
    assert (named.name.split()[0], named.state, named.hosts) == (name, state, ("n2",))
    assert named.reason and named.action and ("state D" in named.found) == (fault.get("state") == "D")


def test_a_path_that_only_some_share_is_named_with_who_sees_what():
    (named,) = [each for each in checks(*[PLACE] * 3, shared=["n1", "n3"]) if each.state == "fail"]
    assert (named.hosts, named.found) == (("n2",), "shared by n1, n3; local on n2")


def test_what_no_node_says_is_unknown():
    results = {"n5": {"paths": {}}, "n6": {"failed": True, "msg": "no answer"}, **answered(PLACE, PLACE)}
    found = wrong(storage.verify([PATH], {}, results, {}, {}, ""))
    assert {state for _, state, _ in found} == {"unknown"}
    assert [hosts for _, _, hosts in found] == [("n6",), ("n5",), ("n1", "n2")]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", [1, 4, 8, 64])
def test_healthy_clusters_raise_no_alarm(count, shared):
    """1,000 clusters: disks differ by 10 % from one another, and by 15 % from one measurement to the next."""
    chance = random.Random(count)  # noqa: S311

    def measured(quality):
        return {**PLACE, **{key: PLACE[key] * quality * chance.lognormvariate(0, 0.15) for key in storage.FIGURES}}

    for _ in range(125):
        qualities = [chance.lognormvariate(0, 0.1) for _ in range(count)]
        first, second = ([measured(quality) for quality in qualities] for _ in range(2))
        assert wrong(checks(*first, again=second, shared=answered(*first) if shared else ())) == []


@pytest.mark.parametrize("fault", [{"problem": "x\nfail: n9\x1b[31m"}, {"kind": "x\nfail: n9\x1b[31m"}])
def test_texts_of_nodes_stay_on_one_line(fault):
    answer = checked("storage", {"paths": {PATH: {**PLACE, **fault}}, "folders": {}}, "n1")
    for found in (*checks({**PLACE, **fault}), *storage.verify([PATH], {}, {"n1": answer}, {}, {}, "")):
        assert not {"\n", "\x1b"} & {*found.found, *found.reason, *found.name}
    assert checked("storage", {"paths": {PATH: {**PLACE, "write": 0}}, "folders": {}}, "n1")["failed"]


# ---- the question


def ask(path, user="", name="", state=""):
    given = {"paths": [str(path)], "size": 8 << 20, "hosts": 1, "name": name, "state": str(state)}
    given["user"] = user or pwd.getpwuid(os.getuid()).pw_name
    return checked("storage", QUESTIONS["storage"](**given), "n1")["paths"][str(path)]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Return a folder of this machine, which only root can exchange."""
    monkeypatch.setattr(folder_speed.private, "only_root_changes", lambda _: True)
    return tmp_path


def test_a_folder_is_measured_and_left_empty(folder, monkeypatch):
    monkeypatch.setattr(shared_folders, "LOCAL", frozenset())
    place = ask(folder, name=NAME)
    assert (place["problem"], place["step"], place["bytes"]) == ("", "", 8 << 20), place
    assert place["kind"] and min(place[figure] for figure in storage.FIGURES) > 0 < place["free"] < place["size"]
    assert [each.name for each in folder.iterdir()] == [NAME]
    (folder / NAME).unlink()
    assert ask(folder / "none")["problem"] == "No such file or directory"
    # The first job makes the folder; and an error leaves nothing behind.
    monkeypatch.setattr(os, "fsync", lambda _: Path("/nowhere").read_text())
    place = ask(folder / "state/jobs", state=folder / "state/jobs")
    assert (place["problem"], place["step"], [*folder.iterdir()]) == ("No such file or directory", "writing", [])


@pytest.mark.parametrize(("call", "step"), [("statvfs", "opening"), ("preadv", "reading")])
def test_a_path_that_hangs_is_left_behind_and_named(folder, monkeypatch, call, step):
    """A FIFO that nobody writes stands for the mount: the process that touches it sleeps."""
    stuck, fifo = folder / "stuck", folder / "fifo"
    stuck.mkdir(), os.mkfifo(fifo)
    monkeypatch.setattr(os, call, lambda *_: fifo.read_bytes())
    # The disk of a busy machine may rest for seconds.
    monkeypatch.setattr(folder_speed, "SILENT_S", 5.0)
    found, deadline = ask(stuck), time.monotonic() + 240
    assert (found["silent"], found["state"], found["step"]) == (True, "S", step) and storage.SILENT_S < 10
    while [*stuck.iterdir()] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [*stuck.iterdir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="it changes users")
@pytest.mark.parametrize(("owner", "user", "denied"), [(65534, "nobody", False), (0, "root", False), (1, "root", True)])
def test_root_writes_only_where_the_training_user_and_others_may_not(owner, user, denied):
    folder = Path("/var/tmp", f"trainyard-test-{os.getpid()}")  # noqa: S108
    folder.mkdir()
    try:
        os.chown(folder, owner, owner)
        found = ask(folder, "nobody")
        assert (found["user"], found["denied"]) == (user, denied), found
        assert found["problem"] == ("nobody may not write there" if denied else "")
    finally:
        folder.rmdir()
