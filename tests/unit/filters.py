"""The project's filters by name, for tests."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "plugins/filter"
FILTERS = {}
for path in sorted(FOLDER.glob("*.py")):
    spec = importlib.util.spec_from_file_location(f"filters_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    FILTERS.update(module.FilterModule().filters())
