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
    JSON file that MindSpore reads. They are valid for as long as the job may take, and 8 days for a queue before it.
  - Given certificates (O(certificates)) are checked and handed on instead.
  - Everything that would keep MindSpore from using them becomes an entry of RV(findings); the module does not fail
    because of them. Nothing is made while there are any.
  - Runs on the controller. The authority's private key never leaves its folder.
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
    default: 90
  ciphers:
    description: Cipher suites by OpenSSL's names. By default those of the guides that MindSpore 2 knows.
    type: list
    elements: str
    default:
      - ECDHE-RSA-AES128-GCM-SHA256
      - ECDHE-ECDSA-AES128-GCM-SHA256
      - ECDHE-RSA-AES256-GCM-SHA384
      - ECDHE-ECDSA-AES256-GCM-SHA384
      - ECDHE-RSA-CHACHA20-POLY1305
      - ECDHE-ECDSA-AES128-CCM
      - ECDHE-ECDSA-AES256-CCM
      - ECDHE-ECDSA-CHACHA20-POLY1305
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
"""

EXAMPLES = r"""
- name: Make the job's certificates
  job_tls:
    cluster: lab
    ca_dir: ~/.trainyard/lab/tls_ca
    job_id: digits-20261120-101500-3f9c
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500-3f9c
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
import secrets
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.job.file import tls

try:
    from ansible.module_utils.trainyard_controller.tls_authority import Authority, describe
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False


def made(params: dict[str, Any], check_mode: bool, result: dict[str, Any]) -> list[Finding]:
    """Make the job's certificates; in check mode look whether they can be made."""
    authority = Authority(Path(params["ca_dir"]), params["cluster"])
    now = time.time()
    findings = [
        Finding("job_tls_revoked", (f"{job}, for which {authority.folder} knows no certificate that is still "
"valid"), ("job ids, as in the names of the runs' "
"folders"), ("correct it, or take it out of "
"job_tls_revoked"))
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
        until = now + params["valid_s"] + tls.SPARE_DAYS * tls.DAY_S
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
        Finding(key, f"no {name}", "files named ca, server and client, and crl where there is one", f"add {name}")
        for name in ("ca", "server", "client")
        if name not in paths
    ]
    findings += [
        Finding(key, f"a file named {name}", "ca, server, client, crl", f"remove {name}")
        for name in sorted(set(paths) - {"ca", "server", "client", "crl"})
    ]
    if params["revoked"]:
        findings.append(
            Finding("job_tls_revoked", f"together with {key}", "the list of that authority itself", "use crl")
        )
    if findings:
        return findings

    def unreadable(path: Path, what: str, error: Exception) -> list[Finding]:
        return [Finding(key, f"{path}: {error}", what, "correct the path, or the file")]

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
        # Of all kinds of keys; an authority has one that signs.
        signs: Any = authority.public_key()
        revoked = tls.RevocationList(
            f"the revocation list {paths['crl']}",
            listed.next_update_utc.timestamp() if listed.next_update_utc else float("inf"),
            frozenset(entry.serial_number for entry in listed),
            listed.is_signature_valid(signs),
        )
        findings += tls.revocation_findings(revoked, facts["ca"], now)
    for role, variable in tls.PASSWORD_VARIABLES.items():
        password = params[f"{role}_password"]
        if not password:
            findings.append(
                Finding(
                    "job_secret_env",
                    f"no {variable}",
                    f"the password of {paths[role]}",
                    f"add {variable} to job_secret_env, with its value from Ansible Vault",
                )
            )
            continue
        try:
            bundle = pkcs12.load_pkcs12(paths[role].read_bytes(), password.encode())
        except OSError as error:
            findings += unreadable(paths[role], "a p12 file", error)
        except (ValueError, UnsupportedAlgorithm):
            findings.append(
                Finding(
                    "tls",
                    f"{variable} does not open {paths[role]}",
                    "a p12 file and its password",
                    f"correct {variable} in job_secret_env, or the file",
                )
            )
        else:
            if bundle.cert is None or bundle.key is None:
                findings.append(
                    Finding("tls", f"no key with its certificate in {paths[role]}", "both", "correct the file")
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
            "warning_days": {"type": "int", "default": 90},
            "ciphers": {"type": "list", "elements": "str", "default": list(tls.DEFAULT_CIPHERS)},
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
                "tls",
                f"{params['ca_dir']} on the controller: {error}",
                "the folder of the jobs' authority",
                "repair it; or move it away, then the next launch makes a new authority",
            )
        ]
    if result["files"]:
        # MindSpore warns of given certificates; those made here live no longer than the job.
        days = params["warning_days"] if params["certificates"] else tls.LEAST_WARNING_DAYS
        config = tls.configuration(params["job_dir"], days, tls.REVOCATION_LIST in result["files"], params["ciphers"])
        result["files"][tls.CONFIG] = config.encode()
    result["files"] = {name: base64.b64encode(content).decode() for name, content in result["files"].items()}
    module.exit_json(findings=[finding.as_dict() for finding in findings], **result)


if __name__ == "__main__":
    main()
