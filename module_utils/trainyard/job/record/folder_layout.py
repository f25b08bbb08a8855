# SPDX-License-Identifier: Apache-2.0
"""Where the files of a job lie, on a disk of each node or on one that nodes share.

    jobs/ID/                 what ranks save, there once where the disk is shared
    jobs/ID/source/          the program; the working folder of the ranks
    jobs/ID/hosts/NAME/      all that the node NAME writes about itself

Each rank starts through this module: importing typing or json would cost it time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HOSTS, SOURCE = "hosts", "source"
# Stands for the name of the node in a plan, and in questions to nodes.
HOST = "@trainyard-host@"


def node_dir(job_dir: str, host: str = HOST) -> str:
    """Return the part of a job's folder that a node writes."""
    return f"{job_dir}/{HOSTS}/{host}"


def common_dir(node_dir: str) -> str:
    """Return the folder of the job, which nodes may share, from a node's part; older jobs have no parts."""
    above = str(node_dir).rpartition("/")[0]
    return above[: -len(HOSTS) - 1] if above.endswith(f"/{HOSTS}") else str(node_dir)


def on_host(arguments: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the arguments of a question with the paths of one host."""
    import json

    text = json.dumps(arguments)
    return dict(json.loads(named(text, host)) if HOST in text else arguments)


def named(text: str, host: str) -> str:
    """Return a text of JSON with the name of the node in its paths."""
    import json

    return text.replace(HOST, json.dumps(host)[1:-1])
