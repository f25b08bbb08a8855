# SPDX-License-Identifier: Apache-2.0
"""Parse the settings of a site's sshd (`sshd -T`), and find those with which the ssh mesh cannot work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase


def parse_sshd_settings(output: str) -> dict[str, list[str]]:
    """Parse the output of `sshd -T` into the values of each keyword in lower case."""
    settings: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword:
            settings[keyword.lower()].append(value.strip())
    return dict(settings)


# Check, found, expected, action.
Problem = tuple[str, str, str, str]


def sshd_problems(settings: Mapping[str, Sequence[str]], user: str, host_key: str, folder: str) -> list[Problem]:
    """Find settings of the site's sshd with which the mesh cannot work, or that the mesh would replace."""
    return [*_key_problems(settings, user, host_key, folder), *_access_problems(settings, user)]


def _key_problems(settings: Mapping[str, Sequence[str]], user: str, host_key: str, folder: str) -> Iterator[Problem]:
    keys = settings.get("hostkey", [])
    if host_key not in keys:
        action = "let sshd use this one (ssh-keygen -A)"
        action = f"set ssh_mesh_host_key to one of the host keys in use, or {action}" if keys else action
        yield "host key of sshd", ", ".join(keys) or "none", host_key, action
    for keyword, name in (("trustedusercakeys", "user certificates"), ("revokedkeys", "revoked keys")):
        path = settings.get(keyword, ["none"])[0]
        if path != "none" and not path.startswith(folder):
            expected = "none, as the mesh's file would replace it for this user"
            action = "choose a training user who does not use it"
            yield f"sshd's {name} for {user}", f"the site's own file {path}", expected, action
    foreign = [path for path in settings.get("hostcertificate", []) if path != "none" and not path.startswith(folder)]
    if foreign:
        expected = "none, as the mesh's certificate would compete with it"
        action = "take HostCertificate out of sshd_config"
        yield "host certificate of sshd", f"the site's own {', '.join(foreign)}", expected, action
    algorithms = settings.get("casignaturealgorithms", ["ssh-ed25519"])[0]
    if not any(name.startswith("ssh-ed25519") for name in algorithms.split(",")):
        yield "sshd", f"CASignatureAlgorithms {algorithms}", "ssh-ed25519 among them", "allow it in sshd_config"


def _access_problems(settings: Mapping[str, Sequence[str]], user: str) -> Iterator[Problem]:
    check = f"sshd for {user}"
    if settings.get("pubkeyauthentication", ["yes"])[0] != "yes":
        action = "allow it, at least for this user (Match User)"
        yield check, "PubkeyAuthentication no", "PubkeyAuthentication yes", action
    allowed = [pattern.split("@")[0] for line in settings.get("allowusers", []) for pattern in line.split()]
    if allowed and not any(fnmatchcase(user, pattern) for pattern in allowed):
        action = f"add {user} to AllowUsers in sshd_config"
        yield check, f"AllowUsers {' '.join(allowed)}", f"{user} among them", action
    patterns = [pattern for line in settings.get("denyusers", []) for pattern in line.split()]
    denied = [pattern for pattern in patterns if fnmatchcase(user, pattern)]
    if denied:
        action = f"take {' '.join(denied)} out of DenyUsers in sshd_config"
        yield check, f"DenyUsers {' '.join(patterns)}", f"{user} not among them", action
