# SPDX-License-Identifier: Apache-2.0
"""Make, examine and verify a Python virtual environment.

The record `.trainyard.json` in the environment is written last and lists what was installed; `.trainyard-building` is
there before anything else and goes last. So an interrupted run does not leave an environment that seems complete, and
a folder of somebody else is never touched. Sizes are bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...trainyard.base.shapes import NOTHING, All, Each, Exact, Whole, misfit
from ...trainyard.software.lock import ByHashes, mismatch
from ...trainyard.software.pip_calls import WHEELS, pip_calls
from ...trainyard.software.requirements import Pin, normal
from ..machine import commands, programs
from ..machine.install_lock import HOST
from ..machine.json_files import MAX_STATE, read_json
from ..machine.tree import Outcome
from .environment_progress import Progress

RECORD = ".trainyard.json"
BUILDING = ".trainyard-building"
# The action for a Python that root must not run.
OWN = "name a Python that only root can change, or give it to root (chown -R root, chmod -R go-w)"
_RECORD = {
    **dict.fromkeys(("?packages", "?wheels", "?made"), Each(str)),
    **{"?wanted": [str], "?verified": (Each(object), NOTHING)},
}
# They would lead pip or the interpreter out of the environment.
_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT", "__PYVENV_LAUNCHER__")

# The header that every extension of Python includes, and where the system's programs are.
HEADER = "Python.h"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

_LIST = """
import importlib.metadata, json, sys
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
print(json.dumps({"python": list(sys.version_info[:3]), "packages": found}))
"""
_SIZE = """
import importlib.metadata, json, re, sys
def is_named(one):
    return re.sub("[-_.]+", "-", one.metadata["Name"] or "").lower() in sys.argv[1:]
files = (file for one in importlib.metadata.distributions() if is_named(one) for file in one.files or ())
print(json.dumps(sum(file.size or 0 for file in files)))
"""
# Prints what class Interpreter holds.
DESCRIBE = f"""
import importlib.util, json, os, sys, sysconfig
print(json.dumps({{
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "version": list(sys.version_info[:3]),
    "can_make_environments": all(map(importlib.util.find_spec, ("venv", "ensurepip"))),
    "has_headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "{HEADER}")),
}}))
"""


def _version(value: Any) -> None:
    """three whole numbers"""
    if len(value) != 3:
        raise ValueError("no version")


_THREE = All(([Whole(10**4)], _version))
_DESCRIBED = Exact({"executable": str, "version": _THREE, "can_make_environments": bool, "has_headers": bool})
_LISTED = Exact({"python": _THREE, "packages": Each(str)})


class EnvironmentFailure(Exception):
    """The environment cannot be made; the text has what was found and what to do."""

    def __init__(self, found: str, action: str = "") -> None:
        """Take what was found, and what to do."""
        super().__init__(f"{found}; {action}" if action else found)
        self.found, self.action = found, action


@dataclass(frozen=True)
class Interpreter:
    """A Python from which environments are made, outside any environment itself."""

    executable: str
    version: tuple[int, int, int]
    can_make_environments: bool
    # Whether programs that extend it can be compiled: Debian packs its headers apart.
    has_headers: bool = False

    @property
    def minor(self) -> tuple[int, int]:
        """Return the version as far as it decides about packages."""
        return self.version[:2]

    @property
    def text(self) -> str:
        """Return the version as people write it."""
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True)
class Sources:
    """Where pip takes packages from; what is empty comes from the machine's own pip configuration."""

    index_url: str = ""
    extra_index_urls: Sequence[str] = ()
    find_links: Sequence[str] = ()
    no_index: bool = False
    constraints: Sequence[str] = ()
    pip_args: Sequence[str] = ()
    # Addresses of wheels by normal name, with their sha256; those packages are taken from there and nowhere else.
    wheels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Sources:
        """Read the arguments of the module python_environment."""
        return cls(**{name: params[name] for name in cls.__dataclass_fields__})

    def environment(self) -> dict[str, str]:
        """Return pip's variables: addresses may hold a password, which argv would show to every user of the node."""
        values = {
            "PIP_INDEX_URL": self.index_url,
            "PIP_EXTRA_INDEX_URL": " ".join(self.extra_index_urls),
            "PIP_FIND_LINKS": " ".join(self.find_links),
            "PIP_NO_INDEX": "1" if self.no_index else "",
        }
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class State:
    """What lies at the path: `kind` is absent, foreign, unfinished, broken or complete."""

    kind: str
    python: tuple[int, int, int] | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lost(self) -> list[str]:
        """Return in words what was installed by trainyard and is no longer as it was."""
        recorded: Mapping[str, str] = self.record.get("packages", {})
        return [
            f"{name} {version} was installed and is now {self.packages.get(name, 'gone')}"
            for name, version in recorded.items()
            if self.packages.get(name) != version
        ]


