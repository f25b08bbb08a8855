"""Every program whose output is read prints English, whatever the language of the node or of the controller."""

import ast
import subprocess
from pathlib import Path

import yaml
from ansible.module_utils.trainyard_node.machine import commands, programs

PROJECT = Path(__file__).resolve().parents[2]
CODE = [file for folder in ("module_utils", "library", "plugins") for file in sorted((PROJECT / folder).rglob("*.py"))]
TASKS = [
    *PROJECT.glob("*.yml"), *PROJECT.glob("playbooks/**/*.yml"), *PROJECT.glob("roles/*/tasks/*.yml"),
    *PROJECT.glob("roles/*/handlers/*.yml"),
]  # fmt: skip
STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.check_output", "module.run_command"}
# What has its environment from elsewhere, or is not read: a rank, a receiver of events, a monitor, and its own program.
OTHERS = {
    "trainyard_node/cluster/ssh_logins.py": {"try_login": "as_user"},
    "trainyard_node/job/plan/image_fetch.py": dict.fromkeys(
        ("_store", "_run", "_pull", "_copy"), "image_inspection.settings"
    ),
    "trainyard_node/job/plan/image_inspection.py": {"inside": "settings"},
    "trainyard_node/job/plan/import_check.py": {"_printed": "its callers"},
    "trainyard_node/job/record/event_sender.py": {"start": "a receiver"},
    "trainyard_node/job/run/ranks/container.py": {"_quietly": "program_environment"},
    # A command of mpirun's own, as ssh would run it.
    "trainyard_node/job/run/ranks/daemons.py": {"_start": "base_env"},
    "trainyard_node/job/run/job_life.py": {"_start_monitor": "our monitor"},
    "trainyard_node/nvidia/cuda_test_program.py": {"_run": "as_user"},
    "openmpi.py": {"start": "as_user"},
}


def reads(call):
    """Return whether a call that starts a program reads what it prints, or may do so by options from elsewhere."""
    if ast.unparse(call.func) == "module.run_command":
        return True
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    pipes = {given.get(name, "subprocess.DEVNULL") for name in ("stdout", "stderr")} - {"subprocess.DEVNULL"}
    return bool(pipes) or "capture_output" in given or None in given


def unsure(file):
    """Return the functions of a file that read a program's output and choose no language."""
    text, found = file.read_text(), set()
    if "subprocess" not in text and "run_command" not in text:
        return found
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) not in STARTS or not reads(call):
            continue
        around = [each for each in functions if each.lineno <= call.lineno <= each.end_lineno]
        inner = max(around, key=lambda each: each.lineno)
        if not any(word in ast.unparse(inner) for word in ("LC_ALL", "english(")):
            found.add(inner.name)
    return found


def test_code_that_reads_a_program_has_it_print_english():
    found = {file: unsure(file) for file in CODE}
    named = {file.relative_to(PROJECT).as_posix().partition("/")[2]: names for file, names in found.items() if names}
    # Nothing is listed without a need.
    assert named == {path: set(names) for path, names in OTHERS.items()}


def tasks_of(items, environment=()):
    for task in items or ():
        if not isinstance(task, dict):
            continue
        own = task.get("environment")
        around = {*environment, *(own if isinstance(own, dict) else ())}
        yield task, around
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_of(task.get(key), around)


class Loader(yaml.SafeLoader):
    """Read files with Ansible's own tags."""


Loader.add_multi_constructor("!", lambda *_: None)
RUNS = {f"ansible.builtin.{name}" for name in ("command", "shell", "raw", "script")}


def test_a_task_that_reads_a_program_has_it_print_english():
    contents = {file: yaml.load(file.read_text(), Loader) for file in TASKS}  # noqa: S506 - a safe loader
    german = [
        (file, task.get("name"))
        for file, content in contents.items()
        for task, environment in tasks_of(content if isinstance(content, list) else ())
        for name in RUNS & task.keys()
        if "register" in task and "LC_ALL" not in environment and "LC_ALL=C" not in str(task[name])
    ]
    assert german == []


def test_commands_speak_english_where_the_caller_speaks_another_language(monkeypatch):
    """LANGUAGE goes before LC_ALL=C.UTF-8 in glibc."""
    for name in ("LC_ALL", "LANG", "LANGUAGE", "LC_MESSAGES"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    show = ["sh", "-c", "echo $LC_ALL,$LANGUAGE,$MINE"]
    assert commands.run(show).output == "C.UTF-8,,\n"
    assert commands.run(show, env={"MINE": "1", "LC_ALL": "de_DE"}).output == "C.UTF-8,,1\n"
    assert subprocess.run(show, env=programs.english(), capture_output=True, check=True).stdout == b"C.UTF-8,,\n"
