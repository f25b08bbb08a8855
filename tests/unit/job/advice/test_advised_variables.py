"""Variables that an advice names exist, as `site.yml` and `launch.yml` refuse others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import ansible.module_utils
import pytest
from ansible.module_utils.trainyard.software import package_index
from ansible.module_utils.trainyard.software.requirements import parse
from test_claims import PROJECT, known_variables

CODE = Path(ansible.module_utils.__path__[-1])
ROLES = sorted(path.name for path in PROJECT.glob("roles/*") if path.is_dir())
# X stands for what the code puts in.
NAME = re.compile(rf"(?<![\w./-])(?:X|{'|'.join([*ROLES, 'image', 'job', 'trainyard'])})_[a-z0-9_X]+\b(?!\()")
VERBS = (
    "add|allow|apt-mark|ask|begin|boot|bring|check|choose|compare|copy|correct|create|end|find|free some|give|go on|"
    "have it|install|keep|launch|leave|let|log in|look up|lower|make|mount|move|name|pull|put|raise|release|remove|"
    "rename|repair|replace|run|see|set|start|stop|take|use|wait|write"
)


def text_of(node):
    """Return a text in the code, with X for each of its values; "" for other code."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "override":
        fields = ", ".join(f"{each.arg}: {text_of(each.value) or 'X'}" if each.arg else "X" for each in node.keywords)
        fields = fields.replace("X, ", "X").replace(", X", "X")
        return f"nvidia_stack_overrides: {{{text_of(node.args[0]) or 'X'}: {{{fields}}}}}"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "".join(text_of(part) or "X" for part in node.values) if isinstance(node, ast.JoinedStr) else ""


def advised(path):
    """Return the texts of a file that begin with a verb, and those that are the action of a finding."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = {text_of(node) for node in nodes if id(node) not in inner}
    actions = {text_of(action_of(node)) for node in nodes}
    texts = {text for text in texts if re.match(f"({VERBS}) |nvidia_stack_overrides: {{", text)}
    # One of them is the name of a check, and a pattern is none.
    texts = {text for text in texts - {"name for the certificate"} if "(?P<" not in text}
    return texts | actions | remedies(nodes) - {""}


def remedies(nodes):
    """Return the last texts of the rows of tables, whose names end in FAULTS."""
    tables = [node for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple)]
    rows = [row for each in tables if getattr(each.target, "id", "").endswith("FAULTS") for row in each.value.elts]
    return {text_of(row.elts[-1]) for row in rows if isinstance(row, ast.Tuple)}


def action_of(node):
    """Return the code of an action: what is assigned to this name, or the fourth argument of a finding."""
    if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["action"]:
        return node.value
    is_finding = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "Warned")
    return node.args[3] if is_finding and len(node.args) > 3 else None


def test_every_variable_in_an_advice_exists():
    texts = {text for path in CODE.rglob("*.py") for text in advised(path)}
    named = {name for text in texts for name in NAME.findall(text)}
    known = "\n".join({*known_variables(), *ROLES})
    unknown = {name for name in named if not re.search(rf"^{name.replace('X', '[a-z_]+')}$", known, re.MULTILINE)}
    assert len(named) > 150 and unknown == set()


@pytest.mark.parametrize(
    "prefix", ["cuda_toolkit_wheel", "cudnn", "mindspore", "nccl", "oneflow", "python_runtime", "pytorch"]
)
def test_every_role_with_wheels_has_the_variables_of_the_advice_about_indexes(prefix):
    pin, nothing = parse("x==1", (3, 11)), package_index.Offered()
    silent = package_index.Offered(silent="refused")
    findings = [package_index.check(pin, each, "the index", "any", prefix) for each in (nothing, silent)]
    findings += [package_index.archive_only(pin, "the index", "any", prefix)]
    findings += [package_index.of_dependency("x", "x>1", "y", "the index", "any", prefix, True)]
    named = {name for each in findings for name in NAME.findall(each.action)}
    assert len(named) > 1 and named <= known_variables()
