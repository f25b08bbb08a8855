# SPDX-License-Identifier: Apache-2.0
"""TLS between the processes of a MindSpore job: its names, its configuration, and which certificates it can use.

MindSpore reads the certificates from a JSON file and the passwords from its caller (`set_ps_context`). It runs OpenSSL
at security level 3, and for much that it cannot use it has no message, or an empty one after minutes; so all of that is
found here, before anything starts. Times are seconds since the epoch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base.findings import Finding, counted

# Launchers whose processes call set_ps_context.
LAUNCHERS = ("mindspore", "msrun")
CONFIG_VARIABLE = "MS_TLS_CONFIG"
PASSWORD_VARIABLES: Mapping[str, str] = {"server": "MS_TLS_SERVER_PASSWORD", "client": "MS_TLS_CLIENT_PASSWORD"}

# In the job's folder on the nodes.
FOLDER = "tls"
CONFIG = f"{FOLDER}/config.json"
AUTHORITY = f"{FOLDER}/ca.pem"
REVOCATION_LIST = f"{FOLDER}/crl.pem"
BUNDLES: Mapping[str, str] = {"server": f"{FOLDER}/server.p12", "client": f"{FOLDER}/client.p12"}

# The suites of MindSpore 2 (ps/constants.h in its source); with any other name it ends with "The cipher is wrong.".
CIPHERS = (
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-PSK-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-CCM",
    "ECDHE-ECDSA-AES256-CCM",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
)
# PSK suites need a key that both sides have beforehand.
DEFAULT_CIPHERS = tuple(name for name in CIPHERS if "-PSK-" not in name)
# Minimum of security level 3: handshakes with shorter keys fail.
RSA_BITS = 3072
_BITS = {"RSA": RSA_BITS, "EC": 256}
# Range of MindSpore's cert_expire_warning_time_in_day.
MIN_WARNING_DAYS, MAX_WARNING_DAYS = 7, 180
# Days that a job's own certificates outlive its time limit: MindSpore warns of their last 7 days at the latest, and a
# job of Slurm or Kubernetes may wait in a queue.
SPARE_DAYS = MIN_WARNING_DAYS + 1

# MindSpore's messages about faults that show on the nodes only, and their causes.
_MESSAGES = (
    (
        re.compile(r"The (client|server) password is invalid!"),
        "TLS: the script did not hand on the password of its {0} certificate, which is in {1}",
    ),
    (
        re.compile(r"(?:Verify Cert Time|check crl time) failed"),
        "TLS: the certificates were good on the controller: compare the node's clock with the controller's",
    ),
    (
        re.compile(r"The key:(\w+)'s value is not exist"),
        "TLS: no file for {0}: MS_TLS_CONFIG of another job, or of one that has ended",
    ),
)

DAY_S = 86_400
# A node's clock may be behind the controller's by this much and still accept a fresh certificate.
BACKDATE_S = 3600


@dataclass(frozen=True)
class Certificate:
    """A certificate. `name` says which one it is, and where it lies.

    `subject_key` and `authority_key` are hexadecimal key identifiers, or ""; `kind` of key is RSA, EC, or "" for
    another one; `beside` counts the other certificates in its p12 file.
    """

    name: str
    not_before: float
    not_after: float
    serial: int = 0
    kind: str = "RSA"
    bits: int = RSA_BITS
    is_authority: bool = False
    subject_key: str = ""
    authority_key: str = ""
    signed: bool = True
    beside: int = 0


@dataclass(frozen=True)
class RevocationList:
    """A certificate revocation list."""

    name: str
    next_update: float
    serials: frozenset[int] = frozenset()
    signed: bool = True


def environment(job_dir: str) -> dict[str, str]:
    """Return the variable with the path of the TLS configuration. The passwords are secrets and in no plan."""
    return {CONFIG_VARIABLE: f"{job_dir}/{CONFIG}"}


def cipher_findings(names: Sequence[str]) -> list[Finding]:
    """Find cipher suites that MindSpore does not know, and an empty list."""
    unknown = [name for name in names if name not in CIPHERS]
    if names and not unknown:
        return []
    expected = f"one or more of {', '.join(CIPHERS)}, which MindSpore 2 knows"
    action = "correct job_tls_ciphers, or leave it out"
    return [Finding("job_tls_ciphers", ", ".join(unknown) or "no cipher", expected, action)]


def configuration(job_dir: str, warning_days: int, revocation_list: bool, ciphers: Sequence[str]) -> str:
    """Write the JSON file that MindSpore reads."""
    return json.dumps(
        {
            "server_cert_path": f"{job_dir}/{BUNDLES['server']}",
            "client_cert_path": f"{job_dir}/{BUNDLES['client']}",
            "ca_cert_path": f"{job_dir}/{AUTHORITY}",
            "crl_path": f"{job_dir}/{REVOCATION_LIST}" if revocation_list else "",
            "cipher_list": ":".join(ciphers),
            "cert_expire_warning_time_in_day": warning_days,
        }
    )


def meaning(lines: Sequence[str]) -> str:
    """Explain MindSpore's message about TLS in the end of a log; "" without a known one."""
    for line in lines:
        for pattern, text in _MESSAGES:
            found = pattern.search(line)
            if found:
                word = str(found.group(found.lastindex or 0))
                return text.format(word, PASSWORD_VARIABLES.get(word, ""))
    return ""


