# SPDX-License-Identifier: Apache-2.0
"""Check and convert what users give on the command line, in job files and in the inventory.

The table of variables is read from argument_specs files: those of the roles, and playbooks/meta/argument_specs.yml.
Ansible takes the value of `-e name=value` as a text, and accepts any name. Here a text becomes the documented type of
its variable, and what cannot be converted is a finding.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.findings import Finding, host_list
from ..base.visible import unwritable
from ..job.file import specification
from ..job.file.job_command import of_text
from ..job.file.variables import VARIABLES

# Reads YAML such as `[a, b]`. Raises an exception where it is none.
Reader = Callable[[str], Any]

HEADLINE = "{count} {findings} in what was given. Nothing was done."

_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_FLOW = re.compile(r"\s*(?:\[.*\]|\{.*\})\s*", re.DOTALL)
_OPTION = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>\s*(?:\[.*\]|\{.*\})\s*)", re.DOTALL)
_A_FILE = re.compile(r"\S+\.(?:ya?ml|json)|jobs/\S+")
# Anyone who has the address of a webhook can write there.
_SECRET = re.compile(r"secret|passw|token|key|(?:job|verify)_events$")
# Similarity from which a name counts as another one misspelt: names without their first words, complete names, and
# names that nothing else uses.
_LIKE_IN_FAMILY = 0.8
_LIKE = 0.92
_LIKE_UNUSED = 0.88


@dataclass(frozen=True)
class Variable:
    """A documented variable; the names of its family begin with `family`."""

    name: str
    kind: str
    elements: str
    default: Any
    family: str


@dataclass(frozen=True)
class Place:
    """The place of a value: a `text` such as `on the command line`, and the file's name, "" without a file."""

    text: str
    file: str = ""

    def how(self, name: str, value: str) -> str:
        """Return what to write there to set a value."""
        if self.file:
            return f"{name}: {value}"
        return f"-e {name}={value}" if value.isalnum() else f"-e {shlex.quote(f'{name}={value}')}"


COMMAND_LINE = Place("on the command line")
INVENTORY = Place("in the inventory", "the inventory")

TEXT_KINDS = frozenset(("str", "path"))
# Variables whose values or words are texts for programs, whatever YAML makes of them.
TEXTS = frozenset(
    ("job_command", "job_env", "job_node_env", "job_secret_env", "job_mpi_parameters", "benchmark_env", "pair_env",
     "openmpi_environment", "cuda_toolkit_environment", "mindspore_verify_environment")
)  # fmt: skip


class UnfitError(ValueError):
    """A value that does not fit its variable; the text is the expectation."""


def table(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Variable]:
    """Return all variables of argument_specs files by name; their keys are names of roles, "" for the playbooks."""
    variables: dict[str, Variable] = {}
    for role, entries in specs.items():
        for entry in entries.values():
            for name, option in (entry.get("options") or {}).items():
                kind, elements = str(option.get("type", "str")), str(option.get("elements", ""))
                family = f"{role}_" if role and name.startswith(f"{role}_") else f"{name.partition('_')[0]}_"
                variables.setdefault(name, Variable(name, kind, elements, option.get("default"), family))
    return variables


def options_of_roles(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of all roles but `job`, which has checks of its own, as argument_specs.

    `required` and `default` are left out, as only given values are checked.
    """
    return _only_values(entry for role, each in specs.items() if role not in ("", "job") for entry in each.values())


def options_of_playbooks(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of the playbooks in this way; those of job files are checked with the job."""
    options = _only_values(entries.values())
    return {name: option for name, option in options.items() if name != "job" and not name.startswith("job_")}


def _only_values(entries: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value for key, value in option.items() if key not in ("required", "default")}
        for entry in entries
        for name, option in (entry.get("options") or {}).items()
    }


def not_a_choice(name: str, value: Any, choices: Sequence[Any], place: Place) -> Finding | None:
    """Return the finding about values, one or a list, that are none of the choices; None where none is wrong."""
    wrong = [each for each in (value if isinstance(value, list) else [value]) if each not in choices]
    if not wrong:
        return None
    known = ", ".join(str(each) or '""' for each in choices)
    expected = f"some of {known}" if isinstance(value, list) else f"one of {known}"
    return Finding(name, f"{', '.join(map(repr, wrong))} {place.text}", expected, f"correct {name}")


