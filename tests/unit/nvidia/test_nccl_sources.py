"""Where NCCL can be had: what a system's repository, the package index and known archives have, and what is offered."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.nvidia import stack as nvidia_stack
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver_state import read_driver
from ansible.module_utils.trainyard_node.nvidia.host import read_host
from captured_tree import unfold

PROJECT = Path(__file__).resolve().parents[3]
VARS = PROJECT / "roles/nvidia_stack/vars/main"
RULES = yaml.safe_load((VARS / "rules.yml").read_text())["__nvidia_stack_rules"]
CATALOG = yaml.safe_load((VARS / "stacks.yml").read_text())["__nvidia_stack_catalog"]
# The systems with kernels that driver 470.103.01 compiles against, and that this project supports.
SYSTEMS = {
    "ubuntu 22.04": {"os": {"id": "ubuntu", "version": "22.04", "family": "debian"}, "kernel": "5.15.0-139-generic"},
    "debian 11": {"os": {"id": "debian", "version": "11", "family": "debian"}, "kernel": "5.10.0-35-amd64"},
}


@pytest.fixture(scope="module")
def v100(tmp_path_factory):
    """Return a function that judges a stack on the composed host with V100, under one of the systems."""
    tree = Tree(str(unfold("v100", tmp_path_factory.mktemp("v100"), PROJECT / "tests/fixtures/nvidia_hosts")))
    facts, driver = {"host": "v100", **read_host(tree)}, read_driver(tree, [])

    def judge(system, stack, accept=(), **overrides):
        chosen = SYSTEMS[system]
        here = {**facts, "os": chosen["os"], "kernel": {**facts["kernel"], "running": chosen["kernel"]}}
        node = {"facts": here, "driver": driver, "stack": stack, "overrides": overrides, "settings": {"gpus": "auto"}}
        return nvidia_stack.choose_all([node], CATALOG, RULES, accept)

    return judge


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("stack", ["v100-runfile", "mindspore-cuda11.1", "mindspore-cuda11.6"])
def test_sources_of_every_stack_for_v100_exist(v100, system, stack):
    judged = v100(system, stack)
    assert (judged.findings, [one for one in judged.warnings if one.check == "NCCL"]) == ([], [])


def test_the_table_names_differences_from_the_guide(v100):
    assert "2.11.4+cuda11.4 (archive; its guide has 2.10.3)" in v100("ubuntu 22.04", "v100-runfile").table
    assert "2.10.3+cuda11.4 (archive)" in v100("ubuntu 22.04", "v100-runfile", nccl={"version": "2.10.3"}).table


@pytest.mark.parametrize(
    ("system", "version", "cuda", "stops"),
    [
        ("ubuntu 22.04", "2.10.3", "11.4", True),
        ("ubuntu 22.04", "2.8.4", "11.1", True),
        ("ubuntu 22.04", "2.12.12", "11.6", True),
        ("ubuntu 22.04", "2.13.4", "11.7", False),
        ("debian 11", "2.10.3", "11.4", False),
    ],
)
def test_a_version_that_the_repository_lacks_is_a_finding_with_alternatives(v100, system, version, cuda, stops):
    judged = v100(system, "v100-runfile", nccl={"provider": "network_repo", "version": version, "cuda": cuda})
    said = [one for one in (*judged.findings, *judged.warnings) if one.check == "NCCL"]
    assert (said[:1] == judged.findings[:1] and bool(said)) is stops
    if said:
        assert said[0].found == f"NCCL {version}+cuda{cuda} from NVIDIA's repository for {system}"
        assert offered(said[0])[0]["provider"] == ("network_repo" if version == "2.12.12" else "archive")


def offered(finding):
    """The fields of each way out, in their order."""
    texts = re.findall(r"nvidia_stack_overrides: (\{nccl: \{.*?\}\})", finding.action)
    return [yaml.safe_load(text)["nccl"] for text in texts]


@pytest.mark.parametrize(
    ("system", "provider"),
    # The packages of Ubuntu are not known; Debian 11 has none.
    [*itertools.product(SYSTEMS, ("network_repo", "wheel")), ("debian 11", "distro")],
)
def test_each_offered_alternative_fits(v100, system, provider):
    judged = v100(system, "v100-runfile", nccl={"provider": provider, "version": "2.10.3", "cuda": "11.4"})
    said = [one for one in (*judged.findings, *judged.warnings) if "NCCL" in one.found]
    ways = offered(said[0])
    assert len(ways) >= 2 and "in place of 2.10.3" in said[0].action
    for way in ways:
        again = v100(system, "v100-runfile", nccl=way)
        assert [one for one in (*again.findings, *again.warnings) if one.check == "NCCL"] == [], way


def test_a_site_with_its_own_mirror_may_go_on(v100):
    given = {"provider": "network_repo", "version": "2.10.3", "cuda": "11.4"}
    assert v100("ubuntu 22.04", "v100-runfile", accept=["NCCL"], nccl=given).findings == []