def day(moment: float) -> str:
    """Write a moment in UTC, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


def expires_soon(certificate: Certificate, now: float, warning_days: int, renewal: str) -> str:
    """Say that a certificate that is still good expires soon; "" where it does not."""
    left = certificate.not_after - now
    if not 0 < left < warning_days * DAY_S:
        return ""
    from_now = counted(int(left // DAY_S), "day")
    return f"{certificate.name} expires on {day(certificate.not_after)}, {from_now} from now. {renewal}."


def time_findings(certificate: Certificate, now: float, renewal: str) -> list[Finding]:
    """Find a certificate that is not valid now."""
    name, since, until = certificate.name, certificate.not_before, certificate.not_after
    expected = "certificates that are valid now"
    return _findings(
        (until <= now, f"{name} expired on {day(until)}", expected, renewal),
        (until > now and since > now, f"{name} is valid from {day(since)} on, and it is {day(now)}", expected, renewal),
    )


def authority_findings(authority: Certificate, now: float, renewal: str) -> list[Finding]:
    """Find what makes an authority useless for a job."""
    name = authority.name
    signer = "give the certificate of the authority that signed the others"
    identified = "an authority with subjectKeyIdentifier, by which MindSpore finds it"
    again = "create it again with subjectKeyIdentifier=hash"
    return [
        *time_findings(authority, now, renewal),
        *_findings(
            (not authority.is_authority, f"{name} is no authority", "basicConstraints CA:TRUE", signer),
            (not authority.subject_key, f"{name} has no subjectKeyIdentifier", identified, again),
        ),
        *_key_findings(authority),
    ]


def bundle_findings(
    certificate: Certificate, authority: Certificate, revoked: RevocationList | None, now: float, renewal: str
) -> list[Finding]:
    """Find what makes a server or client certificate useless for a job."""
    name, signed, key = certificate.name, certificate.signed, certificate.authority_key
    other_key = key != authority.subject_key or not key
    is_revoked = revoked is not None and certificate.serial in revoked.serials
    return [
        *time_findings(certificate, now, renewal),
        *_findings(
            (
                certificate.beside > 0,
                f"{name} comes with {certificate.beside} other certificates in its file",
                "a p12 file with one key and its certificate only, as MindSpore refuses a chain",
                "make it without the authority: openssl pkcs12 -export without -certfile and -chain",
            ),
            (
                not signed,
                f"{name} is not signed by {authority.name}",
                "server and client certificates of one authority",
                "give the authority that signed it",
            ),
            (
                signed and other_key,
                f"{name} has {'another' if key else 'no'} authorityKeyIdentifier",
                "the key identifier of its authority, which MindSpore compares",
                "create it again with authorityKeyIdentifier=keyid:always",
            ),
            (
                is_revoked,
                f"{name} is revoked by {revoked.name if revoked else ''}",
                "certificates that are not revoked",
                "give another one, and find out why it was revoked",
            ),
        ),
        *_key_findings(certificate),
    ]


def revocation_findings(revoked: RevocationList, authority: Certificate, now: float) -> list[Finding]:
    """Find what makes a revocation list useless for a job; with an old one OpenSSL accepts no certificate."""
    other = f"{revoked.name} is not signed by {authority.name}"
    old = f"{revoked.name} was due to be replaced on {day(revoked.next_update)}"
    is_old = revoked.signed and revoked.next_update <= now
    return _findings(
        (not revoked.signed, other, "the authority's own revocation list", "give the list of that authority"),
        (is_old, old, "a revocation list that still holds", "fetch the authority's present one"),
    )


def _key_findings(certificate: Certificate) -> list[Finding]:
    least = _BITS.get(certificate.kind)
    found = "no RSA or EC key" if least is None else f"{certificate.bits} bits"
    expected = f"RSA keys of {RSA_BITS} bits or more, or EC keys of 256, as MindSpore's security level requires"
    is_weak = least is None or certificate.bits < least
    return _findings((is_weak, f"{certificate.name} has {found}", expected, "create it again with such a key"))


def _findings(*problems: tuple[bool, str, str, str]) -> list[Finding]:
    """Return a finding for each problem that applies: (whether it does, found, expected, action)."""
    return [Finding("tls", *texts) for applies, *texts in problems if applies]
