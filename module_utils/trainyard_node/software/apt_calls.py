# SPDX-License-Identifier: Apache-2.0
"""Read and change apt's state on this machine: offers, versions, holds, pins, and one source with its key."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import apt, apt_sources, openpgp
from ..machine import commands
from ..machine.private import PrivateError, expect_safe, opened
from ..machine.tree import Outcome

# Seconds to wait for another apt or dpkg, for an answer of a repository, and for a whole transaction.
LOCK_TIMEOUT = 300
FETCH_TIMEOUT = 30
INSTALL_TIMEOUT = 3600
LISTS = Path("/var/lib/apt/lists")


def options(settings: Mapping[str, Any]) -> list[str]:
    """Return apt's options for settings."""
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


_TIMEOUTS = {f"Acquire::{scheme}::Timeout": FETCH_TIMEOUT for scheme in ("http", "https")}
_FETCH = options({"APT::Update::Error-Mode": "any", "Acquire::Retries": 1, **_TIMEOUTS})
LOCK = options({"DPkg::Lock::Timeout": LOCK_TIMEOUT})
_CHANGE = ["--yes", "--allow-downgrades", "--allow-change-held-packages", *LOCK]


class AptError(Exception):
    """What apt or dpkg could not do, with its own message."""


def _run(argv: Sequence[str], timeout: int = 300) -> Outcome:
    environment = {
        **os.environ,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:" + os.environ.get("PATH", ""),
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        # Services of other packages are not restarted behind a running job's back.
        "NEEDRESTART_MODE": "l",
    }
    outcome = commands.run(argv, timeout, env=environment)
    if outcome.status == commands.NOT_STARTED:
        raise AptError(f"{argv[0]} is not installed; this needs a system with apt, Debian or Ubuntu")
    return outcome


def _read(argv: Sequence[str]) -> str:
    status, output = _run(argv)
    if status:
        raise AptError(f"{' '.join(argv[:2])} ended with status {status}: {apt.reasons(output)}")
    return output


def write(path: str, content: bytes) -> None:
    """Write a file that everybody may read, in one step; nobody else may have prepared its place."""
    target = Path(path)
    if not target.parent.is_dir():
        target.parent.mkdir(mode=0o755, parents=True)
        target.parent.chmod(0o755)
    with _own(path):
        expect_safe(target.parent)
    handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        os.fchmod(handle, 0o644)
    Path(beside).replace(target)


def read_bytes(path: str) -> bytes | None:
    """Return a file's content, None where there is none."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def _own(path: str) -> Iterator[None]:
    """Raise AptError where others could have written what root relies on."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (PrivateError, OSError) as error:
        raise AptError(f"{path} is not for root alone: {error}") from None


# Packages


def read_installed() -> apt.Installed:
    """Return what dpkg has."""
    fields = "${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\n"
    return apt.read_installed(_read(["dpkg-query", "--show", f"--showformat={fields}"]))


def read_offers(
    names: Sequence[str], apart: Sequence[str] = ()
) -> tuple[dict[str, list[apt.Offer]], dict[str, dict[str, str]]]:
    """Return what the package lists offer of these packages, and the lists; `apart` are further options."""
    if wrong := apt.name_faults(names):
        raise AptError("; ".join(wrong))
    lists = apt.read_lists(_read(["apt-cache", "policy", *apart]))
    # It fails when none of the packages is known.
    madison = _run(["apt-cache", "madison", *apart, "--", *names])[1] if names else ""
    return apt.read_offers(madison, lists), lists


