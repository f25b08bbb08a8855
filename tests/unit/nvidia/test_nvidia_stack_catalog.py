"""The catalog of stacks and their rules as data: complete, known, with their sources."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible.module_utils.trainyard.nvidia import library_plan, nvidia_hardware
from ansible.module_utils.trainyard.nvidia import stack as nvidia_stack
from ansible.module_utils.trainyard.software import mindspore_releases

PROJECT = Path(__file__).resolve().parents[3]
VARS = PROJECT / "roles/nvidia_stack/vars/main"
RULES = yaml.safe_load((VARS / "rules.yml").read_text())["__nvidia_stack_rules"]
CATALOG = yaml.safe_load((VARS / "stacks.yml").read_text())["__nvidia_stack_catalog"]


def test_every_row_of_the_rules_has_a_source_that_is_named():
    for kind, rows in RULES.items():
        if kind == "sources":
            continue
        for row in rows if isinstance(rows, list) else [rows]:
            assert row["source"] in RULES["sources"], (kind, row)
    used = {row["source"] for rows in RULES.values() if isinstance(rows, list) for row in rows}
    assert set(RULES["sources"]) - used == {"gcc", "estimate", "mindspore", "cudnn"}


def test_rows_are_known_and_ordered():
    assert [row["name"] for row in RULES["generations"]] == list(nvidia_hardware.GENERATIONS)
    releases = [nvidia_hardware.number(row["version"]) for row in RULES["cuda"]]
    assert releases == sorted(releases)
    for row in RULES["cuda"]:
        assert nvidia_hardware.number(row["least"]) <= nvidia_hardware.number(row["driver"])
    names = set(nvidia_hardware._NAMES.values())
    assert all(any(name.startswith(row["name"]) for name in names) for row in RULES["models"])
    builds = {row["version"]: row["cuda"] for row in RULES["nccl"]}
    for stack in CATALOG.values():
        nccl = stack["set"]["nccl"]
        assert nccl["provider"] != "network_repo" or nccl["cuda"] in builds[nccl["version"]]
    for row in RULES["pytorch"]:
        assert set(row["generations"]) | set(row.get("aarch64", ())) <= set(nvidia_hardware.GENERATIONS)


def test_every_stack_of_the_catalog_is_whole():
    for name, stack in CATALOG.items():
        parts, wrong = nvidia_stack.choose("h", CATALOG, name, {})
        assert wrong == [] and set(parts) == set(nvidia_stack.KINDS), name
        assert stack["for"] and "\n" not in stack["for"].strip()
        for part in parts.values():
            if part.get("provider") == "runfile":
                assert re.fullmatch(r"[0-9a-f]{64}", part["sha256"]) and part["version"] in part["url"]


def test_every_stack_of_mindspore_brings_the_cudnn_that_it_was_built_with():
    found = {}
    for name, stack in CATALOG.items():
        parts = stack["set"]
        if parts["framework"]["name"] == "mindspore":
            cudnn = mindspore_releases.CUDAS[parts["framework"]["cuda"]].cudnn
            assert parts["cudnn"]["version"].startswith(f"{cudnn}."), name
            request = {"name": "cudnn", "manage_system": True, "url": "", "local_file": "", "sha256": ""}
            assert list(library_plan.input_findings({**request, **parts["cudnn"]})) == []
            found[name] = cudnn
    assert found == {"mindspore-cuda11.1": "8.0", "mindspore-cuda11.6": "8.5"}


def test_the_readme_lists_every_stack():
    readme = (PROJECT / "roles/nvidia_stack/README.md").read_text()
    assert [name for name in CATALOG if f"`{name}`" not in readme] == []
