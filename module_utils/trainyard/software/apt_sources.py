# SPDX-License-Identifier: Apache-2.0
"""The sources of apt: their text, the text of their pins, and why an update failed. Texts raise words.WordError.

It reads the output of apt-get of Debian 11 to 13 and Ubuntu.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..base.findings import Finding
from .apt import reasons
from .words import one_label, source_word


def network_source(uri: str, key_path: str, purpose: str) -> str:
    """Write the source of a flat repository, as the vendor's is: no suite, no component, a key for it alone."""
    uri = source_word(uri, "the address of the repository")
    return f"# {purpose}\nTypes: deb\nURIs: {uri.rstrip('/')}/\nSuites: /\nSigned-By: {key_path}\n"


def unsigned_source(uri: str) -> str:
    """Write the source of a flat repository only to list what it offers: nothing of it is trusted or installed."""
    uri = source_word(uri, "the address of the repository")
    return f"Types: deb\nURIs: {uri.rstrip('/')}/\nSuites: /\nTrusted: yes\n"


def network_preferences(label: str, purpose: str) -> str:
    """Write the pin of a repository: taken where it is asked for by version, and never by itself.

    At the vendor's own 600, its packages would replace the distribution's of the same name at the next upgrade.
    """
    return f"# {purpose}\nPackage: *\nPin: release l={one_label(label)}\nPin-Priority: 100\n"


def component_sources(
    targets: Sequence[Mapping[str, str]],
    codename: str,
    components: Sequence[str],
    origins: Sequence[str],
    own_file: str,
    purpose: str,
) -> str:
    """Write sources for components that the distribution's own mirrors, as configured, are not yet asked for.

    `targets`: stanzas of `apt-get indextargets`. Empty when nothing is missing.
    """
    components = [source_word(each, "a component") for each in components]
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    having: dict[tuple[str, str, str], set[str]] = {}
    for target in targets:
        release = target.get("release", "")
        # Before the first update apt knows no origin; then the suite's name has to do.
        if target.get("origin", "") not in ("", *origins) or not target.get("component"):
            continue
        if target.get("sourcesentry", "").rpartition(":")[0] == own_file or release not in suites:
            continue
        # Not `trusted`: of a repository whose signature was verified apt says that, too.
        key = (target.get("repo-uri", ""), release, target.get("signed-by", ""))
        having.setdefault(key, set()).add(target["component"])
    stanzas = []
    for (uri, release, signed_by), present in having.items():
        missing = [component for component in components if component not in present]
        if "main" not in present or not missing:
            continue
        lines = ["Types: deb", f"URIs: {uri}", f"Suites: {release}", f"Components: {' '.join(missing)}"]
        # apt refuses two sources of one repository that do not agree in it.
        if signed_by:
            lines.append("Signed-By: " + signed_by.replace("\n", "\n "))
        stanzas.append("\n".join(lines) + "\n")
    return f"# {purpose}\n" + "\n".join(stanzas) if stanzas else ""


_NO_KEY = r"NO_PUBKEY|Missing key|Signing key on \w+ is not in|No keyring installed"
_NO_REPOSITORY = r"404 +(?:File n|N)ot (?:found|Found)|does not have a Release file"
# Why `apt-get update` failed: what apt prints, what that means, what to do.
_FAULTS: tuple[tuple[str, str, str], ...] = (
    (r"SHA1 is not considered secure", "this system refuses the repository's key, which is signed with SHA-1 only",
     "take the repository and the key of this release of the system (for Debian 13 NVIDIA has another key), or a"
     " mirror that signs anew"),
    (_NO_KEY,
     "it is signed by another key than the one given",
     "compare nvidia_repository_key_fingerprint with the key that the repository is signed with"),
    (r"BADSIG|signatures were invalid|Clearsigned file isn't valid|Bad Signature|Message has been manipulated",
     "its signature does not fit its content",
     "take another mirror, as somebody or a broken mirror has changed it; do not switch the check off"),
    (r"Hash Sum mismatch|File has unexpected size|Hashes of (expected|received) file",
     "its package list does not fit the signed sums",
     "wait until the mirror is complete, or take another mirror; a proxy's old copy and tampering look like this, too"),
    (r"doesn't have the component '([^']+)'", "it has no component {0}",
     "take a mirror that carries it, or the provider network_repo"),
    (r"Conflicting values set for option (\S+) regarding source (\S+)", "another source names {1} with another {0}",
     "remove one of the two in /etc/apt/sources.list.d"),
    (r"changed its '(\w+)' value", "its {0} has changed",
     "check whether it is the right repository, then run there: apt-get update --allow-releaseinfo-change"),
    (r"is expired|Release file .* is not valid yet|not live until",
     "its Release file is expired, or the clock of the node is wrong",
     "set the clock, or bring the mirror up to date"),
    (r"Could not (?:connect|resolve)|Connection (?:refused|timed out|failed)|Temporary failure resolving"
     r"|Network is unreachable|No route to host|Unable to connect|Cannot initiate the connection",
     "it does not answer",
     "start it, or see how the node reaches it (name, proxy, firewall)"),
    (_NO_REPOSITORY, "there is no repository at this address",
     "correct nvidia_repository_url, nvidia_repository_distro and nvidia_repository_arch"),
    (r"[Cc]ertificate verification failed|SSL", "its TLS certificate is not accepted",
     "install the certificate of the authority there"),
    (r"is not signed", "it is not signed",
     "sign the mirror and name its key"),
)  # fmt: skip
# What differs where no variable of ours names the repository: the machine's own sources do.
_OWN_FAULTS: tuple[tuple[str, str, str], ...] = (
    (_NO_KEY, "it is signed by a key that this machine does not know",
     "install the distribution's keys there (debian-archive-keyring, ubuntu-keyring), or name the mirror's key with "
     "Signed-By in /etc/apt/sources.list.d"),
    (_NO_REPOSITORY, "there is no repository at this address",
     "correct the address or the release in /etc/apt/sources.list and /etc/apt/sources.list.d"),
)  # fmt: skip


def explain_update(output: str, where: str) -> Finding:
    """Return why `apt-get update`, which printed `output`, failed for a repository: its address, or words."""
    meaning, action = "", "see apt's message"
    for pattern, text, remedy in _FAULTS if "://" in where else (*_OWN_FAULTS, *_FAULTS):
        match = re.search(pattern, output)
        if match:
            meaning, action = f"{text.format(*match.groups())}. ", remedy
            break
    found = f"{where}: {meaning}apt says: {reasons(output)}"
    return Finding("package repository", found, "a signed repository that answers", action)
