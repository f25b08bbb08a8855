"""Lets unit tests import the project's modules and module_utils the way Ansible does; whole texts in files."""

import importlib.util
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import ansible.module_utils
import pytest
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests/fixtures/golden"

ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.insert(0, str(PROJECT / "library"))

# A busy machine is no fault of the code: hypothesis must not judge by time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def no_controller():
    """Say which test makes its process a controller, where modules send their warnings elsewhere for good.

    Tests run side by side in any order: it would be others that fail, and not always.
    """
    yield
    assert "ansible.utils.display" not in sys.modules, "imports Ansible's controller: do that in a process of its own"


def pytest_addoption(parser):
    parser.addoption(
        "--golden", action="store_true", help="write the files of tests/fixtures/golden anew (make golden)"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("golden"):
        if os.environ.get("CI") == "true":
            raise pytest.UsageError("--golden would pass whatever the texts are: renew them, review them, commit them")
        items[:] = [item for item in items if "golden" in item.fixturenames]


@pytest.fixture
def golden(request):
    """Hold a text, or data as JSON, against its file in tests/fixtures/golden, which was reviewed by eye."""

    def hold(shown, name):
        text = shown if isinstance(shown, str) else json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
        path = GOLDEN / name
        if request.config.getoption("golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no {path}: make golden writes it"
        assert text == path.read_text(), f"is it meant? Then make golden, and review {path.relative_to(PROJECT)}"

    return hold


def answered(action, check, given):
    """Check the options and answer, in a process that is a controller for good once it has imported this."""
    from ansible.errors import AnsibleError
    from ansible.module_utils.trainyard.record.findings import UnusableError

    spec = importlib.util.spec_from_file_location(action, PROJECT / f"plugins/action/{action}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin = object.__new__(module.ActionModule)
    plugin._task, plugin._load_name = SimpleNamespace(args=given, check_mode=check), action
    try:
        return {"changed": False, **plugin.answer(plugin.validate_argument_spec(dict(plugin.spec), **plugin.rules)[1])}
    except (AnsibleError, UnusableError) as error:
        return {"failed": True, "msg": str(error)}


@pytest.fixture(scope="session")
def act():
    """Return what an action plugin answers; keywords are its options."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        yield lambda action, /, check=False, **given: process.submit(answered, action, check, given).result()
