# SPDX-License-Identifier: Apache-2.0
"""The agent on a node: its modules, the command that runs it, and its messages.

The controller sends, through standard input alone: a line with the mark of this visit, the agent's digest, its size and
the time limit; the agent, if the node lacks it; a line with the arguments for all nodes, and one for this node. It
returns one line: the mark and the answer. The controller ignores other output of the login.

A node keeps an agent under its digest, in a folder that only root (or the unprivileged login) may write, until it was
not used for 30 days. An agent that cannot be kept runs from a temporary folder.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import packaging

from ...trainyard.base.findings import counted
from ...trainyard.base.own_imports import files_of
from ...trainyard.cluster.unreachable import OLDEST_PYTHON
from ...trainyard.job.run.wire.answers import MAX_SIZE, MAX_SIZES

# Ansible's own words.
NO_PYTHON = "The module interpreter '{}' was not found."
# Upper bounds: bytes that are kept at each end of what a login and the agent print beside an answer, and digits of a
# number in an answer.
_MAX_BESIDE, _MAX_DIGITS = 32 << 10, 40
_ROOT = Path(__file__).resolve().parents[2]
# The program that runs a job, which an agent packs of its own files (trainyard_node/job/run/packing.py).
_RUNTIME = "trainyard_node/job/run/runtime.py"

# Runs on any Python of a node, so it uses no syntax that an old one would not understand.
_BOOTSTRAP = r"""
import json, os, shutil, stat, sys, time
received = sys.stdin.buffer if hasattr(sys.stdin, "buffer") else sys.stdin
head = json.loads(received.readline().decode())
def send(answer):
    sys.stdout.write("\n" + head["mark"] + " " + json.dumps(answer) + "\n")
    sys.stdout.flush()
def is_private(path):
    s = os.lstat(path)
    return stat.S_ISDIR(s.st_mode) and s.st_uid == os.geteuid() and not s.st_mode & 0o022
def unpack(parent):
    import io, tempfile, zipfile
    new = tempfile.mkdtemp(prefix="new-", dir=parent)
    zipfile.ZipFile(io.BytesIO(agent)).extractall(new)
    return new
if sys.version_info < tuple(head["oldest"]):
    send({"failed": True, "msg": "requires a minimum of Python %d.%d. Current version: %s"
         % (head["oldest"][0], head["oldest"][1], sys.version.split()[0])})
    sys.exit(0)
base = "/var/cache" if os.geteuid() == 0 else os.path.join(os.path.expanduser("~"), ".cache")
base = os.path.join(base, "trainyard")
folder, temporary = os.path.join(base, head["agent"]), ""
agent = received.read(head["size"])
try:
    cached = is_private(base) and is_private(folder)
except OSError:
    cached = False
if not cached and not agent:
    send({"agent_missing": True})
    sys.exit(0)
try:
    if not cached:
        try:
            os.makedirs(base, 0o755)
        except OSError:
            pass
        try:
            if not is_private(base):
                raise OSError(base + " belongs to another user, or others may write there")
            new = unpack(base)
            try:
                os.rename(new, folder)
            except OSError:
                shutil.rmtree(new)
                if not is_private(folder):
                    raise
            # Others keep their own folders in ~/.cache/trainyard: only ours go.
            ours = [name for name in os.listdir(base) if len(name) == 64 or name.startswith("new-")]
            for name in ours:
                if os.stat(os.path.join(base, name)).st_mtime < time.time() - 30 * 86400:
                    shutil.rmtree(os.path.join(base, name), True)
        except OSError:
            folder = temporary = unpack(None)
    os.utime(folder)
    sys.path.insert(0, folder)
    try:
        from agent.trainyard_node.agent import answer
    except ImportError:
        if temporary:
            raise
        shutil.rmtree(folder)
        send({"agent_missing": True})
        sys.exit(0)
    arguments = json.loads(received.readline().decode())
    arguments.update(json.loads(received.readline().decode()))
    send(answer(head["question"], arguments, head["limit_s"]))
except OSError as error:
    send({"failed": True, "msg": "the agent cannot run here: " + str(error)})
finally:
    if temporary:
        shutil.rmtree(temporary, True)
"""


# The entry of the program that a scheduler starts.
_MAIN = """import sys
from agent.trainyard_node.allocated import main
sys.exit(main(sys.argv[1:]))
"""
_PROGRAM = """import sys
if sys.version_info < {}:
    sys.exit("trainyard: expected Python {} or newer, found " + sys.version.split()[0])
if sys.argv[1] == "node":
    import signal
    # The first process of a pod ignores a signal without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
from keep import keep
sys.path[0] = keep("{}", lambda: __loader__.get_data("code.zip"))
""" + _MAIN.partition("\n")[2]


def _read(path: str) -> str | None:
    file = _ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def program(*entries: str) -> dict[str, str]:
    """Return the texts of files below module_utils/ and of all that they import, by their paths."""
    return files_of(entries, _read)


@functools.lru_cache(maxsize=1)
def modules() -> dict[str, bytes]:
    """Return the agent's files by their path in it."""
    return {f"agent/{path}": text.encode() for path, text in program("trainyard_node/agent.py", _RUNTIME).items()}


