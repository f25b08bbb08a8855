"""The folder templates/: what is put out is quoted or escaped, and nothing is missing without a word."""

from __future__ import annotations

import jinja2
import pytest
from ansible.module_utils.trainyard_controller.templates import FOLDER, environment, render
from jinja2 import nodes

SHELL = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("slurm/*.j2"))
# What is put out as it is: numbers, names that are checked to be such, what is read by sbatch and not by a shell.
AS_IT_IS = {
    "job.join_timeout_s", "job.heartbeat_timeout_s", "job.message_timeout_s", "job.max_restarts",
    "job.min_disk_mib", "job.port", "line", "mark", "more", "name", "option", "plan.job_id", "plan.nodes",
    "plan.processes_per_node", "plan.world_size", "submit_host", "unpacks", "where",
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
        return written(expression.node).startswith("srun_")
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
