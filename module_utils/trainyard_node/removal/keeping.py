# SPDX-License-Identifier: Apache-2.0
"""Keep the record of a node before trainyard: `removal/` in the folder of records, where only root writes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.removal import removal_record
from ...trainyard.removal.places import DATA, EMPTY, FOLDER, OWN, Settings, our_lines, ours_by_name, places
from ..machine import open_folders
from ..machine.json_files import write_text
from ..machine.private import PrivateError, expect_safe, opened
from . import state

# A folder of the node with one of these had trainyard before its record.
_SIGNS = ("/etc/security/limits.d/60-{cluster}.conf", "{ssh_folder}", "{state}/jobs")
# What trainyard puts into its folder of software.
_SOFTWARE = ("venvs", "openmpi", "nccl", "cudnn", "cuda", ".")


class KeptError(Exception):
    """The record cannot be used, as `finding` says."""

    def __init__(
        self, found: str, action: str, expected: str = "the record that site.yml keeps, which only root can change"
    ) -> None:
        """Note what was found."""
        super().__init__(found)
        self.finding = Finding("record", found, expected, action)


def _has_at_most(folder: Path, name: str) -> bool:
    """Tell whether a folder does not exist, or has nothing but this."""
    try:
        return [each.name for each in folder.iterdir()] == [name]
    except FileNotFoundError:
        return True
    except OSError:
        return False


class Kept:
    """The record of this node, and copies of what was there before."""

    def __init__(self, settings: Settings) -> None:
        """Find the places of this host."""
        self.settings = settings
        self.folder = Path(settings.records) / "removal"
        self.path = self.folder / "record.json"
        self.places = places(settings)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the record, so that two runs do not write it at once."""
        self._make()
        with os.fdopen(
            os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w"
        ) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _expect_own(self) -> None:
        """Expect that no other user has made the folder of jobs or of records, below one in which every user may."""
        for folder in (Path(self.settings.state), self.folder) if os.geteuid() else ():
            place = open_folders.of_another(folder, os.geteuid())
            if place:
                raise KeptError(str(place), open_folders.action(place), open_folders.EXPECTED)

    def _make(self) -> None:
        self._expect_own()
        try:
            for folder in (self.folder.parent, self.folder, self.folder / "before"):
                folder.mkdir(mode=0o755 if folder == self.folder.parent else 0o700, parents=True, exist_ok=True)
        except PermissionError as error:
            action = "set trainyard_state, or trainyard_records, to a folder in which the login may write"
            raise KeptError(f"{error.filename} cannot be made", action, "a folder for the record of site.yml") from None
        try:
            expect_safe(self.folder)
        except PrivateError as error:
            raise KeptError(
                str(error), f"give {self.folder} to root, or set trainyard_records to another folder"
            ) from None

    def read(self) -> removal_record.Record | None:
        """Return the record, None without one. Raises KeptError."""
        self._expect_own()
        try:
            expect_safe(next(parent for parent in self.path.parents if parent.exists()))
            with opened(self.path) as file:
                return removal_record.loads(file.read(removal_record.MAX_BYTES + 1))
        except FileNotFoundError:
            return None
        except (PrivateError, removal_record.RecordError, OSError) as error:
            action = (
                "restore it from a backup, or move it away: then remove.yml removes what has trainyard's name alone"
            )
            raise KeptError(f"{self.path}: {error}", action) from None

    def write(self, record: removal_record.Record) -> None:
        """Write the record, and have it on disk before anything is changed."""
        write_text(self.path, removal_record.dumps(record), 0o600)
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(descriptor)
            os.close(descriptor)

    def copy_of(self, path: str, when: str = "before") -> Path:
        """Return where the content of a path is kept."""
        return self.folder / "before" / f"{hashlib.sha256(path.encode(errors='surrogateescape')).hexdigest()}.{when}"

    def read_copy(self, path: str, when: str = "before") -> bytes | None:
        """Return the kept content of a path, None where there is none."""
        try:
            with opened(self.copy_of(path, when)) as file:
                return file.read()
        except (FileNotFoundError, PrivateError):
            return None

    def open(self) -> bool:
        """Open a window before the first change of a run; return whether the record is new."""
        # The record may lie in the folder of jobs, which is made for it, or just before for a bundle.
        names = ["bundle", *(folder.name for folder in self.folder.parents)]
        made = itertools.takewhile(lambda each: _has_at_most(*each), zip(self.folder.parents, names))
        absent = [str(folder) for folder, _ in made]
        with self.locked():
            record = self.read()
            first = record is None
            if record is None:
                record = removal_record.new(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), self._is_late())
            elif record["window"] is not None:
                record = self._closed(record, interrupted=True)
            now = self.now(record["late"])
            now["places"].update({path: {"kind": "absent"} for path in absent if path in now["places"]})
            new = {path: each for path, each in now["places"].items() if path not in record["places"]}
            for path, each in new.items():
                if each["kind"] == "file":
                    self._copy(path, "before", state.content(path) if not record["late"] else self._before(path))
            self.write(removal_record.opened(record, now, time.strftime("%Y-%m-%d  %H:%M:%S")))
            return first

    def close(self, *, interrupted: bool = False) -> removal_record.Record | None:
        """Close the window after the last change, if one is open; return the record."""
        with self.locked():
            record = self.read()
            if record is not None and record["window"] is not None:
                record = self._closed(record, interrupted=interrupted)
                self.write(record)
            return record

    def _closed(self, record: removal_record.Record, *, interrupted: bool) -> removal_record.Record:
        now = {**self.now(record["late"]), "written": self._written()}
        if not interrupted:
            for path, text in state.texts(self.places).items():
                self._copy(path, "written", text.encode("utf-8", "surrogateescape"))
        history, user = state.apt_history(), self.settings.user
        return removal_record.closed(record, now, history, user=user, interrupted=interrupted)

    def _copy(self, path: str, when: str, content: bytes) -> None:
        target = self.copy_of(path, when)
        temporary = target.with_suffix(".new")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def _is_late(self) -> bool:
        """Tell whether trainyard is on the node already."""
        named = self.settings._asdict()
        return any(os.path.lexists(sign.format(**named)) for sign in _SIGNS)

    def now(self, late: bool) -> dict[str, Any]:
        """Return what counts as there before trainyard."""
        found = {path: each for group in state.find(self.places).values() for path, each in group.items()}
        uses = {place.path: place.use for place in self.places}
        for path, each in found.items():
            own = ours_by_name(path, self.settings.cluster)
            if late and uses.get(path) == FOLDER and each["kind"] == "folder":
                each["content"] = [name for name in each["content"] if not name.startswith(_SOFTWARE)]
                found[path] = each if each["content"] else {"kind": "absent"}
            elif path in _OF_EVERY_RUN or (late and own and uses.get(path, OWN) in (OWN, DATA, EMPTY)):
                found[path] = {"kind": "absent"}
        return {**state.packages(), **state.accounts(self.settings.user), "places": found, "units": state.units()}

    def _before(self, path: str) -> bytes:
        """Return what a file of the system may have been before trainyard, whose record is later."""
        text = state.content(path).decode("utf-8", "surrogateescape")
        ours = our_lines(path, text, self.settings)
        left = "".join(f"{line}\n" for line in text.splitlines() if line not in ours)
        return left.encode("utf-8", "surrogateescape")

    def _written(self) -> dict[str, Any]:
        """Return the places of files and folders as trainyard leaves them."""
        compared = [place for place in self.places if place.use in (OWN, FOLDER)]
        return {
            path: each
            for group in state.find(compared).values()
            for path, each in group.items()
            if each["kind"] != "absent"
        }


# What any run of a playbook makes on a node, also before the window.
_OF_EVERY_RUN = (
    "/etc/apt/apt.conf.d/99trainyard-bundle",
    "/root/.ansible",
    "/root/.ansible/tmp",
    "/root/.cache/trainyard",
    "/var/cache/trainyard",
)
