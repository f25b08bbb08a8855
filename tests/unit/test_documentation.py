"""Documentation of modules: options as they are, examples that parse, results, attributes."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from actions import options_of, steps_of
from ansible.module_utils.basic import FILE_COMMON_ARGUMENTS
from ansible.module_utils.testing import patch_module_args

PROJECT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (PROJECT / "library").glob("*.py"))
# Their options are read by the action plugin of that name; the module only documents them.
TEXTS = {name: (PROJECT / "library" / f"{name}.py").read_text() for name in MODULES}
ACTIONS = {name for name, text in TEXTS.items() if "AnsibleModule(" not in text}
STEPS = sorted(name for name, text in TEXTS.items() if "options_of_step(" in text)


def ansible_doc(*arguments):
    """What ansible-doc shows, by name."""
    program = str(Path(sys.executable).with_name("ansible-doc"))
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        [program, "--json", *arguments], cwd=PROJECT, env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def shown():
    """What ansible-doc shows of every module, with what comes from plugins/doc_fragments."""
    return {name: entry["doc"] for name, entry in ansible_doc("-t", "module", "-M", "library", *MODULES).items()}


@pytest.fixture(params=MODULES)
def module(request):
    return importlib.import_module(request.param)


@pytest.fixture
def specification(module, monkeypatch):
    """The arguments with which a module calls AnsibleModule."""
    spec = {}

    def record(**arguments):
        spec.update(arguments)
        raise SystemExit

    monkeypatch.setattr(module, "AnsibleModule", record)
    monkeypatch.setattr(module, "_load_params", dict, raising=False)
    monkeypatch.setattr(sys, "argv", [module.__name__])
    with pytest.raises(SystemExit):
        module.main()
    return spec


def compare(documented, spec, where):
    """Whether options and those within them are documented as they are spec for."""
    assert set(documented) == set(spec), where
    for name, option in documented.items():
        place, expected = f"{where}{name}", spec[name]
        assert option.get("description"), place
        assert option.get("type") == expected.get("type", "str"), place
        for key in ("default", "choices", "elements", "aliases"):
            documented_value, value = option.get(key), expected.get(key)
            if isinstance(value, (list, tuple)) and key == "choices":
                documented_value, value = list(documented_value or ()), list(value)
            assert documented_value == value, (place, key)
        assert bool(option.get("required")) == bool(expected.get("required")), place
        assert bool(option.get("suboptions")) == bool(expected.get("options")), place
        compare(option.get("suboptions") or {}, expected.get("options") or {}, f"{place}.")


@pytest.mark.parametrize("module", sorted(set(MODULES) - ACTIONS), indirect=True)
def test_options_are_documented_as_they_are(module, specification, shown):
    documented = shown[module.__name__]
    options = documented.get("options") or {}
    if specification.get("add_file_common_args"):
        # Ansible's own fragment `files` documents these.
        options = {name: option for name, option in options.items() if name not in FILE_COMMON_ARGUMENTS}
    compare(options, specification["argument_spec"], "")
    check_mode = documented["attributes"]["check_mode"]["support"]
    assert (check_mode != "none") == specification.get("supports_check_mode", False)


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_actions_read_their_documented_options(name, shown, controller):
    options = controller.submit(options_of, name).result()
    documented = shown[name].get("options") or {}
    assert {name: option["type"] for name, option in options.items()} == {
        name: option["type"] for name, option in documented.items()
    }


def steps_with(name, controller):
    """Return the options of each step of a module or an action; {} without steps."""
    return importlib.import_module(name).STEPS if name in STEPS else controller.submit(steps_of, name).result()


@pytest.mark.parametrize("name", [*sorted(ACTIONS), *STEPS])
def test_each_step_has_an_example_and_each_option_a_step(name, shown, controller):
    steps = steps_with(name, controller)
    if not steps:
        return
    documented = shown[name]["options"]
    assert {option for spec in steps.values() for option in spec} == documented.keys() - {"step"}
    tasks = yaml.safe_load(importlib.import_module(name).EXAMPLES)
    examples = {task[name].pop("step"): task[name] for task in tasks}
    assert examples.keys() == steps.keys()
    for step, spec in steps.items():
        required = {option for option in spec if spec[option].get("required")}
        assert required <= examples[step].keys() <= spec.keys(), step


def tasks_with(node, action):
    """Yield the arguments of all tasks with an action, at any depth."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == action and isinstance(value, dict) and "step" in value:
            yield value
        else:
            yield from tasks_with(value, action)


