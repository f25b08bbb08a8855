# SPDX-License-Identifier: Apache-2.0
"""Plan the removal of trainyard on this node, and carry it out."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.removal import removal_plan, removal_record
from ...trainyard.removal.history import Package
from ...trainyard.removal.places import FOLDER, Settings, apart, is_of_login, our_lines, without_ours
from ...trainyard.removal.removal_plan import Plan, Request, Step
from ..job.plan.in_use import read_uses
from ..machine import commands
from ..slurm.slurm_commands import SlurmError
from . import state
from .keeping import Kept

# Copies of files that somebody changed after trainyard wrote them.
SAVED = Path("/var/backups/trainyard")
# Upper bounds in seconds: for apt, and for other commands.
_APT_S, _COMMAND_S = 3600.0, 120.0
# Seconds in which systemd ends what it keeps for a user.
_END_S = 30.0
# Their content changes what these commands do.
_RELOADS = (
    ("/etc/ssh/sshd_config.d/", ["systemctl", "try-reload-or-restart", "ssh.service", "sshd.service"]),
    ("/etc/systemd/", ["systemctl", "daemon-reexec"]),
    ("/etc/ld.so.conf.d/", ["ldconfig"]),
    ("/etc/modprobe.d/", ["update-initramfs", "-u", "-k", "all"]),
)


# Without a record these may be the site's own; they are named if they are there.
_DOUBTFUL = ("/etc/cdi/nvidia.yaml", "/etc/slurm", "/etc/munge", "/var/lib/slurm", "/var/lib/munge")


class UndoError(Exception):
    """A step that failed; the text has the command's own message."""


def read_plan(settings: Settings, *, data: bool) -> tuple[Plan, removal_record.Record | None]:
    """Return the plan of this node, and its record, whose window counts as closed. Raises KeptError."""
    kept = Kept(settings)
    record = kept.read()
    if record is not None and record["window"] is not None:
        now = {**kept.now(record["late"]), "written": {}}
        record = removal_record.closed(record, now, state.apt_history(), user=settings.user, interrupted=True)
    inside = {place.path: apart(place.path, settings) for place in kept.places if place.use == FOLDER}
    system = settings.manage_system or os.geteuid() == 0
    request = Request(settings.user, settings.cluster, data, inside, system)
    return removal_plan.build(record, _state(kept, record), kept.places, request), record


def _state(kept: Kept, record: removal_record.Record | None) -> dict[str, Any]:
    settings = kept.settings
    try:
        uses, _ = read_uses(Path(settings.state, "jobs"), ())
    except SlurmError:
        # Its controller does not answer, so it runs no job here.
        uses = []
    found = state.find(kept.places)
    added = state.added(Path(settings.records, "packages"))
    installed: dict[str, Package] = state.dependencies() if added or (record and record["packages"]) else {}
    cleaned: dict[str, str | None] = {}
    for path, text in state.texts(kept.places).items():
        before = (kept.read_copy(path) or b"").decode("utf-8", "surrogateescape")
        written = kept.read_copy(path, "written")
        if record is None or is_of_login(path, settings):
            ours = our_lines(path, text, settings)
            after = "".join(f"{line}\n" for line in text.splitlines() if line not in ours)
        else:
            left = None if written is None else written.decode("utf-8", "surrogateescape")
            after = without_ours(path, text, before, left, settings)
        cleaned[path] = None if after == text else after
    recorded = record["places"] if record else {}
    return {
        **state.packages(),
        **state.accounts(settings.user),
        "installed": installed,
        "added": added,
        "found": found,
        "matches": {each.path: _recorded(each.path, recorded) for each in kept.places},
        "cleaned": cleaned,
        "units": state.units(),
        "uses": uses,
        "doubtful": _DOUBTFUL,
        "processes": [f"{name} ({pid})" for pid, name in state.processes(settings.user).items()],
        "home": state.home(settings.user),
        "homes": [path for path in (record["homes"] if record else ()) if Path(path).is_dir()],
        "lingers": Path("/var/lib/systemd/linger", settings.user).exists(),
    }


def _recorded(pattern: str, recorded: Any) -> list[str]:
    """Return the paths in a record that match a place."""
    if "*" not in pattern:
        return [pattern] if pattern in recorded else []
    head, _, tail = pattern.partition("*")
    return [path for path in recorded if path.startswith(head) and path.endswith(tail) and path != pattern]


