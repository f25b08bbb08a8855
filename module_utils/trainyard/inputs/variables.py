# SPDX-License-Identifier: Apache-2.0
"""What users give: on the command line, in job files, in the inventory. Names that are known, texts that become values.

The table of variables is read from argument_specs files: those of the roles, and playbooks/meta/argument_specs.yml.
Ansible takes every `-e name=value` for a text, and an unknown name in silence; here a text becomes what its variable is
documented to be, and whatever cannot is a finding.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings.findings import Finding, host_list
from ..job.file import specification as jobs
from ..job.file.variables import VARIABLES

# Reads YAML such as `[a, b]`. Raises an exception where it is none.
Reader = Callable[[str], Any]

HEADLINE = "{count} {findings} in what was given. Nothing was done."

_TRUE = frozenset({"true", "yes", "on", "1", "t", "y"})
_FALSE = frozenset({"false", "no", "off", "0", "f", "n"})
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_FLOW = re.compile(r"\s*(?:\[.*\]|\{.*\})\s*", re.DOTALL)
_OPTION = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>\s*(?:\[.*\]|\{.*\})\s*)", re.DOTALL)
_A_FILE = re.compile(r"\S+\.(?:ya?ml|json)|jobs/\S+")
# Anyone who knows the address of a webhook can write there.
_SECRET = re.compile(r"secret|passw|token|key|job_events$")
# How much of a misspelt name, without its first words, must be right to be taken for another one; and of a whole name.
_LIKE_IN_FAMILY = 0.8
_LIKE = 0.92
_LIKE_UNUSED = 0.88


@dataclass(frozen=True)
class Variable:
    """A documented variable: what it is, and how the names of those it belongs to begin."""

    name: str
    kind: str
    elements: str
    default: Any
    family: str


@dataclass(frozen=True)
class Place:
    """Where something was given: `text` such as `on the command line`, the file's name, or "" where it is in none."""

    text: str
    file: str = ""

    def how(self, name: str, value: str) -> str:
        """Return what to write there to give a value."""
        if self.file:
            return f"{name}: {value}"
        return f"-e {name}={value}" if value.isalnum() else f"-e '{name}={value}'"


COMMAND_LINE = Place("on the command line")
INVENTORY = Place("in the inventory", "the inventory")


# Their values, or words, are texts for programs, whatever YAML makes of them.
TEXTS = frozenset(
    (
        *(
            "job_command",
            "job_env",
            "job_node_env",
            "job_secret_env",
            "job_mpi_parameters",
            "benchmark_env",
            "pair_env",
        ),
        *("openmpi_environment", "cuda_toolkit_environment", "mindspore_verify_environment"),
    )
)


class UnfitError(ValueError):
    """A value that is not what its variable is documented to be; says what that is."""


def table(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, Variable]:
    """Return all variables of argument_specs files by name; their keys are names of roles, or "" for the playbooks."""
    known: dict[str, Variable] = {}
    for role, entries in specs.items():
        for entry in entries.values():
            for name, option in (entry.get("options") or {}).items():
                kind, elements = str(option.get("type", "str")), str(option.get("elements", ""))
                family = f"{role}_" if role and name.startswith(f"{role}_") else f"{name.partition('_')[0]}_"
                known.setdefault(name, Variable(name, kind, elements, option.get("default"), family))
    return known


