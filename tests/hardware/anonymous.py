# SPDX-License-Identifier: Apache-2.0
"""What leaves a machine in a report of its own test: no secrets, and nothing by which the machine can be told.

Names, addresses and serial numbers become others of the same form, the same one each time, so that outputs still fit
together and parsers still read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ansible.module_utils.trainyard.base.redaction import HIDDEN, without_secrets

# Shorter names, and words of the trade, tell of no machine, and stand in what tools print.
_LEAST_NAME = 3
_WORDS = re.compile("localhost|host|node|server|gpu|npu|cuda|nvidia|ascend|train|compute|head|linux", re.IGNORECASE)
_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"\b(GPU|MIG)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")
_MAC = re.compile(rf"(?<![\w:])(?!00:00:00:00:00:00|ff:ff:ff:ff:ff:ff)(?:{_HEX}{{2}}:){{5}}{_HEX}{{2}}(?![\w:])")
_GUID = re.compile(rf"(?<![\w:])(?!(?:0000:){{3}}0000)(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}(?![\w:])")
# `<serial>1650922003456</serial>`, `Serial Number : 1650922003456`, and what else names one card.
_SERIAL = re.compile(
    r"(?im)(<(?:serial|board_serial|gpu_part_number|chassis_serial_number|gpu_guid|cluster_uuid)>)[^<]+(?=<)"
    r"|(^\s*(?:Serial Number|Chassis Serial Number|GPU GUID|ClusterUUID|Cluster UUID)\s*:[ \t]*)\S.*$"
)
# Programs of others that were running on a device.
_PROCESS = re.compile(r"(<process_name>)[^<]*(?=<)")
_NO_SERIAL = ("N/A", "0", "[N/A]")


class Anonymous:
    """Renames what it meets; `names` and `addresses` are those of this machine, `homes` the folders of its users."""

    def __init__(self, names: Iterable[str] = (), addresses: Iterable[str] = (), homes: Iterable[str] = ()) -> None:
        """Take what is known of this machine."""
        self._new: dict[str, dict[str, str]] = {}
        self._own: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = []
        telling = {name for name in names if len(name) >= _LEAST_NAME and not _WORDS.fullmatch(name)}
        for name in sorted(telling, key=len, reverse=True):
            self._own.append((re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), lambda _: "this-machine"))
        for number, address in enumerate(sorted(set(addresses)), 1):
            # Addresses that are for documentation (RFC 5737, RFC 3849).
            shown = f"2001:db8::{number}" if ":" in address else f"192.0.2.{number}"
            end = r"(?![\w:])" if ":" in address else r"(?!\w|\.\w)"
            self._own.append((re.compile(rf"(?<![\w.:]){re.escape(address)}{end}"), lambda _, shown=shown: shown))
        for home in sorted({home for home in homes if home.count("/") > 1}, key=len, reverse=True):
            self._own.append((re.compile(rf"{re.escape(home)}(?![\w-])"), lambda _: "/home/user"))

    def _as(self, form: str, kind: str) -> Callable[[re.Match[str]], str]:
        """Return what gives each text of a kind a number of its own, in a form; what it has given stays as it is."""

        def renamed(match: re.Match[str]) -> str:
            known = self._new.setdefault(kind, {})
            if match[0] in known.values():
                return match[0]
            return known.setdefault(match[0].lower(), form.format(len(known) + 1, match))

        return renamed

    def __call__(self, text: str) -> str:
        """Return the text as it may leave."""
        text = _UUID.sub(self._as("{1[1]}-00000000-0000-0000-0000-{0:012d}", "uuid"), text)
        text = _GUID.sub(self._as("0200:0000:0000:{0:04x}", "guid"), text)
        text = _MAC.sub(self._as("02:00:00:00:00:{0:02x}", "mac"), text)
        text = _SERIAL.sub(_unless_none, text)
        text = _PROCESS.sub(rf"\g<1>{HIDDEN}", text)
        for pattern, renamed in self._own:
            text = pattern.sub(renamed, text)
        return without_secrets(text)


def _unless_none(match: re.Match[str]) -> str:
    head = match[1] or match[2]
    value = match[0][len(head) :].strip()
    return match[0] if value in _NO_SERIAL else f"{head}{HIDDEN}"
