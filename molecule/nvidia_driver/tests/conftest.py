"""The driver, its repository and dkms are fakes, there while this scenario is tested, and gone afterwards."""

import pytest

# Removes also what a test that failed has left. The role's own removal is tested.
CLEAN = r"""set -eu
nvidia-uninstall --silent 2>/dev/null || true
dpkg-query -W -f '${Package}\n' | grep -E '^(cuda-drivers|libcuda1|libnvidia|nvidia)' |
  DEBIAN_FRONTEND=noninteractive xargs --no-run-if-empty apt-get -qq purge --yes --allow-change-held-packages >/dev/null
systemctl stop nvidia-fake.service 2>/dev/null || true
rm -rf /srv/nvidia-fake /etc/systemd/system/nvidia-fake.service /etc/systemd/system/nvidia-persistenced.service* \
  /etc/modprobe.d/trainyard-nouveau.conf /etc/apt/*/trainyard-nvidia* /var/lib/trainyard-root/nvidia-driver \
  /var/lib/trainyard-root/packages/nvidia_driver.json /usr/sbin/dkms /lib/modules/6.1.0-99-replay /var/lib/dkms \
  /var/log/replay-installer.arguments /var/log/nvidia-installer.log
systemctl daemon-reload
"""


@pytest.fixture(scope="session", autouse=True)
def left_as_found(node, node_names):
    """Take everything away at the end; the other scenarios share the nodes."""
    yield
    for name in node_names:
        node(name).check_output("sudo sh -c %s", CLEAN)
