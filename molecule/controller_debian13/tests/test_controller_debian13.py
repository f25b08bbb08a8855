"""Debian 13 as the controller: its own Python, the current ansible-core, and a demo that trains."""

import json

import pytest

CHECKOUT = "/home/visitor/trainyard"


@pytest.fixture
def sudo(host):
    """Read the home folder of an ordinary user."""
    with host.sudo():
        yield


def test_make_took_the_systems_python_and_the_current_ansible(host, sudo):
    assert host.system_info.release.startswith("13")
    version = host.check_output(f"{CHECKOUT}/.venv/bin/ansible --version")
    assert "[core 2.21." in version and "python version = 3.13." in version


def test_the_demo_verified_this_machine_and_trained(host, sudo):
    text = host.file(f"{CHECKOUT}/demo.txt").content_string
    assert "The cluster local is verified in software, reach, collectives, counters." in text
    assert "WARNING" not in text and "DEPRECATION" not in text and "ansible-core 2.19" not in text
    (summary,) = host.check_output(f"ls {CHECKOUT}/runs/digits-*/summary.json").splitlines()
    assert json.loads(host.file(summary).content_string)["state"] == "succeeded"
