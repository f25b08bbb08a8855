# SPDX-License-Identifier: Apache-2.0
"""The record of what a node was before trainyard, and of what came with it.

A run of site.yml opens a window in the record before its first change, and closes it after the last one. All that is
new in a closed window is trainyard's. A run that was interrupted leaves its window open; the next one, or remove.yml,
closes it. Others may have worked on the node meanwhile: then only packages count that Ansible installed, by apt's log.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from .history import installed_by

VERSION = 1
# Upper bounds of a record: bytes of the file, names in a list, characters of a path.
MAX_BYTES, _MAX_NAMES, _MAX_PATH = 8 << 20, 100_000, 4096
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?")
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
# The first uid of people (login.defs, UID_MIN).
FIRST_UID = 1000

Record = dict[str, Any]
# The state of a node: `packages` (version by name), `leftover` (removed packages whose settings are there),
# `automatic`, `held`, `users` and `groups` (number by name), `places` (state by path), `units` (state by name).
State = Mapping[str, Any]


class RecordError(ValueError):
    """The record is damaged, or belongs to something else; the text says how."""


def new(since: str, late: bool) -> Record:
    """Return an empty record. `late` tells that trainyard was on the node before it."""
    return {
        "trainyard_removal_record": VERSION,
        "since": since,
        "late": late,
        "places": {},
        "written": {},
        "packages": {},
        "upgraded": {},
        "manual": [],
        "held": [],
        "users": {},
        "groups": {},
        "members": {},
        "units": {},
        "homes": [],
        "window": None,
    }


def opened(record: Record, state: State, when: str) -> Record:
    """Return the record with an open window, in which everything of `state` was there before."""
    after = copy.deepcopy(record)
    after["window"] = {
        "opened": when,
        **{name: dict(state[name]) for name in ("packages", "users", "groups")},
        **{name: sorted(state[name]) for name in ("leftover", "automatic", "held")},
    }
    for path, place in state["places"].items():
        after["places"].setdefault(path, place)
    for name, unit in state["units"].items():
        after["units"].setdefault(name, unit)
    if state["members"]:
        after["members"] = record["members"] or dict(state["members"])
    return after


def closed(record: Record, state: State, history: str, *, user: str, interrupted: bool) -> Record:
    """Return the record without its window: what is new since then is trainyard's, if the log of apt does not differ.

    `history` is apt's log. `interrupted` tells that others may have changed the node since.
    """
    window = record["window"]
    if window is None:
        return record
    after = copy.deepcopy(record)
    after["window"] = None
    ours, others = installed_by(history, window["opened"])
    for name in sorted(set(state["packages"]) - set(window["packages"])):
        if name in ours if interrupted else name in ours or name not in others:
            after["packages"][name] = {"automatic": name in state["automatic"], "purge": name not in window["leftover"]}
    for name, version in window["packages"].items():
        now = state["packages"].get(name, version)
        if now != version and name not in after["packages"]:
            after["upgraded"][name] = [after["upgraded"].get(name, [version])[0], now]
    before = set(window["packages"])
    turned = (set(window["automatic"]) - set(state["automatic"])) & before & set(state["packages"])
    after["manual"] = sorted({*after["manual"], *(() if interrupted else turned)} - set(after["packages"]))
    held = () if interrupted else set(state["held"]) - set(window["held"])
    after["held"] = sorted({*after["held"], *held} - set(after["packages"]))
    for kind in ("users", "groups"):
        for name, number in state[kind].items():
            system = number < FIRST_UID and not interrupted
            if name not in window[kind] and (system or name == user or _group_of(name, number, user, state, kind)):
                after[kind][name] = number
    after["written"] = {**after["written"], **({} if interrupted else state["written"])}
    return after


def _group_of(name: str, number: int, user: str, state: State, kind: str) -> bool:
    """Tell whether this is the group of the training user, which may have another name."""
    return kind == "groups" and bool(name) and number == state["user_gid"] and user in state["users"]


def forget(record: Record, state: State, home: str) -> Record:
    """Return the record without what is gone now, so that it is not taken from others who bring it again.

    `home` is the folder of a user who was removed, if it stays.
    """
    after = copy.deepcopy(record)
    for kind in ("packages", "users", "groups"):
        after[kind] = {name: each for name, each in after[kind].items() if name in state[kind]}
    after["homes"] = sorted({*after["homes"], *([home] if home else [])})
    after.update(manual=[], held=[], units={}, members={}, upgraded={})
    return after


def dumps(record: Record) -> str:
    """Write a record as text."""
    return json.dumps(record, indent=1, sort_keys=True) + "\n"


def loads(content: bytes) -> Record:
    """Read a record. Raises RecordError for anything else, as root acts on it."""
    if len(content) > MAX_BYTES:
        raise RecordError(f"it has {len(content)} bytes, expected at most {MAX_BYTES}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"it is no JSON: {str(error)[:100]}") from None
    if not isinstance(found, dict) or "trainyard_removal_record" not in found:
        raise RecordError("it is not trainyard's")
    if found["trainyard_removal_record"] != VERSION:
        raise RecordError(
            f"its version is {str(found['trainyard_removal_record'])[:20]}, this trainyard reads {VERSION}"
        )
    model = new("", late=False)
    if set(found) != set(model):
        wrong = sorted(set(found) ^ set(model))
        raise RecordError(f"it has or lacks {', '.join(str(name)[:60] for name in wrong[:5])}")
    for name, check in _FIELDS.items():
        try:
            fits = check(found[name])
        except (TypeError, AttributeError, KeyError, ValueError):
            fits = False
        if not fits:
            raise RecordError(f"its field {name} is damaged")
    return found


def _texts(value: Any, form: re.Pattern[str]) -> bool:
    return isinstance(value, list) and len(value) <= _MAX_NAMES and all(form.fullmatch(each) for each in value)


def _is_path(value: Any) -> bool:
    clean = isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) <= _MAX_PATH
    return clean and ".." not in value.split("/") and value.strip("/") != ""


def _is_place(value: Any) -> bool:
    kind = value.get("kind")
    if kind == "absent":
        return set(value) == {"kind"}
    right = all(type(value[name]) is int and 0 <= value[name] < 1 << 32 for name in ("mode", "uid", "gid"))
    content = value["content"]
    if kind == "folder":
        return right and isinstance(content, list) and all(isinstance(each, str) for each in content)
    return right and kind in ("file", "link", "other") and isinstance(content, str)


def _places(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_path(path) and _is_place(place) for path, place in value.items())


def _accounts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _ACCOUNT.fullmatch(name) and type(number) is int and 0 < number < 1 << 32 for name, number in value.items()
    )


def _is_package(entry: Any) -> bool:
    return set(entry) == {"automatic", "purge"} and all(isinstance(each, bool) for each in entry.values())


def _window(value: Any) -> bool:
    if value is None:
        return True
    names = {"opened", "packages", "users", "groups", "leftover", "automatic", "held"}
    lists = all(_texts(value[name], _PACKAGE) for name in ("leftover", "automatic", "held"))
    numbers = all(isinstance(value[name], dict) for name in ("packages", "users", "groups"))
    return set(value) == names and isinstance(value["opened"], str) and lists and numbers


_FIELDS = {
    "since": lambda value: isinstance(value, str) and len(value) <= 64,
    "late": lambda value: isinstance(value, bool),
    "places": _places,
    "written": _places,
    "packages": lambda value: all(_PACKAGE.fullmatch(name) and _is_package(each) for name, each in value.items()),
    "upgraded": lambda value: all(
        _PACKAGE.fullmatch(name) and len(each) == 2 and all(isinstance(one, str) for one in each)
        for name, each in value.items()
    ),
    "manual": lambda value: _texts(value, _PACKAGE),
    "held": lambda value: _texts(value, _PACKAGE),
    "users": _accounts,
    "groups": _accounts,
    "members": lambda value: all(_ACCOUNT.fullmatch(name) and _texts(each, _ACCOUNT) for name, each in value.items()),
    "units": lambda value: all(
        isinstance(name, str)
        and name.endswith(".service")
        and len(each) == 2
        and all(isinstance(one, str) for one in each)
        for name, each in value.items()
    ),
    "homes": lambda value: isinstance(value, list) and all(_is_path(path) and path.count("/") > 1 for path in value),
    "window": _window,
}
