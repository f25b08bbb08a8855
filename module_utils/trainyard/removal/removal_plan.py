# SPDX-License-Identifier: Apache-2.0
"""Plan what playbooks/remove.yml does on a node, from its record and its present state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..base.findings import Finding, counted, some_of
from . import history
from .places import DATA, EMPTY, FOLDER, LINES, OWN, WHOLE, Place, ours_by_name
from .removal_record import Record, State

# Every visit brings the agent here, also one that only asks. So it goes without being named.
AGENT = "/var/cache/trainyard"
# Images, containers, volumes and networks in root's folders of Podman.
_WORK = re.compile(r"overlay/[0-9a-f]{64}|overlay-\w+/[0-9a-f]{64}.*|(volumes|secrets)/.+|net\.d/.+\.conf(list)?")
# Upper bound for the names in one line of the preview.
_MAX_NAMES = 12


class Step(NamedTuple):
    """One thing to do. `how`: purge, uninstall, unhold, automatic, delete, save (copy, then delete), restore, lines,
    prune (delete `names` in a folder), empty (delete a folder if it is empty), unlinger, user, group, home, leave (a
    group), unit.
    """

    how: str
    path: str
    names: tuple[str, ...] = ()


@dataclass
class Plan:
    """The steps of a node in their order, what stays and why, and what stops the removal."""

    steps: list[Step] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    # Whether a later run may remove something that stays now, for which it needs the record.
    waits: bool = False

    def wait(self, text: str) -> None:
        """Note what stays until others need it no more, or the user wants it removed."""
        self.stays.append(text)
        self.waits = True

    def add(self, how: str, path: str, names: Sequence[str] = ()) -> None:
        """Add a step."""
        self.steps.append(Step(how, path, tuple(names)))


class Request(NamedTuple):
    """Options: `user` is the training user, `data` tells whether results go as well.

    `apart` has by folder of software the names in it that are undone by themselves. `system` tells whether packages,
    accounts and services may be trainyard's: an ordinary user has made none.
    """

    user: str
    cluster: str
    data: bool = False
    apart: Mapping[str, Sequence[str]] = {}
    system: bool = True


def build(record: Record | None, state: State, places: Sequence[Place], request: Request) -> Plan:
    """Return the plan of a node; without a record only what is trainyard's by its name goes."""
    plan = Plan()
    plan.findings = _in_use(record, state, request)
    known = record or {"places": {}, "written": {}, "packages": {}, "users": {}, "groups": {}, "late": True}
    if request.user in known["users"] and state["lingers"]:
        plan.add("unlinger", request.user)
    if request.system:
        _packages(plan, known, state)
    for place in places:
        _place(plan, place, record, state, request)
    if request.system:
        _accounts(plan, known, state, request)
    # Folders above may be empty only now.
    order = {"empty": 1}
    plan.steps.sort(key=lambda step: order.get(step.how, 0))
    if request.system:
        _units(plan, known, state)
        _unknown(plan, record, state, request)
    return plan


def _in_use(record: Record | None, state: State, request: Request) -> list[Finding]:
    """Return why nothing may be touched."""
    findings = [
        Finding(
            "job", use, "a node that nothing uses", "end it, jobs with playbooks/stop.yml, and run remove.yml again"
        )
        for use in state["uses"]
    ]
    # Ranks of a job are such processes, too.
    if not findings and record and request.user in record["users"] and state["processes"]:
        names = ", ".join(some_of(state["processes"], _MAX_NAMES))
        action = "end them (see `ps -u`), and run remove.yml again"
        findings.append(Finding("processes", f"{request.user} runs {names}", "no process of that user", action))
    return findings


