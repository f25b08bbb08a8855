"""Settings of the site's sshd with which the ssh mesh cannot work."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.cluster.sshd_settings import parse_sshd_settings, sshd_problems

HEALTHY = """hostkey /etc/ssh/ssh_host_rsa_key
hostkey /etc/ssh/ssh_host_ed25519_key
pubkeyauthentication yes
trustedusercakeys none
revokedkeys none
casignaturealgorithms ssh-ed25519,rsa-sha2-512
"""


def checks(text: str) -> list[str]:
    settings = parse_sshd_settings(text)
    problems = sshd_problems(settings, "train", "/etc/ssh/ssh_host_ed25519_key", "/etc/trainyard/ssh")
    return [found for _, found, _, _ in problems]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", []),
        ("", "allowusers train\nallowusers ops\n", []),
        ("", "allowusers t*@10.0.0.1\n", []),
        ("", "allowusers ops\n", ["AllowUsers ops"]),
        ("", "denyusers tr*\n", ["DenyUsers tr*"]),
        ("", "hostcertificate /etc/trainyard/ssh/host-cert.pub\n", []),
        ("", "hostcertificate /etc/ssh/site-cert.pub\n", ["the site's own /etc/ssh/site-cert.pub"]),
        ("trustedusercakeys none", "trustedusercakeys /etc/ssh/site_ca", ["the site's own file /etc/ssh/site_ca"]),
        ("revokedkeys none", "revokedkeys /etc/ssh/krl", ["the site's own file /etc/ssh/krl"]),
        ("revokedkeys none", "revokedkeys /etc/trainyard/ssh/revoked.krl", []),
        ("pubkeyauthentication yes", "pubkeyauthentication no", ["PubkeyAuthentication no"]),
        ("hostkey /etc/ssh/ssh_host_ed25519_key\n", "", ["/etc/ssh/ssh_host_rsa_key"]),
        ("ssh-ed25519,rsa", "rsa", ["CASignatureAlgorithms rsa-sha2-512"]),
    ],
)
def test_settings_that_conflict_with_the_mesh_are_found(old: str, new: str, found: list[str]) -> None:
    assert checks(HEALTHY.replace(old, new, 1)) == found