class Undo:
    """The removal on this node. Steps that were done are not repeated by a second run."""

    def __init__(self, settings: Settings, *, data: bool) -> None:
        """Plan it, with the window of an interrupted run closed."""
        self.kept = Kept(settings)
        self.settings, self.data = settings, data
        if self.kept.path.exists():
            self.kept.close(interrupted=True)
        self.plan, self.record = read_plan(settings, data=data)
        self.problems: list[Finding] = []
        self.home: str = state.home(settings.user)["path"]

    def run(self) -> list[Step]:
        """Carry out all steps; go on after one that fails. Return those that changed something."""
        done = []
        for step in [step for step in self.plan.steps if step.path != removal_plan.AGENT]:
            try:
                if self._do(step):
                    done.append(step)
            except (OSError, UndoError) as error:
                action = "repair that, and run remove.yml again"
                found = f"{removal_plan.texts([step])[0]}: {str(error)[-600:]}"
                self.problems.append(Finding("removal", found, "a step that succeeds", action))
        self._reload(done)
        self._end()
        if any(step.path == removal_plan.AGENT for step in self.plan.steps):
            # The agent runs from here, and imports nothing any more.
            shutil.rmtree(removal_plan.AGENT, ignore_errors=True)
        return done

    def _do(self, step: Step) -> bool:
        does: dict[str, Callable[[Step], bool]] = {
            "purge": lambda step: _apt(["purge", *step.names]),
            "uninstall": lambda step: _apt(["remove", *step.names]),
            "unhold": lambda step: _command(["apt-mark", "unhold", *step.names]),
            "automatic": lambda step: _command(["apt-mark", "auto", *step.names]),
            "delete": lambda step: _delete(step.path),
            "save": self._save,
            "restore": self._restore,
            "lines": self._lines,
            "prune": self._prune,
            "empty": _empty,
            "unlinger": _unlinger,
            "user": _user,
            "group": _group,
            "home": lambda step: _delete(step.path),
            "leave": lambda step: _command(["gpasswd", "--delete", step.path, *step.names]),
            "unit": _unit,
        }
        return does[step.how](step)

    def _save(self, step: Step) -> bool:
        target = SAVED / step.path.strip("/").replace("/", "_")
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = state.content(step.path)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
        return _delete(step.path)

    def _restore(self, step: Step) -> bool:
        before = self.record["places"][step.path] if self.record else {}
        if before["kind"] == "link":
            _delete(step.path)
            Path(step.path).symlink_to(before["content"])
        else:
            content = self.kept.read_copy(step.path)
            if content is None:
                raise UndoError(f"the copy of {step.path} in {self.kept.folder} is missing")
            _delete(step.path)
            with os.fdopen(
                os.open(step.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb"
            ) as file:
                file.write(content)
            Path(step.path).chmod(before["mode"])
        os.lchown(step.path, before["uid"], before["gid"])
        return True

    def _prune(self, step: Step) -> bool:
        return [_delete(f"{step.path}/{name}") for name in step.names].count(True) > 0

    def _lines(self, step: Step) -> bool:
        """Write in place, as container engines mount such files."""
        cleaned = _state(self.kept, self.record)["cleaned"].get(step.path)
        if cleaned is None:
            return False
        with os.fdopen(os.open(step.path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
            file.write(cleaned.encode("utf-8", "surrogateescape"))
        return True

    def _reload(self, done: list[Step]) -> None:
        """Have services read what changed."""
        touched = [step.path for step in done if step.path]
        for prefix, command in _RELOADS:
            if any(path.startswith(prefix) for path in touched) and shutil.which(command[0], path=_PATH):
                commands.run(command, _APT_S, env=_environment())

    def _end(self) -> None:
        """Remove the record, if nothing is left that it is needed for."""
        if self.record is None or self.problems:
            return
        left = read_plan(self.settings, data=self.data)[0]
        if left.waits:
            now = {**state.packages(), **state.accounts(self.settings.user)}
            gone = self.settings.user in self.record["users"] and self.settings.user not in now["users"]
            home = self.home if gone and Path(self.home).is_dir() else ""
            self.kept.write(removal_record.forget(self.record, now, home))
        elif all(step.how == "empty" or step.path == removal_plan.AGENT for step in left.steps):
            records = Path(self.settings.records)
            shutil.rmtree(records if _only_ours(records) else self.kept.folder)
            # They may have been the last in the folder of jobs.
            for step in left.steps:
                if step.how == "empty":
                    _empty(step)


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _only_ours(records: Path) -> bool:
    """Tell whether the folder of records has nothing but trainyard's."""
    return {path.name for path in records.iterdir()} <= {"removal", "packages", "bundle", "nvidia-driver"}


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": _PATH,
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_MODE": "l",
    }


def _command(argv: list[str], limit_s: float = _COMMAND_S) -> bool:
    outcome = commands.run(argv, limit_s, env=_environment())
    if outcome.status:
        raise UndoError(f"{argv[0]} ended with {outcome.status}: {outcome.output.strip()[-400:]}")
    return True


def _apt(arguments: list[str]) -> bool:
    """Remove packages, if apt would remove these and no others."""
    options = ["--yes", "--allow-change-held-packages", "-o", "DPkg::Lock::Timeout=300"]
    tried = commands.run(["apt-get", "--simulate", *options, *arguments], _APT_S, env=_environment())
    if tried.status:
        raise UndoError(f"apt-get --simulate ended with {tried.status}: {tried.output.strip()[-400:]}")
    named = {
        line.split()[1].partition(":")[0] for line in tried.output.splitlines() if line.startswith(("Remv ", "Purg "))
    }
    more = sorted(named - set(arguments[1:]))
    new = [line.split()[1] for line in tried.output.splitlines() if line.startswith("Inst ")]
    if more or new:
        raise UndoError(
            f"apt would also remove {', '.join(more) or 'nothing'} and install {', '.join(new) or 'nothing'}"
        )
    return _command(["apt-get", *options, *arguments], _APT_S)


def _delete(path: str) -> bool:
    """Remove a file, a link, or a folder with all that is in it; return whether there was one.

    Hosts that share a folder remove it at the same time, and one of them removes the folder itself.
    """
    target, gone = Path(path), []

    def note(_function: object, failed: str, error: Any) -> None:
        # Before Python 3.13 rmtree stops at what another host has removed. `onerror` gets what sys.exc_info returns.
        error = error[1] if isinstance(error, tuple) else error
        # NFS calls what is in a removed folder stale.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise error
        gone.append(str(failed))

    try:
        if target.is_dir() and not target.is_symlink():
            noted: dict[str, Any] = {"onexc" if sys.version_info >= (3, 12) else "onerror": note}
            shutil.rmtree(target, **noted)
        else:
            target.unlink()
    except FileNotFoundError:
        return False
    return str(target) not in gone


def _empty(step: Step) -> bool:
    """Remove a folder if it is empty; return whether it was."""
    try:
        Path(step.path).rmdir()
    except OSError:
        return False
    return True


def _group(step: Step) -> bool:
    """Remove a group, which may have gone with its user."""
    if step.path not in state.accounts("")["groups"]:
        return False
    return _command(["groupdel", step.path])


def _unlinger(step: Step) -> bool:
    """End the services of a user that systemd keeps without a login."""
    _command(["loginctl", "disable-linger", step.path])
    _command(["loginctl", "terminate-user", step.path])
    _end_kept(step.path)
    return True


def _end_kept(user: str) -> None:
    """Wait for the end of what systemd keeps for a user, and end what Podman keeps, which is in no unit of systemd."""
    until = time.monotonic() + _END_S
    left = state.processes(user, kept=True)
    while left and time.monotonic() < until:
        for pid, name in left.items():
            if name in state.OF_PODMAN:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        left = state.processes(user, kept=True)


def _user(step: Step) -> bool:
    """Remove a user, of whom no process may be left, unless it went with its package."""
    if step.path not in state.accounts("")["users"]:
        return False
    _end_kept(step.path)
    return _command(["userdel", step.path])


def _unit(step: Step) -> bool:
    """Have a service enabled and running as it was before."""
    enabled, active = step.names
    if enabled in ("enabled", "disabled"):
        _command(["systemctl", "enable" if enabled == "enabled" else "disable", step.path])
    if active in ("active", "inactive"):
        _command(["systemctl", "start" if active == "active" else "stop", step.path])
    return True