def _packages(plan: Plan, record: Record, state: State) -> None:
    # The roles of NVIDIA keep records of their own, also outside of site.yml.
    ours = {name: {"automatic": False, "purge": True} for name in state["added"]} | record["packages"]
    go, stay = history.removable(list(ours), state["installed"])
    by_admin = [name for name in go if ours[name]["automatic"] and name not in state["automatic"]]
    if by_admin:
        # Somebody marked a dependency as wanted by itself.
        stay.update(dict.fromkeys(by_admin, "somebody marked it as installed manually"))
        others = {name: entry for name, entry in ours.items() if name not in by_admin}
        go, more = history.removable(list(others), state["installed"])
        stay.update(more)
    for how, purge in (("purge", True), ("uninstall", False)):
        names = [name for name in go if ours[name]["purge"] is purge]
        if names:
            plan.add(how, "", names)
    for name, reason in sorted(stay.items()):
        plan.wait(f"package {name}: {reason}")
    upgraded = {name: each for name, each in record.get("upgraded", {}).items() if name in state["installed"]}
    if upgraded:
        texts = [f"{name} ({old} before)" for name, (old, _) in sorted(upgraded.items())]
        plan.stays.append(f"newer versions of {', '.join(some_of(texts, _MAX_NAMES))}")
    held = sorted(set(record.get("held", ())) & set(state["held"]))
    if held:
        plan.add("unhold", "", held)
    manual = sorted((set(record.get("manual", ())) - set(state["automatic"])) & set(state["installed"]))
    if manual:
        plan.add("automatic", "", manual)


def _place(plan: Plan, place: Place, record: Record | None, state: State, request: Request) -> None:
    found: Mapping[str, Any] = state["found"].get(place.path, {})
    before_all = record["places"] if record else {}
    paths = {*found, *(path for path in state["matches"].get(place.path, ()) if path in before_all)}
    for path in sorted(paths):
        now = found.get(path, {"kind": "absent"})
        before = before_all.get(path, {"kind": "absent"})
        if record is None and place.use != LINES and not ours_by_name(path, request.cluster):
            if now["kind"] != "absent" and path in state["doubtful"]:
                plan.stays.append(f"{path}: no record says whose it is")
            continue
        _PLACES[place.use](plan, path, now, before, record, state, request)


def _own(plan: Plan, path: str, now: Any, before: Any, record: Record | None, _state: State, _request: Request) -> None:
    written = (record or {"written": {}})["written"].get(path)
    if now == before:
        return
    if before["kind"] == "absent":
        changed = written is not None and now["kind"] == "file" and now["content"] != written.get("content")
        plan.add("save" if changed else "delete", path)
        if changed:
            plan.stays.append(f"a copy of {path}: somebody changed it since")
    elif before["kind"] == "folder" or "other" in (before["kind"], now["kind"]):
        if now["kind"] != "folder" or now["content"] != before["content"]:
            plan.stays.append(f"{path}: it was there before trainyard, and differs now")
    elif now["kind"] == "absent" or now == written:
        plan.add("restore", path)
    else:
        plan.stays.append(f"{path}: it was there before trainyard, and somebody changed it since; see {{records}}")


def _lines(
    plan: Plan, path: str, now: Any, before: Any, _record: Record | None, state: State, _request: Request
) -> None:
    if now["kind"] == "file" and state["cleaned"].get(path) is not None:
        plan.add("delete" if state["cleaned"][path] == "" and before["kind"] == "absent" else "lines", path)


def _folder(
    plan: Plan, path: str, now: Any, before: Any, record: Record | None, _state: State, request: Request
) -> None:
    if now["kind"] != "folder":
        return
    written = (record or {"written": {}})["written"].get(path)
    aside = request.apart.get(path, ())
    old = {*(before["content"] if before["kind"] == "folder" else ()), *aside}
    inside = [name for name in now["content"] if not any(f"{name}/".startswith(f"{each}/") for each in aside)]
    entries = [name for name in inside if name not in old]
    foreign = [] if written is None or request.data else [name for name in entries if name not in written["content"]]
    roots = [name for name in foreign if name.rpartition("/")[0] not in foreign]
    for name in roots:
        plan.wait(f"{path}/{name}: it is not trainyard's; remove_data takes it")
    if not foreign and not old and before["kind"] == "absent":
        plan.add("delete", path)
        return
    if before["kind"] == "absent":
        plan.add("empty", path)
    kept = {*foreign, *old}
    above = {"/".join(name.split("/")[:depth]) for name in kept for depth in range(1, name.count("/") + 1)}
    gone = [name for name in entries if name not in kept | above and name.rpartition("/")[0] in {"", *above, *old}]
    if gone:
        plan.add("prune", path, gone)


