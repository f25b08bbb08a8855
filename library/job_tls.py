#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Certificates and passwords for one job; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_tls
short_description: Make or check the TLS certificates of one job
description:
  - Keeps a certificate authority for the jobs of a cluster in a folder of the controller. For each job it makes a key
    and a certificate for servers and one for clients, each in a p12 file with a password, the revocation list, and the
    JSON file that MindSpore reads. They are valid for as long as the job may take.
  - Given certificates (O(certificates)) are checked and handed on instead.
  - Everything that would keep MindSpore from using them becomes an entry of RV(findings); the module does not fail
    because of them. Nothing is made while there are any.
  - Runs on the controller. The authority's private key never leaves its folder.
version_added: "0.1.0"
options:
  cluster:
    description: Name of the cluster, the name of its authority.
    type: str
    required: true
  ca_dir:
    description: Folder of the authority, made with mode 0700 when it is missing. Keep a backup of it.
    type: path
    required: true
  job_id:
    description: The job, the name in its certificates. Needed where they are made.
    type: str
    default: ""
  job_dir:
    description: The job's folder on the nodes, where the files will be. Needed where they are made.
    type: str
    default: ""
  valid_s:
    description: How many seconds the job may take.
    type: int
    required: true
  warning_days:
    description: Say so when the authority or a given certificate expires within this many days.
    type: int
    default: 30
  revoked:
    description: Jobs whose certificates are revoked. Revocation lasts when a job is taken out of the list.
    type: list
    elements: str
    default: []
  certificates:
    description:
      - Files on the controller to use instead of making certificates, C(ca) (PEM), C(server) and C(client) (p12), and
        C(crl) (PEM, may be left out).
    type: dict
    default: {}
  base_dir:
    description: Folder that relative paths in O(certificates) count from.
    type: path
    default: .
  server_password:
    description: Password of the server's p12 file. By default one is made, which needs O(certificates) to be empty.
    type: str
    default: ""
  client_password:
    description: Password of the client's p12 file, likewise.
    type: str
    default: ""
requirements:
  - cryptography (Python package; ansible-core brings it)
attributes:
  check_mode:
    description: Can run in check mode, looks at what there is, and makes nothing.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Make the job's certificates
  job_tls:
    cluster: lab
    ca_dir: ~/.trainyard/lab/tls_ca
    job_id: digits-20261120-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500
    valid_s: 3600
  delegate_to: localhost
  run_once: true
  no_log: true
  register: tls
"""

RETURN = r"""
findings:
  description: What keeps the job from running with TLS, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
soon:
  description: What expires soon, a sentence for each.
  returned: always
  type: list
  elements: str
env:
  description: The passwords that were made, by the name of their environment variable. Secret.
  returned: always
  type: dict
files:
  description: The files for the job's folder on each node, name and base64. Secret.
  returned: always
  type: dict
"""

import base64
import contextlib
import datetime
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.trainyard.job import tls
from ansible.module_utils.trainyard.record.findings import Finding

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False

AUTHORITY_DAYS = 5 * 365
# The usages that a certificate may have, all of them false.
NO_USAGE = dict.fromkeys(
    (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    ),
    False,
)  # fmt: skip


def moment(when: float) -> datetime.datetime:
    """Turn seconds since the epoch into what x509 wants: whole seconds, UTC."""
    return datetime.datetime.fromtimestamp(int(when), datetime.timezone.utc)


def key_identifier(certificate: Any, kind: Any) -> str:
    """Read a certificate's own key identifier, or that of its authority, "" where it has none."""
    try:
        value = certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return ""
    identifier = value.key_identifier
    return identifier.hex() if identifier else ""


