"""Causes for hosts without an answer, from real results of Ansible (tests/fixtures/answers)."""

import json
import re
import sys

import pytest
from ansible.module_utils.trainyard.base.findings import render
from ansible.module_utils.trainyard.cluster.unreachable import UNREADABLE, cause, no_answers, reason
from ansible_run import PROJECT, run_ansible

CAPTURED = json.loads((PROJECT / "tests/fixtures/answers/ansible-2.19.json").read_text())["answers"]
WITHOUT = "install it or set trainyard_become: false"
ALLOW = "allow sudo for the connecting user, or set trainyard_become: false"
STRICT = "No ED25519 host key is known and you have requested strict checking. Host key verification failed."
CAUSES = {
    "no sudo": ("become", "no sudo here", WITHOUT),
    "local connection, no sudo": ("become", "no sudo here", WITHOUT),
    "local connection, no sudo by its path": ("become", "no sudo here", WITHOUT),
    "no doas": ("become", "no doas here", WITHOUT),
    "sudo wants a password": ("become", "sudo requires a password", "give the password with -K"),
    "wrong password": ("become", "the password for sudo is wrong", "correct it (-K)"),
    "wrong su password": ("become", "the password for su is wrong", "correct it (-K)"),
    "not in sudoers": ("become", "plain is not in the sudoers file.", ALLOW),
    "no such user": ("become", "sudo: unknown user nosuchuser", ALLOW),
    "name unknown": ("reach", "ssh: Could not resolve hostname: Name or service not known", ""),
    "port refused": ("reach", "ssh: connect to port 9: Connection refused", ""),
    "no route": ("reach", "ssh: connect to port 22: No route to host", ""),
    "key refused": ("reach", "noaccess: Permission denied (publickey).", "set ansible_user and ansible_ssh_private"),
    "host key unknown": ("reach", STRICT, "log in once: ssh 10.84.0.12; compare"),
    "profile that ends": ("answer", "This account is currently not available. (exit status 1)", ""),
}
ONLY_MODULES = {
    "no Python": ("Python", "no /usr/bin/python9"),
    "banner with a brace": ("login", "it prints before the answer: {maintenance: tonight}"),
}
ADDRESS = {"name unknown": "gone.invalid", "no route": "10.84.0.99", "host key unknown": "10.84.0.12"}
PYENV = "pyenv: python3.13: command not found\n\nThe `python3.13' command exists in\n  3.13.0\n"


@pytest.mark.parametrize("kind", ["module", "raw"])
@pytest.mark.parametrize("name", CAUSES)
def test_real_results_become_a_cause(name, kind):
    check, found, action = CAUSES[name]
    why = cause(CAPTURED[name][kind], ADDRESS.get(name, "10.84.0.11"))
    assert (why.check, why.found) == (check, found)
    assert why.action.startswith(action)


@pytest.mark.parametrize("name", ONLY_MODULES)
def test_causes_that_affect_only_modules(name):
    why = cause(CAPTURED[name]["module"])
    assert (why.check, why.found) == ONLY_MODULES[name]
    assert cause(CAPTURED[name]["raw"]) is None


def test_every_captured_result_is_tested():
    assert set(CAPTURED) == {*CAUSES, *ONLY_MODULES, "fine", "banner without a brace"}


@pytest.mark.parametrize(
    "answer",
    [
        CAPTURED["fine"]["module"],
        CAPTURED["fine"]["raw"],
        CAPTURED["banner without a brace"]["module"],
        {},
        # A command that a module ran, and a module's own message.
        {"cmd": "sudo x", "rc": 127, "msg": "non-zero return code", "stderr": "/bin/sh: 1: sudo: not found"},
        {"msg": "sudo: not found"},
    ],
)
def test_results_of_modules_have_no_such_cause(answer):
    assert cause(answer) is None


def test_an_old_python_is_the_cause():
    text = "ansible-core requires a minimum of Python version 3.9. Current version: 3.7.3 (default, x)"
    assert cause({"msg": text, "rc": 1}).found == "Python 3.7.3"


def test_a_python_before_3_7_is_found_in_the_wrappers_traceback_only():
    output = '  File "<stdin>", line 3\nSyntaxError: future feature annotations is not defined\n'
    found = cause({"msg": f"{UNREADABLE}: No start of json char found", "module_stderr": output, "rc": 1})
    assert (found.check, found.found, found.expected) == ("Python", "a Python before 3.7", "Python 3.9 or newer")
    assert "name that in ansible_python_interpreter" in found.action
    assert cause({"msg": "pip failed", "cmd": ["pip"], "stderr": output, "rc": 1}) is None


@pytest.mark.parametrize(
    ("stderr", "rc", "check", "found"),
    [
        (PYENV, 1, "Python", "pyenv: python3.13: command not found"),
        ("Traceback:\n  x\nImportError: no module zlib\n", 1, "answer", "ImportError: no module zlib (exit status 1)"),
        ("", 137, "answer", "no output (exit status 137)"),
    ],
)
def test_a_broken_python_is_the_cause(stderr, rc, check, found):
    text = "Module result deserialization failed: No start of json char found"
    why = cause({"msg": text, "rc": rc, "module_stderr": stderr, "module_stdout": ""})
    assert (why.check, why.found) == (check, found)


JUMP = "Connection closed by UNKNOWN port 65535"


