# SPDX-License-Identifier: Apache-2.0
"""Where this project's files lie: in a checkout, or in the collection that `make collection` builds of it."""

from __future__ import annotations

from pathlib import Path

from ...trainyard.base.adhoc import COLLECTION

ROOT = Path(__file__).resolve().parents[4 if COLLECTION else 3]
# The folder of the modules and of their documentation.
MODULES = ROOT / ("plugins/modules" if COLLECTION else "library")


def short(name: str) -> str:
    """Return the name of a plugin or module without the collection's."""
    return name.rpartition(".")[2]
