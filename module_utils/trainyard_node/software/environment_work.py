# SPDX-License-Identifier: Apache-2.0
"""A virtual environment as it is wanted, what there is of it, and the way from one to the other.

What keeps it from being made is found before anything is touched. Sizes are bytes, those of parameters 10^6 bytes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...trainyard.findings.findings import Finding
from ...trainyard.software import lock, requirements
from . import python_environment
from .builds import free_bytes

_PINS = "exact pins, each package once, and wheels of just these"


class Work:
    """The wanted environment, what there is, and the way from one to the other."""

    def __init__(self, params: dict[str, Any]) -> None:
        """Read both; nothing is changed here."""
        self.params = params
        self.path = Path(params["path"])
        self.interpreter = python_environment.describe(params["interpreter"])
        self.pins, wrong = requirements.parse_all(params["packages"], self.interpreter.minor)
        params["wheels"] = {requirements.normal(name): address for name, address in params["wheels"].items()}
        wrong += requirements.wheel_findings(params["wheels"], self.pins)
        self.findings = [Finding("packages", each, _PINS, "correct the list of packages") for each in wrong]
        self.state = python_environment.examine(self.path)
        self.verification = python_environment.Verification(
            params["verify_script"], params["verify_user"], params["verify_timeout"], params["verify_environment"]
        )
        self.remake = self._remake()
        self.renew = self._renew()
        self.install = self.remake or [
            *requirements.missing(self.pins, self.state.packages),
            *self.state.lost,
            *(f"{name} is from another wheel than the wanted one" for name in self.renew),
        ]
        self.verify = self._verify()
        self._judge()

    @property
    def reasons(self) -> list[str]:
        """Return why something is changed."""
        return [*(self.install or []), *(["it is not proved yet"] if self.verify and not self.install else [])]

    def _remake(self) -> list[str]:
        was = self.state.python
        if self.state.kind == "absent":
            return ["there is no environment yet"]
        if self.state.kind == "unfinished":
            return ["an interrupted run left the environment unfinished"]
        if self.state.kind == "broken":
            return ["the environment's interpreter does not run"]
        if was is not None and was[:2] != self.interpreter.minor:
            return [f"it is of Python {was[0]}.{was[1]}, wanted {self.interpreter.text}"]
        return []

    def _renew(self) -> list[str]:
        """Return the packages that were installed from another build than the one that is wanted."""
        if self.state.kind != "whole":
            return []
        had = self.state.record.get("wheels", {})
        wanted = python_environment.wheel_sums(self.params["wheels"])
        return [pin.name for pin in self.pins if had.get(pin.name) != wanted.get(pin.name)]

    def _verify(self) -> bool:
        if not self.verification.script:
            return False
        held = (self.state.record.get("verified") or {}).get("identity")
        return bool(self.install) or held != self.verification.identity(self.state)

    def _find(self, check: str, found: str, expected: str, action: str) -> None:
        self.findings.append(Finding(check, found, expected, action))

    def _judge(self) -> None:
        params = self.params
        if self.state.kind == "foreign":
            found = f"{self.path} is there and was not made by trainyard"
            self._find("environment", found, "a folder of its own", "move it away, or choose another name or root")
        if not requirements.python_in_range(self.interpreter.minor, params["python_min"], params["python_max"]):
            least, most = params["python_min"] or "any", params["python_max"] or "any"
            found = f"{params['interpreter']} is Python {self.interpreter.text}, the packages support {least} to {most}"
            expected = f"Python {least} to {most}"
            self._find("Python", found, expected, "name another interpreter or another version of the packages")
        for line in lock.unread(params["lock"]):
            found = f"the file with hashes has {line!r}"
            action = "write the file with uv pip compile --generate-hashes"
            self._find("hashes", found, "name==version with --hash=sha256:... on lines of their own", action)
        if params["no_index"] and not params["find_links"]:
            action = "name a folder of wheels"
            self._find("packages", "no_index without find_links leaves pip no source", "a source of packages", action)
        free = free_bytes(self.path)
        if self.install and free < params["min_free_mb"] * 10**6:
            found = f"{free // 10**6} MB are free for {self.path}, {params['min_free_mb']} MB are needed"
            self._find("space", found, f"{params['min_free_mb']} MB", "make room, or choose another root")
        if self.verification.script:
            try:
                self.verification.account()
            except python_environment.EnvironmentFailure as error:
                self._find("user of the check", error.found, "a user that this host has", error.action)

    def do(self) -> None:
        """Bring the environment to what is wanted."""
        os.umask(0o022)  # readable for all, whatever root's own umask is
        verified = self.state.record.get("verified")
        if self.install:
            if self.remake:
                self._make()
            looked = python_environment.look(self.path)
            before = looked[1] if looked else {}
            sources = python_environment.Sources(
                **{name: self.params[name] for name in python_environment.Sources.__dataclass_fields__}
            )
            try:
                python_environment.install(
                    self.path, self.pins, self._hashed(), sources, [] if self.remake else self.renew
                )
            except python_environment.EnvironmentFailure:
                found = python_environment.look(self.path)
                if not self.remake and found is not None and found[1] == before:
                    python_environment.withdraw(self.path)
                raise
            found = python_environment.look(self.path)
            if found is None:
                raise python_environment.EnvironmentFailure(f"the interpreter of {self.path} does not run after pip")
            self.state = python_environment.State("whole", *found)
            verified = None
            # Whole but not yet proved: a proof that fails is repeated by the next run, the installation is not.
            self._record(None)
        if self.verify or (self.params["verify"] and self.verification.script):
            verified = self.verification.run(self.path, self.state)
        if self.reasons:
            self._record(verified)
        self.state = python_environment.examine(self.path)

    def _hashed(self) -> lock.ByHashes:
        """Return what is installed by hashes."""
        params = self.params
        return lock.by_hashes(
            params["lock"], self.pins, params["wheels"], params["constraints"], self.interpreter.minor
        )

    def _record(self, verified: dict[str, Any] | None) -> None:
        python_environment.write_record(self.path, self.state, self.params["packages"], self.params["wheels"], verified)

    def _make(self) -> None:
        if not self.interpreter.can_make_environments:
            major, minor = self.interpreter.minor
            raise python_environment.EnvironmentFailure(
                f"{self.interpreter.executable} (Python {self.interpreter.text}) cannot make virtual environments: its "
                f"module ensurepip is missing; install python{major}.{minor}-venv (Debian, Ubuntu), or name an "
                "interpreter that has it"
            )
        python_environment.make(self.path, self.interpreter)

    def result(self) -> dict[str, Any]:
        """Return what the module returns."""
        result: dict[str, Any] = {
            "changed": bool(self.reasons),
            "python": str(self.path / "bin" / "python"),
            "version": self.interpreter.text,
            "can_make_environments": self.interpreter.can_make_environments,
            "packages": dict(self.state.packages),
            "reasons": self.reasons,
            "lacking": python_environment.lacking(self.params["libraries"], self.interpreter),
        }
        verified = self.state.record.get("verified")
        if verified:
            result["verified"] = verified["result"]
        return result

    def lines(self, packages: dict[str, str]) -> str:
        """Return the wanted packages as they are, for a diff."""
        return "".join(f"{pin.name}=={packages[pin.name]}\n" for pin in self.pins if pin.name in packages)
