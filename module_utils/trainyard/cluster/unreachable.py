# SPDX-License-Identifier: Apache-2.0
"""Why a host gave no answer that anybody can read, from what Ansible brings back of a task on it.

Connection, privileges, Python and the login's own words fail outside of any module, each in another field of the result
and in words that name no cause. Here they become a cause with what to do about it. What a module says of itself is none
of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..findings.adhoc import ansible
from ..findings.findings import Finding, connection_reason, host_list

Answer = Mapping[str, Any]

# What judges of answers need of a result; the lists of tasks that pass results on name the same fields.
FIELDS = ("msg", "unreachable", "rc", "stdout", "stderr", "module_stdout", "module_stderr")
# With this begins what Ansible says when a module's answer is not what a module answers.
UNREADABLE = "Module result deserialization failed"
# The same of a task that runs no module; and what failed before any module ran.
_STATUS = "non-zero return code"
_OUTSIDE = "Task failed: "
_MOST_SAID = 200
_MOST_OWN = 1000
# Upper bounds for what is searched for a cause, in characters: of a line, and in all.
_MOST_SEARCHED, _MOST_READ = 500, 100_000

_TOOL = r"(?:\S*/)?(sudo|su|doas|dzdo|pbrun|pfexec|ksu|pmrun|runas|machinectl)"
_NO_TOOL = re.compile(rf"(?:^|[\s:]){_TOOL}\S*: (?:command )?(?:not found|No such file or directory)", re.MULTILINE)
_PASSWORD = re.compile(r"Missing (\S+) password|(\S+): (?:a (?:password|terminal) is required|sorry, you must)")
_WRONG_PASSWORD = re.compile(r"Incorrect (\S+) password|(\S+): \d+ incorrect password")
_REFUSED = re.compile(r"^.*(?:is not in the sudoers file|is not allowed to|may not run sudo).*$", re.MULTILINE)
_TOOL_SAYS = re.compile(rf"^{_TOOL}: .+$", re.MULTILINE)
_NO_PYTHON = re.compile(r"The module interpreter '([^']+)' was not found")
_LOST_PYTHON = re.compile(r"python[\d.]*: (?:command )?not found")
_OLD_PYTHON = re.compile(r"requires a minimum of Python.*?Current version: (\S+)")
# So ends Ansible's own wrapper on a Python before 3.7, ahead of its question for the version.
_NO_ANNOTATIONS = re.compile(r"SyntaxError: future feature annotations is not defined")

_ROOT = "become root without a question"
_ALLOW = "allow sudo for the connecting user"
_WITHOUT = "set trainyard_become: false"
_PYTHON = "install python3, or name another one in ansible_python_interpreter"
NEWER_PYTHON = "install a newer one beside it and name that in ansible_python_interpreter"


def cause(answer: Answer, connect: str = "") -> Finding | None:
    """Return why there is no answer, None where a module (or nobody) has spoken.

    `connect` is the address of the host, which is left out of what was found: many hosts may have one cause.
    """
    message = _cut(str(answer.get("msg") or ""))
    if answer.get("unreachable"):
        return _unreachable(message, connect)
    words = [_cut(str(answer.get(name) or "")) for name in ("module_stderr", "stderr", "module_stdout", "stdout")]
    # A command that a module ran, and whatever else a module says, is no answer that is missing.
    from_shell = message.startswith(UNREADABLE) or (message == _STATUS and "cmd" not in answer)
    found = _privileges("\n".join([*(words if from_shell else ()), message if message.startswith(_OUTSIDE) else ""]))
    if found:
        return found
    if _NO_PYTHON.search(message):
        python = _NO_PYTHON.findall(message)[0]
        return Finding("Python", f"no {python}", "Python 3.9 or newer", _PYTHON)
    older = _OLD_PYTHON.search(message)
    if older or (from_shell and any(_NO_ANNOTATIONS.search(text) for text in words)):
        python = f"Python {older[1].rstrip('.')}" if older else "a Python before 3.7"
        return Finding("Python", python, "Python 3.9 or newer", NEWER_PYTHON)
    if from_shell:
        return _unreadable(words, answer.get("rc"))
    return None


def _cut(text: str) -> str:
    """Return the beginnings of lines: a cause stands there, and patterns take long for a line that has no end."""
    return "\n".join(line[:_MOST_SEARCHED] for line in text[:_MOST_READ].splitlines())


def _unreachable(message: str, connect: str) -> Finding:
    if "Failed to create temporary directory" in message:
        return Finding(
            "home folder",
            "no temporary folder can be made there",
            "a home folder with room that the connecting user may write",
            "see to its owner and space, or set ansible_remote_tmp",
        )
    reason = connection_reason(message)
    if connect:
        reason = reason.replace(f"@{connect}", "").replace(f"connect to host {connect} port", "connect to port")
        reason = re.sub(rf"(?: for| to| by)? {re.escape(connect)}(?![\w-]|\.\w)", "", reason)
    return Finding("reach", reason, "a node that answers over ssh", "repair it, or leave it out")


def _privileges(said: str) -> Finding | None:
    missing = _NO_TOOL.search(said)
    if missing:
        return Finding("become", f"no {missing[1]} here", _ROOT, f"install it or {_WITHOUT}")
    asked = _PASSWORD.search(said)
    if asked:
        tool = asked[1] or asked[2]
        action = f"give the password with -K, allow {tool} without one (NOPASSWD in sudoers), or {_WITHOUT}"
        return Finding("become", f"{tool} wants a password", _ROOT, action)
    wrong = _WRONG_PASSWORD.search(said)
    if wrong:
        tool = wrong[1] or wrong[2]
        return Finding("become", f"the password for {tool} is wrong", "that of the connecting user", "correct it (-K)")
    refused = _REFUSED.search(said) or _TOOL_SAYS.search(said)
    if refused:
        return Finding("become", refused[0].strip()[:_MOST_SAID], _ROOT, f"{_ALLOW}, or {_WITHOUT}")
    return None


def _unreadable(words: Sequence[str], status: Any) -> Finding:
    lines = [line.strip() for text in words for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Shared connection to ")]
    printed = banner("\n".join(words[2:]))
    if printed:
        return printed
    # A traceback ends with what went wrong, a shell begins with it.
    said = (lines or [""])[-1 if "Traceback" in words[0] else 0][:_MOST_SAID]
    if _LOST_PYTHON.search(said):
        return Finding("Python", said, "Python 3.9 or newer", _PYTHON)
    return Finding(
        "answer",
        (said or "not a word") + ("" if status is None else f" (exit status {status})"),
        "what a Python module answers",
        ("see what a login there prints, whether its shell runs commands, and its Python (ansible_python_interpreter)"),
    )


def banner(printed: str) -> Finding | None:
    """Find what a login prints that keeps Ansible from finding the answer: a line before it that begins with a brace.

    `printed` is all that came; Ansible takes the first line with a brace for the beginning of the answer, and drops
    other lines before it.
    """
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    braces = [number for number, line in enumerate(lines) if line.startswith("{")]
    # The last one is the answer itself.
    if len(braces) < 2:
        return None
    return brace_before(lines[: braces[-1]])


def brace_before(lines: Iterable[str]) -> Finding | None:
    """Find a line that Ansible would take for the answer, among those that a login printed before it."""
    wrong = [line.strip() for line in lines if line.strip().startswith("{")]
    if not wrong:
        return None
    return Finding(
        "login",
        f"it prints before the answer: {wrong[0][:_MOST_SAID]}",
        "nothing that begins with a brace, where no terminal is",
        "let the shell's profile print only in a terminal ([ -t 1 ] in ~/.bashrc, ~/.profile, /etc/profile.d)",
    )


def reason(answer: Answer) -> str:
    """Say in one line why there is no answer: the cause and what to do, or what the module said of itself."""
    found = cause(answer)
    if found is None:
        said = answer.get("msg") or answer.get("module_stderr") or ""
        return " ".join(str(said).split())[:600]
    if found.check == "reach":
        return found.found
    return f"{found.check}: {found.found}; {found.action}"


def findings(answers: Mapping[str, Answer], connect: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each host that gave no answer, those that cannot be reached first.

    Hosts with one cause differ in nothing but the host; those that cannot be reached are one fault, whatever ssh says
    of each. `connect` are the hosts' addresses, as far as they are known. What a module says of its own failure is a
    cause, too; hosts that were not asked ({}) have said nothing.
    """
    told: list[Finding] = []
    silent: dict[str, str] = {}
    for host, answer in answers.items():
        found = cause(answer, connect.get(host, "")) or _own(answer)
        if found.check == "reach":
            silent[host] = found.found
        else:
            told.append(found.on(host))
    if silent:
        others = [connect[host] for host in silent if connect.get(host, host) != host]
        expected = f"a node that answers over ssh{f', at {host_list(others)}' if others else ''}"
        more = ansible([next(iter(silent))], "-i INVENTORY", "ansible.builtin.ping")
        action = f"repair it, or leave it out; to see more: {more} -vvv"
        told = [*(Finding("reach", found, expected, action, host=host) for host, found in silent.items()), *told]
    return told


def _own(answer: Answer) -> Finding:
    """Return what a module, or nobody, said in place of an answer."""
    said = " ".join(str(answer.get("msg") or "").split())
    action = "run it again with -vvv, which shows all of it" if said else "run it again"
    return Finding("answer", said[:_MOST_OWN] or "no answer", "an answer of every node", action)
