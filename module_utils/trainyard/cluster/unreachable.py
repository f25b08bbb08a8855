# SPDX-License-Identifier: Apache-2.0
"""Find why a host gave no readable answer, from the result that Ansible returns for a task on it.

Connection, privileges, Python and a login's output fail outside of any module, each in another field of the result and
without a named cause. This module turns them into a cause with an action. The failure of a module itself is not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.adhoc import ansible
from ..base.findings import Finding, connection_reason, host_list

Answer = Mapping[str, Any]

# The oldest Python that code on nodes is written for.
OLDEST_PYTHON = (3, 9)
PYTHON = f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"
# Ansible's message for output that is not a module's response starts with this.
UNREADABLE = "Module result deserialization failed"
# The message of a failed task without a module, and the start of a failure before any module ran.
_STATUS = "non-zero return code"
_OUTSIDE = "Task failed: "
# Upper bounds in characters: of a line in a message, of a module's own message, of one line that is searched for a
# cause, and of all lines.
_MAX_SHOWN, _MAX_OWN, _MAX_LINE, _MAX_TEXT = 200, 1000, 500, 100_000

_TOOL = r"(?:\S*/)?(sudo|su|doas|dzdo|pbrun|pfexec|ksu|pmrun|runas|machinectl)"
_NO_TOOL = re.compile(rf"(?:^|[\s:]){_TOOL}\S*: (?:command )?(?:not found|No such file or directory)", re.MULTILINE)
_PASSWORD = re.compile(r"Missing (\S+) password|(\S+): (?:a (?:password|terminal) is required|sorry, you must)")
_WRONG_PASSWORD = re.compile(r"Incorrect (\S+) password|(\S+): \d+ incorrect password")
_REFUSED = re.compile(r"^.*(?:is not in the sudoers file|is not allowed to|may not run sudo).*$", re.MULTILINE)
_TOOL_SAYS = re.compile(rf"^{_TOOL}: .+$", re.MULTILINE)
_NO_PYTHON = re.compile(r"The module interpreter '([^']+)' was not found")
_LOST_PYTHON = re.compile(r"python[\d.]*: (?:command )?not found")
_OLD_PYTHON = re.compile(r"requires a minimum of Python.*?Current version: (\S+)")
# Ansible's wrapper fails so on a Python before 3.7, before it can check the version.
_NO_ANNOTATIONS = re.compile(r"SyntaxError: future feature annotations is not defined")

_ROOT = "become root without a question"
_WITHOUT = "set trainyard_become: false"
_ALLOW = f"give the password with -K, allow {{tool}} without one (NOPASSWD in sudoers), or {_WITHOUT}"
# Outputs of tools such as sudo: what is found, what is expected, and what to do.
_BECOME = (
    (_NO_TOOL, "no {tool} here", _ROOT, f"install it or {_WITHOUT}"),
    (_PASSWORD, "{tool} requires a password", _ROOT, _ALLOW),
    (_WRONG_PASSWORD, "the password for {tool} is wrong", "the connecting user's password", "correct it (-K)"),
)

_ANSWERS, REPAIR = "a node that answers over ssh", "repair it, or leave it out"
# ssh names the host of ProxyJump in no other way than by this.
_JUMP = "UNKNOWN port 65535"
# What ssh reports: a pattern, what is expected, and what to do. {address} is that of the host, or in the report.
_SSH = tuple(
    (re.compile(pattern, re.IGNORECASE), expected, action)
    for pattern, expected, action in (
        (
            r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for (?P<address>\S+) has changed",
            "the host key that the controller has in known_hosts",
            "if the host was installed anew: ssh-keygen -R {address}, then log in once: ssh {address}; else find out "
            "who answers there",
        ),
        (
            r"(?:host key is known for (?P<address>\S+) and .{0,100})?Host key verification failed",
            "a host key that the controller knows",
            "log in once: ssh {address}; compare the key that it shows, and answer yes",
        ),
        (
            r"Too many authentication failures",
            "a key that the host accepts",
            "set ansible_ssh_private_key_file, and ansible_ssh_common_args: -o IdentitiesOnly=yes",
        ),
        (
            r"Invalid/incorrect (?:username/)?password|Permission denied, please try again",
            "the password of the connecting user",
            "correct it (-k, or ansible_password) and ansible_user",
        ),
        (
            r"(?:@(?P<address>[^\s@]{1,255}): )?Permission denied \([a-z,-]{1,100}\)",
            "a key that the host accepts",
            "set ansible_user and ansible_ssh_private_key_file, or bring the key there: ssh-copy-id USER@{address}; "
            "with a password add -k",
        ),
        (
            r"open failed: |stdio forwarding failed",
            "a node that the jump host reaches",
            "check ansible_host and ansible_port, as the jump host knows them",
        ),
        (
            rf"connect to host (?P<address>\S+) port.{{1,200}}{_JUMP}|{_JUMP}",
            "a jump host that answers",
            "log in there once by itself, and check ProxyJump in ansible_ssh_common_args",
        ),
    )
)
_NO_SSHPASS = re.compile(r"(?:you must|please) install the sshpass program", re.IGNORECASE)


def cause(answer: Answer, connect: str = "") -> Finding | None:
    """Return why there is no answer, or None for the result of a module and for an empty result.

    `connect` is the address of the host. It is left out of the text, as many hosts may have the same cause.
    """
    message = _cut(str(answer.get("msg") or ""))
    if answer.get("unreachable"):
        return _unreachable(message, connect)
    outputs = [_cut(str(answer.get(name) or "")) for name in ("module_stderr", "stderr", "module_stdout", "stdout")]
    if _NO_SSHPASS.search(message):
        action = "install sshpass on the controller, or log in by a key: ansible_ssh_private_key_file"
        return Finding("reach", "a password for ssh, and no sshpass on the controller", _ANSWERS, action)
    # A command that a module ran, and the other messages of modules, are answers.
    from_shell = message.startswith(UNREADABLE) or (message == _STATUS and "cmd" not in answer)
    found = _privileges("\n".join([*(outputs if from_shell else ()), message if message.startswith(_OUTSIDE) else ""]))
    if found:
        return found
    missing = _NO_PYTHON.search(message)
    if missing:
        return python_finding(f"no {missing[1]}")
    older = _OLD_PYTHON.search(message)
    if older or (from_shell and any(_NO_ANNOTATIONS.search(text) for text in outputs)):
        return python_finding(f"Python {older[1].rstrip('.')}" if older else "a Python before 3.7", is_old=True)
    if from_shell:
        return _unreadable(outputs, answer.get("rc"))
    return None


def python_finding(found: str, is_old: bool = False) -> Finding:
    """Return the finding about a Python that is missing, broken or too old."""
    action = "install a newer one beside it and name that" if is_old else "install python3, or name another one"
    return Finding("Python", found, PYTHON, f"{action} in ansible_python_interpreter")


def _cut(text: str) -> str:
    """Return the start of each line, as a cause is there and patterns are slow on very long lines."""
    return "\n".join(line[:_MAX_LINE] for line in text[:_MAX_TEXT].splitlines())


def _unreachable(message: str, connect: str) -> Finding:
    if "Failed to create temporary directory" in message:
        expected = "a home folder with space that the connecting user can write"
        action = "check its owner and space, or set ansible_remote_tmp"
        return Finding("home folder", "no temporary folder can be created there", expected, action)
    reason = connection_reason(message)
    expected, action = _ANSWERS, REPAIR
    for pattern, better, remedy in _SSH:
        match = pattern.search(reason)
        if match:
            named, unnamed = ("", "JUMP_HOST") if _JUMP in reason else (connect, "HOST")
            login = _login(match.groupdict().get("address") or named) or unnamed
            expected, action = better, remedy.format(address=login)
            break
    if connect:
        reason = reason.replace(f"@{connect}", "").replace(f"connect to host {connect} port", "connect to port")
        reason = re.sub(rf"(?: for| to| by)? {re.escape(connect)}(?![\w-]|\.\w)", "", reason)
    return Finding("reach", reason, expected, action)


def _login(address: str) -> str:
    """Return the arguments of ssh for an address as ssh names it, `[10.0.0.1]:2222` with another port."""
    match = re.fullmatch(r"\[([0-9A-Za-z.:_-]{1,255})\]:(\d{1,5})", address.rstrip("."))
    plain = re.fullmatch(r"[0-9A-Za-z_][0-9A-Za-z.:%_-]{0,254}", address)
    return f"-p {match[2]} {match[1]}" if match else address if plain else ""


def _privileges(output: str) -> Finding | None:
    for pattern, found, expected, action in _BECOME:
        match = pattern.search(output)
        if match:
            tool = next(filter(None, match.groups()))
            return Finding("become", found.format(tool=tool), expected, action.format(tool=tool))
    denied = _REFUSED.search(output) or _TOOL_SAYS.search(output)
    if denied:
        action = f"allow sudo for the connecting user, or {_WITHOUT}"
        return Finding("become", denied[0].strip()[:_MAX_SHOWN], _ROOT, action)
    return None


def _unreadable(outputs: Sequence[str], status: Any) -> Finding:
    lines = [line.strip() for text in outputs for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Shared connection to ")]
    printed = _banner("\n".join(outputs[2:]))
    if printed:
        return printed
    # The error is the last line of a traceback, and the first line of a shell.
    text = (lines or [""])[-1 if "Traceback" in outputs[0] else 0][:_MAX_SHOWN]
    if _LOST_PYTHON.search(text):
        return python_finding(text)
    found = (text or "no output") + ("" if status is None else f" (exit status {status})")
    action = "check the output of a login there, whether its shell runs commands, and ansible_python_interpreter"
    return Finding("answer", found, "the response of a Python module", action)


def _banner(printed: str) -> Finding | None:
    """Find a line of a login's output that hides the answer in `printed`, the complete output.

    Ansible takes the first line that begins with a brace for the answer, and drops the lines before it.
    """
    lines = printed.splitlines()
    braces = [number for number, line in enumerate(lines) if line.lstrip().startswith("{")]
    # The last line with a brace is the answer itself.
    return brace_before(lines[: braces[-1]]) if braces else None


def brace_before(lines: Iterable[str]) -> Finding | None:
    """Find a line that Ansible would take for the answer among the lines that a login printed before it."""
    wrong = next((line.strip() for line in lines if line.strip().startswith("{")), None)
    if wrong is None:
        return None
    found = f"it prints before the answer: {wrong[:_MAX_SHOWN]}"
    expected = "no line that begins with a brace, without a terminal"
    action = "let the shell's profile print only in a terminal ([ -t 1 ] in ~/.bashrc, ~/.profile, /etc/profile.d)"
    return Finding("login", found, expected, action)


def reason(answer: Answer) -> str:
    """Return in one line why there is no answer: the cause and the action, or the module's own message."""
    found = cause(answer)
    if found is None:
        return " ".join(str(answer.get("msg") or answer.get("module_stderr") or "").split())[:600]
    if found.check == "reach":
        return found.found
    return f"{found.check}: {found.found}; {found.action}"