def describe(name: str, certificate: Any, authority: Any = None, beside: int = 0) -> tls.Certificate:
    """Say what matters of a certificate, and whether `authority` signed it."""
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
    return tls.Certificate(
        name=name,
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        serial=certificate.serial_number,
        rsa_bits=public.key_size if isinstance(public, rsa.RSAPublicKey) else 0,
        is_authority=is_authority,
        subject_key=key_identifier(certificate, x509.SubjectKeyIdentifier),
        authority_key=key_identifier(certificate, x509.AuthorityKeyIdentifier),
        signed=signed,
        beside=beside,
    )


class Authority:
    """The folder: ca.pem and ca.key; `issued` and `revoked` have one certificate a line, serial number first."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Name the folder; it need not be there yet."""
        self.folder, self.cluster = folder, cluster
        self.certificate: Any = None
        self.renewal = (
            f"To have a new authority, move {folder} away: the next launch makes one, and jobs that run keep theirs"
        )
        self.read()

    def facts(self) -> tls.Certificate:
        """Say what matters of the authority."""
        return describe(f"the jobs' authority {self.folder}/ca.pem", self.certificate)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other launches out of it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read(self) -> None:
        """Read the authority's certificate, where it has been made."""
        if (self.folder / "ca.pem").exists():
            self.certificate = x509.load_pem_x509_certificate((self.folder / "ca.pem").read_bytes())

    def key(self) -> Any:
        """Return the authority's key; make what is missing of key and certificate. Needs the lock."""
        path = self.folder / "ca.key"
        # Another launch may have made them since this one looked.
        self.read()
        if not path.exists() and self.certificate is None:
            private = rsa.generate_private_key(65537, tls.RSA_BITS).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            self.write("ca.key", private)
        if path.stat().st_mode & 0o077:
            raise OSError(
                f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}); expected 600. Set it, and think "
                "about who may have read it"
            )
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        # Also after a launch that was cut off between the two.
        if self.certificate is None:
            self.certify(key)
        if key.public_key() != self.certificate.public_key():
            raise OSError(f"{path} is not the key of {self.folder}/ca.pem; restore both from one backup")
        return key

    def certify(self, key: Any) -> None:
        """Make the authority's certificate."""
        now = time.time()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"trainyard {self.cluster}"[:64])])
        self.certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(moment(now - tls.BACKDATE_S))
            .not_valid_after(moment(now + AUTHORITY_DAYS * tls.DAY_S))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**{**NO_USAGE, "key_cert_sign": True, "crl_sign": True}), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.write("ca.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def records(self, name: str) -> list[list[str]]:
        """Read `issued` (serial, end, job, role) or `revoked` (serial, end, job, role, time of revocation)."""
        path = self.folder / name
        return [line.split() for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []

    def write(self, name: str, content: bytes) -> None:
        """Replace a file of the folder at once; it is for its owner only."""
        fresh = self.folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            # After a power cut there is the old file or the new one, never an empty one.
            os.fsync(file.fileno())
        fresh.replace(self.folder / name)

    def keep(self, name: str, records: list[list[str]]) -> None:
        """Replace `issued` or `revoked`; what has expired needs no record."""
        now = time.time()
        self.write(name, "".join(" ".join(line) + "\n" for line in records if float(line[1]) > now).encode("ascii"))

    def unknown(self, jobs: list[str]) -> list[str]:
        """Return the jobs among these that no valid certificate was made for."""
        known = {line[2] for name in ("issued", "revoked") for line in self.records(name)}
        return [job for job in jobs if job not in known]

    def revocation_list(self, jobs: list[str], key: Any, until: float) -> bytes:
        """Revoke what was issued for these jobs; return the list of everything that is revoked."""
        revoked, now = self.records("revoked"), time.time()
        already = {line[0] for line in revoked}
        revoked += [
            [*line, str(int(now))] for line in self.records("issued") if line[2] in jobs and line[0] not in already
        ]
        self.keep("revoked", revoked)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(moment(now - tls.BACKDATE_S))
            .next_update(moment(until))
        )
        for line in revoked:
            entry = x509.RevokedCertificateBuilder(int(line[0], 16), moment(float(line[4])))
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def bundle(self, role: str, job_id: str, password: str, signer: Any, until: float) -> bytes:
        """Make a key and its certificate for one role of a job, in a p12 file without the authority."""
        key = rsa.generate_private_key(65537, tls.RSA_BITS)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if role == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
                x509.NameAttribute(NameOID.COMMON_NAME, job_id[:64]),
            ]
        )
        own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        certificate = (
            x509.CertificateBuilder(self.certificate.subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(moment(time.time() - tls.BACKDATE_S))
            .not_valid_after(moment(until))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(**{**NO_USAGE, "digital_signature": True, "key_encipherment": True}), critical=True
            )
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
            .sign(signer, hashes.SHA256())
        )
        record = [f"{certificate.serial_number:x}", str(int(until)), job_id, role]
        self.keep("issued", [*self.records("issued"), record])
        return pkcs12.serialize_key_and_certificates(
            job_id.encode(), key, certificate, None, serialization.BestAvailableEncryption(password.encode())
        )


