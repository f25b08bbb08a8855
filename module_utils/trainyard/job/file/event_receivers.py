# SPDX-License-Identifier: Apache-2.0
"""Read the receivers of a job's events (`job_events*`). The URL of a webhook is a secret; texts show its host alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ...base.findings import Finding, counted
from ...base.visible import type_name
from ..record.events import FORMS, KINDS
from .variables import VARIABLES

MAX_RECEIVERS = 16
MIN_SECRET = 16  # characters
_KEYS = {"url": ("form", "only", "ca_file"), "command": ("only",), "file": ("only",)}
_EXPECTED = "url, command or file, and beside it only; with url also form and ca_file"


class Origin(NamedTuple):
    """An event's origin: the variable with its receivers, the kinds there are, the machine that sends, and its user."""

    variable: str = "job_events"
    kinds: Sequence[str] = KINDS
    machine: str = "the head node"
    user: str = "the training user"


OF_JOB = Origin()


def receivers(given: Mapping[str, Any], findings: list[Finding], origin: Origin = OF_JOB) -> list[dict[str, Any]]:
    """Return the complete receivers in `given` that are right; adds a finding for each error."""
    value = given.get(origin.variable) or []
    if not isinstance(value, (list, tuple)) or len(value) > MAX_RECEIVERS:
        found = f"{len(value)} receivers" if isinstance(value, (list, tuple)) else f"a {type_name(value)}"
        expected = f"a list of at most {MAX_RECEIVERS} receivers such as {{file: /data/events.jsonl}}"
        findings.append(Finding(origin.variable, found, expected, f"write {origin.variable} as a YAML list"))
        return []
    checked = []
    for number, each in enumerate(value, 1):
        receiver, wrong = _receiver(each, f"{origin.variable}, receiver {number}", origin)
        findings += wrong
        checked += [] if wrong else [receiver]
    return checked


def _receiver(each: Any, where: str, origin: Origin) -> tuple[dict[str, Any], list[Finding]]:
    kinds = [kind for kind in _KEYS if kind in each] if isinstance(each, Mapping) else []
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of url, command and file"
        return {}, [Finding(where, found, _EXPECTED, "name one of them for each receiver")]
    kind = kinds[0]
    findings = []
    for key in sorted({str(key) for key in each} - {kind, *_KEYS[kind]}):
        near = difflib.get_close_matches(key, _KEYS[kind], n=1)
        action = f"did you mean {near[0]}?" if near else "leave it out"
        findings.append(Finding(where, f"{key} beside {kind}", _EXPECTED, action))
    only = each.get("only") or []
    if not isinstance(only, (list, tuple)) or any(one not in origin.kinds for one in only):
        expected = f"a list out of {', '.join(origin.kinds)}"
        findings.append(Finding(where, f"only: {only!r}"[:200], expected, "correct only, or leave it out"))
        only = []
    own = _OF_KIND[kind](each, where, findings, origin)
    return {"kind": kind, kind: each[kind], "only": list(only), **own}, findings


def _url(each: Mapping[str, Any], where: str, findings: list[Finding], origin: Origin) -> dict[str, Any]:
    parts = _split(each["url"])
    if parts is None:
        expected = "https://HOST/..., or http://, without a user or password before the host"
        findings.append(Finding(where, "no usable url", expected, "correct url"))
        return {}
    form, ca_file = each.get("form") or "json", each.get("ca_file") or ""
    if form not in FORMS:
        findings.append(Finding(where, f"form: {form!r}"[:200], f"one of {', '.join(FORMS)}", "correct form"))
    if ca_file and not _is_path(ca_file):
        expected = f"an absolute path on {origin.machine}, of a file of certificates"
        findings.append(Finding(where, f"ca_file: {ca_file!r}"[:200], expected, "correct ca_file"))
    # Only the host's name may be shown.
    return {"form": form, "ca_file": ca_file, "to": f"webhook {parts.hostname}"}


def _split(url: Any) -> SplitResult | None:
    """Read an address; None where it is not usable as it is."""
    if not isinstance(url, str) or len(url) > 2000 or not re.fullmatch(r"[!-~]+", url):
        return None
    try:
        parts = urlsplit(url)
        usual = parts.scheme in ("http", "https") and parts.port != 0 and not parts.fragment
    except ValueError:
        return None
    name = parts.hostname or ""
    return parts if usual and "@" not in parts.netloc and re.fullmatch(r"[A-Za-z0-9._:%-]+", name) else None


def _command(each: Mapping[str, Any], where: str, findings: list[Finding], origin: Origin) -> dict[str, Any]:
    argv = each["command"]
    words = isinstance(argv, (list, tuple)) and all(isinstance(word, str) and "\0" not in word for word in argv)
    if not words or not argv or not _is_path(argv[0]):
        expected = f"a list of words, first the absolute path of a program on {origin.machine}; no shell reads it"
        action = "write it as [/usr/local/bin/tell, --channel, training]"
        findings.append(Finding(where, "no usable command", expected, action))
        return {}
    return {"command": list(argv), "to": f"command {argv[0]}"}


def _file(each: Mapping[str, Any], where: str, findings: list[Finding], origin: Origin) -> dict[str, Any]:
    if not _is_path(each["file"]):
        expected = f"an absolute path on {origin.machine}, in a folder where {origin.user} may write"
        findings.append(Finding(where, f"file: {each['file']!r}"[:200], expected, "write the whole path"))
    return {"to": f"file {each['file']}"}


_OF_KIND = {"url": _url, "command": _command, "file": _file}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and value.isprintable() and len(value) < 4096


def secret_findings(given: Mapping[str, Any], origin: Origin = OF_JOB) -> list[Finding]:
    """Find an unusable secret of events; its text is never quoted."""
    name = f"{origin.variable}_secret"
    secret = given.get(name) or ""
    if isinstance(secret, str) and (not secret or (len(secret) >= MIN_SECRET and secret.isprintable())):
        return []
    found = counted(len(secret), "character") if isinstance(secret, str) else f"a {type_name(secret)}"
    expected = f"at least {MIN_SECRET} printable characters that nobody can guess"
    action = "make one with `openssl rand -hex 32`, and keep it in Ansible Vault"
    return [Finding(name, found, expected, action)]


def shown(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return receivers as they stand in plan.json: without addresses, and without arguments of commands."""
    return [
        {
            "to": each["to"],
            "only": each["only"],
            **({"form": each["form"], "ca_file": each["ca_file"]} if each["kind"] == "url" else {}),
            **({"program": each["command"][0]} if each["kind"] == "command" else {}),
            **({"file": each["file"]} if each["kind"] == "file" else {}),
        }
        for each in found
    ]


def settings(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of events.json (0600) for the head's monitor; None without receivers."""
    found = receivers(given, [])
    every_s = int(given.get("job_events_interval") or VARIABLES["job_events_interval"].default)
    secret = str(given.get("job_events_secret") or "")
    return {"receivers": found, "secret": secret, "every_s": every_s} if found else None
