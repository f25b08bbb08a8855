"""Lets unit tests import the project's modules and module_utils the way Ansible does."""

import sys
from pathlib import Path

import ansible.module_utils
import pytest
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parents[2]

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