def made(params: dict[str, Any], check_mode: bool, result: dict[str, Any]) -> list[Finding]:
    """Make the job's certificates; in check mode look whether they can be made."""
    authority = Authority(Path(params["ca_dir"]), params["cluster"])
    now = time.time()
    findings = [
        Finding(
            "", "job_tls_revoked", f"{job}, for which {authority.folder} knows no certificate that is still valid",
            "job ids, as in the names of the runs' folders", "correct it, or take it out of job_tls_revoked",
        )
        for job in authority.unknown(params["revoked"])
    ]  # fmt: skip
    if authority.certificate is not None:
        facts = authority.facts()
        findings += tls.authority_findings(facts, now, authority.renewal)
        soon = tls.expires_soon(facts, now, params["warning_days"], authority.renewal)
        result["soon"] = [soon] if soon else []
    if check_mode or findings:
        return findings
    with authority.locked():
        key = authority.key()
        # MindSpore's own warning is for given certificates; these shall not cause it.
        until = now + params["valid_s"] + (params["warning_days"] + 1) * tls.DAY_S
        files = {}
        for role, variable in tls.PASSWORD_VARIABLES.items():
            password = params[f"{role}_password"]
            if not password:
                password = result["env"][variable] = secrets.token_urlsafe(24)
            files[tls.BUNDLES[role]] = authority.bundle(role, params["job_id"], password, key, until)
        files[tls.REVOCATION_LIST] = authority.revocation_list(params["revoked"], key, until)
        files[tls.AUTHORITY] = authority.certificate.public_bytes(serialization.Encoding.PEM)
    result["files"] = files
    result["changed"] = True
    return []


