# SPDX-License-Identifier: Apache-2.0
"""Check files of a user before Ansible reads them: they are UTF-8, and encrypted ones have a password."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecretsContext
from ansible.plugins.loader import inventory_loader

from ...trainyard.base.findings import Finding
from ...trainyard.inputs import inventories, job_file
from . import yaml_texts

_ENCRYPTED = b"$ANSIBLE_VAULT"
# Upper bound for files, and for single values, that are decrypted: each takes 0.05 s, and one password opens most.
_MAX_DECRYPTED = 3
# Upper bound for findings about one inventory.
_MAX_FAULTS = 10
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


def locked_value(value: Any, name: str, earlier: int) -> Finding | None:
    """Find that no given password decrypts a value of the inventory; `name` says where it stands.

    `earlier` is the number of values before it: one password mostly opens all.
    """
    return _locked(str(value._ciphertext).encode(), name, "inventory", decrypt=earlier < _MAX_DECRYPTED)


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
        found += [wrong] if wrong else []
        if not wrong and {*_FOLDERS}.isdisjoint(path.parts):
            with contextlib.suppress(OSError):
                faults = yaml_texts.inventory_faults(path.read_text(errors="replace"))
                found += [inventories.half_read(shown(str(path)), *fault) for fault in faults[:_MAX_FAULTS]]
    return found


def unparsed(path: Path, sources: Iterable[str], shown: Callable[[str], str]) -> list[Finding]:
    """Return the findings about an inventory that no plugin of Ansible could read whole, and others of the same call.

    Only texts in INI and YAML are tried for that, as Ansible has not come to these yet.
    """
    name = shown(str(path))
    first = _unparsed(path, name) or inventories.unreadable(name, "no plugin of Ansible could read it")
    ignored = tuple(constants.INVENTORY_IGNORE_EXTS)
    others = [each for each in dict.fromkeys(_inventory_files(sources)) if {*_FOLDERS}.isdisjoint(each.parts)]
    found = (
        _unparsed(each, shown(str(each)), True) for each in others if each != path and not each.name.endswith(ignored)
    )
    return [first, *filter(None, found)]


def _unparsed(path: Path, name: str, is_untried: bool = False) -> Finding | None:
    """Return why a file cannot be read as INI or YAML; None where it can, or where other plugins may read it."""
    if not _is_text(path) or path.suffix == ".toml":
        return None
    text = path.read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    first = next((line for line in lines if line and line[0] not in "#;"), "")
    is_yaml = path.suffix in _SUFFIXES[1:] or (path.suffix == "" and first[:1] != "[" and first.endswith(("---", ":")))
    plugin, line = inventory_loader.get("yaml" if is_yaml else "ini"), 0
    if not is_yaml:
        parse = plugin._parse

        def noted(lines: list[str]) -> None:
            # The plugin forgets the line when it raises its error.
            nonlocal line
            try:
                parse(lines)
            finally:
                line = plugin._origin.line_num

        plugin._parse = noted
    try:
        plugin.parse(InventoryData(), DataLoader(), str(path), cache=False)
    except Exception as error:
        # Ansible, too, takes any exception of a plugin for its answer.
        reason = " ".join(str(error).split()).rpartition("Failed to parse inventory: ")[2]
        if line:
            return inventories.not_ini(name, text, line, reason)
        wrong = job_file.read(name, text, lambda: DataLoader().load(text, file_name=str(path)), "inventory")[1]
        if reason.startswith("Plugin configuration"):
            if is_untried:
                return None
            reason = "the plugin that it names is missing, or failed"
        return wrong or inventories.unreadable(name, reason)
    return None
