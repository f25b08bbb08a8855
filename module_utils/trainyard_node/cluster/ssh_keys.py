# SPDX-License-Identifier: Apache-2.0
"""A node's side of the ssh mesh: its host key, the training user's key, and what its sshd is set to.

The user's key lies in a folder of the node, not in the home folder: homes may be shared by all nodes, and a private key
must never leave its node; what the user keeps in ~/.ssh is left alone.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from pathlib import Path
from typing import Any

from ...trainyard.cluster.sshd_settings import parse_sshd_settings, sshd_findings
from ...trainyard.findings.findings import Finding
from ..machine.files import read_files
from ..machine.tree import Tree
from .identity import read_addresses

_TIMEOUT_S = 30.0
_INCLUDES = (("/etc/ssh/sshd_config", "sshd_config.d"), ("/etc/ssh/ssh_config", "ssh_config.d"))


def read_ssh_keys(*, host: str, user: str, key: str, host_key: str, files: list[str], mark: str) -> dict[str, Any]:
    """Return a node's public keys, and what is set up of the mesh: nothing is changed.

    `files` by path as read_files gives them; `known_hosts`, the lines of /etc/ssh/ssh_known_hosts that end with `mark`;
    `findings`, what stands in the way, and `faults`, what is wrong with the user's key where nothing does.
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
        "faults": [] if findings else key_faults(Path(key), user),
    }


def marked_lines(tree: Tree, mark: str) -> list[str]:
    """Return the lines of /etc/ssh/ssh_known_hosts whose last word is `mark`."""
    lines = (tree.text("/etc/ssh/ssh_known_hosts") or "").splitlines()
    return [line for line in lines if line.endswith(f" {mark}")]


def node_findings(tree: Tree, host: str, user: str, host_key: str, folder: str) -> list[Finding]:
    """Find what on this node stands in the way of the mesh."""
    findings = []
    if os.geteuid() != 0:
        findings.append(
            Finding(
                "privileges",
                f"uid {os.geteuid()}",
                "root, to change the settings of sshd",
                "set trainyard_become=true, or do not run ssh_mesh (trainyard_manage_system=false)",
                host=host,
            )
        )
    try:
        pwd.getpwnam(user)
    except KeyError:
        findings.append(
            Finding(
                "training user",
                f"no user {user}",
                "the user whose ssh this is about",
                "run the role node_baseline first, or correct trainyard_user",
                host=host,
            )
        )
    for path, name in _INCLUDES:
        text = tree.text(path)
        if not re.search(rf"^\s*Include\s.*{re.escape(name)}/\*\.conf", text or "", re.MULTILINE | re.IGNORECASE):
            findings.append(
                Finding(
                    path,
                    "no such file" if text is None else f"no Include of {name}",
                    f"Include /etc/ssh/{name}/*.conf",
                    f"write it on the first line of {path} (OpenSSH 8.2 or newer)",
                    host=host,
                )
            )
    settings = tree.command("sshd-T", ["sshd", "-T", "-C", f"user={user},host=localhost,addr=127.0.0.1"], _TIMEOUT_S)
    if settings is None or settings.status != 0:
        found = settings.output.strip() if settings else "not installed"
        findings.append(
            Finding(
                "sshd -T",
                found,
                "the settings of a running sshd",
                "install or repair the OpenSSH server (role node_baseline installs it)",
                host=host,
            )
        )
    else:
        findings += sshd_findings(host, parse_sshd_settings(settings.output), user, host_key, folder)
    if tree.text(f"{host_key}.pub") is None:
        findings.append(
            Finding(
                "host key of sshd",
                f"no {host_key}.pub",
                "the public half beside the host key",
                f"ssh-keygen -y -f {host_key} > {host_key}.pub",
                host=host,
            )
        )
    return findings


def public_key(path: Path) -> str:
    """Return type and key of a public key file, without its comment; "" when there is none."""
    if not path.exists():
        return ""
    return " ".join(path.read_text(encoding="utf-8", errors="replace").split()[:2])


def key_faults(path: Path, user: str) -> list[str]:
    """Say what is missing or wrong with the user's key; nothing when it is as it shall be."""
    if not path.exists():
        return ["there is none"]
    owner, state = pwd.getpwnam(user), path.stat()
    faults = []
    if (state.st_uid, state.st_gid) != (owner.pw_uid, owner.pw_gid):
        faults.append("it belongs to another user")
    if state.st_mode & 0o777 != 0o600:
        faults.append(f"its mode is {state.st_mode & 0o777:o}")
    if not Path(f"{path}.pub").exists():
        faults.append("its public half is missing")
    return faults


def make_key(tree: Tree, path: Path, user: str, comment: str) -> None:
    """Make the user's key, or repair what is wrong with it. Raises OSError when ssh-keygen does not do its work."""
    owner = pwd.getpwnam(user)
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".key-", dir=path.parent) as name:
        fresh = Path(name) / "key"
        if not path.exists():
            _keygen(tree, ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh)])
            Path(f"{fresh}.pub").replace(f"{path}.pub")
            os.chown(fresh, owner.pw_uid, owner.pw_gid)
            fresh.replace(path)
        # ssh-keygen reads no private key that others may read.
        os.chown(path, owner.pw_uid, owner.pw_gid)
        path.chmod(0o600)
        if not Path(f"{path}.pub").exists():
            fresh.write_text(f"{_keygen(tree, ['-y', '-f', str(path)])} {comment}\n", encoding="ascii")
            fresh.replace(f"{path}.pub")
    Path(f"{path}.pub").chmod(0o644)


def _keygen(tree: Tree, arguments: list[str]) -> str:
    outcome = tree.command("ssh-keygen", ["ssh-keygen", *arguments], _TIMEOUT_S)
    if outcome is None or outcome.status != 0:
        raise OSError(f"ssh-keygen {arguments[0]}: {outcome.output.strip() if outcome else 'not installed'}")
    return " ".join(outcome.output.split()[:2])
