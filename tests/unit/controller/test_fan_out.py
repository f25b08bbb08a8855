"""One question to many hosts: real ansible-playbook runs over connections of this machine, and hosts that misbehave.

The hosts are this machine by the connection `local`. A program in place of their Python, of sudo or of sshd misbehaves.
The simulated hosts of benchmarks/ serve where their number matters.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.cluster.unreachable import cause
from ansible.module_utils.trainyard_controller.nodes import agent_code
from job_cluster import PATIENCE_S
from plays import PROJECT, play

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
PLAY = """
- name: Ask
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Ask
      fan_out:
        question: folders
        hosts: "{{ groups['all'] | reject('eq', 'localhost') }}"
        shared: {state_dir: /proc/nowhere, of_schedulers: []}
        limit_s: "{{ limit | default(60) }}"
      become: "{{ becomes | default(false) }}"
      register: result
"""
NOTE = """
    - name: Note the result
      ansible.builtin.set_fact:
        written: "{{ lookup('pipe', 'printf %s ' ~ (result | to_json | quote) ~ ' >' ~ noted) }}"
"""


@pytest.fixture
def ask(tmp_path):
    """Play PLAY over hosts with these variables; returns the answers by host, and the text of the screen."""

    def run(hosts, *options, text=PLAY, **extra):
        noted = tmp_path / "asked.json"
        options = ("-e", json.dumps({"noted": str(noted), **extra}), *options)
        hosts = {name: {"ansible_python_interpreter": PYTHON, **variables} for name, variables in hosts.items()}
        # Shared connections have sockets there, whose path may be too long for one.
        environment = {"ANSIBLE_SSH_ARGS": "-o ControlMaster=no", "HOME": str(tmp_path)}
        if any(each.get("ansible_connection") == "nowhere" for each in hosts.values()):
            environment["ANSIBLE_CONNECTION_PLUGINS"] = str(PROJECT / "benchmarks/simulated")
        done = play(tmp_path, text + NOTE, hosts, *options, **environment)
        assert noted.exists(), done.stdout + done.stderr
        answers = json.loads(noted.read_text())["answers"]
        assert list(answers) == list(hosts)
        return answers, done.stdout + done.stderr

    return run


REFUSED = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
REFUSED_TEXT = "ssh: connect to host 127.0.0.1 port 1: Connection refused"


def program(folder, name, text):
    """An executable shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def found(answer):
    why = cause(answer)
    return why and (why.check, why.found)


def test_hosts_that_misbehave_are_answers_and_delay_nobody(ask, tmp_path):
    def by(name, text):
        return {"ansible_python_interpreter": program(tmp_path, name, text)}

    listener = socket.create_server(("127.0.0.1", 0))
    sudo = program(tmp_path, "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    hosts = {
        "well": {},
        "hangs": by("hangs", "exec sleep 600"),
        "dies": by("dies", 'cat >/dev/null; printf \'{"node": {"ho\'; exit 7'),
        "rubbish": by("rubbish", "echo hello; echo Segfault >&2; exit 139"),
        "brace": by("brace", f'echo "{{ welcome"; exec {PYTHON} "$@"'),
        "chatty": by("chatty", f'echo welcome; {PYTHON} "$@"; echo bye'),
        "without": {"ansible_python_interpreter": "/proc/nowhere/python3"},
        "refused": REFUSED,
        "no_banner": {**REFUSED, "ansible_port": listener.getsockname()[1], "ansible_ssh_common_args": "-F none"},
        "password": {"ansible_become": True, "ansible_become_user": "nobody", "ansible_become_exe": sudo},
        "no_plugin": {"ansible_connection": "pigeon"},
        # The task itself runs on localhost, by the connection local; this host has that of the play.
        "by_ssh": {
            "ansible_connection": None,
            "ansible_ssh_executable": program(tmp_path, "ssh", "echo mine >&2; exit 7"),
        },
    }
    with listener:
        answers, _ = ask({**hosts, "last": {}}, "-T", "1", limit=40)
    assert answers["well"] == answers["last"] == answers["chatty"] == {"folders": []}
    errors = {host: found(answer) for host, answer in answers.items() if "folders" not in answer}
    assert errors.pop("password") == ("become", "sudo requires a password")
    assert errors.pop("brace") == ("login", "it prints before the answer: { welcome")
    assert errors.pop("without")[0] == "Python"
    assert errors.pop("dies") == ("answer", '{"node": {"ho (exit status 7)')
    assert errors.pop("rubbish") == ("answer", "Segfault (exit status 139)")
    assert errors.pop("refused") == ("reach", REFUSED_TEXT)
    assert errors.pop("no_banner")[0] == "reach"
    assert answers["no_plugin"]["msg"].startswith("the connection plugin 'pigeon' was not found")
    assert answers["hangs"]["msg"] == "no answer within 42 s"
    assert "mine" in str(answers["by_ssh"])
    assert set(errors) == {"hangs", "no_plugin", "by_ssh"}


