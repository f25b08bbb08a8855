"""Tests that attack: what a node, a local user or a job may plant. They import as the unit tests do."""

import sys
from pathlib import Path

import ansible.module_utils

PROJECT = Path(__file__).resolve().parents[2]

if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
if str(PROJECT / "library") not in sys.path:
    sys.path.insert(0, str(PROJECT / "library"))
