# SPDX-License-Identifier: Apache-2.0
"""A report's page: one HTML file that needs nothing else and may load nothing else.

plotly.js (4.8 MB) is held compressed (2 MB) and unpacked by the browser: a page goes into every job's folder and is
sent around, and one copy for all pages would break each page that is sent alone. A page without figures does not hold
it.

The page's own policy allows no address at all and just the scripts whose hashes it names, so that a name or log line
that slipped through as HTML still could not run or fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..trainyard.report import job_page as of_job
from ..trainyard.report import verify_page as of_cluster
from .templates import FOLDER, render


def job_page(summary: of_job.Data, series: of_job.Series, told: str, library: bytes, reload_s: float = 0.0) -> str:
    """Return the page of a job. `told` is the text that the user reads at the end, `library` is plotly.js.

    That of a job that runs is reloaded every `reload_s`, unless that is 0.
    """
    return page("report/job.html.j2", of_job.content(summary, series, told, reload_s), library)


def verify_page(report: of_cluster.Data, library: bytes) -> str:
    """Return the page of a verification. `library` is plotly.js."""
    return page("report/verify.html.j2", of_cluster.content(report), library)


def page(template: str, content: Mapping[str, Any], library: bytes) -> str:
    """Return a whole page.

    `figures` in its content are plotly's (data, layout), each with the `id` of its place; `library` is plotly.js,
    without which nothing is drawn.
    """
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
