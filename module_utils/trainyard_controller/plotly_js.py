# SPDX-License-Identifier: Apache-2.0
"""Read plotly.js from the Python package plotly of the controller."""

from __future__ import annotations

import importlib.util
from pathlib import Path

MISSING = (
    "The Python that runs this module has no package plotly, so report.html has its tables but no figures. Expected: "
    "the versions of the group `controller` in pyproject.toml; `make demo` installs them into .venv"
)


def plotly_js() -> bytes:
    """Return plotly.js, or nothing where there is none. The package is not imported, which takes longer than a page."""
    found = importlib.util.find_spec("plotly")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_bytes()
    return b""
