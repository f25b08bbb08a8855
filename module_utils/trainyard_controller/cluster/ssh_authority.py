# SPDX-License-Identifier: Apache-2.0
"""The cluster's ssh certificate authority: a folder on the controller, and ssh-keygen working in it.

The folder holds two authorities, host_ca and user_ca, as nodes trust them for different purposes. `issued` has all
valid certificates, one per line. `revoked` has one fingerprint per line with node and kind, and only grows;
`revoked.krl` is made from it. Only the two private keys are secret.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...trainyard.cluster.ssh_mesh import (
    KINDS,
    Certificate,
    Policy,
    Request,
    fingerprint,
    parse_certificates,
    revocation_list,
)
from ...trainyard_node.machine.json_files import write_text
from ..runs.locks import exposed

# A node's clock may be behind the controller's by this much and still accept a fresh certificate.
_BACKDATE_S = 3600


class AuthorityError(Exception):
    """An error of the folder or of ssh-keygen."""


def _keygen(arguments: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            # It reads and prints local time.
            env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AuthorityError(f"ssh-keygen did not run on the controller: {error}") from error
    if done.returncode != 0:
        output = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
        raise AuthorityError(f"ssh-keygen {' '.join(arguments[:4])} failed: {output}")
    return done.stdout.decode("utf-8", "replace")


class Authority:
    """The folder of the authority."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Take the folder, which may not exist yet."""
        self.folder = folder
        self.cluster = cluster

    def make_keys(self) -> list[str]:
        """Create missing keys of the authorities. Returns the created ones."""
        made = []
        for kind in KINDS:
            path = self.folder / f"{kind}_ca"
            if not path.exists():
                if path.with_suffix(".pub").exists():
                    raise AuthorityError(
                        f"{path} is missing while {path}.pub exists. Restore it from a backup; or remove the .pub "
                        "file to start a new authority, and run the role on all nodes at once"
                    )
                self._make_key(path, f"{self.cluster}-{kind}-ca")
                made.append(f"{kind} authority {path}")
            elif not path.with_suffix(".pub").exists():
                # An earlier run was interrupted between the two files.
                self._write(f"{path.name}.pub", _keygen(["-y", "-f", str(path)]))
                made.append(f"public half of {path}")
            if problem := exposed(path):
                raise AuthorityError(problem)
        return made

    def _make_key(self, path: Path, comment: str) -> None:
        with tempfile.TemporaryDirectory(prefix=".key-", dir=self.folder) as name:
            fresh = Path(name) / "key"
            _keygen(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh)])
            fresh.replace(path)
            fresh.with_suffix(".pub").replace(path.with_suffix(".pub"))

    def public_key(self, kind: str) -> str:
        """Return an authority's public key line, "" before it exists."""
        path = self.folder / f"{kind}_ca.pub"
        return " ".join(path.read_text(encoding="ascii").split()[:2]) if path.exists() else ""

    def fingerprints(self) -> dict[str, str]:
        """Return the authorities' fingerprints by kind, "" before they exist."""
        keys = {kind: self.public_key(kind) for kind in KINDS}
        return {kind: fingerprint(key) if key else "" for kind, key in keys.items()}

    def issued(self) -> list[tuple[str, Certificate]]:
        """Return all issued certificates, as lines and parsed, with one call of ssh-keygen."""
        path = self.folder / "issued"
        if not path.exists() or not path.stat().st_size:
            return []
        lines = path.read_text(encoding="ascii").splitlines()
        read = parse_certificates(_keygen(["-L", "-f", str(path)]))
        if len(read) != len(lines):
            raise AuthorityError(
                f"{path} has {len(lines)} lines, of which ssh-keygen reads {len(read)}. Remove the "
                "other lines (or the file: then all certificates are signed again)"
            )
        return list(zip(lines, read))

    def revoked(self) -> dict[str, str]:
        """Return {fingerprint: node} of all revoked keys."""
        path = self.folder / "revoked"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return dict(line.split(" ", 1) for line in lines)

    def sign(self, requests: Sequence[Request], serial: int, policy: Policy, now: float) -> list[str]:
        """Sign public keys with serials from `serial` on. Returns one certificate line for each."""
        lines = []
        with tempfile.TemporaryDirectory(prefix=".sign-", dir=self.folder) as name:
            for number, request in enumerate(requests):
                path = Path(name) / f"{number}.pub"
                key = " ".join(request.public_key.split()[:2])
                path.write_text(f"{key} {request.identity(policy.cluster)}\n", encoding="ascii")
                start = time.strftime("%Y%m%d%H%M%S", time.gmtime(now - _BACKDATE_S))
                end = time.strftime("%Y%m%d%H%M%S", time.gmtime(now + policy.validity))
                options = ["-h"] if request.kind == "host" else ["-O", "clear"]
                options += [word for option in request.options for word in ("-O", option.replace(" ", "=", 1))]
                options += ["-n", ",".join(request.principals), "-V", f"{start}:{end}", "-z", str(serial + number)]
                authority, identity = str(self.folder / f"{request.kind}_ca"), request.identity(policy.cluster)
                try:
                    _keygen(["-q", "-s", authority, "-I", identity, *options, str(path)])
                except AuthorityError as error:
                    subject = f"the {request.kind} key of {request.node}"
                    raise AuthorityError(f"{subject} cannot be signed: {error}") from error
                lines.append((Path(name) / f"{number}-cert.pub").read_text(encoding="ascii").strip())
        return lines

    def keep(self, lines: Sequence[str]) -> None:
        """Replace the record of issued certificates."""
        self._write("issued", "".join(f"{line}\n" for line in lines))

    def revoke(self, revoked: dict[str, str]) -> bool:
        """Replace the record of revoked keys and its list. Returns whether anything changed."""
        specification = revocation_list(revoked)
        listed, binary = self.folder / "revoked.spec", self.folder / "revoked.krl"
        self._write("revoked", "".join(f"{key} {node}\n" for key, node in revoked.items()))
        if binary.exists() and listed.exists() and listed.read_text(encoding="ascii") == specification:
            return False
        with tempfile.TemporaryDirectory(prefix=".krl-", dir=self.folder) as name:
            source, made = Path(name) / "specification", Path(name) / "krl"
            source.write_text(specification, encoding="ascii")
            _keygen(["-q", "-k", "-f", str(made), "-z", str(len(revoked)), str(source)])
            made.replace(binary)
        self._write("revoked.spec", specification)
        return True

    def revocation_list(self) -> Path | None:
        """Return the path of the key revocation list, None before it exists."""
        path = self.folder / "revoked.krl"
        return path if path.exists() else None

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
