"""The variables of the role ascend."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.ascend import role_input

INPUT = {"packages": [], "source": "", "manage_system": True, "root": "/usr/local/Ascend", "devices": 8}
INPUT["net_health"] = ["Success"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"packages": [{}], "source": "packages"}, "ascend_source is 'packages'"),
        ({"packages": [{}], "source": "/x", "manage_system": False}, "packages in ascend_packages, which only root"),
        ({"root": "opt"}, "ascend_root is 'opt'"),
        ({"devices": -1}, "ascend_devices is -1"),
        ({"net_health": []}, "ascend_net_health is []"),
    ],
)
def test_wrong_variables_of_the_role(changes, found):
    (finding,) = role_input.input_findings([{**INPUT, "host": "n1"}, {**INPUT, **changes, "host": "n2"}])
    assert (finding.host, finding.check) == ("n2", "input of ascend") and finding.found.startswith(found)