def given(params: dict[str, Any], result: dict[str, Any]) -> list[Finding]:
    """Check the given certificates and hand them on."""
    paths = {name: Path(params["base_dir"], path).expanduser() for name, path in params["certificates"].items()}
    key = "job_tls_certificates"
    findings = [
        Finding("", key, f"no {name}", "files named ca, server and client, and crl where there is one", f"add {name}")
        for name in ("ca", "server", "client")
        if name not in paths
    ]
    findings += [
        Finding("", key, f"a file named {name}", "ca, server, client, crl", f"remove {name}")
        for name in sorted(set(paths) - {"ca", "server", "client", "crl"})
    ]
    if params["revoked"]:
        findings.append(
            Finding("", "job_tls_revoked", f"together with {key}", "the list of that authority itself", "use crl")
        )
    if findings:
        return findings

    def unreadable(path: Path, what: str, error: Exception) -> list[Finding]:
        return [Finding("", key, f"{path}: {error}", what, "correct the path, or the file")]

    now = time.time()
    try:
        authority = x509.load_pem_x509_certificate(paths["ca"].read_bytes())
    except (OSError, ValueError) as error:
        return unreadable(paths["ca"], "the authority's certificate in PEM", error)
    renewal = "Renew it, or leave job_tls_certificates out: then certificates are made for each job"
    facts = {"ca": describe(f"the authority {paths['ca']}", authority)}
    findings += tls.authority_findings(facts["ca"], now, renewal)
    revoked = None
    if "crl" in paths:
        try:
            listed = x509.load_pem_x509_crl(paths["crl"].read_bytes())
        except (OSError, ValueError) as error:
            return [*findings, *unreadable(paths["crl"], "the authority's revocation list in PEM", error)]
        revoked = tls.RevocationList(
            f"the revocation list {paths['crl']}",
            listed.next_update_utc.timestamp() if listed.next_update_utc else float("inf"),
            frozenset(entry.serial_number for entry in listed),
            listed.is_signature_valid(authority.public_key()),
        )
        findings += tls.revocation_findings(revoked, facts["ca"], now)
    for role, variable in tls.PASSWORD_VARIABLES.items():
        password = params[f"{role}_password"]
        if not password:
            findings.append(
                Finding(
                    "", "job_secret_env", f"no {variable}", f"the password of {paths[role]}",
                    f"add {variable} to job_secret_env, with its value from Ansible Vault",
                )
            )  # fmt: skip
            continue
        try:
            bundle = pkcs12.load_pkcs12(paths[role].read_bytes(), password.encode())
        except OSError as error:
            findings += unreadable(paths[role], "a p12 file", error)
        except (ValueError, UnsupportedAlgorithm):
            findings.append(
                Finding(
                    "", "tls", f"{variable} does not open {paths[role]}", "a p12 file and its password",
                    f"correct {variable} in job_secret_env, or the file",
                )
            )  # fmt: skip
        else:
            if bundle.cert is None or bundle.key is None:
                findings.append(
                    Finding("", "tls", f"no key with its certificate in {paths[role]}", "both", "correct the file")
                )
                continue
            name, beside = f"the {role} certificate {paths[role]}", len(bundle.additional_certs)
            facts[role] = describe(name, bundle.cert.certificate, authority, beside)
            findings += tls.bundle_findings(facts[role], facts["ca"], revoked, now, renewal)
    result["soon"] = [
        text for fact in facts.values() if (text := tls.expires_soon(fact, now, params["warning_days"], renewal))
    ]
    names = {"ca": tls.AUTHORITY, "crl": tls.REVOCATION_LIST, **tls.BUNDLES}
    if not findings:
        result["files"] = {names[name]: path.read_bytes() for name, path in paths.items()}
    return findings


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "ca_dir": {"type": "path", "required": True},
            "job_id": {"type": "str", "default": ""},
            "job_dir": {"type": "str", "default": ""},
            "valid_s": {"type": "int", "required": True},
            "warning_days": {"type": "int", "default": 30},
            "revoked": {"type": "list", "elements": "str", "default": []},
            "certificates": {"type": "dict", "default": {}},
            "base_dir": {"type": "path", "default": "."},
            "server_password": {"type": "str", "default": "", "no_log": True},
            "client_password": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    if not HAS_CRYPTOGRAPHY:
        module.fail_json(msg=missing_required_lib("cryptography"))
    result: dict[str, Any] = {"changed": False, "soon": [], "env": {}, "files": {}}
    try:
        findings = given(params, result) if params["certificates"] else made(params, module.check_mode, result)
    except (OSError, ValueError) as error:
        findings = [
            Finding(
                "", "tls", f"{params['ca_dir']} on the controller: {error}", "the folder of the jobs' authority",
                "repair it; or move it away, then the next launch makes a new authority",
            )
        ]  # fmt: skip
    if result["files"]:
        config = tls.configuration(params["job_dir"], params["warning_days"], tls.REVOCATION_LIST in result["files"])
        result["files"][tls.CONFIG] = config.encode()
    result["files"] = {name: base64.b64encode(content).decode() for name, content in result["files"].items()}
    module.exit_json(findings=[finding.as_dict() for finding in findings], **result)


if __name__ == "__main__":
    main()
