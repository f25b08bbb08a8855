# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of the OpenPGP keys in a file, without gpg, which a node need not have.

The fingerprint is what a vendor documents; a sha256 of the file would change with each prolonged life of the key. Reads
what RFC 4880 and RFC 9580 call transferable public keys, armored or binary.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator

_PUBLIC_KEY = 6
_HEAD, _TAIL = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"


def is_armored(data: bytes) -> bool:
    """Return whether a key file is text, which apt wants to have the suffix .asc."""
    return _HEAD.encode() in data


def _blocks(data: bytes) -> Iterator[bytes]:
    """Return the binary content of a key file; several armored blocks may follow one another."""
    if not is_armored(data):
        yield data
        return
    for part in data.decode("ascii", errors="replace").split(_HEAD)[1:]:
        body, end, _ = part.partition(_TAIL)
        if not end:
            raise ValueError("a key block without an end")
        # Headers such as `Version: GnuPG v2` end with an empty line; the last line, `=abcd`, is a checksum of 24 bits.
        lines = [line.strip() for line in body.splitlines()[1:]]
        start = lines.index("") + 1 if "" in lines else 0
        try:
            yield base64.b64decode("".join(line for line in lines[start:] if not line.startswith("=")), validate=True)
        except binascii.Error as error:
            raise ValueError(f"a key block that is no base64: {error}") from None


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length in the new format and where the body begins."""
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + data[at + 1] + 192, at + 2
    if first == 255:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise ValueError("a packet of partial length, which no key has")


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return tag and body of each packet. Raises ValueError for what is no sequence of packets."""
    at = 0
    try:
        while at < len(data):
            head = data[at]
            if not head & 0x80:
                raise ValueError("no OpenPGP key: it begins with something else")
            if head & 0x40:
                tag = head & 0x3F
                length, at = _new_length(data, at + 1)
            else:
                tag, size = head >> 2 & 0x0F, head & 0x03
                if size == 3:
                    raise ValueError("a packet of unknown length, which no key has")
                octets = 1 << size
                length, at = int.from_bytes(data[at + 1 : at + 1 + octets], "big"), at + 1 + octets
            if at + length > len(data):
                raise ValueError("the key ends in the middle")
            yield tag, data[at : at + length]
            at += length
    except IndexError:
        raise ValueError("the key ends in the middle") from None


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprint of each primary key in a file, in capitals. Raises ValueError for what is no key."""
    found = []
    for block in _blocks(data):
        for tag, body in _packets(block):
            if tag != _PUBLIC_KEY:
                continue
            version = body[0] if body else 0
            if version == 4:
                # The fingerprint is defined so; nothing is made secure by this use of SHA-1.
                digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)  # noqa: S324
            elif version == 6:
                digest = hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body)
            else:
                raise ValueError(f"a key of version {version}, expected 4 or 6")
            found.append(digest.hexdigest().upper())
    if not found:
        raise ValueError("no OpenPGP public key")
    return found


def normal(fingerprint: str) -> str:
    """Write a fingerprint as it is compared: without blanks and colons, in capitals."""
    return "".join(fingerprint.split()).replace(":", "").upper()
