"""What README and docs claim in numbers and names, held against what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]


def test_every_scenario_that_make_test_leaves_out_is_named_with_what_needs_it():
    slow = re.search(r"^slow=\((.+)\)$", (PROJECT / ".ci/molecule").read_text(), re.MULTILINE)[1].split()
    table = (PROJECT / "CONTRIBUTING.md").read_text().partition("needs `make molecule SCENARIO=`")[2]
    assert slow and [name for name in slow if f"`{name}`" not in table] == []


@pytest.mark.parametrize("group", ["compute", "nvidia", "rdma", "slurm_login"])
def test_the_example_names_every_group_that_playbooks_and_roles_go_by(group):
    text = (PROJECT / "inventories/example-gpu/hosts.yml").read_text()
    assert re.search(rf"^(# )?{group}:$", text, re.MULTILINE)
    named = [*PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("roles/*/*/main.yml"), *PROJECT.glob("docs/slurm.md")]
    assert any(group in path.read_text() for path in named)


def test_no_other_group_is_gone_by():
    used = set()
    for path in [*PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("roles/*/*/*.yml")]:
        used |= set(re.findall(r"groups\['(\w+)'\]|'(\w+)' in groups", path.read_text()))
    assert {name for pair in used for name in pair if name} <= {"compute", "nvidia", "rdma", "slurm_login", "all"}


def test_nccl_tests_are_no_default():
    options = yaml.safe_load((PROJECT / "playbooks/meta/argument_specs.yml").read_text())["argument_specs"]["all"][
        "options"
    ]
    assert options["trainyard_nvidia"]["default"] == ["nvidia_driver", "cuda_toolkit", "nccl"]
    page = (PROJECT / "docs/nvidia.md").read_text()
    assert "nccl-tests where they are asked for" in page


def test_every_role_that_is_asked_about_beforehand_says_what_it_wants():
    play = yaml.safe_load((PROJECT / "playbooks/validate.yml").read_text())[0]["vars"]
    named = re.findall(r"'(\w+)'", play["__validate_software"]) + play["__validate_nvidia"]
    assert {"pytorch", "dataset", "nccl"} <= set(named)
    assert [name for name in named if not (PROJECT / f"roles/{name}/tasks/validate.yml").exists()] == []
