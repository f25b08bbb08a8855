"""The main functions of accelerator_info, network_info and node_info."""

from __future__ import annotations

import json
import re

import accelerator_info
import network_info
import node_info
import pytest
from ansible.module_utils.testing import patch_module_args
from captured_tree import unfold


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        module.main()
    result = json.loads(capsys.readouterr().out)
    assert (ended.value.code == 0) is not result.get("failed", False)
    return result


@pytest.mark.parametrize("check_mode", [False, True])
def test_accelerator_info(tmp_path, capsys, check_mode):
    root = unfold("gpu8_infiniband", tmp_path)
    result = run(accelerator_info, capsys, root=str(root), _ansible_check_mode=check_mode)
    assert result["changed"] is False
    assert (result["accelerators"]["count"], result["accelerators"]["vendor"]) == (8, "nvidia")


@pytest.mark.parametrize("check_mode", [False, True])
def test_network_info(tmp_path, capsys, check_mode):
    root = unfold("roce_bond", tmp_path)
    result = run(network_info, capsys, root=str(root), _ansible_check_mode=check_mode)
    assert result["changed"] is False
    assert {port["netdev"] for port in result["networks"]["rdma"]} == {"bond0", "enp99s0f0np0"}


@pytest.mark.parametrize("check_mode", [False, True])
def test_node_info(tmp_path, capsys, check_mode):
    root = unfold("port_down", tmp_path)
    result = run(
        node_info,
        capsys,
        root=str(root),
        packages=["torch"],
        venv="/opt/trainyard/venvs/pytorch",
        _ansible_check_mode=check_mode,
    )
    assert result["changed"] is False
    node = result["node"]
    assert node["hostname"] == "dgx1-03"
    assert node["packages"] == {"torch": None}
    assert node["venv"]["exists"] is False
    assert node["unused_ports"].endswith("-65535")
    assert len(node["fingerprint"]) == 64


def test_node_info_as_one_text(tmp_path, capsys):
    root = str(unfold("port_down", tmp_path))
    result = run(node_info, capsys, root=root, as_json=True)
    assert json.loads(result["node"]) == run(node_info, capsys, root=root)["node"]


@pytest.mark.parametrize("module", [accelerator_info, network_info, node_info])
def test_documentation_names_every_result(module, capsys):
    import yaml

    result = run(module, capsys)
    for key, described in yaml.safe_load(module.RETURN).items():
        named = re.findall(r"C\((\w+)\)", str(described["description"]))
        assert set(result[key]) <= {*named, *described.get("contains", ())}