def describe(interpreter: str) -> Interpreter:
    """Return what the given interpreter is; of one inside an environment, the one it was made from."""
    found = shutil.which(interpreter)
    if found is None:
        raise EnvironmentFailure(f"there is no Python interpreter {interpreter!r}", "install it or name another one")
    answer = _read([found, "-I", "-c", DESCRIBE])
    text, action = f"{found} does not run as a Python interpreter", "repair it or name another one"
    _expect_success(answer, text, action)
    facts = _printed(answer, _DESCRIBED)
    if facts is None:
        raise EnvironmentFailure(f"{text}: it printed {_last_lines(answer.output)[:200]!r}", action)
    return Interpreter(**{**facts, "version": tuple(facts["version"])})


def inspect(path: Path) -> tuple[tuple[int, int, int], dict[str, str]] | None:
    """Return the Python and the packages of the environment at `path`, None when its interpreter does not run."""
    # A package without its metadata is a warning of Python 3.12 and newer.
    found = _printed(_read([str(path / "bin" / "python"), "-I", "-Wignore", "-c", _LIST]), _LISTED)
    if found is None:
        return None
    major, minor, micro = found["python"]
    return (major, minor, micro), {normal(name): version for name, version in found["packages"].items()}


def size_of(path: Path, names: Sequence[str]) -> int:
    """Return the bytes of installed packages (normal names), by their lists of files; 0 if these cannot be read."""
    return _printed(_read([str(path / "bin" / "python"), "-I", "-Wignore", "-c", _SIZE, *names]), int) or 0


def examine(path: Path) -> State:
    """Return the state of what lies at `path`."""
    try:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return State("absent")
    except FileNotFoundError:
        return State("absent")
    if (path / BUILDING).exists():
        return State("unfinished")
    record = read_json(path / RECORD, MAX_STATE)
    if not isinstance(record, dict) or misfit(record, _RECORD):
        # Another host may have begun to make it, or have removed it, since the lines above.
        return State("foreign" if path.exists() and not (path / BUILDING).exists() else "unfinished")
    found = inspect(path)
    return State("broken", record=record) if found is None else State("complete", *found, record)


def missing_from_system(names: Sequence[str], interpreter: Interpreter | None) -> list[str]:
    """Return those of `names` that the system has not: libraries (libgomp.so.1), programs (c++), and Python.h."""
    cache = _run(["/sbin/ldconfig", "--print-cache"]).output if any(".so" in name for name in names) else ""
    libraries = {line.split(" ")[0].strip() for line in cache.splitlines()}

    def there(name: str) -> bool:
        if name == HEADER:
            return interpreter is not None and interpreter.has_headers
        return name in libraries if ".so" in name else shutil.which(name, path=_SYSTEM_PATH) is not None

    return [name for name in names if not there(name)]


def make(path: Path, interpreter: Interpreter) -> None:
    """Make an empty environment at `path`, in place of what an earlier run left there."""
    path.mkdir(parents=True, exist_ok=True)
    (path / BUILDING).touch()  # before anything is removed: half a removal must be known as ours, too
    for old in path.iterdir():
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        elif old.name != BUILDING:
            old.unlink()
    answer = _run([interpreter.executable, "-m", "venv", str(path)])
    _expect_success(answer, f"making the environment {path} failed")


def install(
    path: Path,
    pins: Sequence[Pin],
    hashed: ByHashes,
    sources: Sources,
    renew: Sequence[str] = (),
    compiled: bool = True,
) -> None:
    """Bring the pins into the environment, and verify that what is installed fits together.

    First comes what is in `hashed`, then the rest, from wheels alone unless `sources.pip_args` allow more. The packages
    of `renew` are replaced also where the version is the requested one: two builds may have the same version. Modules
    are `compiled` for users who cannot write there, as they would compile them again at every start.
    """
    (path / BUILDING).touch()
    python = str(path / "bin" / "python")
    # Large wheels are unpacked on the disk whose space was checked: /tmp is often small, or memory.
    folder = tempfile.TemporaryDirectory(prefix=".pip-", dir=path)
    with folder as scratch, Progress(path, Path(scratch)) as progress:
        argv = [python, "-m", "pip", "install", "--no-input", "--no-compile", "--progress-bar=off"]
        argv += [*WHEELS, *sources.pip_args]
        constraints = Path(scratch, "constraints.txt")
        constraints.write_text("".join(f"{line}\n" for line in [*sources.constraints, *hashed.constraints]))
        requirements = Path(scratch, "requirements.txt")
        requirements.touch(mode=0o600)  # an address may hold a password
        for lines, options in pip_calls(pins, hashed, sources.wheels, str(constraints), renew):
            requirements.write_text("".join(f"{line}\n" for line in lines))
            call = [*argv, *options, f"--requirement={requirements}"]
            answer = _run(call, {**sources.environment(), "TMPDIR": scratch}, progress.read)
            text = f"pip could not install {', '.join(pin.requirement for pin in pins)} into {path}"
            _expect_success(answer, text, reason=mismatch(answer.output, sources.wheels))
        action = "pin versions that do, in the list of packages or in the constraints"
        _expect_success(_run([python, "-m", "pip", "check"]), f"the packages in {path} do not fit together", action)
        if compiled:
            progress.compiles()
            # On all cores, where pip uses one. The exit status says nothing: packages ship templates and tests that are
            # no valid Python.
            _run([python, "-m", "compileall", "-q", "-j", "0", str(path / "lib")])


