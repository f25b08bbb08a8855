"""Texts for programs that YAML reads as numbers, truth values or dates."""

import pytest
import yaml
from ansible.module_utils.trainyard.inputs import input_variables
from ansible.module_utils.trainyard.inputs.input_variables import COMMAND_LINE, TEXTS, Place
from ansible.module_utils.trainyard_controller.inputs import yaml_texts
from ansible_run import PROJECT
from documented import KNOWN
from hypothesis import given
from hypothesis import strategies as st


def changed(text, line, name):
    return [tuple(each) for each in yaml_texts.changed(yaml_texts.nodes(text).get((line, name)))]


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("0123", "83"), ("12:30:45", "45045"), ("yes", "true"), ("No", "false"), ("off", "false"), ("True", "true"),
        ("0x1F", "31"), ("0b11", "3"), ("1_000", "1000"), ("+5", "5"), ("1.10", "1.1"), ("1.0e+3", "1000.0"),
        (".5", "0.5"), ("2024-01-01", "a date"), (".inf", "inf"),
    ],
)  # fmt: skip
def test_values_that_yaml_changes_are_named_with_their_lines(written, becomes):
    text = f"job_name: x\njob_env:\n  B: 1\n  A: {written}  # why\n"
    assert changed(text, 2, "job_env") == [("A", written, 4, becomes)]
    assert changed(f"job_env: {{B: 1, A: {written}}}", 1, "job_env") == [("A", written, 1, becomes)]
    inline = f"all: {{vars: {{job_command: [x, {written}]}}}}"
    assert changed(inline, 1, "job_command") == [("word 2", written, 1, becomes)]


PLAIN = ["1", "-1", "0", "0.5", "1e3", "1e-3", "true", "false", "text", "10.0.0.1", "null", "~", "1.2.3"]


@pytest.mark.parametrize("written", [*PLAIN, "'0123'", '"yes"'])
def test_unchanged_values_have_no_finding(written):
    assert changed(f"job_env: {{A: {written}}}", 1, "job_env") == []


def test_unreadable_values_are_ignored():
    for text in ("job_env: [", "job_env: x", "job_env:", "", "- a", "job_env: {A: [0123], B: {C: 0123}}"):
        assert changed(text, 1, "job_env") == []
    assert changed("a: &a {X: 0123}\njob_env: *a\n", 2, "job_env") == [("X", "0123", 1, "83")]
    assert changed("job_env: !vault |\n  a\n", 1, "job_env") == []


values = st.one_of(st.text(), st.integers(), st.booleans())


@given(st.dictionaries(st.from_regex(r"[A-Z]{1,4}", fullmatch=True), values))
def test_values_that_a_program_wrote_are_unchanged(env):
    assert changed(yaml.safe_dump({"job_env": env}), 1, "job_env") == []


def test_the_finding_has_the_quoted_text_and_shows_no_secret():
    place = Place("in jobs/x.yml, line 4", "jobs/x.yml")
    finding = input_variables.retyped("job_env", "A", "0123", "83", place)
    assert (finding.check, finding.action) == ("job_env", 'put it in quotes: A: "0123"')
    assert finding.found == "A: 0123 in jobs/x.yml, line 4, which YAML reads as 83"
    assert input_variables.retyped("job_command", "word 3", "010", "8", place).action == 'put it in quotes: "010"'
    for name, part in (("job_secret_env", "PIN"), ("job_env", "API_TOKEN")):
        text = str(input_variables.retyped(name, part, "0123", "83", COMMAND_LINE))
        assert "0123" not in text and "83" not in text


def test_variables_with_texts_are_documented():
    assert set(KNOWN) >= TEXTS
    environments = {name for name in KNOWN if name.endswith(("_env", "_environment"))}
    # Only roles set the last one.
    assert environments - TEXTS == {"python_runtime_verify_environment"}


def test_the_projects_job_files_and_documents_have_no_such_text():
    checked = 0
    for path in (path for folder in ("jobs", "molecule", "inventories") for path in (PROJECT / folder).rglob("*.yml")):
        for (_, name), node in yaml_texts.nodes(path.read_text()).items():
            if name in TEXTS:
                checked += 1
                assert list(yaml_texts.changed(node)) == [], path
    assert checked > 30


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("compute: {hosts: {n1: }}\nall:\n  var: {a: 1}\n", [(3, "var in group all")]),
        ("compute:\n  hosts: [n1, n2]\n", [(2, "a list as hosts of group compute")]),
        ("compute:\n  hosts:\n    n1: 10.0.0.1\n", [(3, "a text as host n1")]),
        ("compute: {hosts: {n1: }}\ncompute: {vars: {a: 1}}\n", [(2, "compute in the inventory again, after line 1")]),
        ("all: {hosts: {n1: {a: 1,\n a: 2}}}\n", [(2, "a in host n1 again, after line 1")]),
        ("- n1\n- n2\n", []),
        ("plugin: aws_ec2\nregions: [x]\n", []),
        ("[compute]\nn1\n", []),
        ("a: &a {hosts: n1}\nb: {<<: *a, <<: *a, children: {a: *a}}\nc:\n", []),
        ("a: &a {children: {a: *a}}\n", []),
    ],
)
def test_parts_of_an_inventory_that_ansible_leaves_out(text, faults):
    assert [fault[:2] for fault in yaml_texts.inventory_faults(text)] == faults


def test_the_projects_inventories_are_complete():
    paths = [path for path in (PROJECT / "inventories").glob("*/hosts.yml") if path.is_file()]
    assert len(paths) > 2 and not any(yaml_texts.inventory_faults(path.read_text()) for path in paths)
