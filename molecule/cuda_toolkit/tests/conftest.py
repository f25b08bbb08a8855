"""What this scenario leaves: nothing. Toolkits, settings and packages go when its last test has run."""

import pytest

ROOT = "/opt/trainyard"


@pytest.fixture(scope="session", autouse=True)
def as_found(node, node_names):
    """Take away what even a test that failed may have left, and the packages that the nodes had not before."""
    yield
    for name in node_names:
        one = node(name)
        one.check_output(
            "sudo sh -ec '"
            f"rm -rf {ROOT}/cuda {ROOT}/cuda-* {ROOT}/.cuda-* {ROOT}/venvs/cuda-* /var/log/cuda-installer.log"
            " /etc/*/*-cuda.* /etc/systemd/system.conf.d/*-cuda.conf /etc/ssh/sshd_config.d/*-sessions.conf"
            " /etc/apt/preferences.d/trainyard-cuda-toolkit /etc/apt/*/trainyard-nvidia*"
            " /var/lib/trainyard-root/packages/cuda_toolkit.json;"
            "systemctl disable --now nvidia-fake.service 2>/dev/null || true;"
            "rm -rf /srv/nvidia-fake /etc/systemd/system/nvidia-fake.service;"
            "systemctl daemon-reload; systemctl reload ssh; ldconfig;"
            'dpkg-query --show --showformat "\\${Package}\\n" | sort >/root/packages-after-cuda;'
            "sort /root/packages-before-cuda | comm -13 - /root/packages-after-cuda |"
            " DEBIAN_FRONTEND=noninteractive xargs --no-run-if-empty"
            " apt-get -qq purge --yes --allow-change-held-packages >/dev/null;"
            "rm /root/packages-*-cuda'"
        )
