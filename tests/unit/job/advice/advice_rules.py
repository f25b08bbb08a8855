"""Rules of site.yml as worlds that advice changes: their inputs by name, and the findings on them."""

from __future__ import annotations

import copy
import re

import yaml


class Rule:
    """The inputs of a rule by name. Its launch returns the rule's findings on them."""

    def __init__(self, rule, given, **changes):
        self.rule, self.given = rule, copy.deepcopy(given)
        put(**changes)(self)

    def launch(self, _):
        """Return the findings on a copy of the inputs."""
        return [*self.rule(copy.deepcopy(self.given))]


def put(**values):
    """Return the change of inputs: `a__b` is field b of input a."""

    def change(rule):
        for path, value in values.items():
            *folders, last = path.split("__")
            place = rule.given
            for folder in folders:
                place = place[folder]
            # A later change must not reach the values of a table.
            place[last] = copy.deepcopy(value)

    return change


def overriding(part, **filled):
    """Return the change that writes what an advice says of nvidia_stack_overrides, with values for its `...`."""
    (text,) = re.findall(r"nvidia_stack_overrides: (\{.*\})", part)

    def change(rule):
        for name, fields in yaml.safe_load(text).items():
            rule.given["overrides"].setdefault(name, {}).update(fields | {key: filled[key] for key in filled})
        assert "..." not in str(rule.given["overrides"]), f"nobody fills {text}"

    return change


def overrides(*parts, **filled):
    """Return parts of an advice with nvidia_stack_overrides, each followed as it is written."""
    return {part: overriding(part, **filled) for part in parts}