def not_allowed(name: str, message: str, place: Place) -> Finding:
    """Return the finding about a value that the argument_specs of its role do not allow; `message` is Ansible's."""
    return Finding(name, f"{message}, {place.text}", "a value of its role's argument_specs", f"correct {name}")


def is_template(value: Any) -> bool:
    """Tell whether a value is a template of Jinja."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def unknown(
    names: Mapping[str, Iterable[Place]],
    known: Mapping[str, Variable],
    own: Collection[str] | None = None,
    *,
    prefixed: bool = False,
) -> list[Finding]:
    """Find misspelt names, each with its places: unknown ones with a prefix of ours, or very similar to one of ours.

    With `own` the names are given for one run, and less similar names count as well, unless `own` has them: the names
    that the inventory has or that a template uses. With `prefixed` so do ours without their prefix, such as `nodes`.
    """
    prefixes = sorted({each.family for each in known.values() if each.name.startswith(each.family)}, key=len)
    findings = []
    for name, places in names.items():
        if name in known:
            continue
        if name.startswith("job"):
            findings += [_with_place(each, place) for each in specification.unknown_keys([name]) for place in places]
            continue
        near = _likely(name, known, _LIKE if own is None or name in own else _LIKE_UNUSED)
        if prefixed and own is not None and name not in own:
            near = next((each for each in (f"job_{name}", f"trainyard_{name}") if each in known), near)
        prefix = next((each for each in reversed(prefixes) if name.startswith(each)), "")
        if near or prefix:
            rename = f"remove {name}, or rename it: names with {prefix} are those of this project"
            action = f"did you mean {near}?" if near else rename
            expected = "a documented variable (docs/, ansible-doc -t role NAME)"
            texts = [f"unknown variable {name} {place.text}" for place in places]
            findings += [Finding("variable", found, expected, action) for found in texts]
    return findings


def _with_place(finding: Finding, place: Place) -> Finding:
    action = finding.action.replace("from the job file", f"from {place.file or 'the command line'}")
    return replace(finding, found=f"{finding.found} {place.text}", action=action)


def _likely(name: str, known: Mapping[str, Variable], cutoff: float) -> str:
    """Return the variable that a name was probably meant to be, or ""."""
    families = {variable.family for variable in known.values() if name.startswith(variable.family)}
    family = max(families, key=len, default="")
    if family:
        rests = {each.name[len(family) :]: each.name for each in known.values() if each.family == family}
        near = difflib.get_close_matches(name[len(family) :], rests, n=1, cutoff=_LIKE_IN_FAMILY)
        if near:
            return rests[near[0]]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def convert(variable: Variable, value: Any, read: Reader) -> Any:
    """Return a value in the documented type of its variable. Templates stay as they are.

    Raises UnfitError with what is expected.
    """
    if value is None or is_template(value):
        return value
    if variable.kind in TEXT_KINDS:
        return _text(value)
    if variable.kind in ("list", "dict", "raw") and isinstance(value, str) and _FLOW.fullmatch(value):
        value = _read_flow(value, read)
    if variable.kind == "list":
        if not isinstance(value, (list, tuple)):
            raise UnfitError("a list")
        if variable.elements not in _SCALARS:
            return value
        try:
            return [_SCALARS[variable.elements](item) for item in value]
        except UnfitError as error:
            raise UnfitError(f"a list, each item of it {error}") from None
    if variable.kind == "dict" and not isinstance(value, Mapping):
        raise UnfitError("a dictionary of NAME: value pairs")
    if variable.kind not in _SCALARS:
        return value
    try:
        return _SCALARS[variable.kind](value)
    except UnfitError as error:
        job_variable = VARIABLES.get(variable.name) if variable.kind == "int" else None
        raise UnfitError(f"{error} {job_variable.range}" if job_variable else str(error)) from None


def _read_flow(text: str, read: Reader) -> Any:
    try:
        value = read(text)
    except Exception:
        return text
    return value if isinstance(value, (list, dict)) else text


def _text(value: Any) -> Any:
    """Return a text, or an encrypted one; a number becomes a text."""
    if isinstance(value, (bool, list, tuple, Mapping)) or (isinstance(value, str) and value and not value.strip()):
        raise UnfitError("a text")
    if unwritable(value):
        raise UnfitError("text in UTF-8")
    return str(value) if isinstance(value, (int, float)) else value


def _truth(value: Any) -> bool:
    word = str(value).strip().lower()
    if isinstance(value, (bool, int, str)) and word in _TRUE | _FALSE:
        return word in _TRUE
    raise UnfitError("true or false (or yes, no, on, off, 1, 0)")


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    raise UnfitError("a whole number")


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnfitError("a number")
    return number if isinstance(value, str) else value


_SCALARS: Mapping[str, Callable[[Any], Any]] = {"bool": _truth, "int": _integer, "float": _number}


def unfit(variable: Variable, value: Any, place: Place, expected: str) -> Finding:
    """Return the finding about a value that does not fit its variable."""
    shown = "a text" if _SECRET.search(variable.name) else _shortened(value)
    return Finding(variable.name, f"{shown} {place.text}", expected, f"write {_suggestion(variable, value, place)}")


def unquoted(variable: Variable) -> str:
    """Return what is expected of a variable in a file of variables, where quotes make a text."""
    kinds = {"bool": "true or false", "list": "a list", "dict": "a dictionary"}
    return f"{kinds.get(variable.kind, 'a list or a dictionary')} without quotes"


def _shortened(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _suggestion(variable: Variable, value: Any, place: Place) -> str:
    if variable.kind in TEXT_KINDS:
        if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], str):
            return place.how(variable.name, value[0])
        default = str(variable.default or "")
        text = "TEXT" if not default or is_template(default) else default
        return f"one value, such as {place.how(variable.name, text)}, or leave {variable.name} out"
    if variable.name == "job_command" and isinstance(value, str) and not re.match(r"\[|[\w./=-]*,", value.strip()):
        command, env = of_text(value)
        return place.how(variable.name, command or "[]") + (f" and {place.how('job_env', env)}" if env else "")
    if variable.kind == "bool":
        return f"{place.how(variable.name, 'true')} or {place.how(variable.name, 'false')}"
    if variable.kind == "list":
        words = re.split(r"\s*,\s*|\s+", value.strip(" []{}")) if isinstance(value, str) else []
        items = ", ".join(filter(None, words)) if not _SECRET.search(variable.name) else "..."
        return place.how(variable.name, f"[{items}]")
    if variable.kind == "dict":
        return place.how(variable.name, "{NAME: value}")
    example = variable.default if isinstance(variable.default, (int, float)) and variable.default else 1
    return f"a number without a unit, such as {place.how(variable.name, str(example))}"


def converted(
    given: Mapping[str, Any], places: Callable[[str], Place], known: Mapping[str, Variable], read: Reader
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the variables whose value changes when it is converted, and findings about those that do not fit."""
    changes: dict[str, Any] = {}
    findings = []
    for name, value in given.items():
        if name in known:
            try:
                new = convert(known[name], value, read)
            except UnfitError as error:
                findings.append(unfit(known[name], value, places(name), str(error)))
                continue
            # 1 == True, so the types are compared, too.
            if new is not value and (type(new) is not type(value) or new != value):
                changes[name] = new
    return changes, findings


