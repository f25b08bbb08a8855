"""The plan of a lab, as JSON on stdout: its nodes and addresses, and what reaches them from the machine's pip.

Address 1 of the subnet is the bridge's, the nodes n1, n2, ... follow from 11 upward. The pip settings are those that
`pip config list` reports; folders that they name are mounted into the nodes at the same place.
"""

from __future__ import annotations

import argparse
import ast
import ipaddress
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

FIRST_HOST = 11
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
# What decides where packages come from; the rest (cache, certificates, targets) is the node's own affair.
PIP_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "default-timeout")


def plan_nodes(lab: str, count: int, subnet: str) -> dict[str, Any]:
    """Names and addresses of a lab's nodes; ValueError says what is wrong with the wish."""
    if not NAME.fullmatch(lab):
        raise ValueError(f"LAB={lab}: expected a lower-case name of letters, digits and dashes")
    network = ipaddress.ip_network(subnet)
    last = FIRST_HOST + count - 1
    if count < 1 or last >= network.num_addresses - 1:
        raise ValueError(f"NODES={count}: {subnet} has room for 1 to {network.num_addresses - 1 - FIRST_HOST} nodes")
    nodes = [
        {
            "name": f"n{i + 1}",
            "container": f"{lab}-n{i + 1}",
            "address": str(network[FIRST_HOST + i]),
            # As a real network card it outlives a reboot: with another one, the other nodes would go on for up to 15 s
            # to send to the one that they know.
            "mac": "02:00:" + network[FIRST_HOST + i].packed[-4:].hex(":"),
        }
        for i in range(count)
    ]
    return {"gateway": str(network[1]), "subnet": str(network), "nodes": nodes}


def read_pip_settings(listing: str) -> dict[str, list[str]]:
    """The settings of `pip config list` that matter for a node; the environment's win over the files'."""
    settings: dict[str, list[str]] = {}
    for from_environment in (False, True):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            section, _, key = name.rpartition(".")
            if key in PIP_KEYS and section == (":env:" if from_environment else "global"):
                settings[key] = str(ast.literal_eval(value)).split()
    return settings


def local_folders(settings: dict[str, list[str]]) -> list[str]:
    """Folders of the machine that the settings name.

    An index's links lead out of it (../../files), so its parent counts.
    """
    folders = set()
    for key in ("index-url", "extra-index-url", "find-links"):
        for value in settings.get(key, []):
            url = urlsplit(value)
            if url.scheme not in ("", "file"):
                continue
            path = Path(unquote(url.path))
            folders.add(str(path if key == "find-links" else path.parent))
    return sorted(folders)


def pip_conf(settings: dict[str, list[str]]) -> str:
    """The nodes' /etc/pip.conf."""
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    for key, values in settings.items():
        lines.append(f"{'timeout' if key == 'default-timeout' else key} = {' '.join(values)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the plan, or say what is wrong and exit with status 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", required=True)
    parser.add_argument("--nodes", required=True, type=int)
    parser.add_argument("--subnet", required=True)
    options = parser.parse_args()
    try:
        plan = plan_nodes(options.lab, options.nodes, options.subnet)
    except ValueError as error:
        sys.exit(f"The lab cannot be made: {error}.")
    argv = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(argv, check=True, capture_output=True, text=True)
    settings = read_pip_settings(listing.stdout)
    plan["pip_conf"] = pip_conf(settings)
    plan["pip_folders"] = [folder for folder in local_folders(settings) if Path(folder).is_dir()]
    print(json.dumps(plan))


if __name__ == "__main__":
    main()
