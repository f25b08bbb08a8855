# SPDX-License-Identifier: Apache-2.0
"""Check files of a user before Ansible reads them: they are UTF-8, and encrypted ones have a password."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultLib, VaultSecretsContext

from ..trainyard.findings.findings import Finding
from ..trainyard.inputs import inventories


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads the structure of an inventory; values with tags such as !vault count as None."""


_Loader.add_multi_constructor("!", lambda *_: None)
_ENCRYPTED = b"$ANSIBLE_VAULT"
# Upper bound for files that are decrypted: each takes 0.05 s, and one password mostly opens all.
_MAX_DECRYPTED = 3
_FOLDERS = ("group_vars", "host_vars")
_SUFFIXES = ("", ".yml", ".yaml", ".json")


def file_finding(path: Path, name: str, check: str, *, decrypt: bool = True) -> Finding | None:
    """Find that a file is not UTF-8, or that no given password decrypts it; `name` is the path as its user knows it."""
    try:
        content = path.read_bytes()
    except OSError:
        # Ansible reports why a file cannot be read.
        return None
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        action = "save the file in UTF-8; if it is Latin-1: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        return Finding(check, f"byte 0x{content[error.start]:02x} in {name}, line {line}", "text in UTF-8", action)
    return _locked(content, name, check, decrypt) if content.startswith(_ENCRYPTED) else None


def _locked(content: bytes, name: str, check: str, decrypt: bool) -> Finding | None:
    context = VaultSecretsContext.current(optional=True)
    secrets = context.secrets if context else []
    if not secrets:
        found, action = f"{name} is encrypted, and there is no password", "add"
    elif decrypt and not _opens(content, secrets):
        found, action = f"no password that was given decrypts {name}", "correct"
    else:
        return None
    action += " --ask-vault-pass, or --vault-password-file FILE"
    return Finding(check, found, "its password of Ansible Vault", action)


def _opens(content: bytes, secrets: list[tuple[str, object]]) -> bool:
    try:
        VaultLib(secrets).decrypt(content)
    except AnsibleError:
        return False
    return True


def _inventory_files(sources: Iterable[str]) -> Iterator[Path]:
    """Yield the files of inventories, and those of variables beside them, but no programs."""
    for source in sources:
        path = Path(source)
        if "," in source or not path.exists():
            continue
        folder = path if path.is_dir() else path.parent
        files = sorted(folder.iterdir()) if path.is_dir() else [path]
        yield from (each for each in files if _is_text(each))
        for name in _FOLDERS:
            yield from (each for each in sorted((folder / name).rglob("*")) if _is_text(each))


def _is_text(path: Path) -> bool:
    known = path.suffix in _SUFFIXES or path.suffix == ".ini"
    return known and path.name[0] != "." and path.is_file() and not os.access(path, os.X_OK)


def inventory_findings(sources: Iterable[str], shown: Callable[[str], str]) -> list[Finding]:
    """Return the findings for files of inventories; `shown` returns a path as its user knows it."""
    found, left = [], _MAX_DECRYPTED
    for path in dict.fromkeys(_inventory_files(sources)):
        # Ansible reports why a file cannot be read.
        with contextlib.suppress(OSError), path.open("rb") as file:
            left -= file.read(len(_ENCRYPTED)) == _ENCRYPTED
        wrong = file_finding(path, shown(str(path)), "inventory", decrypt=left >= 0)
        found += [wrong] if wrong else _lists(path, shown(str(path)))
    return found


def _lists(path: Path, name: str) -> list[Finding]:
    if path.suffix not in (".yml", ".yaml") or set(_FOLDERS).intersection(path.parts):
        return []
    # Ansible reports a file that is no YAML.
    with contextlib.suppress(OSError, yaml.YAMLError, UnicodeDecodeError):
        return inventories.lists(name, yaml.load(path.read_text(), Loader=_Loader))  # noqa: S506
    return []
