# SPDX-License-Identifier: Apache-2.0
"""The ad-hoc command that repeats one check, as a line for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# A pattern of a thousand names is no line that anybody types.
_MOST_HOSTS = 20


def ansible(hosts: Sequence[str], inventory: str, module: str, arguments: str = "", *, become: bool = False) -> str:
    """Write `ansible HOSTS -i INVENTORY -m MODULE -a ARGUMENTS`; `inventory` is the option as the user gave it."""
    pattern = ",".join(hosts) if 0 < len(hosts) <= _MOST_HOSTS else "compute"
    words = ["ansible", shlex.quote(pattern), inventory, "-b" if become else "", "-m", module]
    return " ".join(word for word in [*words, *(["-a", shlex.quote(arguments)] if arguments else [])] if word)


def shell(hosts: Sequence[str], inventory: str, line: str, *, become: bool = False) -> str:
    """Write the ad-hoc command that runs a shell line on hosts."""
    return ansible(hosts, inventory, "ansible.builtin.shell", line, become=become)
