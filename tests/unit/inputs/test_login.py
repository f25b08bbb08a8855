"""Defaults where Ansible does not become root: the hosts tell who logs in, through ansible-playbook and a fake ssh."""

import os

import pytest
from ansible.module_utils.trainyard.inputs import login
from ansible_run import extra
from documented import KNOWN

NAMES = [
    "trainyard_manage_system",
    "trainyard_user",
    "trainyard_uid",
    "trainyard_root",
    "trainyard_state",
    "trainyard_records",
]
DOCUMENTED = [KNOWN[name].default for name in NAMES]
STATE = "/var/tmp/trainyard"  # noqa: S108
ANN = [False, "ann", 1201, "/nfs/ann/.local/share/trainyard", f"{STATE}-ann", f"{STATE}-ann/records/localhost"]
ANSWER = "trainyard-login:ann:1201:/nfs/ann"


@pytest.fixture
def hosts(show, tmp_path):
    """Return the variables above and a list of the hosts that were visited; `answers` are shell commands by host."""
    log = tmp_path / "visits"

    def run(answers, *arguments, more=""):
        cases = "".join(f"*{host}.example*) {command};;\n" for host, command in answers.items())
        (tmp_path / "ssh").write_text(f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in\n{cases}esac\n')
        (tmp_path / "ssh").chmod(0o755)
        names = ", ".join(f"{host}: {{ansible_host: {host}.example}}" for host in answers)
        inventory = f"compute:\n  hosts: {{{names}}}\n  vars: {{ansible_ssh_executable: {tmp_path}/ssh{more}}}\n"
        seen = show(NAMES, *arguments, inventory=inventory)["localhost"]
        visits = log.read_text() if log.exists() else ""
        return [seen[name] for name in NAMES], [host for host in answers if f"{host}.example" in visits]

    return run


def test_without_root_all_belongs_to_the_login(hosts):
    """A host that hangs delays the answer by a second, and a noisy login does not hide it."""
    answers = {"n1": "exec sleep 600", "n2": "exit 255", "n3": f"echo Welcome; echo '{ANSWER}'"}
    assert hosts(answers, "-e", "trainyard_become=no") == (ANN, ["n1", "n2", "n3"])


def test_each_default_can_be_overridden_and_the_others_follow(hosts):
    given = extra("trainyard_become=false", "trainyard_user=bob", "trainyard_root=/data")
    expected = [False, "bob", 1201, "/data", f"{STATE}-bob", f"{STATE}-bob/records/localhost"]
    assert hosts({"n1": f"echo '{ANSWER}'"}, *given)[0] == expected


def test_no_host_is_asked_without_need(hosts):
    answers = {"n1": f"echo '{ANSWER}'"}
    given = extra("trainyard_become=no", "trainyard_user=u", "trainyard_uid=7", "trainyard_manage_system=no")
    assert hosts(answers) == (DOCUMENTED, [])
    expected = [False, "u", 7, "/r", f"{STATE}-u", f"{STATE}-u/records/localhost"]
    assert hosts(answers, *given, "-e", "trainyard_root=/r") == (expected, [])


def test_the_password_of_the_command_line_is_used(hosts, tmp_path):
    """As ssh does, the fake one has the program of SSH_ASKPASS tell it."""
    (tmp_path / "password").write_text("hunter2\n")
    ask = f'[ "$("$SSH_ASKPASS" "ann@n1\'s password: ")" = hunter2 ] && echo \'{ANSWER}\''
    given = ("-e", "trainyard_become=false", "--connection-password-file", str(tmp_path / "password"))
    assert hosts({"n1": ask}, *given) == (ANN, ["n1"])


def test_with_a_host_on_which_ansible_becomes_root_the_documented_defaults_hold(hosts, write):
    write({"host_vars/n2.yml": "trainyard_become: true\n"})
    answers = {"n1": f"echo '{ANSWER}'", "n2": f"echo '{ANSWER}'"}
    assert hosts(answers, more=", trainyard_become: false") == (DOCUMENTED, [])


def test_root_who_logs_in_keeps_the_documented_defaults(hosts):
    assert hosts({"n1": "echo trainyard-login:root:0:/root"}, "-e", "trainyard_become=no")[0] == DOCUMENTED


def test_without_an_answer_the_login_is_the_one_that_ansible_tries(hosts):
    """So the playbook reports why there is no answer. The text of a host is no template."""
    answers = {"n1": "exit 255", "n2": "echo 'trainyard-login:ann:1201:/{{ 7 * 6 }}'"}
    seen, visited = hosts(answers, "-e", "trainyard_become=no", more=", ansible_user: carol")
    assert seen[1:4] == ["carol", DOCUMENTED[2], "/home/carol/.local/share/trainyard"] and visited == ["n1", "n2"]


def test_a_local_host_is_not_visited(show, tmp_path):
    inventory = "compute: {hosts: {n1: {ansible_connection: local}}}\n"
    given = extra("trainyard_become=no", "trainyard_manage_system=no")
    seen = show(NAMES, *given, inventory=inventory, HOME=str(tmp_path))["localhost"]
    assert (seen["trainyard_uid"], seen["trainyard_root"]) == (os.getuid(), f"{tmp_path}/.local/share/trainyard")


@pytest.mark.parametrize("printed", ["", "ann:1:/h", "trainyard-login:a b:1:/h", "trainyard-login:ann:x:/h",
                                     "trainyard-login:ann:1:h", "trainyard-login:ann:1:/h{%"])  # fmt: skip
def test_what_is_no_login_is_no_answer(printed):
    assert login.read(printed) is None


def test_the_query_is_for_any_login_shell():
    assert not set("!\n'") & set(login.QUERY)
    assert login.read(f"hello\r\n{ANSWER}\r\n") == ("ann", 1201, "/nfs/ann")
    assert login.read("trainyard-login:CORP\\ann:1:/\n") == ("CORP\\ann", 1, "")
