# SPDX-License-Identifier: Apache-2.0
"""Take answers of hosts: each host speaks for itself alone, in the declared shape, within bounds, one line per text.

Answers of the agent (wire/answers.py), and of modules whose results rules combine (of_hosts), come through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .findings import Finding
from .shapes import NOTHING, OWN, Each, Exact, Few, Raw, Shape, misfit
from .visible import one_line

# Prefix of an action that a node names: it is not our own text.
ADVICE = "as the node says: "
# The shape of a finding that a node reports about itself.
FINDING = {"host": OWN, **dict.fromkeys(("check", "found", "expected", "action"), str)}
# Upper bounds for what a rule reads of one host: characters of all texts, and values.
_MAX_TEXT, _MAX_VALUES = 8 << 20, 1 << 19
# The types of JSON values that hold no text.
_AS_THEY_ARE = frozenset((bool, int, float, NOTHING))


class NotUsableError(ValueError):
    """An answer has another shape than declared; the text says where and how."""


class Source(NamedTuple):
    """A variable that a rule reads of each host, keys below it (`variable.key`), and the shape of the value there.

    Without a path, it reads the variables whose shapes `shape` has by their names; `name` is the name in the inventory.
    """

    path: str
    shape: Shape
    # Hosts without it are left out; otherwise a missing answer is a finding.
    may_lack: bool = False


def received(value: Any, shape: Shape, host: str) -> Any:
    """Return an answer of `host`: its own name, the declared names alone, texts on one line. Raises NotUsableError."""
    try:
        wrong = too_large(value) or misfit(value, shape)
        if wrong:
            raise NotUsableError(one_line(wrong))
        return as_own(value, shape, host, declared=True)
    except RecursionError:
        raise NotUsableError("it is nested too deeply, expected a few levels") from None


def of_hosts(
    hosts: Iterable[str], variables: Mapping[str, Mapping[str, Any]], source: Source
) -> tuple[list[Any], list[Finding]]:
    """Return what hosts answered, in their order, and a finding on each whose answer cannot be used."""
    answers, findings = [], []
    for host in hosts:
        of_host = variables[host]
        try:
            if source.path:
                answers.append(received(_below(of_host, source.path.split(".")), source.shape, host))
            else:
                asked = {name: of_host[name] for each in source.shape if (name := each.removeprefix("?")) in of_host}
                answers.append({**received(asked, source.shape, host), "name": host})
        except LookupError:
            if not source.may_lack:
                findings.append(unusable(f"it has no {source.path}", host))
        except NotUsableError as error:
            findings.append(unusable(str(error), host))
    return answers, findings


def unusable(wrong: str, host: str) -> Finding:
    """Return the finding on an answer that cannot be used."""
    action = "check that node and its Python: it answers what no module of this project does"
    return Finding("answer", f"the answer cannot be used: {wrong}", "an answer in the declared form", action, host)


def as_own(value: Any, shape: Shape, host: str, *, declared: bool = False) -> Any:
    """Return an answer that fits with each text on one line, unless its shape is Raw, and the host's own name.

    With `declared`, names that a dictionary of shapes does not have are dropped, as in shapes.named.
    """
    if shape is OWN:
        return host
    # Thousands of nodes answer hundreds of values each.
    if type(value) in _AS_THEY_ARE:
        return value
    # The classes of shapes are tuples, too.
    if type(shape) is tuple:
        shape = next((one for one in shape if not misfit(value, one)), object)
    if isinstance(value, str):
        return value if isinstance(shape, Raw) else one_line(value)
    if isinstance(value, list):
        each = shape[0] if isinstance(shape, list) else shape.shape if isinstance(shape, Few) else object
        return [as_own(one, each, host, declared=declared) for one in value]
    if not isinstance(value, dict):
        return value
    declared = declared and not isinstance(shape, Exact)
    if declared and isinstance(shape, dict):
        value = {name: value[name] for each in shape if (name := each.lstrip("?")) in value}
    shape = shape.names if isinstance(shape, Exact) else shape
    of_names = {name.lstrip("?"): one for name, one in shape.items()} if isinstance(shape, dict) else {}
    others, raw = (shape.value, isinstance(shape.name, Raw)) if isinstance(shape, Each) else (object, False)
    taken = {
        name if raw else one_line(name): as_own(one, of_names.get(name, others), host, declared=declared)
        for name, one in value.items()
    }
    taken |= {name: host for name, one in of_names.items() if one is OWN}
    if shape is FINDING:
        taken["action"] = f"{ADVICE}{taken['action']}"
    return taken


def too_large(value: Any) -> str:
    """Return how an answer exceeds the bounds, "" where it does not."""
    text = values = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        values += 1
        if isinstance(each, str):
            text += len(each)
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, (list, tuple)):
            waiting += each
        if values > _MAX_VALUES or text > _MAX_TEXT:
            return f"it is larger than {_MAX_TEXT >> 20} MiB of text or {_MAX_VALUES} values"
    return ""


def _below(variables: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the value below keys. Raises LookupError where it is missing, as after a skipped task."""
    value: Any = variables
    for key in keys:
        if not isinstance(value, Mapping):
            raise LookupError(key)
        value = value[key]
    return value
