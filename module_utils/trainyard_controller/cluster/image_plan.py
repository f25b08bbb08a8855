# SPDX-License-Identifier: Apache-2.0
"""Plan an image of a framework, and render the texts of its build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...trainyard.software import image
from ..runs import templates


def image_plan(framework: str, environment: Mapping[str, Any], lock: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the findings, and without findings the arguments of the step `build` of framework_image.

    `environment` has the arguments of the module python_environment, `state` is the result of its step `read`.
    A base that check mode did not pull gives neither.
    """
    if not state["base"]:
        return {"findings": []}
    base = image.Base(**state["base"])
    environment = {**environment, "lock": lock}
    findings = [finding.as_dict() for finding in image.environment_findings(framework, environment, base)]
    if findings:
        return {"findings": findings}
    planned = image.plan(framework, environment, base)
    context = {
        **vars(planned),
        "title": planned.labels["org.opencontainers.image.title"],
        "fetching": image.FETCHING,
        "building": image.BUILDING,
    }
    files = {"constraints.txt": planned.constraints}
    containerfile = templates.render("image/Containerfile.j2", context)
    build = {**files, **{call.file: _text(call) for call in planned.install}, "Containerfile": containerfile}
    fetch = {**files, **{call.file: _text(call) for call in planned.fetch}}
    return {
        "findings": [],
        "name": planned.name,
        "base": base.id,
        "created": base.created,
        "recipe": image.digest([text for item in sorted(build.items()) for text in item]),
        "build": build,
        "fetch": {**fetch, "fetch.sh": templates.render("image/fetch.sh.j2", context)},
        "versions": planned.versions,
    }


def _text(call: image.Call) -> str:
    return "".join(f"{line}\n" for line in call.lines)
