# SPDX-License-Identifier: Apache-2.0
"""A virtual environment as it is requested, what there is of it, and the way from one to the other.

What prevents it is found before anything is touched. Sizes are bytes, those of parameters 10^6 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import lock, requirements, words
from ..machine import install_lock, programs
from . import environment_system, python_environment
from .build_prefix import free_bytes
from .python_environment import EnvironmentFailure, State
from .system_family import venv_advice

_REMAKE = {
    "absent": "there is no environment yet",
    "unfinished": "an interrupted run left the environment unfinished",
    "broken": "the environment's interpreter does not run",
}


class Work:
    """The requested environment, what there is, and the way from one to the other."""

    def __init__(self, params: dict[str, Any]) -> None:
        """Read both; nothing is changed here."""
        self.params = params
        self.path = Path(params["path"])
        self.interpreter = python_environment.describe(params["interpreter"])
        self.pins, wrong = requirements.parse_all(params["packages"], self.interpreter.minor)
        params["wheels"] = {requirements.normal(name): address for name, address in params["wheels"].items()}
        self.sources = python_environment.Sources.from_params(params)
        self.state = python_environment.examine(self.path)
        self.verification = python_environment.Verification(
            params["verify_script"], params["verify_user"], params["verify_timeout"], params["verify_environment"]
        )
        # New packages with their versions, the requested ones first, and their bytes.
        self.installed: dict[str, Any] = {}
        self.remake = self._remake()
        here = environment_system.made_here(self.interpreter)
        self.made = here if self.remake else self.state.record.get("made") or here
        self.renew = self._renew()
        self.install = self.remake or [
            *requirements.missing(self.pins, self.state.packages),
            *self.state.lost,
            *(f"{name} is from another wheel than the requested one" for name in self.renew),
        ]
        self.verify = self._verify()
        # What may not reach pip.
        self.invalid = [*words.environment_findings(params, self.pins, wrong)]
        self.findings = [*self.invalid, *self._findings()]

    @property
    def reasons(self) -> list[str]:
        """Return why something is changed."""
        return [*(self.install or []), *(["it is not verified yet"] if self.verify and not self.install else [])]

    def _remake(self) -> list[str]:
        """Return why the environment must be made anew, empty where it need not."""
        python = self.state.python
        if self.state.kind in _REMAKE:
            return [_REMAKE[self.state.kind]]
        if python is not None and python[:2] != self.interpreter.minor:
            return [f"it is of Python {python[0]}.{python[1]}, requested is {self.interpreter.text}"]
        return []

    def _renew(self) -> list[str]:
        """Return the packages that were installed from another build than the requested one.

        One is `torch==2.13.0+cpu` where `torch==2.13.0` is requested now: it would do, but GPUs would have no use.
        """
        if self.state.kind != "complete":
            return []
        installed = self.state.record.get("wheels", {})
        requested = python_environment.wheel_sums(self.params["wheels"])
        before, _ = requirements.parse_all(self.state.record.get("wanted", ()), self.interpreter.minor)
        cpu = {pin.name for pin in before if pin.version.endswith("+cpu")}
        return [
            pin.name
            for pin in self.pins
            if installed.get(pin.name) != requested.get(pin.name) or (pin.name in cpu and "+" not in pin.version)
        ]

    def _verify(self) -> bool:
        if not self.verification.script:
            return False
        verified = (self.state.record.get("verified") or {}).get("identity")
        return bool(self.install) or verified != self.verification.identity(self.state)

    def _findings(self) -> Iterator[Finding]:
        params, interpreter = self.params, self.interpreter
        if self.state.kind == "foreign":
            found, action = f"{self.path} was not made by trainyard", "move it away, or choose another name or root"
            yield Finding("environment", found, "a folder of its own", action)
        if other := environment_system.finding(self.path, self.state, interpreter):
            yield other
        if not requirements.python_in_range(interpreter.minor, params["python_min"], params["python_max"]):
            least, most = params["python_min"] or "any", params["python_max"] or "any"
            found = f"{params['interpreter']} is Python {interpreter.text}, the packages support {least} to {most}"
            action = "name another interpreter or another version of the packages"
            yield Finding("Python", found, f"Python {least} to {most}", action)
        for line in lock.unread(params["lock"]):
            expected = "name==version with --hash=sha256:... on lines of their own"
            action = "write the file with uv pip compile --generate-hashes"
            yield Finding("hashes", f"the file with hashes has {line!r}", expected, action)
        if params["no_index"] and not params["find_links"]:
            found = "no_index without find_links leaves pip no source"
            yield Finding("source", found, "a source of packages", "name a folder of wheels")
        yield from self._exchangeable()
        free = free_bytes(self.path)
        # What another host is installing there takes that space for this one, too.
        if self.install and free < params["min_free_mb"] * 10**6 and not install_lock.holder(self.path):
            found = f"{free // 10**6} MB are free for {self.path}, {params['min_free_mb']} MB are needed"
            yield Finding("space", found, f"{params['min_free_mb']} MB", "make room, or choose another root")
        if self.verification.script:
            try:
                self.verification.account()
            except EnvironmentFailure as error:
                yield Finding("user of the check", error.found, "a user that this host has", error.action)

    def _exchangeable(self) -> Iterator[Finding]:
        """Yield the finding on what root would run, though others can exchange it: the interpreter, or pip in there."""
        run = [self.interpreter.executable] if self.remake else [str(self.path / "bin" / "python")]
        place = next(filter(None, map(programs.weak, run)), None) or programs.weak_folder(self.path)
        if place and self.install:
            expected = "a Python and a folder that only root can change, as root runs pip there"
            yield Finding("Python", f"others can exchange {place}", expected, python_environment.OWN)

    def do(self, again: bool = False) -> None:
        """Bring the environment to what is requested, and verify it, `again` also where it was verified before."""
        os.umask(0o022)  # readable for all, whatever root's own umask is
        verified = self.state.record.get("verified")
        if self.install:
            self._install()
            # A check that fails is repeated by the next run, the installation is not.
            verified = None
            self._record(None)
        if self.verify or ((again or self.params["verify"]) and self.verification.script):
            verified = self.verification.run(self.path, self.state)
        if self.reasons:
            self._record(verified)
        self.state = python_environment.examine(self.path)

    def _install(self) -> None:
        if self.remake:
            self._make()
        before, params = python_environment.inspect(self.path), self.params
        hashed = lock.by_hashes(
            params["lock"], self.pins, params["wheels"], params["constraints"], self.interpreter.minor
        )
        account = self.verification.account()
        # An owner who alone uses the environment compiles what is imported.
        compiled = os.geteuid() == 0 and (account is None or account.pw_uid != 0)
        renew = [] if self.remake else self.renew
        try:
            python_environment.install(self.path, self.pins, hashed, self.sources, renew, compiled)
        except EnvironmentFailure:
            after = python_environment.inspect(self.path)
            if not self.remake and after and after[1] == (before[1] if before else {}):
                # Nothing was changed.
                (self.path / python_environment.BUILDING).unlink(missing_ok=True)
            raise
        found = python_environment.inspect(self.path)
        if found is None:
            raise EnvironmentFailure(f"the interpreter of {self.path} does not run after pip")
        self.state = State("complete", *found)
        self.installed = self._new(before[1] if before else {}, found[1])

    def _new(self, before: dict[str, str], after: dict[str, str]) -> dict[str, Any]:
        """Return the packages that were not there before, or were replaced."""
        new = {name for name, version in after.items() if before.get(name) != version or name in self.renew}
        requested = [pin.name for pin in self.pins if pin.name in new]
        names = list(dict.fromkeys([*requested, *sorted(new)]))
        packages = [f"{name} {after[name]}" for name in names]
        return {"packages": packages, "bytes": python_environment.size_of(self.path, names)}

    def _record(self, verified: dict[str, Any] | None) -> None:
        params = self.params
        python_environment.write_record(
            self.path, self.state, params["packages"], params["wheels"], verified, self.made
        )

    def _make(self) -> None:
        interpreter = self.interpreter
        if not interpreter.can_make_environments:
            major, minor = interpreter.minor
            raise EnvironmentFailure(
                f"{interpreter.executable} (Python {interpreter.text}) cannot make virtual environments: its module "
                f"ensurepip is missing; {venv_advice(f'{major}.{minor}')}"
            )
        python_environment.make(self.path, interpreter)

    def result(self) -> dict[str, Any]:
        """Return what the module returns."""
        verified = self.state.record.get("verified")
        return {
            "changed": bool(self.reasons),
            "python": str(self.path / "bin" / "python"),
            "version": self.interpreter.text,
            "can_make_environments": self.interpreter.can_make_environments,
            "packages": dict(self.state.packages),
            "reasons": self.reasons,
            "lacking": python_environment.missing_from_system(self.params["libraries"], self.interpreter),
            **({"verified": verified["result"]} if verified else {}),
            **({"installed": self.installed} if self.installed else {}),
        }

    def lines(self, packages: dict[str, str]) -> str:
        """Return the requested packages as they are, for a diff."""
        return "".join(f"{pin.name}=={packages[pin.name]}\n" for pin in self.pins if pin.name in packages)
