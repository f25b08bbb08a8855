"""Action plugins that touch no machine, as Ansible's controller runs them."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def plugin_class(action):
    spec = importlib.util.spec_from_file_location(action, PROJECT / f"plugins/action/{action}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ActionModule


def answered(action, check, given):
    """Check the options and answer, in a process that is a controller for good once it has imported this."""
    from ansible.errors import AnsibleError
    from ansible.module_utils.trainyard.base.findings import UnusableError

    plugin = object.__new__(plugin_class(action))
    plugin._task, plugin._load_name = SimpleNamespace(args=given, check_mode=check), action
    plugin.task_vars = {}
    try:
        return {"changed": False, **plugin.answer(plugin.options())}
    except (AnsibleError, UnusableError) as error:
        return {"failed": True, "msg": str(error)}


def options_of(action):
    from ansible.module_utils.trainyard_controller.ansible.action_plugin import documented_options

    return documented_options(action)


def steps_of(action):
    """Return the options of each step of an action; {} of an action without steps."""
    from ansible.module_utils.trainyard_controller.ansible.action_plugin import Steps, documented_options, step_options

    plugin, documented = plugin_class(action), documented_options(action)
    steps = documented["step"]["choices"] if issubclass(plugin, Steps) else ()
    return {step: step_options(plugin, step, documented) for step in steps}


@pytest.fixture(scope="session")
def controller():
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        yield process


@pytest.fixture(scope="session")
def act(controller):
    """Return what an action plugin answers; keywords are its options."""
    return lambda action, /, check=False, **given: controller.submit(answered, action, check, given).result()
