"""The record of a node before trainyard: what counts as trainyard's, and which records are refused."""

import json
import string

import pytest
from ansible.module_utils.trainyard.removal import removal_record
from hypothesis import given
from hypothesis import strategies as st
from removal_states import ABSENT, file, node, record_of

ANSIBLE = "/usr/bin/apt-get -y -o Dpkg::Options::=--force-confdef install rsync"


def log(command, *names, when="2026-11-26  10:00:05"):
    listed = ", ".join(f"{name}:amd64 (1.0)" for name in names)
    return f"\nStart-Date: {when}\nCommandline: {command}\nInstall: {listed}\nEnd-Date: {when}\n"


def test_what_is_new_in_a_window_is_ours():
    after = node(
        packages={"base": "2", "rsync": "1", "libpopt0": "1"},
        automatic=["libpopt0"],
        users={"root": 0, "train": 2000, "munge": 105, "anna": 1001},
        groups={"root": 0, "train": 2000, "munge": 105, "anna": 1001},
        user_gid=2000,
    )
    record = record_of(after=after)
    assert record["packages"] == {
        "rsync": {"automatic": False, "purge": True},
        "libpopt0": {"automatic": True, "purge": True},
    }
    assert record["upgraded"] == {"base": ["1", "2"]}
    # A person whom somebody added meanwhile is not ours; the accounts of packages are.
    assert record["users"] == {"train": 2000, "munge": 105} and record["groups"] == {"train": 2000, "munge": 105}
    assert record["window"] is None


def test_the_log_of_apt_tells_the_work_of_others_apart():
    after = node(packages={"base": "1", "rsync": "1", "htop": "1", "linux-image-9": "9", "older": "1"})
    history = (
        log(ANSIBLE, "older", when="2026-11-26  09:59:59")
        + log(ANSIBLE, "rsync")
        + log("apt install htop", "htop")
        + log("/usr/bin/unattended-upgrade", "linux-image-9")
    )
    assert sorted(record_of(after=after, history=history)["packages"]) == ["older", "rsync"]
    # Days may have passed since a run that was interrupted: only what the log calls Ansible's is ours.
    interrupted = record_of(after=after, history=history, interrupted=True)
    assert sorted(interrupted["packages"]) == ["rsync"]


def test_an_interrupted_run_takes_no_account_but_the_training_users():
    after = node(
        users={"root": 0, "train": 2000, "chrony": 107}, groups={"root": 0, "crew": 2000, "chrony": 107}, user_gid=2000
    )
    record = record_of(after=after, interrupted=True)
    assert record["users"] == {"train": 2000} and record["groups"] == {"crew": 2000}


def test_a_second_run_changes_nothing_of_the_record():
    before = node(
        places={"/etc/hosts": file("a" * 64), "/etc/trainyard": ABSENT}, units={"chrony.service": ["disabled", "x"]}
    )
    after = node(packages={"base": "1", "rsync": "1"}, users={"root": 0, "train": 2000}, written={"/etc/x": file()})
    first = record_of(before, after)
    again = removal_record.opened(first, {**after, "places": {"/etc/hosts": file("b" * 64)}}, "2026-11-27  10:00:00")
    assert again["places"]["/etc/hosts"]["content"] == "a" * 64
    assert removal_record.closed(again, after, "", user="train", interrupted=False) == first


def test_marks_and_holds_that_a_run_made_are_undone():
    before = node(packages={"base": "1", "g++": "1"}, automatic=["g++"], held=["base"])
    after = node(packages={"base": "1", "g++": "1", "nccl": "1"}, automatic=[], held=["base", "g++", "nccl"])
    record = record_of(before, after)
    assert record["manual"] == ["g++"] and record["held"] == ["g++"]


def test_a_package_whose_settings_were_left_keeps_them():
    after = node(packages={"base": "1", "chrony": "1"})
    assert record_of(node(leftover=["chrony"]), after)["packages"]["chrony"]["purge"] is False


def test_what_is_gone_is_forgotten_and_a_home_that_stays_is_not():
    after = node(packages={"base": "1", "rsync": "1", "libmpi": "1"}, users={"train": 2000}, groups={"train": 2000})
    left = removal_record.forget(record_of(after=after), node(packages={"base": "1", "libmpi": "1"}), "/home/train")
    assert list(left["packages"]) == ["libmpi"] and left["users"] == left["groups"] == {}
    assert left["homes"] == ["/home/train"]
    assert (
        removal_record.forget(left, node(), "")["homes"] == ["/home/train"]
        and removal_record.loads(removal_record.dumps(left).encode()) == left
    )


WINDOW = removal_record.opened(
    removal_record.new("2026", True), node(places={"/a": file(), "/b": ABSENT}), "2026-11-26  10:00:00"
)


@pytest.mark.parametrize("record", [removal_record.new("", False), record_of(), WINDOW])
def test_a_record_is_read_as_it_was_written(record):
    assert removal_record.loads(removal_record.dumps(record).encode()) == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trainyard_removal_record": 2}, "its version is 2, this trainyard reads 1"),
        ({"packages": {"-o=x": {"automatic": True, "purge": True}}}, "its field packages is damaged"),
        ({"packages": {"rsync": {"automatic": True}}}, "its field packages is damaged"),
        ({"users": {"root": 0}}, "its field users is damaged"),
        ({"users": {"--root": 5}}, "its field users is damaged"),
        ({"places": {"etc/hosts": ABSENT}}, "its field places is damaged"),
        ({"places": {"/etc/../root": ABSENT}}, "its field places is damaged"),
        ({"places": {"/": ABSENT}}, "its field places is damaged"),
        ({"places": {"/etc/hosts": {**file(), "mode": True}}}, "its field places is damaged"),
        ({"homes": ["/home"]}, "its field homes is damaged"),
        ({"window": {}}, "its field window is damaged"),
        ({"units": {"x": ["a", "b"]}}, "its field units is damaged"),
        ({"more": 1}, "it has or lacks more"),
    ],
)
def test_a_damaged_record_is_refused_by_name(change, said):
    with pytest.raises(removal_record.RecordError, match=said):
        removal_record.loads(json.dumps({**record_of(), **change}).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"version": 1}'])
def test_something_else_is_no_record(content):
    with pytest.raises(removal_record.RecordError):
        removal_record.loads(content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable, max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(removal_record.new("", False))), VALUES)
def test_a_record_with_anything_in_a_field_is_read_or_refused(name, value):
    try:
        found = removal_record.loads(json.dumps({**record_of(), name: value}).encode())
    except removal_record.RecordError:
        return
    assert set(found) == set(record_of())
    assert all(isinstance(found[key], dict) for key in ("places", "packages", "users", "groups"))