@pytest.mark.parametrize(
    ("message", "expected", "action"),
    [
        ("Host key verification failed.", "a host key that the controller knows", "log in once: ssh 10.0.0.1; "),
        (f"Host key verification failed.\r\n{JUMP}", "a host key", "log in once: ssh JUMP_HOST; "),
        (STRICT.replace("known", "known for [10.0.0.1]:2222"), "a host key", "log in once: ssh -p 2222 10.0.0.1; "),
        (STRICT.replace("known", "known for -oProxyCommand=x"), "a host key", "log in once: ssh HOST; "),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "the host key that the",
         "if the host was installed anew: ssh-keygen -R 10.0.0.1, then log in once: ssh 10.0.0.1"),
        ("bob@10.0.0.1: Permission denied (publickey,password).", "a key that the host accepts",
         "set ansible_user and ansible_ssh_private_key_file, or bring the key there: ssh-copy-id USER@10.0.0.1"),
        (f"bob@10.0.0.9: Permission denied (publickey).\n{JUMP}", "a key that the host accepts",
         "set ansible_user and ansible_ssh_private_key_file, or bring the key there: ssh-copy-id USER@10.0.0.9"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures", "a key", "set ansible_ssh_"),
        ("Invalid/incorrect password: Permission denied, please try again.", "the password of the", "correct it (-k"),
        (f"ssh: connect to host 10.0.0.9 port 22: Connection timed out\r\n{JUMP}", "a jump host that answers",
         "log in there once by itself, and check ProxyJump in ansible_ssh_common_args"),
        (f"channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n{JUMP}",
         "a node that the jump host reaches", "check ansible_host and ansible_port"),
        ("Connection closed by 10.0.0.1 port 22", "a node that answers over ssh", "repair it, or leave it out"),
    ],
)  # fmt: skip
def test_a_failure_of_ssh_says_what_to_do(message, expected, action):
    answer = {"unreachable": True, "msg": f"Failed to connect to the host via ssh: {message}"}
    found, other = no_answers({"n1": answer, "n2": answer}, {"n1": "10.0.0.1", "n2": "10.0.0.2"})
    assert found.expected.startswith(expected) and found.action.startswith(action)
    # Hosts with one cause are one block; it names the first of them.
    assert (found.check, found.action, other.host) == ("reach", other.action, "n2")


def test_a_password_without_sshpass_is_a_cause():
    text = "Task failed: to use the password_mechanism=sshpass, you must install the sshpass program"
    assert cause({"msg": text}).found == "a password for ssh, and no sshpass on the controller"


def test_the_reason_is_one_line_with_the_action():
    assert reason(CAPTURED["no sudo"]["module"]) == f"become: no sudo here; {WITHOUT}"
    assert reason({"msg": "no space\nleft"}) == "no space left"
    assert reason({}) == ""


def test_hosts_with_one_cause_share_one_block():
    def refused(host):
        message = f"Failed to connect to the host via ssh: ssh: connect to host {host} port 22: Connection refused"
        return {"unreachable": True, "msg": message}

    hosts = {f"gpu{number:04d}": f"192.0.{number // 250}.{number % 250 + 1}" for number in range(1000)}
    answers = {host: refused(address) for host, address in hosts.items()}
    answers["gpu0500"] = CAPTURED["no sudo"]["module"]
    text = render(no_answers(answers, hosts), "{count} {findings}:")
    blocks = [line for line in text.splitlines() if line.startswith(("  1.", "  2.", "  3."))]
    assert blocks == ["  1. reach on gpu0000 to gpu0499, gpu0501 to gpu0999", "  2. become on gpu0500"]
    assert "found     ssh: connect to port 22: Connection refused\n" in text


def playbook(name, inventory, tmp_path, *options):
    """Run a playbook of the project on a composed inventory."""
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(inventory))
    options = ["-i", str(path), "-e", f"trainyard_runs={tmp_path}/runs", *options]
    return run_ansible("ansible-playbook", str(PROJECT / name), *options)


@pytest.fixture
def silent_hosts(tmp_path):
    loud = tmp_path / "loud-python"
    loud.write_text(f"#!/bin/sh\necho '{{maintenance: tonight}}'\nexec {sys.executable} \"$@\"\n")
    loud.chmod(0o755)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "trainyard_become": False}
    escalate = {"trainyard_become": True, "ansible_become_exe": "/proc/nowhere/sudo", "ansible_become_user": "nobody"}
    hosts = {
        **{f"gpu{number}": {**here, **escalate} for number in range(1, 5)},
        "loud": {**here, "ansible_python_interpreter": str(loud)},
        "bare": {**here, "ansible_python_interpreter": "/proc/nowhere/python3"},
    }
    state = {"trainyard_state": f"{tmp_path}/state", "trainyard_root": f"{tmp_path}/root", "trainyard_user": "root"}
    return {"compute": {"hosts": hosts, "vars": {**state, "trainyard_manage_system": False}}}


BLOCKS = [
    "become on gpu1 to gpu4 found no sudo here",
    "Python on bare found no /proc/nowhere/python3",
    "login on loud found it prints before the answer: {maintenance: tonight}",
]


@pytest.mark.parametrize("name", ["launch.yml", "playbooks/provision.yml"])
def test_a_playbook_reports_all_causes_at_once(silent_hosts, tmp_path, name):
    job = tmp_path / "job.yml"
    job.write_text("{job_name: x, job_launcher: direct, job_command: [python3, x.py], job_ranks_per_node: 1}")
    options = ["-e", f"@{job}"] if name == "launch.yml" else []
    run = playbook(name, silent_hosts, tmp_path, *options)
    assert run.rc == 2 and [run.text.count(block) for block in BLOCKS] == [1, 1, 1], run.output
    assert not re.search("deserialization|Premature|fatal", run.output), run.output