def options_of_roles(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of the entries `main` of all roles but `job`, which finds more itself, as argument_specs.

    A value is looked at by itself: what is required and what is the default is left out.
    """
    return {
        name: {key: value for key, value in option.items() if key not in ("required", "default")}
        for role, entries in specs.items()
        if role not in ("", "job")
        for name, option in entries.get("main", {}).get("options", {}).items()
    }


def not_allowed(name: str, message: str, place: Place) -> Finding:
    """Return the finding about a value that the argument_specs of its role do not allow; `message` is Ansible's."""
    return Finding(name, f"{message}, {place.text}", "a value of its role's argument_specs", f"correct {name}")


def is_template(value: Any) -> bool:
    """Tell whether a value is known only when Jinja has read it."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def unknown(
    names: Mapping[str, Iterable[Place]], known: Mapping[str, Variable], own: Collection[str] | None = None
) -> list[Finding]:
    """Find names that are misspelt, each with its places: unknown ones that begin as ours do, or are very like one.

    With `own`, the names are given for one run: then a name that is merely like one of ours is found as well, unless
    `own` has it, which are the names that the inventory has or that a template uses.
    """
    prefixes = sorted({each.family for each in known.values() if each.name.startswith(each.family)}, key=len)
    findings = []
    for name, places in names.items():
        if name in known:
            continue
        if name.startswith("job"):
            findings += [_with_place(each, place) for each in jobs.unknown_keys([name]) for place in places]
            continue
        near = _likely(name, known, _LIKE if own is None or name in own else _LIKE_UNUSED)
        prefix = next((each for each in reversed(prefixes) if name.startswith(each)), "")
        if near or prefix:
            rename = f"remove {name}, or rename it: names with {prefix} are those of this project"
            findings += [
                Finding(
                    "variable",
                    f"unknown variable {name} {place.text}",
                    "a documented variable (docs/, ansible-doc -t role NAME)",
                    f"did you mean {near}?" if near else rename,
                )
                for place in places
            ]
    return findings


def _with_place(finding: Finding, place: Place) -> Finding:
    where = place.file or "the command line"
    action = finding.action.replace("from the job file", f"from {where}")
    return Finding(finding.check, f"{finding.found} {place.text}", finding.expected, action)


def _likely(name: str, known: Mapping[str, Variable], like: float) -> str:
    """Return the variable that a name was probably meant to be, or ""."""
    family = max(
        (variable.family for variable in known.values() if name.startswith(variable.family)), key=len, default=""
    )
    if family:
        rests = {each.name[len(family) :]: each.name for each in known.values() if each.family == family}
        near = difflib.get_close_matches(name[len(family) :], rests, n=1, cutoff=_LIKE_IN_FAMILY)
        if near:
            return rests[near[0]]
    whole = difflib.get_close_matches(name, known, n=1, cutoff=like)
    return whole[0] if whole else ""


def convert(variable: Variable, value: Any, read: Reader) -> Any:
    """Return a value as its variable is documented; a text becomes a truth value, a number, a list or a dictionary.

    Templates stay as they are. Raises UnfitError with what is expected.
    """
    if value is None or is_template(value):
        return value
    if variable.kind in ("list", "dict", "raw") and isinstance(value, str) and _FLOW.fullmatch(value):
        value = _read_flow(value, read)
    if variable.kind == "list":
        if not isinstance(value, (list, tuple)):
            raise UnfitError("a list")
        if variable.elements not in ("int", "float", "bool"):
            return value
        return [_scalar(variable.elements, "a list, each item of it ", item) for item in value]
    if variable.kind == "dict" and not isinstance(value, Mapping):
        raise UnfitError("a dictionary of NAME: value pairs")
    return _scalar(variable.kind, "", value, variable.name)


def _read_flow(text: str, read: Reader) -> Any:
    try:
        value = read(text)
    except Exception:
        return text
    return value if isinstance(value, (list, dict)) else text


def _scalar(kind: str, before: str, value: Any, name: str = "") -> Any:
    if kind == "bool":
        return _truth(value, before)
    if kind == "int":
        return _whole(value, before, name)
    if kind == "float":
        return _number(value, before)
    return value


def _truth(value: Any, before: str) -> bool:
    word = str(value).strip().lower()
    if isinstance(value, (bool, int, str)) and word in _TRUE | _FALSE:
        return word in _TRUE
    raise UnfitError(f"{before}true or false (or yes, no, on, off, 1, 0)")


def _whole(value: Any, before: str, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    of_job = VARIABLES.get(name)
    raise UnfitError(f"{before}a whole number{f' {of_job.range}' if of_job else ''}")


def _number(value: Any, before: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return value
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    raise UnfitError(f"{before}a number")


def unfit(variable: Variable, value: Any, place: Place, expected: str) -> Finding:
    """Return the finding about a value that is not what its variable is documented to be."""
    shown = "a text" if _SECRET.search(variable.name) else _shortened(value)
    return Finding(variable.name, f"{shown} {place.text}", expected, f"write {_suggestion(variable, value, place)}")


def unquoted(variable: Variable) -> str:
    """Return what is expected of a variable in a file of variables, where a text stays one."""
    kinds = {"bool": "true or false", "list": "a list", "dict": "a dictionary"}
    return f"{kinds.get(variable.kind, 'a list or a dictionary')} without quotes"


def _shortened(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _suggestion(variable: Variable, value: Any, place: Place) -> str:
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
    """Return what changes of given variables when each becomes what it is documented to be, and all that cannot."""
    changes: dict[str, Any] = {}
    findings = []
    for name, value in given.items():
        if name in known:
            try:
                new = convert(known[name], value, read)
            except UnfitError as error:
                findings.append(unfit(known[name], value, places(name), str(error)))
                continue
            # 1 == True, so a comparison of values alone would not tell.
            if new is not value and (type(new) is not type(value) or new != value):
                changes[name] = new
    return changes, findings


def retyped(name: str, part: str, written: str, becomes: str, place: Place) -> Finding:
    """Return the finding about a text in `name`, such as the value of A in job_env, that YAML takes for a number."""
    hidden = _SECRET.search(name) or _SECRET.search(part.lower())
    is_word = name == "job_command"
    text = "..." if hidden else written
    return Finding(
        name,
        f"{part}: {text} {place.text}, which YAML reads as {'another value' if hidden else becomes}",
        "text, which YAML leaves as it is",
        f'put it in quotes: {"" if is_word else f"{part}: "}"{text}"',
    )


def whole_options(options: Iterable[str], known: Mapping[str, Variable], read: Reader) -> dict[str, str]:
    """Return by option the value of `-e 'NAME=[a, b]'`, which Ansible would split at the blank into two of its own."""
    values = {}
    for option in options:
        match = _OPTION.fullmatch(option)
        if match and match["name"] in known and known[match["name"]].kind in ("list", "dict", "raw"):
            text = match["value"].strip()
            if not isinstance(_read_flow(text, read), str):
                values[option] = text
    return values


def no_variable(option: str, rest: str) -> Finding:
    """Return the finding about an option -e, or a part of one, that sets no variable."""
    if _A_FILE.fullmatch(rest.strip()):
        name = rest.strip()
        return Finding("option -e", f"-e {option}", "-e @FILE or -e NAME=VALUE", f"write -e @{name}, or -e job={name}")
    if rest.strip() == option.strip():
        do = f"write -e {rest.strip()}=VALUE" if rest.strip().isidentifier() else "write -e NAME=VALUE"
    else:
        do = "put the whole value into quotes within quotes: -e 'NAME=\"a b\"'"
    return Finding("option -e", f"{rest.strip()!r} without = in -e {option!r}", "-e NAME=VALUE or -e @FILE", do)


def no_dictionary(option: str, read: Callable[[], Any]) -> Finding | None:
    """Find an option -e that begins like YAML or JSON and is no dictionary; `read` reads it."""
    try:
        if isinstance(read(), Mapping):
            return None
    except Exception as error:
        reason = str(getattr(error, "message", "") or error).removeprefix("YAML parsing failed: ").partition("\n")[0]
    else:
        reason = "it is a list"
    return Finding(
        "option -e",
        f"{_shortened(option)}: {reason}",
        "a dictionary as YAML or JSON, such as -e '{\"job_nodes\": 2}'",
        "correct it, or write -e NAME=VALUE for each variable",
    )


def differs(name: str, here: Any, there: Sequence[tuple[Any, Sequence[str]]]) -> Finding:
    """Return the finding about a variable of the cluster that is not the same for all nodes and the controller."""
    found = [f"{value} on {host_list(hosts)}" for value, hosts in there]
    return Finding(
        name,
        f"{', '.join(found)}; {here} on localhost, where jobs are planned and clusters verified",
        "one value for all nodes and localhost",
        f"set {name} once, for the group all",
    )


def unchecked(reason: str) -> Finding:
    """Return the finding about a check of what was given that ended with an error, so that nothing of it is known."""
    return Finding(
        "variables",
        f"they cannot be checked: {' '.join(reason.split())[:500]}",
        "variables, inventories and plugins that can be read",
        "correct what this names; where nothing is wrong with that, report it with the output of -vvv",
    )
