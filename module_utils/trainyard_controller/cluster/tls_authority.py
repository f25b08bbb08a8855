# SPDX-License-Identifier: Apache-2.0
"""The authority of a cluster's jobs: a folder on the controller that issues and revokes certificates for TLS.

Needs the Python package cryptography, which ansible-core brings. Times are seconds since the epoch.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...trainyard.job.file import mindspore_tls
from ..runs.locks import exposed

AUTHORITY_DAYS = 5 * 365
_FIELDS = {"issued": "serial, end, job, role", "revoked": "serial, end, job, role, time of revocation"}
_RECORDS = {
    "issued": re.compile(r"[0-9a-f]{1,40} \d{1,10} \S{1,255} \S{1,32}", re.ASCII),
    "revoked": re.compile(r"[0-9a-f]{1,40} \d{1,10} \S{1,255} \S{1,32} \d{1,10}", re.ASCII),
}
KINDS = {"RSA": rsa.RSAPublicKey, "EC": ec.EllipticCurvePublicKey}
# All usages of a certificate, set to false.
NO_USAGE = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip


def moment(when: float) -> datetime.datetime:
    """Return seconds since the epoch as a datetime for x509: whole seconds, UTC."""
    return datetime.datetime.fromtimestamp(int(when), datetime.timezone.utc)


def key_identifier(certificate: Any, kind: Any) -> str:
    """Return a certificate's own key identifier, or that of its authority, or ""."""
    try:
        value = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return ""
    identifier = value.key_identifier
    return identifier.hex() if identifier else ""


def describe(name: str, certificate: Any, authority: Any = None, beside: int = 0) -> mindspore_tls.Certificate:
    """Return the facts of a certificate, and whether `authority` signed it."""
    public = certificate.public_key()
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    signed = True
    if authority is not None:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            signed = False
    return mindspore_tls.Certificate(
        name=name,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        serial=certificate.serial_number,
        kind=next((name for name, kind in KINDS.items() if isinstance(public, kind)), ""),
        bits=getattr(public, "key_size", 0),
        is_authority=is_authority,
        subject_key=key_identifier(certificate, x509.SubjectKeyIdentifier),
        authority_key=key_identifier(certificate, x509.AuthorityKeyIdentifier),
        signed=signed,
        beside=beside,
    )


def _builder(
    issuer: x509.Name, subject: x509.Name, key: Any, until: float, constraints: x509.BasicConstraints, *usages: str
) -> x509.CertificateBuilder:
    """Return the common builder of all certificates."""
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(moment(time.time() - mindspore_tls.BACKDATE_S))
        .not_valid_after(moment(until))
        .add_extension(constraints, critical=True)
        .add_extension(x509.KeyUsage(**{**NO_USAGE, **dict.fromkeys(usages, True)}), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


class Authority:
    """The folder: ca.pem and ca.key; `issued` and `revoked` with one certificate per line, serial number first."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Take the folder, which may not exist yet."""
        self.folder, self.cluster = folder, cluster
        self.certificate: Any = None
        self.renewal = (
            f"For a new authority, move {folder} away: the next launch makes one, and running jobs keep the old one"
        )
        self.read()

    def facts(self) -> mindspore_tls.Certificate:
        """Return the facts of the authority."""
        return describe(f"the jobs' authority {self.folder}/ca.pem", self.certificate)

    def read(self) -> None:
        """Read the authority's certificate if it exists."""
        if (self.folder / "ca.pem").exists():
            self.certificate = x509.load_pem_x509_certificate((self.folder / "ca.pem").read_bytes())

    def key(self) -> Any:
        """Return the authority's key; create missing key and certificate. Needs the lock."""
        path = self.folder / "ca.key"
        # Another launch may have created them meanwhile.
        self.read()
        if not path.exists() and self.certificate is None:
            private = rsa.generate_private_key(65537, mindspore_tls.RSA_BITS).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            self.write("ca.key", private)
        if problem := exposed(path):
            raise OSError(problem)
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        # A launch may have been interrupted between the two.
        if self.certificate is None:
            self.certify(key)
        if key.public_key() != self.certificate.public_key():
            raise OSError(f"{path} is not the key of {self.folder}/ca.pem; restore both from one backup")
        return key

    def certify(self, key: Any) -> None:
        """Create the authority's certificate."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"trainyard {self.cluster}"[:64])])
        until = time.time() + AUTHORITY_DAYS * mindspore_tls.DAY_S
        builder = _builder(name, name, key, until, x509.BasicConstraints(True, 0), "key_cert_sign", "crl_sign")
        self.certificate = builder.sign(key, hashes.SHA256())
        self.write("ca.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def records(self, name: str) -> list[list[str]]:
        """Read `issued` (serial, end, job, role) or `revoked` (serial, end, job, role, time of revocation).

        Raises ValueError for a damaged line.
        """
        path = self.folder / name
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if not _RECORDS[name].fullmatch(line):
                raise ValueError(f"{path} is damaged: line {number} is {line[:60]!r}, expected {_FIELDS[name]}")
        return [line.split() for line in lines]

    def write(self, name: str, content: bytes) -> None:
        """Replace a file of the folder atomically; only its owner may read it."""
        fresh = self.folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            # After a power cut, the old or the new file exists, never an empty one.
            os.fsync(file.fileno())
        fresh.replace(self.folder / name)

    def keep(self, name: str, records: list[list[str]]) -> None:
        """Replace `issued` or `revoked` without expired certificates."""
        now = time.time()
        self.write(name, "".join(" ".join(line) + "\n" for line in records if float(line[1]) > now).encode("ascii"))

    def unknown(self, jobs: list[str]) -> list[str]:
        """Return those of the jobs that have no valid certificate."""
        known = {line[2] for name in ("issued", "revoked") for line in self.records(name)}
        return [job for job in jobs if job not in known]

    def revocation_list(self, jobs: list[str], key: Any, until: float) -> bytes:
        """Revoke the certificates of these jobs; return the complete revocation list."""
        revoked, now = self.records("revoked"), time.time()
        already = {line[0] for line in revoked}
        revoked += [
            [*line, str(int(now))] for line in self.records("issued") if line[2] in jobs and line[0] not in already
        ]
        self.keep("revoked", revoked)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(moment(now - mindspore_tls.BACKDATE_S))
            .next_update(moment(until))
        )
        for line in revoked:
            entry = x509.RevokedCertificateBuilder(int(line[0], 16), moment(float(line[4])))
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def bundle(self, role: str, job_id: str, password: str, signer: Any, until: float) -> bytes:
        """Create a key and its certificate for one role of a job, in a p12 file without the authority."""
        key = rsa.generate_private_key(65537, mindspore_tls.RSA_BITS)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if role == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
                x509.NameAttribute(NameOID.COMMON_NAME, job_id[:64]),
            ]
        )
        own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer, constraints = self.certificate.subject, x509.BasicConstraints(False, None)
        certificate = (
            _builder(issuer, subject, key, until, constraints, "digital_signature", "key_encipherment")
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
            .sign(signer, hashes.SHA256())
        )
        record = [f"{certificate.serial_number:x}", str(int(until)), job_id, role]
        self.keep("issued", [*self.records("issued"), record])
        return pkcs12.serialize_key_and_certificates(
            job_id.encode(), key, certificate, None, serialization.BestAvailableEncryption(password.encode())
        )
