# SPDX-License-Identifier: Apache-2.0
"""The secrets of a job that a scheduler runs, in a file of its user (0600) that its hosts share.

The scheduler stores scripts, and the hosts of an allocation send nothing secret to each other.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...machine.json_files import read_object, write_json

# The settings of events, which only hosts that may lead the job get, and the login of the image's registry.
EVENTS, LOGIN = "events.json", "registry.json"


def write(path: str, content: Mapping[str, Any]) -> None:
    """Write `secret_env` by name, and `secret_files` by name in base64."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content, 0o600)


def read(path: str) -> dict[str, dict[str, str]]:
    """Read them; all are empty without a path, or without its file. In a pod it is a link."""
    found = read_object(os.path.realpath(path)) if path else {}
    return {
        key: {name: str(value) for name, value in dict(found.get(key) or {}).items()}
        for key in ("secret_env", "secret_files")
    }


def content(found: Mapping[str, Mapping[str, str]], name: str) -> dict[str, Any]:
    """Return what one of our own files among those that were read has, {} without it."""
    text = found["secret_files"].get(name)
    return dict(json.loads(base64.b64decode(text))) if text else {}


def filled(question: str, arguments: Mapping[str, Any], token: str) -> dict[str, Any]:
    """Return the arguments of a question with what is secret, from the file that they name as `secrets`.

    `start` gets the token of the job's monitors, too, which follows from the `token` by which the hosts meet. A host
    that `leads` may lead the job.
    """
    rest = {name: value for name, value in arguments.items() if name not in ("secrets", "leads")}
    if "secrets" not in arguments:
        return rest
    found = read(arguments["secrets"])
    if question == "bring_image":
        return {**rest, "image": {**rest["image"], "auth": content(found, LOGIN) or None}}
    ours = {LOGIN} if arguments["leads"] else {LOGIN, EVENTS}
    files = {name: text for name, text in found["secret_files"].items() if name not in ours}
    monitors = hmac.digest(token.encode(), b"monitors", "sha256").hex()
    return {**rest, "secret_env": found["secret_env"], "secret_files": files, "token": monitors}
