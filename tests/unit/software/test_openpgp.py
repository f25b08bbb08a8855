"""Fingerprints of key files, compared with gpg's where a key was made by gpg."""

import base64
import contextlib
import hashlib
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import openpgp
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# A key made for this test with `gpg --quick-generate-key`; gpg --show-keys says that this is its fingerprint.
GPG_FINGERPRINT = "DD4A1E011C5837633F5F36FA767E9F1BF6EE7433"
GPG_KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawHQRBYJKwYBBAHaRw8BAQdA2IvY/yKILord+K1GXIMrFrsbUBuzD5QscQvr
cw73tXC0F3Rlc3QgPHRlc3RAZXhhbXBsZS5vcmc+iJAEExYIADgWIQTdSh4BHFg3
Yz9fNvp2fp8b9u50MwUCawHQRAIbAwULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAK
CRB2fp8b9u50M2LMAQDIY5Pzl87jUY2gFMAFdwngwWERAG8Pq6WjQtqc/ApzqAD/
dRk5phr6keCQEKh2i+a0n+fvZ6zc75uUJ3u4v7EMEQ0=
=bgy7
-----END PGP PUBLIC KEY BLOCK-----
"""


def packet(tag, body, old=False):
    if old:
        return bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


def test_a_key_that_gpg_wrote_is_read_binary_and_armored():
    body = "".join(line for line in GPG_KEY.splitlines() if line and not line.startswith(("-", "=")))
    for data, armored in ((GPG_KEY.encode(), True), (base64.b64decode(body), False)):
        assert openpgp.fingerprints(data) == [GPG_FINGERPRINT] and openpgp.is_armored(data) is armored


def test_every_primary_key_in_a_file_counts():
    second = packet(6, b"\x04" + b"second", old=True)
    expected = hashlib.sha1(b"\x99\x00\x07\x04second").hexdigest().upper()  # noqa: S324
    user = packet(13, b"somebody")
    assert openpgp.fingerprints(packet(6, b"\x04" + b"x") + user + second + packet(14, b"\x04sub"))[1] == expected
    twice = GPG_KEY.encode() + b"\n" + GPG_KEY.encode()
    assert openpgp.fingerprints(twice) == [GPG_FINGERPRINT] * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no OpenPGP public key"),
        (b"<html>404</html>", "begins with something else"),
        (packet(13, b"somebody"), "no OpenPGP public key"),
        (packet(6, b"\x04" * 300)[:100], "ends in the middle"),
        (packet(6, b"\x03rsa"), "a key of version 3"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ", "a key block without an end"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n%%%\n-----END PGP PUBLIC KEY BLOCK-----", "no base64"),
    ],
)
def test_a_text_without_a_key_is_rejected(data, message):
    with pytest.raises(ValueError, match=message):
        openpgp.fingerprints(data)


@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused(data):
    with contextlib.suppress(ValueError):
        assert all(len(found) in (40, 64) for found in openpgp.fingerprints(data))


def test_fingerprints_are_compared_however_they_are_written():
    assert openpgp.normal("eb69 3b30:35CD") == "EB693B3035CD"


def test_the_fake_repositorys_key_has_its_fingerprint(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FIXTURES / "nvidia_repository"))
    monkeypatch.delitem(sys.modules, "signing", raising=False)
    import signing

    key = signing.Key(tmp_path / "key.pem", "somebody <somebody@example.org>")
    assert openpgp.fingerprints(key.public().encode()) == [key.fingerprint]
