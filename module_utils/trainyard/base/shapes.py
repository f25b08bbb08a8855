# SPDX-License-Identifier: Apache-2.0
"""Check JSON values from nodes and monitors against shapes.

A shape is a type, a tuple of shapes (one of them), a list of one shape (any number of it), a dictionary of shapes by
name (`?name` may be missing; others may be present unless it is in Exact), one of the classes below, or a function that
raises ValueError for other values and whose docstring names the expected ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

Shape = Any
# What monitors and nodes send, and what records hold: JSON objects with declared shapes.
Message = dict[str, Any]
NOTHING = type(None)
MAYBE_TEXT, MAYBE_INT, MAYBE_NUMBER = (str, NOTHING), (int, NOTHING), (float, NOTHING)
_OTHERS, _NUMBERS = (str, bool, NOTHING), (int, float)
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


def file_name(value: Any) -> None:
    """the name of a file, and no path"""
    if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or not value.isprintable():
        raise ValueError(value)


class _Wrong(NamedTuple):
    """A difference: `where` from the outer value inward, such as `nodes`, `[0]`, `.host`, and the text after it."""

    where: tuple[str, ...]
    text: str
    before: str = ""

    def within(self, part: str) -> _Wrong:
        """Return the same of a value that has the wrong one as this part."""
        return self._replace(where=(part, *self.where))

    def __str__(self) -> str:
        """Write it as a sentence."""
        path = "".join(self.where).removeprefix(".")
        return f"{self.before}{path or 'it'} {self.text}"


def path_inside(value: Any) -> None:
    """a path inside the folder"""
    if not isinstance(value, str) or {"..", ""} & {*value.split("/")} or re.search("[\0\ud800-\udfff]", value):
        raise ValueError(value)


def misfit(value: Any, shape: Shape) -> str:
    """Return where and how a value differs from a shape, "" where it does not."""
    wrong = _wrong(value, shape)
    return str(wrong) if wrong else ""


def _wrong(value: Any, shape: Shape) -> _Wrong | None:
    # Most values of a plan of thousands of nodes are texts, numbers, and few kinds of dictionaries and lists.
    kind = type(value)
    if shape is kind and (kind in _OTHERS or (kind in _NUMBERS and -_MAX < value < _MAX)):
        return None
    how = _HOW.get(type(shape))
    if how is not None:
        return how(value, shape)
    expected = _missed(value, shape)
    return None if expected is None else _differs(value, expected)


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


def _missed(value: Any, shape: Shape) -> str | None:
    """Return what a shape without parts expects, None where the value fits it."""
    kind = type(shape)
    if kind is Whole:
        fits = _is(value, int) and shape.least <= value <= shape.most
        return None if fits else f"a whole number from {shape.least} to {shape.most}"
    if kind is Number:
        return None if _is(value, float) and shape.least <= value <= shape.most else shape.what
    if kind is Text or kind is Raw:
        fits = isinstance(value, str) and len(value) <= shape.most
        if fits and (kind is Raw or not re.search("[\ud800-\udfff]", value)):
            return None
        return "text" if shape.most == math.inf else f"text of at most {shape.most} characters"
    if kind is Is:
        # Ansible's texts and numbers are of types below these.
        fits = any(_is(value, type(one)) and value == one for one in shape.values)
        return None if fits else " or ".join(sorted(map(repr, shape.values)))
    if shape in _NAMES:
        return None if _is(value, shape) else _NAMES[shape]
    try:
        shape(value)
    except ValueError:
        return str(shape.__doc__)
    return None


def _of_list(value: Any, shape: list[Shape] | Few) -> _Wrong | None:
    one, most = shape if isinstance(shape, Few) else (shape[0], math.inf)
    if not isinstance(value, list):
        return _differs(value, "a list")
    if len(value) > most:
        return _Wrong((), f"has {len(value)} entries, expected at most {most}")
    for at, each in enumerate(value):
        wrong = _wrong(each, one)
        if wrong:
            return wrong.within(f"[{at}]")
    return None


def _of_any(value: Any, shape: tuple[Shape, ...]) -> _Wrong | None:
    if value is None and NOTHING in shape:
        return None
    first = None
    for one in shape:
        wrong = _wrong(value, one)
        if wrong is None:
            return None
        first = first or wrong
    return first


def _of_all(value: Any, shape: All) -> _Wrong | None:
    return next(filter(None, (_wrong(value, one) for one in shape.shapes)), None)


def _of_kind(value: Any, shape: ByKind) -> _Wrong | None:
    if not isinstance(value, dict):
        return _differs(value, "an object")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in shape.kinds:
        return _differs(kind, f"one of {', '.join(sorted(shape.kinds))}").within(".kind")
    return _of_dictionary(value, shape.all) or _of_dictionary(value, shape.kinds[kind])


def _exactly(value: Any, shape: Exact) -> _Wrong | None:
    if isinstance(value, dict):
        names = {name.removeprefix("?") for name in shape.names}
        for name in value:
            if name not in names:
                return _Wrong((), f"has {name[:60]!r}, which is not expected")
    return _of_dictionary(value, shape.names)


def _of_each(value: Any, shape: Each) -> _Wrong | None:
    if not isinstance(value, dict):
        return _differs(value, "an object")
    if len(value) > shape.most:
        return _Wrong((), f"has {len(value)} names, expected at most {shape.most}")
    one, of_name = shape.value, shape.name
    for name in value:
        wrong = _wrong(name, of_name)
        if wrong:
            return wrong._replace(before="a name in ")
    for name, each in value.items():
        wrong = _wrong(each, one)
        if wrong:
            return wrong.within(f".{name}")
    return None


def _of_dictionary(value: Any, shape: Mapping[str, Shape]) -> _Wrong | None:
    if not isinstance(value, dict):
        return _differs(value, "an object")
    for name, one in shape.items():
        key = name[1:] if name[:1] == "?" else name
        if key in value:
            wrong = _wrong(value[key], one)
            if wrong:
                return wrong.within(f".{key}")
        elif key is name and one is not OWN:
            return _Wrong((), f"has no {name}")
    return None


def _differs(value: Any, expected: str) -> _Wrong:
    # Without its content, which may be nested deeply.
    value = value[:60] if isinstance(value, str) else value
    found = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)[:60]
    return _Wrong((), f"is {found}, expected {expected}")


# By the class of a shape; other shapes have no parts.
_HOW: Mapping[type, Callable[[Any, Any], _Wrong | None]] = {
    **{dict: _of_dictionary, list: _of_list, Few: _of_list, tuple: _of_any},
    **{All: _of_all, ByKind: _of_kind, Each: _of_each, Exact: _exactly},
}
