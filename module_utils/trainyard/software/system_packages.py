# SPDX-License-Identifier: Apache-2.0
"""Say by which command a system installs packages, for people who may not install them and ask an administrator.

The roles know the names of Debian, of Red Hat's family (RHEL, Rocky, openEuler, Kylin servers) and of SUSE.
"""

from __future__ import annotations

from collections.abc import Iterable

_FAMILIES = {
    **dict.fromkeys(("debian", "ubuntu"), "debian"),
    **dict.fromkeys(("rhel", "rocky", "almalinux", "centos", "fedora", "ol", "amzn"), "redhat"),
    **dict.fromkeys(("openeuler", "euleros", "hce", "anolis", "alinux", "tencentos"), "redhat"),
    **dict.fromkeys(("suse", "sles", "opensuse", "opensuse-leap"), "suse"),
}
# Their editions for desktops are of Debian's family, and name it in ID_LIKE.
_SERVERS = dict.fromkeys(("kylin", "uos"), "redhat")
_COMMANDS = {"debian": "apt install", "redhat": "dnf install", "suse": "zypper install"}
# Packages that frameworks and compiled extensions need at most.
_USUAL = {
    "debian": ("python3-venv", "libgomp1", "g++", "python3-dev"),
    "redhat": ("python3", "libgomp", "gcc-c++", "python3-devel"),
    "suse": ("python3", "libgomp1", "gcc-c++", "python3-devel"),
}


def family(name: str, like: str = "") -> str:
    """Return debian, redhat, suse or the name itself, from ID and ID_LIKE of /etc/os-release."""
    names = [each.lower() for each in (name, *like.split())]
    known = next((_FAMILIES[each] for each in names if each in _FAMILIES), None)
    return known or _SERVERS.get(name.lower(), name)


def command(kind: str, packages: Iterable[str]) -> str:
    """Return the command that installs packages on a system of a family, "" for one whose command is not known."""
    return f"`{_COMMANDS[kind]} {' '.join(packages)}`" if kind in _COMMANDS else ""


def usual(kind: str) -> str:
    """Return the command that installs what programs may need of a system, "" for an unknown one."""
    return command(kind, _USUAL.get(kind, ()))


def venv(kind: str, version: str) -> str:
    """Return what to do where Python has no ensurepip; `version` is that of Python, as in 3.11."""
    another = "name an interpreter that has it"
    if kind == "debian":
        return f"install python{version}-venv ({command(kind, [f'python{version}-venv'])}), or {another}"
    if kind in _COMMANDS:
        return f"install python3 as the system has it, with venv inside ({command(kind, ['python3'])}), or {another}"
    return f"install python{version} with its modules venv and ensurepip, or {another}"
