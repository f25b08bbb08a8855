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
                "host key of sshd",
                ", ".join(settings.get("hostkey", [])) or "none",
                host_key,
                "set ssh_mesh_host_key to one of the host keys in use, or have sshd use this one (ssh-keygen -A)",
                host=host,
            )
        )
    for keyword, reason in (("trustedusercakeys", "user certificates"), ("revokedkeys", "revoked keys")):
        found = value(keyword, "none")
        if found != "none" and not found.startswith(folder):
            findings.append(
                Finding(
                    f"sshd's {reason} for {user}",
                    f"the site's own file {found}",
                    "none, as ours would take its place for this user",
                    "choose a training user who does not use it",
                    host=host,
                )
            )
    foreign = [path for path in settings.get("hostcertificate", []) if path != "none" and not path.startswith(folder)]
    if foreign:
        findings.append(
            Finding(
                "host certificate of sshd",
                f"the site's own {', '.join(foreign)}",
                "none, as ours would compete with it",
                "give the mesh a host key of its own (ssh_mesh_host_key)",
                host=host,
            )
        )
    if value("pubkeyauthentication", "yes") != "yes":
        findings.append(
            Finding(
                f"sshd for {user}",
                "PubkeyAuthentication no",
                "PubkeyAuthentication yes",
                "allow it, at least for this user (Match User)",
                host=host,
            )
        )
    if not any(name.startswith("ssh-ed25519") for name in value("casignaturealgorithms", "ssh-ed25519").split(",")):
        findings.append(
            Finding(
                "sshd",
                f"CASignatureAlgorithms {value('casignaturealgorithms', '')}",
                "ssh-ed25519 among them",
                "allow it in sshd_config",
                host=host,
            )
        )
    allowed = [pattern.split("@")[0] for line in settings.get("allowusers", []) for pattern in line.split()]
    if allowed and not any(fnmatchcase(user, pattern) for pattern in allowed):
        findings.append(
            Finding(
                f"sshd for {user}",
                f"AllowUsers {' '.join(allowed)}",
                f"{user} among them",
                f"add {user} to AllowUsers in sshd_config",
                host=host,
            )
        )
    denied = [
        line for line in settings.get("denyusers", []) if any(fnmatchcase(user, pattern) for pattern in line.split())
    ]
    if denied:
        findings.append(
            Finding(
                f"sshd for {user}",
                f"DenyUsers {' '.join(denied)}",
                f"{user} not among them",
                f"take {user} out of DenyUsers in sshd_config",
                host=host,
            )
        )
    return findings