def has_source(source: apt.Source, lists: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether there is a package list of a source."""
    return any(
        source.offers(apt.Offer("", name.split(" ")[0], fields.get("o", ""), fields.get("l", "")))
        for name, fields in lists.items()
    )


def refresh(source_file: str, source: apt.Source, only: bool) -> Finding | None:
    """Fetch package lists anew: with `only` those of one file, else all, of which others' faults do not count."""
    one = {"Dir::Etc::sourcelist": source_file, "Dir::Etc::sourceparts": "/dev/null", "APT::Get::List-Cleanup": "false"}
    status, output = _run(["apt-get", "update", *LOCK, *_FETCH, *options(one if only else {})], INSTALL_TIMEOUT)
    concerned = only or (source.uri and source.uri.rstrip("/") in apt.reasons(output))
    return apt_sources.explain_update(output, str(source)) if status and concerned else None


def simulate(plan: apt.Plan, recommends: bool) -> tuple[int, str]:
    """Return what apt would do."""
    return _run(["apt-get", "--simulate", *_install(plan, recommends)])


def _install(plan: apt.Plan, recommends: bool) -> list[str]:
    recommended = options({"APT::Install-Recommends": "true" if recommends else "false"})
    return ["install", *_CHANGE, *recommended, "--", *plan.arguments]


@dataclass(frozen=True)
class Keeping:
    """The files that keep packages at their versions: the record of root, and apt's pins."""

    record: str
    pins: str
    purpose: str

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what was installed and held for this purpose, as nobody but root can have written it."""
        record = Path(self.record)
        try:
            with _own(self.record):
                expect_safe(next(parent for parent in record.parents if parent.exists()))
                with opened(record) as file:
                    return apt.read_record(file.read())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            text = f"{self.record} cannot be read: {error}; remove it, and the holds are taken over anew"
            raise AptError(text) from None

    def files(self, plan: apt.Plan, before: apt.Installed) -> dict[str, bytes | None]:
        """Return the files as they are to be, None for no file."""
        if not plan.versions:
            return {self.record: None, self.pins: None}
        added = {name: name not in before.versions for name in plan.versions}
        added.update({name: entry["added"] for name, entry in self.read().items()})
        entries = {name: {"version": version, "added": added[name]} for name, version in sorted(plan.versions.items())}
        return {
            self.record: (json.dumps(entries, indent=2) + "\n").encode(),
            self.pins: apt.preferences(plan.versions, self.purpose).encode(),
        }


def differing(files: Mapping[str, bytes | None]) -> list[str]:
    """Return the paths of files that are not as they are to be."""
    return [path for path, content in files.items() if read_bytes(path) != content]


def place(files: Mapping[str, bytes | None]) -> None:
    """Write files, and remove those that are to be none."""
    for path, content in files.items():
        if content is None:
            Path(path).unlink(missing_ok=True)
        else:
            write(path, content)


def apply(plan: apt.Plan, recommends: bool, files: Mapping[str, bytes | None]) -> str:
    """Install exactly what was planned, then hold it; return apt's output.

    Raises AptError; then pins and holds are as before.
    """
    output = ""
    if plan.arguments:
        status, output = _run(["apt-get", *_install(plan, recommends)], INSTALL_TIMEOUT)
        if status:
            command = f"apt-get install {' '.join(plan.arguments)}"
            raise AptError(f"{command} ended with status {status}: {apt.reasons(output)}")
    # A package that another version replaces stays on hold; one that is removed loses it.
    held = read_installed().held
    for verb, names in (("hold", [name for name in plan.versions if name not in held]), ("unhold", plan.release)):
        if names:
            _read(["apt-mark", verb, "--", *names])
    place(files)
    return output


# A source


def other_sources(uri: str, label: str, own_file: str) -> list[str]:
    """Return where else the same repository, or another with its label, is named."""
    found = []
    for target in targets():
        entry = target.get("sourcesentry", "").rpartition(":")[0]
        same = apt.same_uri(target.get("repo-uri", ""), uri) or (label and target.get("label") == label)
        if same and entry != own_file:
            found.append(f"{target.get('repo-uri', '')} in {entry}")
    return sorted(set(found))


def targets() -> list[dict[str, str]]:
    """Return the package lists that apt is configured for, whether fetched or not."""
    return apt.read_stanzas(_read(["apt-get", "indextargets", "Created-By: Packages"]))


@contextmanager
def _trial_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trainyard-apt-") as name:
        # apt's methods and gpgv run as the user _apt.
        Path(name).chmod(0o755)
        yield Path(name)


def _apart(folder: Path, source: str) -> list[str]:
    """Return options with which apt knows one source alone, or without one its own, and keeps its lists in a folder."""
    (folder / "lists").mkdir(mode=0o755)
    places: dict[str, Any] = {"Dir::State::lists": folder / "lists"}
    if source:
        write(str(folder / "trial.sources"), source.encode())
        places |= {"Dir::Etc::sourcelist": folder / "trial.sources", "Dir::Etc::sourceparts": "/dev/null"}
    return options({**places, "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": ""})


def offered_by(source: str, names: Sequence[str]) -> tuple[dict[str, list[apt.Offer]], str]:
    """Return what a source would offer of packages, with its lists apart from the system's; else apt's message."""
    with _trial_folder() as folder:
        apart = _apart(folder, source)
        output = _run(["apt-get", "update", *_FETCH, *apart])[1]
        offers, lists = read_offers(names, apart)
    # Besides what is installed.
    return offers, "" if any(" " in name for name in lists) else output


def would_install(names: Sequence[str], preferences: str, source: str) -> tuple[str, Outcome]:
    """Return why the newest lists cannot be had, else "", and what apt would install by them and by preferences.

    They are those of a source, or without one of the machine's own. It starts from the lists that the machine has, so
    that only what is newer is fetched.
    """
    with _trial_folder() as folder:
        apart = _apart(folder, source) + options({"Acquire::Languages": "none"})
        # Lists of local repositories are links, which may lead nowhere; others may change meanwhile.
        with suppress(OSError):
            others = shutil.ignore_patterns("lock", "partial", "auxfiles")
            shutil.copytree(LISTS, folder / "lists", symlinks=True, ignore=others, dirs_exist_ok=True)
        updated = _run(["apt-get", "update", *_FETCH, *apart])
        if updated.status:
            return updated.output, updated
        write(str(folder / "preferences"), preferences.encode())
        pinned = options({"Dir::Etc::preferences": folder / "preferences", "APT::Install-Recommends": "false"})
        return "", _run(["apt-get", "--simulate", "install", *apart, *pinned, "--", *names])


def try_source(source: str, key: bytes | None, key_path: str, where: str) -> tuple[list[Finding], dict[str, str]]:
    """Fetch the lists of a source that is not configured yet, apart from the system's own.

    Returns findings, and the fields of the Release file of the last repository.
    """
    with _trial_folder() as folder:
        if key is not None:
            trial_key = folder / Path(key_path).name
            write(str(trial_key), key)
            source = source.replace(key_path, str(trial_key))
        status, output = _run(["apt-get", "update", *_FETCH, *_apart(folder, source)])
        # A component that a mirror lacks is a warning only.
        if status or "doesn't have the component" in output:
            return [apt_sources.explain_update(output, where)], {}
        releases = sorted((folder / "lists").glob("*Release"))
        text = releases[-1].read_text(encoding="utf-8", errors="replace") if releases else ""
    # A signed file begins and ends with what is no field of it.
    fields = {name: value for stanza in apt.read_stanzas(text) for name, value in stanza.items()}
    return [], fields


def check_key(data: bytes, pinned: Sequence[str], where: str) -> list[Finding]:
    """Find what is wrong with a key file: every key in it must be one of those that were pinned."""
    action = "compare the fingerprint with the vendor's documentation; do not take a key that does not fit"
    check, expected = "key of the repository", " or ".join(pinned)
    try:
        others = [fingerprint for fingerprint in openpgp.fingerprints(data) if fingerprint not in pinned]
    except ValueError as error:
        return [Finding(check, f"{where}: {error}", f"an OpenPGP key {expected}", action)]
    found = f"{where} holds {', '.join(others)}"
    return [Finding(check, found, f"only {expected}", action)] if others else []
