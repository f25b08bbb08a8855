# SPDX-License-Identifier: Apache-2.0
"""Where this project's files lie: in a checkout, or in the collection that `make collection` builds of it."""

from __future__ import annotations

from pathlib import Path

# `trainyard.cluster` in the collection, "" in a checkout.
COLLECTION = ".".join(__name__.split(".")[1:3]) if __name__.startswith("ansible_collections.") else ""
ROOT = Path(__file__).resolve().parents[3 if COLLECTION else 2]
# The folder of the modules and of their documentation.
MODULES = ROOT / ("plugins/modules" if COLLECTION else "library")
# The folder of launch.yml and site.yml.
ENTRIES = ROOT / "playbooks" if COLLECTION else ROOT


def short(name: str) -> str:
    """Return the name of a plugin or module without the collection's."""
    return name.rpartition(".")[2]
