# SPDX-License-Identifier: Apache-2.0
"""Rules of the ssh mesh: certificates, their renewal and revocation.

Times are seconds since the epoch (UTC), durations are seconds. ssh-keygen(1) describes the output of -L, the
specification of key revocation lists and the grammar of durations.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.findings import Finding, counted, host_list

KINDS = ("host", "user")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# ssh-keygen separates principals by commas. A pattern or white space in one would widen or break the certificate.
PRINCIPAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
_FOREVER = float("inf")
_FINGERPRINT = "SHA256:"
_NEW_KEY = "remove the key on the node and generate it again (ssh-keygen -A for host keys)"


def parse_duration(text: str) -> int:
    """Read a duration as ssh-keygen writes it: `13w`, `1d12h`, `90m`. Raises ValueError for anything else."""
    if not re.fullmatch(r"([0-9]{1,9}[smhdw])+", text):
        raise ValueError(f"{text!r} is not a duration; expected numbers with s, m, h, d or w, such as 13w or 1d12h")
    return sum(int(part[:-1]) * _SECONDS[part[-1]] for part in re.findall(r"[0-9]+[smhdw]", text))


def fingerprint(public_key: str) -> str:
    """Return the SHA256 fingerprint of a public key line, as ssh-keygen -l prints it. Raises ValueError."""
    fields = public_key.split()
    try:
        fields[0].encode("ascii")
        blob = base64.b64decode(fields[1], validate=True)
    except (IndexError, ValueError) as error:
        raise ValueError(f"{public_key[:60]!r}, which is not a public key") from error
    return _FINGERPRINT + base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")


@dataclass(frozen=True)
class Certificate:
    """One certificate, as `ssh-keygen -L` shows it."""

    kind: str
    key: str
    authority: str
    identity: str
    serial: int
    valid_from: float
    valid_to: float
    principals: tuple[str, ...]
    # Critical options and extensions, sorted: the permissions of the user, and the allowed source addresses.
    options: tuple[str, ...] = ()


def parse_certificates(output: str) -> list[Certificate]:
    """Parse the output of `TZ=UTC ssh-keygen -L` for any number of certificates.

    Raises ValueError for anything else.
    """
    certificates: list[Certificate] = []
    fields: dict[str, str] = {}
    lists: dict[str, list[str]] = defaultdict(list)
    heading = ""
    for line in output.splitlines():
        name, colon, value = line.strip().partition(":")
        if line.startswith(" " * 16) and heading:
            lists[heading].append(line.strip())
        elif line.startswith(" " * 8) and not line.startswith(" " * 9) and colon:
            if name == "Type" and fields:
                certificates.append(_certificate(fields, lists))
                fields, lists = {}, defaultdict(list)
            fields[name], heading = value.strip(), name
    if fields:
        certificates.append(_certificate(fields, lists))
    return certificates


def _certificate(fields: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> Certificate:
    try:
        kind = fields["Type"].split()[-2]
        valid_from, valid_to = _validity(fields["Valid"])
        if kind not in KINDS:
            raise ValueError(f"certificate of kind {kind!r}")
        return Certificate(
            kind,
            fields["Public key"].split()[1],
            fields["Signing CA"].split()[1],
            fields["Key ID"][1:-1],
            int(fields["Serial"]),
            valid_from,
            valid_to,
            tuple(lists.get("Principals", ())),
            tuple(sorted([*lists.get("Critical Options", ()), *lists.get("Extensions", ())])),
        )
    except (KeyError, IndexError) as error:
        raise ValueError(f"ssh-keygen -L printed a certificate without {error}") from error


def _validity(text: str) -> tuple[float, float]:
    if text == "forever":
        return 0.0, _FOREVER
    match = re.fullmatch(r"(?:from (?P<start>\S+) to (?P<end>\S+)|after (?P<after>\S+)|before (?P<before>\S+))", text)
    if match is None:
        raise ValueError(f"ssh-keygen -L printed a validity {text!r}")
    start, end = match["start"] or match["after"], match["end"] or match["before"]
    return (_epoch(start) if start else 0.0), (_epoch(end) if end else _FOREVER)


def _epoch(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))


@dataclass(frozen=True)
class Request:
    """A public key that needs a certificate. An empty key is one that does not exist yet (check mode)."""

    node: str
    kind: str
    public_key: str
    principals: tuple[str, ...]
    options: tuple[str, ...] = ()

    def identity(self, cluster: str) -> str:
        """Return the key identity, which sshd logs at every login."""
        return f"{cluster}:{self.node}:{self.kind}"


@dataclass(frozen=True)
class Policy:
    """The lifetime of certificates, and the authorities' fingerprints by kind."""

    cluster: str
    validity: int
    renew_before: int
    authorities: Mapping[str, str]


