# SPDX-License-Identifier: Apache-2.0
"""Redact what goes into a debug archive, which people attach to issues, and describe it in a README."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..base.findings import counted
from ..base.redaction import HIDDEN, is_secret_name, safe, without_secrets
from ..job.record.masking import MIN_LENGTH, Forms, forms, mask_text

# Bytes of a log that are shown at its begin and at its end, and of any other file at both together.
LOG_BEGIN, LOG_END, MAX_FILE = 64 << 10, 192 << 10, 4 << 20
# Upper bounds for the files of each kind together, in bytes. GitHub takes attachments of 25 MB.
RECORDS, LOGS, FACTS, JOURNALS = "records", "logs", "facts", "journals"
ROOM = {RECORDS: 8 << 20, LOGS: 8 << 20, FACTS: 4 << 20, JOURNALS: 4 << 20}
_MAX_LISTED = 300
# Variables of the ranks' environment that are no secrets, and whose values explain failures.
_SHOWN = re.compile(
    r"(?:NCCL|HCCL|GLOO|OMP|OMPI|PMIX|PRTE|MKL|UCX|FI|CUDA|ASCEND|TORCH|TORCHELASTIC|PYTORCH|MS|GLOG|ONEFLOW|TRAINYARD"
    r"|SLURM|MASTER|LOCAL|GROUP)_\w+|(?:\w+_)?(?:RANK|WORLD_SIZE)|PATH|LD_LIBRARY_PATH|PYTHON\w+|LANG|LC_ALL"
    r"|HOME|USER|VIRTUAL_ENV|(?:RANK|DEVICE)_(?:ID|SIZE|NUM|TABLE_FILE)|NNODES|TP_SOCKET_IFNAME"
)
_OF_FILES = ("_file", "_path", "_dir", "_folder")
_IS_ENVIRONMENT = re.compile(r"(?:.*_)?env(?:iron(?:ment)?)?", re.IGNORECASE)
# An assignment in a script; shlex.quote joins pieces with different quotes.
_EXPORT = re.compile(r"(\bexport\s+(\w+)=)((?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\;])+)")
_LINE_END = re.compile(r"\r\n?")


@dataclass(frozen=True)
class Excerpt:
    """Begin and end of a log of `size` bytes; `end` is empty where `begin` is all of it."""

    begin: bytes
    size: int
    end: bytes = b""


@dataclass
class Archive:
    """The files of an archive by name, and the texts about what is not in it."""

    files: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def add(self, kind: str, texts: Iterable[tuple[str, str]]) -> None:
        """Add redacted texts by name, the most important first, as far as there is room for this kind of files."""
        room = ROOM[kind]
        for name, whole in texts:
            text = _shortened(whole)
            size = len(text.encode())
            if size > room:
                self.left_out.append(f"{name}: the {kind} before it fill {ROOM[kind] >> 20} MiB")
                continue
            if text is not whole:
                self.cut.append(name)
            self.files[name] = text
            room -= size

    @property
    def hidden(self) -> int:
        """How many values HIDDEN replaces."""
        return sum(text.count(HIDDEN) for name, text in self.files.items() if name != "README")


def secret_values(variables: Mapping[str, Any]) -> set[str]:
    """Return the values of secrets among variables, which their names tell; a name of a file is no secret."""
    values: set[str] = set()
    for name, value in variables.items():
        if name in ("job_events", "verify_events"):
            values.update(_of_receivers(value))
        elif name == "job_secret_env":
            values.update(_texts(value))
        elif is_secret_name(name) and not name.endswith(_OF_FILES):
            # A registry's login also has a name of a user.
            logins = isinstance(value, Mapping)
            named = [item for key, item in value.items() if is_secret_name(str(key))] if logins else value
            values.update(_texts(named))
    return values


def masks(values: Iterable[str]) -> Forms:
    """Return the forms in which secrets may be printed."""
    return forms({"secret_env": dict(enumerate(values))})


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _of_receivers(receivers: Any) -> Iterable[str]:
    """Yield the addresses of webhooks, and their paths, which requests and proxies log alone."""
    for receiver in receivers if isinstance(receivers, list) else ():
        if isinstance(receiver, Mapping) and receiver.get("url"):
            yield str(receiver["url"])
            path = urlsplit(str(receiver["url"])).path
            if len(path) > 2 * MIN_LENGTH:
                yield path


def log_text(log: Excerpt, hidden: Forms) -> str:
    """Return the begin and the end of a log without secrets. A line that the cut divides is left out."""
    if not log.end:
        return _redacted(log.begin, hidden)
    begin = log.begin[: max(log.begin.rfind(b"\n"), log.begin.rfind(b"\r")) + 1]
    after = [place for place in (log.end.find(b"\n"), log.end.find(b"\r")) if place >= 0]
    end = log.end[min(after) + 1 :] if after else b""
    left = counted(log.size - len(begin) - len(end), "byte")
    return f"{_redacted(begin, hidden)}\n... {left} left out ...\n\n{_redacted(end, hidden)}"


def _redacted(content: bytes, hidden: Forms) -> str:
    text = _LINE_END.sub("\n", content.decode("utf-8", "surrogateescape"))
    return without_secrets(_known_hidden(text, hidden))


def _known_hidden(text: str, hidden: Forms) -> str:
    """Hide known secrets, and the environment in scripts."""
    return _EXPORT.sub(_exported, mask_text(text, hidden))


def _exported(found: re.Match[str]) -> str:
    return found[0] if _SHOWN.fullmatch(found[2]) else f"{found[1]}{HIDDEN}"


def json_text(value: Any, hidden: Forms) -> str:
    """Return plain data as JSON without secrets. Environments are lists, with the values of well-known names alone."""
    return json.dumps(safe(_data(value, hidden)), indent=1, ensure_ascii=False) + "\n"


def _data(value: Any, hidden: Forms) -> Any:
    if isinstance(value, str):
        return _known_hidden(value, hidden)
    if isinstance(value, Mapping):
        return {
            mask_text(str(name), hidden): (_environment if _IS_ENVIRONMENT.fullmatch(str(name)) else _data)(
                item, hidden
            )
            for name, item in value.items()
        }
    return [_data(each, hidden) for each in value] if isinstance(value, (list, tuple)) else value


def _environment(value: Any, hidden: Forms) -> Any:
    """Return an environment, a mapping or the list of a manifest, as a list of assignments."""
    if isinstance(value, Mapping) and any(isinstance(item, Mapping) for item in value.values()):
        return {str(name): _environment(item, hidden) for name, item in value.items()}
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)) and all(isinstance(each, Mapping) and "name" in each for each in value):
        pairs = [(each["name"], each.get("value", HIDDEN)) for each in value]
    else:
        return _data(value, hidden)
    shown = [(str(name), _SHOWN.fullmatch(str(name))) for name, _ in pairs]
    texts = [f"{name}={item if known else HIDDEN}" for (name, known), (_, item) in zip(shown, pairs)]
    return [_data(each, hidden) for each in texts]


def _shortened(text: str) -> str:
    """Return begin and end of a text of more than MAX_FILE bytes."""
    content = text.encode()
    if len(content) <= MAX_FILE:
        return text
    begin, end = content[: MAX_FILE // 2 - 100], content[100 - MAX_FILE // 2 :]
    left = counted(len(content) - len(begin) - len(end), "byte")
    return f"{begin.decode(errors='ignore')}\n... {left} left out ...\n{end.decode(errors='ignore')}"


def journal_text(lines: Sequence[str], problem: str, hidden: Forms) -> str:
    """Return the journal of a job's units on a node without secrets."""
    shown = "\n".join(lines) if lines else f"no line{f': {problem}' if problem else ''}"
    return _redacted(f"{shown}\n".encode("utf-8", "surrogateescape"), hidden)


