"""`make demo` from a bundle, in a network namespace that has nothing but loopback.

It takes minutes, the packages of PyTorch, and root, so it runs by name: pytest tests/offline/demo_by_name.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
INVENTORY = "inventories/localhost"


def run(*argv: str, cwd: Path = PROJECT, **env: str) -> str:
    """Return what a program prints, which has to succeed."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_bare_checkout_trains_without_a_network_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    given = [INVENTORY, "-e", f"trainyard_lock={tmp_path}/lock"]
    run("ansible-playbook", "playbooks/lock.yml", "-i", *given)
    where = ["-e", f"bundle_path={tmp_path}", "-e", f"bundle_key={tmp_path}/key"]
    run("ansible-playbook", "playbooks/bundle.yml", "-i", *given, *where)
    (bundle,) = tmp_path.glob("*.bundle")

    checkout = tmp_path / "checkout"
    checkout.mkdir()
    run("bash", "-c", 'git ls-files -z | xargs -0 cp --parents --no-dereference -t "$0"', str(checkout))
    demo = f"ip link set lo up && ! getent hosts example.org && make demo BUNDLE={bundle}"
    # No index of this machine may help, not even one in a folder.
    offline = {"cwd": checkout, "PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}
    first, second = (run("unshare", "--net", "bash", "-c", demo, **offline) for _ in range(2))
    assert "Installing the controller's tools into .venv" in first
    for output in (first, second):
        assert re.search(r"Job digits-\S+ succeeded", output)
    assert re.search(r"^localhost +: ok=\d+ +changed=0 ", second, re.MULTILINE)