def policy_error(validity: int, renew_before: int) -> str:
    """Return the error in the two durations, or ""."""
    if validity <= 0:
        return "ssh_mesh_validity is 0; expected the lifetime of a certificate"
    if renew_before >= validity:
        return "ssh_mesh_renew_before is not shorter than ssh_mesh_validity, so that every run would renew everything"
    return ""


def reason_to_sign(request: Request, certificate: Certificate | None, policy: Policy, now: float) -> str:
    """Return why a request needs a new certificate, or ""."""
    if certificate is None:
        return "has no certificate of this authority"
    if sorted(set(certificate.principals)) != sorted(set(request.principals)):
        return f"is valid for {', '.join(certificate.principals)}; expected {', '.join(request.principals)}"
    if certificate.options != request.options:
        allowed, expected = (", ".join(options) or "nothing" for options in (certificate.options, request.options))
        return f"allows {allowed}; expected {expected}"
    if certificate.identity != request.identity(policy.cluster):
        return f"is known as {certificate.identity}; expected {request.identity(policy.cluster)}"
    if certificate.valid_from > now:
        return "is not valid yet"
    if certificate.valid_to - now <= policy.renew_before:
        return f"expires {_date(certificate.valid_to)}"
    if certificate.valid_to - now > policy.validity:
        return f"is valid until {_date(certificate.valid_to)}, longer than ssh_mesh_validity"
    return ""


def signing_report(requests: Sequence[Request], policy: Policy, now: float) -> str:
    """Return a sentence about the new certificates, their end and their renewal, or ""."""
    if not requests:
        return ""
    until = now + policy.validity
    nodes = host_list(list(dict.fromkeys(request.node for request in requests)))
    return (
        f"{counted(len(requests), 'ssh certificate')} signed for {nodes}, valid until {_date(until)}. "
        f"To renew them, run site.yml between {_date(until - policy.renew_before)} and that day."
    )


def _date(moment: float) -> str:
    return "never" if moment == _FOREVER else time.strftime("%Y-%m-%d", time.gmtime(moment))


def newest(request: Request, certificates: Sequence[Certificate], policy: Policy) -> int | None:
    """Return the index of this key's newest certificate by the authority, or None."""
    if not request.public_key:
        return None
    expected = (request.kind, fingerprint(request.public_key), policy.authorities[request.kind])
    mine = [at for at, each in enumerate(certificates) if (each.kind, each.key, each.authority) == expected]
    return max(mine, key=lambda index: certificates[index].serial, default=None)


@dataclass(frozen=True)
class MeshNode:
    """The addresses and keys that a node reported, under its inventory name."""

    name: str
    addresses: tuple[str, ...]
    default_address: str
    host_key: str
    user_key: str
    findings: tuple[Finding, ...] = field(default=())

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> MeshNode:
        """Read the agent's response to `ssh_keys`."""
        texts = {key: str(data[key]) for key in ("default_address", "host_key", "user_key")}
        findings = tuple(Finding.from_dict(finding) for finding in data["findings"])
        return cls(name, tuple(data["addresses"]), findings=findings, **texts)


