# SPDX-License-Identifier: Apache-2.0
"""Read this machine's configuration of pip, so that a container takes packages from the same places."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Where packages come from and how they are reached; caches and targets are the container's own affair.
KEYS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy"),
    *("timeout", "default-timeout", "retries", "cert"),
)
_OF_SYSTEM = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
# The system's certificates, of Debian and of RHEL.
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def _files(environment: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, the strongest last (pip's documentation, "Configuration")."""
    home = Path(environment.get("HOME", "/"))
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    return [*_OF_SYSTEM, home / ".pip/pip.conf", own / "pip/pip.conf", *([Path(named)] if named else [])]


def settings(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return what pip would use on this machine; `given` are variables (`PIP_INDEX_URL`) that win over its own."""
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for file in _files(environment):
            parser = configparser.RawConfigParser()
            try:
                parser.read_string(file.read_text())
            except (OSError, ValueError, configparser.Error):
                continue
            if parser.has_section(section):
                found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    for variables in (environment, given):
        for name, value in variables.items():
            if name.startswith("PIP_") and value:
                found[name[len("PIP_") :].lower().replace("_", "-")] = value
    chosen = {key: " ".join(found[key].split()) for key in KEYS if found.get(key)}
    chosen.setdefault("cert", next((path for path in _CERTIFICATES if Path(path).is_file()), ""))
    return {key: value for key, value in chosen.items() if value}


def folders(chosen: Mapping[str, str]) -> list[str]:
    """Return the folders of this machine that settings name.

    The links of an index lead out of it (../../files), so its parent counts.
    """
    found = set()
    for key in ("index-url", "extra-index-url", "find-links"):
        for value in chosen.get(key, "").split():
            url = urlsplit(value)
            if url.scheme in ("", "file"):
                path = Path(unquote(url.path))
                found.add(path if key == "find-links" else Path(str(path).rstrip("/")).parent)
    return sorted(str(path) for path in found if path.is_dir() and path != Path("/"))


def text(chosen: Mapping[str, str]) -> str:
    """Return the settings as a configuration file."""
    return "".join(["[global]\n", *(f"{key} = {value}\n" for key, value in chosen.items())])
