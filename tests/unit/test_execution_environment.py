"""The image for ansible-navigator and AWX: its definition, what it installs, and a survey for jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tomllib
import yaml
from ansible_builder.exceptions import DefinitionError
from ansible_builder.user_definition import UserDefinition
from documented import KNOWN

PROJECT = Path(__file__).resolve().parents[2]
FILE = PROJECT / "execution-environment.yml"
DEFINITION = yaml.safe_load(FILE.read_text())
GROUPS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]
STEPS = "".join(DEFINITION["additional_build_steps"].values())


def test_ansible_builder_takes_the_definition(tmp_path):
    UserDefinition(str(FILE)).validate()
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(yaml.safe_dump({**DEFINITION, "dependency": {}}))
    with pytest.raises(DefinitionError):
        UserDefinition(str(wrong)).validate()


def test_it_has_the_packages_of_the_controller_by_their_sums():
    (files,) = DEFINITION["additional_build_files"]
    copied = {path.name for path in PROJECT.glob(files["src"])}
    installs = re.findall(r"pip install (.*?) -r (\S+)", STEPS)
    assert [name for _, name in installs] == ["pip.txt", "execution-environment.txt"]
    assert {options for options, _ in installs} == {"--no-cache-dir --require-hashes --only-binary :all:"}
    assert {"builder.txt", *(name for _, name in installs)} <= copied
    runner = next(each for each in GROUPS["execution-environment"] if isinstance(each, str))
    assert GROUPS["execution-environment"] == [{"include-group": "kubernetes"}, runner]
    assert {"include-group": "controller"} in GROUPS["kubernetes"] and runner.startswith("ansible-runner==")
    # ansible-builder would install these without a pin or a sum.
    assert not {"ansible_core", "ansible_runner", "python", "galaxy"} & set(DEFINITION["dependencies"])
    assert "package_pip" not in DEFINITION["options"]["container_init"]
    # Its own call of pip is held to the sums of these.
    for name in ("bindep", "pyyaml", "packaging"):
        assert re.search(rf"^{name}==", (PROJECT / "requirements/builder.txt").read_text(), re.MULTILINE)


def test_navigator_takes_the_image_that_make_builds():
    settings = yaml.safe_load((PROJECT / "ansible-navigator.yml").read_text())["ansible-navigator"]
    image = re.search(r"^execution-environment: IMAGE := (\S+)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)[1]
    assert settings["execution-environment"]["image"] == image
    page = (PROJECT / "docs/execution-environment.md").read_text()
    assert image in page


def test_the_survey_asks_for_documented_variables_as_awx_takes_them():
    survey = json.loads((PROJECT / "docs/awx-survey.json").read_text())
    assert set(survey) == {"name", "description", "spec"}
    for question in survey["spec"]:
        assert all(isinstance(question[name], str) for name in ("type", "question_name", "variable"))
        assert isinstance(question["required"], bool) and 0 <= question["min"] < question["max"]
        # An answer that nobody gave would override the job file.
        assert "default" not in question
        kind = {"integer": "int", "text": "path"}[question["type"]]
        assert KNOWN[question["variable"]].kind == kind
    assert [question["variable"] for question in survey["spec"] if question["required"]] == ["job"]
