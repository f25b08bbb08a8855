"""What the scenarios' tests share: the lab's inventory, a playbook run against it, jobs, a failed node's journal."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import testinfra
from lab_jobs import LAB, Node, Play
from testinfra.backend.ssh import SshBackend
from testinfra.utils.ansible_runner import AnsibleRunner

PROJECT = Path(__file__).resolve().parents[1]
# testinfra has ssh keep its connections, but names no place for them, and so would log in anew for each command.
CONNECTIONS = Path.home() / ".ansible/cp" / LAB
SshBackend.__init__ = functools.partialmethod(SshBackend.__init__, controlpath=f"{CONNECTIONS}/tests-%%h")


class PlaybookRun(NamedTuple):
    """How ansible-playbook ended and what it printed."""

    rc: int
    output: str

    @property
    def text(self) -> str:
        """The output on one line: Ansible breaks long messages anywhere, a test compares whole sentences."""
        return " ".join(self.output.split())

    @property
    def changes(self) -> dict[str, int]:
        """Number of changed tasks by host, from the recap, which is left out where findings came before any change."""
        recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        if not recap and re.search(r"^  1\. .+\n     found ", self.output, re.MULTILINE):
            return {"any host": 0}
        return {host: int(number) for host, number in recap}


def _hang_up() -> None:
    for path in CONNECTIONS.glob("tests-*"):
        subprocess.run(["ssh", "-o", f"ControlPath={path}", "-O", "exit", "node"], check=False, capture_output=True)
        path.unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def own_connections() -> Iterator[None]:
    """Begin with new connections: limits and groups are those of the login, which may be older than the converge."""
    _hang_up()
    yield
    _hang_up()


@pytest.fixture(scope="session")
def inventory_path() -> Path:
    """Folder of the lab's inventory, the one that Molecule converged with."""
    # Molecule runs pytest in the scenario's folder, to which a relative name refers.
    return Path(os.environ.get("LAB_INVENTORY") or PROJECT / "inventories/lab").resolve()


@pytest.fixture(scope="session")
def inventory(inventory_path: Path) -> dict[str, Any]:
    """The lab's inventory as `ansible-inventory --list` prints it, which testinfra has read already."""
    return AnsibleRunner.get_runner(str(inventory_path)).inventory


@pytest.fixture(scope="session")
def node_names(inventory: dict[str, Any]) -> list[str]:
    """Names of the compute nodes in inventory order, which is the order of ranks."""
    return list(inventory["compute"]["hosts"])


@pytest.fixture(scope="session")
def node(inventory_path: Path) -> Callable[[str], Any]:
    """Return a function that gives the testinfra host of a node."""
    return lambda name: testinfra.get_host(f"ansible://{name}?ansible_inventory={inventory_path}")


@pytest.fixture(scope="session")
def node_vars(inventory: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Variables of each node."""
    return inventory["_meta"]["hostvars"]


@pytest.fixture(scope="module")
def run_playbook(request: pytest.FixtureRequest, inventory_path: Path):
    """Run a playbook of the scenario's folder, or one of the project (site.yml), against the lab.

    `run_playbook("bad_input.yml", "--limit", "n1", trainyard_uid=0)`: positional arguments go to ansible-playbook,
    keywords become extra variables, but `inventory` (another one than the lab's) and `timeout` (seconds).
    Returns (rc, output) with .text, the output on one line.
    """
    scenario = request.path.parent.parent

    def run(
        playbook: str, *arguments: str, inventory: Path = inventory_path, timeout: int = 600, **extra_vars: Any
    ) -> PlaybookRun:
        path = scenario / playbook if (scenario / playbook).exists() else PROJECT / playbook
        argv = ["ansible-playbook", "-i", str(inventory), str(path), *arguments, "-e", json.dumps(extra_vars)]
        env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        env.pop("ANSIBLE_FORCE_COLOR", None)
        done = subprocess.run(
            argv, env=env, cwd=PROJECT, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return PlaybookRun(done.returncode, done.stdout)

    return run


@pytest.fixture(scope="session")
def nodes(node_names: list[str]) -> dict[str, Node]:
    """The nodes by name, in inventory order."""
    return {name: Node(name) for name in node_names}


@pytest.fixture(scope="session")
def left(nodes: dict[str, Node]) -> Callable[[str], dict[str, list[int]]]:
    """Return what is left of a job: process ids by node, {} when nothing is."""
    return lambda job_id: {name: pids for name, node in nodes.items() if (pids := node.processes(job_id))}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, inventory_path: Path) -> Iterator[Play]:
    """Start playbooks: `play("playbooks/stop.yml", job_id=...)`, `play.launch(WORKER, job_nodes=2)`."""
    player = Play(tmp_path_factory.mktemp("jobs"), inventory_path)
    yield player
    player.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A test that fails on a node shows that node's last warnings."""
    report = yield
    host = getattr(item, "funcargs", {}).get("host")
    if report.when == "call" and report.failed and host is not None:
        journal = host.run("sudo journalctl --no-pager --priority=warning --lines=30")
        report.sections.append((f"journal of {host.backend.get_hostname()}", journal.stdout))
    return report