def test_one_dead_host_among_more_than_are_visited_at_once(ask, tmp_path):
    (tmp_path / "facts.json").write_text('{"networks": {"interfaces": []}}')
    simulated = {"ansible_connection": "nowhere", "simulated_facts": str(tmp_path / "facts.json")}
    hosts = {f"n{number}": {**simulated, "simulated_address": "10.0.0.1"} for number in range(60)}
    hosts["n57"] = REFUSED
    answers, _ = ask(hosts)
    assert [host for host, answer in answers.items() if "folders" not in answer] == ["n57"]
    assert answers["n57"]["unreachable"] is True


OF_EACH = """
- name: Ask
  hosts: all
  gather_facts: false
  vars:
    asked: {state_dir: "{{ where }}", of_schedulers: []}
    where: "{{ playbook_dir }}/{{ inventory_hostname }}/{{ ansible_play_hosts | length }}"
  tasks:
    - name: Ask each with its own variables
      fan_out:
        question: folders
        hosts: "{{ ansible_play_hosts }}"
        arguments: asked
        clock: "{{ with_clock | default(false) }}"
        required: true
      register: found
    - name: Show what came
      ansible.builtin.debug:
        msg: "{{ found.answers }}"
      run_once: true
"""


def test_arguments_are_read_for_each_host_and_a_missing_answer_may_stop_all(tmp_path):
    (tmp_path / "b/2/jobs/one").mkdir(parents=True)
    (tmp_path / "b/2/jobs/one/node_plan.json").write_text('{"job_id": "one"}')
    hosts = {name: {"ansible_python_interpreter": PYTHON} for name in ("a", "b")}

    def run(*options, **environment):
        done = play(tmp_path, OF_EACH, hosts, *options, ANSIBLE_CALLBACK_RESULT_FORMAT="json", **environment)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    status, text = run("-e", '{"ansible_python_interpreter": "/proc/nowhere/python3"}')
    assert status == 2 and "1 finding: 1. Python on a, b found no /proc/nowhere/python3" in text, text
    status, text = run("-e", "with_clock=true")
    assert status == 0 and text.count("'clock': {'offset_s': ") == 2, text
    assert re.search(r"'a': \{'folders': \[\].*'b': \{'folders': \[\{'job_id': 'one'", text), text
    program(tmp_path, "date", "echo soon")
    status, text = run("-e", "with_clock=true", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert status == 2 and "`date +%s.%N` printed 'soon" in text, text


def test_limit_leaves_out_and_check_mode_asks(ask, tmp_path):
    (tmp_path / "retry").write_text("a\nlocalhost\n")
    answers, _ = ask({"a": {}, "b": {}, "c": {}}, "--limit", f"@{tmp_path}/retry,c", "--check")
    assert answers == {"a": {"folders": []}, "b": {}, "c": {"folders": []}}


def test_become_follows_inventory_and_task(ask, tmp_path):
    text = f'echo became >> {tmp_path}/became; while [ "$1" != -u ]; do shift; done; shift 2; exec "$@"'
    sudo = program(tmp_path, "sudo", text)
    vars_ = {"ansible_become_exe": sudo, "ansible_become_user": "nobody"}
    hosts = {"by_task": vars_, "never": {**vars_, "ansible_become": False}}
    unasked = f"""
    - name: Compare who became another user
      ansible.builtin.assert: {{that: "'{tmp_path}/became' is not exists"}}
"""
    answers, _ = ask(hosts, text=PLAY.replace("{{ becomes | default(false) }}", "false") + unasked + PLAY, becomes=True)
    assert [answer.get("folders") for answer in answers.values()] == [[], []]
    # Twice where the agent has to be brought.
    assert (tmp_path / "became").read_text() in ("became\n", "became\n" * 2)


def test_templates_and_a_password_of_the_command_line_hold(ask, tmp_path):
    """A fake sudo that asks, as the real one does, and notes the password."""
    text = f"""
while [ "$1" != -u ]; do case "$1" in -p) prompt=$2; shift;; esac; shift; done; shift 2
printf '%s' "$prompt" >&2; read -r word; echo "$word" > {tmp_path}/word
[ "$word" = hunter2 ] || {{ echo 'sudo: 1 incorrect password attempt' >&2; exit 1; }}
exec "$@"
"""
    variables = {"ansible_become_exe": "{{ tool }}", "ansible_become_user": "nobody"}
    variables["tool"] = program(tmp_path, "sudo", text)
    (tmp_path / "password").write_text("hunter2\n")
    answers, screen = ask({"a": variables}, "--become-password-file", str(tmp_path / "password"), becomes=True)
    assert answers == {"a": {"folders": []}} and (tmp_path / "word").read_text() == "hunter2\n"
    assert "hunter2" not in screen


def test_the_agent_is_complete_and_needs_nothing_but_python(tmp_path):
    """All modules that any question imports, on a Python without site packages and without the project."""
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as archive:
        archive.writestr("agent/__init__.py", "")
        for path, content in agent_code.modules().items():
            archive.writestr(path, content)
    paths = [path for path in agent_code.modules() if not path.endswith("__init__.py")]
    names = [path.removesuffix(".py").replace("/", ".") for path in paths]
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'agent.zip')!r})\nimport " + ", ".join(names)
    done = subprocess.run([PYTHON, "-IS", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "agent.trainyard_node.job.run.job_folder" in names and "agent.trainyard.job.placement.placement" not in names


def bootstrap(home, message):
    argv = ["/bin/sh", "-c", agent_code.command(("/proc/nowhere/python3", PYTHON))]
    env = {"HOME": str(home), "PATH": os.defpath}
    done = subprocess.run(argv, input=message, capture_output=True, check=False, env=env)
    return agent_code.read("mark", done.stdout)[0]


SHARED = json.dumps({"state_dir": "/proc/nowhere", "of_schedulers": []}).encode()


def test_a_node_keeps_the_agent_and_says_when_it_lacks_it(tmp_path, monkeypatch):
    home = agent_home(tmp_path)
    named = f"test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setattr(agent_code, "digest", lambda: named)

    def ask(with_agent):
        return bootstrap(tmp_path, agent_code.message("mark", "folders", SHARED, {}, 30, with_agent))

    try:
        assert ask(False) == {"agent_missing": True}
        assert ask(True) == {"folders": []}
        stored = home / named
        assert (stored.stat().st_mode & 0o777, stored.stat().st_uid) == (0o700, os.geteuid())
        assert ask(False) == {"folders": []}
        # An agent that others may write is not run, and a broken one is requested again.
        stored.chmod(0o777)
        assert ask(False) == {"agent_missing": True}
        stored.chmod(0o700)
        (stored / "agent" / "trainyard_node" / "agent.py").unlink()
        assert ask(False) == {"agent_missing": True} and not stored.exists()
    finally:
        shutil.rmtree(home / named, ignore_errors=True)


def test_only_agents_that_nobody_uses_are_removed(tmp_path, monkeypatch, request):
    # As an ordinary user, whose folder others use, too.
    ordinary = agent_code._BOOTSTRAP.replace("os.geteuid() == 0 else", "False else")
    assert ordinary != agent_code._BOOTSTRAP
    monkeypatch.setattr(agent_code, "_BOOTSTRAP", ordinary)
    agent_code.command.cache_clear()
    request.addfinalizer(agent_code.command.cache_clear)
    folders = {name: tmp_path / ".cache/trainyard" / name for name in ("a" * 64, "b" * 64, "new-x", "images", "digits")}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        if name[0] != "b":
            os.utime(folder, (0, 0))
    assert bootstrap(tmp_path, agent_code.message("mark", "folders", SHARED, {}, 30, True)) == {"folders": []}
    assert {name for name, folder in folders.items() if folder.exists()} == {"b" * 64, "images", "digits"}


def agent_home(tmp_path):
    return Path("/var/cache/trainyard") if os.geteuid() == 0 else tmp_path / ".cache" / "trainyard"


def test_a_question_that_fails_or_takes_too_long_has_a_message(tmp_path):
    answer = bootstrap(tmp_path, agent_code.message("mark", "folders", b"{}", {}, 30, True))
    assert answer["failed"] is True and answer["msg"].startswith("TypeError: folders() missing") and answer["exception"]
    job = {"job_id": "x", "job_dir": str(tmp_path / "x"), "wait_s": 60}
    (tmp_path / "x").mkdir()
    pid = os.getpid()
    from ansible.module_utils.trainyard_node.job.run.ranks import process_table

    (tmp_path / "x" / "monitor.json").write_text(json.dumps({"pid": pid, "start_time": process_table.start_time(pid)}))
    answer = bootstrap(tmp_path, agent_code.message("mark", "state", b"{}", job, 0.5, True))
    assert answer == {"failed": True, "msg": "no answer within 0.5 s"}


def test_a_python_that_is_too_old_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_code, "OLDEST_PYTHON", (9, 0))
    answer = bootstrap(tmp_path, agent_code.message("mark", "folders", SHARED, {}, 30, False))
    check, text = found(answer)
    assert check == "Python" and text.startswith("Python 3.")


def test_thousands_of_hosts_hold_one_command():
    pythons = ["python3", "/usr/bin/python3"]
    assert agent_code.command(tuple(pythons)) is agent_code.command(tuple(pythons))


def test_any_login_shell_takes_the_command():
    """In csh, quotes hold no newline and no `!`."""
    assert not {"\n", "!"} & set(agent_code.command(("python3", "/usr/bin/python3")))


def test_secrets_are_in_no_argument_list():
    command = agent_code.command(("python3",))
    assert "hunter2" in agent_code.message("m", "start", b"{}", {"token": "hunter2"}, 1, False).decode()
    assert "hunter2" not in command and len(command) < 20_000


@pytest.fixture
def side_by_side():
    """In a process of its own, as it belongs to the controller: hosts by what they do, window, limit; the answers."""

    def run(hosts, window, limit_s):
        code = f"""
import os, sys, time, json, subprocess, threading, dataclasses
import ansible.module_utils
ansible.module_utils.__path__.append({str(PROJECT / "module_utils")!r})
from ansible.module_utils.trainyard_controller.nodes import fan_out
@dataclasses.dataclass
class Host:
    name: str
does = json.loads(sys.argv[1])
at_once, most, lock = 0, 0, threading.Lock()
def visit(host):
    global at_once, most
    with lock:
        at_once += 1
        most = max(most, at_once)
    if does[host.name] == "hang":
        subprocess.run(["sh", "-c", "sleep 600; true"])
    if does[host.name] == "stuck":
        time.sleep(600)
    if does[host.name] == "raise":
        raise ValueError("broken plugin")
    time.sleep(0.01)
    with lock:
        at_once -= 1
    return {{"unreachable": True}} if does[host.name] == "gone" else {{"well": host.name}}
shown = []
fan_out.display.display = shown.append
fan_out._PROGRESS_S = -1.0
hosts, window, limit_s = [Host(name) for name in does], int(sys.argv[2]), float(sys.argv[3])
answers = fan_out.side_by_side(hosts, visit, window, limit_s, "reading")
left = subprocess.run(["pgrep", "-P", str(os.getpid()), "sleep"], capture_output=True, text=True).stdout
print(json.dumps([answers, most, left, shown]), flush=True)
os._exit(0)
"""
        argv = [sys.executable, "-c", code, json.dumps(hosts), str(window), str(limit_s)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        return json.loads(done.stdout)

    return run


def test_hosts_that_never_come_back_take_nobodys_place(side_by_side):
    """More of them than there are places at once: the others are visited all the same."""
    bad = {"h1": "hang", "s1": "stuck", "h2": "hang", "s2": "stuck", "r": "raise"}
    answers, _, left, _ = side_by_side({**bad, **{f"n{number}": "well" for number in range(20)}}, 2, 4.0)
    assert all(answers[f"n{number}"] == {"well": f"n{number}"} for number in range(20))
    assert all(answers[host]["msg"] == "no answer within 4 s" for host in ("h1", "s1", "h2", "s2"))
    assert answers["r"] == {"failed": True, "msg": "ValueError: broken plugin"}
    assert left == ""


def test_no_more_are_visited_at_once_than_there_are_forks(side_by_side):
    answers, most, _, shown = side_by_side({f"n{number}": "well" for number in range(40)}, 4, 300.0)
    assert len(answers) == 40 and 2 <= most <= 4
    assert shown[-1] == "  reading: 40 of 40 nodes have answered"


def test_progress_distinguishes_hosts_with_and_without_answer(side_by_side):
    """The end of a visit is no answer, but an error that a node reports is one."""
    *_, shown = side_by_side({"n1": "well", "n2": "gone", "n3": "hang", "n4": "raise", "n5": "gone"}, 5, 5.0)
    # One line while n3 hangs, although it takes longer than the others.
    assert shown[-2:] == [
        "  reading: 2 of 5 nodes have answered, 2 gave no answer; waiting for n3",
        "  reading: 2 of 5 nodes have answered, 3 gave no answer",
    ]
    assert len(set(shown)) == len(shown)


def test_a_second_visit_of_a_step_has_another_name():
    """Otherwise a count of nodes that have answered would go back."""
    code = f"""
import ansible.module_utils
ansible.module_utils.__path__.append({str(PROJECT / "module_utils")!r})
from ansible.module_utils.trainyard_controller.nodes.fan_out import FanOut
nodes = FanOut(None, {{}})
print([nodes.named(step) for step in ("start", "start", "collect", None, None, "start")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['start', 'start, visit 2', 'collect', None, None, 'start, visit 3']"
