"""The collections of requirements.yml: what make installs, and what the project uses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
WANTED = {
    each["name"]: each["version"] for each in yaml.safe_load((PROJECT / "requirements.yml").read_text())["collections"]
}


def test_make_installs_the_versions_that_are_pinned():
    folders = {name: PROJECT / ".collections/ansible_collections" / name.replace(".", "/") for name in WANTED}
    manifests = {name: json.loads((folder / "MANIFEST.json").read_text()) for name, folder in folders.items()}
    assert {name: each["collection_info"]["version"] for name, each in manifests.items()} == WANTED


def test_every_collection_is_used_and_every_used_one_is_pinned():
    code = ["roles", "playbooks", "plugins", "molecule", "benchmarks", "site.yml", "launch.yml"]
    named = r"\b(ansible\.posix|community\.\w+|containers\.\w+|kubernetes\.core)\.\w+"
    found = subprocess.run(
        ["git", "grep", "--no-index", "-hoP", named, "--", *code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {re.match(r"\w+\.\w+", line)[0] for line in found.stdout.split()} == set(WANTED)