def no_answers(answers: Mapping[str, Answer], connect: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each host that gave no answer, unreachable hosts first.

    Findings with the same cause differ in the host only. Unreachable hosts share expectation and action, whatever ssh
    reports for each, unless ssh's report has a remedy of its own: this names the first host that needs it.
    `connect` has the known addresses. The message of a failed module counts as a cause, too.
    """
    answered: list[Finding] = []
    silent: list[Finding] = []
    unreachable: dict[str, str] = {}
    remedies: dict[str, str] = {}
    for host, answer in answers.items():
        found = cause(answer, connect.get(host, "")) or _own(answer)
        if found.check == "reach" and found.expected == _ANSWERS and found.action == REPAIR:
            unreachable[host] = found.found
        elif found.check == "reach":
            action = remedies.setdefault(found.expected, found.action)
            silent.append(replace(found, host=host, action=action))
        else:
            answered.append(found.on(host))
    if not unreachable:
        return silent + answered
    addresses = [connect[host] for host in unreachable if connect.get(host, host) != host]
    expected = f"{_ANSWERS}{f', at {host_list(addresses)}' if addresses else ''}"
    more = ansible([next(iter(unreachable))], "-i INVENTORY", "ansible.builtin.ping")
    action = f"{REPAIR}; to see more: {more} -vvv"
    others = [Finding("reach", found, expected, action, host=host) for host, found in unreachable.items()]
    return others + silent + answered


def _own(answer: Answer) -> Finding:
    """Return a module's own message, or that there was no answer."""
    message = " ".join(str(answer.get("msg") or "").split())
    action = "run it again with -vvv, which shows all of it" if message else "run it again"
    return Finding("answer", message[:_MAX_OWN] or "no answer", "an answer of every node", action)
