"""One login from a node, with a stand-in for ssh that answers as OpenSSH does."""

import os
import pwd

import pytest
from ansible.module_utils.trainyard_node.cluster import ssh_logins

ME = pwd.getpwuid(os.getuid()).pw_name
TURNED_AWAY = "kex_exchange_identification: read: Connection reset by peer"


@pytest.fixture
def login(tmp_path, monkeypatch):
    """Log in by an `ssh` that fails so many times with these words, then succeeds; returns the reason and the tries."""
    monkeypatch.setattr(ssh_logins, "_PAUSE_S", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def call(words, times):
        program = tmp_path / "ssh"
        program.write_text(
            f"#!/bin/sh\necho x >> {tmp_path}/tries\n"
            f"[ $(wc -l < {tmp_path}/tries) -gt {times} ] && exit 0\necho '{words}' >&2\nexit 255\n"
        )
        program.chmod(0o755)
        found = ssh_logins.try_login(ME, "n3", "n3", 5)
        return found.reason, len((tmp_path / "tries").read_text().split())

    return call


def test_a_server_that_turns_logins_away_is_asked_again(login):
    assert login(TURNED_AWAY, 3) == ("", 4)


def test_a_server_that_never_greets_is_a_fault(login):
    reason, tries = login(TURNED_AWAY, 99)
    assert (tries, reason.startswith("kex_exchange_identification")) == (4, True)


def test_a_login_that_is_refused_is_not_tried_again(login):
    reason, tries = login("n3: Permission denied (publickey).", 99)
    assert (tries, "Permission denied" in reason) == (1, True)
