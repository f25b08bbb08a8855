# SPDX-License-Identifier: Apache-2.0
"""Run a start script as a rank, and wait for the processes that it leaves in the background.

Scripts in vendors' guides end with `&`: the shell exits with 0 while the training runs. This process becomes the parent
of the processes that remain (prctl(2), PR_SET_CHILD_SUBREAPER), so it learns how each of them ended.

Times are seconds since boot, or of a CPU; a process is {"began", "cpu", "command", "output"}.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import time

from .....trainyard.job.file.start_scripts import WAIT, code_in, forgets_status, waits_for_nothing
from ....machine.json_files import end_of, open_regular
from . import process_table
from .execute import become, end_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

# A helper of the training, such as `nvidia-smi dmon &`, uses less than this share of the CPU time of ended processes.
HELPER_SHARE = 0.05
# It is ended after so many seconds in which it used less than this share of a CPU.
IDLE_SHARE, IDLE_S = 0.05, 5
# A process that used less CPU time, in seconds, has trained nothing.
WORK_S = 1.0
# Seconds between SIGTERM and SIGKILL.
END_S = 3
# How long a forked process may take to become the program that the script starts, in seconds.
BECOME_S = 2.0
# How long after the script's end its `trap 'kill $(jobs -p)' EXIT` may take effect, in seconds.
TRAP_S = 5.0
# Lines shown of a failed process's own log, and bytes in which they are searched.
SHOWN_LINES, SHOWN_BYTES = 40, 1 << 16
# Bytes of a script that are read.
SCRIPT_BYTES = 1 << 16
# Upper bounds for the search of the file that names an error: names in the working folder, and files that are read.
MAX_NAMES, MAX_WRITTEN = 5000, 64
# Characters of a log's path that are kept in its name, as the controller takes names of at most 100 (log_names.py).
MAX_STEM = 80
# How far the times of files may lag behind the clock, in seconds.
CLOCK_S = 0.05
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def only_helpers(left: Sequence[Mapping[str, Any]], ended_cpu: float, began: float, now: float) -> bool:
    """Return whether the remaining processes are helpers of the work that has ended.

    All of them began in the first half of the time since `began`, and used little CPU time compared with the processes
    that ended by `now`. A script that only starts programs uses almost none.
    """
    middle = (began + now) / 2
    cpu = sum(process["cpu"] for process in left)
    return ended_cpu >= WORK_S and cpu < HELPER_SHARE * ended_cpu and all(process["began"] < middle for process in left)


def run(*argv: str) -> int:
    """Run a start script and wait for its processes; return the status of the rank, or end by its signal."""
    process_table.adopt()
    status = _Script(list(argv)).run()
    if os.WIFSIGNALED(status):
        import resource

        # The process that ended has left a core, where one is enabled.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number
    return os.WEXITSTATUS(status)


class _Script:
    """A start script, and the processes that it leaves."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.name = next((word for word in argv if word.endswith(".sh")), argv[0])
        self.began, self.ended = _now(), 0.0
        self.began_at = time.time() - CLOCK_S
        self.cpu, self.idle_cpu = 0.0, 0.0
        self.left: dict[int, dict[str, Any]] = {}
        # Whether the processes must end, and by which signal from outside.
        self.ending, self.signal = False, 0

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGALRM, self._still_idle)
        main, first = self._start(), 0
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                # A script that was stopped has not done its work, even if its status is 0.
                return first or self.signal
            self.cpu += usage.ru_utime + usage.ru_stime
            if pid == main:
                self.ended, first = _now(), status
                if status and not self.ending:
                    self._report_cause()
                    return status
                self._report_left()
                if not self.left and not self.ending and self.cpu < WORK_S and self._failed_unseen():
                    return 1 << 8
            elif self.ended and status and not self.ending and not self._by_the_script(status):
                self._report_failure(pid, status)
                return status
            if self.ended and not self.ending:
                self._watch_helpers()

    def _failed_unseen(self) -> bool:
        """Report that a script has started something that did no work and ended in a way that it does not tell."""
        script = self._script()
        if waits_for_nothing(script):
            # The status of one is still to come; another one may have failed before.
            if _has_ended_child() and self._cause() is None:
                return False
            _say(
                f"{self.name} has ended, and nothing is left of what it had started in the background: how that ended "
                f"is not known; append {WAIT} to it, and see the files into which it has it write"
            )
            self._report_cause()
            return True
        if not forgets_status(script) or self._cause() is None:
            return False
        _say(f"{self.name} ends by `wait`, which is 0 however its processes ended, and one failed; end it by {WAIT}")
        self._report_cause()
        return True

    def _script(self) -> str:
        """Return the text of the script, as far as it can be read."""
        code = code_in(self.argv)
        for word in self.argv:
            with contextlib.suppress(OSError):
                with open_regular(word) as file:
                    content = file.read(SCRIPT_BYTES)
                code += [content.decode("utf-8", "replace")] if b"\0" not in content else []
        return "\n".join(code)

    def _start(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            for number in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            end_with_parent()
            os._exit(become(self.argv, dict(os.environ)))
        finally:
            os._exit(126)

    def _report_left(self) -> None:
        until = _now() + BECOME_S
        # A process that the shell has just forked still shows the shell's command, without redirections.
        copy = " ".join(" ".join(self.argv)[: process_table.SHOWN].split())
        while True:
            left = _below(os.getpid())
            self.left.update(left)
            if _now() > until or not any(process["command"] == copy for process in left.values()):
                break
            time.sleep(0.02)
        if self.left:
            for process in self.left.values():
                self._collect(process["output"])
            commands = list(dict.fromkeys(_text(process) for process in self.left.values()))
            more = f"; and {len(commands) - 8} more" if len(commands) > 8 else ""
            _say(f"{self.name} has ended; waiting for what it left running: {'; '.join(commands[:8])}{more}")

    def _report_failure(self, pid: int, status: int) -> None:
        process = self.left.get(pid, {"command": f"process {pid}", "output": ""})
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        end = _last_lines(process["output"])
        more = ", its last lines:" if end else "; see the file into which the script has it write, if any"
        _say(f"{_text(process)} that {self.name} left running ended with {how}{more}")
        _write(end)
        if not end:
            self._report_cause()

    def _report_cause(self) -> None:
        """Show the end of a file that the script's processes wrote, if it names an error and the rank's log none."""
        path = self._cause()
        if path:
            self._collect(path)
            _say(f"the last lines of {os.path.relpath(path)}, a file that {self.name} had written:")
            _write(_last_lines(path))

    def _collect(self, path: str) -> None:
        """Link a process's own log into the folder of logs, as `rank_0_train.log`, so that it is collected.

        If several have that name, `dev0/train.log` becomes `rank_0_dev0_train.log`.
        """
        if not path:
            return
        stems = {each: os.path.splitext(each)[0] for each in (path, *(left["output"] for left in self.left.values()))}
        stem = os.path.basename(stems[path])
        if [os.path.basename(each) for each in stems.values()].count(stem) > 1:
            stem = os.path.relpath(stems[path]).replace("/", "_")
        with contextlib.suppress(OSError):
            folder, own = os.path.split(os.readlink(f"{process_table.PROC}/self/fd/1"))
            link = f"{folder}/{os.path.splitext(own)[0]}_{stem[-MAX_STEM:]}.log"
            if os.path.basename(folder) == "logs":
                if os.path.exists(link) and not os.path.samefile(link, path):
                    # An earlier attempt has left it.
                    os.unlink(link)
                os.link(path, link)

    def _cause(self) -> str | None:
        """Return the file that names an error, "" for the rank's log, None where none does."""
        # An image may have an older Python, for which the rules of errors are too new.
        if sys.version_info < (3, 9):  # noqa: UP036
            return None
        # A script seldom fails, and these expressions take time to compile.
        from .....trainyard.job.run.decide.restart_rules import evidence
        from .....trainyard.job.run.logs.failures import of_last_attempt

        own = f"{process_table.PROC}/self/fd/1"
        if os.path.isfile(own) and evidence(of_last_attempt(end_of(os.path.realpath(own), SHOWN_BYTES))).get("error"):
            return ""
        for path in _written_since(self.began_at):
            if evidence(_last_lines(path).decode("utf-8", "replace")).get("error"):
                return path
        return None

    def _by_the_script(self, status: int) -> bool:
        """Return whether the script itself ended a process at its own end."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - 128
        return number in _END_SIGNALS and _now() - self.ended < TRAP_S

    def _watch_helpers(self) -> None:
        left = _below(os.getpid())
        helpers = bool(left) and only_helpers(list(left.values()), self.cpu, self.began, _now())
        self.idle_cpu = sum(process["cpu"] for process in left.values())
        signal.alarm(IDLE_S if helpers else 0)

    def _still_idle(self, number: int, frame: FrameType | None) -> None:
        """End helpers that did nothing meanwhile."""
        del number, frame
        left = _below(os.getpid())
        cpu = sum(process["cpu"] for process in left.values())
        if self.ending:
            _send(left, signal.SIGKILL)
        elif cpu - self.idle_cpu < IDLE_SHARE * IDLE_S:
            self.ending = True
            _say(f"the training has ended; ending what ran beside it: {'; '.join(map(_text, left.values()))[:1000]}")
            _send(left, signal.SIGTERM)
            signal.alarm(END_S)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Pass SIGTERM on: systemd sends it to the main process of a unit alone."""
        del frame
        self.ending, self.signal = True, number
        _send(_below(os.getpid()), number)


def _has_ended_child() -> bool:
    """Return whether a process of the script has ended after it, whose status is still to be had."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _say(text: str) -> None:
    _write(f"trainyard: {text}\n".encode())


def _write(text: bytes) -> None:
    # A full disk ends nothing.
    with contextlib.suppress(OSError):
        os.write(1, text)


def _text(process: Mapping[str, Any]) -> str:
    output = os.path.relpath(process["output"]) if process["output"] else ""
    return f"{process['command']} (output in {output})" if output else str(process["command"])


def _send(pids: Mapping[int, Any], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _below(root: int) -> dict[int, dict[str, Any]]:
    """Return the living descendants of a process."""
    ticks = os.sysconf("SC_CLK_TCK")
    children: dict[int, list[tuple[int, float, float]]] = {}
    for entry in os.listdir(process_table.PROC):
        fields = process_table.stat_fields(int(entry)) if entry.isdigit() else None
        if fields:
            # proc(5): utime, stime and those of children that were waited for; starttime.
            cpu = sum(map(int, fields[11:15])) / ticks
            children.setdefault(int(fields[1]), []).append((int(entry), int(fields[19]) / ticks, cpu))
    found, ahead = {}, [root]
    while ahead:
        for pid, began, cpu in children.get(ahead.pop(), ()):
            ahead.append(pid)
            # The command line of a process that is about to end is empty.
            command = " ".join(process_table.command_line(pid).split()) or f"process {pid}"
            found[pid] = {"began": began, "cpu": cpu, "command": command, "output": _output(pid)}
    return found


def _output(pid: int) -> str:
    """Return the file in the working folder to which a process writes its output; "" where there is none."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = os.readlink(f"{process_table.PROC}/{pid}/fd/{number}")
            if path.startswith(f"{os.getcwd()}/") and stat.S_ISREG(os.stat(path).st_mode):
                return path
    return ""


def _written_since(at: float) -> list[str]:
    """Return the files of the working folder that were written since a time, the first to be finished first."""
    found, names = [], 0
    for folder, _, files in os.walk(os.getcwd()):
        names += len(files)
        for path in (os.path.join(folder, name) for name in files):
            with contextlib.suppress(OSError):
                state = os.lstat(path)
                if stat.S_ISREG(state.st_mode) and state.st_size and state.st_mtime >= at:
                    found.append((state.st_mtime, path))
        if names > MAX_NAMES:
            break
    return [path for _, path in sorted(found)[:MAX_WRITTEN]]


def _last_lines(path: str) -> bytes:
    lines = end_of(path, SHOWN_BYTES).splitlines()[-SHOWN_LINES:] if path else []
    return "".join(f"{line}\n" for line in lines).encode()
