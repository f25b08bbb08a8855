# SPDX-License-Identifier: Apache-2.0
"""Make the page of a report: one HTML file that needs and may load nothing else.

A page with figures holds plotly.js (4.8 MB) compressed (2 MB), because it is sent around alone; the browser unpacks it.
The page's policy allows no address, and only the scripts whose hashes it names: a name or log line that slipped through
as HTML still could not run or fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from ..trainyard.report import job_page as of_job
from ..trainyard.report import verify_page as of_cluster
from ..trainyard.report.job_text import Story
from .templates import FOLDER, render

NO_FIGURES = (
    "The Python that runs this module has no package plotly, so report.html has its tables but no figures. Expected: "
    "the versions of the group `controller` in pyproject.toml; `make demo` installs them into .venv"
)


def plotly_js() -> bytes:
    """Return plotly.js from the Python package plotly, whose import would take longer than a page; b"" without it."""
    found = importlib.util.find_spec("plotly")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_bytes()
    return b""


def job_page(
    summary: of_job.Data, series: of_job.Series, story: Story, launch: of_job.Data, reload_s: float = 0.0
) -> str:
    """Return the page of a job with the `story` that also ends the playbook; `launch` is that of plan.json.

    The browser reloads the page of a running job every `reload_s`, unless that is 0.
    """
    job = launch.get("job")
    variables = yaml.safe_dump(dict(job), sort_keys=False, width=100, allow_unicode=True) if job else ""
    content = of_job.content(summary, series, story, {**launch, "variables": variables}, reload_s)
    return page("report/job.html.j2", content, b"")


def verify_page(report: of_cluster.Data, library: bytes) -> str:
    """Return the page of a verification. `library` is plotly.js."""
    return page("report/verify.html.j2", of_cluster.content(report), library)


def page(template: str, content: Mapping[str, Any], library: bytes) -> str:
    """Return a page. `figures` in its content are plotly's (data, layout), each with the `id` of its place."""
    missing = bool(content["figures"]) and not library
    figures = [] if missing else content["figures"]
    script, style = ((FOLDER / "report" / name).read_text(encoding="utf-8") for name in ("report.js", "report.css"))
    scripts = [script.encode(), *([library] if figures else [])]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in scripts)
    frame = {
        "policy": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'",
        "figures": figures,
        "missing": missing,
        "library": base64.b64encode(zlib.compress(library, 6)).decode() if figures else "",
        # Files of the project, not of a machine.
        "script": Markup(script),  # noqa: S704
        "style": Markup(style),  # noqa: S704
    }
    return render(template, {**content, **frame})
