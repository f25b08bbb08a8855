# SPDX-License-Identifier: Apache-2.0
"""Read the settings of a site's sshd, and find those under which the ssh mesh cannot work.

Source: sshd_config(5), for what `sshd -T` prints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from ..findings.findings import Finding


def parse_sshd_settings(output: str) -> dict[str, list[str]]:
    """Read `sshd -T`: keyword in lower case, all its values in order."""
    settings: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            settings[keyword.lower()].append(value.strip())
    return dict(settings)


def sshd_findings(
    host: str, settings: Mapping[str, Sequence[str]], user: str, host_key: str, folder: str
) -> list[Finding]:
    """Find settings of the site's sshd under which the mesh cannot work or would displace what the site has."""
    findings = []

    def value(keyword: str, absent: str) -> str:
        return settings.get(keyword, [absent])[0]

    if host_key not in settings.get("hostkey", []):
        findings.append(
            Finding(
                host=host,
                check="host key of sshd",
                found=", ".join(settings.get("hostkey", [])) or "none",
                expected=host_key,
                action=(
                    "set ssh_mesh_host_key to one of the host keys in use, or have sshd use this one (ssh-keygen -A)"
                ),
            )
        )
    for keyword, reason in (("trustedusercakeys", "user certificates"), ("revokedkeys", "revoked keys")):
        found = value(keyword, "none")
        if found != "none" and not found.startswith(folder):
            findings.append(
                Finding(
                    host=host,
                    check=f"sshd's {reason} for {user}",
                    found=f"the site's own file {found}",
                    expected="none, as ours would take its place for this user",
                    action="choose a training user who does not use it",
                )
            )
    foreign = [path for path in settings.get("hostcertificate", []) if path != "none" and not path.startswith(folder)]
    if foreign:
        findings.append(
            Finding(
                host=host,
                check="host certificate of sshd",
                found=f"the site's own {', '.join(foreign)}",
                expected="none, as ours would compete with it",
                action="give the mesh a host key of its own (ssh_mesh_host_key)",
            )
        )
    if value("pubkeyauthentication", "yes") != "yes":
        findings.append(
            Finding(
                host=host,
                check=f"sshd for {user}",
                found="PubkeyAuthentication no",
                expected="PubkeyAuthentication yes",
                action="allow it, at least for this user (Match User)",
            )
        )
    if not any(name.startswith("ssh-ed25519") for name in value("casignaturealgorithms", "ssh-ed25519").split(",")):
        findings.append(
            Finding(
                host=host,
                check="sshd",
                found=f"CASignatureAlgorithms {value('casignaturealgorithms', '')}",
                expected="ssh-ed25519 among them",
                action="allow it in sshd_config",
            )
        )
    allowed = [pattern.split("@")[0] for line in settings.get("allowusers", []) for pattern in line.split()]
    if allowed and not any(fnmatchcase(user, pattern) for pattern in allowed):
        findings.append(
            Finding(
                host=host,
                check=f"sshd for {user}",
                found=f"AllowUsers {' '.join(allowed)}",
                expected=f"{user} among them",
                action=f"add {user} to AllowUsers in sshd_config",
            )
        )
    denied = [
        line for line in settings.get("denyusers", []) if any(fnmatchcase(user, pattern) for pattern in line.split())
    ]
    if denied:
        findings.append(
            Finding(
                host=host,
                check=f"sshd for {user}",
                found=f"DenyUsers {' '.join(denied)}",
                expected=f"{user} not among them",
                action=f"take {user} out of DenyUsers in sshd_config",
            )
        )
    return findings
