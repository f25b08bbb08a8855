"""The commented inventory of a GPU cluster names only variables that something reads."""

import re
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
GROUP_VARS = PROJECT / "inventories/example-gpu/group_vars"


def named_in(path):
    """Variables of a file, also those that are commented out."""
    return set(re.findall(r"^(?:# )?([a-z]+(?:_[a-z]+)+):", path.read_text(), re.MULTILINE))


def test_every_role_variable_of_the_example_is_a_default_of_a_role():
    defaults = set()
    for path in PROJECT.glob("roles/*/defaults/main.yml"):
        defaults |= set(yaml.safe_load(path.read_text()))
    named = named_in(GROUP_VARS / "compute.yml")
    assert len(named) > 15
    assert named - defaults == set()


def test_every_global_variable_of_the_example_is_read_somewhere():
    read = "".join(
        path.read_text()
        for pattern in ("roles/*/defaults/main.yml", "playbooks/*.yml")
        for path in PROJECT.glob(pattern)
    )
    named = named_in(GROUP_VARS / "all.yml")
    assert len(named) > 5
    assert {name for name in named if name not in read} == set()