def valid(option):
    """Return a value that an option takes."""
    return option["choices"][0] if "choices" in option else {"dict": {}, "int": 0, "list": []}.get(option["type"], "")


@pytest.mark.parametrize("name", STEPS)
def test_a_step_names_its_options_and_rejects_others(name, shown, capsys):
    module, documented = importlib.import_module(name), shown[name]["options"]
    steps, shared = module.STEPS, set.intersection(*map(set, module.STEPS.values()))
    assert [*steps] == documented["step"]["choices"]
    for (step, spec), text in zip(steps.items(), documented["step"]["description"], strict=True):
        assert text.startswith(f"V({step}) ")
        assert set(re.findall(r"O\((\w+)\)", text)) | shared == spec.keys(), step
        for option in documented.keys() - spec.keys() - {"step"}:
            required = {each: valid(spec[each]) for each in spec if spec[each].get("required")}
            with patch_module_args({"step": step, **required, option: "x"}), pytest.raises(SystemExit):
                module.main()
            assert f" module: {option}. Supported parameters include: " in json.loads(capsys.readouterr().out)["msg"]


@pytest.mark.parametrize("name", ["drill", "job", "job_runs", "site_nodes", "site_software", "verify", *STEPS])
def test_roles_and_playbooks_call_each_step_with_its_options(name, controller):
    steps, called = steps_with(name, controller), set()
    for path in [*PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("roles/*/tasks/*.yml")]:
        for arguments in tasks_with(yaml.safe_load(path.read_text()), name):
            spec, options = steps[arguments["step"]], arguments.keys() - {"step"}
            assert {option for option in spec if spec[option].get("required")} <= options <= spec.keys(), path
            called.add(arguments["step"])
    assert called == steps.keys()


def test_a_step_names_what_is_wrong_with_its_options(act):
    given = {"run_dir": "runs/a", "path": "/a", "user": "train"}
    assert act("drill", **given)["msg"] == (
        "drill has the step None, expected one of plan, folder, watch, record, report, bisect"
    )
    assert act("drill", step="folder", **given, job={}, runs=[])["msg"] == (
        "drill, step folder: found the options job, runs, expected run_dir, path, state, user"
    )
    assert act("drill", step="folder", **given)["msg"] == ("drill, step folder: missing required arguments: state")
    assert "must be one of: present, absent, got: x" in act("drill", step="folder", **given, state="x")["msg"]


def test_a_module_is_described(module, shown):
    documented = shown[module.__name__]
    assert documented["module"] == module.__name__
    assert re.fullmatch(r"[A-Z].*[^.]", documented["short_description"])
    assert documented["description"]
    for other in documented.get("seealso", ()):
        assert other["module"] in MODULES or "." in other["module"]


def test_examples_use_the_module_with_its_options(module, shown):
    tasks = yaml.safe_load(module.EXAMPLES)
    used = [task[module.__name__] for task in tasks if module.__name__ in task]
    assert used
    options = shown[module.__name__].get("options") or {}
    for arguments in used:
        assert set(arguments or {}) <= set(options)
        missing = {name for name, option in options.items() if option.get("required")} - set(arguments or {})
        assert not missing


def test_results_are_described(module):
    results = yaml.safe_load(module.RETURN) or {}
    for name, result in results.items():
        assert {"description", "returned", "type"} <= set(result), name


def test_a_documented_action_has_a_plugin():
    assert {(PROJECT / "plugins" / "action" / f"{name}.py").is_file() for name in ACTIONS} == {True}
