"""States of a node for the tests of the removal."""

from ansible.module_utils.trainyard.removal import removal_record
from ansible.module_utils.trainyard.removal.history import Package

ABSENT = {"kind": "absent"}


def file(content="0" * 64, mode=0o644):
    return {"kind": "file", "mode": mode, "uid": 0, "gid": 0, "content": content}


def folder(*names):
    return {"kind": "folder", "mode": 0o755, "uid": 0, "gid": 0, "content": sorted(names)}


def node(**changes):
    """A node with nothing, and `changes`."""
    state = {
        "packages": {"base": "1"}, "leftover": [], "automatic": [], "held": [], "users": {"root": 0},
        "groups": {"root": 0}, "members": {}, "user_gid": -1, "user_groups": [],
        "places": {}, "units": {}, "written": {}, "installed": {}, "found": {}, "matches": {},
        "cleaned": {}, "uses": [], "processes": [], "lingers": False,
        "home": {"path": "", "own": []}, "homes": [], "added": [], "doubtful": (),
    }  # fmt: skip
    return {**state, **changes}


def record_of(before=None, after=None, history="", **options):
    """The record after one run that found `before` and left `after`."""
    opened = removal_record.opened(
        removal_record.new("2026-11-26T10:00:00Z", False), before or node(), "2026-11-26  10:00:00"
    )
    settings = {"user": "train", "interrupted": False, **options}
    return removal_record.closed(opened, after or node(), history, **settings)


def depends(*groups):
    return Package(tuple((each,) if isinstance(each, str) else each for each in groups))