def wheel_sums(wheels: Mapping[str, str]) -> dict[str, str]:
    """Return the sha256 of each wheel: what is recorded of it, as its address may hold a password."""
    return {name: address.rpartition("#sha256=")[2] for name, address in sorted(wheels.items())}


def write_record(
    path: Path,
    state: State,
    packages: Sequence[str],
    wheels: Mapping[str, str],
    verified: Mapping[str, Any] | None,
    made: Mapping[str, str],
) -> None:
    """Declare the environment complete; `made` is where it was made (environment_system.py)."""
    record = {
        "made": made,
        "python": ".".join(str(part) for part in state.python or ()),
        "wanted": list(packages),
        "wheels": wheel_sums(wheels),
        "packages": dict(state.packages),
        "verified": verified,
    }
    # Several hosts may have verified it at once.
    partial = path / f"{RECORD}.{HOST}.{os.getpid()}"
    partial.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    partial.replace(path / RECORD)
    (path / BUILDING).unlink(missing_ok=True)


@dataclass(frozen=True)
class Verification:
    """A Python program that must succeed in the environment, run by an ordinary user where root makes it."""

    script: str
    user: str
    timeout: int
    environment: Mapping[str, str] = field(default_factory=dict)

    def identity(self, state: State) -> str:
        """Return what a recorded success stands for: this program on these packages, in this environment."""
        subject: list[Any] = [self.script, list(state.python or ()), sorted(state.packages.items())]
        if self.environment:
            subject.append(sorted(self.environment.items()))
        return hashlib.sha256(json.dumps(subject).encode()).hexdigest()

    def account(self) -> pwd.struct_passwd | None:
        """Return the account to step down to, None for staying who we are."""
        if not self.user or os.geteuid() != 0:
            return None
        try:
            return pwd.getpwnam(self.user)
        except KeyError:
            raise EnvironmentFailure(
                f"the check is to run as user {self.user!r}, which this host does not have",
                "create the user first (role node_baseline) or name another one",
            ) from None

    def run(self, path: Path, state: State) -> dict[str, Any]:
        """Run the program and return its last line, a JSON object, with the identity of the check."""
        account = self.account()
        python = str(path / "bin" / "python")
        # Without a user it is root's check, unless others can exchange its program.
        step_down: dict[str, Any] = programs.settings(python) if account is None else {}
        if account is not None and account.pw_uid != 0:
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            step_down = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
        home = account.pw_dir if account else step_down.pop("env", os.environ).get("HOME", "/")
        step_down["cwd"] = "/"
        own = {"PATH": f"{path}/bin:/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [python, "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**own, **self.environment},
            start_new_session=True,
            **step_down,
        )
        try:
            output, _ = process.communicate(self.script, timeout=self.timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that the program has started
            process.communicate()
            raise EnvironmentFailure(f"the check of {path} did not end within {self.timeout} s") from error
        result = None
        with contextlib.suppress(IndexError, ValueError):
            result = json.loads(output.strip().splitlines()[-1])
        if process.returncode != 0 or not isinstance(result, dict):
            text = f"the check of {path} failed with status {process.returncode}"
            raise EnvironmentFailure(f"{text}: {_last_lines(output)}")
        return {"identity": self.identity(state), "result": result}


def _read(argv: Sequence[str]) -> Outcome:
    """Run a program that only reads, with the rights of the user who can exchange it."""
    others = programs.settings(argv[0])
    return commands.run(argv, **others) if others else _run(argv)


def _printed(answer: Outcome, shape: Any) -> Any:
    """Return what a program printed as JSON; None where it failed, or printed something else."""
    try:
        found = None if answer.status else json.loads(answer.output)
    except (ValueError, RecursionError):
        return None
    return None if misfit(found, shape) else found


def _run(
    argv: Sequence[str], extra: Mapping[str, str] | None = None, each: Callable[[str], None] | None = None
) -> Outcome:
    """Run a program with the rights of this process, `each` gets its lines.

    Raises EnvironmentFailure where others could exchange it.
    """
    if place := programs.weak(argv[0]):
        raise EnvironmentFailure(f"root runs no program that others can exchange: {place}", OWN)
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    environment.update({"PIP_DISABLE_PIP_VERSION_CHECK": "1", "LC_ALL": "C.UTF-8", **(extra or {})})
    if each:
        return commands.follow(argv, each, env=environment, cwd="/")
    return commands.run(argv, env=environment, cwd="/")


def _expect_success(answer: Outcome, text: str, action: str = "", reason: str = "") -> None:
    """Raise EnvironmentFailure with the text and the reason, else the end of the output, for a command that failed."""
    if answer.status:
        raise EnvironmentFailure(f"{text}: {reason or _last_lines(answer.output)}", action)


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    errors = [line for line in lines if line and not line.startswith(("WARNING:", "[notice]"))]
    return " | ".join(errors[-8:]) or "no output"
