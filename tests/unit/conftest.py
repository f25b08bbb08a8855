"""Import the project's modules and module_utils as Ansible does."""

import os
import sys
from pathlib import Path

import ansible.module_utils
import pytest
import untimed  # noqa: F401
from actions import act, controller  # noqa: F401
from device_readings import reading  # noqa: F401

PROJECT = Path(__file__).resolve().parents[2]

ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.insert(0, str(PROJECT / "library"))


@pytest.fixture(autouse=True)
def no_controller():
    """Say which test makes its process a controller, where modules send their warnings elsewhere for good.

    Tests run side by side in any order: it would be others that fail, and not always.
    """
    yield
    assert "ansible.utils.display" not in sys.modules, "imports Ansible's controller: do that in a process of its own"


def pytest_collection_modifyitems(config, items):
    # Counted as deselected, as in molecule/conftest.py.
    outside = ["mirrors"] * bool(os.environ.get("BUNDLE")) + ["long"] * (os.environ.get("TRAINYARD_TESTS") != "all")
    left = [item for item in items if any(map(item.get_closest_marker, outside))]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
