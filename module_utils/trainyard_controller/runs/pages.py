# SPDX-License-Identifier: Apache-2.0
"""Make the page of a report: one HTML file that needs and may load nothing else, so that it can be sent alone.

The page's policy allows no address, and only the script whose hash it names: a name or log line that slipped through as
HTML still could not run or fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from markupsafe import Markup

from ...trainyard.report.drill_page import drill_content
from ...trainyard.report.job_page import Data, OutputFile, Series, job_content
from ...trainyard.report.job_text import Story
from ...trainyard.report.verify_page import verify_content
from .templates import FOLDER, render


def job_page(
    summary: Data, series: Series, story: Story, launch: Data, reload_s: float = 0.0, files: Sequence[OutputFile] = ()
) -> str:
    """Return the page of a job with the `story` that also ends the playbook; `launch` is that of plan.json.

    `files` are its outputs. The browser reloads the page of a running job every `reload_s`, unless that is 0.
    """
    job = launch.get("job")
    variables = yaml.safe_dump(dict(job), sort_keys=False, width=100, allow_unicode=True) if job else ""
    content = job_content(summary, series, story, {**launch, "variables": variables}, reload_s, files)
    return page("report/job.html.j2", content)


def verify_page(report: Data) -> str:
    """Return the page of a verification."""
    return page("report/verify.html.j2", verify_content(report))


def drill_page(result: Data, plan: Data, runs: Sequence[Data]) -> str:
    """Return the page of a drill; `runs` are the records that its result came from."""
    return page("report/drill.html.j2", drill_content(result, plan, runs))


def page(template: str, content: Mapping[str, Any]) -> str:
    """Return a page with the project's style and script."""
    script, style = ((FOLDER / "report" / name).read_text(encoding="utf-8") for name in ("report.js", "report.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    frame = {
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'",
        # Files of the project, not of a machine.
        "script": Markup(script),  # noqa: S704
        "style": Markup(style),  # noqa: S704
    }
    return render(template, {**content, **frame})
