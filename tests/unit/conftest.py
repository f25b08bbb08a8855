"""Import the project's modules and module_utils as Ansible does; compare texts with files."""

import json
import os
import sys
from pathlib import Path

import ansible.module_utils
import pytest
import untimed  # noqa: F401
from actions import act, controller  # noqa: F401
from device_readings import reading  # noqa: F401

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = PROJECT / "tests/fixtures/golden"

ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.insert(0, str(PROJECT / "library"))


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
    # Counted as deselected, as in molecule/conftest.py.
    left = [item for item in items if os.environ.get("BUNDLE") and item.get_closest_marker("mirrors")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
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
