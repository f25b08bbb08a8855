"""The folder templates/: what is put out is quoted or escaped, and nothing is missing without a word."""

from __future__ import annotations

import json

import jinja2
import pytest
from ansible.module_utils.trainyard_controller.runs.templates import FOLDER, environment, render
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes

SHELL = sorted(
    str(path.relative_to(FOLDER)) for path in FOLDER.glob("slurm/*.j2") if not path.name.endswith(".conf.j2")
)
# Values that are written as they are: numbers, checked names, and values that sbatch reads, not a shell.
AS_IT_IS = {
    "job.join_timeout_s", "job.heartbeat_timeout_s", "job.message_timeout_s", "job.restarts.max_restarts",
    "host", "interpreter", "job.min_disk_mib", "job.port", "line", "mark", "more", "name", "option",
    "plan.job_id", "plan.nodes", "plan.ranks_per_node", "plan.world_size", "stop.grace_s", "stop.signal", "submit_host",
    "unpacks", "where",
}  # fmt: skip


def written(expression):
    """How a simple expression is written; "" for another."""
    if isinstance(expression, nodes.Getattr):
        return f"{written(expression.node)}.{expression.attr}"
    return expression.name if isinstance(expression, nodes.Name) else ""


def is_safe(expression):
    """Whether a shell reads no more than one word, or words, in it, or what the templates themselves say."""
    if isinstance(expression, (nodes.TemplateData, nodes.Const)):
        return True
    if isinstance(expression, nodes.Filter):
        names = []
        while isinstance(expression, nodes.Filter):
            names.append((expression.name, [arg.value for arg in expression.args]))
            expression = expression.node
        return names[0][0] in ("quote", "length") or names == [("join", [" | "]), ("map", ["quote"])]
    if isinstance(expression, nodes.CondExpr):
        return is_safe(expression.expr1) and is_safe(expression.expr2)
    if isinstance(expression, nodes.Concat):
        return all(map(is_safe, expression.nodes))
    if isinstance(expression, nodes.Add):
        return is_safe(expression.left) and is_safe(expression.right)
    if isinstance(expression, nodes.Call):
        # A macro of the template itself, whose own text is looked at, too.
        return written(expression.node).startswith(("srun_", "packages"))
    return written(expression) in AS_IT_IS


@pytest.mark.parametrize("name", SHELL)
def test_every_value_in_a_shell_script_is_quoted(name):
    tree = environment().parse((FOLDER / name).read_text())
    put_out = [each for output in tree.find_all(nodes.Output) for each in output.nodes]
    assert len(put_out) > 3
    assert [each for each in put_out if not is_safe(each)] == []


@pytest.mark.parametrize(
    "text", ["{{ job.venv }}", "{{ path | upper }}", "{{ 'x' ~ path }}", "{{ path | join(' | ') }}"]
)
def test_a_value_that_is_not_quoted_is_found(text):
    (output,) = environment().parse(text).find_all(nodes.Output)
    assert not all(map(is_safe, output.nodes))


def test_a_value_that_is_missing_is_no_empty_text():
    with pytest.raises(jinja2.UndefinedError, match="'plan' is undefined"):
        render("slurm/job.sbatch.j2", {})


def test_a_page_escapes_every_value_and_so_do_its_parts():
    state = {"like": '"><b>', "sign": "<", "word": "&"}
    parts = "{% from 'report/parts.html.j2' import badge, row %}"
    text = parts + "{{ row(['a', 'b'], [value, badge(state)], {'data-x': value}) }}"
    made = environment().overlay(autoescape=True).from_string(text).render(value="<i>'\"", state=state)
    assert made.count("<") == 10 and "<i>" not in made and "<b>" not in made
    pages = [name for name in environment().list_templates() if name.startswith("report/") and name.endswith(".j2")]
    assert len(pages) > 3 and all(environment().autoescape(name) for name in pages)


def test_no_page_calls_anything_safe():
    trees = [environment().parse(path.read_text()) for path in FOLDER.rglob("*.j2")]
    used = {each.name for tree in trees for each in tree.find_all(nodes.Filter)}
    assert used and "safe" not in used
    assert not any(list(tree.find_all((nodes.MarkSafe, nodes.ScopedEvalContextModifier))) for tree in trees)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_data_in_a_page_ends_no_script_and_stays_what_it_is(data):
    held = environment().from_string("{{ data | tojson }}").render(data=data)
    assert not set("<>&\u2028\u2029") & set(held) and json.loads(held) == data
