"""The certificate authority with the real ssh-keygen."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.cluster.ssh_mesh import Policy, Request, fingerprint
from ansible.module_utils.trainyard_controller.cluster.ssh_authority import Authority, AuthorityError
from ansible.module_utils.trainyard_controller.runs.locks import locked_secrets

DAY = 86400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "ssh_ca", "lab")
    with locked_secrets(made.folder):
        assert len(made.make_keys()) == 2
    return made


@pytest.fixture
def public_key(tmp_path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    return (tmp_path / "key.pub").read_text()


def policy(authority: Authority) -> Policy:
    return Policy("lab", 30 * DAY, DAY, authority.fingerprints())


def test_keys_are_created_once_and_are_private(authority: Authority) -> None:
    before = authority.fingerprints()
    assert authority.make_keys() == [] and authority.fingerprints() == before
    assert before["host"] != before["user"]
    assert (authority.folder / "user_ca").stat().st_mode & 0o777 == 0o600
    assert authority.folder.stat().st_mode & 0o777 == 0o700


def test_a_certificate_has_the_requested_fields(authority: Authority, public_key: str) -> None:
    now = time.time()
    requests = [Request("n1", "host", public_key, ("n1", "10.0.0.1")), Request("n1", "user", public_key, ("train",))]
    authority.keep(authority.sign(requests, 7, policy(authority), now))
    host, user = [certificate for _, certificate in authority.issued()]
    assert (host.kind, host.identity, host.serial, host.principals) == ("host", "lab:n1:host", 7, ("n1", "10.0.0.1"))
    assert (user.kind, user.identity, user.serial, user.principals) == ("user", "lab:n1:user", 8, ("train",))
    assert host.key == fingerprint(public_key)
    assert (host.authority, user.authority) == (authority.fingerprints()["host"], authority.fingerprints()["user"])
    assert abs(host.valid_to - now - 30 * DAY) < 2
    assert host.valid_from < now
    files = {"host_ca", "host_ca.pub", "user_ca", "user_ca.pub"}
    assert {path.name for path in authority.folder.iterdir()} == {".lock", "issued", *files}


def test_revoked_keys_and_their_certificates_are_listed(authority: Authority, public_key: str, tmp_path: Path) -> None:
    assert authority.revoke({}) is True
    listed = str(authority.revocation_list())

    def query(path: Path) -> int:
        argv = ["ssh-keygen", "-Q", "-f", listed, str(path)]
        return subprocess.run(argv, capture_output=True, check=False).returncode

    line = authority.sign([Request("n1", "user", public_key, ("train",))], 1, policy(authority), time.time())[0]
    (tmp_path / "cert.pub").write_text(line)
    assert (query(tmp_path / "key.pub"), query(tmp_path / "cert.pub")) == (0, 0)
    assert authority.revoke({fingerprint(public_key): "n1"}) is True
    assert query(tmp_path / "key.pub") != 0 != query(tmp_path / "cert.pub")
    made = Path(listed).read_bytes()
    assert authority.revoke({fingerprint(public_key): "n1"}) is False
    assert Path(listed).read_bytes() == made
    assert authority.revoked() == {fingerprint(public_key): "n1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("gone", r"user_ca is missing while .* Restore it from a backup"),
        ("readable", r"can be read by others \(mode 644\); expected 600"),
    ],
)
def test_a_lost_or_readable_private_key_is_rejected(authority: Authority, change: str, message: str) -> None:
    key = authority.folder / "user_ca"
    if change == "gone":
        key.unlink()
    else:
        key.chmod(0o644)
    with pytest.raises(AuthorityError, match=message):
        authority.make_keys()


def test_a_missing_public_half_is_derived(authority: Authority) -> None:
    before = authority.fingerprints()
    (authority.folder / "host_ca.pub").unlink()
    assert authority.make_keys() == [f"public half of {authority.folder / 'host_ca'}"]
    assert authority.fingerprints() == before and authority.make_keys() == []


def test_a_damaged_record_is_an_error(authority: Authority, public_key: str) -> None:
    line = authority.sign([Request("n1", "user", public_key, ("train",))], 1, policy(authority), time.time())[0]
    authority.keep([line, "no certificate"])
    with pytest.raises(AuthorityError, match="issued"):
        authority.issued()


def test_reading_does_not_create_the_folder(tmp_path: Path) -> None:
    unmade = Authority(tmp_path / "none", "lab")
    assert (unmade.issued(), unmade.revoked(), unmade.revocation_list()) == ([], {}, None)
    assert unmade.fingerprints() == {"host": "", "user": ""}
    assert not unmade.folder.exists()