def mesh_findings(
    nodes: Sequence[MeshNode],
    requests: Sequence[Request],
    revoked: Mapping[str, str],
    to_revoke: Sequence[str],
    certified: Mapping[str, str],
) -> list[Finding]:
    """Check all nodes together. `revoked` and `certified` map fingerprints of such keys to names of nodes."""
    findings = [finding for node in nodes for finding in node.findings]
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    void = {**revoked, **{key: name for key, name in certified.items() if key in to_revoke}}
    for request in requests:
        if request.public_key:
            try:
                holders[request.kind, fingerprint(request.public_key)].append(request.node)
            except ValueError as error:
                expected = "the line of a public key, such as ssh-ed25519 AAAA..."
                findings.append(Finding(f"{request.kind} key", str(error), expected, _NEW_KEY, host=request.node))
        for principal in request.principals:
            if not PRINCIPAL.fullmatch(principal):
                found, expected = repr(principal), "letters, digits and . _ : -"
                action = "correct the host's name, ansible_host or ssh_mesh_extra_principals in the inventory"
                findings.append(Finding("name for the certificate", found, expected, action, host=request.node))
    for (kind, key), names in holders.items():
        if len(names) > 1:
            found = f"{', '.join(names)} have the same key, {key}"
            expected = "a different key on every node (a copied image copies its keys)"
            findings.append(Finding(f"{kind} keys", found, expected, f"on all but one: {_NEW_KEY}"))
        if key in void:
            found = f"{key}, a revoked key of {void[key]}"
            findings.append(Finding(f"{kind} key", found, "a key that is not revoked", _NEW_KEY, host=names[0]))
    known = {*certified, *revoked, *certified.values(), *revoked.values()}
    return findings + _revocation_findings(to_revoke, {node.name for node in nodes}, known)


def _revocation_findings(to_revoke: Sequence[str], present: Collection[str], known: Collection[str]) -> list[Finding]:
    """Find entries of ssh_mesh_revoked that revoke nothing, or that name a node of this run."""
    findings = []
    for name in to_revoke:
        if name in present:
            found = f"{name} is in it and among the nodes of this run"
            action = (
                "take the node out of the inventory, or its name out of ssh_mesh_revoked; to revoke a lost key of a "
                "node that stays, list the fingerprint of the key"
            )
            findings.append(Finding("ssh_mesh_revoked", found, "one of the two", action, host=name))
        elif name not in known:
            found = f"{name}, which has no certificate of this authority"
            names = ", ".join(sorted(each for each in known if not each.startswith(_FINGERPRINT)))
            expected = f"one of {names or 'none yet'}, or a fingerprint ({_FINGERPRINT}...) of one of their keys"
            findings.append(Finding("ssh_mesh_revoked", found, expected, "correct it, or ssh_mesh_ca_dir"))
    return findings


def to_be_revoked(
    issued: Iterable[Certificate], revoked: Collection[str], to_revoke: Collection[str], cluster: str
) -> dict[str, str]:
    """Return {fingerprint: node} of the keys that ssh_mesh_revoked names and that are not revoked yet."""
    found = {}
    for certificate in issued:
        node, ours = owner(certificate), certificate.identity.startswith(f"{cluster}:")
        if certificate.key not in revoked and (certificate.key in to_revoke or (ours and node in to_revoke)):
            found[certificate.key] = node
    return found


def owner(certificate: Certificate) -> str:
    """Return the node of a certificate."""
    return certificate.identity.split(":", 1)[-1].rpartition(":")[0]


def revocation_list(fingerprints: Iterable[str]) -> str:
    """Return the specification from which ssh-keygen -k makes the key revocation list.

    It revokes keys instead of certificates, so that all certificates of such a key are void, future ones too.
    """
    return "".join(f"hash: {key}\n" for key in sorted(set(fingerprints)))
