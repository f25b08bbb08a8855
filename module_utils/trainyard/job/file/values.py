# SPDX-License-Identifier: Apache-2.0
"""Read the values of `job_*` variables as numbers, texts and lists, with a finding for each that is none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...base.findings import Finding
from .given_environment import environment
from .variables import ONE_COPY, VARIABLES

# More devices than any node has: a range beyond it is a typo.
_MAX_DEVICES = 1024


class Values:
    """The `job_*` variables of a job file; what cannot be used becomes a finding in `findings`."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Begin without findings."""
        self.given = given
        self.findings: list[Finding] = []

    def wrong(self, key: str, found: str, expected: str, action: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(key, found, expected, action))

    def text(self, key: str) -> str:
        """Return a text, or the variable's default."""
        return str(self.given.get(key) or VARIABLES[key].default or "")

    def flag(self, key: str) -> bool:
        """Return a truth value."""
        return bool(self.given.get(key, VARIABLES[key].default))

    def choice(self, key: str) -> str:
        """Return one of the variable's choices."""
        value, choices = self.text(key), VARIABLES[key].choices
        if value not in choices:
            self.wrong(key, repr(value), "one of " + ", ".join(choices), "choose one of these")
        return value

    def count(self, key: str, *words: str) -> int | None:
        """Return a whole number within the variable's range; None for auto, and with a finding for anything else.

        `words` are those that may stand for a number, where that is not auto alone.
        """
        variable = VARIABLES[key]
        value = self.given.get(key)
        value = variable.default if value is None else value
        words = words or (("auto",) if variable.default == "auto" else ())
        if value == "auto" and words:
            return None
        words = (*words, ONE_COPY) if key == "job_ranks_per_node" else words
        with contextlib.suppress(ValueError):
            number = int(str(value))
            if variable.least <= number <= variable.most:
                return number
        expected = " or ".join([*words, f"a whole number {variable.range}"])
        self.wrong(key, repr(value), expected, f"correct {key}")
        return None

    def number(self, key: str) -> int:
        """Return a whole number; 0 with a finding."""
        return self.count(key) or 0

    def declared(self, record: Any) -> dict[str, Any]:
        """Return the fields of a class of job.py that the table of variables describes alone."""
        return {
            each.name: self._read(each.metadata["variable"]) for each in fields(record) if "variable" in each.metadata
        }

    def _read(self, key: str) -> Any:
        variable = VARIABLES[key]
        of_type = {"bool": self.flag, "int": self.number, "list": self.words}
        return (self.choice if variable.choices else of_type.get(variable.type, self.text))(key)

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.given.get(key) or []
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) and "\0" not in item for item in value):
            return tuple(value)
        self.wrong(key, repr(value), "a list of words", f"write {key} as a YAML list")
        return ()

    def variables(self, key: str) -> dict[str, str]:
        """Return variables of ranks as texts."""
        value = self.given.get(key)
        return environment({} if value is None else value, key, self.findings)

    def devices(self) -> tuple[int, ...] | None:
        """Return the device numbers of job_devices."""
        try:
            return parse_devices(self.given.get("job_devices", "auto"))
        except (ValueError, TypeError):
            expected = 'auto, none, a list such as [0, 1], or a range such as "[4,8)"'
            self.wrong("job_devices", repr(self.given.get("job_devices")), expected, "correct job_devices")
            return None


def parse_devices(value: Any) -> tuple[int, ...] | None:
    """Read `auto` (None), `none` (()), device numbers, or a half-open range such as "[4,8)". Raises ValueError."""
    if value is None or value == "auto":
        return None
    if value == "none":
        return ()
    if isinstance(value, str):
        match = re.fullmatch(r"\s*\[\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)\s*", value)
        numbers = list(range(int(match[1]), int(match[2]))) if match else [int(part) for part in value.split(",")]
    elif isinstance(value, (list, tuple)) and not any(isinstance(item, (bool, float)) for item in value):
        numbers = [int(item) for item in value]
    else:
        raise ValueError("no list of whole numbers")
    if not numbers or len(set(numbers)) != len(numbers) or min(numbers) < 0 or max(numbers) >= _MAX_DEVICES:
        raise ValueError("empty, repeated, negative or excessive device numbers")
    return tuple(numbers)
