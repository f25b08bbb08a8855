"""The nodes' Ascend devices are replays: they are there while this scenario is tested, and gone afterwards."""

import pytest

CLEAN = """set -eu
rm -rf /usr/local/Ascend /usr/local/sbin/npu-smi /etc/hccn.conf /etc/ascend_install.info /var/log/ascend_seclog
userdel --remove HwHiAiUser 2>/dev/null || ! id HwHiAiUser 2>/dev/null
"""


@pytest.fixture(scope="session", autouse=True)
def left_as_found(node, node_names):
    """Take the devices away, which converge.yml has put up; other scenarios share the nodes and must find none."""
    yield
    for name in node_names:
        node(name).check_output("sudo sh -c %s", CLEAN)
