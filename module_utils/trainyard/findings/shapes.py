# SPDX-License-Identifier: Apache-2.0
"""Check JSON values from nodes and monitors against shapes.

A shape is a type, a tuple of shapes (one of them), a list of one shape (any number of it), a dictionary of shapes by
name (`?name` may be missing; others may be present unless it is in Exact), one of the classes below, or a function that
raises ValueError for other values and whose docstring names the expected ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

Shape = Any
NOTHING = type(None)
MAYBE_TEXT, MAYBE_INT, MAYBE_NUMBER = (str, NOTHING), (int, NOTHING), (float, NOTHING)
# Upper bound for numbers: larger integers and floats do not compare exactly.
_MAX = 2**63
# Upper bound for times, in seconds since 1970: the year 6325, which every function that shows times takes, in any zone.
MAX_TIME = 1 << 37


class Exact(NamedTuple):
    """A dictionary with these names and no others."""

    names: Mapping[str, Shape]


class Each(NamedTuple):
    """A dictionary with names of one shape, at most `most`, and values of one shape."""

    value: Shape
    name: Shape = str
    most: float = math.inf


class ByKind(NamedTuple):
    """A dictionary with a `kind`, the fields of all kinds, and those of its own kind."""

    all: Mapping[str, Shape]
    kinds: Mapping[str, Mapping[str, Shape]]


class All(NamedTuple):
    """A value that fits all of these."""

    shapes: tuple[Shape, ...]


class Few(NamedTuple):
    """A list of one shape with at most `most` entries."""

    shape: Shape
    most: int


class Whole(NamedTuple):
    """A whole number from `least` to `most`."""

    most: int
    least: int = 0


class Number(NamedTuple):
    """A number from `least` to `most`, and what it is."""

    least: float
    most: float
    what: str


class Text(NamedTuple):
    """Text of at most `most` characters that UTF-8 can encode."""

    most: int


class Raw(NamedTuple):
    """Text that may have several lines; other texts of nodes are made one line."""

    most: float = math.inf


class Is(NamedTuple):
    """One of these values, and of its type."""

    values: Collection[Any]


def _own(value: Any) -> None:
    """the name of the host"""


# The host's name in the inventory (received.as_own); whatever the host says there, or nothing, is replaced.
OWN: Shape = _own


TIME = Number(0, MAX_TIME, "a time: seconds since 1970, up to the year 6325")
# The time between two times; clocks may be set back.
DURATION = Number(-MAX_TIME, MAX_TIME, "a duration: seconds, at most 4355 years")
MAYBE_TIME, MAYBE_DURATION = (TIME, NOTHING), (DURATION, NOTHING)


def as_time(value: float) -> float:
    """Return a time that fits TIME, the nearest one: users give their files any time."""
    return min(max(value, 0), MAX_TIME)


def finite(value: Any) -> None:
    """a number"""
    if not (_is(value, int) or (isinstance(value, float) and math.isfinite(value))):
        raise ValueError("no number")


def misfit(value: Any, shape: Shape, where: str = "") -> str:
    """Return where and how a value differs from a shape, "" where it does not."""
    if isinstance(shape, (ByKind, Each, Exact, dict)):
        return _of_dictionary(value, shape, where)
    if isinstance(shape, (list, Few)):
        return _of_list(value, shape, where)
    if isinstance(shape, All):
        return _first(misfit(value, one, where) for one in shape.shapes)
    if isinstance(shape, tuple) and not isinstance(shape, (Whole, Number, Text, Raw, Is)):
        each = [misfit(value, one, where) for one in shape]
        return "" if "" in each else each[0]
    fits, expected = _compared(value, shape)
    return "" if fits else _differs(value, expected, where)


def named(value: Any, shape: Shape) -> Any:
    """Return a value that fits a shape with only the names of the shape.

    Dictionaries of shapes, Each, lists and tuples are searched; other values are returned unchanged.
    """
    # The classes above are tuples, too.
    if type(shape) is tuple:
        shape = next(one for one in shape if not misfit(value, one))
    if isinstance(shape, dict):
        keys = {name.removeprefix("?"): one for name, one in shape.items()}
        return {key: named(value[key], one) for key, one in keys.items() if key in value}
    if isinstance(shape, Each):
        return {key: named(each, shape.value) for key, each in value.items()}
    if isinstance(shape, (list, Few)):
        one = shape[0] if isinstance(shape, list) else shape.shape
        return [named(each, one) for each in value]
    return value


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NOTHING: "nothing", object: ""}


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        kind = int if isinstance(value, int) else float
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind in (bool, object)
    if kind in (int, float):
        return isinstance(value, kind) and abs(value) < _MAX and math.isfinite(value)
    return isinstance(value, kind)


def _compared(value: Any, shape: Shape) -> tuple[bool, str]:
    """Return whether a value fits a shape without parts, and what is expected."""
    if isinstance(shape, Whole):
        fits = _is(value, int) and shape.least <= value <= shape.most
        return fits, f"a whole number from {shape.least} to {shape.most}"
    if isinstance(shape, Number):
        return _is(value, float) and shape.least <= value <= shape.most, shape.what
    if isinstance(shape, (Text, Raw)):
        fits = isinstance(value, str) and len(value) <= shape.most
        fits = fits and (isinstance(shape, Raw) or not re.search("[\ud800-\udfff]", value))
        return fits, "text" if shape.most == math.inf else f"text of at most {shape.most} characters"
    if isinstance(shape, Is):
        # Ansible's texts and numbers are of types below these.
        fits = any(_is(value, type(one)) and value == one for one in shape.values)
        return fits, " or ".join(sorted(map(repr, shape.values)))
    if shape in _NAMES:
        return _is(value, shape), _NAMES[shape]
    try:
        shape(value)
    except ValueError:
        return False, shape.__doc__
    return True, ""


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _of_list(value: Any, shape: list[Shape] | Few, where: str) -> str:
    one, most = shape if isinstance(shape, Few) else (shape[0], math.inf)
    if not isinstance(value, list):
        return _differs(value, "a list", where)
    if len(value) > most:
        return f"{where or 'it'} has {len(value)} entries, expected at most {most}"
    return _first(misfit(each, one, f"{where}[{at}]") for at, each in enumerate(value))


def _of_dictionary(value: Any, shape: ByKind | Each | Exact | Mapping[str, Shape], where: str) -> str:
    if not isinstance(value, dict):
        return _differs(value, "an object", where)
    within, prefix = where or "it", f"{where}." if where else ""
    if isinstance(shape, Each):
        if len(value) > shape.most:
            return f"{within} has {len(value)} names, expected at most {shape.most}"
        wrong = _first(misfit(name, shape.name, f"a name in {within}") for name in value)
        return wrong or _first(misfit(each, shape.value, f"{prefix}{name}") for name, each in value.items())
    fields: Mapping[str, Shape]
    if isinstance(shape, ByKind):
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in shape.kinds:
            return _differs(kind, f"one of {', '.join(sorted(shape.kinds))}", f"{where}.kind")
        fields = {**shape.all, **shape.kinds[kind]}
    else:
        fields = shape.names if isinstance(shape, Exact) else shape
    by_key = {name.removeprefix("?"): one for name, one in fields.items()}
    more = [name for name in value if name not in by_key] if isinstance(shape, Exact) else []
    missing = [
        name for name, one in fields.items() if not name.startswith("?") and name not in value and one is not OWN
    ]
    if more or missing:
        return f"{within} has {more[0][:60]!r}, which is not expected" if more else f"{within} has no {missing[0]}"
    return _first(misfit(value[key], one, f"{prefix}{key}") for key, one in by_key.items() if key in value)


def _differs(value: Any, expected: str, where: str) -> str:
    # Without its content, which may be nested deeply.
    value = value[:60] if isinstance(value, str) else value
    found = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)[:60]
    return f"{where or 'it'} is {found}, expected {expected}"
