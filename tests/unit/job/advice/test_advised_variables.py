"""Variables that an advice names exist, as `site.yml` and `launch.yml` refuse others."""

from __future__ import annotations

import re

import pytest
from ansible.module_utils.trainyard.software import package_index
from ansible.module_utils.trainyard.software.requirements import parse
from test_claims import PROJECT, known_variables
from test_followed_advice import CODE, advised

ROLES = sorted(path.name for path in PROJECT.glob("roles/*") if path.is_dir())
# X stands for what the code puts in.
NAME = re.compile(rf"(?<![\w./-])(?:X|{'|'.join([*ROLES, 'image', 'job', 'trainyard'])})_[a-z0-9_X]+\b(?!\()")


def test_every_variable_in_an_advice_exists():
    texts = {text for path in CODE.rglob("*.py") for text in advised(path)}
    named = {name for text in texts for name in NAME.findall(text)}
    known = "\n".join({*known_variables(), *ROLES})
    unknown = {name for name in named if not re.search(rf"^{name.replace('X', '[a-z_]+')}$", known, re.MULTILINE)}
    # A folder, in the form of a text for Python's format.
    assert len(named) > 150 and unknown == {"job_dir"}


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
