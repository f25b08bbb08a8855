"""The main functions of accelerator_info and network_info."""

from __future__ import annotations

import json
import re

import accelerator_info
import network_info
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
def test_the_modules_return_facts_and_change_nothing(tmp_path, capsys, check_mode):
    def read(module, name, **params):
        root = str(unfold(name, tmp_path / name))
        result = run(module, capsys, root=root, _ansible_check_mode=check_mode, **params)
        assert result["changed"] is False
        return result

    accelerators = read(accelerator_info, "gpu8_infiniband")["accelerators"]
    assert (accelerators["count"], accelerators["vendor"]) == (8, "nvidia")
    networks = read(network_info, "roce_bond")["networks"]
    assert {port["netdev"] for port in networks["rdma"]} == {"bond0", "enp99s0f0np0"}


@pytest.mark.parametrize("module", [accelerator_info, network_info])
def test_documentation_names_every_result(module, capsys):
    import yaml

    result = run(module, capsys)
    for key, described in yaml.safe_load(module.RETURN).items():
        named = re.findall(r"C\((\w+)\)", str(described["description"]))
        assert set(result[key]) <= {*named, *described.get("contains", ())}
