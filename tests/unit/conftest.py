"""Lets unit tests import the project's modules and module_utils the way Ansible does."""

import sys
from pathlib import Path

import ansible.module_utils
from hypothesis import HealthCheck, settings

PROJECT = Path(__file__).resolve().parents[2]

ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.insert(0, str(PROJECT / "library"))

# A busy machine is no fault of the code: hypothesis must not judge by time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
