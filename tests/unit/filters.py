"""The project's filters by name, for tests."""

import importlib.util
from pathlib import Path

from ansible.module_utils.trainyard.base.shapes import misfit, named

FOLDER = Path(__file__).resolve().parents[2] / "plugins/filter"
FILTERS = {}
for path in sorted(FOLDER.glob("*.py")):
    spec = importlib.util.spec_from_file_location(f"filters_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    FILTERS.update(module.FilterModule().filters())


def fitting(value, shape):
    """Return the answer of a host, which must fit the shape that filters read it in."""
    wrong = misfit(value, shape)
    assert not wrong, wrong
    return value


def declared(value, shape):
    """Return the answer of a host as rules get it: without names that its shape does not declare."""
    return named(fitting(value, shape), shape)


def of_hosts(name, answers, *given, **named):
    """Call a filter that reads what hosts answered: `answers` by inventory name, or records that have `host`."""
    if not isinstance(answers, dict):
        answers = {each["host"]: each for each in answers}
    first, *keys = FILTERS[name].source.path.split(".")
    hostvars = {}
    for host, answer in answers.items():
        for key in reversed(keys):
            answer = {key: answer}
        hostvars[host] = {first: answer} if first else answer
    return FILTERS[name](list(answers), hostvars, *given, **named)