def _data(
    plan: Plan, path: str, now: Any, before: Any, _record: Record | None, _state: State, request: Request
) -> None:
    if now["kind"] != "folder" or before["kind"] == "folder":
        return
    # The role of data sets leaves a lock for each.
    names = [name for name in now["content"] if "/" not in name and not re.fullmatch(r"\..+\.lock", name)]
    if not names or request.data:
        plan.add("delete", path)
    else:
        plan.wait(f"{path}: {counted(len(names), 'entry', 'entries')}; remove_data takes them")


def _empty(
    plan: Plan, path: str, now: Any, before: Any, _record: Record | None, _state: State, _request: Request
) -> None:
    if now["kind"] == "folder" and before["kind"] == "absent":
        plan.add("empty", path)


def _whole(
    plan: Plan, path: str, now: Any, before: Any, record: Record | None, _state: State, _request: Request
) -> None:
    if record is None or now["kind"] == "absent" or before["kind"] != "absent":
        return
    if now["kind"] == "folder" and not any(_WORK.fullmatch(name) for name in now["content"]):
        plan.add("delete", path)
    else:
        plan.stays.append(f"{path}: somebody uses it")


_PLACES = {OWN: _own, WHOLE: _whole, LINES: _lines, FOLDER: _folder, DATA: _data, EMPTY: _empty}


def _accounts(plan: Plan, record: Record, state: State, request: Request) -> None:
    for group, members in sorted(record.get("members", {}).items()):
        if request.user not in record["users"] and group in state["user_groups"] and request.user not in members:
            plan.add("leave", request.user, [group])
    for name in record["users"]:
        if name in state["users"] and state["users"][name] == record["users"][name]:
            plan.add("user", name)
    for name in record["groups"]:
        if name in state["groups"] and state["groups"][name] == record["groups"][name]:
            plan.add("group", name)
    for path in record.get("homes", ()):
        if path in state["homes"]:
            if request.data:
                plan.add("home", path)
            else:
                plan.wait(f"{path}; remove_data takes it")
    home = state["home"]
    if request.user in record["users"] and home["path"]:
        if home["own"] and not request.data:
            names = ", ".join(some_of(home["own"], _MAX_NAMES))
            plan.wait(f"{home['path']} of {request.user}, with {names}; remove_data takes it")
        else:
            plan.add("home", home["path"])


def _units(plan: Plan, record: Record, state: State) -> None:
    for name, before in sorted(record.get("units", {}).items()):
        now = state["units"].get(name)
        if now is not None and list(now) != list(before):
            plan.add("unit", name, before)


def _unknown(plan: Plan, record: Record | None, state: State, request: Request) -> None:
    """Say what nobody knows where trainyard was before its record."""
    if (record is None and any(step.path != AGENT for step in plan.steps)) or (record is not None and record["late"]):
        plan.stays.append("packages that trainyard installed before it kept a record; see /var/log/apt/history.log")
        known = record["users"] if record else {}
        if request.user in state["users"] and request.user not in known:
            plan.stays.append(f"the user {request.user}: no record says who made it; `userdel --remove {request.user}`")


_TEXTS = {
    "purge": "remove {count}: {names}",
    "uninstall": "remove {count}, whose settings stay: {names}",
    "unhold": "let apt change {names} again",
    "automatic": "mark {names} as installed automatically",
    "delete": "remove {path}",
    "save": "remove {path}, and keep a copy",
    "restore": "bring back {path} as it was",
    "lines": "take trainyard's lines out of {path}",
    "prune": "remove {names} in {path}",
    "empty": "remove {path} if it is empty",
    "unlinger": "end what systemd keeps for {path}",
    "user": "remove the user {path}",
    "group": "remove the group {path}",
    "home": "remove {path}",
    "leave": "take {path} out of the group {names}",
    "unit": "have {path} as it was: {names}",
}


def texts(steps: Sequence[Step]) -> list[str]:
    """Return a line for each step."""
    return [
        _TEXTS[step.how].format(
            path=step.path, names=", ".join(some_of(step.names, _MAX_NAMES)), count=counted(len(step.names), "package")
        )
        for step in steps
        if step.path != AGENT
    ]
