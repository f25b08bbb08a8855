# SPDX-License-Identifier: Apache-2.0
"""A node's part of the ssh mesh: its host key, the training user's key, and the settings of its sshd.

The user's key is in a folder of the node, not in the home folder: nodes may share homes, and a private key must never
leave its node. ~/.ssh is not changed.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.cluster.sshd_settings import parse_sshd_settings, sshd_problems
from ..machine.files import read_files
from ..machine.tree import Tree
from .identity import read_addresses

_TIMEOUT_S = 30.0
_INCLUDES = (("/etc/ssh/sshd_config", "sshd_config.d"), ("/etc/ssh/ssh_config", "ssh_config.d"))


def read_ssh_keys(*, host: str, user: str, key: str, host_key: str, files: list[str], mark: str) -> dict[str, Any]:
    """Return a node's public keys and the present state of the mesh on it.

    `files` are those of read_files by path, `known_hosts` the lines of /etc/ssh/ssh_known_hosts that end with `mark`,
    `findings` the obstacles. If there are none, `key_problems` are those of the user's key.
    """
    tree = Tree("/")
    addresses, default_address = read_addresses(tree)
    findings = node_findings(tree, host, user, host_key, str(Path(key).parent))
    return {
        "files": read_files(files),
        "known_hosts": marked_lines(tree, mark),
        "host_key": public_key(Path(f"{host_key}.pub")),
        "user_key": public_key(Path(f"{key}.pub")),
        "addresses": addresses,
        "default_address": default_address,
        "findings": [finding.as_dict() for finding in findings],
        "key_problems": [] if findings else key_problems(Path(key), user),
    }


def marked_lines(tree: Tree, mark: str) -> list[str]:
    """Return the lines of /etc/ssh/ssh_known_hosts whose last word is `mark`."""
    lines = (tree.text("/etc/ssh/ssh_known_hosts") or "").splitlines()
    return [line for line in lines if line.endswith(f" {mark}")]


def node_findings(tree: Tree, host: str, user: str, host_key: str, folder: str) -> list[Finding]:
    """Find obstacles to the mesh on this node."""
    problems = []
    if os.geteuid() != 0:
        action = "set trainyard_become=true, or do not run ssh_mesh (trainyard_manage_system=false)"
        problems.append(("privileges", f"uid {os.geteuid()}", "root, to change the settings of sshd", action))
    try:
        pwd.getpwnam(user)
    except KeyError:
        action = "run the role node_baseline first, or correct trainyard_user"
        problems.append(("training user", f"no user {user}", "an existing training user", action))
    for path, name in _INCLUDES:
        text = tree.text(path)
        if not re.search(rf"^\s*Include\s.*{re.escape(name)}/\*\.conf", text or "", re.MULTILINE | re.IGNORECASE):
            found = "no such file" if text is None else f"no Include of {name}"
            action = f"write it on the first line of {path} (OpenSSH 8.2 or newer)"
            problems.append((path, found, f"Include /etc/ssh/{name}/*.conf", action))
    settings = tree.command("sshd-T", ["sshd", "-T", "-C", f"user={user},host=localhost,addr=127.0.0.1"], _TIMEOUT_S)
    if settings and settings.status == 0:
        problems += sshd_problems(parse_sshd_settings(settings.output), user, host_key, folder)
    else:
        found = settings.output.strip() if settings else "not installed"
        action = "install or repair the OpenSSH server (role node_baseline installs it)"
        problems.append(("sshd -T", found, "the settings of a working sshd", action))
    if tree.text(f"{host_key}.pub") is None:
        action = f"ssh-keygen -y -f {host_key} > {host_key}.pub"
        if not tree.path(host_key).exists():
            action = f"ssh-keygen -q -t ed25519 -N '' -f {host_key}"
        problems.append(("host key of sshd", f"no {host_key}.pub", "the public half beside the host key", action))
    return [Finding(*problem, host=host) for problem in problems]


def public_key(path: Path) -> str:
    """Return type and key of a public key file without its comment, or "" if there is no file."""
    if not path.exists():
        return ""
    return " ".join(path.read_text(encoding="utf-8", errors="replace").split()[:2])


def key_problems(path: Path, user: str) -> list[str]:
    """Return the problems of the user's key as texts."""
    if not path.exists():
        return ["the key is missing"]
    owner, state = pwd.getpwnam(user), path.stat()
    problems = []
    if (state.st_uid, state.st_gid) != (owner.pw_uid, owner.pw_gid):
        problems.append("it belongs to another user")
    if state.st_mode & 0o777 != 0o600:
        problems.append(f"its mode is {state.st_mode & 0o777:o}")
    if not Path(f"{path}.pub").exists():
        problems.append("its public half is missing")
    return problems


def make_key(tree: Tree, path: Path, user: str, comment: str) -> None:
    """Create or repair the user's key. Raises OSError when ssh-keygen fails."""
    owner = pwd.getpwnam(user)
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".key-", dir=path.parent) as name:
        fresh = Path(name) / "key"
        if not path.exists():
            keygen(tree, ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh)])
            Path(f"{fresh}.pub").replace(f"{path}.pub")
            os.chown(fresh, owner.pw_uid, owner.pw_gid)
            fresh.replace(path)
        # ssh-keygen reads no private key that others may read.
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(0o600)
        if not Path(f"{path}.pub").exists():
            fresh.write_text(f"{keygen(tree, ['-y', '-f', str(path)])} {comment}\n", encoding="ascii")
            fresh.replace(f"{path}.pub")
    Path(f"{path}.pub").chmod(0o644)


def keygen(tree: Tree, arguments: list[str]) -> str:
    """Run ssh-keygen; return type and key of what it prints. Raises OSError."""
    outcome = tree.command("ssh-keygen", ["ssh-keygen", *arguments], _TIMEOUT_S)
    if outcome is None or outcome.status != 0:
        raise OSError(f"ssh-keygen {arguments[0]}: {outcome.output.strip() if outcome else 'not installed'}")
    return " ".join(outcome.output.split()[:2])