def without_value(given: Mapping[str, Any], known: Mapping[str, Variable]) -> tuple[dict[str, Any], list[str]]:
    """Return the defaults of variables of a job file that have no value there, and the names that need one.

    A text that has a default needs one: its user may mean the default, or an empty text.
    """
    blank = [known[name] for name, value in given.items() if value is None and name in known]
    unclear = [each.name for each in blank if isinstance(each.default, str) and each.default]
    return {each.name: each.default for each in blank if each.name not in unclear}, unclear


def no_value(name: str, place: Place, default: str) -> Finding:
    """Return the finding about a text without a value."""
    action = f'write {name}: {default} or {name}: "", or leave {name} out'
    return Finding(name, f"nothing {place.text}", "a text", action)


def no_number(name: str, written: str, becomes: str, place: Place) -> Finding:
    """Return the finding about a number that YAML reads as another one, such as 010 as 8."""
    decimal = f"{place.how(name, written.lstrip('+0'))}, or " if written.lstrip("+0").isdigit() else ""
    expected = "a decimal number without zeros before it"
    action = f"write {decimal}{place.how(name, becomes)}"
    return Finding(name, f"{written} {place.text}, which YAML reads as {becomes}", expected, action)


def negative(name: str, value: float, place: Place) -> Finding:
    """Return the finding about a negative number for a playbook."""
    return Finding(name, f"{value} {place.text}", "0 or more", f"correct {name}, or leave it out")


