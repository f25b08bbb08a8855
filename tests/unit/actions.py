"""Action plugins that touch no machine, as Ansible's controller runs them."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def answered(action, check, given):
    """Check the options and answer, in a process that is a controller for good once it has imported this."""
    from ansible.errors import AnsibleError
    from ansible.module_utils.trainyard.findings.findings import UnusableError

    spec = importlib.util.spec_from_file_location(action, PROJECT / f"plugins/action/{action}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin = object.__new__(module.ActionModule)
    plugin._task, plugin._load_name = SimpleNamespace(args=given, check_mode=check), action
    try:
        return {"changed": False, **plugin.answer(plugin.options())}
    except (AnsibleError, UnusableError) as error:
        return {"failed": True, "msg": str(error)}


def options_of(action):
    from ansible.module_utils.trainyard_controller.action_plugin import documented_options

    return documented_options(action)


@pytest.fixture(scope="session")
def controller():
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        yield process


@pytest.fixture(scope="session")
def act(controller):
    """Return what an action plugin answers; keywords are its options."""
    return lambda action, /, check=False, **given: controller.submit(answered, action, check, given).result()
