"""A site with an authority of its own, for tests of certificates that are given."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PASSWORDS = {"server_password": "server-4711", "client_password": "client-4712"}


class Site:
    """An authority of a site, which makes certificates in any way that a test asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = rsa.generate_private_key(65537, 3072)
        self.authority = self.certificate(self.key, authority=True, name="site")
        (folder / "ca.pem").write_bytes(self.authority.public_bytes(serialization.Encoding.PEM))
        self.serials = {role: self.bundle(role) for role in ("server", "client")}
        self.revoke()

    def certificate(self, key, days=365, since=1, authority=False, keyid=True, name="node", signer=None):
        now = datetime.datetime.now(datetime.timezone.utc)
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, "site"))
        public = (signer or self.key).public_key()
        builder = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=since))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if keyid:
            builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        return builder.sign(signer or self.key, hashes.SHA256())

    def bundle(self, role, key=None, chain=False, **changes):
        key = key or rsa.generate_private_key(65537, 3072)
        certificate = self.certificate(key, **changes)
        encryption = serialization.BestAvailableEncryption(PASSWORDS[f"{role}_password"].encode())
        packed = pkcs12.serialize_key_and_certificates(
            b"node", key, certificate, [self.authority] if chain else None, encryption
        )
        (self.folder / f"{role}.p12").write_bytes(packed)
        return certificate.serial_number

    def revoke(self, *serials, days=7, signer=None):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.authority.subject)
            .last_update(now - datetime.timedelta(days=30))
            .next_update(now + datetime.timedelta(days=days))
        )
        for serial in serials:
            builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(serial, now).build())
        listed = builder.sign(signer or self.key, hashes.SHA256())
        (self.folder / "crl.pem").write_bytes(listed.public_bytes(serialization.Encoding.PEM))