def important_logs(names: Iterable[str], summary: Mapping[str, Any]) -> list[str]:
    """Return the names of logs, those of the process that failed first, then those of monitors."""
    failure = summary.get("failure") or {}
    failed = {
        process.get("log")
        for node in summary.get("nodes") or ()
        for process in node.get("processes") or ()
        if node.get("host") == failure.get("host") and process.get("name") == failure.get("process")
    }
    ranks = {failure.get("rank"), *(failure.get("ranks") or ())} - {None}
    failed |= {str(summary.get("rank_log", "")).replace("{rank}", str(rank)) for rank in ranks}
    return sorted(names, key=lambda name: (name not in failed, not name.startswith("monitor"), name))


def readme(run: str, made: str, archive: Archive, silent: Mapping[str, str]) -> str:
    """Return the README of an archive: its files, what is hidden in them, and what is not."""
    names = sorted(archive.files)
    sizes = [f"  {len(archive.files[name].encode()):>9}  {name}" for name in names[:_MAX_LISTED]]
    more = [f"  and {counted(len(names) - _MAX_LISTED, 'more file')}"] if len(names) > _MAX_LISTED else []
    parts = [
        f"Debug archive of {run}, made by playbooks/debug.yml at {made}.",
        "",
        "Look through it before you send it: trainyard hides what it recognizes as a secret, and nothing else.",
        "",
        "Hidden",
        f"  {HIDDEN} stands {counted(archive.hidden, 'time')} for passwords in addresses, private keys, tokens of a",
        "  known form, values of names such as password, token or secret, and values in the environment of ranks,",
        "  except of well-known variables such as NCCL_DEBUG.",
        "  *** has the length of a value that debug.yml knew as a secret: job_secret_env, job_registry_auth and",
        "  others of the inventory or of -e. Values of fewer than 6 characters are not recognized.",
        "",
        "Not hidden",
        "  Names and addresses of hosts, names of users, paths, the job's command with its arguments, output of ranks.",
        "",
        "Files, with their bytes",
        *sizes,
        *more,
    ]
    for title, texts in (
        ("Nodes without an answer", [f"{host}: {why}" for host, why in silent.items()]),
        ("Too large: begin and end only", archive.cut),
        ("Left out", archive.left_out),
    ):
        if texts:
            parts += ["", title, *(f"  {text}" for text in texts[:_MAX_LISTED])]
            parts += [f"  and {len(texts) - _MAX_LISTED} more"] if len(texts) > _MAX_LISTED else []
    return "\n".join([*parts, ""])
