# SPDX-License-Identifier: Apache-2.0
"""The certificates of one job: make them with the jobs' authority, or check the site's own.

`result` is that of the module job_tls: `soon`, `env`, `files` and `changed` are filled in.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from ...trainyard.base.findings import Finding
from ...trainyard.job.file import mindspore_tls
from ..cluster.tls_authority import Authority, describe
from ..runs.locks import locked_secrets

_OPTION = "job_tls_certificates"
_NAMES: Mapping[str, str] = {
    "ca": mindspore_tls.AUTHORITY,
    "crl": mindspore_tls.REVOCATION_LIST,
    **mindspore_tls.BUNDLES,
}
_RENEWAL = "Renew it, or leave job_tls_certificates out: then certificates are made for each job"


def make(params: Mapping[str, Any], check_mode: bool, result: dict[str, Any]) -> list[Finding]:
    """Make the job's certificates; in check mode only find obstacles."""
    authority = Authority(Path(params["ca_dir"]), params["cluster"])
    now = time.time()
    expected, action = "job ids, as in the names of the runs' folders", "correct it, or take it out of job_tls_revoked"
    findings = [
        Finding("job_tls_revoked", f"{job}, which has no valid certificate of {authority.folder}", expected, action)
        for job in authority.unknown(params["revoked"])
    ]
    if authority.certificate is not None:
        facts = authority.facts()
        findings += mindspore_tls.authority_findings(facts, now, authority.renewal)
        soon = mindspore_tls.expires_soon(facts, now, params["warning_days"], authority.renewal)
        result["soon"] = [soon] if soon else []
    if check_mode or findings:
        return findings
    with locked_secrets(authority.folder):
        key = authority.key()
        until = now + params["valid_s"] + mindspore_tls.SPARE_DAYS * mindspore_tls.DAY_S
        files = {}
        for role, variable in mindspore_tls.PASSWORD_VARIABLES.items():
            password = params[f"{role}_password"]
            if not password:
                password = result["env"][variable] = secrets.token_urlsafe(24)
            files[mindspore_tls.BUNDLES[role]] = authority.bundle(role, params["job_id"], password, key, until)
        files[mindspore_tls.REVOCATION_LIST] = authority.revocation_list(params["revoked"], key, until)
        files[mindspore_tls.AUTHORITY] = authority.certificate.public_bytes(serialization.Encoding.PEM)
    result.update(files=files, changed=True)
    return []


def check_own(params: Mapping[str, Any], result: dict[str, Any]) -> list[Finding]:
    """Check the site's own certificates, and return their files if there are no findings."""
    paths = {name: Path(params["base_dir"], path).expanduser() for name, path in params["certificates"].items()}
    findings = _option_findings(paths, params["revoked"])
    if findings:
        return findings
    now = time.time()
    try:
        authority = x509.load_pem_x509_certificate(paths["ca"].read_bytes())
    except (OSError, ValueError) as error:
        return [_unreadable(paths["ca"], "the authority's certificate in PEM", error)]
    facts = {"ca": describe(f"the authority {paths['ca']}", authority)}
    findings += mindspore_tls.authority_findings(facts["ca"], now, _RENEWAL)
    revoked = None
    if "crl" in paths:
        try:
            revoked = _revocation_list(paths["crl"], authority)
        except (OSError, ValueError) as error:
            return [*findings, _unreadable(paths["crl"], "the authority's revocation list in PEM", error)]
        findings += mindspore_tls.revocation_findings(revoked, facts["ca"], now)
    for role, variable in mindspore_tls.PASSWORD_VARIABLES.items():
        bundle = _bundle(paths[role], variable, params[f"{role}_password"])
        if isinstance(bundle, Finding):
            findings.append(bundle)
            continue
        name, beside = f"the {role} certificate {paths[role]}", len(bundle.additional_certs)
        facts[role] = describe(name, bundle.cert.certificate, authority, beside)
        findings += mindspore_tls.bundle_findings(facts[role], facts["ca"], revoked, now, _RENEWAL)
    soon = [mindspore_tls.expires_soon(fact, now, params["warning_days"], _RENEWAL) for fact in facts.values()]
    result["soon"] = [text for text in soon if text]
    if not findings:
        result["files"] = {_NAMES[name]: path.read_bytes() for name, path in paths.items()}
    return findings


def _option_findings(paths: Mapping[str, Path], revoked: Sequence[str]) -> list[Finding]:
    """Find missing and unknown files, and job_tls_revoked, which is for our own authority only."""
    expected = "files named ca, server and client, and crl if there is one"
    findings = [
        Finding(_OPTION, f"no {name}", expected, f"add {name}")
        for name in ("ca", "server", "client")
        if name not in paths
    ]
    findings += [
        Finding(_OPTION, f"a file named {name}", "ca, server, client, crl", f"remove {name}")
        for name in sorted(set(paths) - set(_NAMES))
    ]
    if revoked:
        found = f"together with {_OPTION}"
        findings.append(Finding("job_tls_revoked", found, "the list of that authority itself", "use crl"))
    return findings


def _unreadable(path: Path, expected: str, error: Exception) -> Finding:
    return Finding(_OPTION, f"{path}: {error}", expected, "correct the path, or the file")


def _revocation_list(path: Path, authority: Any) -> mindspore_tls.RevocationList:
    """Read a revocation list. Raises OSError or ValueError."""
    entries = x509.load_pem_x509_crl(path.read_bytes())
    # The type covers all kinds of keys, but an authority has a signing one.
    key: Any = authority.public_key()
    return mindspore_tls.RevocationList(
        f"the revocation list {path}",
        entries.next_update_utc.timestamp() if entries.next_update_utc else float("inf"),
        frozenset(entry.serial_number for entry in entries),
        entries.is_signature_valid(key),
    )


def _bundle(path: Path, variable: str, password: str) -> Any:
    """Return the content of a p12 file, or a Finding."""
    if not password:
        action = f"add {variable} to job_secret_env, with its value from Ansible Vault"
        return Finding("job_secret_env", f"no {variable}", f"the password of {path}", action)
    try:
        bundle = pkcs12.load_pkcs12(path.read_bytes(), password.encode())
    except OSError as error:
        return _unreadable(path, "a p12 file", error)
    except (ValueError, UnsupportedAlgorithm):
        action = f"correct {variable} in job_secret_env, or the file"
        return Finding("tls", f"{variable} does not open {path}", "a p12 file and its password", action)
    if bundle.cert is None or bundle.key is None:
        return Finding("tls", f"no key with its certificate in {path}", "both", "correct the file")
    return bundle