def retyped(name: str, part: str, written: str, becomes: str, place: Place) -> Finding:
    """Return the finding about a text in `name`, such as the value of A in job_env, that YAML takes for a number.

    Without a `part` the variable itself is the text.
    """
    part = part or name
    hidden = _SECRET.search(name) or _SECRET.search(part.lower())
    text, value = ("...", "another value") if hidden else (written, becomes)
    action = f'put it in quotes: {"" if name == "job_command" else f"{part}: "}"{text}"'
    found = f"{part}: {text} {place.text}, which YAML reads as {value}"
    return Finding(name, found, "text, which YAML leaves as it is", action)


def whole_options(options: Iterable[str], known: Mapping[str, Variable], read: Reader) -> dict[str, str]:
    """Return by option the value of `-e 'NAME=[a, b]'`, which Ansible would split at the blank."""
    values = {}
    for option in options:
        match = _OPTION.fullmatch(option)
        if match and match["name"] in known and known[match["name"]].kind in ("list", "dict", "raw"):
            text = match["value"].strip()
            if not isinstance(_read_flow(text, read), str):
                values[option] = text
    return values


def no_variable(option: str, rest: str) -> Finding:
    """Return the finding about an option -e, or the `rest` of one, that sets no variable."""
    rest = rest.strip()
    if _A_FILE.fullmatch(rest):
        action = f"write -e @{rest}, or -e job={rest}"
        return Finding("option -e", f"-e {option}", "-e @FILE or -e NAME=VALUE", action)
    if rest == option.strip():
        action = f"write -e {rest if rest.isidentifier() else 'NAME'}=VALUE"
    else:
        action = "put the whole value into quotes within quotes: -e 'NAME=\"a b\"'"
    return Finding("option -e", f"{rest!r} without = in -e {option!r}", "-e NAME=VALUE or -e @FILE", action)


def no_dictionary(option: str, read: Callable[[], Any]) -> Finding | None:
    """Find an option -e that begins like YAML or JSON and is no dictionary; `read` reads it."""
    try:
        if isinstance(read(), Mapping):
            return None
    except Exception as error:
        reason = str(getattr(error, "message", "") or error).removeprefix("YAML parsing failed: ").partition("\n")[0]
    else:
        reason = "it is a list"
    expected = "a dictionary as YAML or JSON, such as -e '{\"job_nodes\": 2}'"
    action = "correct it, or write -e NAME=VALUE for each variable"
    return Finding("option -e", f"{_shortened(option)}: {reason}", expected, action)


def differs(name: str, here: Any, there: Sequence[tuple[Any, Sequence[str]]]) -> Finding:
    """Return the finding about a variable of the cluster that is not the same for all nodes and the controller."""
    on_nodes = ", ".join(f"{value} on {host_list(hosts)}" for value, hosts in there)
    found = f"{on_nodes}; {here} on localhost, where jobs are planned and clusters verified"
    return Finding(name, found, "one value for all nodes and localhost", f"set {name} once, for the group all")


def unchecked(reason: str) -> Finding:
    """Return the finding about a check of variables that raised an error."""
    found = f"they cannot be checked: {' '.join(reason.split())[:500]}"
    action = "correct what this names; where nothing is wrong with that, report it with the output of -vvv"
    return Finding("variables", found, "variables, inventories and plugins that can be read", action)