@functools.lru_cache(maxsize=1)
def digest() -> str:
    """Return the name under which nodes keep this agent."""
    found = hashlib.sha256()
    for path, content in modules().items():
        found.update(f"{path} {len(content)}\n".encode() + content)
    return found.hexdigest()


@functools.lru_cache(maxsize=1)
def packed() -> bytes:
    """Return the agent as it is sent."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("agent/__init__.py", b"")
        for path, source in modules().items():
            archive.writestr(path, source)
    return content.getvalue()


@functools.lru_cache(maxsize=1)
def _code() -> bytes:
    """Return the zip of the texts of the program that a scheduler starts; packed as one, they are smaller."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        texts = {"__main__.py": _MAIN, "agent/__init__.py": ""}
        texts |= {f"agent/{path}": text for path, text in program("trainyard_node/allocated.py").items()}
        # Rules of job files read versions with it, and hosts may not have it.
        packages = sorted(Path(packaging.__file__).parent.glob("*.py"))
        for name, text in {**texts, **{f"packaging/{file.name}": file.read_text() for file in packages}}.items():
            # Without a time, hosts know the same program again.
            zipped.writestr(zipfile.ZipInfo(name), text)
    return content.getvalue()


def allocated(request: Mapping[str, Any], archive: bytes) -> bytes:
    """Return the program that a scheduler starts on each host (trainyard_node/allocated.py), as a zip.

    `request` and `archive`, the source of the job, lie beside its code, which a host keeps under its digest.
    """
    content, code = io.BytesIO(), _code()
    main = _PROGRAM.format(OLDEST_PYTHON, ".".join(map(str, OLDEST_PYTHON)), hashlib.sha256(code).hexdigest())
    with zipfile.ZipFile(content, "w") as zipped:
        zipped.writestr("__main__.py", main)
        zipped.writestr("keep.py", _read("trainyard_node/keep.py") or "")
        zipped.writestr("code.zip", code, zipfile.ZIP_DEFLATED)
        zipped.writestr("request.json", json.dumps(request), zipfile.ZIP_DEFLATED)
        zipped.writestr("source.tar.gz", archive)
    return content.getvalue()


@functools.cache
def command(pythons: tuple[str, ...]) -> str:
    """Return the shell command that runs the agent with the first of these Pythons that exists.

    The login shell may be csh, whose quotes hold neither a newline nor `!`: the program stands in it as its bytes.
    """
    program = f'exec(__import__("binascii").unhexlify("{_BOOTSTRAP.encode().hex()}"))'
    names = " ".join(shlex.quote(python) for python in pythons)
    # A version manager's name may start nothing (status 127): then the next one is tried. Like Ansible, sleep before
    # the end: ssh may drop output that comes right before it.
    return (
        f'for p in {names}; do if command -v "$p" >/dev/null 2>&1; then '
        f'"$p" -IS -c {shlex.quote(program)}; r=$?; sleep 0; [ $r = 127 ] || exit $r; fi; done; '
        f"echo {shlex.quote(NO_PYTHON.format(pythons[0]))} >&2; exit 127"
    )


def message(mark: str, question: str, shared: bytes, own: Mapping[str, Any], limit_s: float, with_agent: bool) -> bytes:
    """Return the message to one node; `shared` has the JSON of the arguments for all nodes."""
    agent = packed() if with_agent else b""
    head = {
        "mark": mark,
        "agent": digest(),
        "size": len(agent),
        "oldest": OLDEST_PYTHON,
        "limit_s": limit_s,
        "question": question,
    }
    return b"%s\n%s%s\n%s\n" % (json.dumps(head).encode(), agent, shared, json.dumps(own).encode())


def too_much(question: str, printed: bytes) -> str:
    """Return a message if an answer is larger than one to this query can be, or "".

    It must be checked before parsing: a few characters of JSON become an object of a hundred bytes.
    """
    most, values = MAX_SIZES.get(question, MAX_SIZE)
    action = "look at what the job has written there, and whether that host is still what it was"
    if len(printed) > most:
        return f"the answer has {len(printed) >> 20} MiB, expected at most {most >> 20} MiB: {action}"
    held = sum(map(printed.count, (b",", b"[", b"{")))
    return f"the answer has {counted(held, 'value')}, expected at most {values}: {action}" if held > values else ""


def read(mark: str, printed: bytes) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the answer in the output, None without one, and the lines before it."""
    start = printed.find(f"\n{mark} ".encode())
    if start < 0:
        return None, beside(printed).splitlines()
    begin = start + len(mark) + 2
    end = printed.find(b"\n", begin)
    try:
        answer = json.loads(printed[begin : end if end >= 0 else len(printed)], parse_int=_whole)
    except (ValueError, RecursionError):
        return None, beside(printed).splitlines()
    return answer if isinstance(answer, dict) else None, beside(printed[:start]).splitlines()


def beside(printed: bytes) -> str:
    """Return output other than the answer as text; of long output the beginning and the end."""
    if len(printed) > 2 * _MAX_BESIDE:
        printed = printed[:_MAX_BESIDE] + b"\n...\n" + printed[-_MAX_BESIDE:]
    return printed.decode(errors="replace")


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)
